//! Every state that can be reached, breadth first; and a long random walk.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::world::{Action, Rules, Violation, World};

/// What a search has found.
#[derive(Debug)]
pub(crate) struct Found {
    /// Different states seen.
    pub(crate) states: usize,
    /// The first broken promise with the shortest way to it.
    pub(crate) broken: Option<(Violation, Vec<Action>)>,
}

/// All interleavings of everything that may happen under `rules`.
pub(crate) fn breadth_first(rules: &Rules) -> Found {
    let start = World::new(rules);
    let mut seen = HashSet::from([fingerprint(&start)]);
    // How each state was reached, so that the way to a broken promise can be told.
    let mut ways: Vec<(usize, Option<Action>)> = vec![(0, None)];
    let mut waiting = VecDeque::from([(0, start)]);
    while let Some((at, world)) = waiting.pop_front() {
        for action in world.actions(rules) {
            let next = world.after(rules, action);
            if !seen.insert(fingerprint(&next)) {
                continue;
            }
            ways.push((at, Some(action)));
            if let Some(violation) = next.violation(rules) {
                return Found {
                    states: seen.len(),
                    broken: Some((violation, way(&ways, ways.len() - 1))),
                };
            }
            waiting.push_back((ways.len() - 1, next));
        }
    }
    Found {
        states: seen.len(),
        broken: None,
    }
}

/// `walks` runs of random steps, each to its end.
pub(crate) fn random_walks(rules: &Rules, seed: u64, walks: usize) -> Found {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut states = 0;
    for _ in 0..walks {
        let mut world = World::new(rules);
        let mut way = Vec::new();
        while let Some(action) = world.actions(rules).choose(&mut dice).copied() {
            world = world.after(rules, action);
            way.push(action);
            states += 1;
            if let Some(violation) = world.violation(rules) {
                return Found {
                    states,
                    broken: Some((violation, way)),
                };
            }
        }
    }
    Found { states, broken: None }
}

fn way(ways: &[(usize, Option<Action>)], mut at: usize) -> Vec<Action> {
    let mut way = Vec::new();
    while let (before, Some(action)) = ways[at] {
        way.push(action);
        at = before;
    }
    way.reverse();
    way
}

/// 128 bits: two states with one fingerprint are less likely than a fault of the machine.
fn fingerprint(world: &World) -> u128 {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        world.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}
