//! FW-12: an upstream that was away and is back gets its events without anybody starting us anew, whatever the outage
//! looked like from here. (A name that leads elsewhere: `net::connections`.)

use std::net::SocketAddr;
use std::thread;

use socket2::{Domain, Socket, Type};

use crate::authority::Authority;
use crate::door::{Door, Plan};
use crate::harness::{Answer, Request, Setup, Upstream, eventually};
use crate::{RETRY, accept, trusting};

const ROUTE: &str = "[routes.rest]\npath = \"/api/{*rest}\"\nupstream = \"app\"\n";

#[test]
fn after_refused_connects_the_first_attempt_succeeds() {
    let upstream = Upstream::start();
    let setup = Setup::for_url(&format!("http://localhost:{}", upstream.address().port()))
        .upstream(RETRY)
        .plain()
        .table_after(ROUTE)
        .allow_log("connection refused")
        .allow_log("breaker opened");
    let server = setup.start();
    accept(&server, "a");
    upstream.wait_for(1);
    // Its answer is here: an attempt that is cut off would be repeated.
    server.wait_for_metric("hooksluice_dispatches", &["state=\"delivered\""], 1.0);
    upstream.stop();
    accept(&server, "b");
    server.wait_for_log(&["attempt failed", "connection refused"]);
    assert_eq!(server.send(&Request::new("GET", "/api/x")).status, 502);
    upstream.start_again();
    upstream.wait_for(2);
    assert_eq!(server.send(&Request::new("GET", "/api/x")).status, 200);
    assert_eq!(upstream.received().len(), 3, "each once");
}

/// A listener whose queue is full drops what knocks, as a firewall does.
#[test]
fn after_dropped_connects_the_first_attempt_succeeds() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut fillers = Vec::new();
    eventually("a full queue", || {
        let filler = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let wait = std::time::Duration::from_millis(200);
        let full = filler.connect_timeout(&address.into(), wait).is_err();
        fillers.push(filler);
        full.then_some(())
    });
    let setup = Setup::for_address(address)
        .upstream(RETRY)
        .upstream("timeout = \"300ms\"")
        .plain()
        .allow_log("timeout while connecting")
        .allow_log("breaker opened");
    let server = setup.start();
    accept(&server, "a");
    server.wait_for_log(&["attempt failed", "timeout while connecting"]);
    drop(fillers);
    // Back: whoever waits in the queue is let in, and everybody else.
    let upstream = Upstream::scripted(|_| Answer::Status(200));
    let behind = upstream.address();
    thread::spawn(move || {
        while let Ok((stream, _)) = socket.accept() {
            let mut to = std::net::TcpStream::connect(behind).unwrap();
            let mut from: std::net::TcpStream = stream.into();
            let (mut back_from, mut back_to) = (to.try_clone().unwrap(), from.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
        }
    });
    assert_eq!(upstream.wait_for(1).remove(0).body, b"{\"a\":1}");
}

#[test]
fn after_an_expired_certificate_was_renewed_the_first_attempt_succeeds() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let door = Door::open(upstream.address(), Plan::new(&authority.expired(&["localhost"])));
    let cause = "the upstream's certificate has expired";
    let setup = trusting(&door.url(), &authority, "")
        .table_after(ROUTE)
        .allow_log(cause)
        .allow_log("breaker opened");
    let server = setup.start();
    accept(&server, "a");
    server.wait_for_log(&["attempt failed", "not_sent", cause]);
    assert_eq!(server.send(&Request::new("GET", "/api/x")).status, 502);
    assert!(upstream.received().is_empty());
    door.change(Plan::new(&authority.server(&["localhost"])));
    upstream.wait_for(1);
    assert_eq!(server.send(&Request::new("GET", "/api/x")).status, 200);
}

/// An upstream that takes the connection and says nothing holds up its own attempt until `timeout`, and no sender (RS-02).
#[test]
fn a_handshake_that_stands_still_ends_with_the_attempt() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let setup = trusting(&url, &Authority::new(), "")
        .upstream("timeout = \"300ms\"")
        .allow_log("timeout while connecting")
        .allow_log("breaker opened");
    let server = setup.start();
    accept(&server, "a");
    server.wait_for_log(&["attempt failed", "not_sent", "timeout while connecting"]);
}
