//! Secrets rotate: by their files, by the configuration, by command, while requests go on (SE-08).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::harness::sign::SECRET;
use crate::harness::{Setup, Upstream, eventually, server};
use crate::site::{Site, UNWATCHED, refusing, signed};

const OLD: &str = "old-secret-0123456789abcdef";
const NEW: &str = "new-secret-0123456789abcdef";
const TARGET: &str = "/hooks/own";

/// A source `own` with these secrets.
fn source(secrets: &str) -> String {
    format!("[sources.own]\npath = \"{TARGET}\"\nprovider = \"hmac\"\nupstreams = [\"app\"]\nsecrets = [{secrets}]\n")
}

fn status(site: &Site, secret: &str, id: &str) -> u16 {
    site.send(&signed(secret, TARGET, id)).status
}

/// Waits until the new secret counts, and sees that the old one does not any more.
#[track_caller]
fn rotated(site: &Site) {
    counts(site);
    assert_eq!(status(site, OLD, "too late"), 401);
}

/// Waits until the new secret counts.
#[track_caller]
fn counts(site: &Site) {
    eventually("the new secret to count", || {
        (status(site, NEW, "after") == 200).then_some(())
    });
}

/// A server with the old secret in a file `secret`, which `lay` has put there, and with a watch on it.
fn with_file(lay: impl Fn(&Path)) -> Site {
    let site = Site::open(|setup| {
        lay(setup.directory());
        let file = setup.directory().join("secret");
        let entry = format!("{{ file = \"{}\", label = \"current\" }}", file.display());
        refusing(setup).table_after(&source(&entry))
    });
    assert_eq!(status(&site, OLD, "before"), 200);
    assert_eq!(status(&site, NEW, "too early"), 401);
    site
}

/// Both secrets in the environment, `TEST_SECRET_0` and `TEST_SECRET_1`.
fn with_both(setup: Setup) -> Setup {
    let mut setup = setup.tables(UNWATCHED);
    assert_eq!(setup.environment_variable(OLD), "TEST_SECRET_0");
    assert_eq!(setup.environment_variable(NEW), "TEST_SECRET_1");
    setup
}

fn plain_file(directory: &Path) {
    fs::write(directory.join("secret"), OLD).unwrap();
}

#[test]
fn a_secret_file_that_is_renamed_over_rotates() {
    let site = with_file(plain_file);
    let directory = site.setup.directory();
    fs::write(directory.join("secret.new"), NEW).unwrap();
    fs::rename(directory.join("secret.new"), directory.join("secret")).unwrap();
    rotated(&site);
    site.wait_for_log(&["configuration reloaded", "reference changed", "source `own` changed"]);
}

#[test]
fn a_secret_file_that_is_written_in_place_rotates() {
    let site = with_file(plain_file);
    // Of the same length: only the time tells.
    fs::write(site.setup.directory().join("secret"), NEW).unwrap();
    rotated(&site);
}

#[test]
fn a_secret_that_kubernetes_swaps_rotates() {
    let site = with_file(|directory| {
        fs::create_dir(directory.join("..1")).unwrap();
        fs::write(directory.join("..1/secret"), OLD).unwrap();
        symlink("..1", directory.join("..data")).unwrap();
        symlink("..data/secret", directory.join("secret")).unwrap();
    });
    let directory = site.setup.directory();
    fs::create_dir(directory.join("..2")).unwrap();
    fs::write(directory.join("..2/secret"), NEW).unwrap();
    symlink("..2", directory.join("..data_tmp")).unwrap();
    fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
    fs::remove_dir_all(directory.join("..1")).unwrap();
    rotated(&site);
}

#[test]
fn a_secret_that_is_added_to_a_directory_counts_beside_the_old_one() {
    let site = Site::open(|setup| {
        let secrets = setup.directory().join("secrets");
        fs::create_dir(&secrets).unwrap();
        fs::write(secrets.join("2026-05"), OLD).unwrap();
        setup.table_after(&source(&format!("{{ directory = \"{}\" }}", secrets.display())))
    });
    let secrets = site.setup.directory().join("secrets");
    assert_eq!(status(&site, OLD, "first"), 200);
    site.wait_for_metric("hooksluice_requests_total", &["outcome=\"accepted\""], 1.0);
    let used = |label: &str| site.metric("hooksluice_secret_last_used_seconds", &[&format!("label=\"{label}\"")]);
    let before = used("2026-05");
    assert!(before > 0.0);
    fs::write(secrets.join("2026-11"), NEW).unwrap();
    counts(&site);
    assert_eq!(status(&site, OLD, "still"), 200);
    assert!(used("2026-05") >= before && used("2026-11") > 0.0);
    fs::remove_file(secrets.join("2026-05")).unwrap();
    eventually("the old secret to be refused", || {
        (status(&site, OLD, "gone") == 401).then_some(())
    });
    assert_eq!(status(&site, NEW, "stays"), 200);
}

#[test]
fn a_bad_configuration_keeps_no_secret_from_rotating() {
    let site = with_file(plain_file);
    let file = site.setup.directory().join("secret");
    site.append("[sources.own");
    site.wait_for_metric("hooksluice_config_reloads_total", &["outcome=\"refused\""], 1.0);
    fs::write(&file, NEW).unwrap();
    rotated(&site);
    assert_eq!(
        site.metric("hooksluice_config_last_reload_successful", &[]),
        0.0,
        "the file is as bad as before"
    );
}

#[test]
fn a_secret_that_becomes_empty_is_refused_and_the_old_one_goes_on() {
    let site = with_file(plain_file);
    let file = site.setup.directory().join("secret");
    fs::write(&file, "\n").unwrap();
    site.wait_for_log(&[
        "configuration refused",
        "the secret of source `own` is empty",
        "hooksluice.toml",
    ]);
    assert_eq!(status(&site, OLD, "goes on"), 200);
    assert_eq!(site.metric("hooksluice_config_last_reload_successful", &[]), 0.0);
    fs::write(&file, NEW).unwrap();
    rotated(&site);
    site.wait_for_metric("hooksluice_config_last_reload_successful", &[], 1.0);
}

/// SE-08: `[old, new]`, then `[new]`, while requests signed by the new one come all the time.
#[test]
fn a_rotation_by_signal_has_no_gap() {
    let entry = |variable: &str, label: &str| format!("{{ env = \"{variable}\", label = \"{label}\" }}");
    let (old, new) = (entry("TEST_SECRET_0", "old"), entry("TEST_SECRET_1", "new"));
    let site = Site::open(|setup| with_both(setup).table_after(&source(&old)));
    assert_eq!(status(&site, OLD, "a"), 200);
    assert_eq!(status(&site, NEW, "b"), 401);

    site.edit(&old, &format!("{old}, {new}"));
    site.hang_up("applied");
    assert_eq!(status(&site, OLD, "c"), 200);
    assert_eq!(status(&site, NEW, "d"), 200);
    assert_eq!(status(&site, SECRET, "e"), 401);
    let used = |label: &str| site.metric("hooksluice_secret_last_used_seconds", &[&format!("label=\"{label}\"")]);
    assert!(used("old") > 0.0 && used("new") > 0.0);

    let (ended, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for sender in 0..4 {
            let (site, ended, sent) = (&site, &ended, &sent);
            scope.spawn(move || {
                let mut connection = site.connect();
                for number in 0.. {
                    if ended.load(Ordering::SeqCst) {
                        break;
                    }
                    connection.send(&signed(NEW, TARGET, &format!("{sender}-{number}")).bytes());
                    assert_eq!(connection.read().status, 200);
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let more = |count: usize| {
            let until = sent.load(Ordering::SeqCst) + count;
            eventually("requests to go on", || {
                (sent.load(Ordering::SeqCst) >= until).then_some(())
            });
        };
        more(100);
        site.edit(&format!("{old}, {new}"), &new);
        site.hang_up("applied");
        assert_eq!(status(&site, OLD, "f"), 401);
        more(100);
        ended.store(true, Ordering::SeqCst);
    });
    assert_eq!(
        site.metric("hooksluice_rejections_total", &["reason=\"wrong_signature\""]),
        3.0
    );
    let labels = site.server.admin_get("/metrics").text();
    assert!(!labels.contains("label=\"old\""), "a secret that is gone is not shown");
}

#[test]
fn a_rotation_by_command_is_done_when_the_command_ends() {
    let site = Site::open(|setup| with_both(setup).table_after(&source("{ env = \"TEST_SECRET_0\" }")));
    assert_eq!(status(&site, OLD, "a"), 200);
    site.edit("TEST_SECRET_0", "TEST_SECRET_1");
    assert_eq!(site.reloaded(), "source `own` changed\n");
    assert_eq!(status(&site, OLD, "b"), 401);
    assert_eq!(status(&site, NEW, "c"), 200);
    assert_eq!(site.reloaded(), "nothing has changed\n");
}

#[test]
fn a_server_without_a_file_takes_a_hang_up_for_a_look_at_its_references() {
    let upstream = Upstream::start();
    let mut setup = Setup::new(&upstream);
    let variable = setup.environment_variable(OLD);
    let mut command = server::program();
    setup.set_environment(&mut command);
    command
        .args([
            "serve",
            "--provider",
            "hmac",
            "--secret-env",
            &variable,
            "--listen",
            "127.0.0.1:0",
        ])
        .args([
            "--admin-listen",
            "127.0.0.1:0",
            "--upstream",
            &format!("http://{}", upstream.address()),
        ])
        .arg("--store")
        .arg(setup.store());
    let site = Site {
        server: setup.start_command(command),
        setup,
        upstream,
    };
    site.hang_up("unchanged");
    assert_eq!(site.send(&signed(OLD, "/webhooks/hmac", "a")).status, 200);
    site.upstream.wait_for(1);
}
