//! The embedded store answers as the reference does, whatever happens.
//!
//! A history is played on both. After each step everything that is due is taken from the feed and held, so that what is
//! leased does not depend on when who looked. What is compared has no ids in it, but the order in which events came.

mod records;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::bench::{Bench, End, all_admitted, app, finished, next, reach, states};
use super::embedded::Sqlite;
use super::memory::Memory;
use crate::id::EventId;
use crate::key::KeyKind;
use crate::store::model::{Admission, DispatchState, LeasedDispatch, Next};
use crate::store::{EventFilter, Store};

#[derive(Clone, Debug)]
enum Step {
    Append {
        key: u8,
        digest: bool,
        other_bytes: bool,
        content: bool,
    },
    Settle(prop::sample::Index, u8),
    GiveBack(prop::sample::Index),
    Replay(prop::sample::Index),
    Discard(prop::sample::Index),
    Later(u16),
    Restart,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let event = any::<prop::sample::Index>;
    let append = (
        0..20_u8,
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
    );
    prop_oneof![
        12 => append.prop_map(|(key, digest, other_bytes, content)| Step::Append { key, digest, other_bytes, content }),
        9 => (event(), 0..4_u8).prop_map(|(which, how)| Step::Settle(which, how)),
        1 => event().prop_map(Step::GiveBack),
        2 => event().prop_map(Step::Replay),
        1 => event().prop_map(Step::Discard),
        3 => (1..400_u16).prop_map(Step::Later),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

/// What a history looks like from outside.
#[derive(Debug, Default, PartialEq, Eq)]
struct Transcript(Vec<String>);

impl Transcript {
    fn note(&mut self, what: &impl Debug) {
        self.0.push(format!("{what:?}"));
    }
}

async fn play<B: Bench>(mut bench: B, steps: &[Step]) -> Transcript {
    let mut transcript = Transcript::default();
    let mut store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    // In the order in which they were appended, duplicates too.
    let mut events: Vec<EventId> = Vec::new();
    let mut held: BTreeMap<usize, LeasedDispatch> = BTreeMap::new();
    for step in steps {
        let place = |events: &[EventId], event: EventId| events.iter().position(|held| *held == event);
        match step {
            Step::Append {
                key,
                digest,
                other_bytes,
                content,
            } => {
                let mut delivery = bench.delivery(key);
                if *digest {
                    delivery.kind = KeyKind::Digest;
                }
                if *other_bytes {
                    delivery.body = Bytes::from_static(b"other");
                }
                delivery.content = *content;
                bench.forget_notices();
                events.push(super::bench::append(&store, &delivery).await);
                all_admitted(&store).await;
                let admission = bench.admissions()[0];
                let of = match admission {
                    Admission::Duplicate { of, .. } | Admission::Revived { of } => place(&events, of),
                    _ => None,
                };
                transcript.note(&(of, std::mem::discriminant(&admission)));
                transcript.note(&matches!(admission, Admission::Duplicate { conflict: true, .. }));
            }
            Step::Settle(which, how) if !held.is_empty() => {
                let number = *held.keys().nth(which.index(held.len())).unwrap();
                let lease = held.remove(&number).unwrap();
                let becomes = match how {
                    0 => Next::Dead,
                    1 => Next::Retry {
                        due: bench.now().after(Duration::from_secs(90)),
                    },
                    _ => Next::Delivered,
                };
                let settled = store.settle(finished(lease, 200), becomes).await.unwrap();
                transcript.note(&(number, settled));
            }
            Step::GiveBack(which) if !held.is_empty() => {
                let number = *held.keys().nth(which.index(held.len())).unwrap();
                let lease = held.remove(&number).unwrap();
                if store.holds(&lease) {
                    drop(lease);
                    // Leased again as the next attempt, like all else that is due.
                    let again = next(&mut feed).await;
                    assert_eq!(place(&events, again.event.id), Some(number));
                    held.insert(number, again);
                }
            }
            Step::Replay(which) if !events.is_empty() => {
                let number = which.index(events.len());
                transcript.note(&store.replay(events[number], None).await.unwrap());
            }
            Step::Discard(which) if !events.is_empty() => {
                let number = which.index(events.len());
                transcript.note(&store.discard(events[number], None).await.unwrap());
            }
            Step::Later(seconds) => bench.later(Duration::from_secs((*seconds).into())).await,
            Step::Restart | Step::Crash => {
                let end = if matches!(step, Step::Crash) {
                    End::Crash
                } else {
                    End::Close
                };
                // A close waits for nobody: these attempts have begun.
                for (_number, lease) in std::mem::take(&mut held) {
                    lease.forget();
                }
                bench.end(store, end).await;
                // Neither waits for leases of the process that is gone.
                bench.later(super::bench::LAPSED).await;
                store = bench.open().await;
                feed = store.feed(&app()).unwrap();
            }
            _ => {}
        }
        take_all(&store, &bench, &mut feed, &mut held, &events, &mut transcript).await;
    }
    transcript
}

/// Takes what is due, and notes how everything stands.
async fn take_all<B: Bench>(
    store: &Store,
    bench: &B,
    feed: &mut crate::store::Feed,
    held: &mut BTreeMap<usize, LeasedDispatch>,
    events: &[EventId],
    transcript: &mut Transcript,
) {
    // The list is read from the data and the counts are told by who writes it, a moment later.
    let agreed = async || {
        let page = store.events(EventFilter::default(), None, 500).await.unwrap();
        let mut listed = HashMap::new();
        for dispatch in page.events.iter().flat_map(|event| &event.dispatches) {
            if dispatch.due.is_some_and(|due| due <= bench.now()) {
                return false;
            }
            *listed.entry(dispatch.state).or_default() += 1;
        }
        listed == states(store, "app").await
    };
    reach(true, agreed).await;
    held.retain(|_number, lease| store.holds(lease));
    let leased = states(store, "app")
        .await
        .get(&DispatchState::Leased)
        .copied()
        .unwrap_or(0);
    while held.len() < usize::try_from(leased).unwrap() {
        let lease = next(feed).await;
        let number = events.iter().position(|event| *event == lease.event.id).unwrap();
        transcript.note(&(number, lease.attempt, lease.attempts_on_clock, lease.replay));
        assert!(held.insert(number, lease).is_none(), "leased twice");
    }
    let states: BTreeMap<DispatchState, u64> = states(store, "app").await.into_iter().collect();
    transcript.note(&states);
    let page = store.events(EventFilter::default(), None, 500).await.unwrap();
    let places: HashMap<EventId, usize> = events.iter().enumerate().map(|(at, event)| (*event, at)).collect();
    for event in page.events {
        let dispatch = &event.dispatches[0];
        transcript.note(&(places[&event.id], dispatch.state, dispatch.attempts, dispatch.replay));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn the_embedded_store_answers_as_the_reference_does(steps in prop::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut sqlite = Sqlite::new().await;
            sqlite.tuning.partition_keys = 7;
            sqlite.tuning.tail_events = 3;
            let embedded = play(sqlite, &steps).await;
            let reference = play(Memory::new().await, &steps).await;
            assert_eq!(embedded, reference);
        });
    }
}
