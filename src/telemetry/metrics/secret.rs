//! [`SecretUse`]: when a secret last vouched for a request, and whether it can be removed.
//!
//! On the data path a use is two relaxed stores. What the store knows from before the start, and from other replicas, is
//! joined to it from time to time ([`crate::ingest::remember`]).

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Counter;
use crate::id::SourceName;
use crate::store::secrets::{SecretMark, SecretNote, SecretRecord};
use crate::time::Timestamp;

/// The use of one secret of a source. Clones share it.
#[derive(Clone, Debug)]
pub struct SecretUse {
    /// The operator's label, or `#` and the secret's place in the list, from 0.
    pub label: String,
    /// From then on it vouches for nothing.
    pub not_after: Option<Timestamp>,
    /// Unused for so long, while others were used, it can be removed (`secret_unused_after`).
    pub unused_after: Duration,
    mark: SecretMark,
    usage: Arc<Usage>,
}

#[derive(Debug, Default)]
struct Usage {
    /// In seconds; 0 for never in this process.
    last_used: AtomicI64,
    vouched: Counter,
    kept: Mutex<Kept>,
}

/// As of the last time that it was noted in the store, and looked up there.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    since: Option<Timestamp>,
    last_used: Option<Timestamp>,
    others: u64,
    noted: Noted,
    removable: bool,
}

/// How many requests it, and all secrets of its source, had vouched for when it was noted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noted {
    own: u64,
    all: u64,
}

/// What is known of a secret's use, over replicas and restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretFacts {
    /// When it was first seen in a configuration; unknown until the store has said.
    pub since: Option<Timestamp>,
    /// When it last vouched for a request.
    pub last_used: Option<Timestamp>,
    /// How many requests other secrets of its source have vouched for since then, or since it was first seen.
    pub others: u64,
}

/// What an operator can make of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its `not_after` has passed: it vouches for nothing.
    Ended,
    /// It has vouched for nothing since it was first seen, and it is too early, or too quiet, to say that nothing uses it.
    NeverUsed,
    /// It was used lately.
    InUse,
    /// It was not used lately; nor was any other, so that this says nothing.
    Quiet,
    /// Others were used for as long as it takes, and it was not.
    SafeToRemove,
}

impl Standing {
    /// The word in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::NeverUsed => "never_used",
            Self::InUse => "in_use",
            Self::Quiet => "quiet",
            Self::SafeToRemove => "safe_to_remove",
        }
    }
}

impl SecretUse {
    /// Of the secret at this place in the list, not used yet; its source's secrets have vouched for `all` requests so far.
    pub fn new(label: Option<&str>, index: usize, mark: SecretMark, all: u64) -> Self {
        let usage = Usage::default();
        let kept = Kept {
            noted: Noted { own: 0, all },
            ..Kept::default()
        };
        *usage.kept.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        Self {
            label: named(label, index),
            not_after: None,
            unused_after: Duration::ZERO,
            mark,
            usage: Arc::new(usage),
        }
    }

    /// The same secret in a list that has changed.
    #[must_use]
    pub fn moved(&self, label: Option<&str>, index: usize) -> Self {
        Self {
            label: named(label, index),
            ..self.clone()
        }
    }

    /// With what the configuration says of its end.
    #[must_use]
    pub fn ending(self, not_after: Option<Timestamp>, unused_after: Duration) -> Self {
        Self {
            not_after,
            unused_after,
            ..self
        }
    }

    /// What stands for it in the store.
    pub fn mark(&self) -> SecretMark {
        self.mark
    }

    /// It vouched for a request.
    pub fn used(&self, now: Timestamp) {
        let seconds = now.as_secs();
        // Looked at before it is written: one write a second leaves the line shared between the cores.
        if self.usage.last_used.load(Ordering::Relaxed) != seconds {
            self.usage.last_used.store(seconds, Ordering::Relaxed);
        }
        self.usage.vouched.add(1);
    }

    /// What is to be noted in the store, if anything is: its source's secrets have vouched for `all` requests. Once that is
    /// durable, say [`SecretUse::noted`].
    pub fn note(&self, source: &SourceName, all: u64) -> (SecretNote, Noted, bool) {
        // In this order: what comes in between is then counted twice at most, never forgotten.
        let noted = Noted {
            own: self.usage.vouched.get(),
            all,
        };
        let kept = self.kept();
        let used = noted.own != kept.noted.own;
        let others = noted.all.saturating_sub(kept.noted.all);
        let note = SecretNote {
            source: source.clone(),
            mark: self.mark,
            used: used.then(|| Timestamp::from_secs(self.usage.last_used.load(Ordering::Relaxed))),
            others: if used { 0 } else { others },
        };
        let is_news = used || note.others > 0 || kept.since.is_none();
        (note, noted, is_news)
    }

    /// What [`SecretUse::note`] said is durable.
    pub fn noted(&self, noted: Noted) {
        self.usage.kept.lock().unwrap_or_else(PoisonError::into_inner).noted = noted;
    }

    /// What the store knows.
    pub fn learn(&self, record: &SecretRecord) {
        let mut kept = self.usage.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.since = Some(record.since);
        kept.last_used = record.last_used;
        kept.others = record.others;
    }

    /// What is known by now: its source's secrets have vouched for `all` requests.
    pub fn facts(&self, all: u64) -> SecretFacts {
        let kept = self.kept();
        let own = match self.usage.last_used.load(Ordering::Relaxed) {
            0 => None,
            seconds => Some(Timestamp::from_secs(seconds)),
        };
        let used = self.usage.vouched.get() != kept.noted.own;
        SecretFacts {
            since: kept.since,
            last_used: own.max(kept.last_used),
            others: if used {
                0
            } else {
                kept.others.saturating_add(all.saturating_sub(kept.noted.all))
            },
        }
    }

    /// The last use that is known.
    pub fn last_used(&self) -> Option<Timestamp> {
        self.facts(0).last_used
    }

    /// Whether it could be removed when that was last [judged](super::SourceMetrics::judge_secrets).
    pub fn is_removable(&self) -> bool {
        self.kept().removable
    }

    pub(super) fn set_removable(&self, removable: bool) {
        self.usage.kept.lock().unwrap_or_else(PoisonError::into_inner).removable = removable;
    }

    /// `others_used`: when another secret of its source was last used.
    pub fn standing(&self, facts: &SecretFacts, others_used: Option<Timestamp>, now: Timestamp) -> Standing {
        if self.not_after.is_some_and(|end| end <= now) {
            return Standing::Ended;
        }
        // A secret that nobody has seen yet was not unused.
        let quiet_since = facts.last_used.or(facts.since).unwrap_or(now);
        if others_used.is_some_and(|used| used.since(quiet_since) >= self.unused_after) {
            return Standing::SafeToRemove;
        }
        match facts.last_used {
            None => Standing::NeverUsed,
            Some(used) if now.since(used) >= self.unused_after => Standing::Quiet,
            Some(_) => Standing::InUse,
        }
    }

    fn kept(&self) -> Kept {
        *self.usage.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn named(label: Option<&str>, index: usize) -> String {
    label.map_or_else(|| format!("#{index}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    const DAY: u64 = 86_400;

    fn mark(secret: &str) -> SecretMark {
        SecretMark::of(&SourceName::new("stripe"), &Secret::new(secret))
    }

    fn day(day: i64) -> Timestamp {
        Timestamp::from_secs(20_000 * 86_400 + day * 86_400)
    }

    fn secret() -> SecretUse {
        SecretUse::new(Some("old"), 0, mark("old"), 0).ending(None, Duration::from_secs(14 * DAY))
    }

    fn facts(since: i64, last_used: Option<i64>) -> SecretFacts {
        SecretFacts {
            since: Some(day(since)),
            last_used: last_used.map(day),
            others: 7,
        }
    }

    #[test]
    fn a_secret_is_safe_to_remove_once_another_was_used_for_long_enough_without_it() {
        let secret = secret();
        let standing =
            |facts: &SecretFacts, others: Option<i64>, now| secret.standing(facts, others.map(day), day(now));
        assert_eq!(standing(&facts(0, Some(5)), Some(18), 18), Standing::InUse);
        assert_eq!(standing(&facts(0, Some(5)), Some(19), 19), Standing::SafeToRemove);
        assert_eq!(standing(&facts(5, None), Some(18), 18), Standing::NeverUsed);
        assert_eq!(standing(&facts(5, None), Some(19), 19), Standing::SafeToRemove);
    }

    #[test]
    fn a_source_without_traffic_says_nothing_about_its_secrets() {
        let secret = secret();
        for others in [None, Some(6)] {
            let quiet = secret.standing(&facts(0, Some(5)), others.map(day), day(400));
            assert_eq!(quiet, Standing::Quiet);
            let never = secret.standing(&facts(5, None), others.map(day), day(400));
            assert_eq!(never, Standing::NeverUsed);
        }
        // Nor does one of which the store has said nothing yet.
        let unseen = SecretFacts {
            since: None,
            ..facts(0, None)
        };
        assert_eq!(secret.standing(&unseen, Some(day(400)), day(400)), Standing::NeverUsed);
    }

    #[test]
    fn a_secret_past_its_end_has_ended_whatever_was_used() {
        let ended = secret().ending(Some(day(3)), Duration::from_secs(14 * DAY));
        assert_eq!(
            ended.standing(&facts(0, Some(2)), Some(day(2)), day(3)),
            Standing::Ended
        );
    }

    #[test]
    fn what_is_noted_is_noted_once_and_joined_to_what_the_store_knows() {
        let (source, secret) = (SourceName::new("stripe"), secret());
        let (note, noted, is_news) = secret.note(&source, 3);
        assert!(is_news, "the store does not know it yet");
        assert_eq!((note.used, note.others), (None, 3));
        secret.noted(noted);
        secret.learn(&SecretRecord {
            source: source.clone(),
            mark: secret.mark(),
            since: day(0),
            last_used: Some(day(1)),
            others: 40,
        });
        assert!(!secret.note(&source, 3).2);
        let facts = secret.facts(5);
        assert_eq!((facts.last_used, facts.others), (Some(day(1)), 42));
        secret.used(day(2));
        let facts = secret.facts(6);
        assert_eq!((facts.last_used, facts.others), (Some(day(2)), 0));
        let (note, _noted, is_news) = secret.note(&source, 6);
        assert!(is_news);
        assert_eq!((note.used, note.others), (Some(day(2)), 0));
    }

    #[test]
    fn a_secret_that_comes_later_does_not_count_what_was_before() {
        let secret = SecretUse::new(None, 1, mark("new"), 500);
        assert_eq!(secret.label, "#1");
        assert_eq!(secret.note(&SourceName::new("stripe"), 500).0.others, 0);
        assert_eq!(secret.facts(502).others, 2);
    }
}
