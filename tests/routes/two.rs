//! HTTP/2: gRPC-shaped calls from end to end, and what it must not smuggle.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{Server, Setup, Upstream};
use crate::{everything, route};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

async fn client(address: SocketAddr) -> (SendRequest<Bytes>, tokio::task::JoinSet<()>) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(async move {
        let _ended = connection.await;
    });
    (sender, driver)
}

fn start(upstream: SocketAddr, lines: &str) -> (Setup, Server) {
    let setup = Setup::for_address(upstream)
        .allow_log("no source is configured")
        .upstream(lines)
        .table_after(&route("rest", "/{*rest}", ""));
    let server = setup.start();
    (setup, server)
}

/// Echoes each message of a call before the next one comes, then says in trailers how many there were.
async fn echo(listener: TcpListener) {
    let mut calls = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        calls.spawn(async move {
            let mut running = tokio::task::JoinSet::new();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                running.spawn(async move {
                    assert_eq!(request.headers()["te"], "trailers");
                    assert_eq!(request.headers()["content-type"], "application/grpc");
                    assert!(!request.headers().contains_key("content-length"));
                    assert_eq!(request.uri().path(), "/pkg.Service/Chat");
                    let mut response = Response::new(());
                    let kind = HeaderValue::from_static("application/grpc");
                    response.headers_mut().insert("content-type", kind);
                    let mut out = respond.send_response(response, false).unwrap();
                    let mut body = request.into_body();
                    let mut count = 0_u32;
                    while let Some(Ok(data)) = body.data().await {
                        body.flow_control().release_capacity(data.len()).unwrap();
                        count += 1;
                        out.send_data(data, false).unwrap();
                    }
                    let asked = body.trailers().await.unwrap();
                    let mut trailers = HeaderMap::new();
                    trailers.insert("grpc-status", HeaderValue::from_static("0"));
                    trailers.insert("x-count", HeaderValue::from(count));
                    if let Some(asked) = asked {
                        trailers.insert("x-asked", asked["x-check"].clone());
                        assert!(!asked.contains_key("hooksluice-source"));
                    }
                    out.send_trailers(trailers).unwrap();
                });
            }
        });
    }
}

#[test]
fn a_bidirectional_call_streams_and_ends_with_trailers() {
    let runtime = runtime();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let upstream = listener.local_addr().unwrap();
    runtime.spawn(echo(listener));
    let (_setup, server) = start(upstream, "protocol = \"h2c\"");
    runtime.block_on(async {
        let (sender, _driver) = client(server.address()).await;
        let mut sender = sender.ready().await.unwrap();
        let request = Request::post("http://shop.test/pkg.Service/Chat")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let (answer, mut out) = sender.send_request(request, false).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), 200);
        let mut body = answer.into_body();
        for message in [b"one".as_slice(), b"two", b"three"] {
            out.send_data(Bytes::from_static(message), false).unwrap();
            let echoed = body.data().await.unwrap().unwrap();
            assert_eq!(echoed, message);
            body.flow_control().release_capacity(echoed.len()).unwrap();
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-check", HeaderValue::from_static("7"));
        trailers.insert("hooksluice-source", HeaderValue::from_static("stripe"));
        out.send_trailers(trailers).unwrap();
        assert!(body.data().await.is_none());
        let trailers = body.trailers().await.unwrap().unwrap();
        assert_eq!(trailers["grpc-status"], "0");
        assert_eq!(trailers["x-count"], "3");
        assert_eq!(trailers["x-asked"], "7");
    });
}

#[test]
fn a_client_that_resets_its_stream_cancels_the_call_and_no_other() {
    let runtime = runtime();
    let upstream = Upstream::scripted(|received| match received.target.as_str() {
        "/hang" => crate::harness::Answer::Hang,
        _ => crate::harness::Answer::Status(200),
    });
    let stage = everything(upstream, |setup| setup);
    runtime.block_on(async {
        let (sender, _driver) = client(stage.server.address()).await;
        let mut sender = sender.ready().await.unwrap();
        let request = |path: &str| Request::get(format!("http://shop.test{path}")).body(()).unwrap();
        let (hanging, mut stream) = sender.send_request(request("/hang"), true).unwrap();
        stage.upstream.wait_for(1);
        stream.send_reset(h2::Reason::CANCEL);
        assert!(hanging.await.is_err());
        let (answer, _) = sender.send_request(request("/x"), true).unwrap();
        assert_eq!(answer.await.unwrap().status(), 200);
    });
    let labels = ["outcome=\"client_left\""];
    stage
        .server
        .wait_for_metric("hooksluice_route_requests_total", &labels, 1.0);
    stage.server.wait_for_metric("hooksluice_route_waiting", &[], 0.0);
}

// FW-02
#[test]
fn framing_that_http_2_does_not_have_reaches_no_upstream() {
    let runtime = runtime();
    let stage = everything(Upstream::start(), |setup| setup.allow_log("gave no answer"));
    for (name, value, body) in [
        ("transfer-encoding", "chunked", "0\r\n\r\n"),
        ("connection", "close, x-foo", "abc"),
        ("upgrade", "websocket", "abc"),
        ("keep-alive", "1", "abc"),
        ("proxy-connection", "close", "abc"),
        ("te", "chunked", "abc"),
        ("content-length", "9", "abc"),
        ("content-length", "1", "abc"),
        ("content-length", "+3", "abc"),
        ("content-length", "3, 3", "abc"),
        ("content-length", "x", "abc"),
    ] {
        let ended = runtime.block_on(async {
            let (sender, _driver) = client(stage.server.address()).await;
            let mut sender = sender.ready().await.unwrap();
            let request = Request::post("http://shop.test/x")
                .header(name, value)
                .body(())
                .unwrap();
            // The client's library may refuse it itself; then there is nothing to see.
            let Ok((answer, mut out)) = sender.send_request(request, false) else {
                return None;
            };
            out.send_data(Bytes::from(body.as_bytes().to_vec()), true).ok();
            let answered = tokio::time::timeout(Duration::from_secs(20), answer).await;
            Some(answered.expect("an answer or a reset").map(|answer| answer.status()))
        });
        for received in stage.upstream.received() {
            for hop in ["connection", "upgrade", "keep-alive", "proxy-connection", "te", "x-foo"] {
                assert_eq!(received.header(hop), None, "{name}: {value}");
            }
            let framings = received.values("content-length").len() + received.values("transfer-encoding").len();
            assert_eq!(framings, 1, "{name}: {value}: {received:?}");
            assert_eq!(received.body, b"abc", "{name}: {value}");
        }
        if name == "content-length" && value != "3, 3" {
            let refused = !matches!(ended, Some(Ok(status)) if status.is_success());
            assert!(refused, "{value}: {ended:?}");
        }
    }
}

// SC-05
#[test]
fn connect_in_any_form_opens_nothing() {
    let runtime = runtime();
    let stage = everything(Upstream::start(), |setup| setup);
    let ended = runtime.block_on(async {
        let (sender, _driver) = client(stage.server.address()).await;
        let mut sender = sender.ready().await.unwrap();
        let request = Request::connect("evil.test:443").body(()).unwrap();
        let (answer, _out) = sender.send_request(request, false).unwrap();
        tokio::time::timeout(Duration::from_secs(20), answer).await.unwrap()
    });
    assert!(
        !matches!(&ended, Ok(answer) if answer.status() != StatusCode::METHOD_NOT_ALLOWED),
        "{ended:?}"
    );
    // Extended CONNECT (RFC 8441) is not offered, so a client may not even ask.
    assert_eq!(stage.upstream.received().len(), 0);
}

#[test]
fn the_authority_is_the_upstream_s_over_both_versions() {
    let runtime = runtime();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let upstream = listener.local_addr().unwrap();
    runtime.spawn(async move {
        let mut calls = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            calls.spawn(async move {
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let mut response = Response::new(());
                    let said = |text: &str| HeaderValue::from_str(text).unwrap();
                    let headers = response.headers_mut();
                    headers.insert("x-authority", said(request.uri().authority().unwrap().as_str()));
                    headers.insert("x-path", said(request.uri().path_and_query().unwrap().as_str()));
                    headers.insert(
                        "x-hosts",
                        HeaderValue::from(request.headers().get_all("host").iter().count()),
                    );
                    headers.insert("x-for", request.headers()["x-forwarded-host"].clone());
                    respond.send_response(response, true).unwrap();
                }
            });
        }
    });
    let (_setup, server) = start(upstream, "protocol = \"h2c\"");
    for bytes in [
        "GET http://evil.test/x?a HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        "GET /x?a HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    ] {
        let answer = server.send_bytes(bytes.as_bytes());
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-authority"), Some(upstream.to_string().as_str()));
        assert_eq!(answer.header("x-path"), Some("/x?a"));
        assert_eq!(answer.header("x-hosts"), Some("0"));
        assert_eq!(answer.header("x-for"), Some("evil.test"));
    }
}
