//! Another configuration while the store is open.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::id::{SourceName, UpstreamName};
use crate::store::model::{Admission, DispatchState, LaneSave, Next, Settled};
use crate::store::reply::{Found, Unattempted, Want};
use crate::store::settings::Live;
use crate::store::tests::bench::{
    Bench, Delivery, End, all_admitted, app, append, deliver, finished, next, reach, states,
};
use crate::store::{Store, StoreError};

fn other() -> UpstreamName {
    UpstreamName::new("other")
}

/// The bench's configuration, with these upstreams from now on.
async fn have<B: Bench>(bench: &mut B, store: &Store, upstreams: &[UpstreamName]) {
    bench.setup_mut().upstreams = upstreams.to_vec();
    store.reconfigure(live(bench)).await.unwrap();
    let mut names = upstreams.to_vec();
    names.sort_unstable();
    assert_eq!(store.upstreams(), names);
}

fn live<B: Bench>(bench: &B) -> Live {
    bench.setup().settings.live(bench.setup().lanes())
}

/// Waits until the upstream's dispatches are in these states; the counters balance all the while.
async fn hold(store: &Store, upstream: &str, wanted: &[(DispatchState, u64)]) {
    let wanted: HashMap<_, _> = wanted.iter().copied().collect();
    reach(wanted, || states(store, upstream)).await;
}

fn want(delivery: &Delivery, event: crate::id::EventId) -> Want {
    Want {
        event,
        source: SourceName::new("github"),
        key: delivery.key(),
        received_at: delivery.received_at,
        upstream: app(),
        take: true,
    }
}

pub(in crate::store::tests) async fn an_upstream_that_is_removed_holds_its_dispatches_and_goes_on_when_it_is_back<
    B: Bench,
>() {
    let mut bench = B::new().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    let mut ids = Vec::new();
    for id in 0..6 {
        ids.push(append(&store, &bench.delivery(id)).await);
    }
    let (running, failing) = (next(&mut feed).await, next(&mut feed).await);
    reach(true, || async { feed.has_ready() }).await;

    have(&mut bench, &store, &[other()]).await;
    assert!(store.feed(&app()).is_none());
    assert!(feed.next().await.is_none(), "its feed has ended");
    hold(&store, "app", &[(DispatchState::Held, 4), (DispatchState::Leased, 2)]).await;
    let more = bench.delivery("more");
    ids.push(append(&store, &more).await);
    hold(&store, "app", &[(DispatchState::Held, 5), (DispatchState::Leased, 2)]).await;
    assert!(matches!(
        store.replay(ids[2], Some(vec![app()])).await,
        Err(StoreError::UnknownUpstream(_))
    ));
    assert!(matches!(
        store.lease_now(want(&more, ids[6])).await,
        Err(StoreError::UnknownUpstream(_))
    ));
    // What runs ends as ever.
    assert!(store.holds(&running));
    let settled = store.settle(finished(running, 200), Next::Delivered).await;
    assert_eq!(settled.unwrap(), Settled::Recorded);
    let due = bench.now();
    let settled = store.settle(finished(failing, 500), Next::Retry { due }).await;
    assert_eq!(settled.unwrap(), Settled::Recorded);
    hold(
        &store,
        "app",
        &[(DispatchState::Held, 6), (DispatchState::Delivered, 1)],
    )
    .await;

    have(&mut bench, &store, &[app(), other()]).await;
    let mut feed = store.feed(&app()).unwrap();
    let mut seen = HashMap::new();
    for _ in 0..6 {
        let found = deliver(&store, &mut feed).await;
        assert!(seen.insert(found.event, found.attempt).is_none(), "each once");
    }
    let expected: HashMap<_, _> = ids[1..].iter().map(|id| (*id, 1 + u32::from(*id == ids[1]))).collect();
    assert_eq!(seen, expected, "what lay ready was no attempt");
    hold(&store, "app", &[(DispatchState::Delivered, 7)]).await;
    append(&store, &bench.delivery("new")).await;
    deliver(&store, &mut feed).await;
    store.close().await;
    bench.check().await;
    let store = bench.open().await;
    hold(&store, "app", &[(DispatchState::Delivered, 8)]).await;
}

pub(in crate::store::tests) async fn an_upstream_that_is_added_gets_what_was_held_for_it<B: Bench>() {
    for end in [End::Close, End::Crash] {
        let mut bench = B::new().await;
        let store = bench.open().await;
        let mut feed = store.feed(&app()).unwrap();
        let to_both = |bench: &B, id: &str| {
            let mut delivery = bench.delivery(id);
            delivery.upstreams = Arc::from([other(), app()]);
            delivery
        };
        let early = append(&store, &to_both(&bench, "early")).await;
        all_admitted(&store).await;
        hold(&store, "other", &[(DispatchState::Held, 1)]).await;
        have(&mut bench, &store, &[app(), other()]).await;
        let mut others = store.feed(&other()).unwrap();
        assert_eq!(deliver(&store, &mut others).await.event, early);
        let late = append(&store, &to_both(&bench, "late")).await;
        assert_eq!(deliver(&store, &mut others).await.event, late);
        // The other lane was not touched.
        deliver(&store, &mut feed).await;
        let unsettled = next(&mut feed).await;
        hold(&store, "other", &[(DispatchState::Delivered, 2)]).await;
        drop(unsettled);
        bench.end(store, end).await;
        let store = bench.open().await;
        hold(&store, "other", &[(DispatchState::Delivered, 2)]).await;
        let mut feed = store.feed(&app()).unwrap();
        assert_eq!(deliver(&store, &mut feed).await.event, late);
        store.close().await;
        bench.check().await;
    }
}

pub(in crate::store::tests) async fn an_upstream_that_comes_back_is_as_paused_as_it_was<B: Bench>() {
    let mut bench = B::new().await;
    let store = bench.open().await;
    let save = |order| LaneSave {
        order,
        stopped_total: Duration::from_secs(5),
    };
    store.save_lane_record(app(), save(Some(true))).await.unwrap();
    have(&mut bench, &store, &[other()]).await;
    let saved = store.save_lane_record(app(), save(None)).await.unwrap();
    assert!(saved.paused, "the last word of a lane that ends is heard");
    have(&mut bench, &store, &[app()]).await;
    let record = store.lane_record(&app());
    assert_eq!((record.paused, record.stopped_total), (true, Duration::from_secs(5)));
}

pub(in crate::store::tests) async fn the_same_configuration_again_changes_nothing<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    for round in 0..5 {
        let id = append(&store, &bench.delivery(round)).await;
        reach(true, || async { feed.has_ready() }).await;
        store.reconfigure(live(&bench)).await.unwrap();
        assert_eq!(deliver(&store, &mut feed).await.event, id, "the same feed goes on");
    }
}

pub(in crate::store::tests) async fn which_senders_wait_follows_the_configuration<B: Bench>() {
    let mut bench = B::new().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    append(&store, &bench.delivery("before")).await;
    deliver(&store, &mut feed).await;

    let source = SourceName::new("github");
    let patience = Duration::from_secs(60);
    bench.setup_mut().settings.synchronous.insert(source.clone(), patience);
    store.reconfigure(live(&bench)).await.unwrap();
    let waits = bench.delivery("waits");
    let event = append(&store, &waits).await;
    let Found::Leased(lease) = store.lease_now(want(&waits, event)).await.unwrap() else {
        panic!("the lane got it");
    };
    let then = Unattempted::Later {
        due: bench.now().after(patience),
    };
    assert_eq!(store.decline(lease, then).await.unwrap(), Settled::Recorded);

    bench.setup_mut().settings.synchronous.clear();
    store.reconfigure(live(&bench)).await.unwrap();
    let after = append(&store, &bench.delivery("after")).await;
    assert_eq!(deliver(&store, &mut feed).await.event, after);
    bench.later(patience * 2).await;
    append(&store, &bench.delivery("wakes the writer")).await;
    let seen = [deliver(&store, &mut feed).await, deliver(&store, &mut feed).await];
    assert!(seen.iter().any(|seen| seen.event == event), "{seen:?}");
}

pub(in crate::store::tests) async fn keys_last_as_long_as_the_window_that_holds_now<B: Bench>() {
    let mut bench = B::new().await;
    let window = Duration::from_secs(3600);
    bench.setup_mut().settings.window = window;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    for id in 0..100 {
        append(&store, &bench.delivery(id)).await;
        deliver(&store, &mut feed).await;
    }
    bench.setup_mut().settings.window = window * 3;
    store.reconfigure(live(&bench)).await.unwrap();
    bench.later(window * 2).await;
    append(&store, &bench.delivery("wakes the writer")).await;
    all_admitted(&store).await;
    bench.forget_notices();
    append(&store, &bench.delivery(1)).await;
    all_admitted(&store).await;
    assert!(matches!(bench.admissions()[..], [Admission::Duplicate { .. }]));

    bench.setup_mut().settings.window = window;
    store.reconfigure(live(&bench)).await.unwrap();
    append(&store, &bench.delivery("wakes the writer again")).await;
    all_admitted(&store).await;
    bench.keys_are_pruned(&store).await;
    bench.forget_notices();
    append(&store, &bench.delivery(1)).await;
    all_admitted(&store).await;
    assert!(
        matches!(bench.admissions()[..], [Admission::New]),
        "{:?}",
        bench.admissions()
    );
}

pub(in crate::store::tests) async fn upstreams_that_come_and_go_lose_and_double_nothing<B: Bench>() {
    let mut bench = B::new().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app());
    let mut delivered = HashMap::new();
    let mut appended = Vec::new();
    for round in 0..12 {
        for copy in 0..3 {
            appended.push(append(&store, &bench.delivery(format!("{round}-{copy}"))).await);
        }
        if let Some(feed) = &mut feed {
            for _ in 0..round % 3 {
                let seen = deliver(&store, feed).await;
                assert!(delivered.insert(seen.event, seen.attempt).is_none());
            }
        }
        let upstreams = if round % 2 == 0 { [other()] } else { [app()] };
        have(&mut bench, &store, &upstreams).await;
        feed = store.feed(&app());
    }
    let mut feed = feed.unwrap();
    while delivered.len() < appended.len() {
        let seen = deliver(&store, &mut feed).await;
        assert!(delivered.insert(seen.event, seen.attempt).is_none());
    }
    assert!(delivered.values().all(|attempt| *attempt == 1), "{delivered:?}");
    assert!(appended.iter().all(|event| delivered.contains_key(event)));
    store.close().await;
    bench.check().await;
}
