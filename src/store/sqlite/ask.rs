//! Answering senders that wait for their event's dispatch ([`Store::lease_now`](crate::store::Store::lease_now)).
//!
//! An ask waits in memory until its event is admitted; who asked for an event that a crash took from the tail asks no more.
//! Admission has left the dispatch pending until the sender's patience is over, so no window holds it.

use rusqlite::{OptionalExtension, params};

use super::admit::{Restart, read_key_page};
use super::inbox::Ask;
use super::keys::{Key, Kind};
use super::lease::Grant;
use super::writer::{Turn, Writer};
use super::{DispatchId, state_from};
use crate::id::EventId;
use crate::key::KeyKind;
use crate::store::StoreError;
use crate::store::model::DispatchState;
use crate::store::reply::{Found, Reply, Want};

/// Asks answered per transaction, at most: each may read a body.
const ASKS_PER_TURN: usize = 64;

/// What a turn found, to be told once it is durable.
#[derive(Debug)]
pub(super) enum Answer {
    /// Leased in this turn.
    Leased(Box<Grant>),
    /// Anything else.
    Found(Result<Found, StoreError>),
}

/// Where the event is that an ask means.
enum Meant {
    Event(EventId),
    Forgotten,
}

impl Writer {
    /// Whether an ask can be answered now.
    pub(super) fn has_ready_asks(&self) -> bool {
        let end = self.admitted_end();
        self.asks.iter().any(|ask| ask.want.event.position().get() < end)
    }

    /// Answers the asks whose event is admitted.
    pub(super) fn answer_asks(&mut self, turn: &mut Turn) -> rusqlite::Result<()> {
        if self.asks.is_empty() {
            return Ok(());
        }
        let end = self.admitted_end();
        let mut at = 0;
        while at < self.asks.len() && turn.asked.len() < ASKS_PER_TURN {
            let Some(ask) = self.asks.get(at) else { break };
            if ask.found.is_closed() {
                self.asks.swap_remove(at);
            } else if ask.want.event.position().get() < end {
                let ask = self.asks.remove(at);
                let answer = self.look_for(turn, &ask.want)?;
                turn.asked.push((ask, answer));
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    fn look_for(&mut self, turn: &mut Turn, want: &Want) -> rusqlite::Result<Answer> {
        let found = |found| Ok(Answer::Found(Ok(found)));
        let configured = |lane: &super::writer::Lane| lane.name == want.upstream && lane.window.is_some();
        let Some((slot, lane)) = self.lanes.iter().enumerate().find(|(_slot, lane)| configured(lane)) else {
            return Ok(Answer::Found(Err(StoreError::UnknownUpstream(want.upstream.clone()))));
        };
        let upstream = lane.upstream;
        let event = match self.meant(want)? {
            Meant::Event(event) => event,
            Meant::Forgotten => return found(Found::Over(None)),
        };
        let id = DispatchId::new(event.position().get(), upstream);
        let state: Option<i64> = self
            .conn
            .prepare_cached(include_str!("dispatch_state.sql"))?
            .query_row([id], |row| row.get(0))
            .optional()?;
        let Some(state) = state else {
            // A row without dispatches is a copy of an event in another store, or went elsewhere under another
            // configuration; without its row, the key alone is left of it.
            let is_kept = self.is_here(event)?;
            return found(if is_kept { Found::Elsewhere } else { Found::Over(None) });
        };
        // Whatever became of it since: a person may have replayed it.
        if let Some(reply) = self.kept_reply(id)? {
            return found(Found::Replied(reply));
        }
        match state_from(state) {
            Some(DispatchState::Leased) => found(Found::Running { event }),
            Some(DispatchState::Pending | DispatchState::Dead) if !want.take => found(Found::Waiting),
            Some(DispatchState::Pending) => self.lease_for_asker(turn, slot, id),
            Some(DispatchState::Dead) => {
                let now = self.clock.now();
                let due = self.settings.due(&want.source, now);
                let how = Restart { replay: false, due };
                self.restart(turn, slot, id, DispatchState::Dead, how, now)?;
                self.lease_for_asker(turn, slot, id)
            }
            Some(state @ (DispatchState::Delivered | DispatchState::Held | DispatchState::Discarded)) => {
                found(Found::Over(Some(state)))
            }
            None => Err(rusqlite::Error::IntegralValueOutOfRange(0, state)),
        }
    }

    /// The event itself, or the one that has its key.
    fn meant(&mut self, want: &Want) -> rusqlite::Result<Meant> {
        if self.is_here(want.event)? {
            return Ok(Meant::Event(want.event));
        }
        let Some(source) = self.sources.get(&want.source).copied() else {
            return Ok(Meant::Forgotten);
        };
        let key = Key::new(source, Kind::from(want.key.kind()), want.key.digest());
        let conn = &self.conn;
        let entry = self.keys.find(&key, |page| read_key_page(conn, page))?;
        let window = self.settings.digest_window;
        let near = |event: EventId| {
            let received_at = event.received_at();
            received_at
                .since(want.received_at)
                .max(want.received_at.since(received_at))
                <= window
        };
        let speaks = |event: EventId| want.key.kind() == KeyKind::Rule || near(event);
        Ok(entry
            .filter(|entry| speaks(entry.event))
            .map_or(Meant::Forgotten, |entry| Meant::Event(entry.event)))
    }

    fn kept_reply(&self, id: DispatchId) -> rusqlite::Result<Option<Reply>> {
        let kept: Option<(i64, Vec<u8>, Option<Vec<u8>>)> = self
            .conn
            .prepare_cached(include_str!("reply.sql"))?
            .query_row([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        Ok(kept.and_then(|(status, headers, body)| Reply::decode(status, headers, body)))
    }

    fn lease_for_asker(&mut self, turn: &mut Turn, slot: usize, id: DispatchId) -> rusqlite::Result<Answer> {
        let due = self
            .conn
            .prepare_cached(include_str!("one_dispatch.sql"))?
            .query_row(params![id], |row| self.read_dispatch(row))?;
        Ok(match self.grant(turn, slot, due)? {
            Some(grant) => Answer::Leased(Box::new(grant)),
            None => Answer::Found(Ok(Found::Over(Some(DispatchState::Dead)))),
        })
    }

    /// The turn is durable.
    pub(super) fn tell_askers(&self, asked: Vec<(Ask, Answer)>) {
        for (ask, answer) in asked {
            let found = match answer {
                Answer::Found(found) => found,
                Answer::Leased(grant) => match self.lanes.get(grant.lane) {
                    Some(lane) => Ok(Found::Leased(self.leased(lane, *grant))),
                    None => Err(StoreError::UnknownUpstream(ask.want.upstream.clone())),
                },
            };
            // A lease that nobody hears of gives itself back.
            drop(ask.found.send(found));
        }
    }
}
