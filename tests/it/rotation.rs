//! Which secret vouched, and whether an old one can go: known after a restart, and at every replica (SE-08).

use std::process::Command;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::harness::postgres::Postgres;
use crate::harness::sign::{SECRET, hex, sha256};
use crate::harness::{Request, Server, Setup, Upstream, eventually, unix_now};

const OLD: &str = "old-secret-0123456789abcdef";

fn setup(upstream: &Upstream) -> Setup {
    let mut setup = Setup::new(upstream);
    let (old, new) = (setup.environment_variable(OLD), setup.environment_variable(SECRET));
    setup.table_after(&format!(
        "[sources.plain]\npath = \"/hooks/plain\"\nprovider = \"hmac\"\nupstreams = [\"app\"]\n\
         secrets = [{{ env = \"{old}\", label = \"older\" }}, {{ env = \"{new}\", label = \"newer\" }}]\n\
         secret_unused_after = \"14d\""
    ))
}

fn send(server: &Server, key: &str, id: &str) {
    let signature = hex(&sha256(key.as_bytes(), &[b"{}"]));
    let request = Request::post("/hooks/plain", "{}")
        .header("X-Delivery-Id", id)
        .header("X-Signature", format!("sha256={signature}"));
    assert_eq!(server.send(&request).status, 200);
}

fn used(server: &Server, label: &str) -> f64 {
    server.metric("hooksluice_secret_last_used_seconds", &[&format!("label=\"{label}\"")])
}

/// What `hooksluice sources` prints.
fn sources(server: &Server) -> String {
    command(server, "sources")
}

fn command(server: &Server, name: &str) -> String {
    let mut command: Command = crate::harness::server::program();
    command.args([name, "--admin", &format!("http://{}", server.admin())]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn line(text: &str, part: &str) -> String {
    let line = text.lines().find(|line| line.contains(part));
    line.unwrap_or_else(|| panic!("no {part:?} in:\n{text}")).to_owned()
}

fn database(setup: &Setup) -> Connection {
    let database = Connection::open(setup.store().join("hooksluice.db")).unwrap();
    // The log stays as the server left it.
    database
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .unwrap();
    database
}

/// `known_since` of every secret is there.
fn wait_until_known(server: &Server) {
    eventually("the store to know the secrets", || {
        let text = server.admin_get("/api/v1/status").text();
        let status: serde_json::Value = serde_json::from_str(&text).unwrap();
        let secrets = status["sources"][0]["secrets"].as_array().unwrap().clone();
        secrets
            .iter()
            .all(|secret| secret["known_since"].is_string())
            .then_some(())
    });
}

#[test]
fn when_a_secret_was_last_used_survives_a_restart() {
    let upstream = Upstream::start();
    let setup = setup(&upstream);
    let server = setup.start();
    assert!(line(&sources(&server), "older").contains("never used"));
    send(&server, OLD, "a");
    let at = used(&server, "older");
    assert!(at >= (unix_now() - 60) as f64, "{at}");
    // Right after the answer: an orderly end has the last word.
    server.stop();
    let server = setup.start();
    eventually("the store to be asked", || (used(&server, "older") == at).then_some(()));
    assert_eq!(used(&server, "newer"), 0.0);
    let text = sources(&server);
    assert!(line(&text, "older").contains("last used"), "{text}");
    assert!(line(&text, "newer").contains("never used since"), "{text}");
}

#[test]
fn when_a_secret_was_last_used_survives_a_kill_once_it_was_noted() {
    let upstream = Upstream::start();
    let setup = setup(&upstream);
    let mut server = setup.start();
    send(&server, OLD, "a");
    let at = used(&server, "older");
    let reader = database(&setup);
    eventually("the use to be noted", || {
        let noted: i64 = reader
            .query_row("SELECT count(*) FROM secret WHERE last_used IS NOT NULL", [], |row| {
                row.get(0)
            })
            .unwrap_or(0);
        (noted == 1).then_some(())
    });
    drop(reader);
    server.kill();
    let server = setup.start();
    eventually("the store to be asked", || (used(&server, "older") == at).then_some(()));
}

/// Makes all that is known of secrets 20 days older.
fn twenty_days_pass(setup: &Setup) {
    database(setup)
        .execute_batch(
            "UPDATE secret SET since = since - 20 * 86400000, last_used = last_used - 20 * 86400000;
             UPDATE secret SET others = 0;",
        )
        .unwrap();
}

#[test]
fn an_old_secret_is_safe_to_remove_once_deliveries_came_without_it_and_not_before() {
    let upstream = Upstream::start();
    let setup = setup(&upstream);
    let server = setup.start();
    send(&server, OLD, "a");
    server.stop();
    twenty_days_pass(&setup);
    let server = setup.start();
    wait_until_known(&server);
    // Nothing came at all: that says nothing about the old one.
    let text = sources(&server);
    assert!(line(&text, "older").contains("nor was any other"), "{text}");
    assert_eq!(
        server.metric("hooksluice_secret_safe_to_remove", &["label=\"older\""]),
        0.0
    );
    assert!(!command(&server, "status").contains("safe to remove"));
    for id in ["b", "c"] {
        send(&server, SECRET, id);
    }
    let text = sources(&server);
    let old = line(&text, "older");
    assert!(
        old.contains("safe to remove: unused for 20d 0h while 2 other deliveries were verified"),
        "{text}"
    );
    assert!(line(&text, "newer").contains("last used"), "{text}");
    let advice = line(&command(&server, "status"), "safe to remove");
    assert!(advice.contains("plain: the secret older"), "{advice}");
    server.wait_for_metric("hooksluice_secret_safe_to_remove", &["label=\"older\""], 1.0);
    // Whoever still signs with it takes it all back.
    send(&server, OLD, "d");
    let text = sources(&server);
    assert!(line(&text, "older").contains("last used"), "{text}");
    server.wait_for_metric("hooksluice_secret_safe_to_remove", &["label=\"older\""], 0.0);
}

#[test]
fn the_same_label_on_another_secret_is_another_secret() {
    let upstream = Upstream::start();
    let first = setup(&upstream);
    let server = first.start();
    send(&server, OLD, "a");
    send(&server, SECRET, "b");
    server.stop();
    twenty_days_pass(&first);
    // "older" now stands for a secret that was never there; the one that it stood for is gone.
    let mut second = Setup::new(&upstream).store_on(first.directory());
    let (fresh, new) = (
        second.environment_variable("fresh-secret-0123456789abcdef"),
        second.environment_variable(SECRET),
    );
    let second = second.table_after(&format!(
        "[sources.plain]\npath = \"/hooks/plain\"\nprovider = \"hmac\"\nupstreams = [\"app\"]\n\
         secrets = [{{ env = \"{fresh}\", label = \"older\" }}, {{ env = \"{new}\", label = \"newer\" }}]"
    ));
    let server = second.start();
    wait_until_known(&server);
    send(&server, SECRET, "c");
    let text = sources(&server);
    assert!(line(&text, "older").contains("never used since"), "{text}");
}

#[test]
fn replicas_of_one_store_know_of_each_other_s_use() {
    let postgres = Postgres::shared();
    let database = postgres.database();
    let upstream = Upstream::start();
    let start = || {
        let setup = setup(&upstream).postgres(&database.url());
        let server = setup.start();
        (setup, server)
    };
    let (_setup_one, one) = start();
    let (_setup_two, two) = start();
    send(&one, OLD, "a");
    let at = used(&one, "older");
    assert!(at > 0.0);
    eventually("the other replica to hear of it", || {
        (used(&two, "older") == at).then_some(())
    });
}
