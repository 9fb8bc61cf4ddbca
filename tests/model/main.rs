//! The model check of the dedupe protocol: two nodes, every interleaving, every fault, on the production step function.
//!
//! Faults: a crash between any two steps; a Redis command that times out without effect, with its effect, or with its
//! effect later; Redis losing everything; a store that fails; a commit whose outcome nobody heard. A slow node is any
//! interleaving. `HOOKSLUICE_LONG=1` searches deeper, `HOOKSLUICE_SEED` repeats a random walk.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at the first surprise and says what it does"
)]

mod search;
mod world;

use hooksluice::dedupe::protocol::{Arrangement, OnDown};

use crate::search::{breadth_first, random_walks};
use crate::world::{Action, Order, Rules, Violation};

const SHARED: Rules = Rules {
    arrangement: Arrangement::Shared,
    order: Order::Ours,
    requests: 3,
    faults: 2,
    deaths: 1,
    flush: true,
    patience: false,
    granted: &[],
};

const fn separate(on_down: OnDown) -> Rules {
    Rules {
        arrangement: Arrangement::Separate(on_down),
        flush: false,
        ..SHARED
    }
}

/// Deeper where there is time.
fn deeper(rules: Rules) -> Rules {
    if std::env::var_os("HOOKSLUICE_LONG").is_none() {
        return rules;
    }
    Rules {
        faults: rules.faults + 1,
        deaths: rules.deaths + 1,
        ..rules
    }
}

#[track_caller]
fn holds(name: &str, rules: Rules) {
    let rules = deeper(rules);
    let found = breadth_first(&rules);
    println!(
        "{name}: {} states, {} requests, {} faults, {} deaths",
        found.states, rules.requests, rules.faults, rules.deaths
    );
    if let Some((violation, way)) = found.broken {
        panic!("{name}: {violation:?} after {way:#?}");
    }
    assert!(found.states > 10_000, "{name}: hardly anything was searched");
}

#[track_caller]
fn breaks(name: &str, rules: Rules, wanted: Violation) -> Vec<Action> {
    let found = breadth_first(&rules);
    let (violation, way) = found.broken.unwrap_or_else(|| panic!("{name}: nothing was found"));
    println!("{name}: {violation:?} found after {} states: {way:?}", found.states);
    assert_eq!(violation, wanted, "{name}: {way:#?}");
    way
}

#[test]
fn one_store_keeps_every_promise_under_every_fault() {
    holds("shared store", SHARED);
}

#[test]
fn separate_stores_that_refuse_keep_every_promise_while_redis_keeps_what_it_was_told() {
    let rules = Rules {
        patience: true,
        ..separate(OnDown::Refuse)
    };
    holds("separate stores, on_down = refuse", rules);
}

#[test]
fn separate_stores_that_go_on_keep_every_promise_while_redis_answers_in_time() {
    holds("separate stores, on_down = store", separate(OnDown::Store));
}

#[test]
fn separate_stores_lose_nothing_when_redis_forgets_but_may_double() {
    for on_down in [OnDown::Refuse, OnDown::Store] {
        let rules = Rules {
            flush: true,
            ..separate(on_down)
        };
        let way = breaks("separate stores, Redis flushed", rules, Violation::Doubled);
        assert!(way.contains(&Action::Flush), "{way:#?}");
    }
    // What `"store"` may do includes all that `"refuse"` may.
    let else_nothing = Rules {
        flush: true,
        patience: true,
        granted: &[Violation::Doubled],
        ..separate(OnDown::Store)
    };
    holds("separate stores, Redis flushed, but for doubles", else_nothing);
}

#[test]
fn separate_stores_that_go_on_without_redis_may_double() {
    let rules = Rules {
        patience: true,
        ..separate(OnDown::Store)
    };
    let way = breaks("separate stores, Redis away", rules, Violation::Doubled);
    let over = |action: &Action| matches!(action, Action::PatienceOver { .. });
    assert!(way.iter().any(over), "{way:#?}");
}

#[test]
fn marking_before_storing_is_found_to_lose_an_event() {
    let rules = Rules {
        order: Order::MarkThenStore,
        ..SHARED
    };
    breaks("mark, then store, then 200", rules, Violation::Lost);
}

#[test]
fn telling_redis_before_the_commit_is_found_to_make_a_false_duplicate() {
    let rules = Rules {
        order: Order::TellThenStore,
        ..SHARED
    };
    breaks("tell Redis before the commit", rules, Violation::FalseDuplicate);
}

#[test]
fn long_random_walks_keep_every_promise() {
    let seed = match std::env::var("HOOKSLUICE_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => rand::random(),
    };
    let long = std::env::var_os("HOOKSLUICE_LONG").is_some();
    let walks = if long { 400_000 } else { 20_000 };
    println!("HOOKSLUICE_SEED={seed}");
    let further = |rules: Rules| Rules {
        requests: 6,
        faults: 6,
        deaths: 3,
        ..rules
    };
    let refuse = Rules {
        patience: true,
        ..separate(OnDown::Refuse)
    };
    for (name, rules) in [
        ("shared store", SHARED),
        ("separate stores, on_down = refuse", refuse),
        ("separate stores, on_down = store", separate(OnDown::Store)),
    ] {
        let found = random_walks(&further(rules), seed, walks);
        println!("{name}: {} random steps", found.states);
        if let Some((violation, way)) = found.broken {
            panic!("{name}: {violation:?} with HOOKSLUICE_SEED={seed} after {way:#?}");
        }
    }
}

/// Redis forgets, a claim arrives late and the reply of another is lost: two stores must not wait for each other.
#[test]
fn three_faults_at_once_lose_nothing_on_separate_stores() {
    let rules = Rules {
        requests: 2,
        faults: 3,
        deaths: 0,
        flush: true,
        granted: &[Violation::Doubled],
        ..separate(OnDown::Refuse)
    };
    holds("separate stores, two requests, three faults", rules);
}
