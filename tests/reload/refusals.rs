//! What cannot be taken over changes nothing, and is explained.

use crate::harness::{Request, sign};
use crate::site::{Site, UNWATCHED, refusing, signed};

fn site() -> Site {
    Site::open(|setup| refusing(setup.tables(UNWATCHED).plain()))
}

fn still_serves(site: &Site, id: &str) {
    assert_eq!(site.send(&signed(sign::SECRET, "/hooks/plain", id)).status, 200);
}

#[test]
fn a_bad_file_is_explained_and_changes_nothing() {
    let site = site();
    let good = site.text();
    site.edit("path = \"/hooks/plain\"", "pathh = \"/hooks/else\"");
    let (code, printed) = site.reload(&[]);
    assert_eq!(code, 1);
    for part in [
        "hooksluice.toml:",
        "pathh = ",
        "did you mean `path`?",
        "nothing was changed",
    ] {
        assert!(printed.contains(part), "{part} is missing in\n{printed}");
    }
    still_serves(&site, "a");
    site.wait_for_log(&["configuration refused", "pathh", "\"line\":"]);

    let (code, printed) = site.reload(&["--json"]);
    assert_eq!(code, 1);
    let answer: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(answer["error"]["code"], "configuration_refused");
    let problems = answer["problems"].as_array().unwrap();
    assert!(problems.len() >= 2, "the missing path is one, too: {problems:?}");
    assert!(problems.iter().all(|problem| problem["line"].is_u64()), "{problems:?}");

    let status = site.admin_get("/api/v1/status").json();
    assert!(status["configuration"]["refused"]["why"].is_string(), "{status}");
    assert_eq!(site.metric("hooksluice_config_last_reload_successful", &[]), 0.0);
    assert_eq!(
        site.metric("hooksluice_config_reloads_total", &["outcome=\"refused\""]),
        2.0
    );

    site.write(&good);
    assert_eq!(site.reloaded(), "nothing has changed\n");
    assert_eq!(site.metric("hooksluice_config_last_reload_successful", &[]), 1.0);
    assert!(site.metric("hooksluice_config_last_reload_success_timestamp_seconds", &[]) > 0.0);
    assert!(site.admin_get("/api/v1/status").json()["configuration"]["refused"].is_null());
}

#[test]
fn what_needs_a_restart_is_named_and_the_rest_of_the_file_is_not_taken_either() {
    let site = site();
    site.edit("listen = \"127.0.0.1:0\"\n[admin]", "listen = \"127.0.0.2:0\"\n[admin]");
    site.edit("/store\"", "/other-store\"");
    site.append("[limits]\nconnections = 7\n[routes.rest]\npath = \"/{*rest}\"\nupstream = \"app\"");
    let (code, printed) = site.reload(&[]);
    assert_eq!(code, 1);
    let expected = "needs a restart: `listen`, `limits.connections`, `store.sqlite.path`";
    assert!(printed.contains(expected), "{printed}");
    assert_eq!(site.send(&Request::new("GET", "/x")).status, 404, "no route");
    still_serves(&site, "a");
}

#[test]
fn a_file_that_is_gone_is_no_empty_configuration() {
    let site = site();
    std::fs::remove_file(site.config()).unwrap();
    site.hang_up("refused");
    site.wait_for_log(&["configuration refused", "cannot read"]);
    still_serves(&site, "a");
}

#[test]
fn secrets_are_not_in_what_is_said_about_a_change() {
    let site = site();
    let secret = "sk_not_to_be_shown_0123456789";
    site.append(&format!("[sources.b]\npath = \"/b\"\nprovider = \"hmac\"\nupstreams = [\"app\"]\nsecrets = [{{ value = \"{secret}\" }}]\nbad = 1"));
    let (code, printed) = site.reload(&["--json"]);
    assert_eq!(code, 1);
    assert!(!printed.contains(secret), "{printed}");
    assert!(!site.log_text().contains(secret));
}
