//! Bodies that are long, slow or endless.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use crate::harness::{Request, Server, Setup, eventually};
use crate::raw::{self, Raw, head, read_many, value, write_many};
use crate::route;

const GIB: u64 = 1 << 30;
/// Far above what is in flight in pipes and windows, far below what is sent.
const MEMORY: u64 = 64 << 20;

fn start(upstream: &Raw, lines: &str, configure: impl FnOnce(Setup) -> Setup) -> (Setup, Server) {
    let setup = Setup::for_address(upstream.address()).allow_log("no source is configured");
    let setup = configure(setup.table_after(&route("rest", "/{*rest}", lines)));
    let server = setup.start();
    (setup, server)
}

/// The most memory that the process has had, in bytes.
fn high_water(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let kib: u64 = line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[track_caller]
fn grows_little(server: &Server, act: impl FnOnce()) {
    let before = high_water(server);
    act();
    let grown = high_water(server) - before;
    assert!(grown < MEMORY, "{} MiB more", grown >> 20);
}

#[test]
fn a_gibibyte_goes_up_with_constant_memory() {
    for chunked in [false, true] {
        let upstream = Raw::start(move |mut stream| {
            let head = head(&mut stream).unwrap();
            if chunked {
                assert_eq!(value(&head, "content-length"), None);
                assert_eq!(value(&head, "transfer-encoding"), Some("chunked"));
                // As many bytes of body as promised, however they are framed, and the end.
                let mut tail = Vec::new();
                let mut piece = vec![0; 256 << 10];
                let mut seen = 0;
                while !tail.ends_with(b"\r\n0\r\n\r\n") {
                    let read = stream.read(&mut piece).unwrap();
                    assert!(read > 0);
                    seen += piece[..read].iter().filter(|byte| **byte == b'x').count() as u64;
                    tail.extend_from_slice(&piece[..read]);
                    tail.drain(..tail.len().saturating_sub(16));
                }
                assert_eq!(seen, GIB);
            } else {
                assert_eq!(value(&head, "content-length"), Some(GIB.to_string().as_str()));
                read_many(&mut stream, GIB).unwrap();
            }
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                .unwrap();
        });
        let (_setup, server) = start(&upstream, "", |setup| setup);
        grows_little(&server, || {
            let mut connection = server.connect();
            if chunked {
                connection.send(b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
                let size = 1 << 20;
                for _ in 0..GIB / size {
                    connection.send(format!("{size:x}\r\n").as_bytes());
                    write_many(&mut connection.0.stream, size).unwrap();
                    connection.send(b"\r\n");
                }
                connection.send(b"0\r\n\r\n");
            } else {
                connection.send(format!("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: {GIB}\r\n\r\n").as_bytes());
                write_many(&mut connection.0.stream, GIB).unwrap();
            }
            assert_eq!(connection.read().status, 200);
        });
    }
}

#[test]
fn a_gibibyte_comes_down_with_constant_memory() {
    let upstream = Raw::start(|mut stream| {
        head(&mut stream).unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {GIB}\r\n\r\n").unwrap();
        write_many(&mut stream, GIB).unwrap();
    });
    let (_setup, server) = start(&upstream, "", |setup| setup);
    grows_little(&server, || {
        let mut connection = server.connect();
        connection.send(&Request::new("GET", "/x").bytes());
        let answer = head(&mut connection.0.stream).unwrap();
        assert_eq!(value(&answer, "content-length"), Some(GIB.to_string().as_str()));
        read_many(&mut connection.0.stream, GIB).unwrap();
    });
}

/// Writes until nobody takes any more; says how much that was.
fn write_until_blocked(stream: &mut TcpStream) -> u64 {
    stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let piece = vec![b'x'; 64 << 10];
    let mut written = 0;
    while written < GIB {
        match stream.write(&piece) {
            Ok(bytes) => written += bytes as u64,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return written,
            Err(error) => panic!("{error}"),
        }
    }
    written
}

#[test]
fn a_client_that_does_not_read_slows_the_upstream_down() {
    let (tell, told) = sync_channel(1);
    let upstream = Raw::start(move |mut stream| {
        head(&mut stream).unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {GIB}\r\n\r\n").unwrap();
        tell.send(write_until_blocked(&mut stream)).unwrap();
    });
    let (_setup, server) = start(&upstream, "", |setup| setup);
    let mut connection = server.connect();
    connection.send(&Request::new("GET", "/x").bytes());
    let written = told.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(written < MEMORY, "{} MiB taken", written >> 20);
}

#[test]
fn an_upstream_that_does_not_read_slows_the_client_down() {
    let (done, wait) = sync_channel::<()>(1);
    let wait = std::sync::Mutex::new(wait);
    let upstream = Raw::start(move |mut stream| {
        head(&mut stream).unwrap();
        wait.lock().unwrap().recv().ok();
    });
    let (_setup, server) = start(&upstream, "", |setup| setup.allow_log("gave no answer"));
    let mut connection = server.connect();
    connection.send(format!("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: {GIB}\r\n\r\n").as_bytes());
    let written = write_until_blocked(&mut connection.0.stream);
    assert!(written < MEMORY, "{} MiB taken", written >> 20);
    drop(done);
}

#[test]
fn events_of_a_stream_arrive_one_by_one_however_long_they_take() {
    let (more, wait) = sync_channel::<()>(1);
    let wait = std::sync::Mutex::new(wait);
    let upstream = Raw::start(move |mut stream| {
        head(&mut stream).unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            .unwrap();
        while wait.lock().unwrap().recv().is_ok() {
            if stream.write_all(b"data: x\n\n").is_err() {
                return;
            }
        }
    });
    // Far shorter than the stream's pauses, and none of its business.
    let (_setup, server) = start(&upstream, "timeout = \"300ms\"", |setup| {
        setup.tables("[limits]\nidle_timeout = \"200ms\"\nbody_timeout = \"200ms\"\nhead_timeout = \"200ms\"")
    });
    let mut connection = server.connect();
    connection.send(&Request::new("GET", "/events").bytes());
    let answer = head(&mut connection.0.stream).unwrap();
    assert_eq!(value(&answer, "content-type"), Some("text/event-stream"));
    assert_eq!(value(&answer, "transfer-encoding"), Some("chunked"));
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(500));
        more.send(()).unwrap();
        let mut event = [0; 14];
        connection.0.stream.read_exact(&mut event).unwrap();
        assert_eq!(&event, b"9\r\ndata: x\n\n\r\n");
    }
    drop(more);
    let mut end = Vec::new();
    connection.0.stream.take(5).read_to_end(&mut end).unwrap();
    assert_eq!(end, b"0\r\n\r\n");
}

#[test]
fn a_client_that_leaves_a_silent_stream_ends_it() {
    let (gone, told) = sync_channel(1);
    let upstream = Raw::start(move |mut stream| {
        head(&mut stream).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        gone.send(matches!(stream.read(&mut [0]), Ok(0) | Err(_))).unwrap();
    });
    let (_setup, server) = start(&upstream, "", |setup| setup);
    let mut connection = server.connect();
    connection.send(&Request::new("GET", "/events").bytes());
    head(&mut connection.0.stream).unwrap();
    drop(connection);
    assert!(told.recv_timeout(Duration::from_secs(30)).unwrap());
    server.wait_for_metric("hooksluice_route_answers_cut_total", &["by=\"client\""], 1.0);
}

#[test]
fn an_answer_that_stands_still_for_too_long_ends() {
    let upstream = Raw::start(|mut stream| {
        head(&mut stream).unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
            .unwrap();
        raw::wait_for_end(&mut stream);
    });
    let (_setup, server) = start(&upstream, "idle_timeout = \"300ms\"", |setup| setup);
    let mut connection = server.connect();
    connection.send(&Request::new("GET", "/x").bytes());
    assert!(connection.try_read(false).is_err(), "cut short, and seen to be");
    server.wait_for_metric("hooksluice_route_answers_cut_total", &["by=\"upstream\""], 1.0);
}

#[test]
fn a_client_that_reads_slowly_but_steadily_gets_all_of_it() {
    const LENGTH: u64 = 16 << 20;
    let upstream = Raw::start(|mut stream| {
        head(&mut stream).unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").unwrap();
        write_many(&mut stream, LENGTH).unwrap();
    });
    let (_setup, server) = start(&upstream, "", |setup| {
        setup.tables("[limits]\nbody_timeout = \"500ms\"")
    });
    let mut connection = server.connect();
    connection.send(&Request::new("GET", "/x").bytes());
    head(&mut connection.0.stream).unwrap();
    for _ in 0..16 {
        std::thread::sleep(Duration::from_millis(100));
        read_many(&mut connection.0.stream, LENGTH / 16).unwrap();
    }
}

#[test]
fn an_answer_that_comes_before_the_body_is_read_is_passed_on() {
    let upstream = Raw::start(|mut stream| {
        head(&mut stream).unwrap();
        stream
            .write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno")
            .unwrap();
        // What still comes is read, as a careful server does, so that its answer is not lost in a reset.
        while let Ok(1..) = stream.read(&mut [0; 4096]) {}
    });
    let (_setup, server) = start(&upstream, "", |setup| setup);
    let mut connection = server.connect();
    connection.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\nstart");
    let answer = connection.read();
    assert_eq!((answer.status, &*answer.body), (413, b"no".as_slice()));
}

#[test]
fn an_upstream_that_answers_and_hangs_up_while_the_body_comes_is_told_of_or_passed_on() {
    let upstream = Raw::start(|mut stream| {
        head(&mut stream).unwrap();
        stream
            .write_all(b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
            .unwrap();
    });
    let (_setup, server) = start(&upstream, "", |setup| setup.allow_log("gave no answer"));
    let mut connection = server.connect();
    connection.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n");
    // Its reset may overtake its answer; what may not happen is that nobody answers.
    let writer = connection.0.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let mut writer = writer;
        write_many(&mut writer, 100_000_000).ok();
    });
    let answer = connection.read();
    assert!([413, 502].contains(&answer.status), "{answer:?}");
    drop(connection);
    sending.join().unwrap();
}

#[test]
fn trailers_pass_both_ways_and_say_nothing_about_framing() {
    let (tell, told) = sync_channel(1);
    let upstream = Raw::start(move |mut stream| {
        let request = head(&mut stream).unwrap();
        let mut body = Vec::new();
        let mut byte = [0];
        while !body.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            body.push(byte[0]);
        }
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Content-Length\r\n\r\n3\r\nabc\r\n0\r\n\
                  X-Sum: 9\r\nContent-Length: 5\r\n\r\n",
            )
            .unwrap();
        tell.send((request, String::from_utf8(body).unwrap())).unwrap();
    });
    let (_setup, server) = start(&upstream, "", |setup| setup);
    let mut connection = server.connect();
    connection.send(
        b"POST /x HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nConnection: TE\r\nTrailer: X-Check, Host\r\n\
          Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Check: 7\r\nHost: evil.test\r\nHooksluice-Source: s\r\n\r\n",
    );
    let (request, body) = told.recv_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!(value(&request, "trailer"), Some("x-check"));
    assert_eq!(body.to_lowercase(), "3\r\nabc\r\n0\r\nx-check: 7\r\n\r\n");
    let answer = raw::head(&mut connection.0.stream).unwrap();
    assert_eq!(value(&answer, "trailer"), Some("x-sum"));
    let mut rest = String::new();
    connection.0.stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.to_lowercase(), "3\r\nabc\r\n0\r\nx-sum: 9\r\n\r\n");
}

#[test]
fn a_stream_that_ends_within_the_grace_is_finished_at_shutdown() {
    let (more, wait) = sync_channel::<()>(1);
    let wait = std::sync::Mutex::new(wait);
    let upstream = Raw::start(move |mut stream| {
        head(&mut stream).unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
            .unwrap();
        wait.lock().unwrap().recv().unwrap();
        stream.write_all(b"half").unwrap();
    });
    let (_setup, mut server) = start(&upstream, "", |setup| setup);
    let mut connection = server.connect();
    connection.send(&Request::new("GET", "/x").bytes());
    head(&mut connection.0.stream).unwrap();
    server.ask_to_stop();
    eventually("the listener to close", || {
        TcpStream::connect(server.address()).is_err().then_some(())
    });
    more.send(()).unwrap();
    read_many(&mut connection.0.stream, 8).unwrap();
    assert!(server.wait_for_end().success());
}

#[test]
fn an_endless_stream_does_not_hold_the_shutdown_for_ever() {
    let upstream = Raw::start(|mut stream| {
        head(&mut stream).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf").unwrap();
        raw::wait_for_end(&mut stream);
    });
    let (_setup, mut server) = start(&upstream, "", |setup| {
        setup
            .tables("[server]\nshutdown_grace = \"1s\"")
            .allow_log("cut off at the end of shutdown_grace")
    });
    let mut connection = server.connect();
    connection.send(&Request::new("GET", "/x").bytes());
    head(&mut connection.0.stream).unwrap();
    server.ask_to_stop();
    assert!(server.wait_for_end().success());
    assert!(connection.closes_within(Duration::from_secs(10)) || connection.try_read(false).is_err());
}
