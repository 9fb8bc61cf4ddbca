//! "The same again": decided from verified data, by the provider's documented habits.

use crate::harness::server::program;
use crate::harness::sign::{self, SECRET, hex, sha256};
use crate::harness::{Answer, Request, Setup, Stage, Upstream, eventually, unix_now};

/// A source whose id is looked up in the body.
const JSON_ID: &str = "[providers.json]\nkind = \"hmac\"\nhash = \"sha256\"\nsignature = [\"header:X-Signature\"]\n\
                       prefix = \"sha256=\"\nencoding = \"hex\"\npayload = \"{body}\"\n";

fn signed(target: &str, body: &[u8]) -> Request {
    Request::post(target, body).header(
        "X-Signature",
        format!("sha256={}", hex(&sha256(SECRET.as_bytes(), &[body]))),
    )
}

/// Waits until `count` requests have turned out to be duplicates.
#[track_caller]
fn duplicates(stage: &Stage, count: u32) {
    stage
        .server
        .wait_for_metric("hooksluice_duplicates_total", &[], f64::from(count));
}

// ID-02, ID-17
#[test]
fn a_redelivery_of_a_delivered_event_is_answered_counted_and_not_forwarded() {
    let stage = Stage::new(|setup| setup.github());
    let request = sign::github("/hooks/github", "id-02", b"{}");
    stage.accept(&request);
    let labels = ["state=\"delivered\""];
    stage.server.wait_for_metric("hooksluice_dispatches", &labels, 1.0);
    let again = stage.server.send(&request);
    assert_eq!(again.status, 200);
    assert_eq!(again.header("Hooksluice-Duplicate"), Some("true"));
    duplicates(&stage, 1);
    stage.upstream.only();
}

// ID-02
#[test]
fn a_redelivery_of_a_dead_event_brings_it_back_to_life() {
    let upstream = Upstream::scripted(|_| Answer::Status(500));
    let stage = Stage::with(upstream, |setup| {
        setup
            .upstream("retry = { first = \"50ms\", max = \"50ms\", max_attempts = 2 }")
            .github()
            .allow_log("app")
    });
    let request = sign::github("/hooks/github", "id-02-dead", b"{}");
    assert_eq!(stage.server.send(&request).status, 200);
    eventually("the dispatch to die", || {
        (stage.server.events("state=dead").len() == 1).then_some(())
    });
    stage.upstream.set_script(|_| Answer::Status(200));
    assert_eq!(stage.server.send(&request).status, 200);
    let received = stage.upstream.wait_for(3);
    assert_eq!(received[2].event_id(), received[0].event_id());
    let attempts: Vec<u32> = received.iter().map(crate::harness::Received::attempt).collect();
    assert_eq!(attempts, [1, 2, 3], "the number goes on");
    eventually("the event to be delivered", || {
        (stage.server.events("state=delivered").len() == 1).then_some(())
    });
    assert_eq!(stage.server.events("").len(), 1);
}

// ID-02
#[test]
fn a_redelivery_of_a_pending_event_adds_nothing() {
    let stage = Stage::new(|setup| {
        setup
            .upstream("retry = { first = \"300ms\", max = \"300ms\" }")
            .github()
            .allow_log("app")
    });
    stage.upstream.stop();
    let request = sign::github("/hooks/github", "id-02-pending", b"{}");
    for _ in 0..5 {
        assert_eq!(stage.server.send(&request).status, 200);
    }
    duplicates(&stage, 4);
    stage.upstream.start_again();
    stage.upstream.only();
}

// ID-03
#[test]
fn ids_are_remembered_for_as_long_as_the_provider_retries() {
    use hooksluice::verify::presets;
    let window = hooksluice::store::settings::StoreSettings::default().window;
    let outlasts = |name: &&str| {
        let horizon = presets::find(name).unwrap().retry_horizon();
        horizon.is_some_and(|horizon| horizon > window)
    };
    let patient: Vec<&str> = presets::names().into_iter().filter(outlasts).collect();
    assert!(patient.contains(&"adyen"), "{patient:?}");
    let upstream = Upstream::start();
    let setup = Setup::new(&upstream).source("adyen", "adyen", &"0123456789abcdef".repeat(4), "");
    let mut check = program();
    check.args(["check", "-c"]).arg(setup.write_config());
    setup.set_environment(&mut check);
    let said = String::from_utf8(check.output().unwrap().stdout).unwrap();
    assert!(said.contains("keys for 30d"), "{said}");
}

// ID-04, ID-12
#[test]
fn the_same_content_under_another_id_is_new_unless_it_is_to_be_held() {
    let stage = Stage::new(|setup| {
        setup
            .github()
            .source("held", "github", SECRET, "same_content = \"hold\"")
            .standard()
    });
    let body = br#"{"action":"labeled"}"#;
    stage.accept(&sign::github("/hooks/github", "A", body));
    stage.accept(&sign::github("/hooks/github", "B", body));
    stage.accept(&sign::github("/hooks/held", "A", body));
    assert_eq!(stage.server.send(&sign::github("/hooks/held", "B", body)).status, 200);
    let held = eventually("the event to be held", || {
        stage.server.events("source=held&state=held").pop()
    });
    assert_eq!(held["delivery_id"], "B");
    assert_eq!(stage.upstream.received().len(), 3);
    // A person lets it go.
    let path = format!("/api/v1/events/{}/replay", held["id"].as_str().unwrap());
    assert_eq!(stage.server.admin_post(&path, "{}").status, 200);
    assert_eq!(
        stage.upstream.wait_for(4)[3].header("Hooksluice-Delivery-Id"),
        Some("B")
    );
    // Where the id is signed, another id is a forgery.
    let t = unix_now();
    let digest = sign::standard_digest("A", t, body);
    stage.refuse(
        &Request::post("/hooks/standard", &body[..])
            .header("webhook-id", "B")
            .header("webhook-timestamp", t.to_string())
            .header("webhook-signature", format!("v1,{digest}")),
    );
}

// ID-05
#[test]
fn a_forged_request_cannot_use_an_id_up() {
    let stage = Stage::new(|setup| setup.github());
    let genuine = sign::github("/hooks/github", "id-05", b"{}");
    let mut forged = genuine.clone();
    forged.body = b"[]".to_vec();
    stage.refuse(&forged);
    stage.accept(&genuine);
    // Nor learn that the id is known.
    let refused = stage.refuse(&forged);
    assert_eq!(refused.header("Hooksluice-Duplicate"), None);
    std::thread::scope(|scope| {
        for round in 0..20 {
            let id = format!("id-05-{round}");
            let genuine = sign::github("/hooks/github", &id, b"{}");
            let mut forged = genuine.clone();
            forged.body = b"[]".to_vec();
            let server = &stage.server;
            scope.spawn(move || assert_eq!(server.send(&forged).status, 401));
            assert_eq!(server.send(&genuine).status, 200);
        }
    });
    stage.upstream.wait_for(21);
}

// ID-07
#[test]
fn without_an_id_the_content_is_the_key_for_a_while() {
    let stage = Stage::new(|setup| {
        setup
            .tables("[dedupe]\ndigest_window = \"2s\"")
            .plain()
            .source("other", "hmac", SECRET, "")
    });
    let request = signed("/hooks/plain", b"{\"no\":\"id\"}");
    stage.accept(&request);
    assert_eq!(stage.server.send(&request).status, 200);
    duplicates(&stage, 1);
    stage.accept(&signed("/hooks/other", b"{\"no\":\"id\"}"));
    std::thread::sleep(std::time::Duration::from_millis(2500));
    stage.accept(&request);
    assert_eq!(stage.upstream.received().len(), 3);
}

// ID-09
#[test]
fn what_is_no_id_is_treated_as_none_and_numbers_are_taken_as_written() {
    let stage = Stage::new(|setup| {
        setup
            .table_after(&format!("{JSON_ID}delivery_id = \"json:/checkout_sha\""))
            .source("json", "json", SECRET, "id_missing = \"digest\"")
    });
    let long = "x".repeat(1 << 20);
    for (body, id) in [
        (r#"{"checkout_sha":null}"#.to_owned(), None),
        (r#"{"other":1}"#.to_owned(), None),
        (r#"{"checkout_sha":{"a":1}}"#.to_owned(), None),
        (r#"{"checkout_sha":7}"#.to_owned(), Some("7")),
        (r#"{"checkout_sha":1.0}"#.to_owned(), Some("1.0")),
        (r#"not json at all"#.to_owned(), None),
        (r#"{"checkout_sha":"abc""#.to_owned(), None),
        (
            format!("{{\"checkout_sha\":\"{}\"}}", "0".repeat(40)),
            Some("0000000000000000000000000000000000000000"),
        ),
    ] {
        let received = stage.accept(&signed("/hooks/json", body.as_bytes()));
        assert_eq!(received.header("Hooksluice-Delivery-Id"), id, "{body}");
    }
    let request = signed("/hooks/json", format!("{{\"checkout_sha\":\"{long}\"}}").as_bytes());
    assert_eq!(stage.server.send(&request).status, 200);
    stage.upstream.wait_for(9);
    assert_eq!(stage.server.send(&request).status, 200);
    duplicates(&stage, 1);
}

// ID-11
#[test]
fn two_topics_of_one_shopify_event_are_two_events_and_a_retry_is_none() {
    let stage = Stage::new(|setup| setup.source("shopify", "shopify", SECRET, ""));
    let request = |webhook: &str, topic: &str| {
        let body = b"{\"id\":1}";
        let digest = sign::base64(&sha256(SECRET.as_bytes(), &[body]));
        Request::post("/hooks/shopify", &body[..])
            .header("X-Shopify-Event-Id", "event-1")
            .header("X-Shopify-Webhook-Id", webhook)
            .header("X-Shopify-Topic", topic)
            .header("X-Shopify-Hmac-Sha256", digest)
    };
    let first = stage.accept(&request("hook-1", "orders/create"));
    stage.accept(&request("hook-2", "orders/updated"));
    assert_eq!(stage.server.send(&request("hook-2", "orders/updated")).status, 200);
    duplicates(&stage, 1);
    assert_eq!(stage.upstream.received().len(), 2);
    assert_eq!(first.header("X-Shopify-Event-Id"), Some("event-1"));
    assert_eq!(first.header("X-Shopify-Webhook-Id"), Some("hook-1"));
}

// ID-13
#[test]
fn a_batch_whose_first_member_lacks_the_id_is_one_delivery_and_not_refused() {
    let stage = Stage::new(|setup| {
        setup
            .table_after(&format!("{JSON_ID}delivery_id = \"json:/0/sg_event_id\""))
            .source("json", "json", SECRET, "id_missing = \"digest\"")
    });
    let body = br#"[{"event":"unsubscribe"},{"sg_event_id":"b"},{"sg_event_id":"c"}]"#;
    stage.accept(&signed("/hooks/json", body));
    stage.accept(&signed("/hooks/json", br#"[{"sg_event_id":"b"},{"sg_event_id":"c"}]"#));
}

#[test]
fn a_required_id_that_is_missing_is_the_sender_s_mistake() {
    let stage = Stage::new(|setup| {
        setup
            .github()
            .source("plain", "hmac", SECRET, "id_missing = \"reject\"")
    });
    stage.leaves_nothing(|| {
        let answer = stage.server.send(&signed("/hooks/plain", b"{}"));
        assert_eq!(answer.status, 400);
    });
    let labels = ["source=\"plain\"", "reason=\"missing_id\""];
    assert_eq!(stage.server.metric("hooksluice_rejections_total", &labels), 1.0);
}

// ID-14
#[test]
fn a_slack_retry_with_new_time_and_signature_is_the_same_event() {
    let stage = Stage::new(|setup| setup.source("slack", "slack", SECRET, ""));
    let body = br#"{"event_id":"Ev1","team_id":"T1","type":"event_callback"}"#;
    let request = |t: i64, body: &[u8]| {
        let digest = hex(&sha256(
            SECRET.as_bytes(),
            &[b"v0:", t.to_string().as_bytes(), b":", body],
        ));
        Request::post("/hooks/slack", body)
            .header("X-Slack-Request-Timestamp", t.to_string())
            .header("X-Slack-Signature", format!("v0={digest}"))
    };
    let received = stage.accept(&request(unix_now() - 3, body));
    assert_eq!(received.header("Hooksluice-Delivery-Id"), Some("Ev1"));
    let retry = request(unix_now(), body)
        .header("X-Slack-Retry-Num", "1")
        .header("X-Slack-Retry-Reason", "http_timeout");
    assert_eq!(stage.server.send(&retry).status, 200);
    duplicates(&stage, 1);
    stage.accept(&request(unix_now(), b"{\"event_id\": broken"));
    assert_eq!(stage.upstream.received().len(), 2);
}

// ID-16
#[test]
fn an_id_is_a_key_and_never_a_path() {
    let stage = Stage::new(|setup| setup.standard());
    let ids = [
        "../../../../tmp/pwn",
        "..%2f..%2fx",
        "CON",
        ".",
        "a/b",
        "a%00b",
        "'; DROP TABLE event; --",
    ];
    for id in ids {
        let received = stage.accept(&sign::standard("webhook", "/hooks/standard", id, unix_now(), b"{}"));
        assert_eq!(received.header("webhook-id"), Some(id));
        let shown = stage
            .server
            .admin_get(&format!("/api/v1/events/{}", received.event_id()));
        assert_eq!(shown.json()["summary"]["delivery_id"], id);
    }
    assert_eq!(stage.server.events("").len(), ids.len());
    let outside: Vec<_> = std::fs::read_dir(stage.setup.directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !["hooksluice.toml", "log", "store"].contains(&name.as_str()))
        .collect();
    assert!(outside.is_empty(), "{outside:?}");
    for target in ["/api/v1/events/..%2f..%2fetc", "/api/v1/events/%00", "/api/v1/events/x"] {
        let status = stage.server.admin_get(target).status;
        assert!((400..500).contains(&status), "{target}: {status}");
    }
}

// DD-01
#[test]
fn of_many_copies_at_one_moment_exactly_one_is_an_event() {
    let stage = Stage::new(|setup| setup.github());
    for round in 0..20 {
        let request = sign::github("/hooks/github", &format!("dd-01-{round}"), b"{}");
        let barrier = std::sync::Barrier::new(64);
        std::thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    let mut connection = stage.server.connect();
                    barrier.wait();
                    connection.send(&request.bytes());
                    assert_eq!(connection.read().status, 200);
                });
            }
        });
    }
    duplicates(&stage, 20 * 63);
    assert_eq!(stage.upstream.wait_for(20).len(), 20);
    assert_eq!(stage.server.events("").len(), 20);
}
