//! Another configuration while lanes run.

use super::*;
use crate::forward::answer::{Answered, Question, Unanswered};
use crate::forward::settings::{Late, Synchronous};
use crate::secret::Secret;
use crate::store::reply::Want;
use crate::verify::{SourceSecret, Verifier, VerifierOptions, presets};

fn name(upstream: &str) -> UpstreamName {
    UpstreamName::new(upstream)
}

fn shop() -> SourceName {
    SourceName::new("shop")
}

fn source(forward_path: Option<&str>, synchronous: Option<Synchronous>) -> SourceSettings {
    let secrets = vec![SourceSecret::new(Secret::new("whsec_test"))];
    let verifier = Verifier::new(presets::find("stripe").unwrap(), secrets, VerifierOptions::default());
    SourceSettings {
        forward_path: forward_path.map(|path| path.parse().unwrap()),
        verifier: Arc::new(verifier.unwrap()),
        synchronous,
    }
}

impl Scene {
    /// As a reload does it.
    async fn reconfigure(&self, upstreams: Vec<UpstreamSettings>, shop_is: Option<SourceSettings>) {
        let mut live = StoreSettings::default().live(upstreams.iter().map(UpstreamSettings::for_store).collect());
        if let Some(synchronous) = shop_is.as_ref().and_then(|source| source.synchronous) {
            live.synchronous.insert(shop(), synchronous.patience);
        }
        self.store.reconfigure(live).await.unwrap();
        self.forwarder
            .reconfigure(upstreams, shop_is.map(|source| (shop(), source)));
    }

    async fn add_some(&self, count: usize) -> Vec<EventId> {
        let mut ids = Vec::new();
        for at in 0..count {
            ids.push(self.add("app", &format!("d{at}")).await);
        }
        ids
    }

    async fn all_reach(&self, ids: &[EventId], state: DispatchState) {
        for id in ids {
            self.reaches(*id, state).await;
        }
    }

    /// Waits until so many dispatches of `app` are held.
    async fn holds(&self, count: u64) {
        let held = async || {
            let counts = self.store.counts().await.unwrap();
            let app = counts.upstreams.get(&name("app"));
            app.map_or(0, |app| app.states[&DispatchState::Held])
        };
        until(
            async || (held().await == count).then_some(()),
            async || held().await.to_string(),
        )
        .await;
    }

    /// Waits for the answer to an event, as its sender does.
    async fn ask(&self, delivery: &str, synchronous: Synchronous) -> tokio::sync::oneshot::Receiver<Answered> {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&self.next.load(Ordering::SeqCst).to_be_bytes());
        let event = self.append("app", delivery, true).await;
        let (clock, received_at) = (Clock::system(), event.received_at());
        let question = Question {
            want: Want {
                event,
                source: shop(),
                key: DedupeKey::from_parts(key, KeyKind::Rule),
                received_at,
                upstream: name("app"),
                take: true,
            },
            until: clock.monotonic().after(synchronous.patience),
            due: received_at.after(synchronous.patience),
        };
        self.forwarder
            .answer(question, self.metrics.source(&shop()), &self.tracker)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lower_and_a_higher_concurrency_hold_under_load() {
    static GATES: [Semaphore; 3] = [const { Semaphore::const_new(0) }; 3];
    let app = App::start(|delivery, _| Reply::Once(&GATES[delivery.parse::<usize>().unwrap()])).await;
    let with = |concurrency| UpstreamSettings {
        concurrency,
        timeout: Duration::from_secs(60),
        ..app.settings("app")
    };
    let scene = Scene::start(vec![with(8)]);
    let mut ids = Vec::new();
    for _ in 0..8 {
        ids.push(scene.add("app", "0").await);
    }
    scene.lane_is("app", |lane| lane.running == 8).await;
    for (phase, concurrency) in [(1, 2), (2, 6)] {
        scene.reconfigure(vec![with(concurrency)], None).await;
        scene.forwarder.pause(&name("app")).await.unwrap();
        for _ in 0..20 {
            ids.push(scene.add("app", &phase.to_string()).await);
        }
        GATES[phase - 1].add_permits(1);
        scene.lane_is("app", |lane| lane.running == 0).await;
        app.running_max.store(0, Ordering::SeqCst);
        scene.forwarder.resume(&name("app")).await.unwrap();
        let running = || app.running_max.load(Ordering::SeqCst);
        until(
            async || (running() == concurrency).then_some(()),
            async || running().to_string(),
        )
        .await;
        GATES[phase].add_permits(1);
        scene.all_reach(&ids, DispatchState::Delivered).await;
        assert_eq!(running(), concurrency);
    }
    assert_eq!(app.seen().len(), 48, "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_upstream_ends_what_runs_and_its_events_wait_until_it_is_back() {
    static GATE: Semaphore = Semaphore::const_new(0);
    let app = App::start(|delivery, _| match delivery {
        "slow" => Reply::Once(&GATE),
        _ => Reply::Status(200),
    })
    .await;
    let settings = UpstreamSettings {
        concurrency: 1,
        ..app.settings("app")
    };
    let scene = Scene::start(vec![settings.clone(), app.settings("other")]);
    let slow = scene.add("app", "slow").await;
    scene.lane_is("app", |lane| lane.running == 1).await;
    let mut waiting = scene.add_some(5).await;
    scene.reconfigure(vec![app.settings("other")], None).await;
    assert!(scene.forwarder.status().keys().eq([&name("other")]));
    assert!(matches!(
        scene.forwarder.pause(&name("app")).await,
        Err(LaneError::UnknownUpstream(_))
    ));
    waiting.extend(scene.add_some(3).await);
    GATE.add_permits(1);
    assert_eq!(scene.reaches(slow, DispatchState::Delivered).await.len(), 1);
    scene.holds(8).await;
    assert_eq!(app.seen().len(), 1, "nothing else was sent");

    scene.reconfigure(vec![settings, app.settings("other")], None).await;
    scene.all_reach(&waiting, DispatchState::Delivered).await;
    assert_eq!(app.seen().len(), 9, "each once");
    assert_eq!(app.running_max.load(Ordering::SeqCst), 1);
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_that_a_removed_upstream_left_running_count_when_it_is_back() {
    let app = App::start(|delivery, _| match delivery {
        "slow" => Reply::Never,
        _ => Reply::Status(200),
    })
    .await;
    let with = |concurrency| UpstreamSettings {
        concurrency,
        timeout: Duration::from_secs(60),
        ..app.settings("app")
    };
    let scene = Scene::start(vec![with(2)]);
    for _ in 0..2 {
        scene.add("app", "slow").await;
    }
    scene.lane_is("app", |lane| lane.running == 2).await;
    for concurrency in [1, 2] {
        scene.reconfigure(Vec::new(), None).await;
        scene.reconfigure(vec![with(concurrency)], None).await;
    }
    let waits = scene.add("app", "a").await;
    assert_eq!(scene.status("app").running, 2);
    scene.reconfigure(vec![with(3)], None).await;
    scene.reaches(waits, DispatchState::Delivered).await;
    assert_eq!(app.running_max.load(Ordering::SeqCst), 3);
    assert_eq!(scene.status("app").running, 2);
    scene.cut().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_url_is_for_new_attempts_and_what_runs_ends_where_it_began() {
    static GATE: Semaphore = Semaphore::const_new(0);
    let slow = App::start(|_, _| Reply::Once(&GATE)).await;
    let new = App::start(ONE).await;
    let settings = UpstreamSettings {
        concurrency: 4,
        ..slow.settings("app")
    };
    let scene = Scene::start(vec![settings.clone()]);
    let ids = scene.add_some(12).await;
    scene.lane_is("app", |lane| lane.running == 4).await;
    let moved = UpstreamSettings {
        remote: new.settings("app").remote,
        ..settings
    };
    scene.reconfigure(vec![moved], None).await;
    GATE.add_permits(1);
    scene.all_reach(&ids, DispatchState::Delivered).await;
    assert_eq!((slow.seen().len(), new.seen().len()), (4, 8), "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_and_an_open_breaker_outlive_other_settings() {
    let app = App::start(|delivery, _| Reply::Status(if delivery == "bad" { 500 } else { 200 })).await;
    let with = |concurrency| UpstreamSettings {
        concurrency,
        ..app.settings("app")
    };
    let scene = Scene::start(vec![with(4)]);
    for _ in 0..12 {
        scene.add("app", "bad").await;
    }
    scene.lane_is("app", |lane| lane.breaker == BreakerState::Open).await;
    scene.forwarder.pause(&name("app")).await.unwrap();
    scene.reconfigure(vec![with(8)], None).await;
    let lane = scene.status("app");
    assert!(lane.paused && lane.breaker == BreakerState::Open, "{lane:?}");
    scene.reconfigure(Vec::new(), None).await;
    scene.reconfigure(vec![with(8)], None).await;
    let lane = scene.status("app");
    assert!(lane.paused && lane.breaker == BreakerState::Open, "{lane:?}");
    let waits = scene.add("app", "good").await;
    scene.forwarder.resume(&name("app")).await.unwrap();
    scene.reaches(waits, DispatchState::Delivered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_whose_settings_are_the_same_is_not_touched() {
    let app = App::start(ONE).await;
    let (same, other) = (app.settings("app"), app.settings("other"));
    let scene = Scene::start(vec![same.clone(), other.clone()]);
    let shown = |scene: &Scene, at: usize| Arc::clone(&scene.forwarder.upstreams()[at].settings);
    let before = (shown(&scene, 0), shown(&scene, 1));
    let changed = UpstreamSettings {
        timeout: Duration::from_secs(1),
        ..other
    };
    scene.reconfigure(vec![same, changed.clone()], None).await;
    assert!(Arc::ptr_eq(&before.0, &shown(&scene, 0)));
    assert_eq!(*shown(&scene, 1), changed);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_added_upstream_gets_what_was_held_for_it() {
    let app = App::start(ONE).await;
    let scene = Scene::start(vec![app.settings("other")]);
    let ids = scene.add_some(3).await;
    scene.holds(3).await;
    scene
        .reconfigure(vec![app.settings("app"), app.settings("other")], None)
        .await;
    scene.all_reach(&ids, DispatchState::Delivered).await;
    assert_eq!(app.seen().len(), 3);
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_s_path_holds_for_the_next_attempt_and_goes_with_the_source() {
    let app = App::start(ONE).await;
    let scene = Scene::start(vec![app.settings("app")]);
    let upstreams = vec![app.settings("app")];
    for path in [Some("/first"), Some("/second"), None] {
        let source = path.map(|path| source(Some(path), None));
        scene.reconfigure(upstreams.clone(), source).await;
        let id = scene.add("app", "a").await;
        scene.reaches(id, DispatchState::Delivered).await;
        let seen = app.seen().pop().unwrap();
        assert_eq!(seen.target, path.unwrap_or("/webhooks/shop?x=%2f"));
    }
}

const WAITS: Synchronous = Synchronous {
    patience: Duration::from_secs(60),
    late: Late::Dead,
};

#[tokio::test(flavor = "multi_thread")]
async fn senders_that_wait_for_a_removed_upstream_are_told() {
    static GATE: Semaphore = Semaphore::const_new(0);
    let app = App::start(|delivery, _| match delivery {
        "runs" => Reply::Once(&GATE),
        _ => Reply::Status(200),
    })
    .await;
    let settings = UpstreamSettings {
        concurrency: 1,
        ..app.settings("app")
    };
    let scene = Scene::start(vec![settings.clone()]);
    scene
        .reconfigure(vec![settings.clone()], Some(source(None, Some(WAITS))))
        .await;
    let runs = scene.ask("runs", WAITS).await;
    scene.lane_is("app", |lane| lane.running == 1).await;
    let waits = scene.ask("waits", WAITS).await;
    scene.reconfigure(Vec::new(), Some(source(None, Some(WAITS)))).await;
    let waits = waits.await.unwrap();
    assert!(
        matches!(waits, Answered::Not(Unanswered::Closing | Unanswered::Elsewhere)),
        "{waits:?}"
    );
    let late = scene.ask("late", WAITS).await.await.unwrap();
    assert!(matches!(late, Answered::Not(Unanswered::Elsewhere)), "{late:?}");
    GATE.add_permits(1);
    let runs = runs.await.unwrap();
    assert!(
        matches!(&runs, Answered::Relayed(reply) if reply.status == 200),
        "what runs is answered: {runs:?}"
    );
    assert_eq!(app.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_sender_waited_for_is_delivered_as_promised_also_once_its_source_is_synchronous() {
    let app = App::start(|_, count| Reply::Status(if count == 0 { 503 } else { 200 })).await;
    let scene = Scene::start(vec![app.settings("app")]);
    let gone_at_once = Synchronous {
        patience: Duration::from_millis(1),
        late: Late::Dead,
    };
    let promised = scene.reconfigure(vec![app.settings("app")], Some(source(None, None)));
    promised.await;
    scene.forwarder.pause(&name("app")).await.unwrap();
    let mut ids = scene.add_some(3).await;
    scene
        .reconfigure(vec![app.settings("app")], Some(source(None, Some(gone_at_once))))
        .await;
    // By requests that began before, and ended under the configuration that they began with.
    for delivery in ["late", "later"] {
        ids.push(scene.add("app", delivery).await);
    }
    let awaited = scene.append("app", "awaited", true).await;
    scene.forwarder.resume(&name("app")).await.unwrap();
    scene.all_reach(&ids, DispatchState::Delivered).await;
    assert_eq!(app.seen().len(), 10, "tried again like any other");
    scene.reaches(awaited, DispatchState::Dead).await;
    assert_eq!(app.seen().len(), 10, "it is too late for this one");
}
