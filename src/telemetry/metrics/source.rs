//! What is counted of sources.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::patience::{Patience, SenderRule};
use super::refusals::LastRefusals;
use super::secret::{SecretFacts, SecretUse, Standing};
use super::{Counter, Gauge, Histogram};
use crate::store::model::Admission;
use crate::time::{Monotonic, Timestamp};
use crate::verify::Reason;

/// How a request to a source ended; see the balance in the [module's documentation](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Appended and synced.
    Accepted,
    /// Known to be a duplicate at the time of the answer.
    Duplicate,
    /// A hand-shake or probe.
    Challenge,
    /// Refused with a 4xx.
    Rejected,
    /// 408, 429, 503, or the client left.
    Failed,
}

impl RequestOutcome {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Accepted,
        Self::Duplicate,
        Self::Challenge,
        Self::Rejected,
        Self::Failed,
    ];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Duplicate => "duplicate",
            Self::Challenge => "challenge",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
        }
    }
}

/// Why a request ended as [`RequestOutcome::Failed`]: the bound or part that was at its end (P6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The body did not arrive within `limits.body_timeout` (408).
    TooSlow,
    /// The client left before its body was whole; nobody to answer.
    Incomplete,
    /// Over the source's inbound `rate` (429).
    RateLimited,
    /// `limits.in_flight` or the store's queue is full (503).
    Overloaded,
    /// `store.max_bytes` or `store.min_free` is reached (503).
    DiskBudget,
    /// The store could not write (503).
    StoreFailed,
    /// Shutting down (503).
    Closing,
    /// The provider's key could not be fetched (503).
    KeyUnavailable,
    /// A secret that arrived in band could not be kept (503).
    SecretNotKept,
}

impl Failure {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::TooSlow,
        Self::Incomplete,
        Self::RateLimited,
        Self::Overloaded,
        Self::DiskBudget,
        Self::StoreFailed,
        Self::Closing,
        Self::KeyUnavailable,
        Self::SecretNotKept,
    ];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooSlow => "too_slow",
            Self::Incomplete => "incomplete",
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::DiskBudget => "disk_budget",
            Self::StoreFailed => "store_failed",
            Self::Closing => "closing",
            Self::KeyUnavailable => "key_unavailable",
            Self::SecretNotKept => "secret_not_kept",
        }
    }
}

/// What came of fetching a provider's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFetch {
    /// It was had, and can be used.
    Fetched,
    /// It was not.
    Failed,
    /// It was not tried: too many were asked for.
    Limited,
}

impl KeyFetch {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Fetched, Self::Failed, Self::Limited];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fetched => "fetched",
            Self::Failed => "failed",
            Self::Limited => "limited",
        }
    }
}

/// How a sender that waits for the upstream's own answer (`reply = "upstream"`) was answered. The request itself is
/// `accepted`, whatever this says, since its event is durable; one that failed earlier is counted there alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderAnswer {
    /// The upstream's 2xx or 3xx, just given.
    Relayed,
    /// The one that it gave to an earlier attempt.
    Kept,
    /// The upstream's 4xx.
    Refused,
    /// Over, without an answer that was kept: acknowledged.
    Over,
    /// 503: the attempt failed.
    Failed,
    /// 503: nothing came in the sender's time.
    Late,
    /// 503: the upstream is paused.
    Paused,
    /// 503: its breaker is open.
    BreakerOpen,
    /// 503: its slots, or the places to wait for them, are taken.
    Full,
    /// 503: shutting down.
    Closing,
    /// 503: the store failed.
    Store,
    /// 503: another store has the event.
    Elsewhere,
}

impl SenderAnswer {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Relayed,
        Self::Kept,
        Self::Refused,
        Self::Over,
        Self::Failed,
        Self::Late,
        Self::Paused,
        Self::BreakerOpen,
        Self::Full,
        Self::Closing,
        Self::Store,
        Self::Elsewhere,
    ];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Relayed => "relayed",
            Self::Kept => "kept",
            Self::Refused => "refused",
            Self::Over => "over",
            Self::Failed => "failed",
            Self::Late => "late",
            Self::Paused => "paused",
            Self::BreakerOpen => "breaker_open",
            Self::Full => "full",
            Self::Closing => "closing",
            Self::Store => "store",
            Self::Elsewhere => "elsewhere",
        }
    }
}

/// The counters of one source.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct SourceMetrics {
    requests: [Counter; RequestOutcome::ALL.len()],
    rejections: [Counter; Reason::ALL.len()],
    failures: [Counter; Failure::ALL.len()],
    key_fetches: [Counter; KeyFetch::ALL.len()],
    events_stored: Counter,
    duplicates: Counter,
    conflicts: Counter,
    revived: Counter,
    signature_age: Gauge,
    accept: Histogram,
    answers: [Counter; SenderAnswer::ALL.len()],
    waiting: Gauge,
    vouched: Counter,
    secrets: RwLock<Arc<[SecretUse]>>,
    place: RwLock<(String, String)>,
    patience: RwLock<Option<Arc<Patience>>>,
    /// Thousandths of the sender's limit, as of the last look.
    patience_used: Gauge,
    removed: AtomicBool,
    last_refusals: LastRefusals,
}

impl SourceMetrics {
    /// The configuration has this source, with these secrets in their order.
    pub fn configured(&self, secrets: impl IntoIterator<Item = SecretUse>) {
        *self.secrets.write().unwrap_or_else(PoisonError::into_inner) = secrets.into_iter().collect();
        self.removed.store(false, Ordering::Relaxed);
    }

    /// Its path and provider.
    pub fn placed(&self, path: &str, provider: &str) {
        *self.place.write().unwrap_or_else(PoisonError::into_inner) = (path.to_owned(), provider.to_owned());
    }

    /// When its sender gives up. What was counted stays while the rule is the same.
    pub fn sender_gives_up(&self, rule: Option<SenderRule>) -> Option<Arc<Patience>> {
        let mut patience = self.patience.write().unwrap_or_else(PoisonError::into_inner);
        if patience.as_ref().map(|patience| patience.rule()) != rule {
            *patience = rule.map(|rule| Arc::new(Patience::new(rule)));
        }
        patience.clone()
    }

    /// How near its sender is to giving up, where it is known when it does.
    pub fn patience(&self) -> Option<Arc<Patience>> {
        self.patience.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks at how much of the sender's patience is used by now, for [`SourceMetrics::patience_used`].
    pub fn judge_patience(&self, now: Monotonic) {
        if let Some(patience) = self.patience() {
            let used = patience.used(now).sure;
            self.patience_used.set(i64::try_from(used).unwrap_or(i64::MAX));
        }
    }

    /// Thousandths of the sender's limit that are used; `None` where none is known.
    pub fn patience_used(&self) -> Option<i64> {
        self.patience().map(|_patience| self.patience_used.get())
    }

    /// Its last refusals, where they are noted and read.
    pub fn last_refusals(&self) -> &LastRefusals {
        &self.last_refusals
    }

    /// Path and provider.
    pub fn place(&self) -> (String, String) {
        self.place.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The configuration has it no more. Its counters stay, as scrapers expect of counters; its secrets go.
    pub fn removed(&self) {
        self.configured([]);
        self.sender_gives_up(None);
        self.removed.store(true, Ordering::Relaxed);
    }

    /// Whether it has left the configuration.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    /// Appended, synced and answered, `took` after its head was complete.
    pub fn accepted(&self, took: Duration) {
        self.ended(RequestOutcome::Accepted);
        self.accept.observe(took);
    }

    /// Answered as a duplicate without an append, `took` after its head was complete.
    pub fn duplicate(&self, conflict: bool, took: Duration) {
        self.ended(RequestOutcome::Duplicate);
        self.duplicates.add(1);
        if conflict {
            self.conflicts.add(1);
        }
        self.accept.observe(took);
    }

    /// Answered from the provider's record.
    pub fn challenge(&self) {
        self.ended(RequestOutcome::Challenge);
    }

    /// Refused for this reason. [`Reason::TooSlow`] is [`Failure::TooSlow`] too: count it by [`SourceMetrics::failed`].
    pub fn rejected(&self, reason: Reason) {
        self.ended(RequestOutcome::Rejected);
        if let Some(counter) = self.rejections.get(reason as usize) {
            counter.add(1);
        }
    }

    /// Refused for its method (405).
    pub fn method_not_allowed(&self) {
        self.ended(RequestOutcome::Rejected);
    }

    /// Ended by a bound or a failure of ours.
    pub fn failed(&self, failure: Failure) {
        self.ended(RequestOutcome::Failed);
        if let Some(counter) = self.failures.get(failure as usize) {
            counter.add(1);
        }
        if failure == Failure::TooSlow
            && let Some(counter) = self.rejections.get(Reason::TooSlow as usize)
        {
            counter.add(1);
        }
    }

    /// What admission decided about an event that was accepted earlier.
    pub fn admitted(&self, admission: &Admission) {
        match admission {
            Admission::New | Admission::Held => self.events_stored.add(1),
            Admission::Duplicate { conflict, .. } => {
                self.duplicates.add(1);
                if *conflict {
                    self.conflicts.add(1);
                }
            }
            Admission::Elsewhere { .. } => self.duplicates.add(1),
            Admission::Revived { .. } => {
                self.duplicates.add(1);
                self.revived.add(1);
            }
        }
    }

    /// A provider's key was asked for.
    pub fn fetched_key(&self, outcome: KeyFetch) {
        if let Some(counter) = self.key_fetches.get(outcome as usize) {
            counter.add(1);
        }
    }

    /// Keys that were asked for, with this outcome.
    pub fn key_fetches(&self, outcome: KeyFetch) -> u64 {
        self.key_fetches.get(outcome as usize).map_or(0, Counter::get)
    }

    /// A sender that waited for the upstream's answer was answered so.
    pub fn answered(&self, how: SenderAnswer) {
        if let Some(counter) = self.answers.get(how as usize) {
            counter.add(1);
        }
    }

    /// Senders that were answered so.
    pub fn answers(&self, how: SenderAnswer) -> u64 {
        self.answers.get(how as usize).map_or(0, Counter::get)
    }

    /// Senders that wait for the upstream's answer now.
    pub fn waiting(&self) -> &Gauge {
        &self.waiting
    }

    /// A signature that holds covers this time.
    pub fn signature_age(&self, received_at: Timestamp, signed_at: Timestamp) {
        let age = received_at.as_millis().saturating_sub(signed_at.as_millis());
        self.signature_age.set(age);
    }

    /// Requests that ended so.
    pub fn requests(&self, outcome: RequestOutcome) -> u64 {
        self.requests.get(outcome as usize).map_or(0, Counter::get)
    }

    /// Refusals for this reason.
    pub fn rejections(&self, reason: Reason) -> u64 {
        self.rejections.get(reason as usize).map_or(0, Counter::get)
    }

    /// Refusals by the word of their reason; every reason is there.
    pub fn rejections_by_word(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Reason::ALL
            .into_iter()
            .map(|reason| (reason.as_str(), self.rejections(reason)))
    }

    /// Failures for this cause.
    pub fn failures(&self, failure: Failure) -> u64 {
        self.failures.get(failure as usize).map_or(0, Counter::get)
    }

    /// Admitted as new.
    pub fn events_stored(&self) -> u64 {
        self.events_stored.get()
    }

    /// Duplicates, found by a look or by admission.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.get()
    }

    /// Duplicates with other bytes than the event they repeat.
    pub fn conflicts(&self) -> u64 {
        self.conflicts.get()
    }

    /// Duplicates that brought a dead dispatch back.
    pub fn revived(&self) -> u64 {
        self.revived.get()
    }

    /// How old the latest signature was when it arrived, in milliseconds; negative when it came from the future, 0 where
    /// the scheme signs no time.
    pub fn latest_signature_age(&self) -> i64 {
        self.signature_age.get()
    }

    /// From the complete head to the answer, for accepted requests and duplicates.
    pub fn accept_times(&self) -> &Histogram {
        &self.accept
    }

    /// The source's secrets, in the order of the configuration.
    pub fn secrets(&self) -> Arc<[SecretUse]> {
        Arc::clone(&self.secrets.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A secret vouched for a request.
    pub fn vouch(&self, secret: &SecretUse, now: Timestamp) {
        secret.used(now);
        self.vouched.add(1);
    }

    /// How many requests its secrets have vouched for.
    pub fn vouched(&self) -> u64 {
        self.vouched.get()
    }

    /// The source's secrets with what is known of their use.
    pub fn secrets_at(&self, now: Timestamp) -> Vec<(SecretUse, SecretFacts, Standing)> {
        let (secrets, all) = (self.secrets(), self.vouched());
        let facts: Vec<SecretFacts> = secrets.iter().map(|secret| secret.facts(all)).collect();
        let judged = secrets.iter().zip(&facts).map(|(secret, own)| {
            let others = secrets
                .iter()
                .zip(&facts)
                .filter(|(other, _)| other.mark() != secret.mark());
            let others_used = others.filter_map(|(_, facts)| facts.last_used).max();
            (secret.clone(), *own, secret.standing(own, others_used, now))
        });
        judged.collect()
    }

    /// Judges which secrets can be removed, for [`SecretUse::is_removable`].
    pub fn judge_secrets(&self, now: Timestamp) {
        for (secret, _facts, standing) in self.secrets_at(now) {
            secret.set_removable(standing == Standing::SafeToRemove);
        }
    }

    fn ended(&self, outcome: RequestOutcome) {
        if let Some(counter) = self.requests.get(outcome as usize) {
            counter.add(1);
        }
    }
}
