//! WebSockets: the only upgrade that a route passes on, since any other tunnel could carry requests past the sources.
//!
//! A request is one for a WebSocket only when it is a valid opening handshake (RFC 6455 section 4.2.1), and the tunnel
//! opens only on a 101 that proves the upstream has read it as one (section 4.2.2, `Sec-WebSocket-Accept`). Until then
//! nothing that the client sends behind its request is forwarded, as HTTP or otherwise.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use data_encoding::BASE64;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Version, request};
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use sha1::{Digest, Sha1};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional};
use tokio_util::sync::CancellationToken;

use crate::net::connections::Connection;
use crate::net::listen::Busy;
use crate::routes::body::Outgoing;
use crate::routes::message::tokens;
use crate::routes::problem::{self, Problem};
use crate::time::{Clock, Monotonic};

const KEY: HeaderName = header::SEC_WEBSOCKET_KEY;
const ACCEPT: HeaderName = header::SEC_WEBSOCKET_ACCEPT;
const VERSION: HeaderName = header::SEC_WEBSOCKET_VERSION;
/// RFC 6455 section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// How long the ends of a tunnel may take to close when it is ended from here.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// A valid opening handshake.
#[derive(Debug)]
pub(super) struct Handshake {
    /// What the upstream must answer.
    accept: String,
    client: OnUpgrade,
}

/// What a request's `Upgrade` is.
#[derive(Debug)]
pub(super) enum Asked {
    /// None that is passed on: it is an ordinary request, without its `Upgrade`.
    Nothing,
    /// For a WebSocket.
    WebSocket(Handshake),
    /// Something that only looks like it.
    Invalid(Problem),
}

/// Judges a request's `Upgrade`, and takes hyper's promise of the connection out of it.
pub(super) fn asked(parts: &mut request::Parts, body: &Incoming) -> Asked {
    let client = parts.extensions.remove::<OnUpgrade>();
    let headers = &parts.headers;
    let wants = parts.version == Version::HTTP_11
        && tokens(headers, header::CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"))
        && tokens(headers, header::UPGRADE).any(is_websocket);
    let (true, Some(client)) = (wants, client) else {
        return Asked::Nothing;
    };
    let invalid = |why| Asked::Invalid(problem::NO_WEBSOCKET.detail(why));
    if parts.method != Method::GET {
        return invalid("The method is not GET.");
    }
    if !body.is_end_stream() {
        return invalid("The request has a body.");
    }
    if only(headers, &VERSION) != Some(b"13") {
        return Asked::Invalid(problem::WEBSOCKET_VERSION);
    }
    match only(headers, &KEY) {
        Some(key) if is_key(key) => Asked::WebSocket(Handshake {
            accept: accept_for(key),
            client,
        }),
        _ => invalid("There must be one Sec-WebSocket-Key of 16 bytes in base64."),
    }
}

/// Puts back what an opening handshake needs and hop-by-hop stripping has taken.
pub(super) fn ask(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

/// What a client of another version is told beside 426 (RFC 6455 section 4.4).
pub(super) fn say_version(headers: &mut HeaderMap) {
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(VERSION, HeaderValue::from_static("13"));
}

impl Handshake {
    /// Whether a 101 opens this WebSocket; says why not.
    pub(super) fn is_answered_by(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let mut protocols = tokens(headers, header::UPGRADE);
        if !protocols.next().is_some_and(is_websocket) || protocols.next().is_some() {
            return Err("the upstream switched to another protocol");
        }
        if !tokens(headers, header::CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade")) {
            return Err("the upstream's 101 has no `Connection: Upgrade`");
        }
        if only(headers, &ACCEPT) != Some(self.accept.as_bytes()) {
            return Err("the upstream's Sec-WebSocket-Accept is wrong");
        }
        Ok(())
    }

    /// The client's side of the tunnel, once it has its 101.
    pub(super) fn into_client(self) -> OnUpgrade {
        self.client
    }
}

fn is_websocket(protocol: &str) -> bool {
    protocol.eq_ignore_ascii_case("websocket")
}

/// The value of a header's only line.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.as_bytes())
}

fn is_key(key: &[u8]) -> bool {
    BASE64.decode(key).is_ok_and(|bytes| bytes.len() == 16)
}

fn accept_for(key: &[u8]) -> String {
    BASE64.encode(&Sha1::new().chain_update(key).chain_update(GUID).finalize())
}

/// An open WebSocket on its way through.
pub(super) struct Tunnel {
    pub(super) client: OnUpgrade,
    pub(super) upstream: OnUpgrade,
    /// Drives the upstream's connection until it is handed over.
    pub(super) connection: Connection<Outgoing>,
    /// The client's connection is not idle.
    pub(super) busy: Busy,
    pub(super) idle_timeout: Duration,
    pub(super) clock: Clock,
    pub(super) stop: CancellationToken,
}

/// Why a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Both sides closed, or one failed.
    Closed,
    /// Nothing went through for the idle timeout.
    Idle,
    /// The server stops.
    Stopped,
}

impl Tunnel {
    /// Carries bytes both ways until the end, as fast as the slower side takes them.
    pub(super) async fn run(self) -> Ended {
        let Self {
            client,
            upstream,
            connection,
            busy,
            idle_timeout,
            clock,
            stop,
        } = self;
        // A client that leaves before its 101 is written never upgrades; stopping must not wait for it.
        let both = async {
            let upstream = upstream.await.ok()?;
            Some((client.await.ok()?, upstream))
        };
        let both = tokio::select! {
            both = both => both,
            () = stop.cancelled() => return Ended::Stopped,
        };
        let Some((client, upstream)) = both else {
            return Ended::Closed;
        };
        let last = Arc::new(Moved::new(clock.clone()));
        let mut client = Watched::new(client, Arc::clone(&last));
        let mut upstream = Watched::new(upstream, Arc::clone(&last));
        let ended = {
            let mut copying = pin!(copy_bidirectional(&mut client, &mut upstream));
            let mut timer = pin!(tokio::time::sleep(idle_timeout));
            loop {
                tokio::select! {
                    // How many bytes, or which side failed, changes nothing.
                    _copied = copying.as_mut() => break Ended::Closed,
                    () = stop.cancelled() => break Ended::Stopped,
                    () = timer.as_mut() => {
                        let left = last.at().after(idle_timeout).since(clock.monotonic());
                        if left.is_zero() {
                            break Ended::Idle;
                        }
                        timer.set(tokio::time::sleep(left));
                    }
                }
            }
        };
        let closing = async {
            // What was written is flushed; a side that is gone already says so, and that is all the same.
            let (_client, _upstream) = tokio::join!(client.shutdown(), upstream.shutdown());
        };
        tokio::time::timeout(CLOSE_MAX, closing).await.ok();
        drop((connection, busy));
        ended
    }
}

/// When something last went through.
struct Moved {
    clock: Clock,
    millis: AtomicU64,
}

impl Moved {
    fn new(clock: Clock) -> Self {
        let moved = Self {
            clock,
            millis: AtomicU64::new(0),
        };
        moved.now();
        moved
    }

    fn now(&self) {
        let since_start = self.clock.monotonic().since(Monotonic::default());
        let millis = u64::try_from(since_start.as_millis()).unwrap_or(u64::MAX);
        self.millis.store(millis, Ordering::Relaxed);
    }

    fn at(&self) -> Monotonic {
        Monotonic::from_start(Duration::from_millis(self.millis.load(Ordering::Relaxed)))
    }
}

/// One end of a tunnel; notes when something comes out of it.
struct Watched {
    io: TokioIo<Upgraded>,
    moved: Arc<Moved>,
}

impl Watched {
    fn new(io: Upgraded, moved: Arc<Moved>) -> Self {
        Self {
            io: TokioIo::new(io),
            moved,
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if read.is_ready() {
            self.moved.now();
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// The answer that tells the client of the open tunnel: the upstream's, with the hop-by-hop headers of this hop.
pub(super) fn switching(headers: &mut HeaderMap) -> StatusCode {
    ask(headers);
    headers.remove(header::CONTENT_LENGTH);
    StatusCode::SWITCHING_PROTOCOLS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_value_is_that_of_rfc_6455() {
        assert_eq!(accept_for(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_key_is_sixteen_bytes_in_base64() {
        assert!(is_key(b"dGhlIHNhbXBsZSBub25jZQ=="));
        for bad in ["", "x", "dGhlIHNhbXBsZSBub25jZQ", "AAAA", "dGhlIHNhbXBsZSBub25jZQ== "] {
            assert!(!is_key(bad.as_bytes()), "{bad}");
        }
    }
}
