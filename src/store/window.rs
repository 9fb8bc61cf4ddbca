//! The bounded window between the store and a lane: dispatches that are leased and lie ready.
//!
//! The writer fills it, the lane's [`Feed`] empties it. It is bounded by count and by bytes, so memory does not grow with
//! the backlog (P6), and everything in it is already leased durably, so the lane can send at once (P9).

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::id::EventId;
use crate::store::model::LeasedDispatch;

/// Dispatches that may lie ready per upstream.
pub(super) const WINDOW_MAX: usize = 256;
/// Bytes of bodies and headers that may lie ready per upstream; one dispatch may exceed it alone.
pub(super) const WINDOW_BYTES_MAX: usize = 4 << 20;
/// Below this the writer is asked for more, if the store has some.
pub(super) const WINDOW_LOW: usize = WINDOW_MAX / 2;

/// See the module. Where replicas share a store, its lane says how much it can send soon ([`Feed::limit`]): what another
/// replica could send does not lie here.
#[derive(Debug, Default)]
pub(super) struct Window {
    queue: Mutex<Queue>,
    arrived: Notify,
    /// The store has dispatches that are due and not in the window.
    pub(super) backlog: AtomicBool,
}

#[derive(Debug)]
struct Queue {
    ready: VecDeque<Ready>,
    bytes: usize,
    /// So many may lie ready.
    limit: usize,
    closed: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            bytes: 0,
            limit: WINDOW_MAX,
            closed: false,
        }
    }
}

/// A leased dispatch and the memory it stands for.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) dispatch: LeasedDispatch,
    pub(super) weight: usize,
}

/// What may still be put in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) dispatches: usize,
    pub(super) bytes: usize,
}

impl Window {
    pub(super) fn room(&self) -> Room {
        let queue = self.lock();
        if queue.closed {
            return Room {
                dispatches: 0,
                bytes: 0,
            };
        }
        Room {
            dispatches: queue.limit.saturating_sub(queue.ready.len()),
            bytes: WINDOW_BYTES_MAX.saturating_sub(queue.bytes),
        }
    }

    /// Whether it runs low.
    pub(super) fn wants_more(&self) -> bool {
        let queue = self.lock();
        !queue.closed && queue.is_low()
    }

    fn has_ready(&self) -> bool {
        !self.lock().ready.is_empty()
    }

    /// Puts leased dispatches in; the room was asked for before, by the only one that fills. What comes when it has been
    /// closed is returned, to be handed back.
    #[must_use = "a closed window takes nothing"]
    pub(super) fn push(&self, ready: Vec<Ready>) -> Vec<Ready> {
        if ready.is_empty() {
            return ready;
        }
        let mut queue = self.lock();
        if queue.closed {
            return ready;
        }
        for ready in ready {
            queue.bytes = queue.bytes.saturating_add(ready.weight);
            queue.ready.push_back(ready);
        }
        drop(queue);
        self.arrived.notify_one();
        Vec::new()
    }

    /// Takes the dispatch of this event out, if it lies here: its attempt has not begun.
    pub(super) fn take(&self, event: EventId) -> Option<LeasedDispatch> {
        let mut queue = self.lock();
        let at = queue.ready.iter().position(|ready| ready.dispatch.event.id == event)?;
        let Ready { dispatch, weight } = queue.ready.remove(at)?;
        queue.bytes = queue.bytes.saturating_sub(weight);
        Some(dispatch)
    }

    /// What lies above the limit, the newest first: to be handed back, with its attempts not begun.
    pub(super) fn take_surplus(&self) -> Vec<Ready> {
        let mut queue = self.lock();
        let mut surplus = Vec::new();
        while queue.ready.len() > queue.limit
            && let Some(ready) = queue.ready.pop_back()
        {
            queue.bytes = queue.bytes.saturating_sub(ready.weight);
            surplus.push(ready);
        }
        surplus
    }

    /// Whether who fills it should look: there is more room, or too much in it.
    fn set_limit(&self, limit: usize) -> bool {
        let mut queue = self.lock();
        let grew = limit.min(WINDOW_MAX) > queue.limit;
        queue.limit = limit.min(WINDOW_MAX);
        grew || queue.ready.len() > queue.limit
    }

    fn put_back(&self, dispatch: LeasedDispatch) {
        let mut queue = self.lock();
        if queue.closed {
            // Dropping it asks the store, which may ask the window.
            drop(queue);
            drop(dispatch);
        } else {
            queue.ready.push_front(Ready { dispatch, weight: 0 });
        }
    }

    /// Takes everything out and lets the feed end.
    pub(super) fn close(&self) -> VecDeque<Ready> {
        let mut queue = self.lock();
        queue.closed = true;
        queue.bytes = 0;
        let left = std::mem::take(&mut queue.ready);
        drop(queue);
        self.arrived.notify_one();
        left
    }

    fn pop(&self) -> Popped {
        let mut queue = self.lock();
        match queue.ready.pop_front() {
            Some(Ready { dispatch, weight }) => {
                queue.bytes = queue.bytes.saturating_sub(weight);
                Popped::Dispatch {
                    dispatch,
                    low: queue.is_low(),
                }
            }
            None if queue.closed => Popped::Closed,
            None => Popped::Nothing,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn is_low(&self) -> bool {
        let low = WINDOW_LOW.min(self.limit / 2);
        self.limit > 0 && self.ready.len() <= low && self.bytes <= WINDOW_BYTES_MAX / 2
    }
}

enum Popped {
    Dispatch { dispatch: LeasedDispatch, low: bool },
    Nothing,
    Closed,
}

/// Memory that an event stands for while it waits: its encoded head and its body, and what surrounds them.
pub(super) fn weight_of(head: usize, body: usize) -> usize {
    head.saturating_add(body).saturating_add(512)
}

/// The dispatches of one upstream, in the order in which they become due. One per upstream: a second one would take
/// the other's.
pub struct Feed {
    pub(super) window: Arc<Window>,
    /// Tells who fills the window that it runs low.
    pub(super) nudge: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

impl Feed {
    /// From now on no more than this may lie ready: where another replica could send it, what this one cannot send soon
    /// is handed back.
    pub fn limit(&self, dispatches: usize) {
        if self.window.set_limit(dispatches) {
            (self.nudge)();
        }
    }

    /// Puts a dispatch back that was taken and not begun, to be the next again.
    pub fn put_back(&self, dispatch: LeasedDispatch) {
        self.window.put_back(dispatch);
    }

    /// Whether a dispatch lies ready.
    pub fn has_ready(&self) -> bool {
        self.window.has_ready()
    }

    /// The next dispatch to attempt; waits for one. `None` once the store closes, or the upstream has left the
    /// configuration ([`Store::reconfigure`](super::Store::reconfigure)).
    pub async fn next(&mut self) -> Option<LeasedDispatch> {
        loop {
            match self.window.pop() {
                Popped::Dispatch { dispatch, low } => {
                    if low && self.window.backlog.swap(false, Ordering::AcqRel) {
                        (self.nudge)();
                    }
                    return Some(dispatch);
                }
                Popped::Closed => return None,
                // `notify_one` leaves a permit when nobody waits, so an arrival between pop and here is not lost.
                Popped::Nothing => self.window.arrived.notified().await,
            }
        }
    }
}
