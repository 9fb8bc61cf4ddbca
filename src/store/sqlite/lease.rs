//! Leases: handing dispatches to lanes, recording how attempts ended, taking unused ones back.
//!
//! A lease is a random token in the dispatch row. It is written, with the attempt's number, in the transaction before the
//! dispatch is handed out (P9); whoever settles names the token, and a row that has another one is left alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{OptionalExtension, params};

use super::inbox::LeaseRef;
use super::writer::{Move, Turn, Writer};
use super::{DispatchId, state_number, to_i64};
use crate::id::{EventId, LeaseToken, SourceName};
use crate::key::{DedupeKey, KeyKind};
use crate::store::codec;
use crate::store::model::{
    Death, DispatchState, GiveBack, LeasedDispatch, Next, Notice, Outcome, Settled, StoredEvent,
};
use crate::store::reply::Unattempted;
use crate::store::window::{Ready, WINDOW_LOW, weight_of};
use crate::time::Timestamp;

/// Dispatches read back per turn while appends wait.
const CLAIM_WHILE_BUSY: usize = 32;

/// A lease that is written in this turn and handed out once it is durable.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) lane: usize,
    pub(super) event: Arc<StoredEvent>,
    /// See [`weight_of`].
    pub(super) weight: usize,
    pub(super) token: LeaseToken,
    pub(super) attempt: u32,
    pub(super) attempts_on_clock: u32,
    pub(super) replay: bool,
    pub(super) clock_started_at: Timestamp,
    pub(super) clock_stopped_before: Duration,
}

/// A pending dispatch that is due, or asked for, read back.
pub(super) struct Due {
    id: DispatchId,
    attempts: u32,
    attempts_on_clock: u32,
    replay: bool,
    clock_started_at: Timestamp,
    clock_stopped_before: Duration,
    weight: usize,
    event: Option<StoredEvent>,
}

impl Writer {
    pub(super) fn record_settles(&mut self, turn: &mut Turn, most: usize) -> rusqlite::Result<()> {
        if self.settles.is_empty() {
            return Ok(());
        }
        turn.dirty = true;
        let mut update = self.conn.prepare_cached(include_str!("settle.sql"))?;
        for _ in 0..most.min(self.settles.len()) {
            let Some(settle) = self.settles.pop_front() else { break };
            // In the turn from the start: whatever fails below, a rollback queues it again.
            turn.settled.push((settle, Settled::LeaseLost));
            let Some((settle, found)) = turn.settled.last_mut() else {
                break;
            };
            let id = settle.lease.dispatch;
            let token = settle.lease.token.get();
            let (state, due) = match settle.next {
                Next::Delivered => (DispatchState::Delivered, Timestamp::from_millis(0)),
                Next::Retry { due } => (DispatchState::Pending, due),
                Next::Dead => (DispatchState::Dead, Timestamp::from_millis(0)),
            };
            if settle.attempt > 1 {
                self.conn
                    .prepare_cached(include_str!("keep_attempt.sql"))?
                    .execute(params![id, token])?;
            }
            let (status, cause) = match &settle.outcome {
                Outcome::Delivered { status } | Outcome::Refused { status } => (Some(status.as_u16()), None),
                Outcome::NotSent { cause } | Outcome::Unknown { cause } => (None, Some(cause.as_str())),
            };
            let changed = update.execute(params![
                id,
                token,
                state_number(state),
                due.as_millis(),
                settle.attempt,
                settle.started_at.as_millis(),
                i64::try_from(settle.took.as_millis()).unwrap_or(i64::MAX),
                outcome_number(&settle.outcome),
                status,
                cause,
                (!settle.excerpt.is_empty()).then_some(&*settle.excerpt),
            ])?;
            if changed == 0 {
                continue;
            }
            *found = Settled::Recorded;
            let Some(slot) = self.lane_of.get(&id.upstream()).copied() else {
                continue;
            };
            turn.moves.push(Move {
                lane: slot,
                from: Some(DispatchState::Leased),
                to: Some(state),
            });
            match settle.next {
                Next::Delivered => {
                    if let Some(reply) = &settle.reply {
                        self.conn
                            .prepare_cached(include_str!("keep_reply.sql"))?
                            .execute(params![
                                id,
                                reply.status.as_u16(),
                                reply.encoded_headers(),
                                reply.body.as_deref()
                            ])?;
                    }
                }
                Next::Retry { due } => {
                    if let Some(lane) = self.lanes.get_mut(slot) {
                        lane.pending_from(due);
                    }
                }
                Next::Dead => self.note_death(turn, id)?,
            }
        }
        Ok(())
    }

    /// Tells of a dispatch that this turn has made dead.
    fn note_death(&self, turn: &mut Turn, id: DispatchId) -> rusqlite::Result<()> {
        // The key of a copy that a person replayed is not ours to speak about.
        if self.has_elsewhere && elsewhere(&self.conn, id.position())?.is_some() {
            return Ok(());
        }
        if let Some(notice) = died(&self.conn, id, |source| self.source_names.get(&source).cloned())? {
            turn.notices.push(notice);
        }
        if self.settings.keep_deaths {
            self.conn
                .prepare_cached(include_str!("keep_death.sql"))?
                .execute([id.position()])?;
        }
        Ok(())
    }

    /// Leases whose attempts were not begun.
    pub(super) fn record_declines(&mut self, turn: &mut Turn) -> rusqlite::Result<()> {
        while let Some(decline) = self.declines.pop() {
            turn.dirty = true;
            let (id, token) = (decline.lease.dispatch, decline.lease.token.get());
            let (state, due) = match decline.then {
                Unattempted::Later { due } => (DispatchState::Pending, due),
                Unattempted::Dead => (DispatchState::Dead, Timestamp::from_millis(0)),
            };
            turn.declined.push((decline, Settled::LeaseLost));
            let changed = self.conn.prepare_cached(include_str!("decline.sql"))?.execute(params![
                id,
                token,
                state_number(state),
                due.as_millis()
            ])?;
            if changed == 0 {
                continue;
            }
            if let Some((_decline, found)) = turn.declined.last_mut() {
                *found = Settled::Recorded;
            }
            let Some(slot) = self.lane_of.get(&id.upstream()).copied() else {
                continue;
            };
            turn.moves.push(Move {
                lane: slot,
                from: Some(DispatchState::Leased),
                to: Some(state),
            });
            match state {
                DispatchState::Dead => self.note_death(turn, id)?,
                _ => self.becomes_pending(slot, due),
            }
        }
        Ok(())
    }

    /// Leases that were dropped unsettled: pending again, in their old place; the number of one that was taken stays used.
    pub(super) fn take_back(&mut self, turn: &mut Turn) -> rusqlite::Result<()> {
        while let Some(returned) = self.give_backs.pop() {
            turn.returned.push(returned);
            self.give_back(turn, returned.lease, u32::from(returned.unused))?;
        }
        Ok(())
    }

    /// Ends one lease; `unused` attempts are taken off its dispatch.
    pub(super) fn give_back(&mut self, turn: &mut Turn, lease: LeaseRef, unused: u32) -> rusqlite::Result<()> {
        turn.dirty = true;
        let due: Option<i64> = self
            .conn
            .prepare_cached(include_str!("give_back.sql"))?
            .query_row(params![lease.dispatch, lease.token.get(), unused], |row| row.get(0))
            .optional()?;
        let slot = self.lane_of.get(&lease.dispatch.upstream()).copied();
        if let (Some(due), Some(slot)) = (due, slot) {
            turn.moves.push(Move {
                lane: slot,
                from: Some(DispatchState::Leased),
                to: Some(DispatchState::Pending),
            });
            self.becomes_pending(slot, Timestamp::from_millis(due));
        }
        Ok(())
    }

    /// See [`super::writer::Lane::pending_from`].
    pub(super) fn becomes_pending(&mut self, slot: usize, due: Timestamp) {
        if let Some(lane) = self.lanes.get_mut(slot) {
            lane.pending_from(due);
        }
    }

    /// Whether some lane has room and something due.
    pub(super) fn claim_is_due(&self) -> bool {
        let now = self.clock.now();
        self.lanes.iter().any(|lane| {
            lane.next_due.is_some_and(|due| due <= now)
                && lane.window.as_ref().is_some_and(|window| window.wants_more())
        })
    }

    /// Leases due dispatches for every lane whose window runs low, and reads their events.
    pub(super) fn claim(&mut self, turn: &mut Turn, busy: bool) -> rusqlite::Result<()> {
        let now = self.clock.now();
        for slot in 0..self.lanes.len() {
            let Some(lane) = self.lanes.get(slot) else { continue };
            let Some(window) = &lane.window else { continue };
            if lane.next_due.is_none_or(|due| due > now) {
                continue;
            }
            // Set before looking, so that a feed that empties the window meanwhile asks again.
            window.backlog.store(true, Ordering::Release);
            if !window.wants_more() {
                continue;
            }
            let Some(room) = turn.rooms.get(slot).copied() else {
                continue;
            };
            let most = if busy { CLAIM_WHILE_BUSY } else { WINDOW_LOW }.min(room.dispatches);
            if most == 0 {
                continue;
            }
            let upstream = lane.upstream;
            let due = self.read_due(upstream, now, most, room.bytes)?;
            let taken = due.len();
            let mut bytes = room.bytes;
            for dispatch in due {
                bytes = bytes.saturating_sub(self.lease_one(turn, slot, dispatch)?);
            }
            if let Some(room) = turn.rooms.get_mut(slot) {
                room.dispatches = room.dispatches.saturating_sub(taken);
                room.bytes = bytes;
            }
            if taken < most && bytes > 0 {
                let next: Option<i64> = self
                    .conn
                    .prepare_cached(include_str!("next_due.sql"))?
                    .query_row([upstream], |row| row.get(0))
                    .optional()?;
                if let Some(lane) = self.lanes.get_mut(slot) {
                    lane.next_due = next.map(Timestamp::from_millis);
                    let more = lane.next_due.is_some_and(|due| due <= now);
                    if let Some(window) = &lane.window {
                        window.backlog.store(more, Ordering::Release);
                    }
                }
            }
        }
        Ok(())
    }

    /// The next `most` due dispatches, and no more than fit into `bytes`, but at least one.
    fn read_due(&self, upstream: u32, now: Timestamp, most: usize, bytes: usize) -> rusqlite::Result<Vec<Due>> {
        let mut statement = self.conn.prepare_cached(include_str!("due.sql"))?;
        let mut rows = statement.query(params![upstream, now.as_millis(), to_i64(most)])?;
        let mut due = Vec::new();
        let mut left = bytes;
        while left > 0
            && let Some(row) = rows.next()?
        {
            let found = self.read_dispatch(row)?;
            left = left.saturating_sub(found.weight);
            due.push(found);
        }
        Ok(due)
    }

    /// A dispatch with its event, in the columns of `due.sql`.
    pub(super) fn read_dispatch(&self, row: &rusqlite::Row<'_>) -> rusqlite::Result<Due> {
        let source: Option<u32> = row.get(7)?;
        let raw = match source {
            None => None,
            Some(source) => Some(RawEvent {
                id: row.get(6)?,
                source: self.source_names.get(&source).cloned(),
                received_at: row.get(8)?,
                delivery_id: row.get(9)?,
                event_type: row.get(10)?,
                head: row.get(11)?,
                body: row.get(12)?,
            }),
        };
        Ok(Due {
            id: DispatchId(row.get(0)?),
            attempts: row.get(1)?,
            attempts_on_clock: row.get(2)?,
            replay: row.get(3)?,
            clock_started_at: Timestamp::from_millis(row.get(4)?),
            clock_stopped_before: Duration::from_millis(row.get(5)?),
            weight: raw.as_ref().map_or(0, RawEvent::weight),
            event: raw.and_then(RawEvent::decode),
        })
    }

    /// Leases one pending dispatch for its lane's window; returns the memory it takes.
    fn lease_one(&mut self, turn: &mut Turn, slot: usize, due: Due) -> rusqlite::Result<usize> {
        let weight = due.weight;
        match self.grant(turn, slot, due)? {
            Some(grant) => {
                turn.grants.push(grant);
                Ok(weight)
            }
            None => Ok(0),
        }
    }

    /// Leases one pending dispatch; `None` where its event cannot be read, and it is dead.
    pub(super) fn grant(&mut self, turn: &mut Turn, slot: usize, due: Due) -> rusqlite::Result<Option<Grant>> {
        turn.dirty = true;
        let Some(event) = due.event else {
            // A damaged row must not stop the lane, nor vanish: it is kept as dead, and said loudly.
            tracing::error!(
                position = due.id.position(),
                "a stored event cannot be read; its dispatch is dead"
            );
            self.conn
                .prepare_cached(include_str!("end_dispatch.sql"))?
                .execute(params![due.id, state_number(DispatchState::Dead)])?;
            turn.moves.push(Move {
                lane: slot,
                from: Some(DispatchState::Pending),
                to: Some(DispatchState::Dead),
            });
            return Ok(None);
        };
        let token = LeaseToken::new(rand::random());
        let attempt = due.attempts.saturating_add(1);
        self.conn
            .prepare_cached(include_str!("lease.sql"))?
            .execute(params![due.id, token.get(), attempt])?;
        turn.moves.push(Move {
            lane: slot,
            from: Some(DispatchState::Pending),
            to: Some(DispatchState::Leased),
        });
        Ok(Some(Grant {
            lane: slot,
            event: Arc::new(event),
            weight: due.weight,
            token,
            attempt,
            attempts_on_clock: due.attempts_on_clock.saturating_add(1),
            replay: due.replay,
            clock_started_at: due.clock_started_at,
            clock_stopped_before: due.clock_stopped_before,
        }))
    }

    /// A lease that is durable.
    pub(super) fn leased(&self, lane: &super::writer::Lane, grant: Grant) -> LeasedDispatch {
        let lease = LeaseRef {
            dispatch: DispatchId::new(grant.event.id.position().get(), lane.upstream),
            token: grant.token,
        };
        let shared = Arc::clone(&self.shared);
        LeasedDispatch {
            event: grant.event,
            upstream: lane.name.clone(),
            attempt: grant.attempt,
            replay: grant.replay,
            clock_started_at: grant.clock_started_at,
            clock_stopped_before: grant.clock_stopped_before,
            attempts_on_clock: grant.attempts_on_clock,
            token: grant.token,
            give_back: Some(GiveBack(Box::new(move || shared.inbox.give_back(lease)))),
        }
    }

    /// Puts granted dispatches into their lanes' windows.
    pub(super) fn hand_out(&self, grants: Vec<Grant>) {
        let mut by_lane: Vec<Vec<Ready>> = self.lanes.iter().map(|_lane| Vec::new()).collect();
        for grant in grants {
            let (Some(lane), Some(ready)) = (self.lanes.get(grant.lane), by_lane.get_mut(grant.lane)) else {
                continue;
            };
            let weight = grant.weight;
            let dispatch = self.leased(lane, grant);
            ready.push(Ready { dispatch, weight });
        }
        for (lane, ready) in self.lanes.iter().zip(by_lane) {
            // What a window does not take gives itself back.
            if let Some(window) = &lane.window {
                drop(window.push(ready));
            }
        }
    }
}

/// The event that this one is a copy of, if it is one.
pub(super) fn elsewhere(conn: &rusqlite::Connection, position: i64) -> rusqlite::Result<Option<EventId>> {
    conn.prepare_cached(include_str!("elsewhere.sql"))?
        .query_row([position], |row| Ok(EventId::from_bytes(row.get(0)?)))
        .optional()
}

/// The notice of a dispatch that died.
fn died(
    conn: &rusqlite::Connection,
    id: DispatchId,
    source_name: impl Fn(u32) -> Option<SourceName>,
) -> rusqlite::Result<Option<Notice>> {
    let found = conn
        .prepare_cached(include_str!("event_key.sql"))?
        .query_row([id.position()], |row| {
            let key = DedupeKey::from_parts(row.get(3)?, key_kind(row.get(2)?));
            Ok((EventId::from_bytes(row.get(0)?), source_name(row.get(1)?), key))
        })
        .optional()?;
    Ok(found.and_then(|(event, source, key)| {
        Some(Notice::Died(Death {
            source: source?,
            key,
            event,
        }))
    }))
}

/// The columns of an event that are handed to a lane.
#[derive(Debug)]
pub(super) struct RawEvent {
    pub(super) id: [u8; 16],
    pub(super) source: Option<SourceName>,
    pub(super) received_at: i64,
    pub(super) delivery_id: Option<String>,
    pub(super) event_type: Option<String>,
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
}

impl RawEvent {
    /// Memory that the event will stand for.
    pub(super) fn weight(&self) -> usize {
        weight_of(self.head.len(), self.body.len())
    }

    pub(super) fn decode(self) -> Option<StoredEvent> {
        let head = codec::decode_head(self.head).ok()?;
        Some(StoredEvent {
            id: EventId::from_bytes(self.id),
            source: self.source?,
            scope: head.scope,
            secret_label: head.secret_label,
            delivery_id: self.delivery_id,
            event_type: self.event_type,
            verified: head.verified,
            awaited: head.awaited,
            received_at: Timestamp::from_millis(self.received_at),
            method: head.method,
            target: head.target,
            authority: head.authority,
            client: head.client,
            headers: head.headers,
            body: Bytes::from(self.body),
        })
    }
}

/// The number that an outcome has in the database.
pub(super) fn outcome_number(outcome: &Outcome) -> i64 {
    match outcome {
        Outcome::Delivered { .. } => 0,
        Outcome::Refused { .. } => 1,
        Outcome::NotSent { .. } => 2,
        Outcome::Unknown { .. } => 3,
    }
}

/// Reads the `key_kind` column.
pub(super) fn key_kind(number: i64) -> KeyKind {
    if number == 1 { KeyKind::Digest } else { KeyKind::Rule }
}
