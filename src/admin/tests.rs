//! The admin listener over real connections, on a free port each.

use std::net::SocketAddr;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

use super::*;
use crate::cli::client::{AdminArgs, AdminClient};
use crate::forward::settings::{Retry, SignaturePolicy, UpstreamSettings};
use crate::id::UpstreamName;
use crate::id::{EventId, SourceName};
use crate::key::{DedupeKey, KeyKind};
use crate::net::connections::Remote;
use crate::request::{RawRequest, RequestHead};
use crate::store::Feed;
use crate::store::model::{Finished, NewEvent, Next, Outcome, Settled};
use crate::store::settings::{LaneSettings, StoreSettings};
use crate::time::Timestamp;
use crate::verify::VerifiedRequest;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

/// A running admin listener over a store in a temporary directory.
struct Running {
    address: SocketAddr,
    store: Store,
    metrics: Metrics,
    shutting_down: CancellationToken,
    forwarder: Forwarder,
    stop: CancellationToken,
    tasks: TaskTracker,
    _directory: tempfile::TempDir,
}

impl Running {
    async fn start() -> Self {
        Self::start_with(None).await
    }

    async fn start_with(token: Option<&str>) -> Self {
        Self::forwarding(token, Vec::new()).await
    }

    /// With lanes for these upstreams; the dispatches of the others are the test's.
    async fn forwarding(token: Option<&str>, lanes: Vec<UpstreamSettings>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::manual(NOW);
        let store = open(directory.path(), &clock);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = Metrics::new();
        let settings = AdminSettings {
            listen: address,
            token: token.map(Secret::new),
            hosts: Vec::new(),
        };
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let forwarder = Forwarder::start(lanes, [], store.clone(), metrics.clone(), clock.clone(), tasks.clone());
        let stop_forwarding = forwarder.clone();
        let reloads = Reloads::new(NOW).0;
        let admin = Admin::new(
            settings,
            forwarder,
            store.clone(),
            reloads.clone(),
            Learners::new(clock.clone(), reloads, tasks.clone()),
            metrics.clone(),
            clock,
        );
        let shutting_down = admin.shutting_down();
        tasks.spawn(admin.serve(listener, stop.clone()));
        Self {
            address,
            store,
            metrics,
            shutting_down,
            forwarder: stop_forwarding,
            stop,
            tasks,
            _directory: directory,
        }
    }

    /// Sends a request as it is written, and reads the answer to the end of the connection.
    async fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        tokio::time::timeout(Duration::from_secs(10), read)
            .await
            .unwrap()
            .unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn get(&self, path: &str) -> String {
        self.raw(&format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        ))
        .await
    }

    async fn post(&self, path: &str, headers: &str, body: &str) -> String {
        let length = body.len();
        self.raw(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        ))
        .await
    }

    fn client(&self) -> AdminClient {
        let admin = format!("http://{}", self.address).parse().unwrap();
        AdminClient::new(&AdminArgs { admin, token_env: None }).unwrap()
    }

    async fn stop(self) {
        self.stop.cancel();
        self.forwarder.stop_leasing();
        self.tasks.close();
        self.tasks.wait().await;
        self.store.close().await;
    }
}

fn status_of(answer: &str) -> &str {
    answer.get(9..12).unwrap_or(answer)
}

const JSON: &str = "Content-Type: application/json\r\n";

#[tokio::test]
async fn health_and_readiness_are_told_apart() {
    let admin = Running::start().await;
    assert_eq!(status_of(&admin.get("/healthz").await), "200");
    assert_eq!(status_of(&admin.get("/readyz").await), "200");
    admin.shutting_down.cancel();
    assert_eq!(status_of(&admin.get("/healthz").await), "200");
    let answer = admin.get("/readyz").await;
    assert_eq!(status_of(&answer), "503");
    assert!(answer.ends_with("not ready: shutting down\n"), "{answer}");
    admin.stop().await;
}

#[tokio::test]
async fn a_rebound_name_is_refused_on_every_path() {
    let admin = Running::start().await;
    for path in ["/healthz", "/metrics", "/api/v1/events", "/", "/nowhere"] {
        let answer = admin
            .raw(&format!(
                "GET {path} HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n"
            ))
            .await;
        assert_eq!(status_of(&answer), "421", "{path}: {answer}");
    }
    let answer = admin.raw("GET /healthz HTTP/1.0\r\n\r\n").await;
    assert_eq!(status_of(&answer), "421", "{answer}");
    admin.stop().await;
}

#[tokio::test]
async fn every_answer_forbids_sniffing_and_storing() {
    let admin = Running::start().await;
    for path in [
        "/healthz",
        "/metrics",
        "/api/v1/events",
        "/api/v1/openapi.json",
        "/",
        "/nowhere",
    ] {
        let answer = admin.get(path).await;
        assert!(
            answer.contains("x-content-type-options: nosniff\r\n"),
            "{path}: {answer}"
        );
        assert!(answer.contains("cache-control: no-store\r\n"), "{path}: {answer}");
    }
    admin.stop().await;
}

#[tokio::test]
async fn errors_have_one_shape() {
    let admin = Running::start().await;
    let post = |headers, body| admin.post("/api/v1/events/replay", headers, body);
    for (answer, status, code) in [
        (admin.get("/nowhere").await, "404", "no_such_path"),
        (admin.get("/").await, "404", "no_page"),
        (admin.get("/api/v1/events/not-an-id").await, "404", "no_such_event"),
        (admin.get("/api/v1/events/..%2f..%2fetc").await, "404", "no_such_event"),
        (admin.get("/api/v1/events?limit=0").await, "400", "bad_request"),
        (admin.get("/api/v1/events?limit=x").await, "400", "bad_request"),
        (admin.get("/api/v1/events?colour=red").await, "400", "bad_request"),
        (admin.get("/api/v1/events?state=ded").await, "400", "bad_request"),
        (admin.get("/api/v1/events/replay").await, "405", "method_not_allowed"),
        (admin.post("/healthz", JSON, "").await, "405", "method_not_allowed"),
        (post("", "{}").await, "415", "not_json"),
        (post("Content-Type: text/plain\r\n", "{}").await, "415", "not_json"),
        (post(JSON, "{").await, "400", "bad_request"),
        (post(JSON, r#"{"dryrun":true}"#).await, "400", "bad_request"),
        (post(JSON, r#"{"to":"nobody"}"#).await, "400", "no_such_upstream"),
        (
            post("Origin: http://evil.test\r\nContent-Type: application/json\r\n", "{}").await,
            "403",
            "foreign_origin",
        ),
        (post(JSON, &" ".repeat(BODY_LIMIT + 1)).await, "413", "too_large"),
    ] {
        assert_eq!(status_of(&answer), status, "{answer}");
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        let error: dto::ErrorBody = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"));
        assert_eq!(error.error.code, code, "{answer}");
        assert!(!error.error.message.is_empty());
    }
    admin.stop().await;
}

#[tokio::test]
async fn the_token_is_asked_of_everything_but_the_probes_and_shown_nowhere() {
    let admin = Running::start_with(Some("s3cret-token")).await;
    assert_eq!(status_of(&admin.get("/readyz").await), "200");
    for path in ["/metrics", "/api/v1/status", "/api/v1/openapi.json", "/nowhere"] {
        let answer = admin.get(path).await;
        assert_eq!(status_of(&answer), "401", "{path}");
        assert!(answer.contains("www-authenticate: Bearer\r\n"), "{answer}");
        assert!(!answer.contains("s3cret"), "{answer}");
    }
    let answer = admin
        .raw("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer s3cret-token\r\nConnection: close\r\n\r\n")
        .await;
    assert_eq!(status_of(&answer), "200");
    admin.stop().await;
}

#[tokio::test]
async fn metrics_are_prometheus_text_with_the_upstreams_of_the_configuration() {
    let admin = Running::start().await;
    admin.metrics.source(&SourceName::new("stripe")).challenge();
    let answer = admin.get("/metrics").await;
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    for line in [
        r#"hooksluice_requests_total{source="stripe",outcome="challenge"} 1"#,
        r#"hooksluice_dispatches{upstream="app",state="pending"} 0"#,
        "hooksluice_store_writable 1",
        "hooksluice_store_clock_trusted 1",
    ] {
        assert!(answer.contains(line), "{line} is missing in {answer}");
    }
    admin.stop().await;
}

#[tokio::test]
async fn every_described_path_exists() {
    let admin = Running::start().await;
    let document: serde_json::Value = admin.client().get("/api/v1/openapi.json").await.unwrap();
    let paths = document["paths"].as_object().unwrap();
    for (path, methods) in paths {
        let path = path.replace("{id}", "01900000-0000-7000-8000-000000000000");
        let path = path.replace("{name}", "app");
        let path = path.replace("{route}", "orders").replace("{digest}", &"0".repeat(64));
        for method in methods.as_object().unwrap().keys() {
            let answer = match method.as_str() {
                "get" => admin.get(&path).await,
                _ => admin.post(&path, JSON, "{}").await,
            };
            assert!(!answer.contains("no_such_path"), "{method} {path}: {answer}");
            assert!(!answer.contains("method_not_allowed"), "{method} {path}: {answer}");
        }
    }
    admin.stop().await;
}

#[tokio::test]
async fn a_stop_lets_an_idle_connection_go_at_once() {
    let admin = Running::start().await;
    let mut idle = TcpStream::connect(admin.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = [0_u8; 12];
    idle.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    tokio::time::timeout(Duration::from_secs(1), admin.stop())
        .await
        .unwrap();
}

/// A delivery whose id drives terminals, whose headers and target hold credentials, and whose body is not text.
async fn append(admin: &Running, id: &str, body: &[u8]) -> EventId {
    let mut headers = HeaderMap::new();
    headers.insert(
        "x-hub-signature-256",
        HeaderValue::from_static("sha256=s3cret-signature"),
    );
    headers.insert("authorization", HeaderValue::from_static("Basic s3cret-password"));
    headers.append("x-note", HeaderValue::from_bytes(b"first \xff").unwrap());
    headers.append("x-note", HeaderValue::from_static("second"));
    let request = RawRequest {
        head: RequestHead {
            method: Method::POST,
            target: PathAndQuery::from_static("/hooks?token=s3cret-token&page=1"),
            authority: Some("hooks.example.com".to_owned()),
            headers,
            client: [192, 0, 2, 1].into(),
            received_at: NOW,
        },
        body: Bytes::copy_from_slice(body),
    };
    let event = NewEvent {
        source: SourceName::new("github"),
        upstreams: [UpstreamName::new("app")].into(),
        request: VerifiedRequest::for_tests(request, Some(id)),
        key: DedupeKey::from_parts(Sha256::digest(id.as_bytes()).into(), KeyKind::Rule),
        content: None,
        body_mark: [0; 8],
        awaited: false,
    };
    admin.store.append(event).await.unwrap().event()
}

/// Attempts the next dispatch and settles it.
async fn attempt(feed: &mut Feed, admin: &Running, status: StatusCode, next: Next) {
    let lease = feed.next().await.unwrap();
    let outcome = match next {
        Next::Delivered => Outcome::Delivered { status },
        _ => Outcome::Refused { status },
    };
    let finished = Finished {
        lease,
        outcome,
        started_at: NOW,
        took: Duration::from_millis(12),
        excerpt: Bytes::from_static(b"oops \xff"),
        reply: None,
    };
    assert_eq!(admin.store.settle(finished, next).await.unwrap(), Settled::Recorded);
}

#[tokio::test]
async fn an_event_is_shown_byte_for_byte_without_its_credentials() {
    let admin = Running::start().await;
    let id = append(&admin, "evt\u{1b}[2J", b"\x00\xff body").await;
    let mut feed = admin.store.feed(&UpstreamName::new("app")).unwrap();
    attempt(&mut feed, &admin, StatusCode::INTERNAL_SERVER_ERROR, Next::Dead).await;

    let text = admin.get(&format!("/api/v1/events/{id}")).await;
    assert!(!text.contains("s3cret"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    let shown: dto::EventDetail = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(shown.summary.id, id.to_string());
    assert_eq!(shown.summary.delivery_id.as_deref(), Some("evt\u{1b}[2J"));
    assert_eq!(shown.summary.received_at, "2023-11-14T22:13:20.000Z");
    assert_eq!(shown.summary.dispatches[0].state, "dead");
    assert_eq!(shown.target, "/hooks?token=(masked)&page=1");
    assert_eq!(
        data_encoding::BASE64.decode(shown.body_base64.as_bytes()).unwrap(),
        b"\x00\xff body"
    );
    assert_eq!(shown.body_text, None);
    let notes: Vec<&str> = shown
        .headers
        .iter()
        .filter(|(n, _)| n == "x-note")
        .map(|(_, v)| v.as_str())
        .collect();
    assert_eq!(notes, ["first \u{fffd}", "second"]);
    let attempt = &shown.attempts[0];
    assert_eq!((attempt.number, attempt.took_ms, attempt.status), (1, 12, Some(500)));
    assert_eq!(
        (attempt.outcome.as_str(), attempt.excerpt.as_str()),
        ("refused", "oops \u{fffd}")
    );
    admin.stop().await;
}

#[tokio::test]
async fn pages_hold_every_event_once_newest_first() {
    let admin = Running::start().await;
    let mut appended = Vec::new();
    for n in 0..7 {
        appended.push(append(&admin, &format!("evt_{n}"), b"{}").await.to_string());
    }
    appended.reverse();
    let client = admin.client();
    let mut listed = Vec::new();
    let mut cursor = String::new();
    for _ in 0..10 {
        let page: dto::EventPage = client.get(&format!("/api/v1/events?limit=3{cursor}")).await.unwrap();
        assert!(page.events.len() <= 3);
        listed.extend(page.events.into_iter().map(|event| event.id));
        match page.next_cursor {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(listed, appended);
    let one: dto::EventPage = client.get("/api/v1/events?delivery_id=evt_3").await.unwrap();
    assert_eq!(one.events.len(), 1);
    let none: dto::EventPage = client.get("/api/v1/events?source=stripe").await.unwrap();
    assert!(none.events.is_empty());
    admin.stop().await;
}

#[tokio::test]
async fn what_is_dead_can_be_replayed_and_what_waits_can_be_discarded() {
    let admin = Running::start().await;
    let client = admin.client();
    let mut feed = admin.store.feed(&UpstreamName::new("app")).unwrap();
    let delivered = append(&admin, "delivered", b"{}").await;
    attempt(&mut feed, &admin, StatusCode::OK, Next::Delivered).await;
    let dead = append(&admin, "dead", b"{}").await;
    attempt(&mut feed, &admin, StatusCode::GONE, Next::Dead).await;

    let mut many = dto::ReplayMany {
        filter: dto::Filter {
            state: Some("dead".to_owned()),
            ..dto::Filter::default()
        },
        dry_run: true,
        ..dto::ReplayMany::default()
    };
    let counted: dto::Replayed = client.post("/api/v1/events/replay", &many).await.unwrap();
    assert_eq!((counted.matched, counted.dispatches), (1, 1));
    many.dry_run = false;
    let replayed: dto::Replayed = client.post("/api/v1/events/replay", &many).await.unwrap();
    assert_eq!((replayed.matched, replayed.dispatches, replayed.busy), (1, 1, 0));

    let lease = tokio::time::timeout(Duration::from_secs(10), feed.next())
        .await
        .unwrap()
        .unwrap();
    assert_eq!((lease.event.id, lease.replay, lease.attempt), (dead, true, 2));
    let path = format!("/api/v1/events/{dead}/replay");
    let busy: dto::Replayed = client.post(&path, &dto::Replay::default()).await.unwrap();
    assert_eq!((busy.dispatches, busy.busy), (0, 1));

    let path = format!("/api/v1/events/{dead}/discard");
    let discarded: dto::Discarded = client.post(&path, &dto::Discard::default()).await.unwrap();
    assert_eq!(discarded.dispatches, 1);
    assert!(!admin.store.holds(&lease), "the lease of a discarded dispatch is lost");
    let path = format!("/api/v1/events/{delivered}/discard");
    let discarded: dto::Discarded = client.post(&path, &dto::Discard::default()).await.unwrap();
    assert_eq!(discarded.dispatches, 0, "what is delivered stays delivered");

    let metrics = admin.get("/metrics").await;
    assert!(
        !metrics.contains("hooksluice_store_commit_seconds_count 0\n"),
        "{metrics}"
    );
    assert!(metrics.contains("hooksluice_store_commit_seconds_count "), "{metrics}");
    let status: dto::Status = client.get("/api/v1/status").await.unwrap();
    let app = &status.upstreams[0];
    assert_eq!(
        (app.name.as_str(), app.delivered, app.discarded, app.dead),
        ("app", 1, 1, 0)
    );
    admin.stop().await;
}

#[tokio::test]
async fn everything_is_replayed_only_when_it_is_said() {
    let admin = Running::start().await;
    append(&admin, "waits", b"{}").await;
    for body in [
        "",
        "{}",
        "[]",
        "[{}]",
        "null",
        r#"{"filter":{}}"#,
        r#"{"dry_run":true}"#,
        r#"{"filter":{"limit":5}}"#,
        r#"{"all":false}"#,
    ] {
        let answer = admin.post("/api/v1/events/replay", JSON, body).await;
        assert_eq!(status_of(&answer), "400", "{body}: {answer}");
        assert!(answer.contains("bad_request"), "{answer}");
    }
    for body in [r#" {"all":true,"dry_run":true}"#, r#"{"filter":{"source":"github"}}"#] {
        let answer = admin.post("/api/v1/events/replay", JSON, body).await;
        assert_eq!(status_of(&answer), "200", "{body}: {answer}");
    }
    admin.stop().await;
}

#[tokio::test]
async fn the_commands_tell_a_missing_token_from_a_wrong_one() {
    let admin = Running::start_with(Some("s3cret-s3cret-s3cret")).await;
    let missing = admin.client().get::<dto::Status>("/api/v1/status").await.unwrap_err();
    assert_eq!(missing.to_string(), "a token is required: --token-env NAME");
    let wrong = AdminArgs {
        admin: format!("http://{}", admin.address).parse().unwrap(),
        // Whatever it holds, it is not the token.
        token_env: Some("PATH".to_owned()),
    };
    let wrong = AdminClient::new(&wrong).unwrap();
    let refused = wrong.get::<dto::Status>("/api/v1/status").await.unwrap_err();
    assert!(refused.to_string().starts_with("the token was refused"), "{refused}");
    admin.stop().await;
}

#[tokio::test]
async fn an_unknown_event_is_not_found_by_any_verb() {
    let admin = Running::start().await;
    let client = admin.client();
    let path = "/api/v1/events/01900000-0000-7000-8000-000000000000";
    let shown = client.get::<dto::EventDetail>(path).await.unwrap_err();
    assert!(shown.to_string().contains("no event with this id"), "{shown}");
    for verb in ["replay", "discard"] {
        let answer = admin.post(&format!("{path}/{verb}"), JSON, "").await;
        assert_eq!(status_of(&answer), "404", "{answer}");
    }
    admin.stop().await;
}

/// Nobody listens there.
fn app() -> UpstreamSettings {
    UpstreamSettings {
        name: UpstreamName::new("app"),
        remote: Remote::plain("http://127.0.0.1:9".parse().unwrap()),
        concurrency: 16,
        rate: None,
        burst: None,
        timeout: Duration::from_secs(5),
        retry: Retry::default(),
        signature: SignaturePolicy::Auto,
        preserve_host: false,
    }
}

#[tokio::test]
async fn an_upstream_is_paused_and_resumed_and_shown() {
    let admin = Running::forwarding(None, vec![app()]).await;
    let client = admin.client();
    let list = async || {
        client
            .get::<dto::Upstreams>("/api/v1/upstreams")
            .await
            .unwrap()
            .upstreams
    };
    let [shown] = &list().await[..] else {
        panic!("one upstream")
    };
    assert_eq!((shown.name.as_str(), shown.url.as_str()), ("app", "http://127.0.0.1:9"));
    assert!(!shown.paused && shown.order_saved && shown.share.is_none());
    assert_eq!((shown.breaker.as_str(), shown.concurrency), ("closed", 16));

    let nothing = dto::Nothing {};
    let answer: dto::Upstream = client.post("/api/v1/upstreams/app/pause", &nothing).await.unwrap();
    assert!(answer.paused && answer.order_saved);
    assert!(list().await[0].paused);
    assert!(admin.store.lane_record(&UpstreamName::new("app")).paused);
    let status: dto::Status = client.get("/api/v1/status").await.unwrap();
    assert!(status.upstreams[0].paused, "without waiting for a tick");
    // Twice is as good as once.
    client
        .post::<dto::Upstream>("/api/v1/upstreams/app/pause", &nothing)
        .await
        .unwrap();

    let answer: dto::Upstream = client.post("/api/v1/upstreams/app/resume", &nothing).await.unwrap();
    assert!(!answer.paused && answer.order_saved);
    assert!(!admin.store.lane_record(&UpstreamName::new("app")).paused);
    admin.stop().await;
}

#[tokio::test]
async fn orders_to_upstreams_are_changes_like_others() {
    let admin = Running::forwarding(None, vec![app()]).await;
    let path = "/api/v1/upstreams/app/pause";
    let foreign = "Origin: http://evil.test\r\nContent-Type: application/json\r\n";
    for (answer, status, code) in [
        (admin.get(path).await, "405", "method_not_allowed"),
        (admin.post(path, "", "{}").await, "415", "not_json"),
        (admin.post(path, foreign, "{}").await, "403", "foreign_origin"),
        (admin.post(path, JSON, r#"{"for":"1h"}"#).await, "400", "bad_request"),
        (
            admin.post("/api/v1/upstreams/ap/pause", JSON, "").await,
            "404",
            "no_such_upstream",
        ),
    ] {
        assert_eq!(status_of(&answer), status, "{answer}");
        assert!(answer.contains(code), "{answer}");
    }
    let unknown = admin.post("/api/v1/upstreams/ap/resume", JSON, "").await;
    assert!(unknown.contains("did you mean `app`?"), "{unknown}");
    assert!(!admin.store.lane_record(&UpstreamName::new("app")).paused);
    admin.stop().await;
}

#[tokio::test]
async fn an_order_that_the_store_does_not_take_is_not_called_done() {
    let admin = Running::forwarding(None, vec![app()]).await;
    admin.store.clone().close().await;
    let answer = admin.post("/api/v1/upstreams/app/pause", JSON, "").await;
    assert_eq!(status_of(&answer), "503", "{answer}");
    for part in [
        "not_recorded",
        "app is paused",
        "until a restart",
        "the store is closing",
    ] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
    admin.stop().await;
}

fn open(directory: &std::path::Path, clock: &Clock) -> Store {
    Store::open_embedded(
        StoreSettings::embedded(directory.join("store")),
        vec![LaneSettings {
            upstream: UpstreamName::new("app"),
            units: 16,
        }],
        clock.clone(),
        Box::new(|_| ()),
    )
    .unwrap()
}
