//! What replicas on one store may rely on: two handles that know nothing of each other.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::store::model::{Admission, DispatchState, LaneSave, Next, Settled};
use crate::store::tests::bench::{
    LAPSED, Seen, SharedBench, all_admitted, app, append, deliver, finished, next, reach, states,
};
use crate::store::{Discarded, Replayed};

pub(in crate::store::tests) async fn concurrent_duplicates_over_two_handles_make_one_event<B: SharedBench>() {
    let bench = B::new().await;
    let (one, two) = (bench.open().await, bench.open().await);
    for round in 0..10 {
        bench.forget_notices();
        let same = bench.delivery(round);
        let appends: Vec<_> = [&one, &two]
            .repeat(25)
            .into_iter()
            .map(|store| store.append(same.event()))
            .collect();
        for append in appends {
            append.await.unwrap();
        }
        all_admitted(&one).await;
        all_admitted(&two).await;
        let admissions = bench.admissions();
        assert_eq!(admissions.len(), 50);
        let new = admissions.iter().filter(|admission| **admission == Admission::New);
        assert_eq!(new.count(), 1, "round {round}: {admissions:?}");
    }
    reach(10, || async { states(&one, "app").await.values().sum::<u64>() }).await;
}

pub(in crate::store::tests) async fn what_one_handle_leased_is_not_given_to_the_other<B: SharedBench>() {
    let bench = B::new().await;
    let (one, two) = (bench.open().await, bench.open().await);
    let mut ids = BTreeSet::new();
    for id in 0..40 {
        let store = if id % 4 == 0 { &two } else { &one };
        ids.insert(append(store, &bench.delivery(id)).await);
    }
    let (mut feed_one, mut feed_two) = (one.feed(&app()).unwrap(), two.feed(&app()).unwrap());
    let mut seen = BTreeSet::new();
    while seen.len() < 40 {
        let (store, lease) = tokio::select! {
            lease = next(&mut feed_one) => (&one, lease),
            lease = next(&mut feed_two) => (&two, lease),
        };
        assert_eq!(lease.attempt, 1);
        assert!(seen.insert(lease.event.id), "handed out twice");
        let settled = store.settle(finished(lease, 200), Next::Delivered).await.unwrap();
        assert_eq!(settled, Settled::Recorded);
    }
    assert_eq!(seen, ids);
    reach(HashMap::from([(DispatchState::Delivered, 40)]), || states(&two, "app")).await;
    let more = async { tokio::join!(feed_one.next(), feed_two.next()) };
    assert!(tokio::time::timeout(Duration::from_millis(300), more).await.is_err());
}

pub(in crate::store::tests) async fn what_a_vanished_handle_had_leased_is_taken_over<B: SharedBench>() {
    let mut bench = B::new().await;
    let (one, two) = (bench.open().await, bench.open().await);
    let mut feed_one = one.feed(&app()).unwrap();
    let mut ids = BTreeSet::new();
    for id in 0..10 {
        ids.insert(append(&one, &bench.delivery(id)).await);
    }
    // One that is being attempted, and nine that lie ready.
    next(&mut feed_one).await.forget();
    bench.crash(one).await;
    let mut feed_two = two.feed(&app()).unwrap();
    assert!(
        tokio::time::timeout(Duration::from_millis(300), feed_two.next())
            .await
            .is_err(),
        "before they have lapsed"
    );
    bench.later(LAPSED).await;
    let mut seen = BTreeSet::new();
    for _ in 0..10 {
        let again = deliver(&two, &mut feed_two).await;
        assert_eq!(again.attempt, 2, "an attempt may have begun");
        seen.insert(again.event);
    }
    assert_eq!(seen, ids);
    reach(HashMap::from([(DispatchState::Delivered, 10)]), || states(&two, "app")).await;
}

pub(in crate::store::tests) async fn a_lease_that_lapsed_and_was_taken_over_cannot_settle<B: SharedBench>() {
    let bench = B::new().await;
    let (one, two) = (bench.open().await, bench.open().await);
    let (mut feed_one, mut feed_two) = (one.feed(&app()).unwrap(), two.feed(&app()).unwrap());
    let id = append(&one, &bench.delivery("a")).await;
    let lost = next(&mut feed_one).await;
    bench.freeze(&one).await;
    bench.later(LAPSED).await;
    let taken = next(&mut feed_two).await;
    assert_eq!((taken.event.id, taken.attempt), (id, 2));
    let settled = one.settle(finished(lost, 410), Next::Dead).await.unwrap();
    assert_eq!(settled, Settled::LeaseLost);
    reach(HashMap::from([(DispatchState::Leased, 1)]), || states(&two, "app")).await;
    let settled = two.settle(finished(taken, 200), Next::Delivered).await.unwrap();
    assert_eq!(settled, Settled::Recorded);
}

pub(in crate::store::tests) async fn what_another_handle_discarded_cannot_settle<B: SharedBench>() {
    let bench = B::new().await;
    let (one, two) = (bench.open().await, bench.open().await);
    let mut feed = one.feed(&app()).unwrap();
    let id = append(&one, &bench.delivery("a")).await;
    let lease = next(&mut feed).await;
    let discarded = two.discard(id, None).await.unwrap();
    assert_eq!(discarded, Discarded::Discarded { upstreams: vec![app()] });
    let settled = one.settle(finished(lease, 200), Next::Delivered).await.unwrap();
    assert_eq!(settled, Settled::LeaseLost);
    reach(HashMap::from([(DispatchState::Discarded, 1)]), || states(&one, "app")).await;
}

pub(in crate::store::tests) async fn a_pause_is_seen_by_the_other_handle<B: SharedBench>() {
    let bench = B::new().await;
    let (one, two) = (bench.open().await, bench.open().await);
    for paused in [true, false] {
        let save = LaneSave {
            order: Some(paused),
            stopped_total: Duration::ZERO,
        };
        let record = one.save_lane_record(app(), save).await.unwrap();
        reach(record, || async { two.lane_record(&app()) }).await;
        // The other handle's own news do not undo it.
        let own = LaneSave {
            order: None,
            stopped_total: Duration::from_secs(1),
        };
        let found = two.save_lane_record(app(), own).await.unwrap();
        assert_eq!((found.paused, found.orders), (record.paused, record.orders));
    }
}

pub(in crate::store::tests) async fn a_duplicate_at_one_handle_revives_what_died_at_the_other<B: SharedBench>() {
    let bench = B::new().await;
    let (one, two) = (bench.open().await, bench.open().await);
    let (mut feed_one, mut feed_two) = (one.feed(&app()).unwrap(), two.feed(&app()).unwrap());
    let id = append(&one, &bench.delivery("a")).await;
    for round in 1..=3 {
        let (died_at, other, lease) = tokio::select! {
            lease = next(&mut feed_one) => (&one, &two, lease),
            lease = next(&mut feed_two) => (&two, &one, lease),
        };
        assert_eq!((lease.event.id, lease.attempt, lease.attempts_on_clock), (id, round, 1));
        died_at.settle(finished(lease, 410), Next::Dead).await.unwrap();
        bench.forget_notices();
        append(other, &bench.delivery("a")).await;
        all_admitted(other).await;
        assert_eq!(bench.admissions(), [Admission::Revived { of: id }], "round {round}");
    }
}

pub(in crate::store::tests) async fn a_replay_at_one_handle_is_sent_once<B: SharedBench>() {
    let bench = B::new().await;
    let (one, two) = (bench.open().await, bench.open().await);
    let (mut feed_one, mut feed_two) = (one.feed(&app()).unwrap(), two.feed(&app()).unwrap());
    let id = append(&one, &bench.delivery("a")).await;
    deliver(&one, &mut feed_one).await;
    let replayed = two.replay(id, None).await.unwrap();
    assert_eq!(
        replayed,
        Replayed::Pending {
            upstreams: vec![app()],
            busy: vec![]
        }
    );
    let (store, lease) = tokio::select! {
        lease = next(&mut feed_one) => (&one, lease),
        lease = next(&mut feed_two) => (&two, lease),
    };
    let seen = Seen {
        event: lease.event.id,
        attempt: lease.attempt,
        replay: lease.replay,
    };
    let wanted = Seen {
        event: id,
        attempt: 2,
        replay: true,
    };
    assert_eq!(seen, wanted);
    store.settle(finished(lease, 200), Next::Delivered).await.unwrap();
    reach(HashMap::from([(DispatchState::Delivered, 1)]), || states(&one, "app")).await;
}

pub(in crate::store::tests) async fn a_handle_that_closes_leaves_its_work_to_the_other<B: SharedBench>() {
    let bench = B::new().await;
    let (one, two) = (bench.open().await, bench.open().await);
    let mut ids = BTreeSet::new();
    for id in 0..10 {
        ids.insert(append(&one, &bench.delivery(id)).await);
    }
    all_admitted(&one).await;
    one.close().await;
    // At once: nothing has to lapse.
    let mut feed = two.feed(&app()).unwrap();
    let mut seen = BTreeSet::new();
    for _ in 0..10 {
        let first = deliver(&two, &mut feed).await;
        assert_eq!(first.attempt, 1, "unused numbers are given back");
        seen.insert(first.event);
    }
    assert_eq!(seen, ids);
}
