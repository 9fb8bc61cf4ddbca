//! Sizes: the provider's limit and not the framework's, a readable answer over it, and a budget over all of them.

use std::io::Write;
use std::time::Duration;

use crate::harness::sign;
use crate::harness::{Request, Stage};

/// The largest body that GitHub sends.
const GITHUB_LARGEST: usize = 25 << 20;

// SZ-01
#[test]
fn what_the_provider_may_send_is_taken_and_one_byte_more_is_not() {
    let stage = Stage::new(|setup| setup.github());
    for size in [457_522, GITHUB_LARGEST] {
        stage.accept(&sign::github(
            "/hooks/github",
            &format!("sz-01-{size}"),
            &vec![b'x'; size],
        ));
    }
    stage.leaves_nothing(|| {
        let request = sign::github("/hooks/github", "sz-01-over", &vec![b'x'; GITHUB_LARGEST + 1]);
        assert_eq!(stage.server.send(&request).status, 413);
    });
}

#[test]
fn a_chunked_body_is_held_to_the_same_limit() {
    let stage = Stage::new(|setup| setup.source("plain", "hmac", sign::SECRET, "max_body = \"1KiB\""));
    let body = vec![b'x'; 1025];
    let bytes = sign::plain("/hooks/plain", "chunked", &body).chunked(&[&body[..600], &body[600..]]);
    stage.leaves_nothing(|| assert_eq!(stage.server.send_bytes(&bytes).status, 413));
    let body = vec![b'x'; 1024];
    let bytes = sign::plain("/hooks/plain", "chunked", &body).chunked(&[&body[..600], &body[600..]]);
    assert_eq!(stage.server.send_bytes(&bytes).status, 200);
}

// SZ-03
#[test]
fn a_sender_that_reads_only_after_writing_still_sees_the_413() {
    let stage = Stage::new(|setup| setup.plain());
    let size = 100 << 20;
    let mut head = sign::plain("/hooks/plain", "sz-03", b"").head();
    head.extend(format!("Content-Length: {size}\r\n\r\n").into_bytes());
    for round in 0..5 {
        let mut connection = stage.server.connect();
        connection.send(&head);
        // As a simple client does: write until it is told to stop, then read.
        let chunk = vec![b'x'; 64 << 10];
        for _ in 0..size / chunk.len() {
            if connection.try_send(&chunk).is_err() {
                break;
            }
        }
        let answer = connection.try_read(false);
        assert!(
            matches!(&answer, Ok(Some(answer)) if answer.status == 413),
            "round {round}: {answer:?}"
        );
    }
}

#[test]
fn an_oversize_head_is_told_so() {
    let stage = Stage::new(|setup| setup.plain());
    let request = sign::plain("/hooks/plain", "head", b"{}").header("X-Long", "x".repeat(64 << 10));
    stage.leaves_nothing(|| assert_eq!(stage.server.send(&request).status, 431));
}

#[test]
fn a_slow_head_is_closed() {
    let stage = Stage::new(|setup| setup.tables("[limits]\nhead_timeout = \"1s\"").plain());
    let mut connection = stage.server.connect();
    connection.send(b"POST /hooks/plain HTTP/1.1\r\nHost: x\r\nX-Slow: ");
    assert!(connection.closes_within(Duration::from_secs(5)));
}

#[test]
fn an_idle_connection_is_closed() {
    let stage = Stage::new(|setup| {
        setup
            .tables("[limits]\nhead_timeout = \"1s\"\nidle_timeout = \"1s\"")
            .plain()
    });
    let mut connection = stage.server.connect();
    connection.send(&sign::plain("/hooks/plain", "idle", b"{}").bytes());
    assert_eq!(connection.read().status, 200);
    assert!(connection.closes_within(Duration::from_secs(5)));
}

// SZ-05
#[test]
fn bodies_over_the_common_budget_are_asked_to_come_later() {
    let stage = Stage::new(|setup| {
        setup
            .tables("[limits]\nin_flight = \"1MiB\"\nbody = \"600KiB\"")
            .plain()
    });
    let body = vec![b'x'; 512 << 10];
    let bytes = |id: &str| sign::plain("/hooks/plain", id, &body).bytes();
    // Two bodies that are not quite there take the budget.
    let mut slow: Vec<_> = ["slow-1", "slow-2"]
        .into_iter()
        .map(|id| {
            let mut connection = stage.server.connect();
            let bytes = bytes(id);
            connection.send(&bytes[..bytes.len() - 1]);
            connection
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let refused = stage.server.send_bytes(&bytes("refused"));
    assert_eq!(refused.status, 503);
    assert!(refused.header("Retry-After").is_some());
    for connection in &mut slow {
        connection.send(b"x");
        assert_eq!(connection.read().status, 200);
    }
    assert_eq!(stage.server.send_bytes(&bytes("later")).status, 200);
    let mut ids: Vec<String> = stage
        .upstream
        .wait_for(3)
        .iter()
        .map(|received| received.header("X-Delivery-Id").unwrap().to_owned())
        .collect();
    ids.sort();
    assert_eq!(ids, ["later", "slow-1", "slow-2"]);
}

#[test]
fn connections_over_the_cap_wait_and_are_served_when_there_is_room() {
    let stage = Stage::new(|setup| setup.tables("[limits]\nconnections = 2").plain());
    let first = stage.server.connect();
    let second = stage.server.connect();
    std::thread::sleep(Duration::from_millis(200));
    let mut third = stage.server.connect();
    third.send(&sign::plain("/hooks/plain", "third", b"{}").bytes());
    drop(first);
    drop(second);
    assert_eq!(third.read().status, 200);
}

#[test]
fn announced_bytes_that_never_come_refuse_nobody() {
    let stage = Stage::new(|setup| setup.tables("[limits]\nin_flight = \"1MiB\"\nbody = \"1MiB\"").plain());
    // Heads that anybody can send: no signature that holds, and lengths that together are far over the budget.
    let idle: Vec<_> = (0..8)
        .map(|number| {
            let mut connection = stage.server.connect();
            let head = format!(
                "POST /hooks/plain HTTP/1.1\r\nHost: x\r\nX-Delivery-Id: {number}\r\nX-Signature: sha256={}\r\n\
                 Content-Length: 1000000\r\n\r\n",
                "0".repeat(64)
            );
            connection.send(head.as_bytes());
            connection
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    stage.accept(&sign::plain("/hooks/plain", "in-between", b"{}"));
    drop(idle);
}

#[test]
fn a_client_that_never_reads_loses_its_place() {
    let stage = Stage::new(|setup| setup.tables("[limits]\nconnections = 2\nbody_timeout = \"1s\"").plain());
    let mut silent: Vec<_> = (0..2).map(|_| stage.server.connect()).collect();
    for connection in &mut silent {
        connection
            .0
            .stream
            .set_write_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        let requests = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n".repeat(4096);
        // Until the answers fill both sides' buffers and the server reads no more.
        for _ in 0..64 {
            if connection.0.stream.write_all(&requests).is_err() {
                break;
            }
        }
    }
    let mut waiting = stage.server.connect();
    waiting.send(&sign::plain("/hooks/plain", "waiting", b"{}").bytes());
    assert_eq!(waiting.read().status, 200);
    stage
        .server
        .wait_for_metric("hooksluice_stalled_closed_total", &[], 2.0);
}

#[test]
fn many_headers_are_no_way_around_the_head_limit() {
    let stage = Stage::new(|setup| setup.plain());
    let mut request: Request = sign::plain("/hooks/plain", "many", b"{}");
    for number in 0..4000 {
        request = request.header(&format!("X-{number}"), "y");
    }
    let mut connection = stage.server.connect();
    connection.0.stream.write_all(&request.bytes()).ok();
    assert_eq!(connection.read().status, 431);
}
