//! What a reload may change, changes: at once, and without touching what stays.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::sign::{self, SECRET, base64, sha256};
use crate::harness::{Answer, Request, Upstream, eventually};
use crate::site::{Site, UNWATCHED, signed};

fn site() -> Site {
    Site::open(|setup| setup.tables(UNWATCHED).plain())
}

/// A source of the plain preset with the secret of the first one.
fn source(name: &str, upstream: &str, lines: &str) -> String {
    format!(
        "[sources.{name}]\npath = \"/hooks/{name}\"\nprovider = \"hmac\"\nupstreams = [\"{upstream}\"]\n\
         secrets = [{{ env = \"TEST_SECRET_0\" }}]\n{lines}\n"
    )
}

#[test]
fn a_source_comes_and_goes() {
    let site = site();
    let without = site.text();
    assert_eq!(site.send(&signed(SECRET, "/hooks/more", "a")).status, 404);
    site.append(&source("more", "app", ""));
    assert_eq!(site.reloaded(), "source `more` added\n");
    assert_eq!(site.send(&signed(SECRET, "/hooks/more", "b")).status, 200);
    site.upstream.wait_for(1);
    let named = |name: &str| {
        let status = site.admin_get("/api/v1/status").json();
        status["sources"]
            .as_array()
            .unwrap()
            .iter()
            .any(|source| source["name"] == name)
    };
    assert!(named("more"));

    site.write(&without);
    assert_eq!(site.reloaded(), "source `more` removed\n");
    assert_eq!(site.send(&signed(SECRET, "/hooks/more", "c")).status, 404);
    assert!(!named("more") && named("plain"));
    let accepted = site.metric(
        "hooksluice_requests_total",
        &["source=\"more\"", "outcome=\"accepted\""],
    );
    assert_eq!(accepted, 1.0, "a counter does not go back");
}

#[test]
fn the_rate_of_a_source_goes_on_over_a_reload_that_does_not_change_it() {
    let site = Site::open(|setup| {
        setup
            .tables(UNWATCHED)
            .source("plain", "hmac", SECRET, "rate = \"2/h\"")
    });
    for (id, status) in [("a", 200), ("b", 200), ("c", 429)] {
        assert_eq!(site.send(&signed(SECRET, "/hooks/plain", id)).status, status, "{id}");
    }
    site.append(&source("more", "app", ""));
    site.reloaded();
    assert_eq!(
        site.send(&signed(SECRET, "/hooks/plain", "d")).status,
        429,
        "no fresh allowance"
    );
    site.edit("rate = \"2/h\"", "rate = \"3/h\"");
    assert_eq!(site.reloaded(), "source `plain` changed\n");
    assert_eq!(site.send(&signed(SECRET, "/hooks/plain", "e")).status, 200);
}

#[test]
fn an_upstream_comes_and_gets_events_and_one_that_moves_gets_them_where_it_is_then() {
    // The server ends before them.
    let (other, moved) = (Upstream::start(), Upstream::start());
    let site = site();
    let upstream = |at: &Upstream| format!("[upstreams.other]\nurl = \"http://{}\"\n", at.address());
    site.append(&format!("{}{}", upstream(&other), source("more", "other", "")));
    assert_eq!(site.reloaded(), "upstream `other` added\nsource `more` added\n");
    assert_eq!(site.send(&signed(SECRET, "/hooks/more", "a")).status, 200);
    site.wait_for_metric(
        "hooksluice_dispatches",
        &["upstream=\"other\"", "state=\"delivered\""],
        1.0,
    );
    site.edit(&upstream(&other), &upstream(&moved));
    assert_eq!(site.reloaded(), "upstream `other` changed\n");
    assert_eq!(site.send(&signed(SECRET, "/hooks/more", "b")).status, 200);
    moved.wait_for(1);
    assert_eq!(other.received().len(), 1);
}

#[test]
fn a_route_comes_moves_and_goes() {
    let (site, other) = (site(), Upstream::scripted(|_| Answer::Status(204)));
    let without = site.text();
    assert_eq!(site.send(&Request::new("GET", "/page")).status, 404);
    let route = |upstream: &str| format!("[routes.pages]\npath = \"/{{*rest}}\"\nupstream = \"{upstream}\"\n");
    site.append(&route("app"));
    assert_eq!(site.reloaded(), "route `pages` added\n");
    assert_eq!(site.send(&Request::new("GET", "/page")).status, 200);
    site.edit(
        &route("app"),
        &format!(
            "[upstreams.other]\nurl = \"http://{}\"\n{}",
            other.address(),
            route("other")
        ),
    );
    assert_eq!(site.reloaded(), "upstream `other` added\nroute `pages` changed\n");
    assert_eq!(site.send(&Request::new("GET", "/page")).status, 204);
    let status = site.admin_get("/api/v1/status").json();
    assert_eq!(status["routes"][0]["upstream"], "other");
    site.write(&without);
    site.reloaded();
    assert_eq!(site.send(&Request::new("GET", "/page")).status, 404);
}

#[test]
fn a_request_that_began_before_a_reload_ends_as_it_began() {
    let slow =
        Upstream::scripted(|_| Answer::After(std::time::Duration::from_millis(300), Box::new(Answer::Status(200))));
    let site = Site::before(slow, |setup| {
        let route = "[routes.pages]\npath = \"/pages/{*rest}\"\nupstream = \"app\"\n";
        setup.tables(UNWATCHED).plain().table_after(route)
    });
    let mut waiting = site.connect();
    waiting.send(&Request::new("GET", "/pages/1").bytes());
    site.upstream.wait_for(1);
    site.edit("[routes.pages]\npath = \"/pages/{*rest}\"\nupstream = \"app\"\n", "");
    assert_eq!(site.reloaded(), "route `pages` removed\n");
    assert_eq!(site.send(&Request::new("GET", "/pages/2")).status, 404);
    assert_eq!(waiting.read().status, 200);
    waiting.send(&Request::new("GET", "/pages/3").bytes());
    assert_eq!(
        waiting.read().status,
        404,
        "the next one on the same connection is served anew"
    );
}

#[test]
fn connections_to_an_upstream_that_stays_are_kept() {
    let site = Site::open(|setup| {
        let route = "[routes.pages]\npath = \"/pages/{*rest}\"\nupstream = \"app\"\n";
        setup.tables(UNWATCHED).plain().table_after(route)
    });
    // Busy, so that none of them is closed for being idle while a slow machine reloads.
    let busy = AtomicBool::new(true);
    let get = || assert_eq!(site.send(&Request::new("GET", "/pages/1")).status, 200);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            while busy.load(Ordering::SeqCst) {
                get();
            }
        });
        for number in 0..5 {
            site.append(&source(&format!("more{number}"), "app", ""));
            site.reloaded();
        }
        busy.store(false, Ordering::SeqCst);
        sender.join().unwrap();
    });
    assert_eq!(site.upstream.connections(), 1, "one request at a time");
}

#[test]
fn health_path_and_trusted_proxies_change() {
    let site = Site::open(|setup| {
        setup
            .tables(UNWATCHED)
            .source("plain", "hmac", SECRET, "allow = [\"10.0.0.0/8\"]")
    });
    let from = |id: &str| signed(SECRET, "/hooks/plain", id).header("X-Forwarded-For", "10.1.2.3");
    assert_eq!(site.send(&from("a")).status, 403);
    assert_eq!(site.send(&Request::new("GET", "/up")).status, 404);
    site.edit(
        UNWATCHED,
        &format!("{UNWATCHED}health_path = \"/up\"\ntrusted_proxies = [\"127.0.0.0/8\"]\n"),
    );
    assert_eq!(
        site.reloaded(),
        "`server.trusted_proxies` changed\n`server.health_path` changed\n"
    );
    assert_eq!(site.send(&from("b")).status, 200);
    assert_eq!(site.send(&Request::new("GET", "/up")).status, 200);
}

#[test]
fn the_public_url_changes() {
    let old = "public_url = \"https://old.example.com\"";
    let site = Site::open(|setup| setup.tables(UNWATCHED).source("square", "square", SECRET, old));
    let send = |host: &str, id: &str| {
        let body = format!("{{\"event_id\":\"{id}\",\"type\":\"t\"}}");
        let url = format!("https://{host}.example.com/hooks/square");
        let signature = base64(&sha256(SECRET.as_bytes(), &[url.as_bytes(), body.as_bytes()]));
        let request = Request::post("/hooks/square", body).header("x-square-hmacsha256-signature", signature);
        site.send(&request).status
    };
    assert_eq!((send("old", "a"), send("new", "b")), (200, 401));
    site.edit("old.example.com", "new.example.com");
    assert_eq!(site.reloaded(), "source `square` changed\n");
    assert_eq!((send("old", "c"), send("new", "d")), (401, 200));
}

#[test]
fn the_log_level_changes() {
    let site = site();
    let is_debugging = || site.log_text().contains("\"level\":\"DEBUG\"");
    assert_eq!(site.reloaded(), "nothing has changed\n");
    assert!(!is_debugging());
    site.append("[log]\nlevel = \"debug\"");
    assert_eq!(site.reloaded(), "`log.level` changed\n");
    site.reloaded();
    eventually("the log to say more", || is_debugging().then_some(()));
}

#[test]
fn a_change_of_the_file_itself_is_taken_over_without_asking() {
    let site = Site::open(crate::harness::Setup::plain);
    site.append(&source("more", "app", ""));
    site.wait_for_log(&["configuration reloaded", "file changed", "source `more` added"]);
    assert_eq!(site.send(&sign::plain("/hooks/more", "a", b"{}")).status, 200);
}
