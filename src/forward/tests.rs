//! Lanes from end to end: a store, the forwarder, and a real HTTP server as the upstream.

mod reconfigure;
mod replicas;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::*;
use crate::forward::breaker::BreakerState;
use crate::forward::settings::{Retry, SignaturePolicy};
use crate::id::{EventId, SourceName};
use crate::key::{DedupeKey, KeyKind};
use crate::net::connections::Remote;
use crate::reader::Rate;
use crate::request::{RawRequest, RequestHead};
use crate::store::model::{DispatchState, NewEvent, Outcome};
use crate::store::settings::StoreSettings;
use crate::time::Timestamp;
use crate::verify::VerifiedRequest;

/// What a test waits for must come within this, also on a machine whose disk stands still for a while.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the upstream answers, by the event's delivery id and how many requests with that id came before.
type Script = fn(&str, u32) -> Reply;

#[derive(Clone)]
enum Reply {
    Status(u16),
    RetryAfter(u16, &'static str),
    Late(Duration, u16),
    /// 200, once the test lets it.
    Once(&'static Semaphore),
    Never,
}

#[derive(Clone, Debug)]
struct Seen {
    delivery: String,
    attempt: u32,
    target: String,
    headers: HeaderMap,
    body: Bytes,
    at: Timestamp,
}

/// An upstream on a free port.
struct App {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    running_max: Arc<AtomicUsize>,
}

impl App {
    async fn start(script: Script) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), script)
    }

    fn on(listener: TcpListener, script: Script) -> Self {
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let running_max = Arc::new(AtomicUsize::new(0));
        let app = Self {
            address,
            seen: Arc::clone(&seen),
            running_max: Arc::clone(&running_max),
        };
        let tracker = TaskTracker::new();
        let running = Arc::new(Running {
            now: AtomicUsize::new(0),
            max: running_max,
        });
        let desk = Arc::new(Desk {
            script,
            seen,
            counts: Mutex::default(),
        });
        tracker.clone().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (desk, running) = (desk.clone(), running.clone());
                let service = service_fn(move |request| answer(desk.clone(), running.clone(), request));
                tracker.spawn(async move {
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _closed = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        app
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn settings(&self, name: &str) -> UpstreamSettings {
        settings(name, self.address)
    }
}

fn settings(name: &str, address: SocketAddr) -> UpstreamSettings {
    UpstreamSettings {
        name: UpstreamName::new(name),
        remote: Remote::plain(format!("http://{address}").parse().unwrap()),
        concurrency: 16,
        rate: None,
        burst: None,
        timeout: Duration::from_secs(30),
        retry: Retry {
            first: Duration::from_millis(20),
            max: Duration::from_millis(100),
            ..Retry::default()
        },
        signature: SignaturePolicy::Auto,
        preserve_host: false,
    }
}

struct Desk {
    script: Script,
    seen: Arc<Mutex<Vec<Seen>>>,
    counts: Mutex<HashMap<String, u32>>,
}

struct Running {
    now: AtomicUsize,
    max: Arc<AtomicUsize>,
}

async fn answer(
    desk: Arc<Desk>,
    running: Arc<Running>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let now = running.now.fetch_add(1, Ordering::SeqCst) + 1;
    running.max.fetch_max(now, Ordering::SeqCst);
    let (head, mut body) = request.into_parts();
    let mut bytes = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        bytes.extend_from_slice(frame.data_ref().unwrap());
    }
    let reply = desk.look(&head, bytes.freeze());
    let mut response = Response::new(Full::new(Bytes::from_static(b"said the app")));
    let status = match reply {
        Reply::Status(status) => status,
        Reply::RetryAfter(status, value) => {
            response.headers_mut().insert("retry-after", value.parse().unwrap());
            status
        }
        Reply::Late(late, status) => {
            tokio::time::sleep(late).await;
            status
        }
        Reply::Once(gate) => {
            drop(gate.acquire().await.unwrap());
            200
        }
        Reply::Never => std::future::pending().await,
    };
    running.now.fetch_sub(1, Ordering::SeqCst);
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    Ok(response)
}

impl Desk {
    fn look(&self, head: &http::request::Parts, body: Bytes) -> Reply {
        let text = |name: &str| head.headers.get(name).unwrap().to_str().unwrap().to_owned();
        let delivery = text("hooksluice-delivery-id");
        self.seen.lock().unwrap().push(Seen {
            attempt: text("hooksluice-attempt").parse().unwrap(),
            delivery: delivery.clone(),
            target: head.uri.to_string(),
            headers: head.headers.clone(),
            body,
            at: Clock::system().now(),
        });
        let mut counts = self.counts.lock().unwrap();
        let count = counts.entry(delivery.clone()).or_default();
        *count += 1;
        (self.script)(&delivery, *count - 1)
    }
}

struct Scene {
    directory: TempDir,
    store: Store,
    forwarder: Forwarder,
    metrics: Metrics,
    tracker: TaskTracker,
    next: AtomicU32,
}

impl Scene {
    fn start(upstreams: Vec<UpstreamSettings>) -> Self {
        Self::on(TempDir::new().unwrap(), upstreams, 1)
    }

    fn on(directory: TempDir, upstreams: Vec<UpstreamSettings>, next: u32) -> Self {
        let store = Store::open_embedded(
            StoreSettings::embedded(directory.path().join("data")),
            upstreams.iter().map(UpstreamSettings::for_store).collect(),
            Clock::system(),
            Box::new(|_notice| {}),
        )
        .unwrap();
        Self::with(directory, store, upstreams, next)
    }

    fn with(directory: TempDir, store: Store, upstreams: Vec<UpstreamSettings>, next: u32) -> Self {
        let (clock, metrics) = (Clock::system(), Metrics::new());
        let tracker = TaskTracker::new();
        let forwarder = Forwarder::start(upstreams, [], store.clone(), metrics.clone(), clock, tracker.clone());
        Self {
            directory,
            store,
            forwarder,
            metrics,
            tracker,
            next: AtomicU32::new(next),
        }
    }

    /// Ends in the server's order. The directory stays.
    async fn stop(self) -> TempDir {
        self.forwarder.stop_leasing();
        self.tracker.close();
        self.tracker.wait().await;
        self.store.close().await;
        self.directory
    }

    /// Ends without patience for running attempts.
    async fn cut(self) -> TempDir {
        self.forwarder.cut_off();
        self.stop().await
    }

    async fn add(&self, upstream: &str, delivery: &str) -> EventId {
        self.append(upstream, delivery, false).await
    }

    /// `awaited`: its sender waits for the upstream's answer.
    async fn append(&self, upstream: &str, delivery: &str, awaited: bool) -> EventId {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let request = RawRequest {
            head: RequestHead {
                method: http::Method::POST,
                target: "/webhooks/shop?x=%2f".parse().unwrap(),
                authority: Some("hooks.example.test".to_owned()),
                headers: HeaderMap::new(),
                client: "203.0.113.9".parse().unwrap(),
                received_at: Clock::system().now(),
            },
            body: Bytes::from_static(b"\xff{}"),
        };
        let mut key = [0; 32];
        key[..4].copy_from_slice(&number.to_be_bytes());
        let event = NewEvent {
            source: SourceName::new("shop"),
            upstreams: Arc::from([UpstreamName::new(upstream)]),
            request: VerifiedRequest::for_tests(request, Some(delivery)),
            key: DedupeKey::from_parts(key, KeyKind::Rule),
            content: None,
            body_mark: [0; 8],
            awaited,
        };
        self.store.append(event).await.unwrap().event()
    }

    /// State and finished attempts.
    async fn look(&self, id: EventId) -> (DispatchState, Vec<(u32, Outcome)>) {
        look(&self.store, id).await
    }

    /// Waits until the event's dispatch is in that state; its attempts.
    async fn reaches(&self, id: EventId, state: DispatchState) -> Vec<(u32, Outcome)> {
        until(
            async || (self.look(id).await.0 == state).then_some(()),
            async || format!("{:?}", self.look(id).await),
        )
        .await;
        self.look(id).await.1
    }

    fn status(&self, upstream: &str) -> LaneStatus {
        let name = UpstreamName::new(upstream);
        self.forwarder.status()[&name]
    }

    /// Waits until the lane is so.
    async fn lane_is(&self, upstream: &str, so: impl Fn(LaneStatus) -> bool) {
        until(
            async || so(self.status(upstream)).then_some(()),
            async || format!("{:?}", self.status(upstream)),
        )
        .await;
    }
}

async fn look(store: &Store, id: EventId) -> (DispatchState, Vec<(u32, Outcome)>) {
    let detail = store.event(id).await.unwrap().unwrap();
    match detail.dispatches.into_iter().next() {
        Some((summary, attempts)) => {
            let attempts = attempts.into_iter().map(|attempt| (attempt.number, attempt.outcome));
            (summary.state, attempts.collect())
        }
        // Not admitted yet.
        None => (DispatchState::Pending, Vec::new()),
    }
}

/// Waits for a level, not an edge, and says what it saw when it gives up.
async fn until<T>(look: impl AsyncFn() -> Option<T>, found: impl AsyncFn() -> String) -> T {
    let clock = Clock::system();
    let start = clock.monotonic();
    loop {
        if let Some(value) = look().await {
            return value;
        }
        if clock.monotonic().since(start) > PATIENCE {
            panic!("gave up: {}", found().await);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn status(outcome: &Outcome) -> Option<u16> {
    match outcome {
        Outcome::Delivered { status } | Outcome::Refused { status } => Some(status.as_u16()),
        Outcome::NotSent { .. } | Outcome::Unknown { .. } => None,
    }
}

const ONE: fn(&str, u32) -> Reply = |_, _| Reply::Status(200);

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_delivered_once() {
    let app = App::start(|_, _| Reply::Status(204)).await;
    let scene = Scene::start(vec![app.settings("app")]);
    let id = scene.add("app", "a").await;
    let attempts = scene.reaches(id, DispatchState::Delivered).await;
    assert_eq!(attempts.len(), 1);
    let seen = app.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].headers["hooksluice-event-id"], id.to_string().as_str());
    assert_eq!(seen[0].target, "/webhooks/shop?x=%2f");
    assert_eq!(seen[0].body.as_ref(), b"\xff{}");
    let metrics = scene.metrics.upstream(&UpstreamName::new("app"));
    assert_eq!(metrics.attempts().next(), Some(("delivered", 1)));
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_attempt_is_repeated_with_the_next_number_until_it_is_delivered() {
    let app = App::start(|_, count| Reply::Status(if count < 3 { 500 } else { 200 })).await;
    let scene = Scene::start(vec![app.settings("app")]);
    let id = scene.add("app", "a").await;
    let attempts = scene.reaches(id, DispatchState::Delivered).await;
    let found: Vec<_> = attempts
        .iter()
        .map(|(number, outcome)| (*number, status(outcome)))
        .collect();
    assert_eq!(found, [(1, Some(500)), (2, Some(500)), (3, Some(500)), (4, Some(200))]);
    let numbers: Vec<_> = app.seen().iter().map(|seen| seen.attempt).collect();
    assert_eq!(numbers, [1, 2, 3, 4], "each wire request carries its own number");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poison_event_delays_no_other() {
    let app = App::start(|delivery, _| Reply::Status(if delivery == "poison" { 422 } else { 200 })).await;
    let scene = Scene::start(vec![app.settings("app")]);
    let poison = scene.add("app", "poison").await;
    for _ in 0..50 {
        let id = scene.add("app", "good").await;
        scene.reaches(id, DispatchState::Delivered).await;
    }
    assert_ne!(scene.look(poison).await.0, DispatchState::Delivered);
    assert_eq!(scene.status("app").breaker, BreakerState::Closed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poison_event_answered_with_a_long_retry_after_delays_no_other() {
    let app = App::start(|delivery, _| match delivery {
        "poison" => Reply::RetryAfter(503, "3600"),
        _ => Reply::Status(200),
    })
    .await;
    let mut settings = app.settings("app");
    settings.retry.max = Duration::from_secs(3600);
    let scene = Scene::start(vec![settings]);
    let poison = scene.add("app", "poison").await;
    until(
        async || (scene.look(poison).await.1.len() == 1).then_some(()),
        async || format!("{:?}", scene.look(poison).await),
    )
    .await;
    let good = scene.add("app", "good").await;
    scene.reaches(good, DispatchState::Delivered).await;
    assert_eq!(scene.look(poison).await.0, DispatchState::Pending);
    assert_eq!(
        app.seen().len(),
        2,
        "the poison event itself waits as long as it was told to"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_tells_several_events_in_a_row_to_wait_is_left_alone_and_that_is_shown() {
    let app = App::start(|delivery, count| match (delivery, count) {
        ("d", _) | (_, 1..) => Reply::Status(200),
        (_, 0) => Reply::RetryAfter(429, "2"),
    })
    .await;
    let mut settings = app.settings("app");
    settings.retry.max = Duration::from_secs(60);
    let scene = Scene::start(vec![settings]);
    let mut events = Vec::new();
    for id in ["a", "b", "c"] {
        events.push(scene.add("app", id).await);
    }
    scene.lane_is("app", |lane| lane.held_for.is_some()).await;
    events.push(scene.add("app", "d").await);
    let metrics = scene.metrics.upstream(&UpstreamName::new("app"));
    until(
        async || (metrics.held_seconds.get() > 0).then_some(()),
        async || format!("{:?}", scene.status("app")),
    )
    .await;
    for event in events {
        scene.reaches(event, DispatchState::Delivered).await;
    }
    let seen = app.seen();
    let d = seen.iter().find(|seen| seen.delivery == "d").unwrap();
    let waited = d.at.since(seen[0].at);
    assert!(waited >= Duration::from_secs(2), "{waited:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_without_an_answer_is_unknown_and_never_two_run_at_once() {
    let app = App::start(|_, count| match count {
        0 => Reply::Never,
        _ => Reply::Status(200),
    })
    .await;
    let mut settings = app.settings("app");
    settings.timeout = Duration::from_millis(100);
    let scene = Scene::start(vec![settings]);
    let id = scene.add("app", "a").await;
    let attempts = scene.reaches(id, DispatchState::Delivered).await;
    assert!(matches!(attempts[0], (1, Outcome::Unknown { .. })), "{attempts:?}");
    assert_eq!(attempts.len(), 2);
    let seen = app.seen();
    assert!(seen[1].at.since(seen[0].at) >= Duration::from_millis(99));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_is_away_is_found_when_it_is_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let scene = Scene::start(vec![settings("app", address)]);
    let id = scene.add("app", "a").await;
    let attempts = until(
        async || {
            let attempts = scene.look(id).await.1;
            (attempts.len() >= 2).then_some(attempts)
        },
        async || format!("{:?}", scene.look(id).await),
    )
    .await;
    for (_, outcome) in attempts {
        assert!(matches!(outcome, Outcome::NotSent { .. }), "{outcome:?}");
    }
    let app = App::on(TcpListener::bind(address).await.unwrap(), ONE);
    scene.reaches(id, DispatchState::Delivered).await;
    assert_eq!(app.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_upstream_never_has_more_than_its_concurrency() {
    let app = App::start(|_, _| Reply::Late(Duration::from_millis(10), 200)).await;
    let mut settings = app.settings("app");
    settings.concurrency = 3;
    let scene = Scene::start(vec![settings]);
    let mut ids = Vec::new();
    for _ in 0..30 {
        ids.push(scene.add("app", "a").await);
    }
    for id in ids {
        scene.reaches(id, DispatchState::Delivered).await;
    }
    assert_eq!(app.running_max.load(Ordering::SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_is_held_to_its_rate() {
    let app = App::start(ONE).await;
    let mut settings = app.settings("app");
    settings.rate = Some(Rate {
        count: 20,
        per: Duration::from_secs(1),
    });
    let scene = Scene::start(vec![settings]);
    let mut ids = Vec::new();
    for _ in 0..11 {
        ids.push(scene.add("app", "a").await);
    }
    for id in ids {
        scene.reaches(id, DispatchState::Delivered).await;
    }
    let seen = app.seen();
    let took = seen[10].at.since(seen[0].at);
    assert!(took >= Duration::from_millis(480), "11 attempts at 20/s in {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_upstream_delays_no_other() {
    let hanging = App::start(|_, _| Reply::Never).await;
    let good = App::start(ONE).await;
    let scene = Scene::start(vec![hanging.settings("hanging"), good.settings("good")]);
    let mut stuck = Vec::new();
    for _ in 0..40 {
        stuck.push(scene.add("hanging", "a").await);
    }
    scene.lane_is("hanging", |lane| lane.running == 16).await;
    for _ in 0..20 {
        let id = scene.add("good", "a").await;
        scene.reaches(id, DispatchState::Delivered).await;
    }
    assert_eq!(scene.look(stuck[0]).await.0, DispatchState::Leased);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_upstream_gets_nothing_and_loses_nothing_over_a_restart() {
    let app = App::start(ONE).await;
    let name = UpstreamName::new("app");
    let scene = Scene::start(vec![app.settings("app")]);
    let unknown = UpstreamName::new("nope");
    assert!(matches!(
        scene.forwarder.pause(&unknown).await,
        Err(LaneError::UnknownUpstream(_))
    ));
    scene.forwarder.pause(&name).await.unwrap();
    let first = scene.add("app", "a").await;
    let directory = scene.stop().await;

    let scene = Scene::on(directory, vec![app.settings("app")], 100);
    assert!(scene.status("app").paused);
    let second = scene.add("app", "b").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(app.seen().is_empty());
    scene.forwarder.resume(&name).await.unwrap();
    scene.reaches(first, DispatchState::Delivered).await;
    scene.reaches(second, DispatchState::Delivered).await;
    assert!(scene.status("app").stopped_total >= Duration::from_millis(100));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_that_the_store_does_not_take_holds_and_is_said() {
    let app = App::start(ONE).await;
    let name = UpstreamName::new("app");
    let scene = Scene::start(vec![app.settings("app")]);
    scene.store.clone().close().await;
    let paused = scene.forwarder.pause(&name).await;
    assert!(matches!(paused, Err(LaneError::NotRecorded(_))), "{paused:?}");
    let view = scene.forwarder.upstreams().pop().unwrap();
    assert!(view.lane.paused && !view.order_is_saved, "{view:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_410_is_dead_at_once_and_counted() {
    let app = App::start(|_, _| Reply::Status(410)).await;
    let scene = Scene::start(vec![app.settings("app")]);
    let id = scene.add("app", "a").await;
    assert_eq!(scene.reaches(id, DispatchState::Dead).await.len(), 1);
    let metrics = scene.metrics.upstream(&UpstreamName::new("app"));
    until(
        async || (metrics.dead.get() == 1).then_some(()),
        async || metrics.dead.get().to_string(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_dispatch_that_a_person_replays_is_marked_and_goes_on_counting() {
    let app = App::start(|_, count| Reply::Status(if count == 0 { 410 } else { 200 })).await;
    let scene = Scene::start(vec![app.settings("app")]);
    let id = scene.add("app", "a").await;
    scene.reaches(id, DispatchState::Dead).await;
    scene.store.replay(id, None).await.unwrap();
    scene.reaches(id, DispatchState::Delivered).await;
    let seen = app.seen();
    assert!(!seen[0].headers.contains_key("hooksluice-replay"));
    assert_eq!(seen[1].headers["hooksluice-replay"], "true");
    assert_eq!(seen[1].attempt, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_fails_is_asked_by_single_probes() {
    let app = App::start(|_, _| Reply::Status(500)).await;
    let scene = Scene::start(vec![app.settings("app")]);
    for _ in 0..40 {
        scene.add("app", "a").await;
    }
    let quiet = |lane: LaneStatus| lane.breaker == BreakerState::Open && lane.running == 0;
    scene.lane_is("app", quiet).await;
    let before = app.seen().len();
    // 10 in a row, and those that ran beside the tenth.
    assert!((10..10 + 16).contains(&before), "{before}");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(app.seen().len(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_waits_for_running_attempts() {
    let app = App::start(|_, _| Reply::Late(Duration::from_millis(200), 200)).await;
    let scene = Scene::start(vec![app.settings("app")]);
    let id = scene.add("app", "a").await;
    scene.lane_is("app", |lane| lane.running == 1).await;
    scene.forwarder.stop_leasing();
    let late = scene.add("app", "b").await;
    let directory = scene.stop().await;
    assert_eq!(app.seen().len(), 1);

    let scene = Scene::on(directory, vec![app.settings("app")], 100);
    assert_eq!(scene.look(id).await.0, DispatchState::Delivered);
    scene.reaches(late, DispatchState::Delivered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_is_cut_off_is_unknown_and_repeated_after_the_restart() {
    let app = App::start(|_, count| match count {
        0 => Reply::Never,
        _ => Reply::Status(200),
    })
    .await;
    let scene = Scene::start(vec![app.settings("app")]);
    let id = scene.add("app", "a").await;
    until(
        async || app.seen().first().map(|_| ()),
        async || "nothing sent".to_owned(),
    )
    .await;
    let directory = scene.cut().await;

    let scene = Scene::on(directory, vec![app.settings("app")], 100);
    let attempts = scene.reaches(id, DispatchState::Delivered).await;
    assert!(matches!(attempts[0], (1, Outcome::Unknown { .. })), "{attempts:?}");
    assert_eq!(attempts[1].0, 2);
    let seen = app.seen();
    assert_eq!(
        seen[0].headers["hooksluice-event-id"],
        seen[1].headers["hooksluice-event-id"]
    );
}

#[test]
fn of_a_source_that_is_gone_whatever_a_preset_has_for_a_token_is_hidden() {
    let places = ProofPlaces(None);
    assert!(places.in_header("verif-hash") && places.in_header("x-hub-signature-256"));
    assert!(!places.in_header("user-agent") && !places.in_header("x-request-id"));
    let body = Bytes::from_static(b"{\"sharedSecret\":\"0123456789\",\"n\":1}");
    let masked = places.without_tokens(&HeaderMap::new(), &body, b"***");
    assert_eq!(masked.as_deref(), Some(&b"{\"sharedSecret\":\"***\",\"n\":1}"[..]));
}
