//! The in-process memory of recent keys: answers most duplicates without a write.
//!
//! **Promises.** P1: it is told of a key only by the store, after the commit that made the key's event durable. P2: it
//! never decides that something is new; silence means "ask the store". P6: bounded by [`RecentKeys::new`]'s capacity,
//! the oldest key goes first.
//!
//! A dead dispatch must come back to life when its event is sent again, so the store also tells of deaths, in the order
//! of its commits, and the key is forgotten. On a shared store an event may die at another replica, which cannot tell us
//! in time: there a key is remembered for a few seconds only ([`RecentKeys::for_seconds`]), and all are forgotten when the
//! store becomes another one ([`RecentKeys::clear`]).

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::id::{EventId, SourceName};
use crate::key::{DedupeKey, KeyKind};
use crate::store::model::{Admission, BodyMark, Death, Notice, Receipt};
use crate::time::{Clock, Monotonic, Timestamp};

/// Locks that the keys are spread over, so that cores seldom meet at one.
const SHARDS: usize = 64;

/// Keys whose events are durable, the most recent ones.
#[derive(Debug)]
pub struct RecentKeys {
    shards: Vec<Mutex<Shard>>,
    per_shard: usize,
    digest_window: Duration,
    max_age: Option<MaxAge>,
    len: AtomicUsize,
}

#[derive(Debug)]
struct MaxAge {
    age: Duration,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Shard {
    keys: HashMap<[u8; 32], Known, BuildHasherDefault<DigestHasher>>,
    /// Oldest first; each entry with the event it was made for, since a key may be told anew.
    order: VecDeque<([u8; 32], EventId)>,
}

#[derive(Debug)]
struct Known {
    source: SourceName,
    event: EventId,
    body_mark: BodyMark,
    received_at: Timestamp,
    /// When we were told; the start of the process where ages do not matter.
    learned: Monotonic,
}

/// A duplicate found in memory.
#[derive(Debug)]
pub struct Found {
    /// Proof that the event is durable.
    pub receipt: Receipt,
    /// The bodies differ.
    pub conflict: bool,
}

impl RecentKeys {
    /// Remembers at most about `capacity` keys (at some 150 bytes each).
    pub fn new(capacity: usize, digest_window: Duration) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            per_shard: capacity.div_ceil(SHARDS),
            digest_window,
            max_age: None,
            len: AtomicUsize::new(0),
        }
    }

    /// The same, but a key is believed only until `age` after it was told.
    #[must_use]
    pub fn for_seconds(mut self, age: Duration, clock: Clock) -> Self {
        self.max_age = Some(MaxAge { age, clock });
        self
    }

    /// Forgets everything: the store is another one now, which may not have what the old one had.
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            self.len.fetch_sub(shard.keys.len(), Ordering::Relaxed);
            shard.keys.clear();
            shard.order.clear();
        }
    }

    /// How many keys are remembered now.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the key's event is known to be durable.
    pub fn look(
        &self,
        source: &SourceName,
        key: &DedupeKey,
        body_mark: &BodyMark,
        received_at: Timestamp,
    ) -> Option<Found> {
        let shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        let known = shard.keys.get(key.digest()).filter(|known| known.source == *source)?;
        if let Some(max_age) = &self.max_age
            && max_age.clock.monotonic().since(known.learned) > max_age.age
        {
            return None;
        }
        if key.kind() == KeyKind::Digest {
            let apart = received_at
                .since(known.received_at)
                .max(known.received_at.since(received_at));
            if apart > self.digest_window {
                return None;
            }
        }
        Some(Found {
            receipt: Receipt::duplicate_of(known.event),
            conflict: known.body_mark != *body_mark,
        })
    }

    /// Learns what the store has committed.
    pub fn observe(&self, notice: &Notice) {
        match notice {
            Notice::Admitted {
                source,
                key,
                event,
                body_mark,
                received_at,
                admission,
                ..
            } => match admission {
                Admission::New | Admission::Revived { .. } | Admission::Held => {
                    let known = Known {
                        source: source.clone(),
                        event: *event,
                        body_mark: *body_mark,
                        received_at: *received_at,
                        learned: self
                            .max_age
                            .as_ref()
                            .map_or_else(Monotonic::default, |max_age| max_age.clock.monotonic()),
                    };
                    self.remember(key, known);
                }
                // Known already, or too old to have stayed: the next look may ask the store again.
                Admission::Duplicate { .. } | Admission::Elsewhere { .. } => {}
            },
            Notice::Died(Death { key, .. }) => {
                let mut shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
                if shard.keys.remove(key.digest()).is_some() {
                    self.len.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn remember(&self, key: &DedupeKey, known: Known) {
        let mut shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        shard.order.push_back((*key.digest(), known.event));
        if shard.keys.insert(*key.digest(), known).is_none() {
            self.len.fetch_add(1, Ordering::Relaxed);
        }
        while shard.order.len() > self.per_shard {
            let Some((digest, event)) = shard.order.pop_front() else {
                break;
            };
            // Told anew since: the younger entry in `order` stands for it.
            if shard.keys.get(&digest).is_some_and(|known| known.event == event) {
                shard.keys.remove(&digest);
                self.len.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn shard(&self, key: &DedupeKey) -> &Mutex<Shard> {
        let index = usize::from(key.digest()[31]) % SHARDS;
        // `index < SHARDS == shards.len()`
        &self.shards[index]
    }
}

/// Keys are SHA-256 digests: their first bytes are as good as any hash of them.
#[derive(Debug, Default)]
struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk::<8>() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    /// A fixed-size array hashes its length first; the digest itself follows.
    fn write_usize(&mut self, _length: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Position;

    fn key(n: u8) -> DedupeKey {
        DedupeKey::from_parts([n; 32], KeyKind::Rule)
    }

    fn event(n: i64) -> EventId {
        EventId::embedded(Timestamp::from_secs(1), Position::new(n).unwrap(), 0)
    }

    fn admitted(key: DedupeKey, event: EventId) -> Notice {
        Notice::Admitted {
            appended: event,
            claim: None,
            source: SourceName::new("s"),
            key,
            event,
            body_mark: [1; 8],
            received_at: Timestamp::from_secs(100),
            admission: Admission::New,
        }
    }

    fn look(memory: &RecentKeys, key: &DedupeKey, at: i64) -> Option<EventId> {
        memory
            .look(&SourceName::new("s"), key, &[1; 8], Timestamp::from_secs(at))
            .map(|found| found.receipt.event())
    }

    #[test]
    fn an_admitted_key_is_a_duplicate_for_its_source_only() {
        let memory = RecentKeys::new(100, Duration::from_secs(300));
        memory.observe(&admitted(key(1), event(1)));
        assert_eq!(look(&memory, &key(1), 100), Some(event(1)));
        assert_eq!(look(&memory, &key(2), 100), None);
        let other = memory.look(&SourceName::new("t"), &key(1), &[1; 8], Timestamp::from_secs(100));
        assert!(other.is_none());
    }

    #[test]
    fn another_body_under_the_same_key_is_a_conflict() {
        let memory = RecentKeys::new(100, Duration::from_secs(300));
        memory.observe(&admitted(key(1), event(1)));
        let found = memory
            .look(&SourceName::new("s"), &key(1), &[2; 8], Timestamp::from_secs(100))
            .unwrap();
        assert!(found.conflict && found.receipt.is_duplicate());
    }

    #[test]
    fn a_dead_event_is_forgotten_so_that_its_duplicate_reaches_the_store() {
        let memory = RecentKeys::new(100, Duration::from_secs(300));
        memory.observe(&admitted(key(1), event(1)));
        memory.observe(&Notice::Died(Death {
            source: SourceName::new("s"),
            key: key(1),
            event: event(1),
        }));
        assert_eq!(look(&memory, &key(1), 100), None);
    }

    #[test]
    fn a_digest_key_is_remembered_for_the_digest_window_and_no_longer() {
        let memory = RecentKeys::new(100, Duration::from_secs(300));
        let digest = DedupeKey::from_parts([7; 32], KeyKind::Digest);
        memory.observe(&admitted(digest, event(1)));
        assert_eq!(look(&memory, &digest, 400), Some(event(1)));
        assert_eq!(look(&memory, &digest, 401), None);
    }

    #[test]
    fn the_memory_is_bounded_and_the_oldest_goes_first() {
        let memory = RecentKeys::new(SHARDS * 2, Duration::from_secs(300));
        // All in one shard: the last byte chooses it.
        let in_one_shard = |n: u8| {
            let mut digest = [0; 32];
            digest[0] = n;
            DedupeKey::from_parts(digest, KeyKind::Rule)
        };
        for n in 1..=3 {
            memory.observe(&admitted(in_one_shard(n), event(i64::from(n))));
        }
        assert_eq!(look(&memory, &in_one_shard(1), 100), None);
        assert_eq!(look(&memory, &in_one_shard(2), 100), Some(event(2)));
        assert_eq!(look(&memory, &in_one_shard(3), 100), Some(event(3)));
        assert_eq!(memory.len(), 2);
    }

    #[test]
    fn on_a_shared_store_a_key_is_believed_for_seconds_only() {
        let clock = Clock::manual(Timestamp::from_secs(100));
        let memory = RecentKeys::new(100, Duration::from_secs(300)).for_seconds(Duration::from_secs(10), clock.clone());
        memory.observe(&admitted(key(1), event(1)));
        clock.set(Timestamp::from_secs(110));
        assert_eq!(look(&memory, &key(1), 110), Some(event(1)));
        clock.set(Timestamp::from_secs(111));
        assert_eq!(look(&memory, &key(1), 111), None);
        memory.observe(&admitted(key(1), event(1)));
        assert_eq!(look(&memory, &key(1), 111), Some(event(1)), "told anew");
    }

    #[test]
    fn a_cleared_memory_knows_nothing_and_learns_again() {
        let memory = RecentKeys::new(100, Duration::from_secs(300));
        memory.observe(&admitted(key(1), event(1)));
        memory.observe(&admitted(key(2), event(2)));
        memory.clear();
        assert!(memory.is_empty());
        assert_eq!(look(&memory, &key(1), 100), None);
        memory.observe(&admitted(key(1), event(3)));
        assert_eq!((look(&memory, &key(1), 100), memory.len()), (Some(event(3)), 1));
    }
}
