//! The embedded store keeps records of calls as the reference does, whatever happens.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use crate::store::Store;
use crate::store::records::{Begun, Call, CallEnd, Fingerprint, NewCall, RecordFilter, RecordView, Resolution};
use crate::store::tests::bench::{Bench, End, LAPSED, reach};
use crate::store::tests::contract::calls::{answer, call, key, kind};
use crate::store::tests::embedded::Sqlite;
use crate::store::tests::memory::Memory;

#[derive(Clone, Debug)]
enum Step {
    Begin {
        key: u8,
        other_request: bool,
        after_ambiguous: bool,
        minutes: u16,
    },
    Complete(u8, u8),
    Drop(u8),
    Resolve(u8, bool),
    Later(u16),
    Restart,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..6_u8;
    let begin = (key(), prop::bool::weighted(0.2), any::<bool>(), 1..60_u16);
    prop_oneof![
        12 => begin.prop_map(|(key, other_request, after_ambiguous, minutes)| Step::Begin { key, other_request, after_ambiguous, minutes }),
        8 => (key(), 0..4_u8).prop_map(|(key, how)| Step::Complete(key, how)),
        2 => key().prop_map(Step::Drop),
        3 => (key(), any::<bool>()).prop_map(|(key, release)| Step::Resolve(key, release)),
        3 => (1..20_u16).prop_map(Step::Later),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

async fn play<B: Bench>(mut bench: B, steps: &[Step]) -> Vec<String> {
    let mut transcript = Vec::new();
    let mut store = bench.open().await;
    let mut running: BTreeMap<u8, Call> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Begin {
                key,
                other_request,
                after_ambiguous,
                minutes,
            } => {
                let new = NewCall {
                    fingerprint: Fingerprint([u8::from(*other_request); 32]),
                    ttl: Duration::from_secs(60 * u64::from(*minutes)),
                    after_ambiguous: *after_ambiguous,
                    ..call(bench.now(), &key.to_string())
                };
                match store.begin(new).await.unwrap() {
                    Begun::Started(call) => {
                        transcript.push(format!("{key} started"));
                        assert!(running.insert(*key, call).is_none(), "two calls for {key}");
                    }
                    Begun::Found(found) => transcript.push(format!("{found:?}")),
                }
            }
            Step::Complete(key, how) => {
                if let Some(call) = running.remove(key) {
                    let end = match how {
                        0 => CallEnd::Done(answer(b"a")),
                        1 => CallEnd::Unstored,
                        2 => CallEnd::Ambiguous,
                        _ => CallEnd::Released,
                    };
                    transcript.push(format!("{:?}", store.complete(call, end).await.unwrap()));
                }
            }
            Step::Drop(number) => {
                if let Some(call) = running.remove(number) {
                    let left = call.expires_at() <= bench.now();
                    drop(call);
                    let id = number.to_string();
                    reach(true, || async {
                        let found = kind(&store, &id).await;
                        found == (!left).then_some(crate::store::records::RecordKind::Ambiguous)
                    })
                    .await;
                }
            }
            Step::Resolve(number, release) => {
                let resolution = if *release {
                    Resolution::Release
                } else {
                    Resolution::Answer(answer(b"told"))
                };
                let resolved = store.resolve(key(&number.to_string()), resolution).await.unwrap();
                transcript.push(format!("{resolved:?}"));
            }
            Step::Later(minutes) => bench.later(Duration::from_secs(60 * u64::from(*minutes))).await,
            Step::Restart | Step::Crash => {
                let end = if matches!(step, Step::Crash) {
                    End::Crash
                } else {
                    End::Close
                };
                bench.end(store, end).await;
                // The same time passes either way.
                if end == End::Close {
                    bench.later(LAPSED).await;
                }
                running.clear();
                store = bench.open().await;
            }
        }
        transcript.push(format!("{:?}", all(&store).await));
    }
    store.close().await;
    bench.check().await;
    transcript
}

async fn all(store: &Store) -> Vec<RecordView> {
    let mut all = store.records(RecordFilter::default(), None, 500).await.unwrap().records;
    all.sort_by_key(|view| view.key.digest);
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn the_embedded_store_keeps_records_as_the_reference_does(steps in prop::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let embedded = play(Sqlite::new().await, &steps).await;
            let reference = play(Memory::new().await, &steps).await;
            assert_eq!(embedded, reference);
        });
    }
}
