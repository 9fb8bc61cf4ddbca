//! The accept loop: connection cap, timers armed on every connection, and an orderly end.
//!
//! A connection is at any time idle (waits for its next request), in a head, or in a request. The first two have a
//! deadline here; reading a body has its own where a readable 408 can still be sent (`ingest`). One timer per
//! connection is enough: it is set only when a read must wait, and when it fires early it is set anew.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::net::head_guard::{HeadGuard, Seen};
use crate::telemetry::metrics::Metrics;
use crate::time::{Clock, Monotonic};

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
    /// HTTP/1 request, and any but 101 to one that asks for a WebSocket, must close the connection (see [`HeadGuard`]).
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
}

/// What a connection and its requests tell each other.
#[derive(Debug, Default)]
struct Shared {
    /// Requests that are being answered, and tunnels.
    active: AtomicU32,
    hung_up: AtomicBool,
}

impl Peer {
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
/// tasks.
#[expect(clippy::too_many_arguments, reason = "called once, by the app that owns all of them")]
pub async fn serve<H: Handler>(
    listener: TcpListener,
    settings: ListenSettings,
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
        let (stream, peer) = tokio::select! {
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
        let peer = Peer {
            address: peer,
            shared: Arc::default(),
        };
        let place = Place::take(slot, &metrics);
        let io = GuardedStream::new(stream, place, &settings, Arc::clone(&peer.shared), clock.clone());
        let handler = Arc::clone(&handler);
        let builder = Arc::clone(&builder);
        let metrics = metrics.clone();
        let (stop, cut) = (stop.clone(), cut.clone());
        tracker.spawn(async move {
            let address = peer.address;
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

/// Counts a request of a connection until its answer is out, also when the client goes away.
#[derive(Debug)]
pub struct Busy(Arc<Shared>);

impl Busy {
    fn enter(shared: &Arc<Shared>) -> Self {
        shared.active.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
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

/// One of the connections that there may be; held by the stream, which outlives its HTTP when it becomes a tunnel.
struct Place {
    _slot: OwnedSemaphorePermit,
    metrics: Metrics,
}

impl Place {
    fn take(slot: OwnedSemaphorePermit, metrics: &Metrics) -> Self {
        metrics.server().connections.add(1);
        metrics.server().connections_accepted.add(1);
        Self {
            _slot: slot,
            metrics: metrics.clone(),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.server().connections.add(-1);
    }
}

/// A TCP stream whose heads are guarded and whose waits have deadlines.
struct GuardedStream {
    stream: TcpStream,
    guard: HeadGuard,
    shared: Arc<Shared>,
    place: Place,
    clock: Clock,
    head_timeout: Duration,
    idle_timeout: Duration,
    write_timeout: Duration,
    /// Since when a write waits for the client to read.
    blocked_since: Option<Monotonic>,
    write_timer: Option<Pin<Box<tokio::time::Sleep>>>,
    /// Since when the current phase (first head, head, idle) lasts.
    waiting_since: Option<(Phase, Monotonic)>,
    timer: Option<(Monotonic, Pin<Box<tokio::time::Sleep>>)>,
    seen_bytes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Head,
    Idle,
}

impl GuardedStream {
    fn new(stream: TcpStream, place: Place, settings: &ListenSettings, shared: Arc<Shared>, clock: Clock) -> Self {
        Self {
            stream,
            guard: HeadGuard::new(settings.head.max(8192)),
            shared,
            place,
            clock,
            head_timeout: settings.head_timeout,
            idle_timeout: settings.idle_timeout,
            write_timeout: settings.write_timeout,
            blocked_since: None,
            write_timer: None,
            waiting_since: None,
            timer: None,
            seen_bytes: false,
        }
    }

    /// A read has to wait: is its phase over time, and if not, is the timer set for it?
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let phase = if self.guard.in_head() || !self.seen_bytes {
            Phase::Head
        } else if self.shared.active.load(Ordering::Relaxed) == 0 {
            Phase::Idle
        } else {
            self.waiting_since = None;
            return Poll::Pending;
        };
        let since = match self.waiting_since {
            Some((waiting, since)) if waiting == phase => since,
            _ => {
                let now = self.clock.monotonic();
                self.waiting_since = Some((phase, now));
                now
            }
        };
        let deadline = match phase {
            Phase::Head => since.after(self.head_timeout),
            Phase::Idle => since.after(self.idle_timeout),
        };
        loop {
            let now = self.clock.monotonic();
            if now >= deadline {
                match phase {
                    Phase::Head => self.place.metrics.server().heads_too_slow.add(1),
                    Phase::Idle => self.place.metrics.server().idle_closed.add(1),
                }
                return Poll::Ready(io::Error::from(io::ErrorKind::TimedOut));
            }
            match &mut self.timer {
                // Set for this deadline or an earlier one: wait for it, then look again.
                Some((at, timer)) if *at <= deadline => {
                    ready!(timer.as_mut().poll(cx));
                    self.timer = None;
                }
                _ => self.timer = Some((deadline, Box::pin(tokio::time::sleep(deadline.since(now))))),
            }
        }
    }
}

impl GuardedStream {
    /// A write has got through, or waits. Without a deadline, a client that never reads would keep its connection's
    /// place for ever: the library does not read, and so meets no read deadline, while it cannot write.
    fn poll_written<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.blocked_since = None;
            self.write_timer = None;
            return written;
        }
        let now = self.clock.monotonic();
        let deadline = self.blocked_since.get_or_insert(now).after(self.write_timeout);
        loop {
            let now = self.clock.monotonic();
            if now >= deadline {
                self.place.metrics.server().stalled_closed.add(1);
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut)));
            }
            let timer = self
                .write_timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(deadline.since(now))));
            ready!(timer.as_mut().poll(cx));
            self.write_timer = None;
        }
    }

    /// While a request is answered hyper does not read, so that a client which leaves would go unnoticed.
    fn poll_hung_up(&mut self, cx: &mut Context<'_>) {
        if self.shared.active.load(Ordering::Relaxed) == 0 || self.shared.hung_up.load(Ordering::Relaxed) {
            return;
        }
        let mut byte = [std::mem::MaybeUninit::uninit()];
        let gone = match self.stream.poll_peek(cx, &mut ReadBuf::uninit(&mut byte)) {
            // What it has sent stands before its end; hyper reads that first.
            Poll::Pending | Poll::Ready(Ok(1..)) => false,
            Poll::Ready(Ok(0) | Err(_)) => true,
        };
        if gone {
            self.shared.hung_up.store(true, Ordering::Relaxed);
            // The handler and the body are polled by the task that polls this.
            cx.waker().wake_by_ref();
        }
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => {
                let was_in_head = this.guard.in_head();
                let fresh = buf.filled_mut().get_mut(before..).unwrap_or_default();
                this.seen_bytes |= !fresh.is_empty();
                if this.guard.inspect(fresh) == Seen::Violation {
                    debug!("a head can be read in two ways; refused");
                }
                // A head that goes on keeps its start; anything else begins a new phase.
                if !(was_in_head && this.guard.in_head()) {
                    this.waiting_since = None;
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => this.poll_deadline(cx).map(Err),
        }
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.poll_written(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Behind an answer hyper does not read again until bytes arrive: the idle timer is armed here.
        if self.poll_deadline(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        self.poll_hung_up(cx);
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.poll_written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
