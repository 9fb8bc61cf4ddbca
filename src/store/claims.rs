//! Claims: a separate store hands out what it has appended, and admits it once Redis was asked whose its key is.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::store::model::Unclaimed;

/// Events handed out at a time.
const SLICE_MAX: usize = 512;

/// The appended events of a separate store that wait for their claim, in append order. Each is handed out once until the
/// store is opened again, and answered with [`Store::claimed`](super::Store::claimed).
pub struct Claims {
    desk: Arc<Desk>,
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims").finish_non_exhaustive()
    }
}

impl Claims {
    /// The next events, at most 512; waits for one. `None` once the store closes.
    pub async fn next(&mut self) -> Option<Vec<Unclaimed>> {
        loop {
            {
                let mut waiting = self.desk.lock();
                if waiting.closed {
                    return None;
                }
                let most = waiting.events.len().min(SLICE_MAX);
                if most > 0 {
                    return Some(waiting.events.drain(..most).collect());
                }
            }
            // `notify_one` leaves a permit when nobody waits, so an arrival between the look and here is not lost.
            self.desk.arrived.notified().await;
        }
    }
}

/// Where the store lays events out. What lies here is also in the store's own bounded tail, which is its bound (P6).
#[derive(Debug, Default)]
pub(super) struct Desk {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Unclaimed>,
    taken: bool,
    closed: bool,
}

impl Desk {
    /// The taker's end, once.
    pub(super) fn claims(self: &Arc<Self>) -> Option<Claims> {
        let taken = std::mem::replace(&mut self.lock().taken, true);
        (!taken).then(|| Claims { desk: Arc::clone(self) })
    }

    /// Lays out further events.
    pub(super) fn lay_out(&self, events: impl Iterator<Item = Unclaimed>) {
        let mut waiting = self.lock();
        if waiting.closed {
            return;
        }
        waiting.events.extend(events);
        let some = !waiting.events.is_empty();
        drop(waiting);
        if some {
            self.arrived.notify_one();
        }
    }

    /// Lets the taker end.
    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        waiting.events.clear();
        drop(waiting);
        self.arrived.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
