//! Random histories, with restarts and crashes in them.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::id::EventId;
use crate::store::EventFilter;
use crate::store::model::{DispatchState, Next};
use crate::store::tests::bench::{Bench, End, all_admitted, app, append, finished, next, states};

/// One step of a random history.
#[derive(Clone, Debug)]
pub(in crate::store::tests) enum Step {
    Append(u8),
    Deliver,
    Fail,
    Die,
    Restart,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..120_u8).prop_map(Step::Append),
        6 => Just(Step::Deliver),
        2 => Just(Step::Fail),
        2 => Just(Step::Die),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

/// Histories of up to `longest` steps.
pub(in crate::store::tests) fn steps(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..longest)
}

/// One history per run; a backend whose opening is cheap tries many, see `embedded`.
pub(in crate::store::tests) async fn a_long_history_keeps_one_event_per_key_and_delivers_each<B: Bench>() {
    let mut runner = TestRunner::default();
    let steps = prop::collection::vec(step(), 80..150)
        .new_tree(&mut runner)
        .unwrap()
        .current();
    println!("{steps:?}");
    keeps_one_event_per_key_and_delivers_each(B::new().await, steps).await;
}

/// Any history: one event per key, no event delivered twice, numbers that only rise.
pub(in crate::store::tests) async fn keeps_one_event_per_key_and_delivers_each<B: Bench>(
    mut bench: B,
    steps: Vec<Step>,
) {
    let mut store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    let mut known: HashMap<u8, BTreeSet<EventId>> = HashMap::new();
    let mut numbers: HashMap<EventId, u32> = HashMap::new();
    let mut delivered: BTreeSet<EventId> = BTreeSet::new();
    for step in steps {
        match step {
            Step::Append(key) => {
                append(&store, &bench.delivery(key)).await;
                known.entry(key).or_default();
            }
            Step::Deliver | Step::Fail | Step::Die => {
                all_admitted(&store).await;
                let open = states(&store, "app").await;
                let open = |state| open.get(&state).copied().unwrap_or(0);
                if open(DispatchState::Pending) + open(DispatchState::Leased) == 0 {
                    continue;
                }
                let lease = next(&mut feed).await;
                let last = numbers.insert(lease.event.id, lease.attempt).unwrap_or(0);
                assert!(lease.attempt > last, "numbers only rise");
                let key: u8 = lease.event.delivery_id.as_deref().unwrap().parse().unwrap();
                known.get_mut(&key).unwrap().insert(lease.event.id);
                let (status, next) = match step {
                    Step::Deliver => (200, Next::Delivered),
                    Step::Fail => (500, Next::Retry { due: bench.now() }),
                    _ => (410, Next::Dead),
                };
                if next == Next::Delivered {
                    assert!(delivered.insert(lease.event.id), "delivered twice without a crash");
                }
                store.settle(finished(lease, status), next).await.unwrap();
            }
            Step::Restart | Step::Crash => {
                let end = if matches!(step, Step::Crash) {
                    End::Crash
                } else {
                    End::Close
                };
                bench.end(store, end).await;
                store = bench.open().await;
                feed = store.feed(&app()).unwrap();
            }
        }
    }
    all_admitted(&store).await;
    store.close().await;
    bench.check().await;
    let store = bench.open().await;
    states(&store, "app").await;
    let page = store.events(EventFilter::default(), None, 500).await.unwrap();
    let mut keys = BTreeSet::new();
    for event in &page.events {
        assert!(keys.insert(event.delivery_id.clone()), "one event per key");
    }
    assert_eq!(keys.len(), known.len());
    for ids in known.values() {
        assert!(ids.len() <= 1);
    }
}
