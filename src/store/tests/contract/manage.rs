//! What people and lanes ask for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::id::{EventId, Position, UpstreamName};
use crate::store::model::{DispatchState, LaneRecord, LaneSave, Next};
use crate::store::tests::bench::{Bench, Seen, all_admitted, app, append, deliver, finished, next, states};
use crate::store::{Discarded, EventFilter, Replayed, StoreError};

pub(in crate::store::tests) async fn an_upstream_that_left_holds_its_dispatches_until_it_returns<B: Bench>() {
    let mut bench = B::new().await;
    let store = bench.open().await;
    append(&store, &bench.delivery("a")).await;
    let mut away = bench.delivery("b");
    away.upstreams = Arc::from([UpstreamName::new("later"), app()]);
    append(&store, &away).await;
    all_admitted(&store).await;
    assert_eq!(states(&store, "later").await, HashMap::from([(DispatchState::Held, 1)]));
    store.close().await;
    bench.setup_mut().upstreams = vec![UpstreamName::new("later")];
    let store = bench.open().await;
    assert!(store.feed(&app()).is_none());
    assert_eq!(states(&store, "app").await, HashMap::from([(DispatchState::Held, 2)]));
    let mut feed = store.feed(&UpstreamName::new("later")).unwrap();
    assert_eq!(next(&mut feed).await.event.delivery_id.as_deref(), Some("b"));
}

pub(in crate::store::tests) async fn a_replay_sends_again_also_to_another_upstream<B: Bench>() {
    let mut bench = B::new().await;
    bench.setup_mut().upstreams.push(UpstreamName::new("other"));
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    let id = append(&store, &bench.delivery("a")).await;
    let lease = next(&mut feed).await;
    assert_eq!(
        store.replay(id, None).await.unwrap(),
        Replayed::Pending {
            upstreams: vec![],
            busy: vec![app()]
        }
    );
    store.settle(finished(lease, 200), Next::Delivered).await.unwrap();
    let other = UpstreamName::new("other");
    let replayed = store.replay(id, Some(vec![app(), other.clone()])).await.unwrap();
    assert_eq!(
        replayed,
        Replayed::Pending {
            upstreams: vec![app(), other.clone()],
            busy: vec![]
        }
    );
    assert_eq!(
        deliver(&store, &mut feed).await,
        Seen {
            event: id,
            attempt: 2,
            replay: true
        }
    );
    let mut feed = store.feed(&other).unwrap();
    assert_eq!(
        deliver(&store, &mut feed).await,
        Seen {
            event: id,
            attempt: 1,
            replay: true
        }
    );
    assert_eq!(
        states(&store, "other").await,
        HashMap::from([(DispatchState::Delivered, 1)])
    );
    let unknown = store.replay(id, Some(vec![UpstreamName::new("nobody")])).await;
    assert!(matches!(unknown, Err(StoreError::UnknownUpstream(_))));
    let missing = EventId::embedded(bench.now(), Position::new(77).unwrap(), 0);
    assert_eq!(store.replay(missing, None).await.unwrap(), Replayed::NotFound);
    assert_eq!(store.discard(missing, None).await.unwrap(), Discarded::NotFound);
    assert!(store.event(missing).await.unwrap().is_none());
    store.close().await;
    let store = bench.open().await;
    assert_eq!(
        states(&store, "other").await,
        HashMap::from([(DispatchState::Delivered, 1)])
    );
    assert_eq!(
        states(&store, "app").await,
        HashMap::from([(DispatchState::Delivered, 1)])
    );
}

pub(in crate::store::tests) async fn lists_are_filtered_and_paged_newest_first<B: Bench>() {
    let bench = B::new().await;
    let start = bench.now();
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    let mut ids = Vec::new();
    for id in 0..25 {
        ids.push(append(&store, &bench.delivery(id)).await);
        let lease = next(&mut feed).await;
        let next = if id % 5 == 0 { Next::Dead } else { Next::Delivered };
        store.settle(finished(lease, 200), next).await.unwrap();
        // Newer in everybody's eyes: a list may be ordered by time.
        bench.later(Duration::from_millis(2)).await;
    }
    ids.reverse();
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = store.events(EventFilter::default(), before, 10).await.unwrap();
        assert!(page.events.len() <= 10);
        seen.extend(page.events.iter().map(|event| event.id));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids);
    for state in [DispatchState::Dead, DispatchState::Delivered] {
        let filter = EventFilter {
            state: Some(state),
            upstream: Some(app()),
            ..EventFilter::default()
        };
        let mut seen = Vec::new();
        let mut before = None;
        loop {
            let page = store.events(filter.clone(), before, 3).await.unwrap();
            seen.extend(page.events.iter().map(|event| event.id));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(seen.len(), if state == DispatchState::Dead { 5 } else { 20 });
    }
    let by_id = EventFilter {
        delivery_id: Some("7".to_owned()),
        ..EventFilter::default()
    };
    let page = store.events(by_id, None, 10).await.unwrap();
    assert_eq!(page.events.len(), 1);
    assert_eq!(page.events[0].body_bytes, 9);
    let nothing = EventFilter {
        to: Some(start),
        ..EventFilter::default()
    };
    assert!(store.events(nothing, None, 10).await.unwrap().events.is_empty());
}

pub(in crate::store::tests) async fn a_lane_is_remembered<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    assert_eq!(store.lane_record(&app()), LaneRecord::default());
    let save = LaneSave {
        order: Some(true),
        stopped_total: Duration::from_millis(1234),
    };
    let record = store.save_lane_record(app(), save).await.unwrap();
    assert!(record.paused);
    assert_eq!(record.stopped_total, save.stopped_total);
    assert_eq!(store.lane_record(&app()), record);
    let nobody = store.save_lane_record(UpstreamName::new("nobody"), save).await;
    assert!(matches!(nobody, Err(StoreError::UnknownUpstream(_))), "{nobody:?}");
    store.close().await;
    let reopened = bench.open().await.lane_record(&app());
    assert!(reopened.paused);
    assert_eq!(reopened.stopped_total, save.stopped_total);
}

pub(in crate::store::tests) async fn a_lane_s_stopped_time_is_saved_without_an_order_and_never_goes_back<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let save = |order, secs| LaneSave {
        order,
        stopped_total: Duration::from_secs(secs),
    };
    let paused = store.save_lane_record(app(), save(Some(true), 5)).await.unwrap();
    let later = store.save_lane_record(app(), save(None, 9)).await.unwrap();
    assert_eq!(later.orders, paused.orders);
    assert!(later.paused, "only an order changes the pause");
    let smaller = store.save_lane_record(app(), save(None, 7)).await.unwrap();
    assert_eq!(smaller.stopped_total, Duration::from_secs(9));
    let again = store.save_lane_record(app(), save(Some(true), 9)).await.unwrap();
    assert!(
        again.orders > paused.orders,
        "an order counts even where it changes nothing"
    );
    let resumed = store.save_lane_record(app(), save(Some(false), 9)).await.unwrap();
    assert!(!resumed.paused && resumed.orders > again.orders);
    assert_eq!(store.lane_record(&app()), resumed);
}
