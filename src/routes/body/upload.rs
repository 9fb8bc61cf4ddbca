//! [`Upload`]: a client's body on its way to the upstream, held to its limit and its pace.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tokio::time::Sleep;

use crate::headers;
use crate::routes::message;
use crate::time::{Clock, Monotonic};

/// Why a client's body was not sent to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UploadFailed {
    /// Nothing came for too long (408).
    #[error("the client's body did not arrive in time")]
    TooSlow,
    /// Over the route's `max_body` (413).
    #[error("the client's body is too large")]
    TooLarge,
    /// It ended early, or its framing is broken (400).
    #[error("the client's body is incomplete or malformed")]
    Broken,
}

/// A client's body.
#[derive(Debug)]
pub struct Upload {
    body: Incoming,
    progress: Progress,
    clock: Clock,
    /// How long the client may send nothing.
    stall: Duration,
    /// Bytes that may still come.
    left: u64,
    timer: Option<Pin<Box<Sleep>>>,
}

/// How far a client's body has come, for whoever waits for the answer to it: while the client sends, the upstream is not
/// late.
#[derive(Clone, Debug)]
pub struct Progress(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    failed: AtomicU8,
    /// The last frame's time, in milliseconds of the clock.
    moved_at: AtomicU64,
    /// The upstream takes what comes; it is the client that sends nothing.
    waits_for_client: AtomicBool,
}

impl Progress {
    /// Why the body failed, if it did.
    pub fn failure(&self) -> Option<UploadFailed> {
        match self.0.failed.load(Ordering::Acquire) {
            1 => Some(UploadFailed::TooSlow),
            2 => Some(UploadFailed::TooLarge),
            3 => Some(UploadFailed::Broken),
            _ => None,
        }
    }

    /// Since when the upstream can be blamed for silence; not before `asked_at`.
    pub fn silent_since(&self, asked_at: Monotonic, now: Monotonic) -> Monotonic {
        if self.0.waits_for_client.load(Ordering::Acquire) {
            return now;
        }
        let moved_at = Duration::from_millis(self.0.moved_at.load(Ordering::Acquire));
        asked_at.max(Monotonic::from_start(moved_at))
    }
}

impl Upload {
    /// `limit`: bytes, if any. `stall`: how long the client may send nothing while the upstream would take more.
    pub fn new(body: Incoming, limit: Option<u64>, stall: Duration, clock: Clock) -> Self {
        Self {
            body,
            progress: Progress(Arc::new(Shared {
                failed: AtomicU8::new(0),
                moved_at: AtomicU64::new(0),
                waits_for_client: AtomicBool::new(false),
            })),
            clock,
            stall,
            left: limit.unwrap_or(u64::MAX),
            timer: None,
        }
    }

    /// How far it has come.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadFailed>>> {
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                ready!(self.poll_stall(cx));
                return Poll::Ready(Some(Err(self.fail(UploadFailed::TooSlow))));
            }
        };
        self.moved();
        let Some(frame) = frame else {
            return Poll::Ready(None);
        };
        let Ok(mut frame) = frame else {
            return Poll::Ready(Some(Err(self.fail(UploadFailed::Broken))));
        };
        if let Some(data) = frame.data_ref() {
            match self.left.checked_sub(data.len() as u64) {
                Some(left) => self.left = left,
                None => return Poll::Ready(Some(Err(self.fail(UploadFailed::TooLarge)))),
            }
        } else if let Some(trailers) = frame.trailers_mut() {
            headers::strip_trailers(trailers);
            // Whoever the peer is: a trusted proxy says such things in its head.
            headers::strip(trailers, |name| message::misleads(name, false));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn moved(&mut self) {
        let shared = &self.progress.0;
        let since_start = self.clock.monotonic().since(Monotonic::from_start(Duration::ZERO));
        let millis = u64::try_from(since_start.as_millis()).unwrap_or(u64::MAX);
        shared.moved_at.store(millis, Ordering::Release);
        shared.waits_for_client.store(false, Ordering::Release);
        self.timer = None;
    }

    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.progress.0.waits_for_client.store(true, Ordering::Release);
        let stall = self.stall;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(stall)));
        timer.as_mut().poll(cx)
    }

    fn fail(&mut self, why: UploadFailed) -> UploadFailed {
        let code = match why {
            UploadFailed::TooSlow => 1,
            UploadFailed::TooLarge => 2,
            UploadFailed::Broken => 3,
        };
        self.progress.0.failed.store(code, Ordering::Release);
        why
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Sent to its end, or given up: from here on it is the upstream that is waited for.
        if self.progress.0.waits_for_client.swap(false, Ordering::AcqRel) {
            self.moved();
        }
    }
}
