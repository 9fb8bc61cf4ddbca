//! The accept loop: connection cap, TLS where it is configured, timers armed on every connection, and an orderly end.
//!
//! A connection has its place from the moment in which it is accepted: a TLS handshake takes one as a request does.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

pub use crate::net::guarded::Busy;
use crate::net::guarded::{GuardedStream, Place, Shared};
use crate::net::handshake;
use crate::net::tls::{Certificates, ClientCertificate, Shown};
use crate::net::wire::Wire;
use crate::telemetry::metrics::{HandshakeOutcome, Metrics};
use crate::time::Clock;

/// Streams that one HTTP/2 connection may have open.
const H2_STREAMS: u32 = 256;

/// What a listener is held to.
#[derive(Clone, Debug)]
pub struct ListenSettings {
    /// Open connections; at it, new ones wait in the kernel's queue.
    pub connections: usize,
    /// Bytes of a head; over it 431.
    pub head: usize,
    /// From the first byte of a head (or the accept) to its end.
    pub head_timeout: Duration,
    /// From one request's end to the next one's first byte.
    pub idle_timeout: Duration,
    /// How long a client may leave an answer unread.
    pub write_timeout: Duration,
}

/// What serves requests.
pub trait Handler: Send + Sync + 'static {
    /// The body of an answer.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static;

    /// Answers one request. The future is dropped when the client resets its HTTP/2 stream or the connection fails:
    /// whatever must not be cancelled is detached inside. That an HTTP/1 client has closed its side is told by
    /// [`Peer::has_hung_up`] and cancels nothing, since it may still wait for the answer. The answer to a chunked
    /// HTTP/1 request, and any but 101 to one that asks for a WebSocket, must close the connection (see
    /// [`HeadGuard`](crate::net::head_guard::HeadGuard)).
    fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Peer,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static;
}

/// The other end of an inbound connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where it is.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    tls: Option<Arc<Encryption>>,
}

/// What is known of a TLS connection.
#[derive(Debug)]
struct Encryption {
    shown: Option<Shown>,
}

impl Peer {
    /// Whether it speaks TLS to us.
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Its certificate, while it holds: verified by the handshake, not expired, and signed by one of the CAs that are
    /// configured now.
    pub fn certificate(&self) -> Option<Arc<ClientCertificate>> {
        self.tls.as_ref()?.shown.as_ref()?.certificate()
    }

    /// Whether an HTTP/1 client has closed its side, or reset the connection, behind its request. The connection's task
    /// is woken when this becomes true, and with it the handler's future and the answer's body.
    pub fn has_hung_up(&self) -> bool {
        self.shared.hung_up.load(Ordering::Relaxed)
    }

    /// Keeps the connection from counting as idle, for as long as the value lives.
    pub fn hold(&self) -> Busy {
        Busy::enter(&self.shared)
    }
}

/// Binds the address with a backlog fit for bursts.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    TcpListener::from_std(socket.into())
}

/// Accepts until `stop`, then lets the connections finish their requests, until `cut`. `tracker` knows all connection
/// tasks. With `certificates` only TLS is spoken.
#[expect(clippy::too_many_arguments, reason = "called once, by the app that owns all of them")]
pub async fn serve<H: Handler>(
    listener: TcpListener,
    settings: ListenSettings,
    certificates: Option<Arc<Certificates>>,
    handler: Arc<H>,
    metrics: Metrics,
    clock: Clock,
    tracker: TaskTracker,
    stop: CancellationToken,
    cut: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(settings.connections));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // A sender may close its side once the request is out; it still waits for the answer.
        .half_close(true)
        // Armed in `GuardedStream`, which can tell an idle connection from a slow head.
        .header_read_timeout(None)
        // hyper's smallest buffer is 8 KiB; below that the guard's limit would not be answered with 431.
        .max_buf_size(settings.head.max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(H2_STREAMS)
        .max_header_list_size(u32::try_from(settings.head).unwrap_or(u32::MAX))
        .keep_alive_interval(settings.idle_timeout)
        .keep_alive_timeout(settings.head_timeout);
    let builder = Arc::new(builder);

    loop {
        // Taken before accepting: at the cap, clients wait in the kernel's queue and cost us no memory.
        if slots.available_permits() == 0 {
            metrics.server().connections_refused.add(1);
        }
        let slot = tokio::select! {
            () = stop.cancelled() => return,
            slot = Arc::clone(&slots).acquire_owned() => match slot {
                Ok(slot) => slot,
                Err(_closed) => return,
            },
        };
        let (stream, address) = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    accept_failed(&error).await;
                    continue;
                }
            },
        };
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "could not set TCP_NODELAY");
        }
        let place = Place::take(slot, &metrics);
        let (settings, clock) = (settings.clone(), clock.clone());
        let handler = Arc::clone(&handler);
        let builder = Arc::clone(&builder);
        let metrics = metrics.clone();
        let certificates = certificates.clone();
        let (stop, cut) = (stop.clone(), cut.clone());
        tracker.spawn(async move {
            let (wire, tls) = match &certificates {
                None => (Wire::Plain(stream), None),
                Some(certificates) => {
                    let opened = tokio::select! {
                        opened = Box::pin(handshake::open(stream, certificates, settings.head_timeout)) => opened,
                        // Nothing was promised yet, and no request would be taken behind it.
                        () = stop.cancelled() => return certificates.count(HandshakeOutcome::Left),
                    };
                    let Some(opened) = opened else { return };
                    let encryption = Encryption { shown: opened.shown };
                    (Wire::tls(opened.stream), Some(Arc::new(encryption)))
                }
            };
            let peer = Peer {
                address,
                shared: Arc::default(),
                tls,
            };
            let io = GuardedStream::new(wire, place, &settings, Arc::clone(&peer.shared), clock);
            let service = service_fn(move |request: Request<Incoming>| {
                let busy = peer.hold();
                let answer = Arc::clone(&handler).handle(request, peer.clone());
                async move {
                    let answer = answer.await;
                    Ok::<_, std::convert::Infallible>(answer.map(|body| Answered { body, _busy: busy }))
                }
            });
            let connection = builder.serve_connection_with_upgrades(TokioIo::new(io), service);
            let mut connection = std::pin::pin!(connection);
            let result = tokio::select! {
                result = connection.as_mut() => result,
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    tokio::select! {
                        result = connection => result,
                        () = cut.cancelled() => Ok(()),
                    }
                }
            };
            if let Err(error) = result {
                count_failure(&metrics, &*error);
                debug!(%error, peer = %address, "connection ended early");
            }
        });
    }
}

/// hyper has answered 400 or 431 by itself; here it is counted.
fn count_failure(metrics: &Metrics, error: &(dyn std::error::Error + 'static)) {
    let Some(error) = error.downcast_ref::<hyper::Error>() else {
        return;
    };
    if error.is_parse_too_large() {
        metrics.server().heads_too_large.add(1);
    } else if error.is_parse() {
        metrics.server().heads_malformed.add(1);
    }
}

async fn accept_failed(error: &io::Error) {
    // A connection that was gone before we took it is the client's affair.
    if matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    ) {
        return;
    }
    // Out of file descriptors or memory: trying again at once would only burn a core.
    warn!(%error, "could not accept a connection");
    tokio::time::sleep(Duration::from_millis(200)).await;
}

/// The body of an answer; its connection is not idle before the body has ended.
struct Answered<B> {
    body: B,
    _busy: Busy,
}

impl<B: Body + Unpin> Body for Answered<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
