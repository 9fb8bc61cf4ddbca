//! Leases and settling (P7 to P9).

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::store::Discarded;
use crate::store::model::{Admission, DispatchState, Next, Notice, Settled};
use crate::store::tests::bench::{Bench, End, all_admitted, app, append, deliver, finished, next, states};

pub(in crate::store::tests) async fn a_crash_repeats_attempts_under_new_numbers_and_loses_none<B: Bench>() {
    let mut bench = B::new().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    for id in 0..20 {
        append(&store, &bench.delivery(id)).await;
    }
    all_admitted(&store).await;
    let done = deliver(&store, &mut feed).await;
    let running = next(&mut feed).await;
    let running_event = running.event.id;
    // It dies with its process.
    running.forget();
    bench.end(store, End::Crash).await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    let mut seen = BTreeSet::new();
    for _ in 0..19 {
        let again = deliver(&store, &mut feed).await;
        assert_eq!(again.attempt, 2);
        seen.insert(again.event);
    }
    assert!(seen.contains(&running_event) && !seen.contains(&done.event));
    assert_eq!(
        states(&store, "app").await,
        HashMap::from([(DispatchState::Delivered, 20)])
    );
}

pub(in crate::store::tests) async fn a_close_hands_unused_leases_back_with_their_numbers<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    for id in 0..3 {
        append(&store, &bench.delivery(id)).await;
    }
    all_admitted(&store).await;
    let dropped = next(&mut feed).await;
    let first = dropped.event.id;
    drop(dropped);
    store.close().await;
    assert!(feed.next().await.is_none());
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    let seen = deliver(&store, &mut feed).await;
    assert_eq!(
        (seen.event, seen.attempt),
        (first, 2),
        "the number of a dropped lease stays used"
    );
    assert_eq!(deliver(&store, &mut feed).await.attempt, 1);
}

pub(in crate::store::tests) async fn a_lease_that_is_dropped_comes_back<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    append(&store, &bench.delivery("a")).await;
    drop(next(&mut feed).await);
    let again = next(&mut feed).await;
    assert_eq!((again.attempt, again.attempts_on_clock), (2, 1));
}

pub(in crate::store::tests) async fn a_lost_lease_cannot_settle<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    let id = append(&store, &bench.delivery("a")).await;
    let lease = next(&mut feed).await;
    assert!(store.holds(&lease));
    let discarded = store.discard(id, None).await.unwrap();
    assert_eq!(discarded, Discarded::Discarded { upstreams: vec![app()] });
    assert!(!store.holds(&lease));
    let settled = store.settle(finished(lease, 200), Next::Delivered).await.unwrap();
    assert_eq!(settled, Settled::LeaseLost);
    assert_eq!(
        states(&store, "app").await,
        HashMap::from([(DispatchState::Discarded, 1)])
    );
    append(&store, &bench.delivery("a")).await;
    all_admitted(&store).await;
    assert!(
        matches!(bench.admissions().last(), Some(Admission::Duplicate { .. })),
        "not revived"
    );
}

pub(in crate::store::tests) async fn a_retry_waits_for_its_time_and_keeps_its_attempts<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    let id = append(&store, &bench.delivery("a")).await;
    let due = bench.now().after(Duration::from_secs(60));
    let lease = next(&mut feed).await;
    store.settle(finished(lease, 500), Next::Retry { due }).await.unwrap();
    append(&store, &bench.delivery("b")).await;
    assert_eq!(
        deliver(&store, &mut feed).await.attempt,
        1,
        "a newer event is not held up"
    );
    assert!(
        tokio::time::timeout(Duration::from_millis(300), feed.next())
            .await
            .is_err()
    );
    bench.later(Duration::from_secs(60)).await;
    let lease = next(&mut feed).await;
    assert_eq!((lease.event.id, lease.attempt, lease.attempts_on_clock), (id, 2, 2));
    store.settle(finished(lease, 200), Next::Delivered).await.unwrap();
    let detail = store.event(id).await.unwrap().unwrap();
    let numbers: Vec<u32> = detail.dispatches[0].1.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, 2]);
}

pub(in crate::store::tests) async fn the_duplicate_of_a_dead_dispatch_revives_it<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    let id = append(&store, &bench.delivery("a")).await;
    let lease = next(&mut feed).await;
    store.settle(finished(lease, 410), Next::Dead).await.unwrap();
    assert!(
        bench
            .setup()
            .notices
            .lock()
            .unwrap()
            .iter()
            .any(|notice| matches!(notice, Notice::Died(death) if death.event == id))
    );
    bench.later(Duration::from_secs(5)).await;
    let before = bench.now();
    append(&store, &bench.delivery("a")).await;
    let lease = next(&mut feed).await;
    assert_eq!(
        (lease.event.id, lease.attempt, lease.attempts_on_clock, lease.replay),
        (id, 2, 1, false)
    );
    assert!((before..=bench.now()).contains(&lease.clock_started_at));
    assert_eq!(bench.admissions(), [Admission::New, Admission::Revived { of: id }]);
}

pub(in crate::store::tests) async fn a_backlog_is_handed_out_in_order_and_through_a_bounded_window<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let mut ids = Vec::new();
    for id in 0..700 {
        ids.push(append(&store, &bench.delivery(id)).await);
    }
    all_admitted(&store).await;
    let leased = states(&store, "app").await[&DispatchState::Leased];
    assert!(leased <= 256, "{leased} in the window");
    let mut feed = store.feed(&app()).unwrap();
    for id in ids {
        let seen = deliver(&store, &mut feed).await;
        assert_eq!((seen.event, seen.attempt), (id, 1));
    }
    assert_eq!(
        states(&store, "app").await,
        HashMap::from([(DispatchState::Delivered, 700)])
    );
    store.close().await;
    bench.check().await;
}
