//! A sender that gives up: people hear of it at half of its limit, counted as it counts, and strangers cannot make them.

use std::process::Command;
use std::time::Duration;

use crate::harness::sign::{self, SECRET};
use crate::harness::{Answer, Request, Server, Setup, Stage, Upstream, eventually};

const WARNING: &str = "the sender will stop sending";

/// A provider that stops after `rule`, and a source of it.
fn shop(setup: Setup, rule: &str, facts: &str, lines: &str) -> Setup {
    setup
        .table_after(&format!(
            "[providers.shop]\nextends = \"hmac\"\ndisable_after = {rule}\n{facts}\n"
        ))
        .source("shop", "shop", SECRET, lines)
}

const DOCUMENTED: &str =
    "sender_facts_confidence = \"documented\"\nsender_facts_source = \"https://shop.example/docs\"";

fn delivery(id: &str) -> Request {
    sign::plain("/hooks/shop", id, b"{}")
}

fn used(server: &Server) -> f64 {
    server.metric("hooksluice_sender_patience_used_ratio", &["source=\"shop\""])
}

fn status(server: &Server) -> String {
    let mut command: Command = crate::harness::server::program();
    command.args(["status", "--admin", &format!("http://{}", server.admin())]);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// One delivery in an hour is taken; the others are answered 429.
fn with_a_rate(rule: &str, facts: &str, allowed: &str) -> Stage {
    let stage = Stage::new(|setup| shop(setup, rule, facts, "rate = \"1/h\"").allow_log(allowed));
    assert_eq!(stage.server.send(&delivery("first")).status, 200);
    // What comes after it stores nothing.
    stage.server.wait_for_metric("hooksluice_events_stored_total", &[], 1.0);
    stage
}

#[test]
fn half_of_the_failures_that_a_sender_takes_are_told_once_with_what_to_do() {
    let stage = with_a_rate("{ failures = 4 }", DOCUMENTED, WARNING);
    let server = &stage.server;
    assert_eq!(used(server), 0.0);
    assert_eq!(server.send(&delivery("a")).status, 429);
    assert_eq!(used(server), 0.25);
    assert!(!server.log_text().contains(WARNING));
    assert!(!status(server).contains("its sender"));
    assert_eq!(server.send(&delivery("b")).status, 429);
    let line = server.wait_for_log(&[WARNING, "\"source\":\"shop\"", "4 failures in a row"]);
    assert!(
        line.contains("\"ERROR\"") && line.contains("\"used_percent\":50"),
        "{line}"
    );
    assert_eq!(used(server), 0.5);
    let said = status(server);
    assert!(
        said.contains("shop: its sender stops sending after 4 failures in a row, and 50 % of that is used"),
        "{said}"
    );
    for id in ["c", "d"] {
        assert_eq!(server.send(&delivery(id)).status, 429);
    }
    assert_eq!(used(server), 1.0);
    assert!(status(server).contains("that is reached"));
    assert_eq!(server.log_text().matches(WARNING).count(), 1);
    // A success is a success to the sender, also one that brings nothing new.
    eventually("the first to be known as a duplicate", || {
        (server.send(&delivery("first")).status == 200).then_some(())
    });
    assert_eq!(used(server), 0.0);
    assert!(!status(server).contains("its sender"));
}

#[test]
fn what_a_stranger_can_cause_warns_nobody_and_is_shown_as_what_it_is() {
    let stage = with_a_rate("{ failures = 4 }", DOCUMENTED, "nothing is allowed");
    let server = &stage.server;
    for number in 0..50 {
        let id = format!("stranger-{number}");
        stage.refuse(&Request::post("/hooks/shop", "{}"));
        stage.refuse(&Request::post("/hooks/shop", "{}").header("X-Signature", "nonsense"));
        assert_eq!(server.send(&Request::new("PUT", "/hooks/shop")).status, 405);
        assert!(
            !status_of_sender(server).contains("\"possibly_used_percent\":25"),
            "{id}"
        );
    }
    assert_eq!(status_of_sender(server), "0 0");
    // With a signature of the right form it may be the sender, whose secret we do not have.
    let guess = format!("sha256={}", "ab".repeat(32));
    for _ in 0..3 {
        stage.refuse(
            &Request::post("/hooks/shop", "{}")
                .header("X-Delivery-Id", "guess")
                .header("X-Signature", &guess),
        );
    }
    assert_eq!(status_of_sender(server), "0 75");
    assert_eq!(used(server), 0.0);
    assert!(!server.log_text().contains(WARNING));
    let said = status(server);
    assert!(
        said.contains("If the requests that were refused or failed unread are the sender's, 75 %"),
        "{said}"
    );
}

/// What is used and what may be, in percent.
fn status_of_sender(server: &Server) -> String {
    let status = server.admin_get("/api/v1/status").json();
    let sender = &status["sources"][0]["sender"];
    format!("{} {}", sender["used_percent"], sender["possibly_used_percent"])
}

#[test]
fn a_hint_is_not_told_as_a_fact() {
    let stage = with_a_rate(
        "{ failures = 2 }",
        "",
        "the sender may stop sending (its rule is not confirmed)",
    );
    assert_eq!(stage.server.send(&delivery("a")).status, 429);
    let line = stage.server.wait_for_log(&["may stop sending", "2 failures in a row"]);
    assert!(line.contains("\"WARN\""), "{line}");
    let said = status(&stage.server);
    assert!(
        said.contains("may stop sending after 2 failures in a row (not confirmed)"),
        "{said}"
    );
}

#[test]
fn what_the_app_answers_a_waiting_sender_counts_and_so_does_a_sender_that_left() {
    let upstream = Upstream::scripted(|received| match received.header("X-Delivery-Id") {
        Some("good") => Answer::Status(200),
        Some("refused") => Answer::Status(404),
        Some("moved") => Answer::Status(302),
        _ => Answer::Hang,
    });
    let stage = Stage::with(upstream, |setup| {
        shop(setup, "{ failures = 100 }", DOCUMENTED, "reply = \"upstream\"").allow_log("attempt failed")
    });
    let server = &stage.server;
    for (id, status, ratio) in [
        ("refused", 404, 0.01),
        ("moved", 302, 0.02),
        ("good", 200, 0.0),
        ("refused", 404, 0.01),
    ] {
        assert_eq!(server.send(&delivery(id)).status, status, "{id}");
        assert_eq!(used(server), ratio, "{id}");
    }
    let mut connection = server.connect();
    connection.send(&delivery("hang").bytes());
    assert!(!connection.answers_within(Duration::from_millis(200)));
    drop(connection);
    eventually("its leaving to count", || (used(server) == 0.02).then_some(()));
}

#[test]
fn an_answer_after_the_sender_s_deadline_is_a_failure_where_the_deadline_is_documented() {
    for (facts, ratio) in [(DOCUMENTED, 0.01), ("", 0.0)] {
        let facts = format!("sender_deadline = \"300ms\"\n{facts}");
        let stage = Stage::new(|setup| shop(setup, "{ failures = 100 }", &facts, ""));
        let server = &stage.server;
        let bytes = delivery("slow").bytes();
        let (head, body) = bytes.split_at(bytes.len() - 2);
        let mut connection = server.connect();
        connection.send(head);
        // Its body takes longer than it gives us in all.
        assert!(!connection.answers_within(Duration::from_millis(400)));
        connection.send(body);
        assert_eq!(connection.read().status, 200);
        assert_eq!(used(server), ratio, "{facts}");
        assert_eq!(server.send(&delivery("in time")).status, 200);
        assert_eq!(used(server), 0.0);
    }
}
