//! [`GuardedStream`]: a connection's bytes with their heads guarded and their waits held to deadlines.
//!
//! A connection is at any time idle (waits for its next request), in a head, or in a request. The first two have a
//! deadline here; reading a body has its own where a readable 408 can still be sent (`ingest`). One timer per
//! connection is enough: it is set only when a read must wait, and when it fires early it is set anew.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tracing::debug;

use crate::net::head_guard::{HeadGuard, Seen};
use crate::net::listen::ListenSettings;
use crate::net::wire::Wire;
use crate::telemetry::metrics::Metrics;
use crate::time::{Clock, Monotonic};

/// What a connection and its requests tell each other.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Requests that are being answered, and tunnels.
    pub(super) active: AtomicU32,
    pub(super) hung_up: AtomicBool,
}

/// Counts a request of a connection until its answer is out, also when the client goes away.
#[derive(Debug)]
pub struct Busy(Arc<Shared>);

impl Busy {
    pub(super) fn enter(shared: &Arc<Shared>) -> Self {
        shared.active.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One of the connections that there may be; held by the stream, which outlives its HTTP when it becomes a tunnel.
pub(super) struct Place {
    _slot: OwnedSemaphorePermit,
    metrics: Metrics,
}

impl Place {
    pub(super) fn take(slot: OwnedSemaphorePermit, metrics: &Metrics) -> Self {
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

/// A stream whose heads are guarded and whose waits have deadlines.
pub(super) struct GuardedStream {
    stream: Wire,
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
    /// The end of that phase has been counted: it is met by a flush, and again by the read behind it.
    counted: bool,
    timer: Option<(Monotonic, Pin<Box<tokio::time::Sleep>>)>,
    seen_bytes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Head,
    Idle,
}

impl GuardedStream {
    pub(super) fn new(
        stream: Wire,
        place: Place,
        settings: &ListenSettings,
        shared: Arc<Shared>,
        clock: Clock,
    ) -> Self {
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
            counted: false,
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
                self.counted = false;
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
                let server = self.place.metrics.server();
                match phase {
                    _ if self.counted => {}
                    Phase::Head => server.heads_too_slow.add(1),
                    Phase::Idle => server.idle_closed.add(1),
                }
                self.counted = true;
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

    /// What TLS has encrypted may still wait for the client to read, also when every write got through.
    fn poll_drained(&mut self, cx: &mut Context<'_>, drained: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        if self.stream.holds_writes() {
            self.poll_written(cx, drained)
        } else {
            drained
        }
    }

    /// While a request is answered hyper does not read, so that a client which leaves would go unnoticed.
    fn poll_hung_up(&mut self, cx: &mut Context<'_>) {
        if self.shared.active.load(Ordering::Relaxed) == 0 || self.shared.hung_up.load(Ordering::Relaxed) {
            return;
        }
        if self.stream.is_gone(cx) {
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
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.poll_drained(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.poll_drained(cx, closed)
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
