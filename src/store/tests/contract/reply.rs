//! Events whose sender waits for the upstream's answer: asking for their dispatch, and what is kept of the answer.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::id::{EventId, SourceName};
use crate::store::Store;
use crate::store::model::{DispatchState, Finished, LeasedDispatch, Next, Notice, Settled};
use crate::store::reply::{Found, Reply, Unattempted, Want};
use crate::store::tests::bench::{
    Bench, Delivery, End, LAPSED, SharedBench, all_admitted, app, append, finished, next, reach, states,
};

/// Longer than leases of a dead process last.
const PATIENCE: Duration = Duration::from_secs(60);

async fn bench<B: Bench>() -> B {
    let mut bench = B::new().await;
    let source = SourceName::new("github");
    bench.setup_mut().settings.synchronous.insert(source, PATIENCE);
    bench
}

async fn ask(store: &Store, delivery: &Delivery, event: EventId) -> Found {
    store.lease_now(want(delivery, event)).await.unwrap()
}

fn want(delivery: &Delivery, event: EventId) -> Want {
    Want {
        event,
        source: SourceName::new("github"),
        key: delivery.key(),
        received_at: delivery.received_at,
        upstream: app(),
        take: true,
    }
}

/// Appends and asks, as a request does.
async fn request(store: &Store, delivery: &Delivery) -> Found {
    let event = append(store, delivery).await;
    ask(store, delivery, event).await
}

/// Asks without wanting it.
async fn look(store: &Store, delivery: &Delivery) -> Found {
    let event = append(store, delivery).await;
    let want = Want {
        take: false,
        ..want(delivery, event)
    };
    store.lease_now(want).await.unwrap()
}

async fn leased(store: &Store, delivery: &Delivery) -> LeasedDispatch {
    match request(store, delivery).await {
        Found::Leased(lease) => lease,
        other => panic!("{other:?}"),
    }
}

fn reply(status: u16) -> Reply {
    let mut headers = HeaderMap::new();
    headers.append("content-type", HeaderValue::from_static("text/xml"));
    headers.append("x-note", HeaderValue::from_bytes(b"\xff").unwrap());
    Reply {
        status: StatusCode::from_u16(status).unwrap(),
        headers,
        body: Some(Bytes::from_static(b"<Response/>\0\xff")),
    }
}

fn replied(lease: LeasedDispatch, reply: Reply) -> Finished {
    Finished {
        reply: Some(reply),
        ..finished(lease, 200)
    }
}

async fn only(store: &Store, state: DispatchState) {
    reach(HashMap::from([(state, 1)]), || states(store, "app")).await;
}

/// Nothing is handed to the lane.
async fn lane_has_nothing(store: &Store) {
    let mut feed = store.feed(&app()).unwrap();
    let handed = tokio::time::timeout(Duration::from_millis(300), feed.next()).await;
    assert!(handed.is_err(), "{handed:?}");
}

pub(in crate::store::tests) async fn a_waited_for_dispatch_is_its_askers_and_its_answer_every_duplicates<B: Bench>() {
    let mut bench = bench::<B>().await;
    let store = bench.open().await;
    assert!(matches!(look(&store, &bench.delivery("a")).await, Found::Waiting));
    let lease = leased(&store, &bench.delivery("a")).await;
    let event = lease.event.id;
    assert!(matches!(
        look(&store, &bench.delivery("a")).await,
        Found::Running { .. }
    ));
    assert_eq!((lease.attempt, lease.attempts_on_clock, lease.replay), (1, 1, false));
    assert!(store.holds(&lease));
    assert!(matches!(
        request(&store, &bench.delivery("a")).await,
        Found::Running { .. }
    ));
    lane_has_nothing(&store).await;
    let kept = Reply {
        body: None,
        ..reply(307)
    };
    for (lease, reply) in [(lease, reply(200)), (leased(&store, &bench.delivery("b")).await, kept)] {
        let delivery = bench.delivery(lease.event.delivery_id.as_deref().unwrap());
        let settled = store
            .settle(replied(lease, reply.clone()), Next::Delivered)
            .await
            .unwrap();
        assert_eq!(settled, Settled::Recorded);
        assert!(matches!(request(&store, &delivery).await, Found::Replied(found) if found == reply));
    }
    // A person's replay takes no answer back.
    store.replay(event, None).await.unwrap();
    assert!(matches!(request(&store, &bench.delivery("a")).await, Found::Replied(_)));
    let mut feed = store.feed(&app()).unwrap();
    let lease = next(&mut feed).await;
    assert_eq!((lease.attempt, lease.replay), (2, true));
    store.settle(finished(lease, 410), Next::Dead).await.unwrap();
    assert!(matches!(request(&store, &bench.delivery("a")).await, Found::Replied(_)));
    bench.end(store, End::Close).await;
    for how in [End::Crash, End::Close] {
        let again = bench.open().await;
        assert!(matches!(request(&again, &bench.delivery("a")).await, Found::Replied(found) if found == reply(200)));
        assert!(matches!(
            ask(&again, &bench.delivery("a"), event).await,
            Found::Replied(_)
        ));
        bench.end(again, how).await;
    }
}

pub(in crate::store::tests) async fn a_failed_attempt_leaves_the_next_to_a_duplicate_and_then_to_the_lane<B: Bench>() {
    let bench = bench::<B>().await;
    let store = bench.open().await;
    let due = bench.now().after(PATIENCE);
    for attempt in 1..=2 {
        let lease = leased(&store, &bench.delivery("a")).await;
        assert_eq!(lease.attempt, attempt);
        // What a refusal said is not kept.
        let failed = Finished {
            reply: Some(reply(200)),
            ..finished(lease, 500)
        };
        store.settle(failed, Next::Retry { due }).await.unwrap();
    }
    lane_has_nothing(&store).await;
    bench.later(PATIENCE).await;
    let mut feed = store.feed(&app()).unwrap();
    let lease = next(&mut feed).await;
    assert_eq!((lease.attempt, lease.attempts_on_clock), (3, 3));
    store.settle(finished(lease, 200), Next::Delivered).await.unwrap();
    let over = request(&store, &bench.delivery("a")).await;
    assert!(matches!(over, Found::Over(Some(DispatchState::Delivered))), "{over:?}");
}

pub(in crate::store::tests) async fn what_nobody_asked_for_in_time_is_handed_to_the_lane<B: Bench>() {
    let mut bench = bench::<B>().await;
    let store = bench.open().await;
    append(&store, &bench.delivery("a")).await;
    all_admitted(&store).await;
    lane_has_nothing(&store).await;
    bench.end(store, End::Close).await;
    let store = bench.open().await;
    lane_has_nothing(&store).await;
    bench.later(PATIENCE).await;
    let mut feed = store.feed(&app()).unwrap();
    assert_eq!(next(&mut feed).await.attempt, 1);
}

pub(in crate::store::tests) async fn what_lies_ready_for_the_lane_is_taken_for_a_sender_that_comes_late<B: Bench>() {
    let bench = bench::<B>().await;
    let store = bench.open().await;
    let event = append(&store, &bench.delivery("a")).await;
    append(&store, &bench.delivery("b")).await;
    all_admitted(&store).await;
    assert!(store.take_ready(&app(), event).is_none());
    bench.later(PATIENCE).await;
    reach(HashMap::from([(DispatchState::Leased, 2)]), || states(&store, "app")).await;
    let Found::Running { event: meant } = request(&store, &bench.delivery("a")).await else {
        panic!("the lane has it");
    };
    assert_eq!(meant, event);
    let lease = store.take_ready(&app(), event).unwrap();
    assert_eq!((lease.event.id, lease.attempt), (event, 1));
    let mut feed = store.feed(&app()).unwrap();
    assert_ne!(next(&mut feed).await.event.id, event, "the other one");
    store.settle(replied(lease, reply(200)), Next::Delivered).await.unwrap();
    assert!(matches!(request(&store, &bench.delivery("a")).await, Found::Replied(_)));
}

pub(in crate::store::tests) async fn a_lease_that_is_declined_was_no_attempt<B: Bench>() {
    let bench = bench::<B>().await;
    let store = bench.open().await;
    let due = bench.now().after(PATIENCE);
    let lease = leased(&store, &bench.delivery("a")).await;
    let event = lease.event.id;
    let declined = store.decline(lease, Unattempted::Later { due }).await.unwrap();
    assert_eq!(declined, Settled::Recorded);
    only(&store, DispatchState::Pending).await;
    lane_has_nothing(&store).await;
    let lease = leased(&store, &bench.delivery("a")).await;
    assert_eq!(lease.attempt, 1, "its number was not used");
    bench.forget_notices();
    assert_eq!(
        store.decline(lease, Unattempted::Dead).await.unwrap(),
        Settled::Recorded
    );
    only(&store, DispatchState::Dead).await;
    let unseen = store
        .lease_now(Want {
            take: false,
            ..want(&bench.delivery("a"), event)
        })
        .await;
    assert!(matches!(unseen.unwrap(), Found::Waiting));
    only(&store, DispatchState::Dead).await;
    let died = |notice: &Notice| matches!(notice, Notice::Died(death) if death.event == event);
    assert!(bench.setup().notices.lock().unwrap().iter().any(died));
    let lease = leased(&store, &bench.delivery("a")).await;
    assert_eq!(
        (lease.attempt, lease.attempts_on_clock),
        (1, 1),
        "revived for its duplicate"
    );
    store.discard(event, None).await.unwrap();
    let lost = store.decline(lease, Unattempted::Dead).await.unwrap();
    assert_eq!(lost, Settled::LeaseLost);
    let over = request(&store, &bench.delivery("a")).await;
    assert!(matches!(over, Found::Over(Some(DispatchState::Discarded))), "{over:?}");
}

pub(in crate::store::tests) async fn a_duplicate_of_a_dead_one_asks_for_it_and_the_lane_does_not_get_it<B: Bench>() {
    let bench = bench::<B>().await;
    let store = bench.open().await;
    let lease = leased(&store, &bench.delivery("a")).await;
    let event = lease.event.id;
    store.settle(finished(lease, 410), Next::Dead).await.unwrap();
    append(&store, &bench.delivery("a")).await;
    all_admitted(&store).await;
    only(&store, DispatchState::Pending).await;
    lane_has_nothing(&store).await;
    // Whoever asks for a dead one that nothing has revived has it too.
    let lease = leased(&store, &bench.delivery("a")).await;
    store.settle(finished(lease, 410), Next::Dead).await.unwrap();
    let Found::Leased(lease) = ask(&store, &bench.delivery("a"), event).await else {
        panic!("it was dead");
    };
    assert_eq!((lease.attempt, lease.attempts_on_clock), (3, 1));
}

pub(in crate::store::tests) async fn a_crash_in_an_attempt_leaves_the_next_to_a_duplicate<B: Bench>() {
    let mut bench = bench::<B>().await;
    let store = bench.open().await;
    leased(&store, &bench.delivery("a")).await.forget();
    bench.end(store, End::Crash).await;
    let store = bench.open().await;
    let lease = leased(&store, &bench.delivery("a")).await;
    assert_eq!(lease.attempt, 2, "the first may have begun");
}

pub(in crate::store::tests) async fn an_answer_goes_with_its_event<B: Bench>() {
    let mut bench = bench::<B>().await;
    bench.setup_mut().settings.retention = Duration::from_secs(3600);
    let store = bench.open().await;
    let lease = leased(&store, &bench.delivery("a")).await;
    let event = lease.event.id;
    store.settle(replied(lease, reply(200)), Next::Delivered).await.unwrap();
    bench.later(Duration::from_secs(3700)).await;
    append(&store, &bench.delivery("b")).await;
    reach(true, || async { store.event(event).await.unwrap().is_none() }).await;
    // The key is remembered for longer: it is known to be over. On Postgres the answer goes a moment after its event.
    let delivery = bench.delivery("a");
    reach(true, || async {
        matches!(request(&store, &delivery).await, Found::Over(None))
    })
    .await;
}

pub(in crate::store::tests) async fn of_many_askers_at_two_handles_one_has_it<B: SharedBench>() {
    let bench = bench::<B>().await;
    let (one, two) = (bench.open().await, bench.open().await);
    for round in 0..5 {
        let delivery = bench.delivery(round);
        let asks = [&one, &two]
            .repeat(10)
            .into_iter()
            .map(|store| request(store, &delivery));
        let mut leases = Vec::new();
        for ask in futures_in_order(asks).await {
            match ask {
                Found::Leased(lease) => leases.push(lease),
                Found::Running { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(leases.len(), 1, "round {round}");
        let lease = leases.remove(0);
        let settled = one.settle(replied(lease, reply(200)), Next::Delivered).await.unwrap();
        // Only its own handle knows the lease.
        if settled == Settled::Recorded {
            assert!(matches!(request(&two, &delivery).await, Found::Replied(_)));
        }
    }
}

pub(in crate::store::tests) async fn what_a_vanished_handle_attempted_is_taken_over_by_who_asks<B: SharedBench>() {
    let mut bench = bench::<B>().await;
    let (one, two) = (bench.open().await, bench.open().await);
    leased(&one, &bench.delivery("a")).await.forget();
    bench.crash(one).await;
    assert!(matches!(
        request(&two, &bench.delivery("a")).await,
        Found::Running { .. }
    ));
    bench.later(LAPSED).await;
    assert!(matches!(look(&two, &bench.delivery("a")).await, Found::Waiting));
    assert_eq!(leased(&two, &bench.delivery("a")).await.attempt, 2);
}

async fn futures_in_order<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = futures.map(Box::pin).collect();
    let mut done: Vec<Option<T>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut all = true;
        for (future, done) in waiting.iter_mut().zip(&mut done) {
            if done.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *done = Some(value),
                    std::task::Poll::Pending => all = false,
                }
            }
        }
        if all {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    done.into_iter().flatten().collect()
}
