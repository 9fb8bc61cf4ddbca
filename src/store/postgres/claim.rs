//! Claiming: leases for what is pending and due (retries, what did not fit into a window, what a replica that is gone left
//! behind), when a lane's window has room.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::append::millis;
use super::connect::Failure;
use super::hand_out::Grant;
use super::transaction::Step;
use super::{Shared, key_kind};
use crate::id::{EventId, LeaseToken, SourceName};
use crate::key::DedupeKey;
use crate::store::codec;
use crate::store::model::StoredEvent;
use crate::store::window::{Room, WINDOW_LOW};
use crate::time::{Monotonic, Timestamp};

/// How often the database is asked what is due, whatever was heard: the net under all wake-ups.
const POLL: Duration = Duration::from_secs(1);
/// After a failure.
const PAUSE: Duration = Duration::from_millis(500);
/// Lanes per transaction, at most.
const LANES_MAX: usize = 16;

/// The task; ends when the store closes.
pub(super) async fn run(shared: Arc<Shared>, writer: i16) {
    let mut polled: Option<Monotonic> = None;
    loop {
        shared.give_back_surplus();
        let now = shared.leases_now();
        let mut done = Ok(());
        if shared.poll_wanted.swap(false, Ordering::AcqRel) || polled.is_none_or(|polled| now.since(polled) >= POLL) {
            polled = Some(now);
            done = poll(&shared).await;
        }
        if done.is_ok() {
            done = claim(&shared, writer).await;
        }
        let wait = match done {
            Ok(()) => until_due(&shared).min(POLL),
            Err(failure) => {
                shared.failed(&failure);
                PAUSE
            }
        };
        tokio::select! {
            () = shared.frozen.cancelled() => return,
            () = shared.claims.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// How long nothing known is due that has room.
fn until_due(shared: &Shared) -> Duration {
    let now = shared.database.now();
    let due = |lane: Arc<super::lanes::Lane>| {
        let due = lane.state().next_due()?.since(now);
        // A lane whose window is full asks when it runs low.
        (!due.is_zero() || lane.window().wants_more()).then_some(due)
    };
    let next = shared.lanes.iter().filter_map(due).min();
    next.unwrap_or(POLL).max(Duration::from_millis(5))
}

/// Learns what is due, also what other replicas left.
async fn poll(shared: &Shared) -> Result<(), Failure> {
    let numbers = shared.lanes.numbers();
    let before: Vec<u64> = shared.lanes.iter().map(|lane| lane.state().before_look()).collect();
    let rows = shared
        .database
        .read_at_once(include_str!("poll.sql"), &[(&numbers, Type::INT4_ARRAY)])
        .await?;
    for row in &rows {
        let (number, due): (i32, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
        if let Some((slot, lane)) = shared.lanes.numbered(number) {
            let before = before.get(slot).copied().unwrap_or(0);
            lane.state().looked(before, due.map(Timestamp::from_millis));
        }
    }
    Ok(())
}

/// One lane's part of a claim.
struct Asked {
    slot: usize,
    number: i32,
    room: Room,
    most: i64,
    bytes: i64,
    tokens: Vec<i64>,
    running: Vec<Uuid>,
    before: u64,
}

/// Gives the reserved room back, whatever becomes of the claim.
struct Reserved<'a> {
    shared: &'a Shared,
    asked: Vec<Asked>,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        for asked in &self.asked {
            if let Some(lane) = self.shared.lanes.get(asked.slot) {
                lane.release(asked.room.dispatches, asked.room.bytes);
            }
        }
    }
}

/// Claims for every lane that has room and something due, until none has.
async fn claim(shared: &Arc<Shared>, writer: i16) -> Result<(), Failure> {
    loop {
        let asked = ask(shared);
        if asked.is_empty() {
            return Ok(());
        }
        let reserved = Reserved { shared, asked };
        claim_for(shared, writer, &reserved.asked).await?;
    }
}

fn ask(shared: &Shared) -> Vec<Asked> {
    let now = shared.database.now();
    let monotonic = shared.leases_now();
    let mut asked = Vec::new();
    for (slot, lane) in shared.lanes.iter().enumerate() {
        if asked.len() >= LANES_MAX {
            break;
        }
        let before = {
            let state = lane.state();
            let due = state.next_due().is_some_and(|due| due <= now);
            if !due || state.record.paused || state.units(monotonic) == 0 {
                continue;
            }
            state.before_look()
        };
        // Set before looking, so that a feed that empties the window meanwhile asks again.
        lane.window().backlog.store(true, Ordering::Release);
        if !lane.window().wants_more() {
            continue;
        }
        let room = lane.reserve_for_claim(WINDOW_LOW);
        if room.dispatches == 0 || room.bytes == 0 {
            lane.release(room.dispatches, room.bytes);
            continue;
        }
        asked.push(Asked {
            slot,
            number: lane.number,
            room,
            most: i64::try_from(room.dispatches).unwrap_or(i64::MAX),
            bytes: i64::try_from(room.bytes).unwrap_or(i64::MAX),
            tokens: (0..room.dispatches).map(|_| rand::random()).collect(),
            running: shared.leases.lost_but_running(slot, monotonic),
            before,
        });
    }
    asked
}

async fn claim_for(shared: &Arc<Shared>, writer: i16, asked: &[Asked]) -> Result<(), Failure> {
    let now = shared.database.now().as_millis();
    let ttl = millis(shared.tuning.lease_ttl);
    let sent = shared.leases_now();
    let mut steps = Vec::with_capacity(asked.len() * 2);
    for asked in asked {
        steps.push(Step::new(
            include_str!("claim.sql"),
            [
                (&asked.number as _, Type::INT4),
                (&now as _, Type::INT8),
                (&asked.running as _, Type::UUID_ARRAY),
                (&asked.most as _, Type::INT8),
                (&asked.tokens as _, Type::INT8_ARRAY),
                (&ttl as _, Type::INT8),
                (&asked.bytes as _, Type::INT8),
                (&shared.replica as _, Type::UUID),
                (&writer as _, Type::INT2),
            ],
        ));
        steps.push(Step::new(
            include_str!("next_due.sql"),
            [
                (&asked.number as _, Type::INT4),
                (&asked.running as _, Type::UUID_ARRAY),
            ],
        ));
    }
    let done = shared.database.write(&steps).await;
    if matches!(done, Err(Failure::Lost(_))) {
        shared
            .orphans
            .add(asked.iter().flat_map(|asked| asked.tokens.iter().copied()));
    }
    let committed = done?;
    let until = shared.lease_until(sent);
    let mut grants = Vec::new();
    let mut sources = Vec::new();
    for (at, _asked) in asked.iter().enumerate() {
        for row in committed.step(at * 2) {
            sources.extend(row.try_get::<_, Option<i32>>("source")?);
        }
    }
    shared.sources.find(&shared.database, sources).await?;
    for (at, asked) in asked.iter().enumerate() {
        let next = match committed.step(at * 2 + 1).first() {
            Some(row) => Some(Timestamp::from_millis(row.try_get(0)?)),
            None => None,
        };
        if let Some(lane) = shared.lanes.get(asked.slot) {
            lane.state().looked(asked.before, next);
        }
        for row in committed.step(at * 2) {
            match read_grant(shared, asked.slot, row, until)? {
                Some(grant) => grants.push(grant),
                None => unreadable(shared, row)?,
            }
        }
    }
    shared.hand_out(grants);
    Ok(())
}

/// A claimed dispatch with its event; `None` when the event cannot be read.
pub(super) fn read_grant(shared: &Shared, lane: usize, row: &Row, until: Monotonic) -> Result<Option<Grant>, Failure> {
    let Some((event, key)) = read_event(shared, row)? else {
        return Ok(None);
    };
    let attempts: i32 = row.try_get("attempts")?;
    let on_clock: i32 = row.try_get("attempts_on_clock")?;
    let weight: i32 = row.try_get("weight")?;
    let stopped: i64 = row.try_get("clock_stopped_before")?;
    Ok(Some(Grant {
        lane,
        event: Arc::new(event),
        key,
        weight: usize::try_from(weight).unwrap_or(0),
        // The claim's reservation is given back as a whole.
        reserved: false,
        token: LeaseToken::new(row.try_get("token")?),
        until,
        attempt: u32::try_from(attempts).unwrap_or(u32::MAX),
        attempts_on_clock: u32::try_from(on_clock).unwrap_or(u32::MAX),
        replay: row.try_get("replay")?,
        clock_started_at: Timestamp::from_millis(row.try_get("clock_started_at")?),
        clock_stopped_before: Duration::from_millis(u64::try_from(stopped).unwrap_or(0)),
    }))
}

/// The event of a row with the columns of `event`, as the forwarder needs it.
pub(super) fn read_event(shared: &Shared, row: &Row) -> Result<Option<(StoredEvent, DedupeKey)>, Failure> {
    let (Some(source), Some(head)) = (
        row.try_get::<_, Option<i32>>("source")?,
        row.try_get::<_, Option<Vec<u8>>>("head")?,
    ) else {
        return Ok(None);
    };
    let (Some(source), Ok(head)) = (shared.sources.name(source), codec::decode_head(head)) else {
        return Ok(None);
    };
    let id: Uuid = row.try_get("event")?;
    let body: Vec<u8> = row.try_get("body")?;
    let digest: Vec<u8> = row.try_get("key")?;
    let Ok(digest) = <[u8; 32]>::try_from(digest) else {
        return Ok(None);
    };
    let event = StoredEvent {
        id: EventId::from_bytes(*id.as_bytes()),
        source: SourceName::new(source),
        scope: head.scope,
        secret_label: head.secret_label,
        delivery_id: text(row.try_get("delivery_id")?),
        event_type: text(row.try_get("event_type")?),
        verified: head.verified,
        awaited: head.awaited,
        received_at: Timestamp::from_millis(row.try_get("received_at")?),
        method: head.method,
        target: head.target,
        authority: head.authority,
        client: head.client,
        headers: head.headers,
        body: Bytes::from(body),
    };
    Ok(Some((
        event,
        DedupeKey::from_parts(digest, key_kind(row.try_get("key_kind")?)),
    )))
}

/// A column that was text when it was written.
pub(super) fn text(bytes: Option<Vec<u8>>) -> Option<String> {
    bytes.map(|bytes| {
        String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    })
}

/// A damaged event must not stop the lane, nor vanish: its dispatch is kept as dead by whoever looks after leases.
pub(super) fn unreadable(shared: &Shared, row: &Row) -> Result<(), Failure> {
    let event: Uuid = row.try_get("event")?;
    tracing::error!(%event, "a stored event cannot be read; its dispatch is dead");
    shared.bury(event, LeaseToken::new(row.try_get("token")?));
    Ok(())
}
