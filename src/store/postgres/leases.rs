//! The leases this process holds, as far as it knows without asking.
//!
//! A lease is a token and a time in its dispatch's row, by the database's clock. Here it holds until a moment of our own
//! monotonic clock that lies before that time: counted from when the transaction that wrote it was *sent*. A process that
//! was stopped wakes up knowing that its leases are over.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::id::{EventId, LeaseToken};
use crate::key::DedupeKey;
use crate::time::Monotonic;

/// What is needed to end a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseRef {
    pub(super) event: EventId,
    /// Slot of its lane.
    pub(super) lane: usize,
    pub(super) token: LeaseToken,
}

#[derive(Debug)]
struct Held {
    lease: LeaseRef,
    key: DedupeKey,
    until: Monotonic,
    revoked: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Leases(Mutex<HashMap<LeaseToken, Held>>);

impl Leases {
    pub(super) fn add(&self, leases: impl IntoIterator<Item = (LeaseRef, DedupeKey, Monotonic)>) {
        let mut held = self.lock();
        for (lease, key, until) in leases {
            let revoked = false;
            held.insert(
                lease.token,
                Held {
                    lease,
                    key,
                    until,
                    revoked,
                },
            );
        }
    }

    /// The lease with this token and its event's key, whether it still holds or not.
    pub(super) fn find(&self, token: LeaseToken) -> Option<(LeaseRef, DedupeKey)> {
        self.lock().get(&token).map(|held| (held.lease, held.key))
    }

    pub(super) fn holds(&self, token: LeaseToken, now: Monotonic) -> bool {
        self.lock()
            .get(&token)
            .is_some_and(|held| !held.revoked && now < held.until)
    }

    /// It is settled or handed back: whoever had it has ended.
    pub(super) fn end(&self, token: LeaseToken) {
        self.lock().remove(&token);
    }

    /// It is somebody else's, or nobody's, while whoever has it may still use it.
    pub(super) fn revoke(&self, token: LeaseToken) {
        if let Some(held) = self.lock().get_mut(&token) {
            held.revoked = true;
        }
    }

    /// Those that end before `horizon`.
    pub(super) fn due(&self, horizon: Monotonic) -> Vec<LeaseRef> {
        let held = self.lock();
        let due = held.values().filter(|held| !held.revoked && held.until < horizon);
        due.map(|held| held.lease).collect()
    }

    /// Of these, `kept` hold until `until`; the others are lost.
    pub(super) fn renewed(&self, asked: &[LeaseRef], kept: &HashSet<LeaseToken>, until: Monotonic) -> usize {
        let mut held = self.lock();
        let mut lost = 0;
        for lease in asked {
            // One that was ended meanwhile is not here any more.
            let Some(held) = held.get_mut(&lease.token) else {
                continue;
            };
            if kept.contains(&lease.token) {
                held.until = until;
            } else {
                held.revoked = true;
                lost += 1;
            }
        }
        lost
    }

    /// Events of a lane whose lease is lost while an attempt may still run: not to be taken again before it has ended.
    pub(super) fn lost_but_running(&self, lane: usize, now: Monotonic) -> Vec<Uuid> {
        let held = self.lock();
        let lost = held
            .values()
            .filter(|held| held.lease.lane == lane && (held.revoked || held.until <= now));
        lost.map(|held| Uuid::from_bytes(*held.lease.event.as_bytes()))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseToken, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tokens of leases that a transaction may have written of which nobody knows what came. They were never handed out.
#[derive(Debug, Default)]
pub(super) struct Orphans(Mutex<Vec<i64>>);

impl Orphans {
    /// More than this lapse by themselves.
    const MAX: usize = 16_384;

    pub(super) fn add(&self, tokens: impl IntoIterator<Item = i64>) {
        let mut orphans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = Self::MAX.saturating_sub(orphans.len());
        orphans.extend(tokens.into_iter().take(room));
    }

    pub(super) fn take(&self) -> Vec<i64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
