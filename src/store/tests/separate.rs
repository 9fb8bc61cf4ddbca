//! A separate store: what was appended waits for its claim. The claims here are made by hand.

mod history;

use std::collections::HashMap;
use std::time::Duration;

use super::bench::{Bench, End, all_admitted, app, append, deliver, finished, next, reach, states};
use super::embedded::Sqlite;
use crate::id::{EventId, Position};
use crate::key::KeyKind;
use crate::store::model::{Admission, AppendError, Claim, DispatchState, Next, Notice, Unclaimed};
use crate::store::{Claims, EventFilter, Replayed, Store};
use crate::time::Timestamp;

async fn separate() -> Sqlite {
    let mut bench = Sqlite::new().await;
    bench.place.separate = true;
    bench.setup.settings.keep_deaths = true;
    bench
}

async fn slice(claims: &mut Claims) -> Vec<Unclaimed> {
    let slice = tokio::time::timeout(super::bench::DEADLINE, claims.next()).await;
    slice.unwrap().unwrap()
}

/// The next `count` events, however they are sliced.
async fn handed_out(claims: &mut Claims, count: usize) -> Vec<Unclaimed> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(slice(claims).await);
    }
    assert_eq!(events.len(), count);
    events
}

async fn nothing_is_handed_out(claims: &mut Claims) {
    let more = tokio::time::timeout(Duration::from_millis(200), claims.next()).await;
    assert!(more.is_err(), "{more:?}");
}

fn all(events: &[Unclaimed], claim: Claim) -> Vec<(EventId, Claim)> {
    events.iter().map(|event| (event.event, claim)).collect()
}

/// An event of another replica's store.
fn stranger(number: i64) -> EventId {
    EventId::embedded(
        Timestamp::from_secs(1_800_000_000),
        Position::new(number).unwrap(),
        0xdead_beef,
    )
}

async fn shown_elsewhere(store: &Store, event: EventId) -> Option<EventId> {
    let detail = store.event(event).await.unwrap().unwrap();
    let page = store.events(EventFilter::default(), None, 500).await.unwrap();
    let listed = page.events.iter().find(|listed| listed.id == event).unwrap();
    assert_eq!(detail.elsewhere, listed.elsewhere);
    detail.elsewhere
}

#[tokio::test]
async fn nothing_is_admitted_before_its_claim_and_everything_in_order() {
    let bench = separate().await;
    let store = bench.open().await;
    let mut claims = store.claims().unwrap();
    assert!(store.claims().is_none(), "once");
    let mut feed = store.feed(&app()).unwrap();
    let mut ids = Vec::new();
    for id in 0..10 {
        ids.push(append(&store, &bench.delivery(id)).await);
    }
    let events = handed_out(&mut claims, 10).await;
    assert_eq!(events.iter().map(|event| event.event).collect::<Vec<_>>(), ids);
    let first = bench.delivery(0);
    assert_eq!(events[0].key, first.key());
    assert_eq!(events[0].body_mark, first.event().body_mark);
    assert_eq!(events[0].received_at, first.received_at);
    // All but the first: it holds up the others.
    store.claimed(all(&events[1..], Claim::Ours));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(bench.admissions().is_empty());
    assert_eq!(store.counts().await.unwrap().unadmitted, 10);
    store.claimed(all(&events[..1], Claim::Ours));
    all_admitted(&store).await;
    for id in ids {
        assert_eq!(deliver(&store, &mut feed).await.event, id);
    }
    nothing_is_handed_out(&mut claims).await;
    store.close().await;
    assert!(claims.next().await.is_none());
    bench.check().await;
}

#[tokio::test]
async fn an_event_does_not_wait_for_a_later_one_of_its_own_store() {
    let bench = separate().await;
    let store = bench.open().await;
    let mut claims = store.claims().unwrap();
    let first = append(&store, &bench.delivery("same")).await;
    let second = append(&store, &bench.delivery("same")).await;
    handed_out(&mut claims, 2).await;
    // The answer for the first was lost, Redis forgot it and took the second.
    let held = Claim::Held {
        by: second,
        dead: false,
    };
    store.claimed(vec![(first, held), (second, Claim::Ours)]);
    all_admitted(&store).await;
    assert_eq!(
        bench.admissions(),
        [
            Admission::New,
            Admission::Duplicate {
                of: first,
                conflict: false
            }
        ]
    );
    assert_eq!(shown_elsewhere(&store, first).await, None);
    store.close().await;
    bench.check().await;
}

#[tokio::test]
async fn the_own_store_decides_first_and_the_claim_between_stores() {
    let bench = separate().await;
    let store = bench.open().await;
    let mut claims = store.claims().unwrap();
    let by = stranger(4);
    let mut claim = async |id: &str, kind: KeyKind, claim: Claim| {
        let mut delivery = bench.delivery(id);
        delivery.kind = kind;
        let event = append(&store, &delivery).await;
        let events = handed_out(&mut claims, 1).await;
        store.claimed(all(&events, claim));
        all_admitted(&store).await;
        let notices = bench.setup.notices.lock().unwrap();
        let Some(Notice::Admitted {
            appended,
            claim: told,
            admission,
            event: survivor,
            body_mark,
            ..
        }) = notices.last().cloned()
        else {
            panic!("{notices:?}");
        };
        assert_eq!((appended, told), (event, Some(claim)));
        assert_eq!(body_mark, events[0].body_mark);
        (event, admission, survivor)
    };
    let held = Claim::Held { by, dead: false };
    let (a, admission, survivor) = claim("a", KeyKind::Rule, Claim::Ours).await;
    assert_eq!((admission, survivor), (Admission::New, a));
    // What is here is here, whatever Redis says.
    for says in [held, Claim::Ours, Claim::Unheard, Claim::Held { by: a, dead: true }] {
        let (_copy, admission, survivor) = claim("a", KeyKind::Rule, says).await;
        let duplicate = Admission::Duplicate { of: a, conflict: false };
        assert_eq!((admission, survivor), (duplicate, a));
    }
    for dead in [false, true] {
        let (copy, admission, survivor) = claim("b", KeyKind::Rule, Claim::Held { by, dead }).await;
        assert_eq!((admission, survivor), (Admission::Elsewhere { of: by, dead }, by));
        assert_eq!(shown_elsewhere(&store, copy).await, Some(by));
    }
    // Its key did not become ours.
    let (b, admission, _survivor) = claim("b", KeyKind::Rule, Claim::Ours).await;
    assert_eq!(admission, Admission::New);
    assert_eq!(shown_elsewhere(&store, b).await, None);
    let (_event, admission, _survivor) = claim("c", KeyKind::Rule, Claim::Unheard).await;
    assert_eq!(admission, Admission::New);
    let (_event, admission, _survivor) = claim("d", KeyKind::Digest, Claim::Expired { of: by }).await;
    assert_eq!(admission, Admission::New);
    // An own id read back is ours.
    let delivery = bench.delivery("e");
    let event = append(&store, &delivery).await;
    let events = handed_out(&mut claims, 1).await;
    store.claimed(all(&events, Claim::Held { by: event, dead: false }));
    all_admitted(&store).await;
    assert_eq!(bench.admissions().last(), Some(&Admission::New));
    reach(HashMap::from([(DispatchState::Leased, 5)]), || states(&store, "app")).await;
    store.close().await;
    bench.check().await;
}

#[tokio::test]
async fn a_long_tail_is_handed_out_in_order_and_in_bounded_parts() {
    let bench = separate().await;
    let store = bench.open().await;
    let mut claims = store.claims().unwrap();
    let mut ids = Vec::new();
    for id in 0..900 {
        ids.push(append(&store, &bench.delivery(id)).await);
    }
    let first = slice(&mut claims).await;
    assert!(first.len() <= bench.tuning.tail_events, "no more than the tail holds");
    nothing_is_handed_out(&mut claims).await;
    store.claimed(all(&first, Claim::Ours));
    let mut seen: Vec<EventId> = first.iter().map(|event| event.event).collect();
    while seen.len() < 900 {
        let slice = slice(&mut claims).await;
        assert!(slice.len() <= 512);
        store.claimed(all(&slice, Claim::Ours));
        seen.extend(slice.iter().map(|event| event.event));
    }
    assert_eq!(seen, ids);
    all_admitted(&store).await;
    assert_eq!(bench.admissions(), [Admission::New; 900]);
}

#[tokio::test]
async fn between_claim_and_admission_a_crash_repeats_the_question_and_nothing_else() {
    for end in [End::Close, End::Crash] {
        let mut bench = separate().await;
        let store = bench.open().await;
        let mut claims = store.claims().unwrap();
        let mut ids = Vec::new();
        for id in 0..600 {
            ids.push(append(&store, &bench.delivery(id)).await);
        }
        // Claimed, but the answers for the later ones come too late.
        let events = slice(&mut claims).await;
        store.claimed(all(&events[..3], Claim::Ours));
        reach(597, || async { store.counts().await.unwrap().unadmitted }).await;
        bench.end(store, end).await;
        let store = bench.open().await;
        let mut claims = store.claims().unwrap();
        let mut again = Vec::new();
        while again.len() < 597 {
            let events = slice(&mut claims).await;
            assert!(events.len() <= 512);
            // Their own ids are read back.
            store.claimed(all(&events, Claim::Ours));
            again.extend(events.into_iter().map(|event| event.event));
        }
        assert_eq!(again, ids[3..], "{end:?}");
        all_admitted(&store).await;
        let mut feed = store.feed(&app()).unwrap();
        let mut seen = Vec::new();
        for _ in 0..600 {
            seen.push(deliver(&store, &mut feed).await.event);
        }
        seen.sort_unstable_by_key(|event| event.position());
        assert_eq!(seen, ids, "nothing lost, nothing twice");
        nothing_is_handed_out(&mut claims).await;
        store.close().await;
        bench.check().await;
    }
}

#[tokio::test]
async fn copies_of_what_is_elsewhere_stay_known_over_restarts_and_their_keys_are_not_ours() {
    for end in [End::Close, End::Crash] {
        let mut bench = separate().await;
        let store = bench.open().await;
        let mut claims = store.claims().unwrap();
        let mut copies = Vec::new();
        // Over several partitions of keys; the last one is a copy, so that it alone marks what is admitted.
        for id in 0..150 {
            let event = append(&store, &bench.delivery(id)).await;
            let events = handed_out(&mut claims, 1).await;
            let says = if id % 3 == 2 {
                copies.push((id, event));
                Claim::Held {
                    by: stranger(id),
                    dead: false,
                }
            } else {
                Claim::Ours
            };
            store.claimed(all(&events, says));
        }
        all_admitted(&store).await;
        bench.end(store, end).await;
        bench.forget_notices();
        let store = bench.open().await;
        let mut claims = store.claims().unwrap();
        nothing_is_handed_out(&mut claims).await;
        for (id, copy) in &copies {
            assert_eq!(shown_elsewhere(&store, *copy).await, Some(stranger(*id)));
        }
        for id in 0..150 {
            append(&store, &bench.delivery(id)).await;
            let events = handed_out(&mut claims, 1).await;
            store.claimed(all(&events, Claim::Ours));
        }
        all_admitted(&store).await;
        for (id, admission) in bench.admissions().iter().enumerate() {
            assert_eq!(*admission == Admission::New, id % 3 == 2, "delivery {id} after {end:?}");
        }
        store.close().await;
        bench.check().await;
    }
}

#[tokio::test]
async fn a_copy_can_be_replayed_and_its_death_is_nobodys_business() {
    let bench = separate().await;
    let store = bench.open().await;
    let mut claims = store.claims().unwrap();
    let mut feed = store.feed(&app()).unwrap();
    let copy = append(&store, &bench.delivery("a")).await;
    assert_eq!(store.replay(copy, None).await.unwrap(), Replayed::NotAdmitted);
    let events = handed_out(&mut claims, 1).await;
    let by = stranger(7);
    store.claimed(all(&events, Claim::Held { by, dead: true }));
    all_admitted(&store).await;
    let replayed = store.replay(copy, None).await.unwrap();
    let pending = Replayed::Pending {
        upstreams: vec![app()],
        busy: vec![],
    };
    assert_eq!(replayed, pending);
    let lease = next(&mut feed).await;
    assert_eq!((lease.event.id, lease.attempt, lease.replay), (copy, 1, true));
    store.settle(finished(lease, 410), Next::Dead).await.unwrap();
    assert!(store.untold_deaths(10).await.unwrap().is_empty());
    let notices = bench.setup.notices.lock().unwrap().clone();
    assert!(!notices.iter().any(|notice| matches!(notice, Notice::Died(_))));
    let old = store.undelivered_keys(Duration::ZERO, None, 10).await.unwrap();
    assert!(old.is_empty(), "{old:?}");
    assert_eq!(store.replay(copy, None).await.unwrap(), pending);
    deliver(&store, &mut feed).await;
    assert_eq!(shown_elsewhere(&store, copy).await, Some(by));
    store.close().await;
    bench.check().await;
    let store = bench.open().await;
    assert_eq!(
        states(&store, "app").await,
        HashMap::from([(DispatchState::Delivered, 1)])
    );
}

#[tokio::test]
async fn copies_go_after_retention_and_a_replayed_one_with_its_dispatch() {
    let mut bench = separate().await;
    bench.setup.settings.retention = Duration::from_secs(600);
    let store = bench.open().await;
    let mut claims = store.claims().unwrap();
    let mut feed = store.feed(&app()).unwrap();
    let mut admit = async |id: i64, says: Claim| {
        let event = append(&store, &bench.delivery(id)).await;
        let events = handed_out(&mut claims, 1).await;
        store.claimed(all(&events, says));
        all_admitted(&store).await;
        event
    };
    let elsewhere = |id| Claim::Held {
        by: stranger(id),
        dead: false,
    };
    let mut copies = Vec::new();
    for id in 0..300 {
        if id % 100 == 50 {
            admit(id, Claim::Ours).await;
            deliver(&store, &mut feed).await;
        } else {
            copies.push(admit(id, elsewhere(id)).await);
        }
    }
    let replayed = copies[150];
    store.replay(replayed, None).await.unwrap();
    let lease = next(&mut feed).await;
    let due = bench.now().after(Duration::from_secs(100_000));
    store.settle(finished(lease, 500), Next::Retry { due }).await.unwrap();
    bench.later(Duration::from_secs(400)).await;
    let young = admit(1_000, elsewhere(1_000)).await;
    bench.later(Duration::from_secs(261)).await;
    admit(1_001, Claim::Ours).await;
    let left = || async {
        let page = store.events(EventFilter::default(), None, 500).await.unwrap();
        page.events.into_iter().map(|event| event.id).collect::<Vec<_>>()
    };
    reach(3, || async { left().await.len() }).await;
    assert!(left().await.contains(&replayed) && left().await.contains(&young));
    store.close().await;
    bench.check().await;
    let copies: i64 = bench
        .database()
        .query_row("SELECT count(*) FROM elsewhere", [], |row| row.get(0))
        .unwrap();
    assert_eq!(copies, 2);
    // Keys of what is pruned stay, but for those that were never ours.
    bench.forget_notices();
    let store = bench.open().await;
    let mut claims = store.claims().unwrap();
    for id in [50, 60] {
        append(&store, &bench.delivery(id)).await;
        let events = handed_out(&mut claims, 1).await;
        store.claimed(all(&events, Claim::Ours));
    }
    all_admitted(&store).await;
    assert!(matches!(
        bench.admissions()[..],
        [Admission::Duplicate { .. }, Admission::New]
    ));
}

#[tokio::test]
async fn while_claims_are_late_accepting_stops_at_the_bound_and_goes_on_after_it() {
    let mut bench = separate().await;
    bench.setup.settings.unadmitted = 100;
    let store = bench.open().await;
    let mut claims = store.claims().unwrap();
    let mut events = Vec::new();
    for id in 0..100 {
        append(&store, &bench.delivery(id)).await;
    }
    // Some wait for room, bounded; the rest is refused.
    let mut waiting = Vec::new();
    let mut refused = 0;
    for id in 100..5_000 {
        let mut append = Box::pin(store.append(bench.delivery(id).event()));
        match futures_now(&mut append).await {
            Some(Err(AppendError::Overloaded)) => refused += 1,
            Some(other) => panic!("{other:?}"),
            None => waiting.push(append),
        }
    }
    assert!(refused > 0);
    assert!((1_000..4_000).contains(&waiting.len()), "{}", waiting.len());
    assert_eq!(store.counts().await.unwrap().unadmitted, 100);
    let answering = async {
        let total = 100 + waiting.len();
        while events.len() < total {
            let slice = slice(&mut claims).await;
            store.claimed(all(&slice, Claim::Ours));
            events.extend(slice);
        }
    };
    answering.await;
    for append in waiting {
        append.await.unwrap();
    }
    all_admitted(&store).await;
    append(&store, &bench.delivery("goes on")).await;
    store.close().await;
    bench.check().await;
}

/// What a future answers without being waited for, as far as it has begun.
async fn futures_now<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| match std::pin::Pin::new(&mut *future).poll(context) {
        std::task::Poll::Ready(answer) => std::task::Poll::Ready(Some(answer)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn a_turn_that_fails_keeps_its_claims() {
    let bench = separate().await;
    let store = bench.open().await;
    let mut claims = store.claims().unwrap();
    let mut ids = Vec::new();
    for id in 0..5 {
        ids.push(append(&store, &bench.delivery(id)).await);
    }
    let events = handed_out(&mut claims, 5).await;
    let other = rusqlite::Connection::open(bench.place.path.join("hooksluice.db")).unwrap();
    other
        .execute_batch("CREATE TRIGGER fail BEFORE INSERT ON elsewhere BEGIN SELECT RAISE(ABORT, 'full'); END")
        .unwrap();
    // The fourth fails the turn that admits the first three.
    let by = stranger(1);
    store.claimed(all(&events[..3], Claim::Ours));
    store.claimed(all(&events[3..4], Claim::Held { by, dead: false }));
    store.claimed(all(&events[4..], Claim::Ours));
    reach(true, || async { store.is_writable().is_err() }).await;
    other.execute_batch("DROP TRIGGER fail").unwrap();
    all_admitted(&store).await;
    let elsewhere = Admission::Elsewhere { of: by, dead: false };
    let wanted = [
        Admission::New,
        Admission::New,
        Admission::New,
        elsewhere,
        Admission::New,
    ];
    assert_eq!(bench.admissions(), wanted);
    reach(true, || async { store.is_writable().is_ok() }).await;
    nothing_is_handed_out(&mut claims).await;
    let mut feed = store.feed(&app()).unwrap();
    for id in [0, 1, 2, 4] {
        assert_eq!(deliver(&store, &mut feed).await.event, ids[id]);
    }
    store.close().await;
    bench.check().await;
}

#[tokio::test]
async fn a_store_that_waits_for_claims_closes() {
    let mut bench = separate().await;
    bench.setup.settings.unadmitted = 4;
    let store = bench.open().await;
    let mut claims = store.claims().unwrap();
    for id in 0..4 {
        append(&store, &bench.delivery(id)).await;
    }
    let waiting = store.append(bench.delivery("waits").event());
    assert!(!slice(&mut claims).await.is_empty());
    store.close().await;
    assert!(waiting.await.is_err());
    assert!(claims.next().await.is_none());
    // Without separate stores what was left is simply admitted.
    bench.place.separate = false;
    let store = bench.open().await;
    assert!(store.claims().is_none());
    all_admitted(&store).await;
    assert_eq!(bench.admissions(), [Admission::New; 4]);
}
