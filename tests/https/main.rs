//! Upstreams behind TLS, and what this process does not connect to: the built program against TLS ends made by the test.
//! One file per kind; the code in the comment above a test names the failure, seen in the field, that it keeps away.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test binary uses its part of it"
)]
#[path = "../harness/harness.rs"]
mod harness;

mod authority;
mod clients;
mod delivery;
mod door;
mod egress;
mod outages;
mod routes;
mod trust;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use authority::{Authority, Certificate};
use harness::{Server, Setup, Upstream, sign};

/// Soon, so that a test need not wait for the next attempt.
const RETRY: &str = "retry = { first = \"50ms\", max = \"200ms\" }";

/// Puts PEM into a file of the test's directory.
fn file(setup: &Setup, name: &str, pem: &str) -> PathBuf {
    let path = setup.directory().join(name);
    std::fs::write(&path, pem).unwrap();
    path
}

/// An upstream at `url` whose certificates are believed when `authority` signed them; `more` goes into its `tls` table.
fn trusting(url: &str, authority: &Authority, more: &str) -> Setup {
    let setup = Setup::for_url(url);
    let ca = file(&setup, "ca.pem", &authority.pem());
    let tls = format!("tls = {{ ca = \"{}\"{more} }}", ca.display());
    setup.upstream(&tls).upstream(RETRY).plain()
}

/// As [`trusting`], showing `certificate` to who asks.
fn showing(url: &str, authority: &Authority, certificate: &Certificate) -> Setup {
    let setup = Setup::for_url(url);
    let ca = file(&setup, "ca.pem", &authority.pem());
    let cert = file(&setup, "client.pem", &certificate.cert);
    let key = file(&setup, "client.key", &certificate.key);
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let [ca, cert, key] = [ca, cert, key].map(|path| path.display().to_string());
    let tls = format!("tls = {{ ca = \"{ca}\", cert = \"{cert}\", key = \"{key}\" }}");
    setup.upstream(&tls).upstream(RETRY).plain()
}

/// One event, acknowledged.
#[track_caller]
fn accept(server: &Server, id: &str) {
    let answer = server.send(&sign::plain("/hooks/plain", id, b"{\"a\":1}"));
    assert_eq!(answer.status, 200);
}

/// The attempts are not sent for this cause, and the event is kept.
#[track_caller]
fn is_not_sent(server: &Server, upstream: &Upstream, cause: &str) {
    server.wait_for_log(&["attempt failed", "not_sent", cause]);
    assert!(upstream.received().is_empty(), "nothing may arrive");
    assert_eq!(server.metric("hooksluice_dead_total", &[]), 0.0);
    let pending = ["upstream=\"app\""];
    assert!(server.metric("hooksluice_oldest_pending_seconds", &pending) >= 0.0);
    assert_eq!(server.events("").len(), 1);
}

/// What `hooksluice check` says.
fn check(setup: &Setup) -> (bool, String) {
    let mut command = harness::server::program();
    command.args(["check", "-c"]).arg(setup.write_config());
    setup.set_environment(&mut command);
    let output = command.output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.success(), said)
}
