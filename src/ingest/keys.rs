//! [`Keys`]: the providers' keys that are fetched, for one source.
//!
//! Verification stays a pure step: a request that no known key vouches for comes back, and only then is its key looked for
//! ([`Keys::judge`]). What that costs is bounded, since strangers can ask for it: one fetch at a time for each address, whom
//! all wait for that need it; no more than [`RATE`] for the source; no second one of a key set within [`FRESH`], nor of
//! anything within [`RETRY`] of a failure. A key that cannot be had is our failure (P10): the sender is told to come again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Uri;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::id::SourceName;
use crate::net::fetch::{CannotFetch, Fetching};
use crate::pace::Pace;
use crate::reader::Rate;
use crate::request::RawRequest;
use crate::telemetry::metrics::{KeyFetch, SourceMetrics};
use crate::time::{Clock, Monotonic};
use crate::verify::{Reason, Rejected, Verified, Verifier};

/// A key set that is younger says what there is: a key that is not in it does not exist.
const FRESH: Duration = Duration::from_secs(60);
/// A key that is older is fetched again in the background when it is used, since the provider may have taken it back.
const RENEW: Duration = Duration::from_secs(3600);
/// A key that could not be renewed for so long vouches no more.
const OLDEST: Duration = Duration::from_secs(24 * 3600);
/// How long a failure is believed.
const RETRY: Duration = Duration::from_secs(5);
/// Addresses whose keys are kept, at most.
const ADDRESSES_MAX: usize = 32;
/// Fetches for one source.
const RATE: Rate = Rate {
    count: 20,
    per: Duration::from_secs(60),
};

/// See the module.
#[derive(Debug)]
pub(super) struct Keys {
    source: SourceName,
    verifier: Arc<Verifier>,
    fetching: Fetching,
    metrics: Arc<SourceMetrics>,
    clock: Clock,
    tracker: TaskTracker,
    /// By address. Mutexes for nanoseconds, never held over an await.
    known: Mutex<HashMap<String, Arc<Entry>>>,
    pace: Mutex<Pace>,
}

/// What is known of one address.
#[derive(Debug, Default)]
struct Entry {
    state: Mutex<State>,
    /// Held by whoever fetches.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug, Default)]
struct State {
    key: Option<(Arc<Verifier>, Monotonic)>,
    failed_at: Option<Monotonic>,
}

impl Keys {
    pub(super) fn new(
        source: SourceName,
        verifier: Arc<Verifier>,
        fetching: Fetching,
        metrics: Arc<SourceMetrics>,
        clock: Clock,
        tracker: TaskTracker,
    ) -> Self {
        Self {
            source,
            verifier,
            fetching,
            metrics,
            clock,
            tracker,
            known: Mutex::default(),
            pace: Mutex::new(Pace::new(Some(RATE), Some(RATE.count))),
        }
    }

    /// Judges a request by its key, which is fetched if need be; that goes on when nobody waits any more. `None`: its key
    /// could not be had.
    pub(super) async fn judge(
        self: &Arc<Self>,
        request: RawRequest,
        patience: Duration,
    ) -> Option<Result<Verified, Rejected>> {
        // Without a key: shows what is wrong with the request whatever its key.
        let rejected = match self.verifier.verify(request) {
            Err(rejected) if rejected.rejection.reason == Reason::WrongSignature => rejected,
            judged => return Some(judged),
        };
        let Some(address) = self.verifier.key_address(&rejected.request) else {
            return Some(Err(rejected));
        };
        let entry = self.entry(&address);
        let state = lock(&entry.state).clone();
        let now = self.clock.monotonic();
        let mut request = *rejected.request;
        if let Some((verifier, at)) = state.key.filter(|(_, at)| now.since(*at) < OLDEST) {
            let age = now.since(at);
            if age >= RENEW {
                self.renew(&address, &entry);
            }
            match verifier.verify(request) {
                Err(rejected) if rejected.rejection.reason == Reason::WrongSignature && age >= FRESH => {
                    request = *rejected.request;
                }
                judged => return Some(judged),
            }
        }
        let fetching = self.start_fetch(&address, &entry, now);
        match tokio::time::timeout(patience, fetching).await {
            Ok(Ok(Ok(verifier))) => Some(verifier.verify(request)),
            // Told in the log; or the process ends; or it takes longer than the sender waits.
            Ok(Ok(Err(_)) | Err(_)) | Err(_) => None,
        }
    }

    fn entry(&self, address: &Uri) -> Arc<Entry> {
        let address = address.to_string();
        let mut known = lock(&self.known);
        if let Some(entry) = known.get(&address) {
            return Arc::clone(entry);
        }
        if known.len() >= ADDRESSES_MAX {
            // Those that led nowhere first: strangers can name any number of them.
            known.retain(|_, entry| lock(&entry.state).key.is_some());
            if known.len() >= ADDRESSES_MAX {
                known.clear();
            }
        }
        let entry = Arc::new(Entry::default());
        known.insert(address, Arc::clone(&entry));
        entry
    }

    /// The key as it is by now, or as somebody else has just fetched it.
    async fn fetch(&self, address: &Uri, entry: &Entry, since: Monotonic) -> Result<Arc<Verifier>, CannotFetch> {
        let _turn = entry.turn.lock().await;
        let state = lock(&entry.state).clone();
        let now = self.clock.monotonic();
        if let Some((verifier, at)) = state.key
            && at >= since
        {
            return Ok(verifier);
        }
        if state.failed_at.is_some_and(|at| now.since(at) < RETRY) {
            return Err(CannotFetch::because("it failed a moment ago"));
        }
        if !self.may_fetch(now) {
            self.metrics.fetched_key(KeyFetch::Limited);
            return Err(CannotFetch::because("too many keys were asked for"));
        }
        let got = self.fetching.get(address, &self.clock, &self.tracker).await;
        let made = got.and_then(|document| {
            let made = self.verifier.with_document(&document);
            made.map_err(CannotFetch::because)
        });
        let at = self.clock.monotonic();
        // The host is the provider's; its path may be a stranger's text and is not logged.
        let host = address.host().unwrap_or_default();
        match made {
            Ok(verifier) => {
                let verifier = Arc::new(verifier);
                *lock(&entry.state) = State {
                    key: Some((Arc::clone(&verifier), at)),
                    failed_at: None,
                };
                self.metrics.fetched_key(KeyFetch::Fetched);
                info!(source = %self.source, host, "fetched a provider's key");
                Ok(verifier)
            }
            Err(why) => {
                lock(&entry.state).failed_at = Some(at);
                self.metrics.fetched_key(KeyFetch::Failed);
                warn!(source = %self.source, host, cause = %why, "a provider's key could not be fetched");
                Err(why)
            }
        }
    }

    fn may_fetch(&self, now: Monotonic) -> bool {
        let mut pace = lock(&self.pace);
        let may = pace.not_before(now).is_none();
        if may {
            pace.start(now);
        }
        may
    }

    /// Fetches a key again that is in use; until then, and if that fails, it is used as it is.
    fn renew(self: &Arc<Self>, address: &Uri, entry: &Arc<Entry>) {
        if entry.turn.try_lock().is_err() {
            return;
        }
        // Told in the log.
        drop(self.start_fetch(address, entry, self.clock.monotonic()));
    }

    fn start_fetch(
        self: &Arc<Self>,
        address: &Uri,
        entry: &Arc<Entry>,
        since: Monotonic,
    ) -> JoinHandle<Result<Arc<Verifier>, CannotFetch>> {
        let (keys, address, entry) = (Arc::clone(self), address.clone(), Arc::clone(entry));
        self.tracker
            .spawn(async move { keys.fetch(&address, &entry, since).await })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is whole between any two statements that touch it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
