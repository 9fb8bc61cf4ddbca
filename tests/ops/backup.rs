//! Backups of a running store, and stores from them (P1, P5).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::redis::Redis;
use crate::harness::server::program;
use crate::harness::{Answer, Connection, Server, Setup, Stage, Upstream, eventually, sign};

/// `hooksluice store …`.
fn store(words: &[&str], paths: &[&Path]) -> Output {
    program().arg("store").args(words).args(paths).output().unwrap()
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[track_caller]
fn done(output: &Output) -> String {
    assert!(output.status.success(), "{}", said(output));
    said(output)
}

/// Exit code 1, with all of `parts` among the words.
#[track_caller]
fn refused(output: &Output, parts: &[&str]) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is missing in\n{said}");
    }
}

#[track_caller]
fn back_up(server: &Server, file: &Path) -> String {
    let admin = server.admin().to_string();
    done(&store(&["backup", "--admin", &admin], &[file]))
}

/// The delivery ids of all stored events.
fn stored(server: &Server) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let mut cursor = String::new();
    loop {
        let page = server.admin_get(&format!("/api/v1/events?limit=500{cursor}")).json();
        let events = page["events"].as_array().unwrap();
        ids.extend(
            events
                .iter()
                .map(|event| event["delivery_id"].as_str().unwrap().to_owned()),
        );
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
}

/// What a store is made of. Not the index of its log, which is memory that processes share.
fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && !path.to_string_lossy().ends_with("-shm"))
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_backup_under_load_holds_every_event_that_was_acknowledged_before_it() {
    let stage = Stage::new(|setup| {
        // Some wait for a second try, so that both kinds are in the backup.
        setup.plain().allow_log("\"upstream\":\"app\"")
    });
    stage.upstream.set_script(|received| match received.body.len() % 3 {
        0 => Answer::Status(404),
        _ => Answer::Status(200),
    });
    // Enough pages that a copy has many steps.
    for number in 0..100 {
        let id = format!("large-{number}");
        let body = vec![b'x'; 256 << 10];
        assert_eq!(stage.server.send(&sign::plain("/hooks/plain", &id, &body)).status, 200);
    }
    let acknowledged: Mutex<BTreeSet<String>> = Mutex::new((0..100).map(|number| format!("large-{number}")).collect());
    let enough = AtomicBool::new(false);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = directory.path().join("backup");
    let (before, while_copied) = std::thread::scope(|scope| {
        for sender in 0..6 {
            let (acknowledged, enough, address) = (&acknowledged, &enough, stage.server.address());
            scope.spawn(move || {
                let mut connection = Connection::open(address);
                for number in 0.. {
                    if enough.load(Ordering::Relaxed) {
                        return;
                    }
                    let id = format!("{sender}-{number}");
                    connection.send(&sign::plain("/hooks/plain", &id, id.repeat(50).as_bytes()).bytes());
                    assert_eq!(connection.read().status, 200);
                    acknowledged.lock().unwrap().insert(id);
                }
            });
        }
        let known = || acknowledged.lock().unwrap().clone();
        eventually("a load", || (known().len() > 300).then_some(()));
        let result = std::panic::catch_unwind(|| {
            let before = known();
            let said = back_up(&stage.server, &file);
            assert!(said.contains("backed up into"), "{said}");
            (before, known().len())
        });
        enough.store(true, Ordering::Relaxed);
        result.unwrap()
    });
    assert!(while_copied > before.len(), "nothing came in while the copy was made");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // Nothing is left beside the store, and what came after the backup is only there.
    assert!(!stage.setup.store().join("backup.tmp").exists());
    drop(stage);

    let upstream = Upstream::start();
    let setup = Setup::new(&upstream).plain();
    let report = done(&store(&["restore", "--store"], &[&setup.store(), &file]));
    for part in ["forwarded again", "after the backup", "to be forwarded"] {
        assert!(report.contains(part), "{report}");
    }
    let server = setup.start();
    let restored = stored(&server);
    let lost: Vec<_> = before.difference(&restored).collect();
    assert!(
        lost.is_empty(),
        "acknowledged before the backup, and not in it: {lost:?}"
    );
    eventually("all that waited to be delivered", || {
        let open: f64 = ["pending", "leased"]
            .iter()
            .map(|state| server.metric("hooksluice_dispatches", &[&format!("state=\"{state}\"")]))
            .sum();
        (open == 0.0).then_some(())
    });
    let all = u32::try_from(restored.len()).unwrap();
    server.wait_for_metric("hooksluice_dispatches", &["state=\"delivered\""], all.into());
    // The store still knows them: a provider's retry is a duplicate.
    let again: Vec<_> = before.iter().filter(|id| !id.starts_with("large")).take(20).collect();
    for id in &again {
        let request = sign::plain("/hooks/plain", id, id.repeat(50).as_bytes());
        assert_eq!(server.send(&request).status, 200);
    }
    server.wait_for_metric("hooksluice_duplicates_total", &[], 20.0);
    assert_eq!(stored(&server), restored);
}

#[test]
fn a_restored_store_does_not_believe_what_redis_was_told_after_the_backup() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let setup = |namespace: &str| {
        Setup::new(&upstream)
            .redis(&redis.url(), &format!("namespace = \"{namespace}\""))
            .plain()
            .allow_log("it may evict keys")
            .allow_log("the store was restored")
    };
    let first = setup("shop");
    let server = first.start();
    let send = |server: &Server, id: &str| {
        assert_eq!(server.send(&sign::plain("/hooks/plain", id, b"{}")).status, 200);
    };
    send(&server, "before");
    upstream.wait_for(1);
    let file = first.directory().join("backup");
    back_up(&server, &file);
    send(&server, "after");
    upstream.wait_for(2);
    eventually("Redis to know both", || (redis.keys().len() == 2).then_some(()));
    server.stop();

    let second = setup("shop");
    let config = second.write_config();
    let mut restore = program();
    second.set_environment(&mut restore);
    let report = done(
        &restore
            .args(["store", "restore", "-c"])
            .args([&config, &file])
            .output()
            .unwrap(),
    );
    assert!(
        report.contains("`[dedupe.redis] namespace` that was never used before"),
        "{report}"
    );
    assert!(report.contains("\"shop\""), "{report}");
    // As it was, it would drop the second delivery when its provider sends it again.
    let mut serve = second.command();
    let output = serve.output().unwrap();
    refused(&output, &["namespace = \"shop\"", "restored from a backup"]);

    let text = second.text().replace("\"shop\"", "\"shop-2\"");
    fs::write(&config, text).unwrap();
    let mut serve = program();
    second.set_environment(&mut serve);
    serve.args(["serve", "-c"]).arg(&config);
    let server = second.start_command(serve);
    send(&server, "before");
    send(&server, "after");
    let received = upstream.wait_for(3);
    assert_eq!(received[2].header("X-Delivery-Id"), Some("after"));
    server.wait_for_metric("hooksluice_duplicates_total", &[], 1.0);
}

#[test]
fn the_store_of_a_stopped_server_is_copied_from_its_directory() {
    let stage = Stage::new(|setup| setup.plain());
    stage.accept(&sign::plain("/hooks/plain", "a", b"{}"));
    let Stage {
        server,
        setup,
        upstream,
    } = stage;
    let file = setup.directory().join("backup");
    refused(
        &store(&["backup", "--store"], &[&setup.store(), &file]),
        &["another process has the store"],
    );
    assert!(!file.exists());
    server.stop();
    let untouched = files(&setup.store());
    done(&store(&["backup", "--store"], &[&setup.store(), &file]));
    assert!(files(&setup.store()) == untouched, "a file has changed");

    refused(
        &store(&["backup", "--store"], &[&setup.store(), &file]),
        &["is there already", "--force"],
    );
    done(&store(&["backup", "--force", "--store"], &[&setup.store(), &file]));
    refused(
        &store(&["restore", "--store"], &[&setup.store(), &file]),
        &["there is a store in", "--force"],
    );
    assert!(files(&setup.store()) == untouched, "a file has changed");
    let report = done(&store(&["restore", "--force", "--store"], &[&setup.store(), &file]));
    assert!(report.contains("The store that lay there is in"), "{report}");
    let server = setup.start();
    assert_eq!(stored(&server), BTreeSet::from(["a".to_owned()]));
    refused(
        &store(&["restore", "--force", "--store"], &[&setup.store(), &file]),
        &["another process has the store"],
    );
    drop(upstream);
}

#[test]
fn what_is_no_whole_backup_is_not_restored() {
    let stage = Stage::new(|setup| setup.plain());
    stage.accept(&sign::plain("/hooks/plain", "a", b"{}"));
    let directory = stage.setup.directory().to_owned();
    let (file, bad) = (directory.join("backup"), directory.join("bad"));
    back_up(&stage.server, &file);
    let sound = fs::read(&file).unwrap();
    let target = directory.join("target");
    let mut damaged = sound.clone();
    damaged[8192 * 2..8192 * 3].fill(0x5a);
    let mut newer = sound.clone();
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    for (bytes, part) in [
        (&sound[..sound.len() - 1], "its end is missing"),
        (&sound[..0], "it is empty"),
        (&damaged, "it is damaged"),
        (&newer, "written by a newer version"),
        (&b"#!/bin/sh\n".repeat(100), "is not a hooksluice store"),
    ] {
        fs::write(&bad, bytes).unwrap();
        refused(&store(&["restore", "--store"], &[&target, &bad]), &[part]);
        assert!(!target.join("hooksluice.db").exists());
        assert!(!target.join("restore.tmp").exists());
    }
    refused(
        &store(&["restore", "--store"], &[&target, &directory.join("none")]),
        &["No such file"],
    );
    done(&store(&["restore", "--store"], &[&target, &file]));
}

/// As a crash leaves it behind after the old store was moved aside.
#[test]
fn an_interrupted_restore_is_no_empty_store() {
    let stage = Stage::new(|setup| setup.plain());
    stage.accept(&sign::plain("/hooks/plain", "a", b"{}"));
    let Stage {
        server,
        setup,
        upstream,
    } = stage;
    let file = setup.directory().join("backup");
    back_up(&server, &file);
    server.stop();
    fs::remove_dir_all(setup.store()).unwrap();
    fs::create_dir(setup.store()).unwrap();
    fs::copy(&file, setup.store().join("restore.tmp")).unwrap();
    refused(
        &setup.command().output().unwrap(),
        &["restore.tmp", "would lose events"],
    );
    done(&store(&["restore", "--store"], &[&setup.store(), &file]));
    assert_eq!(stored(&setup.start()).len(), 1);
    drop(upstream);
}

#[test]
fn a_backup_needs_the_token_that_every_event_needs() {
    let mut setup = Setup::new(&Upstream::start()).plain();
    let variable = setup.environment_variable("an-admin-token-0123456789");
    let text = setup
        .text()
        .replace("[admin]\n", &format!("[admin]\ntoken = {{ env = \"{variable}\" }}\n"));
    let config = setup.write_config();
    fs::write(&config, text).unwrap();
    let mut command = program();
    setup.set_environment(&mut command);
    command.args(["serve", "-c"]).arg(&config);
    let server = setup.start_command(command);
    let file = setup.directory().join("backup");
    let admin = server.admin().to_string();
    refused(
        &store(&["backup", "--admin", &admin], &[&file]),
        &["a token is required"],
    );
    assert!(!file.exists());
    let mut command = program();
    setup.set_environment(&mut command);
    command.args(["store", "backup", "--admin", &admin, "--token-env", &variable]);
    done(&command.arg(&file).output().unwrap());
    assert!(file.exists());
}

#[test]
fn a_shared_store_is_the_database_s_to_back_up() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("hooksluice.toml");
    let source =
        "[sources.a]\npath = \"/a\"\nprovider = \"hmac\"\nsecret = { env = \"NOWHERE\" }\nupstreams = [\"app\"]\n";
    let text = format!(
        "[store.postgres]\nurl = {{ env = \"NOWHERE\" }}\n[upstreams.app]\nurl = \"http://127.0.0.1:1\"\n{source}"
    );
    fs::write(&config, text).unwrap();
    let file = directory.path().join("backup");
    fs::write(&file, "").unwrap();
    refused(&store(&["restore", "-c"], &[&config, &file]), &["pg_dump"]);
}
