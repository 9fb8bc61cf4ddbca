//! Admission: the step that decides, once and in append order, whether an event is new or a duplicate (P2).
//!
//! New → a dispatch for each upstream, in the same transaction. Duplicate → its row goes, and dead dispatches of the
//! event it repeats come back to life. Elsewhere (only on a separate store, see claim.rs) → its row stays without
//! dispatches, and its key does not become ours. Nothing is forwarded before it.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use super::keys::{Entry, Key, Kind};
use super::lease::{Grant, RawEvent, key_kind};
use super::writer::{Appended, Move, Turn, Writer};
use super::{DispatchId, state_number, to_i64};
use crate::id::{EventId, LeaseToken};
use crate::key::DedupeKey;
use crate::store::codec;
use crate::store::model::{Admission, Claim, Decision, DispatchState, Notice, decide};
use crate::time::Timestamp;

/// Events read back at a time when the tail does not fit in memory.
const LOAD: usize = 256;

impl Writer {
    pub(super) fn admit(&mut self, turn: &mut Turn, quota: usize) -> rusqlite::Result<()> {
        if quota == 0 || !self.may_admit() {
            return Ok(());
        }
        turn.dirty = true;
        let now = self.clock.now();
        for _ in 0..quota {
            let Some(appended) = self.next_unadmitted()? else { break };
            let admitted = self.admit_one(turn, &appended, now);
            // In the turn, whatever came of it: a rollback puts it back in front.
            turn.admitted.push(appended);
            admitted?;
        }
        Ok(())
    }

    fn next_unadmitted(&mut self) -> rusqlite::Result<Option<Appended>> {
        if self.tail.events.is_empty() && self.tail.count > 0 {
            self.load_tail()?;
        }
        if !self.may_admit() {
            return Ok(None);
        }
        let next = self.tail.events.pop_front();
        if let Some(appended) = &next {
            self.tail.bytes = self.tail.bytes.saturating_sub(appended.weight);
            self.tail.count = self.tail.count.saturating_sub(1);
        }
        Ok(next)
    }

    /// Reads the next part of the tail back.
    fn load_tail(&mut self) -> rusqlite::Result<()> {
        let mut statement = self.conn.prepare_cached(include_str!("unadmitted.sql"))?;
        let mut rows = statement.query(params![self.tail.loaded_end, to_i64(LOAD)])?;
        let mut loaded = 0;
        while let Some(row) = rows.next()? {
            let source: u32 = row.get(1)?;
            let upstreams: Vec<u8> = row.get(2)?;
            let raw = RawEvent {
                id: row.get(0)?,
                source: self.source_names.get(&source).cloned(),
                received_at: row.get(7)?,
                delivery_id: row.get(8)?,
                event_type: row.get(9)?,
                head: row.get(10)?,
                body: row.get(11)?,
            };
            let id = EventId::from_bytes(raw.id);
            let Some(source_name) = raw.source.clone() else {
                return Err(rusqlite::Error::IntegralValueOutOfRange(1, i64::from(source)));
            };
            let received_at = Timestamp::from_millis(raw.received_at);
            let weight = raw.weight();
            let event = raw.decode().map(Arc::new);
            self.tail.bytes += weight;
            self.tail.loaded_end = id.position().get() + 1;
            self.tail.events.push_back(Appended {
                id,
                source,
                source_name,
                lanes: codec::decode_upstreams(&upstreams)
                    .filter_map(|upstream| self.lane_of.get(&upstream).copied())
                    .collect(),
                key: DedupeKey::from_parts(row.get(4)?, key_kind(row.get(3)?)),
                content: row.get(5)?,
                body_mark: row.get(6)?,
                received_at,
                weight,
                event,
                claim: None,
            });
            loaded += 1;
        }
        drop(rows);
        drop(statement);
        if loaded < LOAD {
            // That was all: later appends go to memory again.
            self.tail.loaded_end = self.next_position;
            self.tail.count = self.tail.events.len();
        }
        Ok(())
    }

    fn admit_one(&mut self, turn: &mut Turn, appended: &Appended, now: Timestamp) -> rusqlite::Result<()> {
        let notice = |admission, event: EventId, body_mark| Notice::Admitted {
            appended: appended.id,
            claim: appended.claim,
            source: appended.source_name.clone(),
            key: appended.key,
            event,
            body_mark,
            received_at: event.received_at(),
            admission,
        };
        let own = self.look_up(appended)?;
        let claim = appended.claim.unwrap_or(Claim::Unheard);
        let by_is_here = match (own, claim) {
            (None, Claim::Held { by, .. }) => self.is_here(by)?,
            _ => false,
        };
        match (
            decide(own.map(|entry| entry.event), appended.id, claim, by_is_here),
            own,
        ) {
            (Decision::DuplicateHere { .. }, Some(entry)) => {
                self.conn
                    .prepare_cached(include_str!("drop_duplicate.sql"))?
                    .execute([appended.id.position().get()])?;
                let due = self.settings.due(&appended.source_name, now);
                let admission = if self.revive(turn, entry.event, due, now)? {
                    Admission::Revived { of: entry.event }
                } else {
                    Admission::Duplicate {
                        of: entry.event,
                        conflict: entry.body_mark != appended.body_mark,
                    }
                };
                turn.notices.push(notice(admission, entry.event, entry.body_mark));
                Ok(())
            }
            (Decision::Elsewhere { of, dead }, _) => {
                self.conn
                    .prepare_cached(include_str!("keep_elsewhere.sql"))?
                    .execute(params![
                        appended.id.position().get(),
                        of.as_bytes(),
                        dead,
                        now.as_millis()
                    ])?;
                turn.notices
                    .push(notice(Admission::Elsewhere { of, dead }, of, appended.body_mark));
                Ok(())
            }
            (Decision::New | Decision::DuplicateHere { .. }, _) => {
                let held = self.take_keys(appended)?;
                let admission = if held { Admission::Held } else { Admission::New };
                turn.notices.push(notice(admission, appended.id, appended.body_mark));
                self.make_dispatches(turn, appended, held, now)
            }
        }
    }

    /// Whether an event is in this store, admitted or not. Any id has a position: the whole of it is compared.
    pub(super) fn is_here(&self, event: EventId) -> rusqlite::Result<bool> {
        self.conn
            .prepare_cached(include_str!("is_here.sql"))?
            .exists(params![event.position().get(), event.as_bytes()])
    }

    /// What this store's unique key says. Digest keys live for `digest_window`, judged by the distance of the
    /// received-at times.
    fn look_up(&mut self, appended: &Appended) -> rusqlite::Result<Option<Entry>> {
        let kind = Kind::from(appended.key.kind());
        let key = Key::new(appended.source, kind, appended.key.digest());
        let conn = &self.conn;
        let found = self.keys.find(&key, |page| read_key_page(conn, page))?;
        Ok(found.filter(|entry| kind != Kind::Digest || self.is_near(entry, appended)))
    }

    /// Takes the unique key, which was found free. Says whether the event's content was seen under another id.
    fn take_keys(&mut self, appended: &Appended) -> rusqlite::Result<bool> {
        let entry = Entry {
            event: appended.id,
            body_mark: appended.body_mark,
        };
        let mut held = false;
        if let Some(content) = &appended.content {
            let content = Key::new(appended.source, Kind::Content, content);
            let conn = &self.conn;
            let seen = self.keys.find(&content, |page| read_key_page(conn, page))?;
            held = seen.is_some_and(|seen| self.is_near(&seen, appended));
            if !held {
                self.keys.insert(content, entry, appended.received_at);
            }
        }
        let key = Key::new(appended.source, Kind::from(appended.key.kind()), appended.key.digest());
        self.keys.insert(key, entry, appended.received_at);
        Ok(held)
    }

    fn is_near(&self, entry: &Entry, appended: &Appended) -> bool {
        distance(entry.event.received_at(), appended.received_at) <= self.settings.digest_window
    }

    fn make_dispatches(
        &mut self,
        turn: &mut Turn,
        appended: &Appended,
        held: bool,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let mut insert = self.conn.prepare_cached(include_str!("make_dispatch.sql"))?;
        // In the order of arrival; a received-at time ahead of our clock must not delay it.
        let arrived = appended.received_at.min(now);
        let due = self.settings.due(&appended.source_name, arrived);
        let is_asked_for = due > arrived;
        for slot in appended.lanes.iter().copied() {
            let Some(lane) = self.lanes.get_mut(slot) else { continue };
            let stopped_before = lane.record.stopped_total;
            // A lane that is caught up gets it at once, leased, without the store being asked again.
            let caught_up = lane.next_due.is_none_or(|due| due > now);
            let room = turn
                .rooms
                .get_mut(slot)
                .filter(|room| room.dispatches > 0 && room.bytes > 0);
            let state = match (&appended.event, room) {
                _ if held => DispatchState::Held,
                (Some(event), Some(room)) if caught_up && !is_asked_for => {
                    room.dispatches -= 1;
                    room.bytes = room.bytes.saturating_sub(appended.weight);
                    let token = LeaseToken::new(rand::random());
                    turn.grants.push(Grant {
                        lane: slot,
                        event: Arc::clone(event),
                        weight: appended.weight,
                        token,
                        attempt: 1,
                        attempts_on_clock: 1,
                        replay: false,
                        clock_started_at: now,
                        clock_stopped_before: stopped_before,
                    });
                    DispatchState::Leased
                }
                _ => {
                    lane.pending_from(due);
                    DispatchState::Pending
                }
            };
            let token = match state {
                DispatchState::Leased => turn.grants.last().map(|grant| grant.token.get()),
                _ => None,
            };
            insert.execute(params![
                DispatchId::new(appended.id.position().get(), lane.upstream),
                lane.upstream,
                state_number(state),
                due.as_millis(),
                i64::from(token.is_some()),
                token,
                false,
                now.as_millis(),
                i64::try_from(stopped_before.as_millis()).unwrap_or(i64::MAX),
            ])?;
            turn.moves.push(Move {
                lane: slot,
                from: None,
                to: Some(state),
            });
        }
        Ok(())
    }

    /// Brings dead dispatches of an event back: pending, due then, with fresh clocks (the provider's "redeliver").
    fn revive(&mut self, turn: &mut Turn, event: EventId, due: Timestamp, now: Timestamp) -> rusqlite::Result<bool> {
        if self.lanes.iter().all(|lane| lane.states.get(DispatchState::Dead) == 0)
            && !turn.moves.iter().any(|step| step.to == Some(DispatchState::Dead))
        {
            return Ok(false);
        }
        let position = event.position().get();
        let mut revived = false;
        for (id, state, _token) in dispatch_states(&self.conn, position)? {
            if state != DispatchState::Dead {
                continue;
            }
            let Some(slot) = self.lane_of.get(&id.upstream()).copied() else {
                continue;
            };
            self.restart(turn, slot, id, state, Restart { replay: false, due }, now)?;
            revived = true;
        }
        Ok(revived)
    }

    /// Makes an existing dispatch pending again, with fresh give-up clocks.
    pub(super) fn restart(
        &mut self,
        turn: &mut Turn,
        slot: usize,
        id: DispatchId,
        from: DispatchState,
        how: Restart,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let Some(lane) = self.lanes.get_mut(slot) else {
            return Ok(());
        };
        turn.dirty = true;
        let stopped = i64::try_from(lane.record.stopped_total.as_millis()).unwrap_or(i64::MAX);
        self.conn
            .prepare_cached(include_str!("restart_dispatch.sql"))?
            .execute(params![id, now.as_millis(), how.replay, stopped, how.due.as_millis()])?;
        lane.pending_from(how.due);
        self.shared.reopened(id);
        turn.moves.push(Move {
            lane: slot,
            from: Some(from),
            to: Some(DispatchState::Pending),
        });
        Ok(())
    }
}

/// How a dispatch becomes pending again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restart {
    /// A person asked for it.
    pub(super) replay: bool,
    pub(super) due: Timestamp,
}

/// The dispatches of an event with their states and lease tokens.
pub(super) fn dispatch_states(
    conn: &Connection,
    position: i64,
) -> rusqlite::Result<Vec<(DispatchId, DispatchState, Option<LeaseToken>)>> {
    conn.prepare_cached(include_str!("dispatch_states.sql"))?
        .query_map(
            params![DispatchId::first(position), DispatchId::first(position + 1)],
            |row| {
                let number: i64 = row.get(1)?;
                let state = super::state_from(number).ok_or(rusqlite::Error::IntegralValueOutOfRange(1, number))?;
                let token: Option<i64> = row.get(2)?;
                Ok((DispatchId(row.get(0)?), state, token.map(LeaseToken::new)))
            },
        )?
        .collect()
}

pub(super) fn read_key_page(conn: &Connection, id: i64) -> rusqlite::Result<Option<Vec<u8>>> {
    conn.prepare_cached(include_str!("key_page.sql"))?
        .query_row([id], |row| row.get(0))
        .optional()
}

/// How far apart two times are, whichever is later.
fn distance(a: Timestamp, b: Timestamp) -> std::time::Duration {
    a.since(b).max(b.since(a))
}
