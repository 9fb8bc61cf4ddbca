//! Upstreams that ask who we are.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use crate::authority::Authority;
use crate::door::{Door, Plan};
use crate::harness::{Upstream, eventually};
use crate::{accept, check, is_not_sent, showing, trusting};

#[test]
fn a_key_that_everybody_may_read_is_warned_about() {
    let authority = Authority::new();
    let setup = showing("https://localhost:9", &authority, &authority.client("hooksluice"));
    let (good, said) = check(&setup);
    assert!(good && !said.contains("warning"), "{said}");
    let key = setup.directory().join("client.key");
    for path in [setup.directory(), &key] {
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let (good, said) = check(&setup);
    assert!(
        good && said.contains("`upstreams.app.tls.key` can be read by everybody"),
        "{said}"
    );
}

#[test]
fn a_client_certificate_is_shown_to_who_demands_one() {
    let (authority, clients, upstream) = (Authority::new(), Authority::new(), Upstream::start());
    let plan = Plan::new(&authority.server(&["localhost"])).for_clients_of(&clients);
    let door = Door::open(upstream.address(), plan);
    let setup = showing(&door.url(), &authority, &clients.client("hooksluice"));
    let server = setup.start();
    accept(&server, "a");
    upstream.wait_for(1);
}

/// With TLS 1.3 the refusal comes behind the request; not a byte of it was read.
#[test]
fn without_the_certificate_that_is_demanded_nothing_is_sent() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let certificate = authority.server(&["localhost"]);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let upstream = Upstream::start();
        let plan = Plan::new(&certificate).for_clients_of(&clients).version(version);
        let door = Door::open(upstream.address(), plan);
        let setup = trusting(&door.url(), &authority, "")
            .allow_log("the upstream demands a client certificate")
            .allow_log("breaker opened");
        let server = setup.start();
        accept(&server, "a");
        is_not_sent(&server, &upstream, "the upstream demands a client certificate");
    }
}

#[test]
fn a_certificate_of_a_stranger_is_refused_and_nothing_is_sent() {
    let (authority, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let upstream = Upstream::start();
    let plan = Plan::new(&authority.server(&["localhost"])).for_clients_of(&clients);
    let door = Door::open(upstream.address(), plan);
    let setup = showing(&door.url(), &authority, &strangers.client("hooksluice"))
        .allow_log("the upstream refused our certificate: unknown issuer")
        .allow_log("breaker opened");
    let server = setup.start();
    accept(&server, "a");
    is_not_sent(
        &server,
        &upstream,
        "the upstream refused our certificate: unknown issuer",
    );
    // Who is told so is let in once the upstream knows the issuer.
    door.change(Plan::new(&authority.server(&["localhost"])).for_clients_of(&strangers));
    upstream.wait_for(1);
}

#[test]
fn over_http_2_a_refusal_sends_nothing_either() {
    let (authority, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let certificate = authority.server(&["localhost"]);
    let upstream = Upstream::start();
    let plan = Plan::new(&certificate).for_clients_of(&clients).speaking(&["h2"]);
    let door = Door::open(upstream.address(), plan);
    let cause = "the upstream refused our certificate: unknown issuer";
    let setup = showing(&door.url(), &authority, &strangers.client("hooksluice"))
        .upstream("protocol = \"h2\"")
        .allow_log(cause)
        .allow_log("breaker opened");
    let server = setup.start();
    accept(&server, "a");
    is_not_sent(&server, &upstream, cause);
    // However often, and whoever hears of the end first.
    eventually("some attempts", || {
        (server.metric("hooksluice_attempts_total", &["outcome=\"not_sent\""]) >= 6.0).then_some(())
    });
    let unknown = server.metric("hooksluice_attempts_total", &["outcome=\"unknown\""]);
    let event = server.events("").remove(0);
    let shown = server.admin_get(&format!("/api/v1/events/{}", event["id"].as_str().unwrap()));
    assert_eq!(unknown, 0.0, "{}", shown.text());
}
