//! Append and admission (P1, P2).

use bytes::Bytes;
use http::StatusCode;
use std::collections::HashMap;
use std::time::Duration;

use crate::id::{EventId, Position};
use crate::key::KeyKind;
use crate::store::model::{Admission, AppendError, DispatchState, Next, Outcome, Settled};
use crate::store::tests::bench::{Bench, End, all_admitted, app, append, deliver, finished, next, states};
use crate::store::{Replayed, StoreError};

pub(in crate::store::tests) async fn an_event_is_stored_handed_out_settled_and_shown_as_it_was<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    let sent = bench.delivery("a");
    let receipt = store.append(sent.event()).await.unwrap();
    assert!(!receipt.is_duplicate());
    let lease = next(&mut feed).await;
    assert_eq!(lease.event.id, receipt.event());
    assert_eq!((lease.attempt, lease.attempts_on_clock, lease.replay), (1, 1, false));
    assert_eq!(lease.event.body, sent.body);
    assert_eq!(lease.event.target, "/hooks?a=%2f");
    assert_eq!(lease.event.delivery_id.as_deref(), Some("a"));
    let notes: Vec<&[u8]> = lease
        .event
        .headers
        .get_all("x-note")
        .iter()
        .map(|value| value.as_bytes())
        .collect();
    assert_eq!(notes, [b"\xff".as_slice(), b"2"]);
    assert_eq!(
        lease.event.headers.len(),
        2,
        "hop-by-hop and our own names are not stored"
    );
    assert!(store.holds(&lease));
    let headers = lease.event.headers.clone();
    assert_eq!(
        store.settle(finished(lease, 204), Next::Delivered).await.unwrap(),
        Settled::Recorded
    );
    let detail = store.event(receipt.event()).await.unwrap().unwrap();
    assert_eq!(detail.event.headers, headers);
    assert_eq!(detail.event.body, sent.body);
    assert_eq!(detail.event.received_at, sent.received_at);
    assert_eq!(detail.key, sent.key());
    let (dispatch, attempts) = &detail.dispatches[0];
    assert_eq!((dispatch.state, dispatch.attempts), (DispatchState::Delivered, 1));
    assert_eq!(attempts.len(), 1);
    assert_eq!(
        attempts[0].outcome,
        Outcome::Delivered {
            status: StatusCode::NO_CONTENT
        }
    );
    assert_eq!(attempts[0].excerpt, "ok");
    assert_eq!(bench.admissions(), [Admission::New]);
    store.close().await;
    bench.check().await;
}

pub(in crate::store::tests) async fn concurrent_duplicates_make_one_event_and_all_are_acknowledged<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    let same = bench.delivery("same");
    let appends: Vec<_> = (0..64).map(|_copy| store.append(same.event())).collect();
    for append in appends {
        append.await.unwrap();
    }
    all_admitted(&store).await;
    let admissions = bench.admissions();
    assert_eq!(
        admissions
            .iter()
            .filter(|admission| **admission == Admission::New)
            .count(),
        1
    );
    assert_eq!(admissions.len(), 64);
    deliver(&store, &mut feed).await;
    let mut other = same;
    other.body = Bytes::from_static(b"other bytes");
    append(&store, &other).await;
    all_admitted(&store).await;
    assert!(matches!(
        bench.admissions().last(),
        Some(Admission::Duplicate { conflict: true, .. })
    ));
    assert_eq!(
        states(&store, "app").await,
        HashMap::from([(DispatchState::Delivered, 1)])
    );
    store.close().await;
    bench.check().await;
}

pub(in crate::store::tests) async fn a_dropped_append_is_stored_all_the_same<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    drop(store.append(bench.delivery("hung up").event()));
    let mut feed = store.feed(&app()).unwrap();
    assert_eq!(next(&mut feed).await.event.delivery_id.as_deref(), Some("hung up"));
}

pub(in crate::store::tests) async fn every_key_is_known_after_a_restart_and_after_a_crash<B: Bench>() {
    for end in [End::Close, End::Crash] {
        let mut bench = B::new().await;
        let store = bench.open().await;
        let mut feed = store.feed(&app()).unwrap();
        // On the embedded bench several partitions of 40 keys, sealed and not.
        for id in 0..230 {
            append(&store, &bench.delivery(id)).await;
            deliver(&store, &mut feed).await;
        }
        bench.end(store, end).await;
        bench.forget_notices();
        let store = bench.open().await;
        for id in 0..231 {
            append(&store, &bench.delivery(id)).await;
        }
        all_admitted(&store).await;
        let admissions = bench.admissions();
        assert_eq!(admissions.len(), 231);
        for (id, admission) in admissions.iter().enumerate() {
            let duplicate = matches!(admission, Admission::Duplicate { conflict: false, .. });
            assert_eq!(duplicate, id < 230, "delivery {id} after {end:?}: {admission:?}");
        }
        store.close().await;
        bench.check().await;
    }
}

pub(in crate::store::tests) async fn digest_keys_last_for_their_window_by_the_received_at_times<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let mut again = bench.delivery("digest");
    again.kind = KeyKind::Digest;
    let first = again.received_at;
    append(&store, &again).await;
    for seconds in [300, 301, 500] {
        again.received_at = first.after(Duration::from_secs(seconds));
        append(&store, &again).await;
    }
    all_admitted(&store).await;
    let new: Vec<bool> = bench
        .admissions()
        .iter()
        .map(|admission| *admission == Admission::New)
        .collect();
    assert_eq!(new, [true, false, true, false], "re-pointed to the newer event");
}

pub(in crate::store::tests) async fn same_content_under_another_id_is_held_for_a_person<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let mut first = bench.delivery("a");
    first.content = true;
    append(&store, &first).await;
    let mut second = first.clone();
    second.id = "b".to_owned();
    let held = append(&store, &second).await;
    let mut late = first.clone();
    late.id = "c".to_owned();
    late.received_at = first.received_at.after(Duration::from_secs(301));
    append(&store, &late).await;
    all_admitted(&store).await;
    assert_eq!(bench.admissions(), [Admission::New, Admission::Held, Admission::New]);
    let replayed = store.replay(held, None).await.unwrap();
    assert_eq!(
        replayed,
        Replayed::Pending {
            upstreams: vec![app()],
            busy: vec![]
        }
    );
    let mut feed = store.feed(&app()).unwrap();
    let mut replays = Vec::new();
    for _ in 0..3 {
        replays.push(deliver(&store, &mut feed).await.replay);
    }
    assert_eq!(replays.iter().filter(|replay| **replay).count(), 1);
}

pub(in crate::store::tests) async fn a_closed_store_refuses_and_says_so<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let other = store.clone();
    store.close().await;
    assert!(matches!(
        other.append(bench.delivery("a").event()).await,
        Err(AppendError::Closing)
    ));
    assert!(matches!(other.is_writable(), Err(AppendError::Closing)));
    let id = EventId::embedded(bench.now(), Position::new(0).unwrap(), 0);
    assert!(matches!(other.replay(id, None).await, Err(StoreError::Closing)));
}
