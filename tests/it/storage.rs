//! The store as an operator meets it: nothing lost, one process, nothing that needs a restart to heal.

use std::io::Read;

use crate::harness::sign::{self, SECRET};
use crate::harness::{Answer, Setup, Stage, Upstream, eventually};

/// The store's database file.
fn database(setup: &Setup) -> std::path::PathBuf {
    let mut files = std::fs::read_dir(setup.store())
        .unwrap()
        .map(|file| file.unwrap().path());
    let is_database = |path: &std::path::PathBuf| {
        let mut start = [0; 16];
        let file = std::fs::File::open(path);
        file.and_then(|mut file| file.read_exact(&mut start)).is_ok() && &start == b"SQLite format 3\0"
    };
    files.find(is_database).expect("a database")
}

// ST-01 in small; `tests/crash` is the campaign.
#[test]
fn what_was_acknowledged_before_a_kill_is_delivered_after_it() {
    let upstream = Upstream::scripted(|_| Answer::Hang);
    let setup = Setup::new(&upstream).plain().allow_log("app");
    let mut server = setup.start();
    for number in 0..50 {
        let request = sign::plain(
            "/hooks/plain",
            &number.to_string(),
            format!("{{\"n\":{number}}}").as_bytes(),
        );
        assert_eq!(server.send(&request).status, 200);
    }
    server.kill();
    drop(server);
    upstream.close_connections();
    upstream.set_script(|_| Answer::Status(200));
    let server = setup.start();
    eventually("all fifty to be delivered", || {
        (server.events("state=delivered").len() == 50).then_some(())
    });
    let mut bodies: Vec<_> = upstream.received().into_iter().map(|received| received.body).collect();
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), 50);
}

// DD-10
#[test]
fn a_second_process_on_one_store_is_told_so() {
    let stage = Stage::new(|setup| setup.plain());
    let second = Setup::new(&stage.upstream).plain();
    let text = second.text().replace(
        &second.store().display().to_string(),
        &stage.setup.store().display().to_string(),
    );
    let config = second.write_config();
    std::fs::write(&config, text).unwrap();
    let mut command = crate::harness::server::program();
    command.args(["serve", "-c"]).arg(config);
    second.set_environment(&mut command);
    let output = command.output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(
        said.contains("another process") || said.contains("in use") || said.contains("lock"),
        "{said}"
    );
    stage.accept(&sign::plain("/hooks/plain", "still", b"{}"));
}

// ST-07
#[test]
fn a_long_reader_outside_cannot_make_the_log_grow_for_ever() {
    let stage = Stage::new(|setup| setup.plain().allow_log("checkpoint").allow_log("log"));
    stage.accept(&sign::plain("/hooks/plain", "first", b"{}"));
    let database = database(&stage.setup);
    let log = database.with_extension("db-wal");
    let send = |count: usize, name: &str| {
        let body = vec![b'x'; 1 << 20];
        for number in 0..count {
            let request = sign::plain("/hooks/plain", &format!("{name}-{number}"), &body);
            assert_eq!(stage.server.send(&request).status, 200);
        }
    };
    let size = || std::fs::metadata(&log).unwrap().len();
    // A person's shell with an open read transaction.
    let shell = rusqlite::Connection::open(&database).unwrap();
    shell
        .execute_batch("BEGIN; SELECT count(*) FROM sqlite_master;")
        .unwrap();
    let held: i64 = shell
        .query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))
        .unwrap();
    assert!(held > 0);
    send(160, "held");
    let during = size();
    shell.execute_batch("COMMIT").unwrap();
    drop(shell);
    let mut round = 0;
    eventually("the log to be short again", || {
        round += 1;
        send(1, &format!("after-{round}"));
        (size() < 128 << 20).then_some(())
    });
    println!(
        "the log grew to {during} bytes behind the reader and is {} bytes now",
        size()
    );
}

// ST-10
#[test]
fn a_store_of_a_newer_version_is_left_alone() {
    let upstream = Upstream::start();
    let setup = Setup::new(&upstream).plain();
    setup.start().stop();
    let database = database(&setup);
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.pragma_update(None, "user_version", 9_999).unwrap();
    connection.close().unwrap();
    let before = std::fs::read(&database).unwrap();
    let output = setup.command().output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(said.contains("newer") || said.contains("9999"), "{said}");
    assert!(std::fs::read(&database).unwrap() == before, "the file was changed");
}

#[test]
fn a_damaged_store_is_loud() {
    let upstream = Upstream::start();
    let setup = Setup::new(&upstream).plain();
    let server = setup.start();
    for number in 0..20 {
        let request = sign::plain("/hooks/plain", &number.to_string(), &[b'x'; 4096]);
        assert_eq!(server.send(&request).status, 200);
    }
    server.stop();
    for file in std::fs::read_dir(setup.store()).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if bytes.starts_with(b"SQLite format 3\0") {
            bytes[..100].fill(0xff);
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let output = setup.command().output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(said.contains("store") || said.contains("database"), "{said}");
}

// ST-12
#[test]
fn events_of_an_upstream_that_left_the_configuration_wait_for_its_return() {
    let upstream = Upstream::start();
    let other = Upstream::start();
    let dead = crate::harness::server::free_address();
    let table = format!("[upstreams.leaving]\nurl = \"http://{dead}\"\nretry = {{ first = \"3s\" }}");
    let stays = format!("[upstreams.leaving]\nurl = \"http://{}\"", other.address());
    let source =
        "[sources.both]\npath = \"/hooks/both\"\nprovider = \"hmac\"\nsecrets = [{ env = \"TEST_SECRET_0\" }]\n";
    let both = format!("{source}upstreams = [\"app\", \"leaving\"]");
    let one = format!("{source}upstreams = [\"app\"]");
    let setup = |extra: &str, source: &str| {
        let mut setup = Setup::new(&upstream).allow_log("leaving");
        setup.environment_variable(SECRET);
        setup.table_after(extra).table_after(source)
    };
    let first = setup(&table, &both);
    let server = first.start();
    assert_eq!(server.send(&sign::plain("/hooks/both", "st-12", b"{}")).status, 200);
    upstream.wait_for(1);
    server.stop();
    let with_store_of_first = |next: Setup| {
        let text = next.text().replace(
            &next.store().display().to_string(),
            &first.store().display().to_string(),
        );
        (next, text)
    };
    let start = |(next, text): &(Setup, String)| {
        let command = next.command();
        std::fs::write(next.directory().join("hooksluice.toml"), text).unwrap();
        next.start_command(command)
    };
    let without = with_store_of_first(setup("", &one));
    let server = start(&without);
    let held = eventually("the event to be held", || server.events("state=held").pop());
    assert_eq!(held["delivery_id"], "st-12");
    server.stop();
    let back = with_store_of_first(setup(&stays, &both));
    let server = start(&back);
    let received = other.only();
    assert_eq!(received.header("X-Delivery-Id"), Some("st-12"));
    assert_eq!(upstream.received().len(), 1);
    server.stop();
}

// ST-14
#[test]
fn what_died_is_kept_counted_logged_with_the_command_that_replays_it_and_replayable() {
    let stage = Stage::with(Upstream::scripted(|_| Answer::Status(500)), |setup| {
        setup
            .upstream("retry = { first = \"50ms\", max = \"50ms\", max_attempts = 2 }")
            .plain()
            .allow_log("app")
    });
    assert_eq!(
        stage
            .server
            .send(&sign::plain("/hooks/plain", "st-14", b"{\"kept\":1}"))
            .status,
        200
    );
    let dead = eventually("the dispatch to die", || stage.server.events("state=dead").pop());
    let id = dead["id"].as_str().unwrap().to_owned();
    stage
        .server
        .wait_for_log(&["\"level\":\"ERROR\"", &id, "hooksluice events replay"]);
    let labels = ["upstream=\"app\""];
    assert_eq!(stage.server.metric("hooksluice_dead_total", &labels), 1.0);
    let status = stage.server.admin_get("/api/v1/status").json();
    assert_eq!(status["upstreams"][0]["dead"], 1);
    stage.upstream.set_script(|_| Answer::Status(200));
    let answer = stage.server.admin_post(&format!("/api/v1/events/{id}/replay"), "{}");
    assert_eq!(answer.status, 200, "{answer:?}");
    let replayed = stage.upstream.wait_for(3).pop().unwrap();
    assert_eq!(replayed.header("Hooksluice-Replay"), Some("true"));
    assert_eq!(replayed.body, b"{\"kept\":1}");
}

// P8
#[test]
fn the_counters_balance() {
    let upstream = Upstream::scripted(|received| match received.header("X-Delivery-Id") {
        Some("dies") => Answer::Status(410),
        _ => Answer::Status(200),
    });
    let stage = Stage::with(upstream, |setup| setup.plain().allow_log("app"));
    for id in ["a", "b", "a", "dies", "c", "c", "c"] {
        assert_eq!(stage.server.send(&sign::plain("/hooks/plain", id, b"{}")).status, 200);
    }
    let mut forged = sign::plain("/hooks/plain", "d", b"{}");
    forged.body = b"[]".to_vec();
    assert_eq!(stage.server.send(&forged).status, 401);
    stage.server.wait_for_metric("hooksluice_duplicates_total", &[], 3.0);
    stage
        .server
        .wait_for_metric("hooksluice_dispatches", &["state=\"delivered\""], 3.0);
    stage
        .server
        .wait_for_metric("hooksluice_dispatches", &["state=\"dead\""], 1.0);
    assert_eq!(stage.server.metric("hooksluice_requests_total", &[]), 8.0);
    assert_eq!(
        stage
            .server
            .metric("hooksluice_requests_total", &["outcome=\"rejected\""]),
        1.0
    );
    assert_eq!(stage.server.metric("hooksluice_unadmitted", &[]), 0.0);
    assert_eq!(stage.server.metric("hooksluice_dispatches", &[]), 4.0);
}

#[test]
fn a_discarded_event_is_not_attempted_again() {
    let stage = Stage::new(|setup| {
        setup
            .upstream("retry = { first = \"300ms\", max = \"300ms\" }")
            .plain()
            .allow_log("app")
    });
    stage.upstream.stop();
    assert_eq!(
        stage
            .server
            .send(&sign::plain("/hooks/plain", "unwanted", b"{}"))
            .status,
        200
    );
    // Stored is not yet admitted: there is something to discard once its dispatch is made.
    let event = eventually("the dispatch", || {
        let event = stage.server.events("").pop()?;
        (!event["dispatches"].as_array()?.is_empty()).then_some(event)
    });
    let path = format!("/api/v1/events/{}/discard", event["id"].as_str().unwrap());
    assert_eq!(stage.server.admin_post(&path, "{}").status, 200);
    stage.upstream.start_again();
    assert_eq!(
        stage.server.send(&sign::plain("/hooks/plain", "wanted", b"{}")).status,
        200
    );
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert_eq!(stage.upstream.only().header("X-Delivery-Id"), Some("wanted"));
    assert_eq!(stage.server.events("state=discarded").len(), 1);
}

// SC-07
#[test]
fn the_store_is_its_owner_s_alone() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new(|setup| setup.plain());
    stage.accept(&sign::plain("/hooks/plain", "mode", b"{}"));
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&stage.setup.store()), 0o700);
    for file in std::fs::read_dir(stage.setup.store()).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
    }
}
