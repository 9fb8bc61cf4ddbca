//! Attempts over HTTP/2: what the upstream may have acted on is not sent again (FW-09).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use crate::forward::attempt::{Answer, Want, exchange};
use crate::forward::message::Body;
use crate::net::connections::{Connections, Protocol, Remote};
use crate::store::model::Outcome;
use crate::time::Clock;

const TIMEOUT: Duration = Duration::from_secs(10);

/// What the upstream does with the n-th stream of all its connections.
#[derive(Clone, Copy, Debug)]
enum Reply {
    /// 200, with what was asked for in headers.
    Ok,
    /// `RST_STREAM`.
    Reset(h2::Reason),
    /// `GOAWAY` whose last stream is this one, then the connection ends.
    GoAway,
    /// The connection ends without a word.
    Drop,
}

struct Upstream {
    connections: Connections<Body>,
    opened: Arc<AtomicUsize>,
    executed: Arc<AtomicUsize>,
}

fn remote(listener: &TcpListener) -> Remote {
    let origin = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    Remote {
        protocol: Protocol::H2c,
        ..Remote::plain(origin)
    }
}

async fn upstream(replies: &'static [Reply]) -> Upstream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let remote = remote(&listener);
    let tracker = TaskTracker::new();
    let (opened, executed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counts_opened, counts_executed) = (Arc::clone(&opened), Arc::clone(&executed));
    tracker.spawn({
        let tracker = tracker.clone();
        async move {
            while let Ok((stream, _)) = listener.accept().await {
                counts_opened.fetch_add(1, Ordering::SeqCst);
                tracker.spawn(serve(stream, replies, Arc::clone(&counts_executed)));
            }
        }
    });
    Upstream {
        connections: Connections::new(&remote, Clock::system(), tracker),
        opened,
        executed,
    }
}

async fn serve(stream: TcpStream, replies: &'static [Reply], executed: Arc<AtomicUsize>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let reply = replies[executed.fetch_add(1, Ordering::SeqCst)];
        match reply {
            Reply::Ok => {
                let host = request.headers().get("host").cloned();
                let mut response = Response::new(());
                let asked = HeaderValue::from_str(&request.uri().to_string()).unwrap();
                response.headers_mut().insert("x-asked", asked);
                assert_eq!(host, None, "the authority is told once");
                let mut body = respond.send_response(response, false).unwrap();
                body.send_data(Bytes::from_static(b"ok"), true).unwrap();
            }
            Reply::Reset(reason) => respond.send_reset(reason),
            Reply::GoAway => connection.abrupt_shutdown(h2::Reason::NO_ERROR),
            Reply::Drop => return,
        }
    }
}

impl Upstream {
    async fn exchange(&self) -> Answer {
        let mut request = Request::new(Full::new(Bytes::from_static(b"body")));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = "/hooks?a=b".parse().unwrap();
        let headers = request.headers_mut();
        headers.insert("host", HeaderValue::from_static("app.test:3000"));
        headers.insert("content-length", HeaderValue::from_static("4"));
        exchange(&self.connections, request, TIMEOUT, Want::Excerpt).await
    }

    fn executed(&self) -> usize {
        self.executed.load(Ordering::SeqCst)
    }
}

fn delivered() -> Outcome {
    Outcome::Delivered { status: StatusCode::OK }
}

#[tokio::test]
async fn attempts_share_a_connection() {
    let upstream = upstream(&[Reply::Ok; 50]).await;
    assert_eq!(upstream.exchange().await.outcome, delivered());
    let mut running = tokio::task::JoinSet::new();
    let upstream = Arc::new(upstream);
    for _ in 0..49 {
        let upstream = Arc::clone(&upstream);
        running.spawn(async move { upstream.exchange().await.outcome });
    }
    while let Some(outcome) = running.join_next().await {
        assert_eq!(outcome.unwrap(), delivered());
    }
    assert_eq!(upstream.opened.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_the_upstream_may_have_acted_on_is_unknown_and_not_repeated() {
    for reply in [
        &[Reply::Reset(h2::Reason::INTERNAL_ERROR), Reply::Ok],
        &[Reply::Reset(h2::Reason::PROTOCOL_ERROR), Reply::Ok],
        &[Reply::GoAway, Reply::Ok],
        &[Reply::Drop, Reply::Ok],
    ] {
        let upstream = upstream(reply).await;
        let outcome = upstream.exchange().await.outcome;
        assert!(matches!(outcome, Outcome::Unknown { .. }), "{reply:?}: {outcome:?}");
        assert_eq!(upstream.executed(), 1, "{reply:?}");
        // The next attempt is one of its own, and finds the upstream again.
        assert_eq!(upstream.exchange().await.outcome, delivered(), "{reply:?}");
        assert_eq!(upstream.executed(), 2, "{reply:?}");
    }
}

#[tokio::test]
async fn a_refused_stream_was_not_sent() {
    let upstream = upstream(&[Reply::Reset(h2::Reason::REFUSED_STREAM), Reply::Ok]).await;
    let outcome = upstream.exchange().await.outcome;
    assert!(matches!(outcome, Outcome::NotSent { .. }), "{outcome:?}");
    assert_eq!(upstream.exchange().await.outcome, delivered());
}

#[tokio::test]
async fn a_silent_upstream_ends_the_attempt_and_not_the_others() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let remote = remote(&listener);
    let tracker = TaskTracker::new();
    let connections = Connections::new(&remote, Clock::system(), tracker.clone());
    let request = Request::new(Full::new(Bytes::new()));
    let answer = exchange(&connections, request, Duration::from_millis(50), Want::Excerpt).await;
    assert!(matches!(answer.outcome, Outcome::Unknown { .. }), "{answer:?}");
    connections.close_all();
    tracker.close();
    tokio::time::timeout(TIMEOUT, tracker.wait()).await.unwrap();
}
