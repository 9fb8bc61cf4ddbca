//! Slots for attempts that a sender waits for, and what the lane does with a dispatch whose sender waits no more.
//!
//! Who wants a slot queues up here and the lane task serves it, since that task alone knows whether a dispatch of its queue
//! is ready. Nobody has a slot while it waits for anything but the upstream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::warn;

use super::{Death, Driver, Running, Why};
use crate::forward::answer::Unanswered;
use crate::forward::lane::Stopped;
use crate::forward::outcome::{self, AfterWaiting};
use crate::forward::settings::Synchronous;
use crate::store::model::{LeasedDispatch, Settled};
use crate::store::reply::Unattempted;

/// Senders that may wait for a slot of one lane.
pub(in crate::forward) const URGENT_MAX: usize = 256;
/// How long a dispatch is put off that may not be late, by a clock that cannot be believed.
const POSTPONED: Duration = Duration::from_secs(60);

type Waiter = oneshot::Sender<Result<Running, Unanswered>>;

/// Senders that wait for a slot, in order.
#[derive(Debug, Default)]
pub(super) struct Urgent {
    waiting: VecDeque<Waiter>,
    /// The lane task has ended.
    closed: bool,
}

impl Urgent {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The lane task has begun.
    pub(super) fn open(&mut self) {
        self.closed = false;
    }

    /// Those that do not wait any more go.
    fn forget_gone(&mut self) {
        self.waiting.retain(|waiter| !waiter.is_closed());
    }
}

impl From<Stopped> for Unanswered {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Paused => Self::Paused,
            Stopped::BreakerOpen => Self::BreakerOpen,
        }
    }
}

impl Driver {
    /// Whether an attempt may start here soon; if not, and it is not only for want of a share, why.
    pub(in crate::forward) fn may_attempt(&self) -> (bool, Option<Unanswered>) {
        let now = self.now();
        let state = self.state();
        let stopped = state.lane.stopped(now).map(Unanswered::from);
        (stopped.is_none() && state.lane.has_share(now), stopped)
    }

    /// A slot for an attempt that a sender waits for, ahead of the queue; waits at most so long. Refused at once where
    /// there will be none for a while.
    pub(in crate::forward) async fn urgent_slot(&self, patience: Duration) -> Result<Running, Unanswered> {
        let (waiter, slot) = oneshot::channel();
        {
            let now = self.now();
            let mut state = self.state();
            if state.urgent.closed {
                return Err(Unanswered::Closing);
            }
            if let Some(stopped) = state.lane.stopped(now) {
                return Err(stopped.into());
            }
            state.urgent.forget_gone();
            if state.urgent.waiting.len() >= URGENT_MAX {
                return Err(Unanswered::Full);
            }
            state.urgent.waiting.push_back(waiter);
        }
        self.changed.notify_one();
        match tokio::time::timeout(patience, slot).await {
            Ok(Ok(served)) => served,
            Ok(Err(_gone)) => Err(Unanswered::Closing),
            Err(_elapsed) => Err(Unanswered::Full),
        }
    }

    /// Gives slots to those who wait, as far as the lane allows; `queue_waits`: a dispatch of the queue is ready.
    pub(super) fn serve_urgent(self: &Arc<Self>, queue_waits: bool) {
        let mut served = Vec::new();
        {
            let now = self.now();
            let mut state = self.state();
            let state = &mut *state;
            if state.urgent.is_empty() {
                return;
            }
            state.urgent.forget_gone();
            if let Some(stopped) = state.lane.stopped(now) {
                served.extend(
                    state
                        .urgent
                        .waiting
                        .drain(..)
                        .map(|waiter| (waiter, Err(stopped.into()))),
                );
            }
            while !state.urgent.is_empty()
                && let Some(slot) = state.lane.start_urgent(queue_waits, now)
            {
                let Some(waiter) = state.urgent.waiting.pop_front() else {
                    break;
                };
                served.push((waiter, Ok(slot)));
            }
        }
        // Behind the lock: a slot that nobody takes any more is given back under it.
        for (waiter, slot) in served {
            drop(waiter.send(slot.map(|slot| Running::new(Arc::clone(self), slot))));
        }
    }

    /// The lane takes no more attempts.
    pub(super) fn refuse_urgent(&self) {
        let waiting = {
            let mut state = self.state();
            state.urgent.closed = true;
            std::mem::take(&mut state.urgent.waiting)
        };
        for waiter in waiting {
            drop(waiter.send(Err(Unanswered::Closing)));
        }
    }

    /// What the source of a dispatch says of senders that wait, if one waited for it. One that did not was promised the
    /// attempts by its 200, whatever the source has become since.
    fn synchronous(&self, dispatch: &LeasedDispatch) -> Option<Synchronous> {
        let source = self.common.source(&dispatch.event.source)?;
        source.synchronous.filter(|_| dispatch.event.awaited)
    }

    /// A dispatch from the queue, unless its sender waited for it and it is not to be attempted any more.
    pub(super) fn still_wanted(self: &Arc<Self>, dispatch: LeasedDispatch) -> Option<LeasedDispatch> {
        let Some(synchronous) = self.synchronous(&dispatch) else {
            return Some(dispatch);
        };
        let trusted = self.common.store.clock_is_trusted();
        let then = match outcome::after_waiting(synchronous.late, dispatch.replay, trusted) {
            AfterWaiting::Attempt => return Some(dispatch),
            AfterWaiting::Die => Unattempted::Dead,
            AfterWaiting::Postpone => Unattempted::Later {
                due: self.common.clock.now().after(POSTPONED),
            },
        };
        let driver = Arc::clone(self);
        self.common
            .tracker
            .spawn(async move { driver.decline(dispatch, then).await });
        None
    }

    /// Ends a lease whose attempt was not begun.
    pub(in crate::forward) async fn decline(&self, dispatch: LeasedDispatch, then: Unattempted) {
        let death = Death {
            source: dispatch.event.source.clone(),
            event: dispatch.event.id,
            attempts: dispatch.attempt.saturating_sub(1),
            why: Why::Late,
        };
        let (event, upstream) = (death.event, &self.name);
        let declined = tokio::select! {
            biased;
            declined = self.common.store.decline(dispatch, then) => declined,
            () = self.after_cut() => return,
        };
        match declined {
            Ok(Settled::Recorded) if then == Unattempted::Dead => self.mourn(&death),
            Ok(Settled::Recorded | Settled::LeaseLost) => {}
            Err(error) => warn!(%event, %upstream, %error, "a lease was not handed back: it ends by itself"),
        }
    }
}
