//! One attempt: one HTTP exchange with the upstream, told honestly (P9).
//!
//! Not a byte sent: [`Outcome::NotSent`]. A status came back: that status decides, even if the rest of the answer did
//! not arrive. Anything else: [`Outcome::Unknown`], since the app may have acted. Redirects are not followed and nothing
//! is sent twice.

use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tokio::time::Sleep;

use crate::forward::message::Body;
use crate::headers;
use crate::net::connections::{Connection, Connections, NoAnswer, describe_broken};
use crate::store::model::Outcome;
use crate::store::reply::{REPLY_MAX, Reply};

/// Bytes of an answer's body that are kept for people.
pub const EXCERPT_MAX: usize = 2 << 10;
/// Bytes of an answer's body that are read so that the connection can be used again; a longer one is closed.
const DRAIN_MAX: usize = 64 << 10;
/// Idle connections that may turn out to have ended, one after the other, before a new one is opened.
const IDLE_TRIES: usize = 2;
/// Bytes of names and values of headers that are relayed.
const REPLY_HEAD_MAX: usize = 32 << 10;

/// What the upstream did.
#[derive(Debug)]
pub struct Answer {
    /// How it ended.
    pub outcome: Outcome,
    /// The answer's `Retry-After`, as it came.
    pub retry_after: Option<HeaderValue>,
    /// The first [`EXCERPT_MAX`] bytes of the answer's body.
    pub excerpt: Bytes,
    /// The whole answer, if it is [wanted](Want::Reply) and may be relayed: 2xx, 3xx or 4xx.
    pub reply: Option<Reply>,
}

/// What is wanted of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Its beginning, for people.
    Excerpt,
    /// All of it, for a sender that waits. An answer that does not arrive whole is none, and a 3xx is one like a 2xx.
    Reply,
}

/// Sends `request`, once, and reads the answer; all of it within `timeout`.
pub async fn exchange(
    connections: &Connections<Body>,
    request: Request<Body>,
    timeout: Duration,
    want: Want,
) -> Answer {
    let mut deadline = pin!(tokio::time::sleep(timeout));
    let mut request = request;
    let mut tries = 0;
    loop {
        let idle = if tries < IDLE_TRIES {
            connections.take_idle()
        } else {
            None
        };
        let mut connection = match idle {
            Some(connection) => connection,
            None => match before(deadline.as_mut(), connections.open()).await {
                Some(Ok(connection)) => connection,
                Some(Err(error)) => return not_sent(error.describe()),
                None => return not_sent("timeout while connecting".to_owned()),
            },
        };
        match before(deadline.as_mut(), connection.send(request)).await {
            Some(Ok(response)) => return read(connections, connection, response, deadline, want).await,
            Some(Err(NoAnswer::NeverSent(back))) if !connection.is_fresh() => {
                // The upstream had closed an idle connection; nothing was sent, so this is still the same attempt.
                request = *back;
                tries += 1;
            }
            Some(Err(NoAnswer::NeverSent(_))) => return not_sent("connection closed before the request".to_owned()),
            Some(Err(NoAnswer::Refused)) => return not_sent("the upstream refused the stream unread".to_owned()),
            Some(Err(NoAnswer::BrokenOff { cause })) => return not_sent(cause),
            Some(Err(NoAnswer::Broken(error))) => return unknown(describe_broken(&error)),
            None => return unknown("timeout while waiting for the answer".to_owned()),
        }
    }
}

/// Reads the answer's body, as far as it is wanted. The status is known, so nothing here changes the outcome.
async fn read(
    connections: &Connections<Body>,
    connection: Connection<Body>,
    response: Response<Incoming>,
    mut deadline: Pin<&mut Sleep>,
    want: Want,
) -> Answer {
    let (head, mut body) = response.into_parts();
    let mut excerpt = BytesMut::new();
    let mut seen = 0;
    let (most, mut all) = match want {
        Want::Excerpt => (DRAIN_MAX, None),
        Want::Reply => (REPLY_MAX, Some(BytesMut::new())),
    };
    let whole = loop {
        if body.is_end_stream() {
            break true;
        }
        match before(deadline.as_mut(), body.frame()).await {
            None | Some(Some(Err(_))) => break false,
            Some(None) => break true,
            Some(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    let room = EXCERPT_MAX - excerpt.len();
                    excerpt.extend_from_slice(data.get(..room).unwrap_or(data));
                    seen += data.len();
                    if let Some(all) = &mut all {
                        all.extend_from_slice(data);
                    }
                }
                if seen > most {
                    break false;
                }
            }
        }
    };
    // After a 101 the connection speaks another protocol.
    if whole && head.status != StatusCode::SWITCHING_PROTOCOLS {
        connections.give_back(connection);
    }
    let retry_after = head.headers.get(RETRY_AFTER).cloned();
    let excerpt = excerpt.freeze();
    let status = head.status;
    let Some(all) = all else {
        let outcome = if status.is_success() {
            Outcome::Delivered { status }
        } else {
            Outcome::Refused { status }
        };
        return Answer {
            outcome,
            retry_after,
            excerpt,
            reply: None,
        };
    };
    let is_given = status.is_success() || status.is_redirection();
    let is_long = seen > most;
    if !whole && !is_long && (is_given || status.is_client_error()) {
        return Answer {
            excerpt,
            ..unknown("the answer did not arrive whole".to_owned())
        };
    }
    let reply = (is_given || status.is_client_error()).then(|| Reply {
        status,
        headers: relayed(head.headers),
        body: (!is_long).then(|| all.freeze()),
    });
    Answer {
        outcome: if is_given {
            Outcome::Delivered { status }
        } else {
            Outcome::Refused { status }
        },
        retry_after,
        excerpt,
        reply,
    }
}

/// The headers of an answer that go on to the sender: all that speak of the answer and not of the connection. The length
/// and the date are made anew. Of a head that is too long to be kept, what the body cannot do without.
fn relayed(mut headers: HeaderMap) -> HeaderMap {
    headers::strip_untrusted(&mut headers);
    for name in [header::CONTENT_LENGTH, header::DATE] {
        headers.remove(name);
    }
    let bytes: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    if bytes <= REPLY_HEAD_MAX {
        return headers;
    }
    let mut few = HeaderMap::new();
    for name in [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::LOCATION] {
        if let Some(value) = headers.get(&name).filter(|value| value.len() <= REPLY_HEAD_MAX / 4) {
            few.insert(name, value.clone());
        }
    }
    few
}

/// The value, unless the deadline comes first. One timer serves the whole attempt.
async fn before<T>(deadline: Pin<&mut Sleep>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        value = work => Some(value),
        () = deadline => None,
    }
}

/// Nothing reached the upstream.
pub fn not_sent(cause: String) -> Answer {
    Answer {
        outcome: Outcome::NotSent { cause },
        retry_after: None,
        excerpt: Bytes::new(),
        reply: None,
    }
}

/// Something may have reached it.
pub fn unknown(cause: String) -> Answer {
    Answer {
        outcome: Outcome::Unknown { cause },
        retry_after: None,
        excerpt: Bytes::new(),
        reply: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::Method;
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::net::connections::Remote;
    use crate::time::Clock;

    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    const TIMEOUT: Duration = Duration::from_secs(10);

    /// An upstream that answers the n-th request of all its connections with the n-th answer, byte for byte, and then
    /// closes if that is `Close`; it ends when there are no more.
    #[derive(Clone, Copy)]
    enum Reply {
        Keep(&'static str),
        Close(&'static str),
        /// Reads the request and never answers.
        Silence,
    }

    struct Upstream {
        connections: Arc<Connections<Body>>,
        opened: Arc<AtomicUsize>,
        requests: Arc<AtomicUsize>,
    }

    fn remote(listener: &TcpListener) -> Remote {
        Remote::plain(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap())
    }

    async fn upstream(replies: &'static [Reply]) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let remote = remote(&listener);
        let tracker = TaskTracker::new();
        let (opened, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counts_opened, counts_requests) = (opened.clone(), requests.clone());
        tracker.spawn({
            let tracker = tracker.clone();
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    counts_opened.fetch_add(1, Ordering::SeqCst);
                    tracker.spawn(serve(stream, replies, counts_requests.clone()));
                }
            }
        });
        Upstream {
            connections: Arc::new(Connections::new(&remote, Clock::system(), tracker)),
            opened,
            requests,
        }
    }

    async fn serve(mut stream: TcpStream, replies: &'static [Reply], requests: Arc<AtomicUsize>) {
        let mut buffer = Vec::new();
        loop {
            while !buffer.windows(4).any(|window| window == b"\r\n\r\n") {
                if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                    return;
                }
            }
            // The tests' requests have no body.
            buffer.clear();
            let index = requests.fetch_add(1, Ordering::SeqCst);
            match replies.get(index) {
                Some(Reply::Keep(answer)) => stream.write_all(answer.as_bytes()).await.unwrap(),
                Some(Reply::Close(answer)) => {
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    return;
                }
                Some(Reply::Silence) => {
                    let _ended = stream.read_buf(&mut buffer).await;
                    return;
                }
                None => return,
            }
        }
    }

    fn post() -> Request<Body> {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.method_mut() = Method::POST;
        request
            .headers_mut()
            .insert("content-length", HeaderValue::from_static("0"));
        request
    }

    impl Upstream {
        async fn exchange(&self) -> Answer {
            exchange(&self.connections, post(), TIMEOUT, Want::Excerpt).await
        }

        fn opened(&self) -> usize {
            self.opened.load(Ordering::SeqCst)
        }

        /// Waits until that many connections are idle.
        async fn idle(&self, count: usize) {
            for _ in 0..1000 {
                if self.connections.idle_count() == count {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            panic!("never {count} idle connections");
        }
    }

    fn delivered(status: u16) -> Outcome {
        let status = StatusCode::from_u16(status).unwrap();
        Outcome::Delivered { status }
    }

    fn refused(status: u16) -> Outcome {
        let status = StatusCode::from_u16(status).unwrap();
        Outcome::Refused { status }
    }

    #[tokio::test]
    async fn the_answer_is_told_and_the_connection_used_again() {
        let upstream = upstream(&[Reply::Keep(OK), Reply::Keep(OK), Reply::Keep(OK)]).await;
        for _ in 0..3 {
            let answer = upstream.exchange().await;
            assert_eq!(answer.outcome, delivered(200));
            assert_eq!(answer.excerpt, "ok");
            upstream.idle(1).await;
        }
        assert_eq!(upstream.opened(), 1);
    }

    #[tokio::test]
    async fn an_idle_close_costs_no_attempt() {
        let upstream = upstream(&[Reply::Close(OK), Reply::Close(OK), Reply::Close(OK)]).await;
        for _ in 0..3 {
            assert_eq!(upstream.exchange().await.outcome, delivered(200));
        }
        assert_eq!(upstream.opened(), 3);
        assert_eq!(upstream.requests.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_request_that_was_sent_is_not_sent_again() {
        // The second request reaches an idle connection that closes without an answer: the app may have acted.
        let upstream = upstream(&[Reply::Keep(OK), Reply::Close(""), Reply::Keep(OK)]).await;
        upstream.exchange().await;
        upstream.idle(1).await;
        let answer = upstream.exchange().await;
        assert_eq!(
            answer.outcome,
            Outcome::Unknown {
                cause: "connection closed before the answer".to_owned()
            }
        );
        assert_eq!(upstream.requests.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_refused_connection_is_not_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let remote = remote(&listener);
        drop(listener);
        let connections = Arc::new(Connections::new(&remote, Clock::system(), TaskTracker::new()));
        let answer = exchange(&connections, post(), TIMEOUT, Want::Excerpt).await;
        let cause = "connection refused".to_owned();
        assert_eq!(answer.outcome, Outcome::NotSent { cause });
    }

    #[tokio::test]
    async fn a_name_without_an_address_is_not_sent() {
        // RFC 6761: never resolves.
        let remote = Remote::plain("http://nowhere.invalid:1".parse().unwrap());
        let connections = Arc::new(Connections::new(&remote, Clock::system(), TaskTracker::new()));
        let answer = exchange(&connections, post(), TIMEOUT, Want::Excerpt).await;
        assert!(
            matches!(&answer.outcome, Outcome::NotSent { cause } if cause.contains("could not be resolved")),
            "{answer:?}"
        );
    }

    #[tokio::test]
    async fn a_timeout_after_sending_is_unknown() {
        let upstream = upstream(&[Reply::Silence]).await;
        let answer = exchange(&upstream.connections, post(), Duration::from_millis(50), Want::Excerpt).await;
        assert!(
            matches!(&answer.outcome, Outcome::Unknown { cause } if cause.starts_with("timeout")),
            "{answer:?}"
        );
    }

    #[tokio::test]
    async fn redirects_are_not_followed_and_retry_after_is_handed_on() {
        let upstream = upstream(&[
            Reply::Keep("HTTP/1.1 307 Temporary Redirect\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"),
            Reply::Keep("HTTP/1.1 429 Slow Down\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"),
        ])
        .await;
        assert_eq!(upstream.exchange().await.outcome, refused(307));
        let answer = upstream.exchange().await;
        assert_eq!(answer.outcome, refused(429));
        assert_eq!(answer.retry_after, Some(HeaderValue::from_static("7")));
        assert_eq!(upstream.requests.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn an_answer_with_a_large_head_is_an_answer() {
        let many: String = (0..1000).map(|n| format!("x-{n}: y\r\n")).collect();
        let long = format!("x-long: {}\r\n", "y".repeat(200 << 10));
        let replies = [many, long].map(|headers| {
            let text = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: 0\r\n\r\n");
            Reply::Keep(&*text.leak())
        });
        let upstream = upstream(Box::leak(Box::new(replies))).await;
        for _ in 0..2 {
            assert_eq!(upstream.exchange().await.outcome, delivered(200));
        }
        assert_eq!(upstream.requests.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn old_and_broken_answers() {
        let upstream = upstream(&[
            Reply::Close("HTTP/1.0 200 OK\r\n\r\nto the end"),
            Reply::Close("nonsense\r\n\r\n"),
            Reply::Close("HTTP/1.1 2"),
            // The status is known; that the body is cut short changes nothing.
            Reply::Close("HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\ncut"),
            Reply::Close("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"),
            Reply::Keep("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
            Reply::Keep(OK),
        ])
        .await;
        let answer = upstream.exchange().await;
        assert_eq!(
            (answer.outcome, answer.excerpt.as_ref()),
            (delivered(200), b"to the end".as_slice())
        );
        for _ in 0..2 {
            let answer = upstream.exchange().await;
            assert!(matches!(answer.outcome, Outcome::Unknown { .. }), "{answer:?}");
        }
        let answer = upstream.exchange().await;
        assert_eq!(
            (answer.outcome, answer.excerpt.as_ref()),
            (delivered(201), b"cut".as_slice())
        );
        assert_eq!(upstream.exchange().await.outcome, delivered(204));
        assert_eq!(upstream.exchange().await.outcome, refused(101));
        assert_eq!(upstream.exchange().await.outcome, delivered(200));
    }

    #[tokio::test]
    async fn a_long_answer_is_cut_and_its_connection_closed() {
        let long: &'static str = Box::leak(
            format!(
                "HTTP/1.1 500 Oh\r\nContent-Length: 1000000\r\n\r\n{}",
                "x".repeat(1_000_000)
            )
            .into_boxed_str(),
        );
        let replies: &'static [Reply] = Box::leak(Box::new([Reply::Keep(long), Reply::Keep(OK)]));
        let upstream = upstream(replies).await;
        let answer = upstream.exchange().await;
        assert_eq!(answer.outcome, refused(500));
        assert_eq!(answer.excerpt.len(), EXCERPT_MAX);
        assert_eq!(upstream.exchange().await.outcome, delivered(200));
        assert_eq!(upstream.opened(), 2);
    }

    #[tokio::test]
    async fn an_answer_that_never_ends_holds_its_slot_no_longer_than_the_timeout() {
        let upstream = upstream(&[Reply::Keep("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")]).await;
        let answer = exchange(&upstream.connections, post(), Duration::from_millis(50), Want::Excerpt).await;
        assert_eq!(
            (answer.outcome, answer.excerpt.as_ref()),
            (delivered(200), b"half".as_slice())
        );
        assert_eq!(upstream.connections.idle_count(), 0);
    }

    #[tokio::test]
    async fn a_connection_is_not_kept_idle_for_long() {
        let upstream = upstream(&[Reply::Keep(OK), Reply::Keep(OK)]).await;
        upstream.exchange().await;
        upstream.idle(1).await;
        tokio::time::sleep(crate::net::connections::IDLE_MAX).await;
        upstream.connections.close_idle();
        assert_eq!(upstream.connections.idle_count(), 0);
        assert_eq!(upstream.exchange().await.outcome, delivered(200));
        assert_eq!(upstream.opened(), 2);
    }

    #[tokio::test]
    async fn an_upstream_that_does_not_read_leaves_nothing_behind() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let remote = remote(&listener);
        let tracker = TaskTracker::new();
        let connections = Arc::new(Connections::new(&remote, Clock::system(), tracker.clone()));
        let mut request = post();
        *request.body_mut() = Full::new(Bytes::from(vec![0; 16 << 20]));
        request
            .headers_mut()
            .insert("content-length", HeaderValue::from(16 << 20));
        let answer = exchange(&connections, request, Duration::from_millis(50), Want::Excerpt).await;
        assert!(matches!(answer.outcome, Outcome::Unknown { .. }), "{answer:?}");
        tracker.close();
        tokio::time::timeout(TIMEOUT, tracker.wait()).await.unwrap();
    }
}
