//! The way from the callers to the writer thread: one lock, one condition, everything bounded (P6).
//!
//! The writer takes all that waits at once. Callers wake it only when it sleeps, and work that nobody waits for
//! (settles, returned leases) does not wake it while it lingers for appends to share a sync with.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::DispatchId;
use crate::id::{EventId, LeaseToken, UpstreamName};
use crate::store::append::Append;
use crate::store::calls::{Begin, Ending};
use crate::store::model::{AppendError, Claim, LaneRecord, LaneSave, Next, Outcome, Settled};
use crate::store::records::{RecordKey, Resolution, Resolved};
use crate::store::reply::{Found, Reply, Unattempted, Want};
use crate::store::secrets::SecretNote;
use crate::store::settings::Live;
use crate::store::{Discarded, Replayed, StoreError};
use crate::time::Timestamp;

/// Appends that may wait.
const APPENDS_MAX: usize = 16_384;
/// The same while the writer takes none.
const APPENDS_STALLED_MAX: usize = 1_024;
/// Bytes of heads and bodies that may wait.
const APPEND_BYTES_MAX: usize = 64 << 20;
/// Calls that may wait to begin.
const BEGINS_MAX: usize = 16_384;
/// Orders of people and lanes that may wait.
const ORDERS_MAX: usize = 1_024;
/// Senders that may wait to hear of their event's dispatch.
const ASKS_MAX: usize = 4_096;
/// From this many settles on the writer is woken even if it lingers.
const SETTLES_MANY: usize = 64;

/// What the store needs to know of a lease to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseRef {
    pub(super) dispatch: DispatchId,
    pub(super) token: LeaseToken,
}

/// A finished attempt to be recorded.
#[derive(Debug)]
pub(super) struct Settle {
    pub(super) lease: LeaseRef,
    pub(super) attempt: u32,
    pub(super) outcome: Outcome,
    pub(super) next: Next,
    pub(super) started_at: Timestamp,
    pub(super) took: Duration,
    pub(super) excerpt: Bytes,
    pub(super) reply: Option<Reply>,
    pub(super) settled: oneshot::Sender<Settled>,
}

/// A lease whose attempt was not begun, to be ended.
#[derive(Debug)]
pub(super) struct Decline {
    pub(super) lease: LeaseRef,
    pub(super) then: Unattempted,
    pub(super) settled: oneshot::Sender<Settled>,
}

/// Somebody waits for an event's dispatch.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) want: Want,
    /// Dropped unanswered when the transaction failed.
    pub(super) found: oneshot::Sender<Result<Found, StoreError>>,
}

/// What a person or a lane asks for.
#[derive(Debug)]
pub(super) enum Order {
    Replay {
        event: EventId,
        upstreams: Option<Vec<UpstreamName>>,
        reply: oneshot::Sender<Result<Replayed, StoreError>>,
    },
    Discard {
        event: EventId,
        upstream: Option<UpstreamName>,
        reply: oneshot::Sender<Result<Discarded, StoreError>>,
    },
    SaveLane {
        upstream: UpstreamName,
        save: LaneSave,
        reply: oneshot::Sender<Result<LaneRecord, StoreError>>,
    },
    Resolve {
        key: RecordKey,
        resolution: Resolution,
        reply: oneshot::Sender<Result<Resolved, StoreError>>,
    },
    /// Upstreams and sources as another configuration has them.
    Reconfigure {
        live: Live,
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
    /// What removed upstreams left behind is handed back in this turn.
    Reconfigured {
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
    /// Position and number of each death.
    DeathsTold {
        deaths: Vec<(i64, i64)>,
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
    NoteSecrets {
        notes: Vec<SecretNote>,
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
}

/// All that waited, taken at once.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) appends: Vec<Append>,
    pub(super) settles: Vec<Settle>,
    pub(super) declines: Vec<Decline>,
    pub(super) asks: Vec<Ask>,
    pub(super) give_backs: Vec<LeaseRef>,
    pub(super) orders: VecDeque<Order>,
    pub(super) claims: Vec<(EventId, Claim)>,
    pub(super) begins: Vec<Begin>,
    pub(super) endings: Vec<Ending>,
    pub(super) closing: bool,
}

/// How the writer may sleep.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// It has work of its own to go on with: take what is there.
    None,
    /// It has work that gains from sharing a sync with an append: wait this long for one.
    Linger(Duration),
    /// It has nothing to do before this time is over.
    Idle(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Awake,
    Lingering,
    Idle,
}

#[derive(Debug)]
struct Waiting {
    work: Work,
    append_bytes: usize,
    writer: Writer,
    woken: bool,
    /// Something changed outside that the writer has not looked at yet.
    nudged: bool,
    /// The writer leaves appends here, since it has no room for them.
    stalled: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    wake: Condvar,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            waiting: Mutex::new(Waiting {
                work: Work::default(),
                append_bytes: 0,
                writer: Writer::Awake,
                woken: false,
                nudged: false,
                stalled: false,
            }),
            wake: Condvar::new(),
        }
    }

    /// Hands over an append; its receipt's channel answers. Refused over the bounds and once closing.
    pub(super) fn append(&self, append: Append) -> Result<(), AppendError> {
        let mut waiting = self.lock();
        if waiting.work.closing {
            return Err(AppendError::Closing);
        }
        let bytes = waiting.append_bytes.saturating_add(append.bytes());
        let most = if waiting.stalled {
            APPENDS_STALLED_MAX
        } else {
            APPENDS_MAX
        };
        if waiting.work.appends.len() >= most || bytes > APPEND_BYTES_MAX {
            return Err(AppendError::Overloaded);
        }
        waiting.append_bytes = bytes;
        waiting.work.appends.push(append);
        let sleeping = waiting.writer != Writer::Awake && !waiting.stalled;
        self.notify(waiting, sleeping);
        Ok(())
    }

    /// Hands over a call that wants to begin; its channel answers. Refused over the bound and once closing.
    pub(super) fn begin(&self, begin: Begin) -> Result<(), AppendError> {
        let mut waiting = self.lock();
        if waiting.work.closing {
            return Err(AppendError::Closing);
        }
        if waiting.work.begins.len() >= BEGINS_MAX {
            return Err(AppendError::Overloaded);
        }
        waiting.work.begins.push(begin);
        self.notify(waiting, true);
        Ok(())
    }

    /// Hands over a call that ended: a client waits for it. There are never more than calls that have begun. Once closing
    /// it is left to the next opening, which makes its record ambiguous.
    pub(super) fn end(&self, ending: Ending) -> Result<(), StoreError> {
        let mut waiting = self.lock();
        if waiting.work.closing {
            return Err(StoreError::Closing);
        }
        waiting.work.endings.push(ending);
        self.notify(waiting, true);
        Ok(())
    }

    /// Hands over a settle. There are never more than leases, which the windows bound.
    pub(super) fn settle(&self, settle: Settle) -> Result<(), StoreError> {
        let mut waiting = self.lock();
        if waiting.work.closing {
            return Err(StoreError::Closing);
        }
        waiting.work.settles.push(settle);
        let many = waiting.work.settles.len() >= SETTLES_MANY;
        let wake = waiting.writer == Writer::Idle || (many && waiting.writer == Writer::Lingering);
        self.notify(waiting, wake);
        Ok(())
    }

    /// Hands over a lease that was not used.
    pub(super) fn decline(&self, decline: Decline) -> Result<(), StoreError> {
        let mut waiting = self.lock();
        if waiting.work.closing {
            return Err(StoreError::Closing);
        }
        waiting.work.declines.push(decline);
        let idle = waiting.writer == Writer::Idle;
        self.notify(waiting, idle);
        Ok(())
    }

    /// Asks for a dispatch.
    pub(super) fn ask(&self, ask: Ask) -> Result<(), StoreError> {
        let mut waiting = self.lock();
        if waiting.work.closing {
            return Err(StoreError::Closing);
        }
        if waiting.work.asks.len() >= ASKS_MAX {
            return Err(StoreError::Overloaded);
        }
        waiting.work.asks.push(ask);
        self.notify(waiting, true);
        Ok(())
    }

    /// Hands over a lease that was dropped unsettled; once closing it is left to the next opening, which ends all.
    pub(super) fn give_back(&self, lease: LeaseRef) {
        let mut waiting = self.lock();
        waiting.work.give_backs.push(lease);
        let idle = waiting.writer == Writer::Idle;
        self.notify(waiting, idle);
    }

    /// Hands over an order.
    pub(super) fn order(&self, order: Order) -> Result<(), StoreError> {
        let mut waiting = self.lock();
        if waiting.work.closing {
            return Err(StoreError::Closing);
        }
        if waiting.work.orders.len() >= ORDERS_MAX {
            return Err(StoreError::Overloaded);
        }
        waiting.work.orders.push_back(order);
        self.notify(waiting, true);
        Ok(())
    }

    /// Hands over what Redis said. There are never more than events laid out, which the tail bounds.
    pub(super) fn claimed(&self, claims: Vec<(EventId, Claim)>) {
        let mut waiting = self.lock();
        if waiting.work.closing {
            return;
        }
        waiting.work.claims.extend(claims);
        let sleeping = waiting.writer != Writer::Awake;
        self.notify(waiting, sleeping);
    }

    /// Tells the writer to look at its windows, or at anything else that changed outside.
    pub(super) fn nudge(&self) {
        let mut waiting = self.lock();
        waiting.nudged = true;
        let sleeping = waiting.writer != Writer::Awake;
        self.notify(waiting, sleeping);
    }

    /// No more appends, settles and orders from now on; the writer finishes what waits and ends.
    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.work.closing = true;
        self.notify(waiting, true);
    }

    /// Takes all that waits, but appends only if the writer is not `stalled`; sleeps as `patience` allows while nothing
    /// does.
    pub(super) fn take(&self, patience: Patience, stalled: bool) -> Work {
        let mut waiting = self.lock();
        waiting.stalled = stalled;
        let sleep = match patience {
            Patience::None => None,
            Patience::Linger(linger) if waiting.work.settles.len() < SETTLES_MANY => Some((Writer::Lingering, linger)),
            Patience::Linger(_) => None,
            Patience::Idle(idle) if waiting.is_empty() => Some((Writer::Idle, idle)),
            Patience::Idle(_) => None,
        };
        if let Some((writer, time)) = sleep
            && (waiting.work.appends.is_empty() || stalled)
            && waiting.work.orders.is_empty()
            && waiting.work.asks.is_empty()
            && waiting.work.claims.is_empty()
            && waiting.work.begins.is_empty()
            && waiting.work.endings.is_empty()
            && !waiting.work.closing
        {
            waiting.writer = writer;
            waiting.woken = false;
            waiting = self
                .wake
                .wait_timeout_while(waiting, time, |waiting| !waiting.woken)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(waiting, _timed_out)| waiting);
            waiting.writer = Writer::Awake;
        }
        waiting.nudged = false;
        let closing = waiting.work.closing;
        let mut work = std::mem::take(&mut waiting.work);
        waiting.work.closing = closing;
        if stalled {
            waiting.work.appends = std::mem::take(&mut work.appends);
        } else {
            waiting.append_bytes = 0;
        }
        work
    }

    fn notify(&self, mut waiting: MutexGuard<'_, Waiting>, wake: bool) {
        if wake {
            waiting.woken = true;
            waiting.writer = Writer::Awake;
            drop(waiting);
            self.wake.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing under this lock panics half-way; a poisoned one is whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn is_empty(&self) -> bool {
        (self.work.appends.is_empty() || self.stalled)
            && self.work.claims.is_empty()
            && self.work.settles.is_empty()
            && self.work.declines.is_empty()
            && self.work.asks.is_empty()
            && self.work.begins.is_empty()
            && self.work.endings.is_empty()
            && self.work.give_backs.is_empty()
            && self.work.orders.is_empty()
            && !self.nudged
    }
}
