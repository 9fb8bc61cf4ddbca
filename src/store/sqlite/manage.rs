//! What people and lanes ask of stored dispatches: replay, discard, remember a lane's state.

use rusqlite::{OptionalExtension, params};
use tokio::sync::oneshot;

use super::admit::{Restart, dispatch_states};
use super::inbox::Order;
use super::writer::{Move, Reply, Turn, Writer};
use super::{DispatchId, state_number};
use crate::id::{EventId, UpstreamName};
use crate::store::codec;
use crate::store::model::{DispatchState, LaneRecord, LaneSave};
use crate::store::secrets::{FORGET_SECRETS_AFTER, SecretNote};
use crate::store::{Discarded, Replayed, StoreError};
use crate::time::Timestamp;

impl Writer {
    /// Carries an order out in the open transaction; the reply is to be called once that is durable or gone.
    pub(super) fn obey(&mut self, turn: &mut Turn, order: Order) -> rusqlite::Result<Reply> {
        Ok(match order {
            Order::Replay {
                event,
                upstreams,
                reply,
            } => {
                let done = self.replay(turn, event, upstreams.as_deref())?;
                answer(reply, move |committed| committed.and(done))
            }
            Order::Discard { event, upstream, reply } => {
                let done = self.discard(turn, event, upstream.as_ref())?;
                answer(reply, move |committed| committed.map(|()| done))
            }
            Order::SaveLane { upstream, save, reply } => {
                let saved = self.save_lane(turn, upstream, save)?;
                answer(reply, move |committed| committed.and(saved))
            }
            Order::Resolve { key, resolution, reply } => {
                let done = self.resolve(turn, &key, &resolution)?;
                answer(reply, move |committed| committed.map(|()| done))
            }
            Order::Reconfigure { live, reply } => {
                let reconfigure = self.prepare_reconfigure(turn, live, reply)?;
                turn.reconfigure.push(reconfigure);
                Box::new(|_committed| ())
            }
            // It holds whether or not they could be handed back: they are tried again.
            Order::Reconfigured { reply } => answer(reply, |_committed| Ok(())),
            Order::DeathsTold { deaths, reply } => {
                turn.dirty = true;
                let mut told = self.conn.prepare_cached(include_str!("death_told.sql"))?;
                for (position, times) in deaths {
                    told.execute([position, times])?;
                }
                answer(reply, |committed| committed)
            }
            Order::NoteSecrets { notes, reply } => {
                self.note_secrets(turn, &notes)?;
                answer(reply, |committed| committed)
            }
        })
    }

    fn note_secrets(&self, turn: &mut Turn, notes: &[SecretNote]) -> rusqlite::Result<()> {
        turn.dirty = true;
        let now = self.clock.now();
        let mut note = self.conn.prepare_cached(include_str!("note_secret.sql"))?;
        for seen in notes {
            note.execute(params![
                seen.source.as_str(),
                seen.mark.get(),
                seen.used.map(Timestamp::as_millis),
                i64::try_from(seen.others).unwrap_or(i64::MAX),
                now.as_millis(),
            ])?;
        }
        let long_ago = now.before(FORGET_SECRETS_AFTER).as_millis();
        let mut forget = self.conn.prepare_cached(include_str!("forget_secrets.sql"))?;
        forget.execute([long_ago])?;
        Ok(())
    }

    /// The record as it will be once the turn is committed; nobody sees it earlier.
    fn save_lane(
        &self,
        turn: &mut Turn,
        upstream: UpstreamName,
        save: LaneSave,
    ) -> rusqlite::Result<Result<LaneRecord, StoreError>> {
        let Some((slot, lane)) = self.lanes.iter().enumerate().find(|(_, lane)| lane.name == upstream) else {
            return Ok(Err(StoreError::UnknownUpstream(upstream)));
        };
        let earlier = turn.lane_records.iter().rev().find(|(saved, _)| *saved == slot);
        let before = earlier.map_or(lane.record, |(_, record)| *record);
        let record = LaneRecord {
            paused: save.order.unwrap_or(before.paused),
            orders: before.orders + u64::from(save.order.is_some()),
            stopped_total: save.stopped_total.max(before.stopped_total),
        };
        self.conn
            .prepare_cached(include_str!("save_lane.sql"))?
            .execute(params![
                lane.upstream,
                record.paused,
                i64::try_from(record.stopped_total.as_millis()).unwrap_or(i64::MAX)
            ])?;
        turn.lane_records.push((slot, record));
        turn.dirty = true;
        Ok(Ok(record))
    }

    fn replay(
        &mut self,
        turn: &mut Turn,
        event: EventId,
        upstreams: Option<&[UpstreamName]>,
    ) -> rusqlite::Result<Result<Replayed, StoreError>> {
        let mut wanted = None;
        if let Some(names) = upstreams {
            let mut slots = Vec::new();
            for name in names {
                let configured = |lane: &super::writer::Lane| lane.name == *name && lane.window.is_some();
                match self.lanes.iter().position(configured) {
                    Some(slot) => slots.push(slot),
                    None => return Ok(Err(StoreError::UnknownUpstream(name.clone()))),
                }
            }
            slots.sort_unstable();
            slots.dedup();
            wanted = Some(slots);
        }
        match self.find(event)? {
            Place::Missing => return Ok(Ok(Replayed::NotFound)),
            Place::NotAdmitted => return Ok(Ok(Replayed::NotAdmitted)),
            Place::Admitted => {}
        }
        let now = self.clock.now();
        let position = event.position().get();
        let (mut pending, mut busy) = (Vec::new(), Vec::new());
        let held = dispatch_states(&self.conn, position)?;
        let slots = match wanted {
            Some(slots) => slots,
            // A copy of an event that is elsewhere has none yet: to where it would have gone.
            None if held.is_empty() => self.slots(self.upstreams_of(position)?),
            None => self.slots(held.iter().map(|(id, _state, _token)| id.upstream()).collect()),
        };
        for slot in slots {
            let Some(lane) = self.lanes.get(slot) else { continue };
            let name = lane.name.clone();
            let id = DispatchId::new(position, lane.upstream);
            match held.iter().find(|(held, _state, _token)| *held == id) {
                Some((_id, DispatchState::Leased, _token)) => busy.push(name),
                Some((_id, state, _token)) => {
                    turn.save_tally |= *state == DispatchState::Discarded;
                    self.restart(turn, slot, id, *state, Restart { replay: true, due: now }, now)?;
                    pending.push(name);
                }
                None => {
                    self.make_for_replay(turn, slot, id, now)?;
                    pending.push(name);
                }
            }
        }
        Ok(Ok(Replayed::Pending {
            upstreams: pending,
            busy,
        }))
    }

    fn slots(&self, upstreams: Vec<u32>) -> Vec<usize> {
        let numbers = upstreams.into_iter();
        numbers
            .filter_map(|number| self.lane_of.get(&number).copied())
            .collect()
    }

    /// The upstreams that the event was appended for.
    fn upstreams_of(&self, position: i64) -> rusqlite::Result<Vec<u32>> {
        let upstreams: Vec<u8> = self
            .conn
            .prepare_cached(include_str!("event_upstreams.sql"))?
            .query_row([position], |row| row.get(0))?;
        Ok(codec::decode_upstreams(&upstreams).collect())
    }

    /// A dispatch to an upstream that the event had none for.
    fn make_for_replay(
        &mut self,
        turn: &mut Turn,
        slot: usize,
        id: DispatchId,
        now: crate::time::Timestamp,
    ) -> rusqlite::Result<()> {
        let Some(lane) = self.lanes.get_mut(slot) else {
            return Ok(());
        };
        turn.dirty = true;
        // Made below the tally's position, where opening would not count it.
        turn.save_tally = true;
        self.conn
            .prepare_cached(include_str!("make_dispatch.sql"))?
            .execute(params![
                id,
                lane.upstream,
                state_number(DispatchState::Pending),
                now.as_millis(),
                0,
                None::<i64>,
                true,
                now.as_millis(),
                i64::try_from(lane.record.stopped_total.as_millis()).unwrap_or(i64::MAX),
            ])?;
        lane.pending_from(now);
        self.shared.reopened(id);
        turn.moves.push(Move {
            lane: slot,
            from: None,
            to: Some(DispatchState::Pending),
        });
        Ok(())
    }

    fn discard(
        &mut self,
        turn: &mut Turn,
        event: EventId,
        upstream: Option<&UpstreamName>,
    ) -> rusqlite::Result<Discarded> {
        match self.find(event)? {
            Place::Missing => return Ok(Discarded::NotFound),
            Place::NotAdmitted => return Ok(Discarded::NotAdmitted),
            Place::Admitted => {}
        }
        let mut upstreams = Vec::new();
        for (id, state, token) in dispatch_states(&self.conn, event.position().get())? {
            if matches!(state, DispatchState::Delivered | DispatchState::Discarded) {
                continue;
            }
            let Some(slot) = self.lane_of.get(&id.upstream()).copied() else {
                continue;
            };
            let Some(lane) = self.lanes.get(slot) else { continue };
            if upstream.is_some_and(|upstream| *upstream != lane.name) {
                continue;
            }
            self.conn
                .prepare_cached(include_str!("end_dispatch.sql"))?
                .execute(params![id, state_number(DispatchState::Discarded)])?;
            // A lease that is out loses its fence; the lane is told before it sends, if it has not yet.
            turn.revoked.extend(token);
            turn.save_tally = true;
            turn.dirty = true;
            turn.moves.push(Move {
                lane: slot,
                from: Some(state),
                to: Some(DispatchState::Discarded),
            });
            upstreams.push(lane.name.clone());
        }
        Ok(Discarded::Discarded { upstreams })
    }

    fn find(&self, event: EventId) -> rusqlite::Result<Place> {
        let position = event.position().get();
        let found: Option<[u8; 16]> = self
            .conn
            .prepare_cached(include_str!("event_key.sql"))?
            .query_row([position], |row| row.get(0))
            .optional()?;
        Ok(match found {
            Some(id) if EventId::from_bytes(id) == event => {
                if position < self.admitted_end() {
                    Place::Admitted
                } else {
                    Place::NotAdmitted
                }
            }
            Some(_) | None => Place::Missing,
        })
    }
}

/// A reply for the caller; one that stopped waiting does not matter, the order is carried out.
fn answer<T: Send + 'static>(
    reply: oneshot::Sender<Result<T, StoreError>>,
    done: impl FnOnce(Result<(), StoreError>) -> Result<T, StoreError> + Send + 'static,
) -> Reply {
    Box::new(move |committed| {
        let _stopped_waiting = reply.send(done(committed));
    })
}

enum Place {
    Missing,
    NotAdmitted,
    Admitted,
}
