//! Random histories of a separate store, with answers that come late, out of order or never.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use proptest::prelude::*;

use super::{separate, stranger};
use crate::id::EventId;
use crate::key::DedupeKey;
use crate::store::model::{Claim, DispatchState};
use crate::store::tests::bench::{Bench, End, all_admitted, app, append, deliver, reach, states};
use crate::store::tests::embedded::Sqlite;
use crate::store::{Claims, EventFilter, Store};

/// Keys from here on belong to another store's events.
const STRANGERS: u8 = 20;

#[derive(Clone, Debug)]
enum Step {
    Append(u8),
    /// Redis is asked about all that is handed out.
    Ask,
    /// One of its answers arrives.
    Answer(prop::sample::Index),
    /// All do.
    AnswerAll,
    /// The next question gets no answer in time.
    Unheard,
    /// Redis forgets this store's keys.
    Flush,
    Deliver,
    Restart,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..STRANGERS + 6).prop_map(Step::Append),
        5 => Just(Step::Ask),
        4 => any::<prop::sample::Index>().prop_map(Step::Answer),
        2 => Just(Step::AnswerAll),
        1 => Just(Step::Unheard),
        1 => Just(Step::Flush),
        2 => Just(Step::Deliver),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

/// Redis, as far as claims see it.
#[derive(Default)]
struct Redis {
    held: HashMap<DedupeKey, EventId>,
    unheard: bool,
}

impl Redis {
    fn claim(&mut self, key: DedupeKey, event: EventId) -> Claim {
        if std::mem::take(&mut self.unheard) && self.held.get(&key).is_none_or(|by| !is_stranger(*by)) {
            return Claim::Unheard;
        }
        match *self.held.entry(key).or_insert(event) {
            by if by == event => Claim::Ours,
            by => Claim::Held { by, dead: false },
        }
    }
}

fn is_stranger(event: EventId) -> bool {
    event == stranger(event.position().get())
}

/// Asks about what lies there; the answers are on their way.
async fn ask(claims: &mut Claims, redis: &mut Redis, answers: &mut Vec<(EventId, Claim)>, wait: Duration) -> usize {
    let mut asked = 0;
    while let Ok(Some(events)) = tokio::time::timeout(wait, claims.next()).await {
        asked += events.len();
        answers.extend(
            events
                .iter()
                .map(|event| (event.event, redis.claim(event.key, event.event))),
        );
    }
    asked
}

async fn every_event_is_admitted_once(mut bench: Sqlite, steps: Vec<Step>) {
    let mut redis = Redis::default();
    for key in STRANGERS..STRANGERS + 6 {
        redis.held.insert(bench.delivery(key).key(), stranger(key.into()));
    }
    let open = async |bench: &Sqlite| -> (Store, Claims) {
        let store = bench.open().await;
        let claims = store.claims().unwrap();
        (store, claims)
    };
    let (mut store, mut claims) = open(&bench).await;
    let mut feed = store.feed(&app()).unwrap();
    let mut answers = Vec::new();
    let mut appended: BTreeMap<String, Vec<EventId>> = BTreeMap::new();
    let mut delivered = BTreeSet::new();
    for step in steps {
        match step {
            Step::Append(key) => {
                let event = append(&store, &bench.delivery(key)).await;
                appended.entry(key.to_string()).or_default().push(event);
            }
            Step::Ask => {
                ask(&mut claims, &mut redis, &mut answers, Duration::from_millis(1)).await;
            }
            Step::Answer(which) if !answers.is_empty() => {
                let answer = answers.swap_remove(which.index(answers.len()));
                store.claimed(vec![answer]);
            }
            Step::Answer(_) => {}
            Step::AnswerAll => store.claimed(std::mem::take(&mut answers)),
            Step::Unheard => redis.unheard = true,
            Step::Flush => redis.held.retain(|_key, by| is_stranger(*by)),
            Step::Deliver => {
                if states(&store, "app").await.contains_key(&DispatchState::Leased) {
                    let event = deliver(&store, &mut feed).await.event;
                    assert!(delivered.insert(event), "delivered twice");
                }
            }
            Step::Restart | Step::Crash => {
                let crash = matches!(step, Step::Crash);
                bench.end(store, if crash { End::Crash } else { End::Close }).await;
                // What was on its way is lost with the process that asked.
                answers.clear();
                (store, claims) = open(&bench).await;
                feed = store.feed(&app()).unwrap();
            }
        }
    }
    loop {
        store.claimed(std::mem::take(&mut answers));
        if store.counts().await.unwrap().unadmitted == 0 {
            break;
        }
        ask(&mut claims, &mut redis, &mut answers, Duration::from_millis(5)).await;
    }
    all_admitted(&store).await;
    let page = store.events(EventFilter::default(), None, 500).await.unwrap();
    let mut kept: BTreeMap<String, Vec<EventId>> = BTreeMap::new();
    for event in page.events.into_iter().rev() {
        let id = event.delivery_id.unwrap();
        let of_stranger = id.parse::<u8>().unwrap() >= STRANGERS;
        assert_eq!(event.elsewhere.is_some(), of_stranger, "{id}");
        assert_eq!(event.dispatches.is_empty(), of_stranger, "{id}");
        kept.entry(id).or_default().push(event.id);
    }
    for (id, events) in &appended {
        if id.parse::<u8>().unwrap() >= STRANGERS {
            assert_eq!(kept[id], *events, "each copy is kept");
        } else {
            assert_eq!(kept[id], events[..1], "the first one is the event");
        }
    }
    assert_eq!(kept.len(), appended.len());
    let own = appended
        .keys()
        .filter(|id| id.parse::<u8>().unwrap() < STRANGERS)
        .count();
    while delivered.len() < own {
        assert!(
            delivered.insert(deliver(&store, &mut feed).await.event),
            "delivered twice"
        );
    }
    let all = u64::try_from(own).unwrap();
    reach(all, || async {
        let states = states(&store, "app").await;
        states.get(&DispatchState::Delivered).copied().unwrap_or(0)
    })
    .await;
    assert_eq!(states(&store, "app").await.values().sum::<u64>(), all);
    store.close().await;
    bench.check().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever becomes of the answers: the first event with a key of ours is the event, is delivered once, and every
    /// copy of a stranger's event is kept without being dispatched.
    #[test]
    fn any_history_of_claims_admits_each_event_once(steps in prop::collection::vec(step(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut bench = separate().await;
            bench.tuning.partition_keys = 7;
            bench.tuning.tail_events = 3;
            every_event_is_admitted_once(bench, steps).await;
        });
    }
}
