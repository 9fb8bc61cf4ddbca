//! When secrets were last used: kept over restarts, joined over replicas.

use std::time::Duration;

use crate::id::SourceName;
use crate::secret::Secret;
use crate::store::Store;
use crate::store::secrets::{SecretMark, SecretNote, SecretRecord};
use crate::store::tests::bench::{Bench, End};
use crate::time::Timestamp;

fn note(secret: &str, used: Option<Timestamp>, others: u64) -> SecretNote {
    let source = SourceName::new("github");
    SecretNote {
        mark: SecretMark::of(&source, &Secret::new(secret)),
        source,
        used,
        others,
    }
}

async fn record(store: &Store, secret: &str) -> Option<SecretRecord> {
    let mark = note(secret, None, 0).mark;
    let all = store.secrets().await.unwrap();
    all.into_iter().find(|record| record.mark == mark)
}

pub(in crate::store::tests) async fn when_a_secret_was_last_used_is_known_after_a_restart<B: Bench>() {
    let at = Timestamp::from_secs;
    for end in [End::Close, End::Crash] {
        let mut bench = B::new().await;
        let store = bench.open().await;
        assert_eq!(record(&store, "old").await, None);
        store
            .note_secrets(vec![note("old", Some(at(1_000)), 2), note("new", None, 3)])
            .await
            .unwrap();
        store.note_secrets(vec![note("old", None, 40)]).await.unwrap();
        bench.end(store, end).await;
        let store = bench.open().await;
        let old = record(&store, "old").await.unwrap();
        assert_eq!((old.last_used, old.others), (Some(at(1_000)), 42), "{end:?}");
        let new = record(&store, "new").await.unwrap();
        assert_eq!((new.last_used, new.others), (None, 3));
        assert_eq!(new.since, old.since);
        // Each use begins the count of the others anew; what comes late does not.
        store.note_secrets(vec![note("old", Some(at(2_000)), 1)]).await.unwrap();
        store.note_secrets(vec![note("old", Some(at(1_500)), 4)]).await.unwrap();
        let again = record(&store, "old").await.unwrap();
        assert_eq!((again.last_used, again.others), (Some(at(2_000)), 5));
        assert_eq!(again.since, old.since);
        bench.end(store, End::Close).await;
    }
}

pub(in crate::store::tests) async fn a_secret_twice_in_a_list_is_noted_once<B: Bench>() {
    let mut bench = B::new().await;
    let store = bench.open().await;
    let used = Some(Timestamp::from_secs(5));
    store
        .note_secrets(vec![note("same", None, 7), note("same", used, 0)])
        .await
        .unwrap();
    let known = record(&store, "same").await.unwrap();
    assert_eq!((known.last_used, known.others), (used, 0));
    assert_eq!(store.secrets().await.unwrap().len(), 1);
    bench.end(store, End::Close).await;
}

pub(in crate::store::tests) async fn a_secret_that_no_configuration_has_any_more_is_forgotten_in_the_end<B: Bench>() {
    let mut bench = B::new().await;
    let store = bench.open().await;
    store
        .note_secrets(vec![note("gone", None, 0), note("kept", None, 0)])
        .await
        .unwrap();
    bench.later(Duration::from_secs(399 * 86_400)).await;
    store.note_secrets(vec![note("kept", None, 0)]).await.unwrap();
    assert!(record(&store, "gone").await.is_some());
    bench.later(Duration::from_secs(2 * 86_400)).await;
    store.note_secrets(vec![note("kept", None, 0)]).await.unwrap();
    assert!(record(&store, "gone").await.is_none());
    assert!(record(&store, "kept").await.is_some());
    bench.end(store, End::Close).await;
}
