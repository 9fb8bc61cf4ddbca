//! What people see and say of calls: the admin API and the commands.

use std::process::Output;

use crate::ground::{App, Ground, NOBODY_KNOWS, Site, assert_problem, is_replay, job, json, records};
use crate::harness::server::program;
use crate::harness::{Answer, Server};

on_both_stores! {
    a_person_releases_a_key,
    a_person_gives_the_answer,
    only_what_nobody_knows_is_resolved,
    status_and_commands_show_what_needs_a_person,
}

fn command(server: &Server, words: &[&str]) -> Output {
    let mut command = program();
    command.arg("idempotency").args(words);
    command.args(["--admin", &format!("http://{}", server.admin())]);
    command.output().unwrap()
}

#[track_caller]
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A server with one call of which nobody knows, and the name of its record.
fn ambiguous(ground: &Ground) -> (App, Site, String) {
    let app = App::answering(|number, _| match number {
        1 => Answer::Close,
        _ => json(202, &format!("{{\"id\":\"job_{number}\"}}")),
    });
    let server = Site::open(ground.setup(&app.upstream, "").allow_log(NOBODY_KNOWS));
    assert_problem(&server.send(&job("k", "{}")), 504, "outcome-unknown");
    let record = records(&server, "ambiguous")[0]["record"].as_str().unwrap().to_owned();
    assert!(record.starts_with("jobs/"), "{record}");
    (app, server, record)
}

fn a_person_releases_a_key(ground: &Ground) {
    let (app, server, record) = ambiguous(ground);
    let text = said(&command(&server, &["resolve", &record, "--release"]));
    assert!(text.contains("released"), "{text}");
    assert!(records(&server, "ambiguous").is_empty());
    let answer = server.send(&job("k", "{}"));
    assert_eq!((answer.status, is_replay(&answer)), (202, false));
    assert_eq!(answer.text(), "{\"id\":\"job_2\"}");
    assert_eq!(app.made(), 2);
}

fn a_person_gives_the_answer(ground: &Ground) {
    let (app, server, record) = ambiguous(ground);
    let words = [
        "resolve",
        &record,
        "--status",
        "201",
        "--content-type",
        "application/json",
        "--body",
        "{\"id\":7}",
    ];
    let text = said(&command(&server, &words));
    assert!(text.contains("its repetitions get 201"), "{text}");
    let again = server.send(&job("k", "{}"));
    assert_eq!((again.status, again.text()), (201, "{\"id\":7}".to_owned()));
    assert!(is_replay(&again));
    assert_eq!(again.header("Content-Type"), Some("application/json"));
    assert_problem(&server.send(&job("k", "{ }")), 422, "idempotency-key-reused");
    assert_eq!(app.made(), 1);
    let shown = said(&command(&server, &["show", &record]));
    assert!(
        shown.contains("answer    201") && shown.contains("{\"id\":7}"),
        "{shown}"
    );
}

fn only_what_nobody_knows_is_resolved(ground: &Ground) {
    let app = App::start();
    let server = ground.start(&app.upstream, "");
    server.send(&job("k", "{}"));
    let record = records(&server, "done")[0]["record"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/idempotency/{record}/resolve");
    for (path, body, status, code) in [
        (path.as_str(), "{\"release\":true}", 409, "not_ambiguous"),
        (path.as_str(), "{}", 400, "bad_request"),
        (
            path.as_str(),
            "{\"release\":true,\"answer\":{\"status\":200}}",
            400,
            "bad_request",
        ),
        (path.as_str(), "{\"answer\":{\"status\":99}}", 400, "bad_request"),
        (
            "/api/v1/idempotency/jobs/00/resolve",
            "{\"release\":true}",
            404,
            "no_such_record",
        ),
        (
            &format!("/api/v1/idempotency/jobs/{}/resolve", "0".repeat(64)),
            "{\"release\":true}",
            404,
            "no_such_record",
        ),
    ] {
        let answer = server.admin_post(path, body);
        assert_eq!(answer.status, status, "{path} {body}: {answer:?}");
        assert_eq!(answer.json()["error"]["code"], code);
    }
    let shown = server.admin_get(&format!("/api/v1/idempotency/{record}"));
    assert_eq!(shown.json()["answer"]["body_text"], "{\"id\":\"job_1\"}");
    assert_eq!(shown.json()["state"], "done");
    assert!(is_replay(&server.send(&job("k", "{}"))));
}

/// A time of the database is shown by this machine's clock, and how far the two are apart is measured anew all the time.
#[track_caller]
fn assert_same_moment(one: &str, other: &str) {
    let [one, other] = [one, other].map(|text| text.parse::<jiff::Timestamp>().unwrap());
    assert!(one.duration_since(other).unsigned_abs().as_secs() < 1, "{one} {other}");
}

fn status_and_commands_show_what_needs_a_person(ground: &Ground) {
    let (_app, server, record) = ambiguous(ground);
    assert_eq!(server.send(&job("fine", "{}")).status, 202);
    let mut status = program();
    status.args(["status", "--admin", &format!("http://{}", server.admin())]);
    let status = said(&status.output().unwrap());
    assert!(status.contains("1 ambiguous"), "{status}");
    assert!(
        status.contains("hooksluice idempotency list --state ambiguous"),
        "{status}"
    );
    let listed = said(&command(&server, &["list", "--state", "ambiguous"]));
    assert!(listed.contains(&record) && !listed.contains("fine"), "{listed}");
    let listed = said(&command(&server, &["list", "--key", "fine", "--json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["records"].as_array().unwrap().len(), 1);
    assert_eq!(listed["records"][0]["state"], "done");
    assert_eq!(listed["records"][0]["status"], 202);
    let shown = said(&command(&server, &["show", &record]));
    assert!(
        shown.contains(&format!("hooksluice idempotency resolve {record} --release")),
        "{shown}"
    );
    let listed = records(&server, "ambiguous");
    let accepted = listed[0]["accepted_at"].as_str().unwrap();
    assert!(shown.contains("key       k\n"), "{shown}");
    let line = shown.lines().find_map(|line| line.strip_prefix("accepted  "));
    assert_same_moment(line.unwrap(), accepted);
    let json: serde_json::Value = serde_json::from_str(&said(&command(&server, &["show", &record, "--json"]))).unwrap();
    assert_eq!(json["key"], listed[0]["key"]);
    assert_same_moment(json["accepted_at"].as_str().unwrap(), accepted);
    let neither = command(&server, &["resolve", &record]);
    assert_eq!(neither.status.code(), Some(2));
    let neither = String::from_utf8(neither.stderr).unwrap();
    assert!(
        neither.contains("--release") && neither.contains("--status"),
        "{neither}"
    );
    assert_eq!(
        said(&command(&server, &["list", "--route", "none"])),
        "no record matches\n"
    );
}
