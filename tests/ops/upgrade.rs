//! Stores that earlier versions wrote: opened with all that is in them (ST-09, ST-10). Those of later ones: left alone.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::harness::postgres::Postgres;
use crate::harness::{Request, Server, Setup, Upstream, eventually, sign, unix_now};

/// What each schema added, with rows, oldest first.
const STEPS: [&str; 4] = [
    include_str!("fixtures/sqlite_1.sql"),
    include_str!("fixtures/sqlite_2.sql"),
    include_str!("fixtures/sqlite_3.sql"),
    include_str!("fixtures/sqlite_4.sql"),
];
/// "hslc" in the header.
const APPLICATION: i32 = 0x6873_6c63;

/// The files of a store with this schema, as a process that was killed left them: the rows are in the log alone.
fn write(directory: &Path, schema: usize) {
    let work = tempfile::tempdir().unwrap();
    let database = work.path().join("hooksluice.db");
    let conn = Connection::open(&database).unwrap();
    conn.execute_batch("PRAGMA page_size = 8192; PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0;")
        .unwrap();
    conn.execute_batch(&format!(
        "CREATE TABLE gone (a); DROP TABLE gone; PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {schema}; \
         PRAGMA wal_checkpoint(TRUNCATE);"
    ))
    .unwrap();
    // A minute ago, so that nothing is old.
    let then = (unix_now() - 60) * 1000;
    for step in &STEPS[..schema] {
        let text = step
            .replace("@now", &then.to_string())
            .replace("@hex", &format!("{then:012x}"));
        conn.execute_batch(&text).unwrap();
    }
    fs::create_dir_all(directory).unwrap();
    for end in ["", "-wal"] {
        let name = format!("hooksluice.db{end}");
        fs::copy(work.path().join(&name), directory.join(&name)).unwrap();
    }
}

fn setup(upstream: &Upstream) -> Setup {
    Setup::new(upstream)
        .plain()
        .source("waiting", "hmac", sign::SECRET, "reply = \"upstream\"")
        .table_after(
            "[routes.orders]\npath = \"/orders\"\nupstream = \"app\"\n\
             idempotency = { methods = [\"POST\"], scope = \"header:authorization\", ttl = \"24h\" }",
        )
        .allow_log("it ran when the store was last open")
}

fn delivery(source: &str, id: &str) -> Request {
    sign::plain(
        &format!("/hooks/{source}"),
        id,
        format!("{{\"id\":\"{id}\"}}").as_bytes(),
    )
}

fn call(key: &str) -> Request {
    Request::post("/orders", "{\"a\":1}")
        .header("Authorization", "Bearer a")
        .header("Idempotency-Key", key)
}

fn ids(upstream: &Upstream) -> Vec<String> {
    let received = upstream.received();
    let ids = received.iter().filter_map(|received| received.header("X-Delivery-Id"));
    ids.map(str::to_owned).collect()
}

fn delivered(server: &Server) -> BTreeSet<String> {
    let events = server.events("state=delivered");
    events
        .iter()
        .map(|event| event["delivery_id"].as_str().unwrap().to_owned())
        .collect()
}

// ST-09, ST-10
#[test]
fn a_store_of_any_earlier_schema_goes_on_where_it_was() {
    for schema in 1..=STEPS.len() {
        let upstream = Upstream::start();
        let setup = setup(&upstream);
        write(&setup.store(), schema);
        let server = setup.start();
        upstream.wait_for(2);
        eventually("what waited and what was under way to be delivered", || {
            let delivered = delivered(&server);
            ["delivered", "pending", "leased"]
                .iter()
                .all(|id| delivered.contains(*id))
                .then_some(())
        });
        let mut arrived = ids(&upstream);
        arrived.sort();
        assert_eq!(arrived, ["leased", "pending"], "schema {schema}");
        for received in upstream.received() {
            assert_eq!(received.attempt(), 2, "schema {schema}: {received:?}");
        }
        let dead = server.events("state=dead");
        assert_eq!(dead.len(), 1, "schema {schema}");
        assert_eq!(dead[0]["delivery_id"], "dead");

        // The keys are known: retries are duplicates, and that of the dead one revives it.
        for id in ["delivered", "pending", "leased", "dead"] {
            assert_eq!(server.send(&delivery("plain", id)).status, 200);
        }
        upstream.wait_for(3);
        assert_eq!(ids(&upstream)[2], "dead");
        if schema >= 2 {
            let elsewhere = server.events("");
            assert!(
                elsewhere.iter().any(|event| event["delivery_id"] == "elsewhere"),
                "{elsewhere:?}"
            );
        }
        if schema >= 3 {
            let again = server.send(&delivery("waiting", "answered"));
            assert_eq!((again.status, again.text().as_str()), (200, "ok"));
        }
        if schema >= 4 {
            let again = server.send(&call("done"));
            assert_eq!((again.status, again.text().as_str()), (200, "ok"), "{again:?}");
            assert_eq!(server.send(&call("running")).status, 504);
            let open = server.admin_get("/api/v1/idempotency?state=ambiguous").json();
            assert_eq!(open["records"].as_array().map(Vec::len), Some(1), "{open}");
        }
        assert_eq!(ids(&upstream).len(), 3, "schema {schema}: something came again");
        server.stop();
        let conn = Connection::open(setup.store().join("hooksluice.db")).unwrap();
        let sound: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
    }
}

fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

// ST-10
#[test]
fn a_store_of_a_later_schema_is_refused_and_not_a_byte_of_it_changes() {
    let upstream = Upstream::start();
    let setup = setup(&upstream);
    let server = setup.start();
    assert_eq!(server.send(&delivery("plain", "a")).status, 200);
    upstream.wait_for(1);
    server.stop();
    let database = setup.store().join("hooksluice.db");
    let mut bytes = fs::read(&database).unwrap();
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    fs::write(&database, bytes).unwrap();
    let before = files(&setup.store());
    let commands = [setup.command(), {
        let mut backup = crate::harness::server::program();
        backup.args(["store", "backup", "--store"]).arg(setup.store());
        backup.arg(setup.directory().join("backup"));
        backup
    }];
    for mut command in commands {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("schema 99, written by a newer version"), "{said}");
        assert!(said.contains("hooksluice.db"), "{said}");
        assert!(files(&setup.store()) == before, "a file has changed: {said}");
    }
}

/// What each schema of a shared store added, with rows, oldest first.
const SHARED: [&str; 2] = [
    include_str!("fixtures/postgres_1.sql"),
    include_str!("fixtures/postgres_2.sql"),
];

// ST-09, ST-10
#[test]
fn a_shared_store_of_any_earlier_schema_goes_on_where_it_was() {
    let postgres = Postgres::shared();
    for schema in 1..=SHARED.len() {
        let database = postgres.database();
        // A minute ago: nothing is old, and whoever had a lease is gone.
        let then = (unix_now() - 60) * 1000;
        let hex = |at: i64| {
            let hex = format!("{at:012x}");
            format!("{}-{}", &hex[..8], &hex[8..])
        };
        let half_a_day = 43_200_000;
        let rest = "-0000-0000-000000000000";
        for step in &SHARED[..schema] {
            let text = step
                .replace("@now", &then.to_string())
                .replace("@id", &hex(then))
                .replace("@low", &(hex(then - half_a_day) + rest))
                .replace("@high", &(hex(then + half_a_day) + rest));
            database.sql(&text);
        }
        let upstream = Upstream::start();
        let setup = setup(&upstream).postgres(&database.url());
        let server = setup.start();
        eventually("what waited and what was under way to be delivered", || {
            let delivered = delivered(&server);
            ["delivered", "pending", "leased"]
                .iter()
                .all(|id| delivered.contains(*id))
                .then_some(())
        });
        let mut arrived = ids(&upstream);
        arrived.sort();
        assert_eq!(arrived, ["leased", "pending"], "schema {schema}");
        for id in ["delivered", "pending", "leased", "dead"] {
            assert_eq!(server.send(&delivery("plain", id)).status, 200);
        }
        upstream.wait_for(3);
        assert_eq!(ids(&upstream)[2], "dead");
        if schema >= 2 {
            let again = server.send(&delivery("waiting", "answered"));
            assert_eq!((again.status, again.text().as_str()), (200, "ok"));
        }
        assert_eq!(ids(&upstream).len(), 3, "schema {schema}: something came again");
        server.stop();
    }
}
