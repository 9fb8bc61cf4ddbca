//! [`Passing`]: the body of a first answer on its way to the client: whole in memory, or what has been read of it and the
//! rest as it comes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};
use tokio_util::task::TaskTracker;

use super::shared::Running;
use crate::ingest::body::Share;

/// How long the rest of an answer is read whose client has left, so that the upstream is not told to stop.
const DRAIN_TIME: Duration = Duration::from_secs(300);

/// See the module. A client that leaves does not stop the upstream: what is left of its answer is read and thrown away,
/// unless it is an event stream, which only somebody who listens keeps going.
#[derive(Debug)]
pub struct Passing<B: Body + Unpin + Send + 'static> {
    start: Bytes,
    rest: Option<Rest<B>>,
    trailers: Option<HeaderMap>,
    /// What it holds of the memory for bodies.
    _share: Option<Share>,
}

#[derive(Debug)]
struct Rest<B> {
    body: B,
    /// The call runs until here.
    running: Running,
    drain: Option<TaskTracker>,
}

impl<B: Body + Unpin + Send + 'static> Passing<B> {
    /// All of it.
    pub(super) fn whole(body: Bytes, share: Share) -> Self {
        Self {
            start: body,
            rest: None,
            trailers: None,
            _share: Some(share),
        }
    }

    /// A part of it, and the rest; with a tracker the rest is read to its end in any case.
    pub(super) fn resumed(
        start: Bytes,
        body: B,
        trailers: Option<HeaderMap>,
        running: Running,
        drain: Option<TaskTracker>,
    ) -> Self {
        Self {
            start,
            rest: Some(Rest { body, running, drain }),
            trailers,
            _share: None,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin + Send + 'static> Body for Passing<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        if !this.start.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.start)))));
        }
        if let Some(rest) = &mut this.rest {
            match ready!(Pin::new(&mut rest.body).poll_frame(cx)) {
                Some(Ok(frame)) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(broken)) => {
                    this.rest = None;
                    return Poll::Ready(Some(Err(broken)));
                }
                None => this.rest = None,
            }
        }
        Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        let rest_ended = self.rest.as_ref().is_none_or(|rest| rest.body.is_end_stream());
        self.start.is_empty() && rest_ended && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let start = self.start.len() as u64;
        let Some(rest) = &self.rest else {
            return SizeHint::with_exact(start);
        };
        let rest = rest.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(start.saturating_add(rest.lower()));
        if let Some(upper) = rest.upper() {
            hint.set_upper(start.saturating_add(upper));
        }
        hint
    }
}

impl<B: Body + Unpin + Send + 'static> Drop for Passing<B> {
    fn drop(&mut self) {
        if let Some(Rest {
            mut body,
            running,
            drain,
        }) = self.rest.take()
            && let Some(tracker) = drain
            && !body.is_end_stream()
        {
            tracker.spawn(async move {
                let rest = async { while let Some(Ok(_)) = next(&mut body).await {} };
                // Over time or done: either way the upstream has had its chance.
                tokio::time::timeout(DRAIN_TIME, rest).await.ok();
                drop(running);
            });
        }
    }
}

async fn next<B: Body + Unpin>(body: &mut B) -> Option<Result<Frame<B::Data>, B::Error>> {
    std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}
