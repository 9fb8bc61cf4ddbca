//! What `[egress]` refuses is neither connected to by an event nor by a route, whether it stands in the configuration or
//! behind a name.

use crate::accept;
use crate::check;
use crate::harness::{Request, Setup, Upstream};
use crate::is_not_sent;

const REFUSED: &str = "address not allowed by [egress]";

/// The cloud's own service for credentials, in every way of writing its address that needs no name.
#[test]
fn check_refuses_a_metadata_address_in_any_spelling() {
    for url in [
        "http://169.254.169.254",
        "https://169.254.169.254:8443",
        "http://[::ffff:169.254.169.254]",
        "http://[64:ff9b::a9fe:a9fe]:80",
        "http://[2002:a9fe:a9fe::1]",
        "http://[fd00:ec2::254]",
        "http://0.0.0.0:3000",
        "http://[fe80::1]:3000",
    ] {
        let setup = Setup::for_url(url).plain();
        let (good, said) = check(&setup);
        assert!(!good, "{url} is taken:\n{said}");
        assert!(
            said.contains("is not allowed") && said.contains("egress.allow"),
            "{url}:\n{said}"
        );
    }
}

#[test]
fn what_the_configuration_names_is_allowed() {
    let setup = Setup::for_url("http://169.254.169.254")
        .tables("[egress]\nallow = [\"169.254.169.254\"]\n")
        .plain();
    let (good, said) = check(&setup);
    assert!(good, "{said}");
    assert!(said.contains("egress    only to 169.254.169.254/32"), "{said}");
}

/// Numbers that are no address by their look are one to the system's resolver.
#[test]
fn an_address_in_disguise_is_refused_when_it_is_resolved() {
    let upstream = Upstream::start();
    let setup = Setup::for_url("http://2852039166")
        .upstream(crate::RETRY)
        .plain()
        .allow_log(REFUSED)
        .allow_log("breaker opened");
    let server = setup.start();
    accept(&server, "a");
    is_not_sent(&server, &upstream, REFUSED);
}

#[test]
fn a_name_that_leads_to_a_refused_address_gets_no_event_and_no_request() {
    let upstream = Upstream::start();
    let setup = Setup::for_url(&format!("http://localhost:{}", upstream.address().port()))
        .upstream(crate::RETRY)
        .tables("[egress]\ndeny = [\"127.0.0.0/8\", \"::1\"]\n")
        .plain()
        .table_after("[routes.rest]\npath = \"/{*rest}\"\nupstream = \"app\"\n")
        .allow_log(REFUSED)
        .allow_log("breaker opened");
    let server = setup.start();
    accept(&server, "a");
    is_not_sent(&server, &upstream, REFUSED);
    assert_eq!(server.send(&Request::new("GET", "/x")).status, 502);
    server.wait_for_log(&["the upstream gave no answer", REFUSED]);
    assert!(upstream.received().is_empty());
}

#[test]
fn of_a_name_with_several_addresses_the_allowed_ones_are_used() {
    let upstream = Upstream::start();
    let setup = Setup::for_url(&format!("http://localhost:{}", upstream.address().port()))
        .tables("[egress]\nallow = [\"127.0.0.0/8\"]\n")
        .plain();
    let server = setup.start();
    accept(&server, "a");
    upstream.wait_for(1);
}
