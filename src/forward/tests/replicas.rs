//! Forwarders of several replicas on one store.

use super::*;
use crate::store::model::{LaneSave, Share, ShareUse};
use crate::time::Monotonic;

fn name() -> UpstreamName {
    UpstreamName::new("app")
}

/// Replicas with a forwarder each; their shares as given, of the upstream's units.
fn replicas<const N: usize>(settings: &UpstreamSettings, units: [u32; N]) -> [Scene; N] {
    let clock = Clock::system();
    let stores: [Store; N] = Store::in_memory(&[settings.for_store()], &clock);
    let mut units = units.into_iter();
    stores.map(|store| {
        let units = units.next().unwrap();
        store.grant(&name(), share(units, settings.units(), None));
        Scene::with(TempDir::new().unwrap(), store, vec![settings.clone()], 1)
    })
}

fn share(units: u32, of: u32, valid_until: Option<Monotonic>) -> Share {
    Share { units, of, valid_until }
}

/// Waits until the lane says so of its share.
async fn uses(scene: &Scene, so: impl Fn(ShareUse) -> bool) {
    until(
        async || scene.store.share_use(&name()).filter(|used| so(*used)).map(|_| ()),
        async || format!("{:?}", scene.store.share_use(&name())),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn together_they_keep_the_upstream_s_concurrency_while_units_move() {
    let app = App::start(|_, _| Reply::Late(Duration::from_millis(20), 200)).await;
    let settings = UpstreamSettings {
        concurrency: 4,
        ..app.settings("app")
    };
    let [one, two] = replicas(&settings, [3, 1]);
    two.next.store(1000, Ordering::SeqCst);
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(one.add("app", "a").await);
        ids.push(two.add("app", "b").await);
    }
    one.store.grant(&name(), share(0, 4, None));
    uses(&one, |used| {
        used == ShareUse {
            of: 4,
            applied: 0,
            busy: 0,
        }
    })
    .await;
    two.store.grant(&name(), share(4, 4, None));
    for id in ids {
        two.reaches(id, DispatchState::Delivered).await;
    }
    assert!(app.running_max.load(Ordering::SeqCst) <= 4);
    assert_eq!(app.seen().len(), 40, "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_replica_accepts_runs_at_all_of_them_on_a_slow_upstream() {
    let app = App::start(|_, _| Reply::Never).await;
    let settings = UpstreamSettings {
        timeout: Duration::from_secs(600),
        ..app.settings("app")
    };
    let [one, two, three] = replicas(&settings, [6, 5, 5]);
    for _ in 0..48 {
        one.add("app", "a").await;
    }
    let running = || [&one, &two, &three].map(|scene| scene.status("app").running);
    until(
        async || (running() == [6, 5, 5]).then_some(()),
        async || format!("{:?}", running()),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_lost_its_units_hands_back_what_it_has_not_begun() {
    let app = App::start(|delivery, count| match (delivery, count) {
        ("stuck", 0) => Reply::Never,
        _ => Reply::Status(200),
    })
    .await;
    let settings = UpstreamSettings {
        concurrency: 1,
        ..app.settings("app")
    };
    let [one, two] = replicas(&settings, [1, 0]);
    let stuck = one.add("app", "stuck").await;
    one.lane_is("app", |lane| lane.running == 1).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(one.add("app", "a").await);
    }
    for id in &ids {
        until(
            async || (one.look(*id).await.0 == DispatchState::Leased).then_some(()),
            async || format!("{:?}", one.look(*id).await),
        )
        .await;
    }
    one.store.grant(&name(), share(0, 1, None));
    uses(&one, |used| {
        used == ShareUse {
            of: 1,
            applied: 0,
            busy: 1,
        }
    })
    .await;
    two.store.grant(&name(), share(1, 1, None));
    for id in ids {
        let attempts = two.reaches(id, DispatchState::Delivered).await;
        assert_eq!(
            attempts.first().map(|(number, _)| *number),
            Some(1),
            "no number was used up"
        );
    }
    assert_eq!(one.look(stuck).await.0, DispatchState::Leased, "what runs goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_that_lapses_sends_nothing_until_it_is_renewed() {
    let app = App::start(ONE).await;
    let settings = app.settings("app");
    let [one] = replicas(&settings, [16]);
    let past = Clock::system().monotonic();
    one.store.grant(&name(), share(16, 16, Some(past)));
    one.lane_is("app", |lane| {
        lane.share.is_some_and(|share| share.valid_until.is_some())
    })
    .await;
    let id = one.add("app", "a").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(app.seen().is_empty());
    one.store.grant(&name(), share(16, 16, None));
    one.reaches(id, DispatchState::Delivered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_at_one_stops_the_others_and_a_resume_starts_them() {
    let app = App::start(ONE).await;
    let [one, two] = replicas(&app.settings("app"), [8, 8]);
    two.next.store(1000, Ordering::SeqCst);
    one.forwarder.pause(&name()).await.unwrap();
    two.lane_is("app", |lane| lane.paused).await;
    let ids = [one.add("app", "a").await, two.add("app", "b").await];
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(app.seen().is_empty());
    two.forwarder.resume(&name()).await.unwrap();
    one.lane_is("app", |lane| !lane.paused).await;
    for id in ids {
        one.reaches(id, DispatchState::Delivered).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resume_at_one_closes_the_breaker_of_the_others() {
    let app = App::start(|_, _| Reply::Status(500)).await;
    let settings = UpstreamSettings {
        retry: Retry {
            first: Duration::from_secs(600),
            max: Duration::from_secs(600),
            ..Retry::default()
        },
        ..app.settings("app")
    };
    let [one, two] = replicas(&settings, [16, 0]);
    for _ in 0..10 {
        one.add("app", "a").await;
    }
    one.lane_is("app", |lane| lane.breaker == BreakerState::Open).await;
    two.forwarder.resume(&name()).await.unwrap();
    one.lane_is("app", |lane| lane.breaker == BreakerState::Closed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_counts_on_from_the_stopped_time_of_the_others() {
    let app = App::start(ONE).await;
    let [one, two] = replicas(&app.settings("app"), [8, 8]);
    let save = LaneSave {
        order: None,
        stopped_total: Duration::from_secs(1000),
    };
    two.store.save_lane_record(name(), save).await.unwrap();
    one.lane_is("app", |lane| lane.stopped_total == save.stopped_total)
        .await;
}
