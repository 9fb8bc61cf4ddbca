//! [`Connections`]: the open connections to one upstream, HTTP/1.1 or HTTP/2 ([`Protocol`]), over TCP or TLS.
//!
//! # Why not hyper-util's pooled client
//!
//! A request that met a connection which the upstream had just closed was either never sent, or sent and not answered.
//! The first may go on over another connection at once, within the same attempt; the second must not, since the app may
//! have acted (P9). hyper tells them apart by handing the request back (`try_send_request`), but the pooled client
//! keeps that to itself: it either retries hidden (`retry_canceled_requests`) or fails a request that nothing was
//! wrong with. Here nothing is sent twice under one attempt number, and an idle close costs nothing.
//!
//! # Rules
//!
//! - Used most recently first, so that a quiet time closes what is not needed.
//! - Idle for at most [`IDLE_MAX`]: app servers close idle connections after 2 s (gunicorn), 5 s (Node.js, uvicorn) or
//!   more, and a request that is on its way at that moment is lost with an unknown outcome.
//! - Used for at most [`AGE_MAX`]: the name is resolved again for each new connection, so a changed address is noticed.
//! - No more connections than requests at once, and a few that are being closed. One of HTTP/2 carries up to
//!   [`STREAMS_MAX`] requests.

mod address;
mod line;
mod remote;
#[cfg(test)]
mod tests;
mod tls;
mod wire;

use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use self::address::Address;
pub use self::address::{bare_host, literal, port_of};
use self::line::{Line, Stream};
pub use self::remote::{Protocol, Remote};
pub use self::tls::{Identity, Roots, UpstreamTls};
use self::wire::{Refusal, Secured, Wire};
use crate::net::egress::Refused;
use crate::time::{Clock, Monotonic};

/// How long a connection may wait for its next request.
pub const IDLE_MAX: Duration = Duration::from_secs(1);
/// How long a connection is used.
pub const AGE_MAX: Duration = Duration::from_secs(60);
/// Requests that one HTTP/2 connection carries at a time.
pub const STREAMS_MAX: usize = 100;
/// How long a connection may take to be ready again after an answer, before it is closed.
const READY_MAX: Duration = Duration::from_secs(1);
/// Bytes of an answer's head, at most. Far more than apps send: an answer that is over it is an unknown outcome, and
/// what the app has done would be repeated. It bounds the buffer of a connection too, which grows as it is filled.
const ANSWER_HEAD_MAX: usize = 512 << 10;
/// Header lines of an answer, at most, for the same reason (hyper's own limit is 100).
const ANSWER_HEADERS_MAX: usize = 1024;

/// What can be the body of a request to an upstream.
pub trait Payload: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static {}

impl<B> Payload for B where B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static {}

/// The open connections to one upstream.
#[derive(Debug)]
pub struct Connections<B> {
    address: Address,
    remote: Remote,
    /// A mutex for nanoseconds, never held over an await.
    pool: Mutex<Pool<B>>,
    clock: Clock,
    /// Of the tasks that drive connections; they end with them.
    tracker: TaskTracker,
}

#[derive(Debug)]
struct Pool<B> {
    /// HTTP/1.1, without a request, the most recently used last. Some may not be ready yet: the driver has not come
    /// round, or the upstream answered before it had read all of the request.
    idle: Vec<Idle<B>>,
    /// HTTP/2, the oldest first.
    lines: Vec<Arc<Line<B>>>,
    /// Nobody asks any more: those that still carry a request are not kept behind it.
    closed: bool,
}

#[derive(Debug)]
struct Idle<B> {
    connection: Single<B>,
    since: Monotonic,
}

/// An HTTP/1.1 connection.
#[derive(Debug)]
struct Single<B> {
    sender: SendRequest<B>,
    /// The task that moves its bytes. It ends with the connection, also in the middle of a request that the upstream
    /// does not read.
    _driver: AbortOnDropHandle<()>,
    refusal: Refusal,
    opened_at: Monotonic,
}

/// A connection, or a stream of one, for one request. Dropped before [`Connections::give_back`] it is closed (the
/// stream is reset).
#[derive(Debug)]
pub struct Connection<B> {
    kind: Kind<B>,
    fresh: bool,
}

#[derive(Debug)]
enum Kind<B> {
    Http1(Single<B>),
    H2(Stream<B>),
}

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum CannotConnect {
    /// The name could not be resolved.
    #[error("the upstream's name could not be resolved")]
    Resolve(#[source] io::Error),
    /// Not one of its addresses may be connected to.
    #[error("address not allowed by [egress]")]
    NotAllowed(#[source] Refused),
    /// Not one of its addresses took the connection.
    #[error("could not connect")]
    Connect(#[source] io::Error),
    /// The upstream is not who it should be, or we are not for it, or it speaks no TLS.
    #[error("the TLS handshake failed: {cause}")]
    Handshake {
        /// For people.
        cause: String,
    },
    /// It ended before it could be used.
    #[error("the connection ended at once")]
    Ended(#[source] hyper::Error),
}

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer<B> {
    /// The connection had ended and not a byte was sent: the request comes back.
    NeverSent(Box<Request<B>>),
    /// The upstream says that it did nothing with the request (RFC 9113 section 8.7, `REFUSED_STREAM`).
    Refused,
    /// It broke the TLS handshake off when it saw our certificate, or none. With TLS 1.3 that is heard only behind the
    /// request, of which it has read nothing.
    BrokenOff {
        /// For people.
        cause: String,
    },
    /// Sent, or a part of it.
    Broken(hyper::Error),
}

impl CannotConnect {
    /// A short cause for people: never a URL, which may hold credentials.
    pub fn describe(&self) -> String {
        let cause: &dyn Error = match self {
            Self::Resolve(cause) | Self::Connect(cause) => cause,
            Self::NotAllowed(_) => return self.to_string(),
            Self::Handshake { cause } => return cause.clone(),
            Self::Ended(cause) => cause,
        };
        match cause.downcast_ref::<io::Error>() {
            Some(io) if matches!(self, Self::Connect(_)) => io.kind().to_string(),
            _ => format!("{self}: {cause}"),
        }
    }
}

/// A short cause for people of a request that was not answered.
pub fn describe_broken(error: &hyper::Error) -> String {
    if error.is_parse() {
        return "the answer is not HTTP/1.1".to_owned();
    }
    if error.is_incomplete_message() {
        return "connection closed before the answer".to_owned();
    }
    if let Some(tls) = io_error(error).and_then(tls::tls_error) {
        return format!("the TLS connection broke: {tls}");
    }
    match error.source() {
        Some(cause) => match cause.downcast_ref::<io::Error>() {
            Some(io) => io.kind().to_string(),
            None if cause.is::<h2::Error>() => cause.to_string(),
            None => error.to_string(),
        },
        None => error.to_string(),
    }
}

impl<B: Payload> Connections<B> {
    /// None yet.
    pub fn new(remote: &Remote, clock: Clock, tracker: TaskTracker) -> Self {
        Self {
            address: Address::of(&remote.origin),
            remote: remote.clone(),
            pool: Mutex::new(Pool {
                idle: Vec::new(),
                lines: Vec::new(),
                closed: false,
            }),
            clock,
            tracker,
        }
    }

    /// What the upstream speaks.
    pub fn protocol(&self) -> Protocol {
        self.remote.protocol
    }

    /// A ready connection that is still young enough, if there is one.
    pub fn take_idle(&self) -> Option<Connection<B>> {
        let now = self.clock.monotonic();
        let mut pool = self.pool();
        let kind = match self.remote.protocol {
            Protocol::Http1 => Kind::Http1(pool.take_idle(now)?),
            Protocol::H2c | Protocol::H2 => Kind::H2(pool.take_stream(now)?),
        };
        Some(Connection { kind, fresh: false })
    }

    /// Opens a new one.
    pub async fn open(&self) -> Result<Connection<B>, CannotConnect> {
        let stream = self.address.connect(&self.remote.egress).await?;
        // Without this a request larger than a segment may wait for a delayed acknowledgement. If it cannot be set,
        // the connection is slower and no less right.
        let _slower = stream.set_nodelay(true);
        let refusal = Refusal::default();
        let io = TokioIo::new(match &self.remote.tls {
            Some(tls) => Wire::Tls(Box::new(Secured {
                stream: tls.handshake(stream, self.remote.protocol).await?,
                has_certificate: tls.has_certificate(),
                refusal: refusal.clone(),
            })),
            None => Wire::Plain(stream),
        });
        let kind = match self.remote.protocol {
            Protocol::Http1 => {
                let (mut sender, driver) = http1::Builder::new()
                    .max_buf_size(ANSWER_HEAD_MAX)
                    .max_headers(ANSWER_HEADERS_MAX)
                    .handshake(io)
                    .await
                    .map_err(CannotConnect::Ended)?;
                let driver = self.drive(async move {
                    // What ends a connection is told to the request that it carried.
                    let _told_to_the_request = driver.with_upgrades().await;
                });
                sender.ready().await.map_err(|ended| match refusal.cause() {
                    Some(cause) => CannotConnect::Handshake {
                        cause: cause.to_owned(),
                    },
                    None => CannotConnect::Ended(ended),
                })?;
                Kind::Http1(Single {
                    sender,
                    _driver: driver,
                    refusal,
                    opened_at: self.clock.monotonic(),
                })
            }
            Protocol::H2c | Protocol::H2 => {
                let (sender, driver) = line::handshake(io, &self.tracker).await.map_err(CannotConnect::Ended)?;
                let driver = self.drive(async move {
                    let _told_to_the_requests = driver.await;
                });
                let scheme = match self.remote.tls {
                    Some(_) => Scheme::HTTPS,
                    None => Scheme::HTTP,
                };
                let line = Arc::new(Line::new(sender, driver, scheme, refusal, self.clock.monotonic()));
                let stream = Stream::of(&line);
                let mut pool = self.pool();
                if !pool.closed {
                    pool.lines.push(line);
                }
                Kind::H2(stream)
            }
        };
        Ok(Connection { kind, fresh: true })
    }

    fn drive(&self, driver: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(self.tracker.spawn(driver))
    }

    /// Takes back a connection whose answer was read to its end.
    pub fn give_back(&self, connection: Connection<B>) {
        let since = self.clock.monotonic();
        match connection.kind {
            Kind::Http1(single) => {
                if single.sender.is_closed() {
                    return;
                }
                let mut pool = self.pool();
                if !pool.closed {
                    pool.idle.push(Idle {
                        connection: single,
                        since,
                    });
                }
            }
            Kind::H2(stream) => stream.end(since),
        }
    }

    /// Closes those that have been idle for too long.
    pub fn close_idle(&self) {
        let now = self.clock.monotonic();
        let mut pool = self.pool();
        pool.idle.retain(|idle| idle.may_be_kept(now));
        pool.lines.retain(|line| line.may_be_kept(now));
    }

    /// Closes all that are idle, and from now on those that become so.
    pub fn close_all(&self) {
        let mut pool = self.pool();
        pool.closed = true;
        pool.idle.clear();
        pool.lines.clear();
    }

    /// How many are ready for a request that comes now.
    pub fn idle_count(&self) -> usize {
        let pool = self.pool();
        let ready = pool.idle.iter().filter(|idle| idle.connection.sender.is_ready());
        ready.count() + pool.lines.iter().filter(|line| line.is_idle()).count()
    }

    fn pool(&self) -> MutexGuard<'_, Pool<B>> {
        // The lists are whole between any two statements that touch them.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Payload> Pool<B> {
    fn take_idle(&mut self, now: Monotonic) -> Option<Single<B>> {
        let mut at = self.idle.len();
        while let Some(before) = at.checked_sub(1) {
            at = before;
            let idle = self.idle.get(at)?;
            if idle.is_usable(now) {
                return Some(self.idle.remove(at).connection);
            }
            if !idle.may_be_kept(now) {
                self.idle.remove(at);
            }
        }
        None
    }

    fn take_stream(&mut self, now: Monotonic) -> Option<Stream<B>> {
        // One that is over age ends with the last of its streams.
        self.lines.retain(|line| line.may_be_kept(now));
        self.lines.iter().rev().find(|line| line.has_room()).map(Stream::of)
    }
}

impl<B: Payload> Idle<B> {
    fn is_usable(&self, now: Monotonic) -> bool {
        self.connection.sender.is_ready() && self.is_young(now, IDLE_MAX)
    }

    fn may_be_kept(&self, now: Monotonic) -> bool {
        let ready = self.connection.sender.is_ready();
        !self.connection.sender.is_closed() && self.is_young(now, if ready { IDLE_MAX } else { READY_MAX })
    }

    fn is_young(&self, now: Monotonic, idle_max: Duration) -> bool {
        now.since(self.since) < idle_max && now.since(self.connection.opened_at) < AGE_MAX
    }
}

impl<B: Payload> Connection<B> {
    /// Whether it has carried no request yet.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Sends the request and waits for the head of the answer. Its target is a path (RFC 9112 section 3.2.1), its
    /// authority the `Host` header; HTTP/2 gets them as it wants them.
    pub async fn send(&mut self, request: Request<B>) -> Result<Response<Incoming>, NoAnswer<B>> {
        let sent = match &mut self.kind {
            Kind::Http1(single) => single.sender.try_send_request(request).await,
            Kind::H2(stream) => stream.send(request).await,
        };
        sent.map_err(|mut error| match (error.take_message(), self.refusal()) {
            // hyper hands back only a request that it had not started to write.
            (Some(request), _) if !self.fresh => NoAnswer::NeverSent(Box::new(request)),
            (_, Some(cause)) => NoAnswer::BrokenOff { cause },
            (Some(request), None) => NoAnswer::NeverSent(Box::new(request)),
            (None, None) if line::is_refused(error.error()) => NoAnswer::Refused,
            (None, None) => NoAnswer::Broken(error.into_error()),
        })
    }

    /// Why the upstream broke the handshake off behind the request. Once it has answered anything, the handshake was to
    /// its liking.
    fn refusal(&self) -> Option<String> {
        let (has_answered, refusal) = match &self.kind {
            Kind::Http1(single) => (!self.fresh, &single.refusal),
            Kind::H2(stream) => (stream.has_answered(), stream.refusal()),
        };
        refusal.cause().filter(|_| !has_answered).map(str::to_owned)
    }
}

/// The error of the connection itself, if that is what `error` is about.
fn io_error(error: &hyper::Error) -> Option<&io::Error> {
    let cause = error.source()?;
    cause
        .downcast_ref()
        .or_else(|| cause.downcast_ref::<h2::Error>()?.get_io())
}
