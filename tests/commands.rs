//! The commands that talk to a running server, as a person or a program runs them: the real executable against an admin
//! listener over a real store.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use hooksluice::admin::{Admin, AdminSettings};
use hooksluice::forward::Forwarder;
use hooksluice::id::{EventId, SourceName, UpstreamName};
use hooksluice::key::{self, DedupeRule, IdMissing, Part};
use hooksluice::learn::Learners;
use hooksluice::reload::Reloads;
use hooksluice::request::{RawRequest, RequestHead};
use hooksluice::secret::Secret;
use hooksluice::store::model::{Finished, NewEvent, Next, Outcome};
use hooksluice::store::settings::{LaneSettings, StoreSettings};
use hooksluice::store::{Feed, Store};
use hooksluice::telemetry::metrics::Metrics;
use hooksluice::time::{Clock, Timestamp};
use hooksluice::verify::sign::SignInput;
use hooksluice::verify::{SourceSecret, Verified, Verifier, VerifierOptions, presets};

const TOKEN: &str = "the-admin-token";
const SECRET: &str = "the-signing-secret-of-these-tests";
const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

struct Server {
    address: SocketAddr,
    store: Store,
    feed: Feed,
    shutting_down: CancellationToken,
    stop: CancellationToken,
    tasks: TaskTracker,
    _directory: tempfile::TempDir,
}

impl Server {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let settings = StoreSettings::embedded(directory.path().join("store"));
        let app = UpstreamName::new("app");
        let clock = Clock::manual(NOW);
        let lane = LaneSettings {
            upstream: app.clone(),
            units: 16,
        };
        let store = Store::open(settings, vec![lane], clock.clone(), Box::new(|_| ()))
            .await
            .unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // The tests attempt dispatches themselves.
        let idle = Forwarder::start(
            Vec::new(),
            [],
            store.clone(),
            Metrics::new(),
            clock.clone(),
            TaskTracker::new(),
        );
        let settings = AdminSettings {
            listen: address,
            token: Some(Secret::new(TOKEN)),
            hosts: Vec::new(),
        };
        let reloads = Reloads::new(clock.now()).0;
        let admin = Admin::new(
            settings,
            idle,
            store.clone(),
            reloads.clone(),
            Learners::new(clock.clone(), reloads, TaskTracker::new()),
            Metrics::new(),
            clock,
        );
        let (shutting_down, stop, tasks) = (admin.shutting_down(), CancellationToken::new(), TaskTracker::new());
        tasks.spawn(admin.serve(listener, stop.clone()));
        Self {
            address,
            feed: store.feed(&app).unwrap(),
            store,
            shutting_down,
            stop,
            tasks,
            _directory: directory,
        }
    }

    /// Runs the executable with these arguments, and whatever reaches the admin listener.
    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_hooksluice"))
            .args(arguments)
            .args([
                "--admin",
                &format!("http://{}", self.address),
                "--token-env",
                "TEST_TOKEN",
            ])
            .env("TEST_TOKEN", TOKEN)
            .output()
            .unwrap()
    }

    /// What it printed, when all went well.
    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[arguments, &["--json"]].concat())).unwrap()
    }

    async fn append(&self, id: &str, body: &'static [u8]) -> EventId {
        let request = verified(id, body);
        let rule = DedupeRule {
            parts: vec![Part::Id],
            id_missing: IdMissing::Reject,
            hold_same_content: false,
            body_varies: false,
        };
        let event = NewEvent {
            source: SourceName::new("shop"),
            upstreams: [UpstreamName::new("app")].into(),
            key: key::dedupe_key(&request, &rule).unwrap(),
            content: None,
            body_mark: key::body_mark(&request),
            request,
            awaited: false,
        };
        self.store.append(event).await.unwrap().event()
    }

    /// Attempts the next dispatch, which the upstream refuses for good.
    async fn die(&mut self) {
        let finished = Finished {
            reply: None,
            lease: self.feed.next().await.unwrap(),
            outcome: Outcome::Refused {
                status: StatusCode::GONE,
            },
            started_at: NOW,
            took: Duration::from_millis(3),
            excerpt: Bytes::from_static(b"no such hook"),
        };
        self.store.settle(finished, Next::Dead).await.unwrap();
    }

    async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.store.close().await;
    }
}

/// A request that a real verifier let through.
fn verified(id: &str, body: &'static [u8]) -> hooksluice::verify::VerifiedRequest {
    let secret = SourceSecret::new(Secret::new(SECRET));
    let record = presets::find("hmac").unwrap();
    let verifier = Verifier::new(record, vec![secret], VerifierOptions::default()).unwrap();
    let (method, target) = (Method::POST, "/hooks?token=hidden".parse().unwrap());
    let mut headers = HeaderMap::new();
    headers.insert("x-delivery-id", HeaderValue::from_bytes(id.as_bytes()).unwrap());
    headers.insert("authorization", HeaderValue::from_static("Bearer hidden"));
    let signature = verifier
        .sign(&SignInput {
            method: &method,
            target: &target,
            authority: None,
            headers: &headers,
            body,
            now: NOW,
            secret_index: None,
        })
        .unwrap();
    headers.extend(
        signature
            .into_iter()
            .map(|(name, value): (HeaderName, HeaderValue)| (Some(name), value)),
    );
    let request = RawRequest {
        head: RequestHead {
            method,
            target,
            authority: Some("hooks.example.com".to_owned()),
            headers,
            client: [192, 0, 2, 1].into(),
            received_at: NOW,
        },
        body: Bytes::from_static(body),
    };
    match verifier.verify(request) {
        Ok(Verified::Event(request)) => request,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_event_is_found_shown_replayed_and_discarded() {
    let mut server = Server::start().await;
    let id = server.append("evt_1", b"{\"total\":1.10}").await.to_string();
    server.die().await;

    let status = server.text(&["status"]);
    assert!(status.contains("app: 1 dead"), "{status}");
    assert!(
        status.contains("hooksluice events replay --state dead --upstream app"),
        "{status}"
    );

    let list = server.text(&["events", "list", "--state", "dead"]);
    assert!(
        list.contains(&id) && list.contains("evt_1") && list.contains("app dead (1)"),
        "{list}"
    );
    assert_eq!(
        server.json(&["events", "list", "--state", "pending"])["events"],
        Value::Array(vec![])
    );

    let shown = server.text(&["events", "show", &id]);
    assert!(
        shown.contains("refused 410") && shown.contains("no such hook"),
        "{shown}"
    );
    assert!(shown.contains("{\"total\":1.10}"), "{shown}");
    assert!(!shown.contains("hidden"), "{shown}");
    assert_eq!(
        server.run(&["events", "show", &id, "--body"]).stdout,
        b"{\"total\":1.10}"
    );

    let counted = server.text(&["events", "replay", "--state", "dead", "--dry-run"]);
    assert_eq!(counted, "1 dispatch of 1 event would be pending again\n");
    let replayed = server.text(&["events", "replay", "--state", "dead"]);
    assert_eq!(replayed, "1 dispatch of 1 event pending again\n");
    server.die().await;
    assert_eq!(server.json(&["events", "replay", &id])["dispatches"], 1);
    server.die().await;
    assert_eq!(server.text(&["events", "discard", &id]), "1 dispatch discarded\n");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_sender_wrote_drives_no_terminal() {
    let server = Server::start().await;
    // The value of a header may hold C1 controls as UTF-8; a terminal takes U+009B for the start of a command.
    let id = server.append("evt\u{9b}31m", b"\x1b[2J\r\n").await.to_string();
    for arguments in [
        &["events", "list"][..],
        &["events", "list", "--json"],
        &["events", "show", &id],
        &["events", "show", &id, "--json"],
    ] {
        let shown = server.text(arguments);
        assert!(
            shown.chars().all(|c| c == '\n' || !c.is_control()),
            "{arguments:?}: {shown:?}"
        );
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exit_codes_tell_what_happened() {
    let server = Server::start().await;
    let code = |arguments: &[&str]| server.run(arguments).status.code();
    assert_eq!(code(&["health"]), Some(0));
    assert_eq!(server.json(&["health"])["ready"], true);
    assert_eq!(
        code(&["events", "show", "01900000-0000-7000-8000-000000000000"]),
        Some(1)
    );
    assert_eq!(code(&["events", "show", "../../metrics"]), Some(1));
    assert_eq!(code(&["events", "list", "--state", "ded"]), Some(2));
    assert_eq!(code(&["events", "replay"]), Some(2));
    server.shutting_down.cancel();
    assert_eq!(code(&["health"]), Some(1));
    // About to stop is no reason to be killed.
    assert_eq!(code(&["health", "--live"]), Some(0));
    assert_eq!(server.json(&["health", "--live"])["live"], true);

    let denied = Command::new(env!("CARGO_BIN_EXE_hooksluice"))
        .args(["status", "--admin", &format!("http://{}", server.address)])
        .output()
        .unwrap();
    assert_eq!(denied.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&denied.stderr).contains("a token is required: --token-env NAME"),
        "{denied:?}"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_and_replays_go_past_one_page() {
    let mut server = Server::start().await;
    for n in 0..120 {
        server.append(&format!("evt_{n}"), b"{}").await;
    }
    for _ in 0..120 {
        server.die().await;
    }
    let all = server.json(&["events", "list", "--limit", "1000"]);
    assert_eq!(all["events"].as_array().map(Vec::len), Some(120));
    let some = server.json(&["events", "list", "--limit", "7"]);
    let cursor = some["next_cursor"].as_str().unwrap();
    let rest = server.json(&["events", "list", "--limit", "1000", "--cursor", cursor]);
    assert_eq!(rest["events"].as_array().map(Vec::len), Some(113));
    let replayed = server.json(&["events", "replay", "--all", "--rate", "1000/s"]);
    let expected: BTreeMap<&str, Value> = [
        ("dry_run", false.into()),
        ("events", 120.into()),
        ("dispatches", 120.into()),
        ("busy", 0.into()),
    ]
    .into();
    assert_eq!(replayed, serde_json::to_value(expected).unwrap());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tail_shows_what_was_there_and_what_arrives() {
    let server = Server::start().await;
    for n in 0..3 {
        server.append(&format!("early_{n}"), b"{}").await;
    }
    let mut tail = Command::new(env!("CARGO_BIN_EXE_hooksluice"))
        .args(["tail", "-n", "2", "--json", "--token-env", "TEST_TOKEN"])
        .args(["--admin", &format!("http://{}", server.address)])
        .env("TEST_TOKEN", TOKEN)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (shown, lines) = std::sync::mpsc::sync_channel(10);
    let output = BufReader::new(tail.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        for line in output.lines() {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            shown.send(event["delivery_id"].as_str().unwrap().to_owned()).unwrap();
        }
    });
    let next = || lines.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!([next(), next()], ["early_1", "early_2"]);
    server.append("late_0", b"{}").await;
    server.append("late_1", b"{}").await;
    assert_eq!([next(), next()], ["late_0", "late_1"]);
    tail.kill().unwrap();
    tail.wait().unwrap();
    reader.join().unwrap();
    server.stop().await;
}
