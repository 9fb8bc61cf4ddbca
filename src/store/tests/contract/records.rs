//! Records of idempotent calls: when they end, and what people see and do.

use std::time::Duration;

use super::calls::{TTL, ambiguous, answer, call, find, key, kind, start};
use crate::id::RouteName;
use crate::store::Store;
use crate::store::records::{
    CallEnd, Completed, RecordFilter, RecordKind, RecordPlace, RecordState, RecordView, Resolution, Resolved,
};
use crate::store::tests::bench::{Bench, reach};
use crate::time::Timestamp;

pub(in crate::store::tests) async fn a_record_ends_with_its_time_but_not_while_its_call_runs<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let mut short = call(bench.now(), "runs");
    short.ttl = Duration::from_secs(60);
    let runs = start(&store, short).await;
    for (id, end) in [
        ("done", CallEnd::Done(answer(b"a"))),
        ("unstored", CallEnd::Unstored),
        ("ambiguous", CallEnd::Ambiguous),
    ] {
        let mut short = call(bench.now(), id);
        short.ttl = Duration::from_secs(60);
        let begun = start(&store, short).await;
        store.complete(begun, end).await.unwrap();
        assert!(kind(&store, id).await.is_some());
    }
    bench.later(Duration::from_secs(59)).await;
    assert_eq!(kind(&store, "done").await, Some(RecordKind::Done));
    bench.later(Duration::from_secs(1)).await;
    for id in ["done", "unstored", "ambiguous"] {
        assert_eq!(kind(&store, id).await, None, "{id}");
        let again = start(&store, call(bench.now(), id)).await;
        store.complete(again, CallEnd::Done(answer(b"again"))).await.unwrap();
        let RecordState::Done(found) = store.record(&key(id)).await.unwrap().unwrap().state else {
            panic!("{id}");
        };
        assert_eq!(found.body, "again");
    }
    assert_eq!(kind(&store, "runs").await, Some(RecordKind::Running));
    assert_eq!(
        find(&store, call(bench.now(), "runs")).await.state,
        RecordState::Running
    );
    let completed = store.complete(runs, CallEnd::Done(answer(b"a"))).await.unwrap();
    assert_eq!(completed, Completed::Recorded);
    assert_eq!(kind(&store, "runs").await, None, "its time was over before it ended");
    let _again = start(&store, call(bench.now(), "runs")).await;
}

pub(in crate::store::tests) async fn expired_records_are_removed_and_the_counts_follow<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let counts = async || {
        let counts = store.record_counts().await.unwrap();
        RecordKind::ALL.map(|kind| counts.kinds[&kind])
    };
    assert_eq!(counts().await, [0, 0, 0, 0]);
    for number in 0..150 {
        let mut short = call(bench.now(), &number.to_string());
        short.ttl = Duration::from_secs(60);
        let begun = start(&store, short).await;
        let end = match number % 3 {
            0 => CallEnd::Done(answer(b"a")),
            1 => CallEnd::Unstored,
            _ => CallEnd::Ambiguous,
        };
        store.complete(begun, end).await.unwrap();
    }
    let stays = start(&store, call(bench.now(), "stays")).await;
    store.complete(stays, CallEnd::Done(answer(b"a"))).await.unwrap();
    let _runs = start(&store, call(bench.now(), "runs")).await;
    assert_eq!(counts().await, [1, 51, 50, 50]);
    bench.later(Duration::from_secs(61)).await;
    reach([1, 1, 0, 0], counts).await;
    assert_eq!(kind(&store, "stays").await, Some(RecordKind::Done));
}

pub(in crate::store::tests) async fn the_counts_are_the_same_after_a_restart<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let first = bench.now();
    for (id, end) in [
        ("a", CallEnd::Done(answer(b"a"))),
        ("b", CallEnd::Unstored),
        ("c", CallEnd::Ambiguous),
        ("d", CallEnd::Ambiguous),
    ] {
        let begun = start(&store, call(bench.now(), id)).await;
        store.complete(begun, end).await.unwrap();
        bench.later(Duration::from_secs(1)).await;
    }
    let counts = store.record_counts().await.unwrap();
    assert_eq!(RecordKind::ALL.map(|kind| counts.kinds[&kind]), [0, 1, 1, 2]);
    assert_eq!(counts.oldest_ambiguous, Some(first.after(Duration::from_secs(2))));
    store.close().await;
    assert_eq!(bench.open().await.record_counts().await.unwrap(), counts);
}

pub(in crate::store::tests) async fn a_person_resolves_what_is_ambiguous_and_nothing_else<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let answered = Resolution::Answer(answer(b"a person says so"));
    assert_eq!(
        store.resolve(key("a"), Resolution::Release).await.unwrap(),
        Resolved::Unknown
    );
    for id in ["released", "answered"] {
        ambiguous(&store, call(bench.now(), id)).await;
    }
    let resolved = store.resolve(key("released"), Resolution::Release).await.unwrap();
    assert_eq!(resolved, Resolved::Done);
    assert_eq!(kind(&store, "released").await, None);
    assert_eq!(
        store.resolve(key("answered"), answered.clone()).await.unwrap(),
        Resolved::Done
    );
    let found = find(&store, call(bench.now(), "answered")).await;
    assert_eq!(found.state, RecordState::Done(answer(b"a person says so")));
    let again = store.resolve(key("answered"), Resolution::Release).await.unwrap();
    assert_eq!(again, Resolved::NotAmbiguous(RecordKind::Done));
    let runs = start(&store, call(bench.now(), "released")).await;
    let refused = store.resolve(key("released"), answered).await.unwrap();
    assert_eq!(refused, Resolved::NotAmbiguous(RecordKind::Running));
    store.complete(runs, CallEnd::Ambiguous).await.unwrap();
    bench.later(TTL).await;
    let late = store.resolve(key("released"), Resolution::Release).await.unwrap();
    assert_eq!(late, Resolved::Unknown, "its time is over");
    let counts = store.record_counts().await.unwrap();
    assert!(counts.kinds.values().sum::<u64>() <= 2);
}

pub(in crate::store::tests) async fn records_are_filtered_and_paged_newest_first<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let all = pages(&store, &RecordFilter::default(), 10).await;
    assert_eq!(all, []);
    for number in 0..12 {
        let mut new = call(bench.now(), &number.to_string());
        if number % 2 == 1 {
            new.key.route = RouteName::new("refunds");
            new.client_key = "odd".into();
        }
        let begun = start(&store, new).await;
        let end = match number % 3 {
            0 => CallEnd::Done(answer(b"a")),
            1 => CallEnd::Unstored,
            _ => CallEnd::Ambiguous,
        };
        store.complete(begun, end).await.unwrap();
        bench.later(Duration::from_secs(1)).await;
    }
    let runs = start(&store, call(bench.now(), "runs")).await;
    for limit in [1, 4, 13, 500] {
        let all = pages(&store, &RecordFilter::default(), limit).await;
        assert_eq!(all.len(), 13);
        assert!(all.is_sorted_by(|a, b| a.accepted_at > b.accepted_at));
        for (kind, count) in [
            (RecordKind::Running, 1),
            (RecordKind::Done, 4),
            (RecordKind::Unstored, 4),
            (RecordKind::Ambiguous, 4),
        ] {
            let filter = RecordFilter {
                kind: Some(kind),
                ..RecordFilter::default()
            };
            let found = pages(&store, &filter, limit).await;
            assert_eq!(found.len(), count, "{kind:?}");
            assert!(found.iter().all(|view| view.state == kind));
            assert!(
                found
                    .iter()
                    .all(|view| view.status.is_some() == (kind == RecordKind::Done))
            );
        }
        let filter = RecordFilter {
            route: Some(RouteName::new("refunds")),
            kind: Some(RecordKind::Ambiguous),
            client_key: Some("odd".to_owned()),
        };
        let odd: Vec<Timestamp> = pages(&store, &filter, limit)
            .await
            .into_iter()
            .map(|view| view.accepted_at)
            .collect();
        assert_eq!(odd, [all[1].accepted_at, all[7].accepted_at]);
    }
    let newest = pages(&store, &RecordFilter::default(), 1).await.remove(0);
    let view = RecordView {
        key: key("runs"),
        client_key: "runs".into(),
        state: RecordKind::Running,
        status: None,
        accepted_at: bench.now(),
        expires_at: bench.now().after(TTL),
    };
    assert_eq!(newest, view);
    drop(runs);
    bench.later(TTL + Duration::from_secs(60)).await;
    reach(0, || async { pages(&store, &RecordFilter::default(), 10).await.len() }).await;
}

/// All pages of a list.
async fn pages(store: &Store, filter: &RecordFilter, limit: usize) -> Vec<RecordView> {
    let mut found = Vec::new();
    let mut after: Option<RecordPlace> = None;
    loop {
        let page = store.records(filter.clone(), after, limit).await.unwrap();
        assert!(page.records.len() <= limit);
        found.extend(page.records);
        match page.next {
            // As its text goes through a client.
            Some(next) => after = Some(next.to_string().parse().unwrap()),
            None => return found,
        }
    }
}

pub(in crate::store::tests) async fn a_start_far_from_the_newest_call_frees_no_key_until_the_clock_agreed<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let mut short = call(bench.now(), "a");
    short.ttl = Duration::from_secs(60);
    let begun = start(&store, short.clone()).await;
    store.complete(begun, CallEnd::Done(answer(b"a"))).await.unwrap();
    store.close().await;
    bench.later(TTL * 3).await;
    let store = bench.open().await;
    assert!(!store.clock_is_trusted());
    assert_eq!(kind(&store, "a").await, Some(RecordKind::Done));
    short.accepted_at = bench.now();
    assert_eq!(find(&store, short).await.kind(), RecordKind::Done);
    bench.later(Duration::from_secs(3_601)).await;
    reach(true, || async { store.clock_is_trusted() }).await;
    reach(None, || kind(&store, "a")).await;
    let _again = start(&store, call(bench.now(), "a")).await;
}
