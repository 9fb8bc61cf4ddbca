//! Wake-ups between replicas. They shorten a wait; the poll is the net.
//!
//! `NOTIFY` serialises commits, so it never stands in a transaction that somebody waits for, and comes in tiny ones of its
//! own, throttled. `LISTEN` is session state, so it needs a server connection of our own: behind a pooler it would be given
//! to some session and never be heard. The connection is our own when the server sees the address that our socket has.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_postgres::types::Type;

use super::Shared;
use super::connect::{Conn, Connector, Failure, Heard, describe, notifications};

/// Between two announcements.
const THROTTLE: Duration = Duration::from_millis(100);
/// Before another try to listen.
const PAUSE: Duration = Duration::from_secs(5);
/// A listener asks whether its connection lives.
const CHECK: Duration = Duration::from_secs(30);

/// Tells other replicas that something is pending; ends when the store closes.
pub(super) async fn announce(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            () = shared.closing.cancelled() => return,
            () = shared.announce.notified() => {}
        }
        if shared.replicas.load(Ordering::Relaxed) > 1 {
            tell(&shared, "hooksluice_work").await;
        }
        tokio::select! {
            () = shared.closing.cancelled() => return,
            () = tokio::time::sleep(THROTTLE) => {}
        }
    }
}

/// Tells all who listen; best effort.
pub(super) async fn tell(shared: &Shared, channel: &str) {
    let told = shared
        .database
        .read_at_once(include_str!("notify.sql"), &[(&channel, Type::TEXT)])
        .await;
    if let Err(failure) = told {
        tracing::debug!(%failure, "other replicas were not woken");
    }
}

/// Listens, where that can be done; ends when the store closes.
pub(super) async fn listen(shared: Arc<Shared>, connector: Connector) {
    loop {
        tokio::select! {
            () = shared.closing.cancelled() => return,
            listened = listen_once(&shared, &connector) => match listened {
                Ok(Direct::Yes) => {}
                Ok(Direct::No) => {
                    tracing::info!("behind a pooler (or on a local socket): other replicas are heard by polling");
                    return;
                }
                Err(failure) => tracing::debug!(%failure, "not listening"),
            },
        }
        tokio::select! {
            () = shared.closing.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

enum Direct {
    Yes,
    No,
}

async fn listen_once(shared: &Shared, connector: &Connector) -> Result<Direct, Failure> {
    let (sender, mut heard) = notifications();
    let conn = connector.connect(Some(sender)).await?;
    if !is_direct(&conn).await? {
        return Ok(Direct::No);
    }
    conn.client
        .batch_execute("LISTEN hooksluice_work; LISTEN hooksluice_lanes")
        .await?;
    loop {
        match tokio::time::timeout(CHECK, heard.recv()).await {
            Ok(Some(Heard::Work)) => shared.poll_now(),
            Ok(Some(Heard::Lanes)) => shared.ticks.notify_one(),
            Ok(None) => return Ok(Direct::Yes),
            Err(_quiet) => conn
                .client
                .check_connection()
                .await
                .map_err(|error| Failure::Lost(describe(&error)))?,
        }
    }
}

async fn is_direct(conn: &Conn) -> Result<bool, Failure> {
    let Some(local) = conn.local else { return Ok(false) };
    let rows = conn.client.query_typed(include_str!("peer.sql"), &[]).await?;
    let Some(row) = rows.first() else { return Ok(false) };
    let (address, port): (Option<String>, Option<i32>) = (row.try_get(0)?, row.try_get(1)?);
    let seen = address.and_then(|address| address.parse::<std::net::IpAddr>().ok());
    Ok(
        seen.map(|seen| seen.to_canonical()) == Some(local.ip().to_canonical())
            && port == Some(i32::from(local.port())),
    )
}
