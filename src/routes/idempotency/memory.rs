//! Answers in this process's memory, bounded in bytes (`limits.replay_cache`): a replay then costs no store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use super::finished::Finished;
use crate::store::records::RecordKey;
use crate::time::{Clock, Monotonic};

/// Calls that ended for good. Cheap to clone; clones share the memory.
///
/// An entry is believed until its record's time is over by the wall clock, and never for longer than a record lives by the
/// monotonic one: a wall clock that was set back does not make it immortal. A clock that runs ahead only sends its key to
/// the store, which decides.
#[derive(Clone)]
pub struct Memory(Option<Arc<Kept>>);

type Kept = Cache<RecordKey, Entry, Weight, std::hash::RandomState, DefaultLifecycle<RecordKey, Entry>>;

#[derive(Clone)]
struct Entry {
    finished: Arc<Finished>,
    /// When it is forgotten whatever the wall clock says.
    until: Monotonic,
}

#[derive(Clone)]
struct Weight;

impl Weighter<RecordKey, Entry> for Weight {
    fn weight(&self, key: &RecordKey, entry: &Entry) -> u64 {
        entry.finished.bytes() + key.route.as_str().len() as u64
    }
}

/// What an answer is taken to weigh when the cache is laid out.
const USUAL_ANSWER: u64 = 2 << 10;
/// Parts that do not wait for each other; an answer larger than its part is not kept.
const SHARDS: usize = 8;

impl Memory {
    /// For at most `bytes`; 0 keeps nothing.
    pub fn new(bytes: u64) -> Self {
        let items = usize::try_from(bytes / USUAL_ANSWER).unwrap_or(usize::MAX).max(SHARDS);
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .estimated_items_capacity(items)
            .weight_capacity(bytes)
            .build();
        let cache = options.ok().filter(|_| bytes > 0).map(|options| {
            Cache::with_options(
                options,
                Weight,
                std::hash::RandomState::new(),
                DefaultLifecycle::default(),
            )
        });
        Self(cache.map(Arc::new))
    }

    /// What is known of the key now.
    pub(super) fn get(&self, key: &RecordKey, clock: &Clock) -> Option<Arc<Finished>> {
        let cache = self.0.as_ref()?;
        let entry = cache.get(key)?;
        if clock.now() < entry.finished.expires_at && clock.monotonic() < entry.until {
            return Some(entry.finished);
        }
        // Not removed by the key alone: somebody may have put a newer one there.
        cache.remove_if(key, |other| Arc::ptr_eq(&other.finished, &entry.finished));
        None
    }

    /// Keeps it, for `ttl` at most.
    pub(super) fn put(&self, key: RecordKey, finished: Arc<Finished>, ttl: Duration, clock: &Clock) {
        if let Some(cache) = &self.0 {
            let until = clock.monotonic().after(ttl);
            cache.insert(key, Entry { finished, until });
        }
    }

    /// Forgets all: the store is another one.
    pub fn clear(&self) {
        if let Some(cache) = &self.0 {
            cache.clear();
        }
    }

    /// Bytes held now.
    pub fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |cache| cache.weight())
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RouteName;
    use crate::store::records::{Fingerprint, StoredAnswer};
    use crate::time::Timestamp;
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    const HOUR: Duration = Duration::from_secs(3600);

    fn key(n: u8) -> RecordKey {
        RecordKey {
            route: RouteName::new("orders"),
            digest: [n; 32],
        }
    }

    fn finished(size: usize) -> Arc<Finished> {
        Arc::new(Finished {
            fingerprint: Fingerprint([1; 32]),
            answer: Some(Arc::new(StoredAnswer {
                status: StatusCode::OK,
                headers: HeaderMap::new(),
                body: Bytes::from(vec![0; size]),
            })),
            expires_at: Timestamp::from_secs(0).after(HOUR),
        })
    }

    #[test]
    fn it_never_holds_more_than_its_bytes() {
        let memory = Memory::new(64 << 10);
        let clock = Clock::manual(Timestamp::from_secs(0));
        for n in 0..=255 {
            memory.put(key(n), finished(3000), HOUR, &clock);
            assert!(memory.bytes() <= 64 << 10, "{memory:?}");
        }
        assert!(memory.bytes() > 16 << 10, "{memory:?}");
        memory.put(key(1), finished(1 << 20), HOUR, &clock);
        assert_eq!(memory.get(&key(1), &clock), None, "larger than all of it");
        memory.clear();
        assert_eq!(memory.bytes(), 0);
    }

    #[test]
    fn an_entry_ends_with_its_record_and_a_clock_that_was_set_back_does_not_keep_it() {
        let memory = Memory::new(64 << 10);
        let clock = Clock::manual(Timestamp::from_secs(0));
        memory.put(key(1), finished(1), HOUR, &clock);
        memory.put(key(2), finished(1), Duration::from_secs(1), &clock);
        clock.set(Timestamp::from_secs(3599));
        assert!(memory.get(&key(1), &clock).is_some());
        assert_eq!(
            memory.get(&key(2), &clock),
            None,
            "longer than any record of its route lives"
        );
        clock.set(Timestamp::from_secs(3600));
        assert_eq!(memory.get(&key(1), &clock), None);
        assert_eq!(memory.bytes(), 0, "what is over is let go of");
    }

    #[test]
    fn without_bytes_nothing_is_kept() {
        let memory = Memory::new(0);
        let clock = Clock::manual(Timestamp::from_secs(0));
        memory.put(key(1), finished(1), HOUR, &clock);
        assert_eq!(memory.get(&key(1), &clock), None);
    }
}
