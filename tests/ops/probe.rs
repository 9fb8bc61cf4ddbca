//! `check --probe`: what is found, what is said about it, and that nothing is changed by looking.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Output;

use crate::harness::postgres::Postgres;
use crate::harness::redis::Redis;
use crate::harness::server::{free_address, program};
use crate::harness::{Setup, Stage, Upstream, sign};

fn probe(setup: &Setup, text: &str, words: &[&str]) -> Output {
    let config = setup.directory().join("probed.toml");
    fs::write(&config, text).unwrap();
    let mut command = program();
    command.args(["check", "--probe", "-c"]).arg(config).args(words);
    setup.set_environment(&mut command);
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!said.contains(sign::SECRET), "{said}");
    said
}

/// Exit code and words.
#[track_caller]
fn found(output: &Output, code: i32, parts: &[&str]) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is missing in\n{said}");
    }
    // Whoever is told that something is wrong is told what to do.
    let lines: Vec<_> = said.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("fail ") || line.starts_with("warn ") {
            assert!(lines[at + 1].contains("help: "), "{said}");
        }
    }
}

fn names(directory: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(directory).unwrap();
    files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn beside_a_running_server_everything_is_as_it_should_be() {
    let stage = Stage::new(|setup| setup.plain());
    stage.accept(&sign::plain("/hooks/plain", "a", b"{}"));
    let (listen, admin) = (stage.server.address(), stage.server.admin());
    let text = stage
        .setup
        .text()
        .replacen("127.0.0.1:0", &listen.to_string(), 1)
        .replacen("127.0.0.1:0", &admin.to_string(), 1);
    let before = names(&stage.setup.store());
    let output = probe(&stage.setup, &text, &[]);
    found(
        &output,
        0,
        &[
            "a running server has it open",
            &format!("{listen} is taken, and a hooksluice is running"),
            &format!("{admin} is taken, and a hooksluice is running"),
            "takes connections",
            "is writable",
        ],
    );
    assert_eq!(names(&stage.setup.store()), before);
    // No request was sent, and the store goes on.
    assert_eq!(stage.upstream.received().len(), 1);
    stage.accept(&sign::plain("/hooks/plain", "b", b"{}"));
}

#[test]
fn what_is_away_is_said_with_what_to_do_and_nothing_is_made() {
    let nobody = free_address();
    let setup = Setup::for_address(nobody).plain();
    let output = probe(&setup, &setup.text(), &[]);
    found(
        &output,
        1,
        &[
            "upstreams.app.url",
            "its events wait in the store",
            "will be made in",
            "is free",
        ],
    );
    assert!(!setup.store().exists());
    let output = probe(&setup, &setup.text(), &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let probes = json["probes"].as_array().unwrap();
    let app = probes.iter().find(|probe| probe["key"] == "upstreams.app.url").unwrap();
    assert_eq!(app["verdict"], "fail");
    assert!(app["help"].is_string() && json["problems"].is_array(), "{json}");

    // Somebody else's port.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let setup = Setup::new(&Upstream::start()).plain();
    let taken = other.local_addr().unwrap().to_string();
    let text = setup.text().replacen("127.0.0.1:0", &taken, 1);
    found(&probe(&setup, &text, &[]), 1, &["is taken by another program"]);
    // A file that would not start is not probed.
    found(&probe(&setup, "listen = 1", &[]), 1, &["listen"]);
}

#[test]
fn redis_is_asked_whether_it_would_do_and_keeps_no_key_of_it() {
    let redis = Redis::start();
    let upstream = Upstream::start();
    let with = |url: &str| Setup::new(&upstream).redis(url, "namespace = \"shop\"").plain();
    let setup = with(&redis.url());
    redis.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    found(
        &probe(&setup, &setup.text(), &[]),
        0,
        &["Redis 7.0 or newer", "evicts no keys", "may write"],
    );
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    found(
        &probe(&setup, &setup.text(), &[]),
        0,
        &["maxmemory-policy is allkeys-lru", "noeviction"],
    );
    assert!(redis.keys().is_empty());
    redis.command(&[
        "ACL",
        "SETUSER",
        "reader",
        "on",
        ">reader-password",
        "~*",
        "+@all",
        "-@write",
    ]);
    let reader = with(&format!("redis://reader:reader-password@{}", redis.address()));
    found(
        &probe(&reader, &reader.text(), &[]),
        1,
        &["a write under `hooksluice:` is refused", "ACL SETUSER"],
    );
    let wrong = with(&format!("redis://reader:wrong-password@{}", redis.address()));
    let output = probe(&wrong, &wrong.text(), &[]);
    found(&output, 1, &["refused the log-in"]);
    assert!(!said(&output).contains("wrong-password"));
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for() {
    // Takes connections, and never a byte of them.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", mute.local_addr().unwrap());
    let setup = Setup::new(&Upstream::start())
        .redis(&url, "namespace = \"shop\"")
        .plain();
    found(
        &probe(&setup, &setup.text(), &[]),
        1,
        &["dedupe.redis.url", "no answer within 5 s"],
    );
}

#[test]
fn postgres_is_asked_whether_it_would_do_and_no_table_is_made() {
    let postgres = Postgres::shared();
    let database = postgres.database();
    let upstream = Upstream::start();
    let setup = Setup::new(&upstream).postgres(&database.url()).plain();
    found(
        &probe(&setup, &setup.text(), &[]),
        0,
        &[
            "connected: PostgreSQL",
            "the first start makes its tables",
            "synchronous_commit",
            "clock",
        ],
    );
    let made = database.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'hooksluice'");
    assert_eq!(made.trim(), "0");
    setup.start().stop();
    found(&probe(&setup, &setup.text(), &[]), 0, &["schema "]);
    database.sql("UPDATE hooksluice.meta SET version = 99");
    found(&probe(&setup, &setup.text(), &[]), 1, &["written by a newer version"]);
    let away = Setup::new(&upstream)
        .postgres(&format!("postgres://nobody@{}/none", free_address()))
        .plain();
    found(
        &probe(&away, &away.text(), &[]),
        1,
        &["the database cannot be used", "pg_hba.conf"],
    );
}
