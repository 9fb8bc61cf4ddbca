//! Retention and the life of keys (P6, P8).

use std::time::Duration;

use crate::store::model::{Admission, Next};
use crate::store::tests::bench::{Bench, End, all_admitted, app, append, finished, next, reach, states};

pub(in crate::store::tests) async fn what_is_delivered_goes_after_retention_and_what_is_not_stays<B: Bench>() {
    for end in [End::Close, End::Crash] {
        let mut bench = B::new().await;
        bench.setup_mut().settings.retention = Duration::from_secs(600);
        let store = bench.open().await;
        let mut feed = store.feed(&app()).unwrap();
        for id in 0..90 {
            append(&store, &bench.delivery(id)).await;
        }
        let mut kept = Vec::new();
        for number in 0..90 {
            let lease = next(&mut feed).await;
            let (status, next) = match number % 30 {
                0 => (
                    500,
                    Next::Retry {
                        due: bench.now().after(Duration::from_secs(86_400)),
                    },
                ),
                1 => (410, Next::Dead),
                _ => (200, Next::Delivered),
            };
            if number % 30 < 2 {
                kept.push(lease.event.id);
            }
            store.settle(finished(lease, status), next).await.unwrap();
        }
        bench.later(Duration::from_secs(599).saturating_sub(B::SLACK)).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(store.counts().await.unwrap().upstreams[&app()].pruned, 0);
        bench.later(Duration::from_secs(61) + B::SLACK).await;
        append(&store, &bench.delivery("wakes the writer")).await;
        reach(84, || async { store.counts().await.unwrap().upstreams[&app()].pruned }).await;
        for id in kept {
            assert!(store.event(id).await.unwrap().is_some());
        }
        // Pruned events are still duplicates, also after a restart.
        bench.end(store, end).await;
        bench.forget_notices();
        let store = bench.open().await;
        states(&store, "app").await;
        for id in 0..90 {
            append(&store, &bench.delivery(id)).await;
        }
        all_admitted(&store).await;
        let new = bench
            .admissions()
            .iter()
            .filter(|admission| **admission == Admission::New)
            .count();
        assert_eq!(new, 0);
        store.close().await;
        bench.check().await;
    }
}

pub(in crate::store::tests) async fn keys_go_after_the_window_unless_their_event_is_undelivered<B: Bench>() {
    for end in [End::Close, End::Crash] {
        let mut bench = B::new().await;
        bench.setup_mut().settings.window = Duration::from_secs(3600);
        let store = bench.open().await;
        let mut feed = store.feed(&app()).unwrap();
        for id in 0..100 {
            append(&store, &bench.delivery(id)).await;
            let lease = next(&mut feed).await;
            let next = match id % 10 {
                0 => Next::Retry {
                    due: bench.now().after(Duration::from_secs(1_000_000)),
                },
                _ => Next::Delivered,
            };
            store.settle(finished(lease, 200), next).await.unwrap();
        }
        bench.later(Duration::from_secs(4000)).await;
        append(&store, &bench.delivery("wakes the writer")).await;
        bench.keys_are_pruned(&store).await;
        bench.end(store, end).await;
        bench.forget_notices();
        let store = bench.open().await;
        for id in (0..80).step_by(10).chain([1]) {
            append(&store, &bench.delivery(id)).await;
        }
        all_admitted(&store).await;
        let admissions = bench.admissions();
        let new: Vec<bool> = admissions
            .iter()
            .map(|admission| *admission == Admission::New)
            .collect();
        assert_eq!(new, [false, false, false, false, false, false, false, false, true]);
        store.close().await;
        bench.check().await;
    }
}
