//! Another configuration at one replica after the other, and while the database is away.

use std::time::Duration;

use crate::id::UpstreamName;
use crate::store::Store;
use crate::store::model::{DispatchState, ShareUse};
use crate::store::settings::{LaneSettings, Live, StoreSettings};
use crate::store::tests::bench::{Bench, app, append, deliver, next, reach, states};
use crate::store::tests::shared::Postgres;
use crate::store::tests::shared::relay::Relay;
use crate::store::tests::shared::server::SERVER;

fn live(lanes: &[(&str, u32)]) -> Live {
    let lane = |(name, units): &(&str, u32)| LaneSettings {
        upstream: UpstreamName::new(*name),
        units: *units,
    };
    StoreSettings::default().live(lanes.iter().map(lane).collect())
}

#[tokio::test]
async fn a_database_that_is_away_changes_nothing() {
    let bench = Postgres::new().await;
    let relay = Relay::start(SERVER.port).await;
    let store = bench.over(&relay).await;
    let mut feed = store.feed(&app()).unwrap();
    let first = append(&store, &bench.delivery("first")).await;
    reach(true, || async { feed.has_ready() }).await;
    relay.cut();
    assert!(store.reconfigure(live(&[("new", 1)])).await.is_err());
    assert_eq!(store.upstreams(), [app()]);
    assert!(store.feed(&UpstreamName::new("new")).is_none());
    relay.mend();
    reach(true, || async { store.is_writable().is_ok() }).await;
    assert_eq!(deliver(&store, &mut feed).await.event, first, "its feed goes on");
    reach(true, || async { store.reconfigure(live(&[("new", 1)])).await.is_ok() }).await;
    assert!(store.feed(&app()).is_none());
    store.close().await;
}

#[tokio::test]
async fn what_one_replica_removed_another_goes_on_with() {
    let mut bench = Postgres::new().await;
    bench.tuning.tick = Duration::from_millis(50);
    bench.tuning.share_ttl = Duration::from_secs(1);
    let (one, two) = (bench.open().await, bench.open().await);
    let mut feed = one.feed(&app()).unwrap();
    let mut others = two.feed(&app()).unwrap();
    for id in 0..4 {
        append(&one, &bench.delivery(id)).await;
    }
    let running = next(&mut feed).await;
    one.report_share_use(
        &app(),
        ShareUse {
            of: 16,
            applied: 0,
            busy: 1,
        },
    );
    one.reconfigure(live(&[])).await.unwrap();
    for _ in 0..3 {
        assert_eq!(deliver(&two, &mut others).await.attempt, 1);
    }
    let units = || async { two.share(&app()).unwrap().units };
    reach(8, units).await;
    assert_eq!(one.share(&app()).unwrap().units, 0);
    drop(running);
    one.report_share_use(
        &app(),
        ShareUse {
            of: 16,
            applied: 0,
            busy: 0,
        },
    );
    assert_eq!(deliver(&two, &mut others).await.attempt, 2);
    reach(16, units).await;
    assert_eq!(states(&two, "app").await[&DispatchState::Delivered], 4);
}

/// A lane at a replica: what it runs, each with the concurrency it was begun under.
struct Lane {
    store: Store,
    concurrency: u32,
    running: Vec<u32>,
}

impl Lane {
    /// Ends some, starts what it may, and reports both, as a lane does.
    fn step(&mut self, ends: usize) {
        let share = self.store.share(&app()).unwrap();
        self.running.drain(..ends.min(self.running.len()));
        let slots = usize::try_from(self.concurrency * share.units / share.of).unwrap();
        while self.running.len() < slots {
            self.running.push(self.concurrency);
        }
        let running = u32::try_from(self.running.len()).unwrap();
        let used = ShareUse {
            of: share.of,
            applied: share.units,
            busy: (running * share.of).div_ceil(self.concurrency),
        };
        self.store.report_share_use(&app(), used);
    }
}

#[tokio::test]
async fn replicas_with_different_configurations_never_exceed_the_larger_pace() {
    let mut bench = Postgres::new().await;
    bench.tuning.tick = Duration::from_millis(40);
    let mut lanes = Vec::new();
    for _ in 0..3 {
        lanes.push(Lane {
            store: bench.open().await,
            concurrency: 16,
            running: Vec::new(),
        });
    }
    for concurrency in [16, 5, 8, 3, 4, 16, 7] {
        for at in 0..lanes.len() {
            lanes[at].concurrency = concurrency;
            lanes[at]
                .store
                .reconfigure(live(&[("app", concurrency)]))
                .await
                .unwrap();
            let last = at + 1 == lanes.len();
            for round in 0.. {
                for lane in &mut lanes {
                    lane.step(rand::random_range(0..2));
                }
                let running: Vec<_> = lanes.iter().flat_map(|lane| &lane.running).copied().collect();
                let largest = lanes
                    .iter()
                    .map(|lane| lane.concurrency)
                    .chain(running.iter().copied())
                    .max();
                assert!(
                    running.len() <= usize::try_from(largest.unwrap()).unwrap(),
                    "{running:?}"
                );
                let shares: Vec<_> = lanes.iter().map(|lane| lane.store.share(&app()).unwrap()).collect();
                let divided = shares.iter().all(|share| share.of == concurrency)
                    && shares.iter().map(|share| share.units).sum::<u32>() == concurrency;
                if if last { divided } else { round > 40 } {
                    break;
                }
                assert!(round < 5_000, "{shares:?} of {concurrency}");
                tokio::time::sleep(Duration::from_millis(4)).await;
            }
        }
    }
}
