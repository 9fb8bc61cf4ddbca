//! Reads a request's body: up to its limit, within its time, inside the memory budget.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap};
use hyper::body::{Body, Incoming};
use tokio_util::task::TaskTracker;

use crate::telemetry::metrics::Metrics;

/// Why a body was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyRefused {
    /// Over the limit (413).
    TooLarge,
    /// Not complete in time (408).
    TooSlow,
    /// The budget for all bodies is spent (503).
    Overloaded,
    /// It ended before its announced length, or its framing is broken (400).
    Incomplete,
}

/// Body bytes that all inbound requests of one kind may hold together (`limits.in_flight`): callers of routes must not be
/// able to take the room for webhooks.
///
/// It is spent by bytes that have arrived. An announced length alone costs a stranger nothing, so it must not cost us
/// anything either.
#[derive(Clone, Debug)]
pub struct Budget {
    held: Arc<AtomicU64>,
    limit: u64,
    bodies: Bodies,
    metrics: Metrics,
}

/// Whose bodies a [`Budget`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bodies {
    /// Of requests to sources.
    Events,
    /// Of requests with an `Idempotency-Key`, and of the answers to them that are being read.
    Calls,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64, bodies: Bodies, metrics: Metrics) -> Self {
        Self {
            held: Arc::default(),
            limit,
            bodies,
            metrics,
        }
    }

    /// Whether a body of `announced` bytes would fit now; none is set aside for it.
    fn has_room_for(&self, announced: u64) -> bool {
        let held = self.held();
        held == 0 || held.saturating_add(announced) <= self.limit
    }

    fn show(&self, change: u64, sign: i64) {
        let change = i64::try_from(change).unwrap_or(i64::MAX);
        let server = self.metrics.server();
        let gauge = match self.bodies {
            Bodies::Events => &server.in_flight_bytes,
            Bodies::Calls => &server.calls_in_flight_bytes,
        };
        gauge.add(change.saturating_mul(sign));
    }

    /// Bytes held now.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Nothing of it yet.
    pub fn share(&self) -> Share {
        Share {
            budget: self.clone(),
            bytes: 0,
        }
    }
}

/// What one request holds of the budget; given back when dropped.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    bytes: u64,
}

impl Share {
    /// Holds this much from now on.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), BodyRefused> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let before = self.budget.held.fetch_add(more, Ordering::Relaxed);
        // Alone it may be over: a limit below the largest body would otherwise refuse that body for ever.
        if before > 0 && before.saturating_add(more) > self.budget.limit {
            self.budget.held.fetch_sub(more, Ordering::Relaxed);
            return Err(BodyRefused::Overloaded);
        }
        self.budget.show(more, 1);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.show(self.bytes, -1);
    }
}

/// A body that nobody has read to its end: when dropped, what is left is read and thrown away beside the answer, within
/// bounds, so that the sender can read the answer instead of a connection reset.
#[derive(Debug)]
pub struct Unread<'t> {
    /// `None` once it is read to its end, or broken.
    body: Option<Incoming>,
    awaits_continue: bool,
    tracker: &'t TaskTracker,
}

impl<'t> Unread<'t> {
    /// The body behind these headers, of which nothing was read.
    pub fn of(headers: &HeaderMap, body: Incoming, tracker: &'t TaskTracker) -> Self {
        Self::new(body, headers.contains_key(header::EXPECT), tracker)
    }

    /// A body of which nothing was read. `awaits_continue`: the sender holds it back until we ask for it (RFC 9110
    /// section 10.1.1), so a refusal must not read it, which would be asking.
    pub fn new(body: Incoming, awaits_continue: bool, tracker: &'t TaskTracker) -> Self {
        Self {
            body: Some(body),
            awaits_continue,
            tracker,
        }
    }
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        if let Some(body) = self.body.take()
            && !body.is_end_stream()
            && !self.awaits_continue
        {
            self.tracker.spawn(drain(body));
        }
    }
}

/// Reads `body` whole. The share of the budget must be kept as long as the bytes are.
pub async fn read(
    mut body: Unread<'_>,
    limit: u64,
    timeout: Duration,
    budget: &Budget,
) -> Result<(Bytes, Share), BodyRefused> {
    let announced = body
        .body
        .as_ref()
        .and_then(|body| body.size_hint().exact())
        .unwrap_or(0);
    if announced > limit {
        return Err(BodyRefused::TooLarge);
    }
    if !budget.has_room_for(announced) {
        return Err(BodyRefused::Overloaded);
    }
    let mut reader = Reader {
        body: &mut body,
        limit,
        announced,
        share: budget.share(),
        first: Bytes::new(),
        more: BytesMut::new(),
    };
    reader.body.awaits_continue = false;
    // Most bodies have arrived with their head; only one that has not needs a timer.
    let at_once = std::future::poll_fn(|cx| Poll::Ready(reader.poll(cx))).await;
    let done = match at_once {
        Poll::Ready(done) => done,
        Poll::Pending => {
            let rest = std::future::poll_fn(|cx| reader.poll(cx));
            tokio::time::timeout(timeout, rest)
                .await
                .unwrap_or(Err(BodyRefused::TooSlow))
        }
    };
    done.map(|()| reader.finish())
}

struct Reader<'b, 't> {
    body: &'b mut Unread<'t>,
    limit: u64,
    /// 0 when the length was not announced.
    announced: u64,
    share: Share,
    /// The first piece; the whole body in the usual case, and then it is never copied.
    first: Bytes,
    more: BytesMut,
}

impl Reader<'_, '_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyRefused>> {
        loop {
            let Some(body) = &mut self.body.body else {
                return Poll::Ready(Ok(()));
            };
            let frame = match Pin::new(body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(ended) => {
                    self.body.body = None;
                    return Poll::Ready(match ended {
                        None => Ok(()),
                        Some(_broken) => Err(BodyRefused::Incomplete),
                    });
                }
            };
            // Trailers speak of one hop only; they are dropped.
            let Ok(data) = frame.into_data() else { continue };
            if let Err(refused) = self.push(data) {
                return Poll::Ready(Err(refused));
            }
        }
    }

    fn push(&mut self, data: Bytes) -> Result<(), BodyRefused> {
        let total = (self.first.len() + self.more.len() + data.len()) as u64;
        if total > self.limit {
            return Err(BodyRefused::TooLarge);
        }
        self.share.grow_to(total)?;
        if self.first.is_empty() && self.more.is_empty() {
            self.first = data;
        } else {
            if self.more.is_empty() {
                self.more.extend_from_slice(&std::mem::take(&mut self.first));
            }
            // Who has sent this much means it: no more doubling, so that a body costs about its own size.
            let rest = self.announced.saturating_sub(self.more.len() as u64);
            if self.more.len() >= ROOM_AT_ONCE_AFTER {
                self.more.reserve(usize::try_from(rest).unwrap_or(0));
            }
            self.more.extend_from_slice(&data);
        }
        Ok(())
    }

    fn finish(self) -> (Bytes, Share) {
        let bytes = if self.more.is_empty() {
            self.first
        } else {
            self.more.freeze()
        };
        (bytes, self.share)
    }
}

/// Bytes of a body that must have arrived before room is made for all that was announced.
const ROOM_AT_ONCE_AFTER: usize = 64 << 10;

/// How much of a refused body is still read, so that the sender can read the answer instead of a reset.
const DRAIN_BYTES: u64 = 128 << 20;
/// And for how long.
const DRAIN_TIME: Duration = Duration::from_secs(2);

async fn drain(mut body: Incoming) {
    let drained = async move {
        let mut left = DRAIN_BYTES;
        while left > 0 {
            match std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                Some(Ok(frame)) => {
                    let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                    left = left.saturating_sub(length.max(1));
                }
                Some(Err(_)) | None => return,
            }
        }
    };
    // Over time or done: either way the body has had its chance.
    tokio::time::timeout(DRAIN_TIME, drained).await.ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_given_back_and_never_exceeded_by_two() {
        let budget = Budget::new(100, Bodies::Events, Metrics::new());
        let mut first = budget.share();
        first.grow_to(60).unwrap();
        let mut second = budget.share();
        assert_eq!(second.grow_to(60), Err(BodyRefused::Overloaded));
        assert_eq!(budget.held(), 60);
        second.grow_to(40).unwrap();
        drop(first);
        second.grow_to(90).unwrap();
        drop(second);
        assert_eq!(budget.held(), 0);
        assert_eq!(budget.metrics.server().in_flight_bytes.get(), 0);
    }

    #[test]
    fn announced_bytes_that_have_not_arrived_take_nothing_from_others() {
        let budget = Budget::new(100, Bodies::Events, Metrics::new());
        assert!(budget.has_room_for(100));
        assert!(budget.has_room_for(100), "asking sets nothing aside");
        let mut share = budget.share();
        share.grow_to(1).unwrap();
        assert!(!budget.has_room_for(100));
        assert!(budget.has_room_for(99));
        assert_eq!(budget.metrics.server().in_flight_bytes.get(), 1);
    }

    #[test]
    fn one_body_larger_than_the_whole_budget_is_still_taken_alone() {
        let budget = Budget::new(10, Bodies::Events, Metrics::new());
        let mut share = budget.share();
        share.grow_to(50).unwrap();
        assert_eq!(budget.held(), 50);
    }
}
