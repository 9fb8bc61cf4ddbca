//! Records of idempotent calls: one map, looked at whole.

use std::sync::Arc;

use super::Backend;
use super::data::{Data, Lease};
use crate::id::LeaseToken;
use crate::store::StoreError;
use crate::store::calls::{Begin, Ending, Taking};
use crate::store::model::AppendError;
use crate::store::records::{
    Call, CallEnd, Completed, Fingerprint, Record, RecordCounts, RecordFilter, RecordKey, RecordKind, RecordPage,
    RecordPlace, RecordState, RecordView, Resolution, Resolved,
};
use crate::time::Timestamp;

/// How long the lease of a call lasts that nobody renews.
const LEASE_TTL: std::time::Duration = std::time::Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Stored {
    /// In the order in which they were begun.
    number: i64,
    fingerprint: Fingerprint,
    client_key: Arc<str>,
    accepted_at: Timestamp,
    expires_at: Timestamp,
    state: RecordState,
    lease: Option<Lease>,
}

impl Stored {
    fn record(&self) -> Record {
        Record {
            fingerprint: self.fingerprint,
            state: self.state.clone(),
            client_key: Arc::clone(&self.client_key),
            accepted_at: self.accepted_at,
            expires_at: self.expires_at,
        }
    }

    fn end(&mut self, state: RecordState) {
        self.state = state;
        self.lease = None;
    }
}

impl Data {
    /// Leases of calls end as those of dispatches do; what is not running goes with its time.
    pub(super) fn settle_records(&mut self, now: Timestamp) {
        let renewing: Vec<u64> = self
            .handles
            .iter()
            .filter(|handle| handle.renews)
            .map(|handle| handle.number)
            .collect();
        for stored in self.records.values_mut() {
            match &mut stored.lease {
                Some(lease) if renewing.contains(&lease.handle) => lease.until = now.after(LEASE_TTL),
                Some(lease) if now >= lease.until => stored.end(RecordState::Ambiguous),
                Some(_) | None => {}
            }
        }
        self.records
            .retain(|_key, stored| stored.lease.is_some() || now < stored.expires_at);
    }

    /// Calls of a handle that closes.
    pub(super) fn abandon_calls(&mut self, handle: u64) {
        for stored in self.records.values_mut() {
            if stored.lease.is_some_and(|lease| lease.handle == handle) {
                stored.end(RecordState::Ambiguous);
            }
        }
    }

    fn running(&mut self, key: &RecordKey, token: LeaseToken) -> Option<&mut Stored> {
        let stored = self.records.get_mut(key)?;
        stored.lease.is_some_and(|lease| lease.token == token).then_some(stored)
    }
}

impl Backend {
    pub(in crate::store) fn begin(self: &Arc<Self>, begin: Begin) -> Result<(), AppendError> {
        if !self.is_open() {
            return Err(AppendError::Closing);
        }
        self.tick();
        let now = self.clock.now();
        let mut data = self.lock();
        let Begin { call, token, reply, .. } = begin;
        let free = data.records.get(&call.key).is_none_or(|held| {
            held.state == RecordState::Ambiguous && call.after_ambiguous && held.fingerprint == call.fingerprint
        });
        let taking = if free {
            data.next_record += 1;
            let expires_at = call.accepted_at.after(call.ttl);
            let stored = Stored {
                number: data.next_record,
                fingerprint: call.fingerprint,
                client_key: call.client_key,
                accepted_at: call.accepted_at,
                expires_at,
                state: RecordState::Running,
                lease: Some(Lease {
                    token,
                    handle: self.number,
                    until: now.after(LEASE_TTL),
                }),
            };
            data.records.insert(call.key.clone(), stored);
            let (backend, abandoned) = (Arc::downgrade(self), call.key.clone());
            Taking::Started(Call {
                key: call.key,
                token,
                expires_at,
                abandon: Some(Box::new(move || {
                    if let Some(backend) = backend.upgrade() {
                        let _closing = backend.complete(Ending::abandoned(abandoned, token));
                    }
                })),
            })
        } else {
            Taking::Taken
        };
        drop(data);
        if let Err(Ok(Taking::Started(call))) = reply.send(Ok(taking)) {
            let (key, token) = call.forget();
            let _closing = self.complete(Ending::unheard(key, token));
        }
        Ok(())
    }

    pub(in crate::store) fn holds_call(&self, call: &Call) -> bool {
        self.lock().running(&call.key, call.token).is_some()
    }

    pub(in crate::store) fn complete(&self, ending: Ending) -> Result<(), StoreError> {
        if !self.is_open() {
            return Err(StoreError::Closing);
        }
        let mut data = self.lock();
        let found = match data.running(&ending.key, ending.token) {
            None => Completed::NotOurs,
            Some(stored) => {
                match &ending.end {
                    CallEnd::Done(answer) => stored.end(RecordState::Done(Arc::clone(answer))),
                    CallEnd::Unstored => stored.end(RecordState::Unstored),
                    CallEnd::Ambiguous => stored.end(RecordState::Ambiguous),
                    CallEnd::Released => drop(data.records.remove(&ending.key)),
                }
                Completed::Recorded
            }
        };
        drop(data);
        ending.answer(found);
        Ok(())
    }

    pub(in crate::store) fn record(&self, key: &RecordKey) -> Option<Record> {
        self.tick();
        self.lock().records.get(key).map(Stored::record)
    }

    pub(in crate::store) fn records(
        &self,
        filter: &RecordFilter,
        after: Option<RecordPlace>,
        limit: usize,
    ) -> RecordPage {
        self.tick();
        let below = after.map_or(i64::MAX, |after| after.number);
        let data = self.lock();
        let mut found: Vec<(i64, RecordView)> = data
            .records
            .iter()
            .map(|(key, stored)| {
                let record = stored.record();
                let view = RecordView {
                    key: key.clone(),
                    client_key: Arc::clone(&stored.client_key),
                    state: record.kind(),
                    status: match &stored.state {
                        RecordState::Done(answer) => Some(answer.status),
                        _ => None,
                    },
                    accepted_at: stored.accepted_at,
                    expires_at: stored.expires_at,
                };
                (stored.number, view)
            })
            .filter(|(number, view)| {
                *number < below
                    && filter.route.as_ref().is_none_or(|route| *route == view.key.route)
                    && filter.kind.is_none_or(|kind| kind == view.state)
                    && filter.client_key.as_deref().is_none_or(|key| *key == *view.client_key)
            })
            .collect();
        found.sort_unstable_by_key(|(number, _view)| std::cmp::Reverse(*number));
        found.truncate(limit.clamp(1, 500));
        let next = found.last().filter(|_last| found.len() == limit);
        RecordPage {
            next: next.map(|(number, _view)| RecordPlace {
                number: *number,
                rest: None,
            }),
            records: found.into_iter().map(|(_number, view)| view).collect(),
        }
    }

    pub(in crate::store) fn resolve(&self, key: &RecordKey, resolution: &Resolution) -> Result<Resolved, StoreError> {
        if !self.is_open() {
            return Err(StoreError::Closing);
        }
        self.tick();
        let mut data = self.lock();
        let Some(stored) = data.records.get_mut(key) else {
            return Ok(Resolved::Unknown);
        };
        if stored.state != RecordState::Ambiguous {
            return Ok(Resolved::NotAmbiguous(stored.record().kind()));
        }
        match resolution {
            Resolution::Answer(answer) => stored.end(RecordState::Done(Arc::clone(answer))),
            Resolution::Release => drop(data.records.remove(key)),
        }
        Ok(Resolved::Done)
    }

    pub(in crate::store) fn record_counts(&self) -> RecordCounts {
        self.tick();
        let data = self.lock();
        let mut counts = RecordCounts {
            kinds: RecordKind::ALL.into_iter().map(|kind| (kind, 0)).collect(),
            oldest_ambiguous: None,
        };
        for stored in data.records.values() {
            let kind = stored.record().kind();
            *counts.kinds.entry(kind).or_default() += 1;
            if kind == RecordKind::Ambiguous {
                let oldest = counts.oldest_ambiguous.get_or_insert(stored.accepted_at);
                *oldest = stored.accepted_at.min(*oldest);
            }
        }
        counts
    }
}
