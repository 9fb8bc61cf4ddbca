//! What Redis must be told and not forget: deaths until they were told, keys of what is not delivered.

use std::time::Duration;

use crate::id::{EventId, SourceName};
use crate::store::Store;
use crate::store::model::{Death, Next, Undelivered};
use crate::store::tests::bench::{Bench, End, all_admitted, app, append, finished, next};

async fn untold(store: &Store) -> Vec<EventId> {
    let deaths = store.untold_deaths(100).await.unwrap();
    deaths.into_iter().map(|death| death.event).collect()
}

pub(in crate::store::tests) async fn a_death_is_kept_until_it_was_told<B: Bench>() {
    for end in [End::Close, End::Crash] {
        let mut bench = B::new().await;
        bench.setup_mut().settings.keep_deaths = true;
        let store = bench.open().await;
        let mut feed = store.feed(&app()).unwrap();
        let mut died = Vec::new();
        for id in 0..5 {
            let event = append(&store, &bench.delivery(id)).await;
            let lease = next(&mut feed).await;
            let dead = id != 2;
            store
                .settle(finished(lease, 410), if dead { Next::Dead } else { Next::Delivered })
                .await
                .unwrap();
            died.extend(dead.then_some(event));
        }
        let deaths = store.untold_deaths(3).await.unwrap();
        let first = Death {
            source: SourceName::new("github"),
            key: bench.delivery(0).key(),
            event: died[0],
        };
        assert_eq!(deaths[0], first);
        assert_eq!(deaths.len(), 3);
        store.deaths_told(deaths[..2].to_vec()).await.unwrap();
        assert_eq!(untold(&store).await, died[2..]);
        bench.end(store, end).await;
        let store = bench.open().await;
        assert_eq!(untold(&store).await, died[2..], "{end:?}");
        let deaths = store.untold_deaths(100).await.unwrap();
        store.deaths_told(deaths).await.unwrap();
        assert!(untold(&store).await.is_empty());
    }
}

pub(in crate::store::tests) async fn a_second_death_is_told_again_also_when_it_comes_during_the_telling<B: Bench>() {
    let mut bench = B::new().await;
    bench.setup_mut().settings.keep_deaths = true;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    let event = append(&store, &bench.delivery("a")).await;
    let lease = next(&mut feed).await;
    store.settle(finished(lease, 410), Next::Dead).await.unwrap();
    for _round in 0..2 {
        let telling = store.untold_deaths(100).await.unwrap();
        assert_eq!(telling.len(), 1);
        append(&store, &bench.delivery("a")).await;
        let lease = next(&mut feed).await;
        store.settle(finished(lease, 410), Next::Dead).await.unwrap();
        store.deaths_told(telling).await.unwrap();
        assert_eq!(untold(&store).await, [event], "the later death was not told");
    }
    let telling = store.untold_deaths(100).await.unwrap();
    store.deaths_told(telling).await.unwrap();
    assert!(untold(&store).await.is_empty());
}

pub(in crate::store::tests) async fn without_redis_no_death_is_kept<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    append(&store, &bench.delivery("a")).await;
    let lease = next(&mut feed).await;
    store.settle(finished(lease, 410), Next::Dead).await.unwrap();
    assert!(untold(&store).await.is_empty());
}

pub(in crate::store::tests) async fn keys_of_what_is_not_delivered_are_listed_once_they_are_old<B: Bench>() {
    const OLD: Duration = Duration::from_secs(3 * 3600);
    let bench = B::new().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    let mut wanted = Vec::new();
    for id in 0..40 {
        let delivery = bench.delivery(id);
        let event = append(&store, &delivery).await;
        let lease = next(&mut feed).await;
        let becomes = match id % 4 {
            0 => Next::Dead,
            1 => Next::Retry {
                due: bench.now().after(Duration::from_secs(1_000_000)),
            },
            _ => Next::Delivered,
        };
        store.settle(finished(lease, 500), becomes).await.unwrap();
        if id % 4 < 2 {
            wanted.push(Undelivered {
                event,
                source: SourceName::new("github"),
                key: delivery.key(),
                body_mark: delivery.event().body_mark,
                dead: becomes == Next::Dead,
            });
        }
        // So that their ids tell their order.
        bench.later(Duration::from_millis(2)).await;
    }
    assert!(store.undelivered_keys(OLD, None, 7).await.unwrap().is_empty());
    bench.later(OLD + Duration::from_secs(60)).await;
    append(&store, &bench.delivery("young")).await;
    all_admitted(&store).await;
    let mut found = Vec::new();
    loop {
        let after = found.last().map(|last: &Undelivered| last.event);
        let page = store.undelivered_keys(OLD, after, 7).await.unwrap();
        assert!(page.len() <= 7);
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    assert_eq!(found, wanted);
}
