//! Pausing and resuming an upstream: by the API, by the command, over restarts, and against an open breaker.

use std::process::Output;

use crate::harness::sign;
use crate::harness::{Answer, Request, Server, Setup, Stage, Upstream, client, eventually, server};

/// Runs `hooksluice ARGUMENTS` against the server.
fn run(server: &Server, arguments: &[&str]) -> Output {
    let admin = format!("http://{}", server.admin());
    let mut command = server::program();
    command.args(arguments).args(["--admin", &admin]);
    command.output().unwrap()
}

/// What it printed, when all went well.
#[track_caller]
fn text(server: &Server, arguments: &[&str]) -> String {
    let output = run(server, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// `app`, as the API shows it.
fn app(server: &Server) -> serde_json::Value {
    let answer = server.admin_get("/api/v1/upstreams");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["upstreams"][0].clone()
}

#[track_caller]
fn order(server: &Server, verb: &str) {
    let answer = server.admin_post(&format!("/api/v1/upstreams/app/{verb}"), "{}");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["paused"], verb == "pause");
    assert_eq!(answer.json()["order_saved"], true);
}

#[track_caller]
fn send(server: &Server, id: &str) {
    assert_eq!(server.send(&sign::plain("/hooks/plain", id, b"{}")).status, 200);
}

/// Waits until so many dispatches wait.
fn wait_for_backlog(server: &Server, count: u64) {
    eventually(&format!("{count} dispatches to wait"), || {
        (app(server)["backlog"] == count).then_some(())
    });
}

#[test]
fn a_paused_upstream_gets_nothing_and_loses_nothing_even_over_a_kill() {
    let Stage {
        mut server,
        setup,
        upstream,
    } = Stage::new(Setup::plain);
    order(&server, "pause");
    // What was answered is durable.
    server.kill();
    drop(server);

    let server = setup.start();
    assert_eq!(app(&server)["paused"], true);
    for id in ["one", "two", "three"] {
        send(&server, id);
    }
    wait_for_backlog(&server, 3);
    server.wait_for_metric("hooksluice_paused", &["upstream=\"app\""], 1.0);
    assert_eq!(server.admin_get("/readyz").status, 200, "sources go on accepting");
    server.stop();

    let server = setup.start();
    wait_for_backlog(&server, 3);
    assert!(upstream.received().is_empty());
    order(&server, "resume");
    let received = upstream.wait_for(3);
    assert!(received.iter().all(|received| received.attempt() == 1), "{received:?}");
    wait_for_backlog(&server, 0);
    server.stop();

    let server = setup.start();
    assert_eq!(app(&server)["paused"], false, "a resume is remembered too");
}

#[test]
fn an_attempt_that_runs_when_its_upstream_is_paused_ends_by_itself() {
    let upstream =
        Upstream::scripted(|_| Answer::After(std::time::Duration::from_millis(300), Answer::Status(200).into()));
    let stage = Stage::with(upstream, Setup::plain);
    send(&stage.server, "one");
    stage.upstream.wait_for(1);
    order(&stage.server, "pause");
    wait_for_backlog(&stage.server, 0);
    assert_eq!(app(&stage.server)["running"], 0);
    let events = stage.server.events("state=delivered");
    assert_eq!(events.len(), 1, "{events:?}");
}

#[test]
fn a_resume_closes_an_open_breaker() {
    let upstream = Upstream::scripted(|_| Answer::Status(500));
    let stage = Stage::with(upstream, |setup| {
        // So that only the breaker holds it up.
        setup
            .upstream("retry = { first = \"1ms\", max = \"1ms\" }")
            .plain()
            .allow_log("app")
    });
    send(&stage.server, "one");
    eventually("the breaker to open", || {
        (app(&stage.server)["breaker"] == "open").then_some(())
    });
    stage.upstream.set_script(|_| Answer::Status(200));
    order(&stage.server, "resume");
    assert_eq!(app(&stage.server)["breaker"], "closed");
    wait_for_backlog(&stage.server, 0);
}

#[test]
fn people_pause_and_resume_with_the_command() {
    let stage = Stage::new(Setup::plain);
    let server = &stage.server;
    let said = text(server, &["upstreams", "pause", "app"]);
    assert!(
        said.contains("app is paused") && said.contains("hooksluice upstreams resume app"),
        "{said}"
    );
    send(server, "one");
    wait_for_backlog(server, 1);

    let listed = text(server, &["upstreams"]);
    for part in [
        "UPSTREAM",
        "app",
        "paused",
        "closed",
        "all",
        &stage.upstream.address().to_string(),
    ] {
        assert!(listed.contains(part), "{part} is missing in {listed}");
    }
    let status = text(server, &["status"]);
    assert!(
        status.contains("app: paused, 1 wait. Go on: hooksluice upstreams resume app"),
        "{status}"
    );
    let json: serde_json::Value = serde_json::from_str(&text(server, &["upstreams", "--json"])).unwrap();
    assert_eq!(json["upstreams"][0]["paused"], true);

    let json: serde_json::Value =
        serde_json::from_str(&text(server, &["upstreams", "resume", "app", "--json"])).unwrap();
    assert_eq!(json["paused"], false);
    stage.upstream.wait_for(1);
    let said = text(server, &["upstreams", "resume", "app"]);
    assert!(said.starts_with("app goes on"), "{said}");
}

#[test]
fn an_upstream_that_does_not_exist_is_named_with_what_was_probably_meant() {
    let stage = Stage::new(Setup::plain);
    for verb in ["pause", "resume"] {
        let output = run(&stage.server, &["upstreams", verb, "aap"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.contains("no upstream `aap`") && said.contains("did you mean `app`?"),
            "{said}"
        );
        assert!(output.stdout.is_empty());
    }
    let output = run(&stage.server, &["upstreams", "pause"]);
    assert_eq!(output.status.code(), Some(2), "a name is missing");
    assert_eq!(app(&stage.server)["paused"], false);
}

#[test]
fn a_page_elsewhere_cannot_pause_an_upstream() {
    let stage = Stage::new(Setup::plain);
    let target = "/api/v1/upstreams/app/pause";
    let post = |lines: &[(&str, &str)]| {
        let mut request = Request::post(target, "{}").header("Host", "localhost");
        for (name, value) in lines {
            request = request.header(name, value);
        }
        client::try_exchange(stage.server.admin(), &request)
            .unwrap()
            .unwrap()
            .status
    };
    assert_eq!(post(&[("Content-Type", "text/plain")]), 415);
    assert_eq!(
        post(&[("Content-Type", "application/json"), ("Origin", "http://evil.test")]),
        403
    );
    assert_eq!(app(&stage.server)["paused"], false);
}
