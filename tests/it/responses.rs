//! Answers: what senders need to see, when, and nothing else.

use std::net::TcpStream;
use std::time::Duration;

use hooksluice::time::Clock;

use crate::harness::sign::{self, SECRET, base64, hex, sha256};
use crate::harness::{Answer, Request, Setup, Stage, Upstream, eventually, unix_now};

/// Answer times of `count` requests over 8 connections, sorted.
fn answer_times(stage: &Stage, count: usize) -> Vec<Duration> {
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|worker| {
                scope.spawn(move || {
                    let clock = Clock::system();
                    let mut connection = stage.server.connect();
                    let mut times = Vec::new();
                    for number in 0..count / 8 {
                        let request = sign::plain("/hooks/plain", &format!("{worker}-{number}"), b"{}");
                        let start = clock.monotonic();
                        connection.send(&request.bytes());
                        assert_eq!(connection.read().status, 200);
                        times.push(clock.monotonic().since(start));
                    }
                    times
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    times.sort_unstable();
    times
}

#[track_caller]
fn at_once(times: &[Duration]) {
    let p99 = times[times.len() * 99 / 100];
    assert!(p99 < Duration::from_millis(250), "p99 {p99:?}");
    assert!(*times.last().unwrap() < Duration::from_secs(2), "{:?}", times.last());
}

// RS-01
#[test]
fn an_upstream_that_hangs_delays_no_answer() {
    let stage = Stage::with(Upstream::scripted(|_| Answer::Hang), |setup| {
        setup.plain().allow_log("app")
    });
    at_once(&answer_times(&stage, 504));
}

// RS-02
#[test]
fn an_upstream_that_cannot_even_be_connected_to_delays_no_answer() {
    // A listener whose queue is full drops further SYNs.
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        waiting.push(stream);
    }
    let setup = Setup::for_address(address).plain().allow_log("app");
    let server = setup.start();
    let stage = Stage {
        server,
        setup,
        upstream: Upstream::start(),
    };
    at_once(&answer_times(&stage, 504));
}

// RS-04
#[test]
fn the_acknowledgement_is_exactly_200_with_an_empty_body_of_known_length() {
    let stage = Stage::new(|setup| setup.plain());
    let answer = stage.server.send(&sign::plain("/hooks/plain", "rs-04", b"{}"));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("Content-Length"), Some("0"));
    assert_eq!(answer.header("Set-Cookie"), None);
    assert_eq!(answer.text(), "");
}

// RS-04, RS-12
#[test]
fn a_required_acknowledgement_is_given_to_new_events_and_duplicates_alike() {
    let stage =
        Stage::new(|setup| setup.source("plain", "hmac", SECRET, "ack_status = 202\nack_body = \"[accepted]\""));
    for _ in 0..2 {
        let answer = stage.server.send(&sign::plain("/hooks/plain", "rs-12", b"{}"));
        assert_eq!((answer.status, answer.text().as_str()), (202, "[accepted]"));
        assert_eq!(answer.header("Content-Length"), Some("10"));
        stage.upstream.wait_for(1);
    }
}

// RS-06
#[test]
fn one_trailing_slash_more_is_the_same_source_and_nothing_is_ever_redirected() {
    let stage = Stage::new(|setup| setup.plain());
    for (id, target) in [
        ("a", "/hooks/plain/"),
        ("b", "/hooks/plain?x=1"),
        ("c", "/hooks/plain/?x=/y/&z=%2f"),
    ] {
        stage.accept(&sign::plain(target, id, b"{}"));
    }
    for target in [
        "/hooks//plain",
        "/hooks/plain/extra",
        "/hooks/plain//",
        "/Hooks/plain",
        "/hooks/plai%6e",
        "/",
        "/x",
    ] {
        let answer = stage.server.send(&sign::plain(target, "d", b"{}"));
        assert_eq!(answer.status, 404, "{target}");
    }
}

// RS-07
#[test]
fn probes_are_answered_and_other_methods_are_refused() {
    let stage = Stage::new(|setup| {
        setup.plain().source(
            "twilio",
            "twilio",
            SECRET,
            "public_url = \"https://hooks.example.test\"",
        )
    });
    stage.leaves_nothing(|| {
        let mut connection = stage.server.connect();
        connection.send(&Request::new("HEAD", "/hooks/plain").bytes());
        let head = connection.try_read(true).unwrap().unwrap();
        assert_eq!(head.status, 200);
        let options = stage.server.send(&Request::new("OPTIONS", "/hooks/plain"));
        assert_eq!(options.status, 204);
        assert!(options.header("Allow").unwrap().contains("POST"));
        for method in ["GET", "PUT", "DELETE", "TRACE", "PATCH", "BREW"] {
            let answer = stage.server.send(&Request::new(method, "/hooks/plain"));
            assert_eq!(answer.status, 405, "{method}");
            assert!(answer.header("Allow").unwrap().contains("POST"), "{method}");
        }
        // Twilio delivers by GET too: an unsigned one is a refused delivery.
        assert_eq!(stage.server.send(&Request::new("GET", "/hooks/twilio")).status, 401);
    });
    assert!(stage.upstream.received().is_empty());
}

// RS-09
#[test]
fn a_signed_challenge_is_answered_by_us_and_an_unsigned_one_by_nobody() {
    let stage = Stage::new(|setup| setup.source("slack", "slack", SECRET, ""));
    let body = br#"{"type":"url_verification","challenge":"abc"}"#;
    let t = unix_now();
    let digest = hex(&sha256(
        SECRET.as_bytes(),
        &[b"v0:", t.to_string().as_bytes(), b":", body],
    ));
    stage.leaves_nothing(|| {
        let answer = stage.server.send(
            &Request::post("/hooks/slack", &body[..])
                .header("X-Slack-Request-Timestamp", t.to_string())
                .header("X-Slack-Signature", format!("v0={digest}")),
        );
        assert_eq!(answer.status, 200);
        assert!(answer.text().contains("abc"), "{answer:?}");
        assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"));
    });
    stage.refuse(&Request::post("/hooks/slack", &body[..]));
    let script = br#"{"type":"url_verification","challenge":"<script>alert(1)</script>"}"#;
    stage.refuse(&Request::post("/hooks/slack", &script[..]));
    let long = format!(
        "{{\"type\":\"url_verification\",\"challenge\":\"{}\"}}",
        "x".repeat(1 << 20)
    );
    stage.refuse(&Request::post("/hooks/slack", long));
    assert!(stage.upstream.received().is_empty());
}

// RS-10: Dropbox's and Meta's ways of asking, written by the operator.
#[test]
fn a_get_challenge_is_echoed_as_harmless_text_on_sources_that_know_it() {
    let scheme = "[providers.asking]\nkind = \"hmac\"\nhash = \"sha256\"\nsignature = \"header:X-Signature\"\n\
                  encoding = \"hex\"\npayload = \"{body}\"\nmethods = [\"GET\", \"POST\"]\n\
                  [[providers.asking.challenge]]\nname = \"echo\"\nwhen = \"method == GET and query:challenge\"\n\
                  verify_first = false\nstatus = 200\ncontent_type = \"text/plain\"\nbody = \"{query:challenge}\"";
    let stage = Stage::new(|setup| {
        setup
            .table_after(scheme)
            .source("asking", "asking", SECRET, "id_missing = \"digest\"")
            .plain()
    });
    stage.leaves_nothing(|| {
        let answer = stage
            .server
            .send(&Request::new("GET", "/hooks/asking?challenge=abc123"));
        assert_eq!((answer.status, answer.text().as_str()), (200, "abc123"));
        assert!(answer.header("Content-Type").unwrap().starts_with("text/plain"));
        assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"));
        for target in [
            "/hooks/asking?challenge=<b>",
            "/hooks/asking?challenge=%3Cb%3E",
            "/hooks/asking",
        ] {
            let answer = stage.server.send(&Request::new("GET", target));
            assert!((400..500).contains(&answer.status), "{target}: {answer:?}");
            assert_eq!(answer.text(), "", "{target}");
        }
        assert_eq!(
            stage
                .server
                .send(&Request::new("GET", "/hooks/plain?challenge=abc123"))
                .status,
            405
        );
    });
}

// RS-11: Xero's scheme, written by the operator.
#[test]
fn a_good_signature_is_an_empty_200_and_a_bad_one_an_empty_401() {
    let scheme = "[providers.books]\nkind = \"hmac\"\nhash = \"sha256\"\nsignature = [\"header:x-xero-signature\"]\n\
                  encoding = \"base64\"\npayload = \"{body}\"";
    let stage = Stage::new(|setup| {
        setup
            .table_after(scheme)
            .source("books", "books", SECRET, "id_missing = \"digest\"")
    });
    let body = br#"{"events":[]}"#;
    let digest = base64(&sha256(SECRET.as_bytes(), &[body]));
    let request = |digest: &str| {
        Request::post("/hooks/books", &body[..])
            .header("Accept", "text/html")
            .header("x-xero-signature", digest)
    };
    let good = stage.server.send(&request(&digest));
    assert_eq!((good.status, good.text().as_str()), (200, ""));
    let changed = format!(
        "{}{}",
        if digest.starts_with('A') { 'B' } else { 'A' },
        digest.split_at(1).1
    );
    let bad = stage.server.send(&request(&changed));
    assert_eq!((bad.status, bad.text().as_str()), (401, ""));
    for answer in [good, bad] {
        assert_eq!(answer.header("Content-Length"), Some("0"));
        assert_eq!(answer.header("Set-Cookie"), None);
    }
}

// RS-15
#[test]
fn http_1_0_clients_get_a_length_and_keep_the_connection_only_if_they_ask() {
    let stage = Stage::new(|setup| setup.plain());
    for (id, keep) in [("a", false), ("b", true)] {
        let request = sign::plain("/hooks/plain", id, b"{}");
        let mut bytes = b"POST /hooks/plain HTTP/1.0\r\nContent-Length: 2\r\n".to_vec();
        for (name, value) in &request.lines {
            bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        if keep {
            bytes.extend(b"Connection: keep-alive\r\n");
        }
        bytes.extend(b"\r\n{}");
        let mut connection = stage.server.connect();
        connection.send(&bytes);
        let answer = connection.read();
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("Content-Length"), Some("0"));
        assert_eq!(answer.header("Transfer-Encoding"), None);
        if keep {
            assert!(answer.header("Connection").unwrap().eq_ignore_ascii_case("keep-alive"));
        } else {
            assert!(connection.closes_within(Duration::from_secs(5)));
        }
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let stage = Stage::new(|setup| setup.plain());
    let mut bytes = sign::plain("/hooks/plain", "p-1", b"{}").bytes();
    bytes.extend(sign::plain("/nowhere", "p-2", b"{}").bytes());
    bytes.extend(sign::plain("/hooks/plain", "p-3", b"{}").bytes());
    let mut connection = stage.server.connect();
    connection.send(&bytes);
    let statuses = [(); 3].map(|()| connection.read().status);
    assert_eq!(statuses, [200, 404, 200]);
}

#[test]
fn a_client_that_expects_to_be_asked_is_asked_only_when_its_head_is_acceptable() {
    let stage = Stage::new(|setup| setup.plain());
    let expecting = |request: &Request| {
        let mut head = request.head();
        head.extend(format!("Content-Length: {}\r\nExpect: 100-continue\r\n\r\n", request.body.len()).into_bytes());
        head
    };
    let good = sign::plain("/hooks/plain", "expect", b"{}");
    let mut connection = stage.server.connect();
    connection.send(&expecting(&good));
    let interim = connection.try_read(true).unwrap().unwrap();
    assert_eq!(interim.status, 100);
    connection.send(&good.body);
    assert_eq!(connection.read().status, 200);
    let unsigned = Request::post("/hooks/plain", "{}").header("X-Delivery-Id", "expect-2");
    let mut connection = stage.server.connect();
    connection.send(&expecting(&unsigned));
    assert_eq!(connection.read().status, 401);
}

#[test]
fn shutting_down_finishes_what_came_in_and_says_goodbye() {
    let stage = Stage::new(|setup| setup.tables("[server]\nshutdown_delay = \"2s\"").plain());
    let mut connection = stage.server.connect();
    let request = sign::plain("/hooks/plain", "last", b"{}");
    let bytes = request.bytes();
    let (first, second) = bytes.split_at(bytes.len() - 1);
    connection.send(first);
    stage.server.ask_to_stop();
    eventually("the server to be unready", || {
        (stage.server.admin_get("/readyz").status == 503).then_some(())
    });
    connection.send(second);
    let answer = connection.read();
    assert_eq!(answer.status, 200);
    assert!(
        answer
            .header("Connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"))
    );
    stage.upstream.wait_for(1);
    let Stage { mut server, .. } = stage;
    assert!(server.wait_for_end().success(), "{}", server.log_text());
}

#[test]
fn a_source_s_rate_counts_verified_requests_only() {
    let stage = Stage::new(|setup| setup.source("plain", "hmac", SECRET, "rate = \"2/m\""));
    // Strangers cannot use the rate up.
    for _ in 0..10 {
        stage.refuse(&Request::post("/hooks/plain", "{}").header("X-Delivery-Id", "stranger"));
    }
    let send = |id: &str| stage.server.send(&sign::plain("/hooks/plain", id, b"{}"));
    assert_eq!(send("a").status, 200);
    assert_eq!(send("b").status, 200);
    let over = send("c");
    assert_eq!(over.status, 429);
    let wait: u64 = over.header("Retry-After").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(stage.upstream.wait_for(2).len(), 2);
}

#[test]
fn clients_that_are_not_on_a_source_s_list_are_forbidden() {
    let stage = Stage::new(|setup| {
        setup
            .source("plain", "hmac", SECRET, "allow = [\"192.0.2.0/24\"]")
            .source("near", "hmac", SECRET, "allow = [\"192.0.2.0/24\", \"127.0.0.0/8\"]")
    });
    stage.leaves_nothing(|| {
        let answer = stage.server.send(&sign::plain("/hooks/plain", "allow", b"{}"));
        assert_eq!((answer.status, answer.text().as_str()), (403, ""));
        // What a stranger says about where it comes from is not believed.
        let request = sign::plain("/hooks/plain", "allow", b"{}").header("X-Forwarded-For", "192.0.2.1");
        assert_eq!(stage.server.send(&request).status, 403);
    });
    let labels = ["source=\"plain\"", "reason=\"address_not_allowed\""];
    assert_eq!(stage.server.metric("hooksluice_rejections_total", &labels), 2.0);
    stage.accept(&sign::plain("/hooks/near", "allow", b"{}"));
}

#[test]
fn the_health_path_answers_on_the_public_port_only_if_it_is_configured() {
    let stage = Stage::new(|setup| setup.tables("[server]\nhealth_path = \"/up\"").plain());
    assert_eq!(stage.server.send(&Request::new("GET", "/up")).status, 200);
    for target in ["/healthz", "/readyz", "/metrics", "/api/v1/events"] {
        assert_eq!(stage.server.send(&Request::new("GET", target)).status, 404, "{target}");
    }
}

#[test]
fn malformed_http_is_told_so_and_harms_nobody_else() {
    let stage = Stage::new(|setup| setup.plain());
    let neighbour = sign::plain("/hooks/plain", "neighbour", b"{}");
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"GET\r\n\r\n",
        b"POST /hooks/plain HTTP/9.9\r\nHost: x\r\n\r\n",
        b"POST /hooks/plain HTTP/1.1\r\nHost: x\r\nBad Name: y\r\n\r\n",
        b"POST /hooks/plain HTTP/1.1\r\nHost: x\r\nX: \x00\r\n\r\n",
        b"POST /hooks/\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\r\n\r\n\r\n\r\nnonsense\r\n\r\n",
    ] {
        let mut connection = stage.server.connect();
        connection.send(bytes);
        connection.finish_sending();
        let answer = connection.try_read(false);
        let text = String::from_utf8_lossy(bytes).into_owned();
        assert!(
            matches!(&answer, Ok(None)) || matches!(&answer, Ok(Some(answer)) if (400..500).contains(&answer.status)),
            "{text:?}: {answer:?}"
        );
    }
    stage.accept(&neighbour);
}

#[test]
fn a_server_runs_without_a_file() {
    let upstream = Upstream::start();
    let setup = Setup::new(&upstream);
    let mut command = crate::harness::server::program();
    command
        .env("GITHUB_WEBHOOK_SECRET", SECRET)
        .args(["serve", "--provider", "github", "--secret-env", "GITHUB_WEBHOOK_SECRET"])
        .args(["--upstream", &format!("http://{}", upstream.address())])
        .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--store"])
        .arg(setup.store());
    let server = setup.start_command(command);
    let request = sign::github("/webhooks/github", "no-file", b"{}");
    assert_eq!(server.send(&request).status, 200);
    assert_eq!(upstream.only().header("Hooksluice-Source"), Some("github"));
}

#[test]
fn a_sender_that_closes_its_side_behind_the_request_gets_its_answer() {
    let stage = Stage::new(|setup| setup.plain());
    for number in 0..20 {
        let mut connection = stage.server.connect();
        connection.send(&sign::plain("/hooks/plain", &format!("half-{number}"), b"{}").bytes());
        connection.0.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(connection.read().status, 200);
    }
}

// P8
#[test]
fn what_is_stored_of_senders_that_left_is_counted_as_accepted() {
    let stage = Stage::new(|setup| setup.plain());
    for number in 0..100 {
        let mut connection = stage.server.connect();
        connection.send(&sign::plain("/hooks/plain", &format!("left-{number}"), b"{}").bytes());
    }
    stage.accept(&sign::plain("/hooks/plain", "stayed", b"{}"));
    stage.server.wait_for_metric("hooksluice_unadmitted", &[], 0.0);
    stage.server.wait_for_metric("hooksluice_connections", &[], 0.0);
    let accepted = || {
        stage.server.metric(
            "hooksluice_requests_total",
            &["source=\"plain\"", "outcome=\"accepted\""],
        )
    };
    let stored = stage
        .server
        .metric("hooksluice_events_stored_total", &["source=\"plain\""]);
    assert!(
        (accepted() - stored).abs() < 0.5,
        "{} accepted, {stored} stored",
        accepted()
    );
}
