//! One HTTP/2 connection to an upstream, and the streams that requests have on it.
//!
//! What FW-09 tells: a broken frame, a reset or a `GOAWAY` may come after the app has acted, so nothing is repeated
//! behind them. Only `REFUSED_STREAM` says that nothing was done.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header;
use http::uri::{Authority, Parts, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::{AGE_MAX, ANSWER_HEAD_MAX, IDLE_MAX, Payload, Refusal, STREAMS_MAX, Wire};
use crate::time::Monotonic;

/// How often a connection with open streams is asked whether it still lives, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_MAX: Duration = Duration::from_secs(10);

/// A connection that many requests share.
#[derive(Debug)]
pub(super) struct Line<B> {
    sender: SendRequest<B>,
    /// Ends with the pool's hold on the line and the last of its streams.
    _driver: AbortOnDropHandle<()>,
    streams: AtomicUsize,
    /// At least once, so that its TLS handshake, if there was one, was to the upstream's liking.
    answered: AtomicBool,
    scheme: Scheme,
    refusal: Refusal,
    opened_at: Monotonic,
    idle_since: Mutex<Monotonic>,
}

/// A request's place on a line.
#[derive(Debug)]
pub(super) struct Stream<B>(Arc<Line<B>>);

/// Spawns hyper's own tasks for a connection where shutdown waits for them.
#[derive(Clone, Debug)]
pub(super) struct Tracked(TaskTracker);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tracked {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

pub(super) async fn handshake<B: Payload>(
    io: TokioIo<Wire>,
    tracker: &TaskTracker,
) -> hyper::Result<(SendRequest<B>, http2::Connection<TokioIo<Wire>, B, Tracked>)> {
    http2::Builder::new(Tracked(tracker.clone()))
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(ANSWER_HEAD_MAX).unwrap_or(u32::MAX))
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_MAX)
        .handshake(io)
        .await
}

/// Whether the upstream says that it did nothing with the request.
pub(super) fn is_refused(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|h2| h2.is_reset() && h2.is_remote() && h2.reason() == Some(h2::Reason::REFUSED_STREAM))
}

impl<B: Payload> Line<B> {
    pub(super) fn new(
        sender: SendRequest<B>,
        driver: AbortOnDropHandle<()>,
        scheme: Scheme,
        refusal: Refusal,
        now: Monotonic,
    ) -> Self {
        Self {
            sender,
            _driver: driver,
            streams: AtomicUsize::new(0),
            answered: AtomicBool::new(false),
            scheme,
            refusal,
            opened_at: now,
            idle_since: Mutex::new(now),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.streams.load(Ordering::Relaxed) < STREAMS_MAX
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.sender.is_closed() && self.streams.load(Ordering::Relaxed) == 0
    }

    pub(super) fn may_be_kept(&self, now: Monotonic) -> bool {
        let idle_since = *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        !self.sender.is_closed()
            && now.since(self.opened_at) < AGE_MAX
            && (self.streams.load(Ordering::Relaxed) > 0 || now.since(idle_since) < IDLE_MAX)
    }
}

impl<B: Payload> Stream<B> {
    /// Asked for under the pool's lock, so that two requests do not take the last place.
    pub(super) fn of(line: &Arc<Line<B>>) -> Self {
        line.streams.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(line))
    }

    pub(super) fn end(self, now: Monotonic) {
        *self.0.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    pub(super) async fn send(&self, request: Request<B>) -> Result<Response<Incoming>, TrySendError<Request<B>>> {
        let request = with_authority(request, &self.0.scheme);
        let answer = self.0.sender.clone().try_send_request(request).await;
        if answer.is_ok() {
            self.0.answered.store(true, Ordering::Relaxed);
        }
        answer
    }

    pub(super) fn refusal(&self) -> &Refusal {
        &self.0.refusal
    }

    pub(super) fn has_answered(&self) -> bool {
        self.0.answered.load(Ordering::Relaxed)
    }
}

impl<B> Drop for Stream<B> {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `Host` becomes `:authority` (RFC 9113 section 8.3.1), which hyper takes from the target.
fn with_authority<B>(mut request: Request<B>, scheme: &Scheme) -> Request<B> {
    let host = request.headers_mut().remove(header::HOST);
    let authority: Option<Authority> = host.and_then(|host| host.to_str().ok()?.parse().ok());
    let mut parts = Parts::default();
    parts.path_and_query = request.uri().path_and_query().cloned();
    if let Some(authority) = authority {
        parts.scheme = Some(scheme.clone());
        parts.authority = Some(authority);
    }
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    request
}
