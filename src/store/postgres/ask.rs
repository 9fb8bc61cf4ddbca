//! Asking for an event's dispatch, for a sender that waits for the upstream's answer.
//!
//! One transaction, which begins with the dispatch's row lock, so that what it then reads is what whoever had the lock left: whoever comes first has it, the others find it running, at whichever
//! replica. What an answer that was not heard had leased is found again by its token.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::append::millis;
use super::claim::{read_grant, unreadable};
use super::connect::Failure;
use super::transaction::Step;
use super::{ASKER, Shared, state_from};
use crate::id::LeaseToken;
use crate::store::StoreError;
use crate::store::model::DispatchState;
use crate::store::reply::{Found, Reply, Want};

/// Asks under way at once: each takes a connection.
pub(super) const AT_ONCE: usize = 2;
/// Tries, with a pause between them.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn lease_now(shared: &Arc<Shared>, want: &Want) -> Result<Found, StoreError> {
    shared.is_open()?;
    let Some((slot, _lane)) = shared.lanes.configured(&want.upstream) else {
        return Err(StoreError::UnknownUpstream(want.upstream.clone()));
    };
    let event = Uuid::from_bytes(*want.event.as_bytes());
    if shared
        .leases
        .lost_but_running(slot, shared.leases_now())
        .contains(&event)
    {
        return Ok(Found::Running { event: want.event });
    }
    let token = LeaseToken::new(rand::random());
    let mut unheard = false;
    let mut tries = 0;
    loop {
        tries += 1;
        let failure = match ask(shared, want, slot, event, token).await {
            Ok(found) => {
                shared.succeeded();
                return Ok(found);
            }
            Err(failure) => failure,
        };
        unheard |= matches!(failure, Failure::Lost(_));
        shared.failed(&failure);
        if tries >= TRIES || matches!(failure, Failure::Data(_) | Failure::Refused(_)) {
            if unheard {
                shared.orphans.add([token.get()]);
            }
            return Err(failure.into());
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = shared.given_up.cancelled() => return Err(StoreError::Closing),
        }
    }
}

async fn ask(shared: &Arc<Shared>, want: &Want, slot: usize, event: Uuid, token: LeaseToken) -> Result<Found, Failure> {
    let Some(lane) = shared.lanes.get(slot) else {
        return Err(Failure::Refused("the upstream has no lane".to_owned()));
    };
    let _few_at_a_time = shared
        .asks
        .acquire()
        .await
        .map_err(|closed| Failure::Refused(closed.to_string()))?;
    let now = shared.database.now();
    let sent = shared.leases_now();
    let (token_number, ttl) = (token.get(), millis(shared.tuning.lease_ttl));
    let (start, due) = (now.as_millis(), shared.settings().due(&want.source, now).as_millis());
    let steps = [
        Step::new(
            include_str!("lock_dispatch.sql"),
            [(&event as _, Type::UUID), (&lane.number as _, Type::INT4)],
        ),
        Step::new(
            include_str!("lease_now.sql"),
            [
                (&event as _, Type::UUID),
                (&lane.number as _, Type::INT4),
                (&token_number as _, Type::INT8),
                (&ttl as _, Type::INT8),
                (&start as _, Type::INT8),
                (&due as _, Type::INT8),
                (&shared.replica as _, Type::UUID),
                (&ASKER as _, Type::INT2),
                (&want.take as _, Type::BOOL),
            ],
        ),
    ];
    let committed = shared.database.write(&steps).await?;
    let Some(row) = committed.step(1).first() else {
        return Err(Failure::Lost("the database said nothing of a dispatch".to_owned()));
    };
    if row.try_get::<_, Option<i64>>("token")?.is_none() {
        return not_leased(want, row);
    }
    shared
        .sources
        .find(&shared.database, row.try_get::<_, Option<i32>>("source")?)
        .await?;
    let Some(grant) = read_grant(shared, slot, row, shared.lease_until(sent))? else {
        unreadable(shared, row)?;
        return Ok(Found::Over(Some(DispatchState::Dead)));
    };
    shared.remember(std::slice::from_ref(&grant));
    Ok(Found::Leased(shared.leased(&lane, grant)))
}

fn not_leased(want: &Want, row: &Row) -> Result<Found, Failure> {
    if let Some(reply) = kept_reply(row)? {
        return Ok(Found::Replied(reply));
    }
    let state: Option<i16> = row.try_get("state")?;
    let lapsed = row.try_get::<_, Option<bool>>("lapsed")?.unwrap_or(false);
    Ok(match state.map(state_from) {
        // Nothing was to be taken.
        Some(DispatchState::Pending | DispatchState::Dead) => Found::Waiting,
        Some(DispatchState::Leased) if lapsed => Found::Waiting,
        Some(DispatchState::Leased) => Found::Running { event: want.event },
        Some(state) => Found::Over(Some(state)),
        None if row.try_get("is_here")? => Found::Elsewhere,
        None => Found::Over(None),
    })
}

fn kept_reply(row: &Row) -> Result<Option<Reply>, Failure> {
    let (Some(status), Some(headers)) = (
        row.try_get::<_, Option<i16>>("status")?,
        row.try_get::<_, Option<Vec<u8>>>("headers")?,
    ) else {
        return Ok(None);
    };
    Ok(Reply::decode(status.into(), headers, row.try_get("reply_body")?))
}
