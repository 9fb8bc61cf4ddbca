//! [`Connections`]: the open HTTP/1.1 connections to one upstream.
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
//! - No more connections than attempts at once, and a few that are being closed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::time::{Clock, Monotonic};

/// The body of a request: whole, shared, not copied.
pub type Body = Full<Bytes>;

/// How long a connection may wait for its next request.
pub const IDLE_MAX: Duration = Duration::from_secs(1);
/// How long a connection is used.
pub const AGE_MAX: Duration = Duration::from_secs(60);
/// How long a connection may take to be ready again after an answer, before it is closed.
const READY_MAX: Duration = Duration::from_secs(1);
/// How long one of several addresses may take to answer, before the next is tried.
const ADDRESS_MAX: Duration = Duration::from_secs(3);
/// Bytes of an answer's head, at most. Far more than apps send: an answer that is over it is an unknown outcome, and
/// what the app has done would be repeated. It bounds the buffer of a connection too, which grows as it is filled.
const ANSWER_HEAD_MAX: usize = 512 << 10;
/// Header lines of an answer, at most, for the same reason (hyper's own limit is 100).
const ANSWER_HEADERS_MAX: usize = 1024;

/// The open connections to one upstream.
#[derive(Debug)]
pub struct Connections {
    address: Address,
    /// Ready ones, the most recently used last. A mutex for nanoseconds, never held over an await.
    idle: Mutex<IdleList>,
    clock: Clock,
    /// Of the tasks that drive connections; they end with them.
    tracker: TaskTracker,
}

#[derive(Debug)]
enum Address {
    Known(SocketAddr),
    /// Resolved for each new connection.
    Named {
        host: String,
        port: u16,
    },
}

#[derive(Debug, Default)]
struct IdleList {
    ready: Vec<Idle>,
    /// The lane has ended: attempts that still run bring back connections that nobody will use.
    closed: bool,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Monotonic,
}

/// A connection that carries no request. Lent to one attempt at a time.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Body>,
    /// The task that moves its bytes. It ends with the connection, also in the middle of a request that the upstream
    /// does not read.
    _driver: AbortOnDropHandle<()>,
    opened_at: Monotonic,
    fresh: bool,
}

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum CannotConnect {
    /// The name could not be resolved.
    #[error("the upstream's name could not be resolved")]
    Resolve(#[source] io::Error),
    /// Not one of its addresses took the connection.
    #[error("could not connect")]
    Connect(#[source] io::Error),
    /// It ended before it could be used.
    #[error("the connection ended at once")]
    Ended(#[source] hyper::Error),
}

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// The connection had ended and not a byte was sent: the request comes back.
    NeverSent(Box<Request<Body>>),
    /// Sent, or a part of it.
    Broken(hyper::Error),
}

impl Connections {
    /// None yet, to the host and port of `origin`.
    pub fn new(origin: &Uri, clock: Clock, tracker: TaskTracker) -> Self {
        let host = origin.host().unwrap_or_default();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        let port = origin.port_u16().unwrap_or(80);
        let address = match host.parse::<IpAddr>() {
            Ok(ip) => Address::Known(SocketAddr::new(ip, port)),
            Err(_name) => Address::Named {
                host: host.to_owned(),
                port,
            },
        };
        Self {
            address,
            idle: Mutex::default(),
            clock,
            tracker,
        }
    }

    /// A ready connection that is still young enough, if there is one.
    pub fn take_idle(&self) -> Option<Connection> {
        let now = self.clock.monotonic();
        let mut idle = self.idle();
        while let Some(last) = idle.ready.pop() {
            if last.is_usable(now) {
                return Some(last.connection);
            }
        }
        None
    }

    /// Opens a new one.
    pub async fn open(&self) -> Result<Connection, CannotConnect> {
        let stream = match &self.address {
            Address::Known(address) => TcpStream::connect(address).await.map_err(CannotConnect::Connect)?,
            Address::Named { host, port } => {
                let addresses = tokio::net::lookup_host((host.as_str(), *port))
                    .await
                    .map_err(CannotConnect::Resolve)?;
                connect_any(addresses).await.map_err(CannotConnect::Connect)?
            }
        };
        // Without this a request larger than a segment may wait for a delayed acknowledgement. If it cannot be set,
        // the connection is slower and no less right.
        let _slower = stream.set_nodelay(true);

        let (mut sender, driver) = http1::Builder::new()
            .max_buf_size(ANSWER_HEAD_MAX)
            .max_headers(ANSWER_HEADERS_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(CannotConnect::Ended)?;
        let driver = self.tracker.spawn(async move {
            // What ends a connection is told to the request that it carried.
            let _told_to_the_request = driver.await;
        });
        let driver = AbortOnDropHandle::new(driver);
        sender.ready().await.map_err(CannotConnect::Ended)?;
        Ok(Connection {
            sender,
            _driver: driver,
            opened_at: self.clock.monotonic(),
            fresh: true,
        })
    }

    /// Takes back a connection whose answer was read to its end.
    pub fn give_back(self: &Arc<Self>, mut connection: Connection) {
        connection.fresh = false;
        if connection.sender.is_ready() {
            self.keep(connection);
        } else if !connection.sender.is_closed() {
            // The driver has not come round yet, or the upstream answered before it had read all of the request.
            let connections = self.clone();
            self.tracker.spawn(async move {
                if let Ok(Ok(())) = tokio::time::timeout(READY_MAX, connection.sender.ready()).await {
                    connections.keep(connection);
                }
            });
        }
    }

    /// Closes those that have been idle for too long.
    pub fn close_idle(&self) {
        let now = self.clock.monotonic();
        self.idle().ready.retain(|idle| idle.is_usable(now));
    }

    /// Closes all that are idle, and from now on those that become so.
    pub fn close_all(&self) {
        let mut idle = self.idle();
        idle.closed = true;
        idle.ready.clear();
    }

    /// How many are idle.
    pub fn idle_count(&self) -> usize {
        self.idle().ready.len()
    }

    fn keep(&self, connection: Connection) {
        let since = self.clock.monotonic();
        let mut idle = self.idle();
        if !idle.closed {
            idle.ready.push(Idle { connection, since });
        }
    }

    fn idle(&self) -> MutexGuard<'_, IdleList> {
        // The list is whole between any two statements that touch it.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Idle {
    fn is_usable(&self, now: Monotonic) -> bool {
        self.connection.sender.is_ready()
            && now.since(self.since) < IDLE_MAX
            && now.since(self.connection.opened_at) < AGE_MAX
    }
}

impl Connection {
    /// Whether it has carried no request yet.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Sends the request and waits for the head of the answer.
    pub async fn send(&mut self, request: Request<Body>) -> Result<Response<Incoming>, NoAnswer> {
        self.sender
            .try_send_request(request)
            .await
            .map_err(|mut error| match error.take_message() {
                // hyper hands back only a request that it had not started to write.
                Some(request) => NoAnswer::NeverSent(Box::new(request)),
                None => NoAnswer::Broken(error.into_error()),
            })
    }
}

/// The first of the addresses that takes the connection. The last one has all the time that is left.
async fn connect_any(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut addresses = addresses.peekable();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    while let Some(address) = addresses.next() {
        let connecting = TcpStream::connect(address);
        let found = if addresses.peek().is_some() {
            let timed_out = |_elapsed| Err(io::ErrorKind::TimedOut.into());
            tokio::time::timeout(ADDRESS_MAX, connecting)
                .await
                .unwrap_or_else(timed_out)
        } else {
            connecting.await
        };
        match found {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
