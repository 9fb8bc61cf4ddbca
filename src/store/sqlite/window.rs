//! The bounded window between the store and a lane: dispatches that are leased and lie ready.
//!
//! The writer fills it, the lane's [`Feed`] empties it. It is bounded by count and by bytes, so memory does not grow with
//! the backlog (P6), and everything in it is already leased durably, so the lane can send at once (P9).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Shared;
use crate::store::model::LeasedDispatch;

/// Dispatches that may lie ready per upstream.
pub(super) const WINDOW_MAX: usize = 256;
/// Bytes of bodies and headers that may lie ready per upstream; one dispatch may exceed it alone.
pub(super) const WINDOW_BYTES_MAX: usize = 4 << 20;
/// Below this the writer is asked for more, if the store has some.
pub(super) const WINDOW_LOW: usize = WINDOW_MAX / 2;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Window {
    ready: Mutex<Ready>,
    arrived: Notify,
    /// The store has dispatches that are due and not in the window.
    pub(super) backlog: AtomicBool,
}

#[derive(Debug, Default)]
struct Ready {
    dispatches: VecDeque<LeasedDispatch>,
    bytes: usize,
    closed: bool,
}

/// What may still be put in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) dispatches: usize,
    pub(super) bytes: usize,
}

impl Window {
    pub(super) fn room(&self) -> Room {
        let ready = self.lock();
        if ready.closed {
            return Room {
                dispatches: 0,
                bytes: 0,
            };
        }
        Room {
            dispatches: WINDOW_MAX.saturating_sub(ready.dispatches.len()),
            bytes: WINDOW_BYTES_MAX.saturating_sub(ready.bytes),
        }
    }

    /// Whether it runs low.
    pub(super) fn wants_more(&self) -> bool {
        let ready = self.lock();
        !ready.closed && ready.dispatches.len() <= WINDOW_LOW && ready.bytes <= WINDOW_BYTES_MAX / 2
    }

    /// Puts leased dispatches in; the room was asked for before, by the only thread that fills.
    pub(super) fn push(&self, dispatches: Vec<LeasedDispatch>) {
        if dispatches.is_empty() {
            return;
        }
        let mut ready = self.lock();
        for dispatch in dispatches {
            ready.bytes = ready.bytes.saturating_add(weight(&dispatch));
            ready.dispatches.push_back(dispatch);
        }
        drop(ready);
        self.arrived.notify_one();
    }

    /// Takes everything out and lets the feed end.
    pub(super) fn close(&self) -> VecDeque<LeasedDispatch> {
        let mut ready = self.lock();
        ready.closed = true;
        ready.bytes = 0;
        let left = std::mem::take(&mut ready.dispatches);
        drop(ready);
        self.arrived.notify_one();
        left
    }

    fn pop(&self) -> Popped {
        let mut ready = self.lock();
        match ready.dispatches.pop_front() {
            Some(dispatch) => {
                ready.bytes = ready.bytes.saturating_sub(weight(&dispatch));
                Popped::Dispatch {
                    dispatch,
                    low: ready.dispatches.len() <= WINDOW_LOW && ready.bytes <= WINDOW_BYTES_MAX / 2,
                }
            }
            None if ready.closed => Popped::Closed,
            None => Popped::Nothing,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Popped {
    Dispatch { dispatch: LeasedDispatch, low: bool },
    Nothing,
    Closed,
}

/// Memory that a dispatch in the window stands for.
pub(super) fn weight(dispatch: &LeasedDispatch) -> usize {
    weight_of(&dispatch.event)
}

/// Memory that an event in a window stands for.
pub(super) fn weight_of(event: &crate::store::model::StoredEvent) -> usize {
    let headers: usize = event
        .headers
        .iter()
        .map(|(name, value)| name.as_str().len().saturating_add(value.len()))
        .fold(0, usize::saturating_add);
    event.body.len().saturating_add(headers).saturating_add(512)
}

/// The dispatches of one upstream, in the order in which they become due. One per upstream: a second one would take
/// the other's.
#[derive(Debug)]
pub struct Feed {
    pub(super) window: Arc<Window>,
    pub(super) shared: Arc<Shared>,
}

impl Feed {
    /// The next dispatch to attempt; waits for one. `None` once the store closes.
    pub async fn next(&mut self) -> Option<LeasedDispatch> {
        loop {
            match self.window.pop() {
                Popped::Dispatch { dispatch, low } => {
                    if low && self.window.backlog.swap(false, Ordering::AcqRel) {
                        self.shared.inbox.nudge();
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
