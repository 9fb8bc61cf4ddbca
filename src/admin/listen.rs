//! The admin listener's accept loop: few connections, none of them for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::auth::LocalAddress;

/// Open connections; more wait in the system's queue.
const CONNECTIONS: usize = 64;

/// From the start of waiting for a head to its end, idle time on a kept connection included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest life of a connection, but for one that gets on with a long answer: it has as long again each time.
const CONNECTION_AGE: Duration = Duration::from_secs(600);

/// How long open connections may take to end after the stop.
const GRACE: Duration = Duration::from_secs(2);

/// How far a connection's long answers have come.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<AtomicU64>);

impl Progress {
    /// A part of a long answer was taken by the client.
    pub(super) fn made(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Accepts until `stop`, then lets running requests end for [`GRACE`].
pub(super) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = TaskTracker::new();
    loop {
        let slot = tokio::select! {
            () = stop.cancelled() => break,
            slot = Arc::clone(&slots).acquire_owned() => slot,
        };
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _peer)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely: others must end first.
                    warn!(%error, "the admin listener could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let (router, stop) = (router.clone(), stop.clone());
        connections.spawn(async move {
            let _slot = slot;
            let progress = Progress::default();
            let mut connection = Box::pin(connection(stream, router, progress.clone(), stop));
            let mut before = 0;
            while tokio::time::timeout(CONNECTION_AGE, connection.as_mut()).await.is_err() {
                let now = progress.0.load(Ordering::Relaxed);
                if now == before {
                    debug!("an admin connection reached its longest life");
                    break;
                }
                before = now;
            }
        });
    }
    connections.close();
    if tokio::time::timeout(GRACE, connections.wait()).await.is_err() {
        debug!(open = connections.len(), "admin connections were cut off");
    }
}

async fn connection(stream: TcpStream, router: Router, progress: Progress, stop: CancellationToken) {
    let Ok(local) = stream.local_addr() else {
        return; // gone already
    };
    let router = router
        .layer(Extension(LocalAddress(local.ip())))
        .layer(Extension(progress));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(32 << 10)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "an admin connection broke");
    }
}
