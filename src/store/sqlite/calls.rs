//! Records of idempotent calls: taking keys, ending calls, forgetting records whose time is over.
//!
//! All of it shares the writer's turns, and so its syncs: a call costs two turns, one that begins it and one that ends it. A
//! key that is taken is said to be so without reading what took it ([`calls`](crate::store::calls)), and a turn that
//! found nothing else has nothing to sync.
//!
//! **Promises.** A record is durable before its call is handed out. Whoever is not handed its call finds the key free
//! again, or ambiguous; never free when it may have run. A wrong clock frees no key: while it is doubted, nothing expires.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::{OptionalExtension, params};
use tokio::sync::oneshot;

use super::inbox::Order;
use super::writer::{Turn, Writer};
use super::{Backend, to_i64};
use crate::headers;
use crate::id::RouteName;
use crate::store::StoreError;
use crate::store::calls::{Begin, Ending, Taking};
use crate::store::model::AppendError;
use crate::store::records::{
    Call, Completed, NewCall, Record, RecordCounts, RecordFilter, RecordKey, RecordKind, RecordPage, RecordPlace,
    Resolution, Resolved, StoredAnswer,
};
use crate::time::{Monotonic, Timestamp};

/// Calls that begin in one transaction, at most.
const BEGINS_MAX: usize = 512;
/// Bytes of answers written in one transaction, about.
const ENDING_BYTES_MAX: usize = 16 << 20;
/// Expired records removed per turn: each lies on a page of its own in the index of keys.
const EXPIRED_SLICE: usize = 64;
/// Between two looks for expired records that found none left.
const EXPIRED_EVERY: Duration = Duration::from_secs(1);

/// What waits, and what the writer knows.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) begins: VecDeque<Begin>,
    pub(super) endings: VecDeque<Ending>,
    routes: HashMap<RouteName, u32>,
    counted: Counted,
    /// The last look found as many expired ones as it may remove.
    pub(super) more_expired: bool,
    next_look: Monotonic,
}

/// Records by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted([i64; 4]);

impl Counted {
    pub(super) fn add(&mut self, kind: RecordKind, change: i64) {
        if let Some(count) = self.0.get_mut(usize::from(kind.number())) {
            *count += change;
        }
    }

    fn by_kind(self) -> BTreeMap<RecordKind, u64> {
        let counts = RecordKind::ALL.into_iter().zip(self.0);
        counts
            .map(|(kind, count)| (kind, u64::try_from(count).unwrap_or(0)))
            .collect()
    }
}

impl Calls {
    pub(super) fn new(routes: HashMap<RouteName, u32>, counted: Counted) -> Self {
        Self {
            routes,
            counted,
            ..Self::default()
        }
    }

    pub(super) fn none_waits(&self) -> bool {
        self.begins.is_empty() && self.endings.is_empty()
    }

    pub(super) fn counts(&self) -> Counted {
        self.counted
    }

    /// A turn is durable that moved these.
    pub(super) fn moved(&mut self, moves: &[(Option<RecordKind>, Option<RecordKind>)]) {
        for (from, to) in moves {
            if let Some(from) = from {
                self.counted.add(*from, -1);
            }
            if let Some(to) = to {
                self.counted.add(*to, 1);
            }
        }
    }
}

/// What a key finds.
struct Held {
    id: i64,
    state: Option<RecordKind>,
    expires_at: Timestamp,
    fingerprint: Vec<u8>,
}

impl Writer {
    /// Numbers for routes that were never seen, as for other names.
    pub(super) fn learn_routes(&mut self) -> rusqlite::Result<()> {
        for begin in self.calls.begins.iter().take(BEGINS_MAX) {
            let route = &begin.call.key.route;
            if !self.calls.routes.contains_key(route) {
                let number = self
                    .conn
                    .prepare_cached(include_str!("learn_route.sql"))?
                    .query_row([route.as_str()], |row| row.get(0))?;
                self.calls.routes.insert(route.clone(), number);
            }
        }
        Ok(())
    }

    /// Gives keys that are free to those who wait for them, the first come first.
    pub(super) fn begin_calls(&mut self, turn: &mut Turn) -> rusqlite::Result<()> {
        for _ in 0..BEGINS_MAX {
            let Some(begin) = self.calls.begins.pop_front() else {
                break;
            };
            let taken = self.take_key(turn, &begin);
            // It answers an error if anything fails: it stays in the turn from here on.
            turn.begun.push((begin, matches!(taken, Ok(true))));
            taken?;
        }
        Ok(())
    }

    fn take_key(&self, turn: &mut Turn, begin: &Begin) -> rusqlite::Result<bool> {
        let call = &begin.call;
        if let Some(held) = self.held(&call.key)? {
            let retried = held.state == Some(RecordKind::Ambiguous)
                && call.after_ambiguous
                && held.fingerprint == call.fingerprint.0;
            if !retried && !self.has_expired(&held) {
                return Ok(false);
            }
            self.remove_record(turn, held.id, held.state)?;
        }
        turn.dirty = true;
        self.conn
            .prepare_cached(include_str!("begin_record.sql"))?
            .execute(params![
                begin.token.get(),
                call.accepted_at.as_millis(),
                expires_at(call).as_millis(),
                self.calls.routes.get(&call.key.route),
                call.key.digest.as_slice(),
                call.fingerprint.0.as_slice(),
                &*call.client_key,
            ])?;
        turn.records_moved.push((None, Some(RecordKind::Running)));
        Ok(true)
    }

    fn held(&self, key: &RecordKey) -> rusqlite::Result<Option<Held>> {
        let Some(route) = self.calls.routes.get(&key.route) else {
            return Ok(None);
        };
        self.conn
            .prepare_cached(include_str!("record_of_key.sql"))?
            .query_row(params![key.digest.as_slice(), route], |row| {
                Ok(Held {
                    id: row.get(0)?,
                    state: RecordKind::from_number(row.get(1)?),
                    expires_at: Timestamp::from_millis(row.get(2)?),
                    fingerprint: row.get(3)?,
                })
            })
            .optional()
    }

    /// A call that runs keeps its record, however long it takes.
    fn has_expired(&self, held: &Held) -> bool {
        held.state != Some(RecordKind::Running) && self.expiry_now().is_some_and(|now| now >= held.expires_at)
    }

    /// The time that decides what has expired; `None` while the clock is doubted.
    fn expiry_now(&self) -> Option<Timestamp> {
        let trusted = self.shared.clock_trusted.load(Ordering::Relaxed);
        trusted.then_some(self.now)
    }

    fn remove_record(&self, turn: &mut Turn, id: i64, state: Option<RecordKind>) -> rusqlite::Result<()> {
        turn.dirty = true;
        for sql in [include_str!("remove_record.sql"), include_str!("remove_answer.sql")] {
            self.conn.prepare_cached(sql)?.execute([id])?;
        }
        turn.records_moved.push((state, None));
        Ok(())
    }

    /// Records how calls ended, where the record still is theirs.
    pub(super) fn end_calls(&mut self, turn: &mut Turn) -> rusqlite::Result<()> {
        let mut bytes = 0_usize;
        while bytes < ENDING_BYTES_MAX {
            let Some(ending) = self.calls.endings.pop_front() else {
                break;
            };
            bytes = bytes.saturating_add(ending.bytes());
            let ended = self.end_call(turn, &ending);
            let found = match ended {
                Ok(true) => Completed::Recorded,
                Ok(false) | Err(_) => Completed::NotOurs,
            };
            // It is tried again if anything fails: it stays in the turn from here on.
            turn.ended.push((ending, found));
            ended?;
        }
        Ok(())
    }

    /// The last ones, at closing.
    pub(super) fn end_all_calls(&mut self, turn: &mut Turn) -> rusqlite::Result<()> {
        while !self.calls.endings.is_empty() {
            self.end_calls(turn)?;
        }
        Ok(())
    }

    fn end_call(&self, turn: &mut Turn, ending: &Ending) -> rusqlite::Result<bool> {
        let Some(route) = self.calls.routes.get(&ending.key.route) else {
            return Ok(false);
        };
        let digest = ending.key.digest.as_slice();
        let token = ending.token.get();
        let to = ending.end.kind();
        let ended = match to {
            None => {
                let gone = self
                    .conn
                    .prepare_cached(include_str!("release_record.sql"))?
                    .execute(params![digest, route, token])?;
                gone > 0
            }
            Some(kind) => {
                let status = ending.end.answer().map(|answer| answer.status.as_u16());
                let id: Option<i64> = self
                    .conn
                    .prepare_cached(include_str!("end_record.sql"))?
                    .query_row(params![digest, route, token, kind.number(), status], |row| row.get(0))
                    .optional()?;
                if let (Some(id), Some(answer)) = (id, ending.end.answer()) {
                    self.keep_answer(id, answer)?;
                }
                id.is_some()
            }
        };
        if ended {
            turn.dirty = true;
            turn.records_moved.push((Some(RecordKind::Running), to));
        }
        Ok(ended)
    }

    fn keep_answer(&self, id: i64, answer: &StoredAnswer) -> rusqlite::Result<()> {
        let mut list = Vec::new();
        headers::encode(&answer.headers, &mut list);
        self.conn
            .prepare_cached(include_str!("keep_answer.sql"))?
            .execute(params![id, list, &*answer.body])?;
        Ok(())
    }

    /// Removes a slice of what has expired.
    pub(super) fn expire_records(&mut self, turn: &mut Turn) -> rusqlite::Result<()> {
        let monotonic = self.clock.monotonic();
        let Some(now) = self.expiry_now() else {
            return Ok(());
        };
        if !self.calls.more_expired && monotonic < self.calls.next_look {
            return Ok(());
        }
        let expired: Vec<(i64, i64)> = self
            .conn
            .prepare_cached(include_str!("expired_records.sql"))?
            .query_map(params![now.as_millis(), to_i64(EXPIRED_SLICE)], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect::<Result<_, _>>()?;
        for (id, state) in &expired {
            self.remove_record(turn, *id, RecordKind::from_number(*state))?;
        }
        self.calls.more_expired = expired.len() == EXPIRED_SLICE;
        self.calls.next_look = monotonic.after(EXPIRED_EVERY);
        Ok(())
    }

    /// Carries out what a person says of an ambiguous record.
    pub(super) fn resolve(
        &self,
        turn: &mut Turn,
        key: &RecordKey,
        resolution: &Resolution,
    ) -> rusqlite::Result<Resolved> {
        let Some(held) = self.held(key)?.filter(|held| !self.has_expired(held)) else {
            return Ok(Resolved::Unknown);
        };
        match (held.state, resolution) {
            (Some(RecordKind::Ambiguous), Resolution::Release) => self.remove_record(turn, held.id, held.state)?,
            (Some(RecordKind::Ambiguous), Resolution::Answer(answer)) => {
                turn.dirty = true;
                self.conn
                    .prepare_cached(include_str!("answer_record.sql"))?
                    .execute(params![held.id, answer.status.as_u16()])?;
                self.keep_answer(held.id, answer)?;
                turn.records_moved.push((held.state, Some(RecordKind::Done)));
            }
            (Some(other), _) => return Ok(Resolved::NotAmbiguous(other)),
            (None, _) => return Ok(Resolved::Unknown),
        }
        Ok(Resolved::Done)
    }

    /// The turn is durable: calls are handed out, and those that wait for an end are told.
    pub(super) fn answer_calls(&self, begun: Vec<(Begin, bool)>, ended: Vec<(Ending, Completed)>) {
        for (begin, started) in begun {
            let taking = if started {
                Taking::Started(self.call(&begin))
            } else {
                Taking::Taken
            };
            if let Err(Ok(Taking::Started(call))) = begin.reply.send(Ok(taking)) {
                // Whoever asked has gone, and nobody else can have the call.
                let (key, token) = call.forget();
                let _closing = self.shared.inbox.end(Ending::unheard(key, token));
            }
        }
        for (ending, found) in ended {
            ending.answer(found);
        }
    }

    fn call(&self, begin: &Begin) -> Call {
        let (key, token) = (begin.call.key.clone(), begin.token);
        let shared = Arc::downgrade(&self.shared);
        let abandoned = key.clone();
        Call {
            key,
            token,
            expires_at: expires_at(&begin.call),
            abandon: Some(Box::new(move || {
                if let Some(shared) = shared.upgrade() {
                    // Once closing, the next opening does it.
                    let _closing = shared.inbox.end(Ending::abandoned(abandoned, token));
                }
            })),
        }
    }

    pub(super) fn refuse_begins(&mut self, why: &str) {
        for begin in self.calls.begins.drain(..) {
            let _hung_up = begin.reply.send(Err(AppendError::Failed(why.to_owned())));
        }
    }
}

fn expires_at(call: &NewCall) -> Timestamp {
    call.accepted_at.after(call.ttl)
}

impl Backend {
    pub(in crate::store) fn begin(&self, begin: Begin) -> Result<(), AppendError> {
        self.has_files()?;
        if self.shared.disk_spent.load(Ordering::Relaxed) {
            return Err(AppendError::DiskBudget);
        }
        self.shared.inbox.begin(begin)
    }

    pub(in crate::store) fn complete(&self, ending: Ending) -> Result<(), StoreError> {
        self.shared.inbox.end(ending)
    }

    /// The time that decides what has expired. One that jumps between two turns of the writer shows a record as gone for
    /// that moment; whoever then begins a call is told by the writer.
    fn expiry_now(&self) -> Option<Timestamp> {
        self.clock_is_trusted().then(|| self.clock.now())
    }

    pub(in crate::store) async fn record(self: &Arc<Self>, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let (key, now) = (key.clone(), self.expiry_now());
        self.read(move |reader| reader.record(&key, now)).await
    }

    pub(in crate::store) async fn records(
        self: &Arc<Self>,
        filter: RecordFilter,
        after: Option<RecordPlace>,
        limit: usize,
    ) -> Result<RecordPage, StoreError> {
        let now = self.expiry_now();
        self.read(move |reader| reader.records(&filter, after, limit, now))
            .await
    }

    pub(in crate::store) async fn resolve(
        &self,
        key: RecordKey,
        resolution: Resolution,
    ) -> Result<Resolved, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.shared.inbox.order(Order::Resolve { key, resolution, reply })?;
        answer.await.unwrap_or_else(|_gone| Err(self.not_carried_out()))
    }

    pub(in crate::store) async fn record_counts(self: &Arc<Self>) -> Result<RecordCounts, StoreError> {
        let kinds = self.shared.status(|status| status.records).by_kind();
        let oldest_ambiguous = match kinds.get(&RecordKind::Ambiguous) {
            Some(0) | None => None,
            Some(_) => self.read(|reader| reader.oldest_ambiguous()).await?,
        };
        Ok(RecordCounts {
            kinds,
            oldest_ambiguous,
        })
    }
}
