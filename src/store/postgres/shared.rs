//! What the tasks and handles of one store share, and what they tell each other through it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Tuning;
use super::calls::Calls;
use super::connect::Failure;
use super::database::Database;
use super::inbox::{GiveBack, Inbox};
use super::janitor::Trust;
use super::lanes::Lanes;
use super::leases::{LeaseRef, Leases, Orphans};
use super::names::Names;
use crate::id::LeaseToken;
use crate::measure::Histogram;
use crate::store::model::Notice;
use crate::store::settings::StoreSettings;
use crate::store::window::Ready;
use crate::time::{Clock, Monotonic, Timestamp};

/// What the tasks and handles of one store share.
pub(super) struct Shared {
    /// Names this process, anew at each start.
    pub(super) replica: Uuid,
    /// For ids; begins anywhere in the lower half, so that it does not start over soon.
    pub(super) counter: AtomicU32,
    /// What of it is [`Live`](crate::store::settings::Live) is replaced while the store is open.
    pub(super) settings: ArcSwap<StoreSettings>,
    /// See [`StoreSettings::keep_deaths`].
    pub(super) keep_deaths: bool,
    pub(super) tuning: Tuning,
    pub(super) clock: Clock,
    pub(super) lease_clock: Clock,
    pub(super) database: Database,
    pub(super) inbox: Inbox,
    pub(super) lanes: Lanes,
    pub(super) leases: Leases,
    pub(super) orphans: Orphans,
    pub(super) sources: Names,
    pub(super) upstreams: Names,
    pub(super) routes: Names,
    pub(super) calls: Calls,
    pub(super) notices: Mutex<Box<dyn FnMut(Notice) + Send>>,
    /// Claimed dispatches whose event cannot be read.
    pub(super) unreadable: Mutex<Vec<(Uuid, LeaseToken)>>,
    /// Since when and why the database does not do what it is asked, if so.
    pub(super) failing: Mutex<Option<(Monotonic, String)>>,
    /// `max_bytes` is reached: appends are refused.
    pub(super) disk_spent: AtomicBool,
    pub(super) used_bytes: AtomicU64,
    pub(super) clock_trusted: AtomicBool,
    pub(super) trust: Mutex<Option<Trust>>,
    /// We forget for all replicas.
    pub(super) keeps_house: AtomicBool,
    /// Live replicas, ourselves included, as of the last heartbeat.
    pub(super) replicas: AtomicUsize,
    pub(super) poll_wanted: AtomicBool,
    pub(super) commit_times: Arc<Histogram>,
    /// People's orders, one at a time: they share a writer of the tally.
    pub(super) orders: tokio::sync::Mutex<()>,
    /// One other configuration at a time.
    pub(super) reconfiguring: tokio::sync::Mutex<()>,
    /// Asks for dispatches, a few at a time.
    pub(super) asks: tokio::sync::Semaphore,
    /// How many deaths of an event there were when they were looked up.
    pub(super) deaths: tokio::sync::Mutex<HashMap<Uuid, i64>>,
    /// Wakes the claimer.
    pub(super) claims: Notify,
    /// Wakes the heartbeat.
    pub(super) ticks: Notify,
    /// Wakes the keeper.
    pub(super) buried: Notify,
    /// Others may take something.
    pub(super) announce: Notify,
    /// Take nothing new.
    pub(super) closing: CancellationToken,
    /// Leases are not looked after any more.
    pub(super) kept: CancellationToken,
    /// What is not recorded by now will not be.
    pub(super) given_up: CancellationToken,
    /// The heart beats no more.
    pub(super) frozen: CancellationToken,
    pub(super) closed: AtomicBool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("replica", &self.replica)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn settings(&self) -> Arc<StoreSettings> {
        self.settings.load_full()
    }

    /// The monotonic time that leases and shares are judged by.
    pub(super) fn leases_now(&self) -> Monotonic {
        self.lease_clock.monotonic()
    }

    /// Until when a lease holds that a transaction wrote which was sent then; a tenth earlier than the database has it.
    pub(super) fn lease_until(&self, sent: Monotonic) -> Monotonic {
        sent.after(self.tuning.lease_ttl - self.tuning.lease_ttl / 10)
    }

    pub(super) fn failed(&self, failure: &Failure) {
        if matches!(failure, Failure::Again(_)) {
            // A deadlock, say: nothing that lasts, or a connection says so next.
            tracing::debug!(%failure, "the database asks to try again");
            return;
        }
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.is_none() {
            tracing::error!(%failure, "the database does not take what it is given; accepting waits and then stops until it does");
            *failing = Some((self.leases_now(), failure.to_string()));
        }
    }

    pub(super) fn succeeded(&self) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.take().is_some() {
            tracing::info!("the database answers again");
        }
    }

    /// From now on the clocks are watched.
    pub(super) fn trust_the_clocks(&self, newest: Option<Timestamp>) {
        let trust = Trust::new(&self.clock, self.database.now(), newest);
        *self.trust.lock().unwrap_or_else(PoisonError::into_inner) = Some(trust);
        self.keep_time();
    }

    /// Notes the time, and says so when its trust changes.
    pub(super) fn keep_time(&self) {
        let _trusted = self.trusts(self.database.now());
    }

    /// The time that decides which records have expired; `None` while a clock is doubted. The time that is asked about is
    /// the one that decides: a jump is noticed before it can free a key.
    pub(super) fn expiry_now(&self) -> Option<Timestamp> {
        let now = self.database.now();
        self.trusts(now).then_some(now)
    }

    fn trusts(&self, theirs: Timestamp) -> bool {
        let mut trust = self.trust.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(trust) = &mut *trust else { return false };
        let trusted = trust.observe(&self.clock, theirs);
        if self.clock_trusted.swap(trusted, Ordering::Relaxed) != trusted {
            if trusted {
                tracing::info!("the clocks have agreed for an hour: expiry goes on");
            } else {
                tracing::warn!("a clock jumped: expiry, pruning and giving up stop until it has agreed for an hour");
            }
        }
        trusted
    }

    pub(super) fn tell(&self, notices: Vec<Notice>) {
        if notices.is_empty() {
            return;
        }
        let mut tell = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        notices.into_iter().for_each(&mut *tell);
    }

    pub(super) fn bury(&self, event: Uuid, token: LeaseToken) {
        self.put_back_unreadable(vec![(event, token)]);
        self.buried.notify_one();
    }

    pub(super) fn take_unreadable(&self) -> Vec<(Uuid, LeaseToken)> {
        std::mem::take(&mut *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn put_back_unreadable(&self, unreadable: Vec<(Uuid, LeaseToken)>) {
        self.unreadable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(unreadable);
    }

    /// Another replica has something for whoever asks.
    pub(super) fn poll_now(&self) {
        self.poll_wanted.store(true, Ordering::Release);
        self.claims.notify_one();
    }

    /// What lies in a window above its lane's limit goes to those who can send it sooner.
    pub(super) fn give_back_surplus(&self) {
        for (slot, lane) in self.lanes.iter().enumerate() {
            self.give_back_window(slot, lane.window().take_surplus());
        }
    }

    pub(super) fn give_back_window(&self, slot: usize, ready: impl IntoIterator<Item = Ready>) {
        let returned: Vec<GiveBack> = ready
            .into_iter()
            .map(|ready| {
                let lease = LeaseRef {
                    event: ready.dispatch.event.id,
                    lane: slot,
                    token: ready.dispatch.token,
                };
                ready.dispatch.forget();
                GiveBack { lease, unused: true }
            })
            .collect();
        if !returned.is_empty() {
            self.inbox.give_back(returned);
        }
    }
}
