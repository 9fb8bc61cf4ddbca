//! Upstreams that are not who they should be: nothing is sent, the log says why in words, and the event waits.

use std::io::{Read, Write};

use crate::authority::{Authority, Certificate};
use crate::door::{Door, Plan};
use crate::harness::{Upstream, eventually};
use crate::{accept, file, is_not_sent, trusting};

#[test]
fn an_upstream_of_another_authority_gets_nothing_until_that_one_is_given() {
    let (right, wrong, upstream) = (Authority::new(), Authority::new(), Upstream::start());
    let door = Door::open(upstream.address(), Plan::new(&right.server(&["localhost"])));
    let cause = "the upstream's certificate is not trusted: unknown issuer";
    let setup = trusting(&door.url(), &wrong, "")
        .allow_log(cause)
        .allow_log("breaker opened");
    let server = setup.start();
    accept(&server, "a");
    is_not_sent(&server, &upstream, cause);
    assert_eq!(door.opened(), 0);
    // The attempt's record says it too.
    let event = server.events("").remove(0);
    let target = format!("/api/v1/events/{}", event["id"].as_str().unwrap());
    eventually("the cause in the attempt's record", || {
        server.admin_get(&target).text().contains(cause).then_some(())
    });
    server.stop();
    file(&setup, "ca.pem", &right.pem());
    let _server = setup.start();
    assert_eq!(upstream.only().body, b"{\"a\":1}");
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let door = Door::open(
        upstream.address(),
        Plan::new(&authority.server(&["app.example.com", "127.0.0.1"])),
    );
    let cause = "the upstream's certificate is for another name";
    let setup = trusting(&door.url(), &authority, "")
        .allow_log(cause)
        .allow_log("breaker opened");
    let server = setup.start();
    accept(&server, "a");
    is_not_sent(&server, &upstream, cause);
}

#[test]
fn a_certificate_that_is_its_own_authority_is_refused_in_words_that_help() {
    let upstream = Upstream::start();
    let certificate = Certificate::its_own_authority("localhost");
    let door = Door::open(upstream.address(), Plan::new(&certificate));
    let cause = "the upstream's certificate is not trusted: it is an authority's own (CA:TRUE)";
    let setup = trusting(&door.url(), &Authority::new(), "")
        .allow_log(cause)
        .allow_log("breaker opened");
    file(&setup, "ca.pem", &certificate.cert);
    let server = setup.start();
    accept(&server, "a");
    is_not_sent(&server, &upstream, cause);
}

#[test]
fn an_upstream_without_tls_is_named_as_such() {
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}", plain.local_addr().unwrap().port());
    // What web servers say to a client that greets them with TLS.
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = plain.accept() {
            let _greeting = stream.read(&mut [0; 4096]);
            let _gone = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    let cause = "the upstream speaks no TLS";
    let setup = trusting(&url, &Authority::new(), "")
        .allow_log(cause)
        .allow_log("breaker opened");
    let server = setup.start();
    accept(&server, "a");
    server.wait_for_log(&["attempt failed", "not_sent", cause]);
}

#[test]
fn http_2_is_not_forced_on_who_does_not_offer_it() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let certificate = authority.server(&["localhost"]);
    for (offered, cause) in [
        (
            ["http/1.1"].as_slice(),
            "the upstream does not speak this protocol over TLS",
        ),
        (&[], "the upstream does not speak HTTP/2"),
    ] {
        let door = Door::open(upstream.address(), Plan::new(&certificate).speaking(offered));
        let setup = trusting(&door.url(), &authority, "")
            .upstream("protocol = \"h2\"")
            .allow_log(cause)
            .allow_log("breaker opened");
        let server = setup.start();
        accept(&server, "a");
        is_not_sent(&server, &upstream, cause);
    }
}

/// What somebody has who makes the authority anew and gives out only one half of it.
#[test]
fn another_authority_of_the_same_name_is_told_from_the_right_one() {
    let (right, wrong) = (Authority::named("ours"), Authority::named("ours"));
    let upstream = Upstream::start();
    let door = Door::open(upstream.address(), Plan::new(&right.server(&["localhost"])));
    let cause = "the upstream's certificate is not trusted: not signed by the authority of that name";
    let setup = trusting(&door.url(), &wrong, "")
        .allow_log(cause)
        .allow_log("breaker opened");
    let server = setup.start();
    accept(&server, "a");
    is_not_sent(&server, &upstream, cause);
}
