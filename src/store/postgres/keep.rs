//! Looking after leases: renewing ours, ending those that nobody renewed, burying what cannot be read,
//! letting go of what was leased without our hearing of it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::Shared;
use super::append::millis;
use super::connect::Failure;
use super::leases::LeaseRef;
use super::transaction::Step;
use crate::id::LeaseToken;
use crate::time::Monotonic;

/// Leases renewed per transaction, at most.
const RENEW_MAX: usize = 1_000;

/// The task; ends when the store closes, once no lease is out (or nothing can be done for them any more).
pub(super) async fn run(shared: Arc<Shared>, writer: i16) {
    let ttl = shared.tuning.lease_ttl;
    let pause = (ttl / 15).max(Duration::from_millis(10));
    let mut lapsed: Option<Monotonic> = None;
    let mut failed: Option<Monotonic> = None;
    loop {
        tokio::select! {
            () = shared.kept.cancelled() => return,
            () = shared.buried.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
        let now = shared.leases_now();
        if failed.is_some_and(|failed| now.since(failed) < Duration::from_millis(500)) {
            continue;
        }
        let mut done = renew(&shared).await;
        if done.is_ok() && lapsed.is_none_or(|lapsed| now.since(lapsed) >= (ttl / 8).max(pause)) {
            lapsed = Some(now);
            done = end_lapsed(&shared, writer).await;
        }
        if done.is_ok() {
            done = disown(&shared, writer).await;
        }
        if done.is_ok() {
            done = bury(&shared, writer).await;
        }
        failed = done.err().map(|failure| {
            shared.failed(&failure);
            shared.leases_now()
        });
    }
}

/// Renews what has less than two thirds of its time left.
async fn renew(shared: &Shared) -> Result<(), Failure> {
    let ttl = shared.tuning.lease_ttl;
    let due = shared.leases.due(shared.leases_now().after(ttl * 2 / 3));
    for part in due.chunks(RENEW_MAX) {
        let sent = shared.leases_now();
        let events: Vec<Uuid> = part
            .iter()
            .map(|lease| Uuid::from_bytes(*lease.event.as_bytes()))
            .collect();
        let first = events.iter().min().copied().unwrap_or_default();
        let last = events.iter().max().copied().unwrap_or_default();
        let number = |lease: &LeaseRef| shared.lanes.get(lease.lane).map_or(0, |lane| lane.number);
        let upstreams: Vec<i32> = part.iter().map(number).collect();
        let tokens: Vec<i64> = part.iter().map(|lease| lease.token.get()).collect();
        let ttl = millis(ttl);
        let step = Step::new(
            include_str!("renew.sql"),
            [
                (&events as _, Type::UUID_ARRAY),
                (&upstreams as _, Type::INT4_ARRAY),
                (&tokens as _, Type::INT8_ARRAY),
                (&ttl as _, Type::INT8),
                (&first as _, Type::UUID),
                (&last as _, Type::UUID),
            ],
        );
        let committed = shared.database.write(&[step]).await?;
        let mut kept = HashSet::with_capacity(part.len());
        for row in committed.step(0) {
            kept.insert(LeaseToken::new(row.try_get(0)?));
        }
        let lost = shared.leases.renewed(part, &kept, shared.lease_until(sent));
        if lost > 0 {
            tracing::warn!(
                lost,
                "leases were lost: discarded by a person, or taken over by another replica"
            );
        }
    }
    Ok(())
}

/// Leases of whoever did not renew them become pending again: a replica that is gone, or was stopped.
async fn end_lapsed(shared: &Shared, writer: i16) -> Result<(), Failure> {
    let numbers = shared.lanes.numbers();
    let step = Step::new(
        include_str!("lapse.sql"),
        [
            (&numbers as _, Type::INT4_ARRAY),
            (&shared.replica as _, Type::UUID),
            (&writer as _, Type::INT2),
        ],
    );
    let committed = shared.database.write(&[step]).await?;
    let now = shared.database.now();
    for row in committed.step(0) {
        let (number, count): (i32, i64) = (row.try_get(0)?, row.try_get(1)?);
        if let Some((_slot, lane)) = shared.lanes.numbered(number) {
            tracing::info!(upstream = %lane.name, dispatches = count, "leases had lapsed: their dispatches wait again");
            lane.pending_from(now);
        }
        shared.claims.notify_one();
    }
    Ok(())
}

/// Ends leases that a transaction of ours may have written without our hearing of it, so that nobody waits for their end.
async fn disown(shared: &Shared, writer: i16) -> Result<(), Failure> {
    let tokens = shared.orphans.take();
    if tokens.is_empty() {
        return Ok(());
    }
    let numbers = shared.lanes.numbers();
    let step = Step::new(
        include_str!("disown.sql"),
        [
            (&numbers as _, Type::INT4_ARRAY),
            (&tokens as _, Type::INT8_ARRAY),
            (&shared.replica as _, Type::UUID),
            (&writer as _, Type::INT2),
        ],
    );
    match shared.database.write(&[step]).await {
        Ok(committed) => {
            let now = shared.database.now();
            for row in committed.step(0) {
                if let Some((_slot, lane)) = shared.lanes.numbered(row.try_get(0)?) {
                    lane.pending_from(now);
                }
            }
            shared.claims.notify_one();
            Ok(())
        }
        Err(failure) => {
            shared.orphans.add(tokens);
            Err(failure)
        }
    }
}

async fn bury(shared: &Shared, writer: i16) -> Result<(), Failure> {
    let unreadable = shared.take_unreadable();
    if unreadable.is_empty() {
        return Ok(());
    }
    let events: Vec<Uuid> = unreadable.iter().map(|(event, _token)| *event).collect();
    let tokens: Vec<i64> = unreadable.iter().map(|(_event, token)| token.get()).collect();
    let step = Step::new(
        include_str!("bury.sql"),
        [
            (&events as _, Type::UUID_ARRAY),
            (&tokens as _, Type::INT8_ARRAY),
            (&shared.replica as _, Type::UUID),
            (&writer as _, Type::INT2),
        ],
    );
    let done = shared.database.write(&[step]).await;
    if done.is_err() {
        shared.put_back_unreadable(unreadable);
    }
    done.map(|_committed| ())
}
