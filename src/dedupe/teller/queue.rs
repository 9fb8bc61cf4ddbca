//! What waits for being told to Redis: bounded, one telling for each key, deaths first.

use std::collections::{HashMap, VecDeque};

use crate::dedupe::protocol::Tell;
use crate::dedupe::redis::Telling;
use crate::id::SourceName;
use crate::key::DedupeKey;

type Key = (SourceName, DedupeKey);

/// See the [module's documentation](self).
#[derive(Debug)]
pub(super) struct Queue {
    bound: usize,
    entries: HashMap<Key, Entry>,
    deaths: VecDeque<(Number, Key)>,
    /// Everything but deaths.
    rest: VecDeque<(Number, Key)>,
    next: u64,
    deaths_known: usize,
}

/// Tells a telling from a later one of the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(u64);

#[derive(Debug)]
struct Entry {
    number: Number,
    telling: Telling,
}

/// What pushing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// It waits.
    Queued,
    /// What waits already says more.
    Superseded,
    /// It waits, and the oldest of the others was dropped for it.
    Overflowed,
}

impl Queue {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            bound,
            entries: HashMap::new(),
            deaths: VecDeque::new(),
            rest: VecDeque::new(),
            next: 0,
            deaths_known: 0,
        }
    }

    /// Everything that is not told yet, also what is being told.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.deaths.is_empty() || !self.rest.is_empty()
    }

    /// Deaths that are not told yet.
    pub(super) fn deaths(&self) -> usize {
        self.deaths_known
    }

    /// Whether a death of the key is not told yet: what Redis holds for it is then old.
    pub(super) fn has_death(&self, key: &Key) -> bool {
        self.deaths_known > 0 && self.entries.get(key).is_some_and(|entry| is_death(&entry.telling))
    }

    /// Adds a telling. Of two for one key the one that says more stays: dead, then instead, then durable; of equals the
    /// later one. One of another namespace says nothing any more.
    pub(super) fn push(&mut self, telling: Telling) -> Pushed {
        let key = (telling.source.clone(), telling.key);
        if let Some(held) = self.entries.get(&key)
            && held.telling.namespace == telling.namespace
            && (weight(&held.telling.tell) > weight(&telling.tell) || says_the_same(&held.telling.tell, &telling.tell))
        {
            return Pushed::Superseded;
        }
        self.remove(&key);
        let pushed = if self.entries.len() >= self.bound && self.drop_oldest() {
            Pushed::Overflowed
        } else {
            Pushed::Queued
        };
        let number = Number(self.next);
        self.next += 1;
        if is_death(&telling) {
            self.deaths_known += 1;
            self.deaths.push_back((number, key.clone()));
        } else {
            self.rest.push_back((number, key.clone()));
        }
        self.entries.insert(key, Entry { number, telling });
        pushed
    }

    /// Up to `count` tellings, deaths first, each group oldest first. They stay known until [`Queue::done`].
    pub(super) fn take(&mut self, count: usize) -> Vec<(Number, Telling)> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let Some((number, key)) = self.deaths.pop_front().or_else(|| self.rest.pop_front()) else {
                break;
            };
            // Gone or superseded meanwhile: then another place in the queue stands for the key.
            if let Some(entry) = self.entries.get(&key).filter(|entry| entry.number == number) {
                taken.push((number, entry.telling.clone()));
            }
        }
        taken
    }

    /// A taken telling needs no telling any more.
    pub(super) fn done(&mut self, number: Number, telling: &Telling) {
        let key = (telling.source.clone(), telling.key);
        if self.entries.get(&key).is_some_and(|entry| entry.number == number) {
            self.remove(&key);
        }
    }

    /// A taken telling must be told again; behind what waits by now.
    pub(super) fn again(&mut self, number: Number, telling: &Telling) {
        let key = (telling.source.clone(), telling.key);
        if self.entries.get(&key).is_some_and(|entry| entry.number == number) {
            let order = if is_death(telling) {
                &mut self.deaths
            } else {
                &mut self.rest
            };
            order.push_back((number, key));
        }
    }

    /// Drops the oldest that is no death, else the oldest death: its durable mark remembers it. Places of what is gone
    /// already are cleared on the way.
    fn drop_oldest(&mut self) -> bool {
        while let Some((number, key)) = self.rest.pop_front().or_else(|| self.deaths.pop_front()) {
            if self.entries.get(&key).is_some_and(|entry| entry.number == number) {
                self.remove(&key);
                return true;
            }
        }
        false
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key)
            && is_death(&entry.telling)
        {
            self.deaths_known -= 1;
        }
    }
}

fn is_death(telling: &Telling) -> bool {
    matches!(telling.tell, Tell::Dead { .. })
}

fn weight(tell: &Tell) -> u8 {
    match tell {
        Tell::Durable { .. } => 0,
        Tell::Instead { .. } => 1,
        Tell::Dead { .. } => 2,
    }
}

fn says_the_same(held: &Tell, new: &Tell) -> bool {
    match (held, new) {
        // `dead:` means "go to the store", whichever event it names.
        (Tell::Dead { .. }, Tell::Dead { .. }) => true,
        _ => held == new,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dedupe::settings::Namespace;
    use crate::id::{EventId, Position};
    use crate::key::KeyKind;
    use crate::time::{Monotonic, Timestamp};

    fn event(n: i64) -> EventId {
        EventId::embedded(Timestamp::from_secs(1), Position::new(n).unwrap(), 0)
    }

    fn telling(key: u8, tell: Tell) -> Telling {
        Telling {
            namespace: Namespace::new("n").unwrap(),
            source: SourceName::new("s"),
            key: DedupeKey::from_parts([key; 32], KeyKind::Rule),
            tell,
            since: Monotonic::default(),
        }
    }

    fn durable(n: i64) -> Tell {
        Tell::Durable {
            event: event(n),
            body_mark: [0; 8],
        }
    }

    fn dead(n: i64) -> Tell {
        Tell::Dead { event: event(n) }
    }

    fn tells(taken: &[(Number, Telling)]) -> Vec<Tell> {
        taken.iter().map(|(_, telling)| telling.tell).collect()
    }

    #[test]
    fn a_death_replaces_a_queued_durable_and_goes_first() {
        let mut queue = Queue::new(10);
        queue.push(telling(1, durable(1)));
        queue.push(telling(2, durable(2)));
        assert_eq!(queue.push(telling(2, dead(2))), Pushed::Queued);
        assert_eq!(queue.push(telling(2, durable(2))), Pushed::Superseded);
        assert_eq!((queue.len(), queue.deaths()), (2, 1));
        assert_eq!(tells(&queue.take(10)), [dead(2), durable(1)]);
        assert!(!queue.has_waiting());
    }

    #[test]
    fn a_death_is_known_until_it_is_told() {
        let mut queue = Queue::new(10);
        let key = (SourceName::new("s"), DedupeKey::from_parts([1; 32], KeyKind::Rule));
        queue.push(telling(1, dead(1)));
        let taken = queue.take(10);
        assert!(queue.has_death(&key), "it is being told");
        let (number, taken) = &taken[0];
        queue.again(*number, taken);
        let taken = queue.take(10);
        assert_eq!(tells(&taken), [dead(1)]);
        queue.done(taken[0].0, &taken[0].1);
        assert!(!queue.has_death(&key));
        assert_eq!((queue.len(), queue.deaths()), (0, 0));
    }

    #[test]
    fn what_was_superseded_while_it_was_told_neither_ends_nor_repeats_the_later_one() {
        let mut queue = Queue::new(10);
        queue.push(telling(1, durable(1)));
        let old = queue.take(1);
        queue.push(telling(1, dead(1)));
        queue.done(old[0].0, &old[0].1);
        queue.again(old[0].0, &old[0].1);
        assert_eq!(tells(&queue.take(10)), [dead(1)]);
    }

    #[test]
    fn instead_is_not_replaced_by_durable() {
        let mut queue = Queue::new(10);
        let instead = Tell::Instead {
            of: event(1),
            event: event(2),
            body_mark: [0; 8],
        };
        queue.push(telling(1, instead));
        assert_eq!(queue.push(telling(1, durable(2))), Pushed::Superseded);
        assert_eq!(tells(&queue.take(10)), [instead]);
    }

    #[test]
    fn another_namespace_takes_the_place_of_the_old_one_s() {
        let mut queue = Queue::new(10);
        queue.push(telling(1, dead(1)));
        let other = Telling {
            namespace: Namespace::new("other").unwrap(),
            ..telling(1, durable(2))
        };
        assert_eq!(queue.push(other), Pushed::Queued);
        assert_eq!(tells(&queue.take(10)), [durable(2)]);
    }

    #[test]
    fn the_queue_is_bounded_and_the_oldest_durable_goes_first() {
        let mut queue = Queue::new(3);
        queue.push(telling(1, dead(1)));
        queue.push(telling(2, durable(2)));
        queue.push(telling(3, durable(3)));
        assert_eq!(queue.push(telling(4, durable(4))), Pushed::Overflowed);
        assert_eq!(queue.push(telling(5, dead(5))), Pushed::Overflowed);
        assert_eq!(queue.len(), 3);
        assert_eq!(tells(&queue.take(10)), [dead(1), dead(5), durable(4)]);
        let mut deaths = Queue::new(1);
        deaths.push(telling(1, dead(1)));
        assert_eq!(deaths.push(telling(2, dead(2))), Pushed::Overflowed);
        assert_eq!((deaths.len(), deaths.deaths()), (1, 1));
    }
}
