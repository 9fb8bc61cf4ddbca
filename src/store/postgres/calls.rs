//! Idempotent calls: which of them wait, and which this process makes.
//!
//! **Theory of operation.** Calls that want to begin are gathered in batches ([`begin`]), as are those that end ([`end`]),
//! so that what a transaction costs is shared. The primary key decides who makes a call. Its owner has a lease by the
//! database's clock, renewed while it lives ([`keep`]); here it holds until an earlier moment of our own monotonic clock,
//! counted from when the transaction that wrote it was *sent*. When a lease is over, whoever looks the record up or wants
//! its key ends it for good: the owner finds out when it wants to end its call. If nobody looked, it ends it as it was:
//! after an absence of the database the answer is not lost.

pub(super) mod begin;
pub(super) mod end;
pub(super) mod keep;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

use super::{Backend, Shared};
use crate::id::LeaseToken;
use crate::store::StoreError;
use crate::store::calls::{Begin, Ending};
use crate::store::model::AppendError;
use crate::store::records::{Call, RecordKey};
use crate::time::Monotonic;

/// Writers' numbers in the tally of records, behind those that begin calls.
pub(super) const ENDER: i16 = super::APPENDERS;
pub(super) const RESOLVER: i16 = super::APPENDERS + 1;
pub(super) const PRUNER: i16 = super::APPENDERS + 2;

/// Calls that may wait to begin.
const BEGINS_MAX: usize = 16_384;
/// And per transaction.
const BEGIN_BATCH_MAX: usize = 256;
/// Ends per transaction, and bytes of their answers, about.
const END_BATCH_MAX: usize = 256;
const END_BATCH_BYTES_MAX: usize = 8 << 20;
/// Calls that were begun without our hearing of it are released while fewer ends than this wait; the others lapse.
const ENDINGS_MANY: usize = 16_384;
/// Records looked up at a time.
const LOOKS_MAX: usize = 2;

/// A call that waits to begin, and since when.
#[derive(Debug)]
pub(super) struct Waiting {
    begin: Begin,
    since: Monotonic,
}

/// A call of this process.
#[derive(Debug)]
struct Held {
    key: RecordKey,
    until: Monotonic,
    /// Its record is somebody else's.
    lost: bool,
}

#[derive(Debug, Default)]
struct State {
    begins: VecDeque<Waiting>,
    endings: VecDeque<Ending>,
    held: HashMap<LeaseToken, Held>,
    /// No more begins.
    closing: bool,
    /// No more ends either.
    closed: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Calls {
    state: Mutex<State>,
    begun: Notify,
    ended: Notify,
    pub(super) looks: Semaphore,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            begun: Notify::new(),
            ended: Notify::new(),
            looks: Semaphore::new(LOOKS_MAX),
        }
    }
}

impl Calls {
    fn begin(&self, waiting: Waiting) -> Result<(), AppendError> {
        let mut state = self.lock();
        if state.closing {
            return Err(AppendError::Closing);
        }
        if state.begins.len() >= BEGINS_MAX {
            return Err(AppendError::Overloaded);
        }
        state.begins.push_back(waiting);
        drop(state);
        self.begun.notify_one();
        Ok(())
    }

    /// A batch of those that wait; waits for some. `None` once closing and empty.
    async fn take_begins(&self) -> Option<Vec<Waiting>> {
        loop {
            // Registered before looking, so that nothing that comes between is missed.
            let begun = self.begun.notified();
            {
                let mut state = self.lock();
                let count = state.begins.len().min(BEGIN_BATCH_MAX);
                if count > 0 {
                    let batch = state.begins.drain(..count).collect();
                    let more = !state.begins.is_empty();
                    drop(state);
                    if more {
                        self.begun.notify_one();
                    }
                    return Some(batch);
                }
                if state.closing {
                    drop(state);
                    // The next one that waits has to hear it as well.
                    self.begun.notify_one();
                    return None;
                }
            }
            begun.await;
        }
    }

    /// Hands over a call that ended: it is not ours to keep any more. There are never more than calls that have begun.
    fn end(&self, ending: Ending) -> Result<(), StoreError> {
        let mut state = self.lock();
        state.held.remove(&ending.token);
        if state.closed {
            return Err(StoreError::Closing);
        }
        state.endings.push_back(ending);
        drop(state);
        self.ended.notify_one();
        Ok(())
    }

    /// As [`Calls::end`], for a call that nobody was given and that may be stored all the same.
    fn release(&self, key: RecordKey, token: LeaseToken) {
        if self.lock().endings.len() < ENDINGS_MANY {
            let _closing = self.end(Ending::unheard(key, token));
        }
    }

    /// A batch of those that ended; waits for some. `None` once closed and empty.
    async fn take_endings(&self) -> Option<Vec<Ending>> {
        loop {
            let ended = self.ended.notified();
            {
                let mut state = self.lock();
                if !state.endings.is_empty() {
                    return Some(state.some_endings());
                }
                if state.closed {
                    return None;
                }
            }
            ended.await;
        }
    }

    fn hold(&self, token: LeaseToken, key: RecordKey, until: Monotonic) {
        let lost = false;
        self.lock().held.insert(token, Held { key, until, lost });
    }

    fn holds(&self, token: LeaseToken, now: Monotonic) -> bool {
        let state = self.lock();
        let held = state.held.get(&token);
        held.is_some_and(|held| !held.lost && now < held.until)
    }

    /// Those whose lease ends before `horizon`.
    fn due(&self, horizon: Monotonic) -> Vec<(LeaseToken, RecordKey)> {
        let state = self.lock();
        let due = state
            .held
            .iter()
            .filter(|(_token, held)| !held.lost && held.until < horizon);
        due.map(|(token, held)| (*token, held.key.clone())).collect()
    }

    /// Of these, `kept` hold until `until`; the others are lost. Says how many.
    fn renewed(&self, asked: &[(LeaseToken, RecordKey)], kept: &HashSet<LeaseToken>, until: Monotonic) -> usize {
        let mut state = self.lock();
        let mut lost = 0;
        for (token, _key) in asked {
            // One that ended meanwhile is not here any more.
            let Some(held) = state.held.get_mut(token) else {
                continue;
            };
            if kept.contains(token) {
                // Two renewals may be answered in another order than they were sent.
                held.until = held.until.max(until);
            } else {
                held.lost = true;
                lost += 1;
            }
        }
        lost
    }

    /// No more begins from now on; ends still come.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.begun.notify_one();
    }

    /// No more ends either: of calls that still run, nobody will know.
    pub(super) fn close_endings(&self) {
        let mut state = self.lock();
        let held: Vec<_> = state.held.drain().collect();
        let abandoned = held.into_iter().map(|(token, held)| Ending::abandoned(held.key, token));
        state.endings.extend(abandoned);
        state.closed = true;
        drop(state);
        self.ended.notify_one();
    }

    /// Gives up what still waits: dropping it answers.
    pub(super) fn clear(&self) {
        let mut state = self.lock();
        state.closing = true;
        state.closed = true;
        state.held.clear();
        let dropped = (std::mem::take(&mut state.begins), std::mem::take(&mut state.endings));
        drop(state);
        drop(dropped);
        self.begun.notify_one();
        self.ended.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock panics half-way; a poisoned one is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn some_endings(&mut self) -> Vec<Ending> {
        let mut bytes = 0_usize;
        let fits = |ending: &&Ending| {
            let first = bytes == 0;
            bytes = bytes.saturating_add(ending.bytes());
            first || bytes <= END_BATCH_BYTES_MAX
        };
        let count = self.endings.iter().take(END_BATCH_MAX).take_while(fits).count();
        self.endings.drain(..count).collect()
    }
}

impl Backend {
    pub(in crate::store) fn begin(&self, begin: Begin) -> Result<(), AppendError> {
        if self.shared.disk_spent.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(AppendError::DiskBudget);
        }
        let since = self.shared.leases_now();
        self.has_answered_lately(since)?;
        self.shared.calls.begin(Waiting { begin, since })
    }

    pub(in crate::store) fn complete(&self, ending: Ending) -> Result<(), StoreError> {
        self.shared.calls.end(ending)
    }

    pub(in crate::store) fn holds_call(&self, call: &Call) -> bool {
        self.shared.calls.holds(call.token, self.shared.leases_now())
    }
}

impl Shared {
    /// Until when the lease of a call holds that a transaction wrote which was sent then; a tenth earlier than the
    /// database has it.
    fn call_until(&self, sent: Monotonic) -> Monotonic {
        sent.after(self.tuning.call_ttl - self.tuning.call_ttl / 10)
    }

    /// Hands a call out that has begun.
    fn hand_call_out(self: &Arc<Self>, begin: &Begin, sent: Monotonic) -> Call {
        let (key, token) = (begin.call.key.clone(), begin.token);
        self.calls.hold(token, key.clone(), self.call_until(sent));
        // Weak: a call must not keep the store open.
        let shared = Arc::downgrade(self);
        let abandoned = key.clone();
        Call {
            key,
            token,
            expires_at: begin.call.accepted_at.after(begin.call.ttl),
            abandon: Some(Box::new(move || {
                if let Some(shared) = shared.upgrade() {
                    // Once closed, the record is ambiguous already.
                    let _closed = shared.calls.end(Ending::abandoned(abandoned, token));
                }
            })),
        }
    }
}
