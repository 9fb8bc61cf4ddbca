//! The way from the callers to the tasks that write: everything bounded (P6), nothing waits for a lock held over an await.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};

use super::leases::LeaseRef;
use crate::id::SourceName;
use crate::key::DedupeKey;
use crate::store::StoreError;
use crate::store::append::Append;
use crate::store::model::{AppendError, Next, Outcome, Settled};
use crate::store::reply::{Reply, Unattempted};
use crate::time::{Monotonic, Timestamp};

/// Appends that may wait.
const APPENDS_MAX: usize = 16_384;
/// Bytes of heads and bodies that may wait.
const APPEND_BYTES_MAX: usize = 64 << 20;
/// Appends per transaction, at most.
const BATCH_MAX: usize = 512;
/// Bytes of appends per transaction, about.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// While a batch is under way, another one is begun with so many at once, or with fewer after [`GATHER`]: what a
/// transaction costs is shared by those in it.
const BATCH_GOOD: usize = 32;
const GATHER: Duration = Duration::from_millis(1);
/// Nobody waits long for endings, so fewer than this gather for as long as [`LINGER`].
const ENDINGS_GOOD: usize = 64;
const LINGER: Duration = Duration::from_millis(3);
/// Settles, and leases handed back, per transaction, at most.
const ENDINGS_MAX: usize = 512;

/// A request on its way, with the id it will have, however often it is tried.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) append: Append,
    /// When it came.
    pub(super) since: Monotonic,
}

/// A finished attempt to be recorded.
#[derive(Debug)]
pub(super) struct Settle {
    pub(super) lease: LeaseRef,
    /// Of its event.
    pub(super) source: SourceName,
    pub(super) key: DedupeKey,
    pub(super) attempt: u32,
    pub(super) outcome: Outcome,
    pub(super) next: Next,
    pub(super) started_at: Timestamp,
    pub(super) took: Duration,
    pub(super) excerpt: Bytes,
    pub(super) reply: Option<Reply>,
    pub(super) settled: oneshot::Sender<Settled>,
}

/// A lease that ends without an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct GiveBack {
    pub(super) lease: LeaseRef,
    /// Its attempt's number was never used and is given back too.
    pub(super) unused: bool,
}

/// A lease whose attempt was not begun, and what becomes of its dispatch.
#[derive(Debug)]
pub(super) struct Decline {
    pub(super) lease: LeaseRef,
    /// Of its event.
    pub(super) source: SourceName,
    pub(super) key: DedupeKey,
    pub(super) then: Unattempted,
    pub(super) settled: oneshot::Sender<Settled>,
}

/// What ends leases.
#[derive(Debug, Default)]
pub(super) struct Endings {
    pub(super) settles: Vec<Settle>,
    pub(super) declines: Vec<Decline>,
    pub(super) give_backs: Vec<GiveBack>,
}

impl Endings {
    pub(super) fn is_empty(&self) -> bool {
        self.settles.is_empty() && self.declines.is_empty() && self.give_backs.is_empty()
    }
}

#[derive(Debug, Default)]
struct Queues {
    appends: VecDeque<Waiting>,
    append_bytes: usize,
    endings: Endings,
    /// No more appends.
    closing: bool,
    /// No more settles either.
    closed: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    queues: Mutex<Queues>,
    appended: Notify,
    ended: Notify,
    /// Batches of appends.
    under_way: AtomicUsize,
}

/// A batch of appends that is not decided yet.
#[derive(Debug)]
pub(super) struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Inbox {
    /// Hands over an append; its receipt's channel answers.
    pub(super) fn append(&self, waiting: Waiting) -> Result<(), AppendError> {
        let mut queues = self.lock();
        if queues.closing {
            return Err(AppendError::Closing);
        }
        let bytes = queues.append_bytes.saturating_add(waiting.append.bytes());
        if queues.appends.len() >= APPENDS_MAX || bytes > APPEND_BYTES_MAX {
            return Err(AppendError::Overloaded);
        }
        queues.append_bytes = bytes;
        queues.appends.push_back(waiting);
        drop(queues);
        self.appended.notify_one();
        Ok(())
    }

    /// Appends that were taken and have to be decided again, before all others.
    pub(super) fn again(&self, waiting: Vec<Waiting>) {
        if waiting.is_empty() {
            return;
        }
        let mut queues = self.lock();
        for waiting in waiting.into_iter().rev() {
            queues.append_bytes = queues.append_bytes.saturating_add(waiting.append.bytes());
            queues.appends.push_front(waiting);
        }
        drop(queues);
        self.appended.notify_one();
    }

    /// A batch of what waits; waits for some. `None` once closing and empty. It is under way until the guard is dropped.
    pub(super) async fn take_appends(&self) -> Option<(Vec<Waiting>, UnderWay<'_>)> {
        loop {
            let few = |queues: &Queues| {
                let waiting = queues.appends.len();
                (1..BATCH_GOOD).contains(&waiting) && !queues.closing
            };
            if self.under_way.load(Ordering::Acquire) > 0 && few(&self.lock()) {
                tokio::time::sleep(GATHER).await;
            }
            // Registered before looking, so that nothing that comes between is missed.
            let appended = self.appended.notified();
            {
                let mut queues = self.lock();
                if !queues.appends.is_empty() {
                    let batch = queues.batch();
                    let more = !queues.appends.is_empty();
                    drop(queues);
                    if more {
                        self.appended.notify_one();
                    }
                    return Some((batch, UnderWay::new(&self.under_way)));
                }
                if queues.closing {
                    drop(queues);
                    // The next one that waits has to hear it as well.
                    self.appended.notify_one();
                    return None;
                }
            }
            appended.await;
        }
    }

    /// Hands over a settle. There are never more than leases, which the windows bound.
    pub(super) fn settle(&self, settle: Settle) -> Result<(), StoreError> {
        let mut queues = self.lock();
        if queues.closed {
            return Err(StoreError::Closing);
        }
        queues.endings.settles.push(settle);
        drop(queues);
        self.ended.notify_one();
        Ok(())
    }

    /// Hands over a lease that was not used, and what becomes of its dispatch.
    pub(super) fn decline(&self, decline: Decline) -> Result<(), StoreError> {
        let mut queues = self.lock();
        if queues.closed {
            return Err(StoreError::Closing);
        }
        queues.endings.declines.push(decline);
        drop(queues);
        self.ended.notify_one();
        Ok(())
    }

    /// Hands over leases that were not used. Once closed they lapse by themselves.
    pub(super) fn give_back(&self, leases: impl IntoIterator<Item = GiveBack>) {
        self.lock().endings.give_backs.extend(leases);
        self.ended.notify_one();
    }

    /// What ends leases; waits for some. `None` once closed and empty.
    pub(super) async fn take_endings(&self) -> Option<Endings> {
        let mut lingered = false;
        loop {
            let ended = self.ended.notified();
            {
                let mut queues = self.lock();
                let count = queues.endings.settles.len();
                if queues.endings.is_empty() {
                    if queues.closed {
                        return None;
                    }
                } else if lingered || count >= ENDINGS_GOOD || queues.closed {
                    return Some(queues.some_endings());
                }
            }
            lingered = !self.lock().endings.is_empty();
            if lingered {
                tokio::time::sleep(LINGER).await;
            } else {
                ended.await;
            }
        }
    }

    /// No more appends from now on; settles still come.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.appended.notify_one();
    }

    /// No more settles either.
    pub(super) fn close_endings(&self) {
        self.lock().closed = true;
        self.ended.notify_one();
    }

    /// Gives up what still waits: dropping it answers.
    pub(super) fn clear(&self) {
        let mut queues = self.lock();
        queues.closing = true;
        queues.closed = true;
        let dropped = (std::mem::take(&mut queues.appends), std::mem::take(&mut queues.endings));
        queues.append_bytes = 0;
        drop(queues);
        drop(dropped);
        self.appended.notify_one();
        self.ended.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        // Nothing under this lock panics half-way; a poisoned one is whole.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    fn batch(&mut self) -> Vec<Waiting> {
        let mut bytes = 0_usize;
        let fits = |waiting: &&Waiting| {
            let first = bytes == 0;
            bytes = bytes.saturating_add(waiting.append.bytes());
            first || bytes <= BATCH_BYTES_MAX
        };
        let count = self.appends.iter().take(BATCH_MAX).take_while(fits).count();
        let batch: Vec<Waiting> = self.appends.drain(..count).collect();
        let taken: usize = batch.iter().map(|waiting| waiting.append.bytes()).sum();
        self.append_bytes = self.append_bytes.saturating_sub(taken);
        batch
    }

    fn some_endings(&mut self) -> Endings {
        let mut bytes = 0_usize;
        let fits = |settle: &&Settle| {
            let first = bytes == 0;
            let body = settle.reply.as_ref().and_then(|reply| reply.body.as_ref());
            bytes = bytes.saturating_add(body.map_or(0, Bytes::len));
            first || bytes <= BATCH_BYTES_MAX
        };
        let settles = self.endings.settles.iter().take(ENDINGS_MAX).take_while(fits).count();
        let declines = self.endings.declines.len().min(ENDINGS_MAX);
        let give_backs = self.endings.give_backs.len().min(ENDINGS_MAX);
        Endings {
            settles: self.endings.settles.drain(..settles).collect(),
            declines: self.endings.declines.drain(..declines).collect(),
            give_backs: self.endings.give_backs.drain(..give_backs).collect(),
        }
    }
}
