//! [`Download`]: an upstream's body on its way to the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::Sleep;

use super::Outgoing;
use crate::headers;
use crate::net::connections::{Connection, Connections};
use crate::net::listen::Peer;
use crate::routes::HANG_UP_GRACE;
use crate::telemetry::metrics::RouteMetrics;

/// Why an answer did not reach its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cut {
    /// The upstream ended it early.
    #[error("the upstream ended its answer early")]
    Upstream,
    /// It stood still for longer than the route's `idle_timeout`.
    #[error("the upstream's answer stood still for too long")]
    Idle,
    /// The client has gone.
    #[error("the client has gone")]
    Client,
}

/// An upstream's body. When it has been read to its end, its connection goes back to the pool; dropped before, the
/// connection is closed, which tells the upstream to stop.
#[derive(Debug)]
pub struct Download {
    body: Incoming,
    lent: Option<Lent>,
    idle_timeout: Duration,
    idle: Option<Pin<Box<Sleep>>>,
    watched: Option<Watched>,
}

#[derive(Debug)]
struct Lent {
    connection: Connection<Outgoing>,
    connections: Arc<Connections<Outgoing>>,
}

/// Who reads it, and who wants to know how it ended.
#[derive(Debug)]
struct Watched {
    peer: Peer,
    gone: Option<Pin<Box<Sleep>>>,
    metrics: Arc<RouteMetrics>,
}

impl Download {
    pub(in crate::routes) fn new(
        body: Incoming,
        connection: Connection<Outgoing>,
        connections: Arc<Connections<Outgoing>>,
        idle_timeout: Duration,
    ) -> Self {
        let mut download = Self {
            body,
            lent: Some(Lent {
                connection,
                connections,
            }),
            idle_timeout,
            idle: None,
            watched: None,
        };
        if download.body.is_end_stream() {
            download.give_back();
        }
        download
    }

    /// Ends when `peer` hangs up; an early end is counted for the route.
    pub(in crate::routes) fn watch(&mut self, peer: Peer, metrics: Arc<RouteMetrics>) {
        self.watched = Some(Watched {
            peer,
            gone: None,
            metrics,
        });
    }

    fn give_back(&mut self) {
        if let Some(Lent {
            connection,
            connections,
        }) = self.lent.take()
        {
            connections.give_back(connection);
        }
    }

    fn cut(&mut self, why: Cut) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        self.lent = None;
        if let Some(watched) = &self.watched {
            watched.metrics.answer_cut(why != Cut::Client);
        }
        Poll::Ready(Some(Err(why)))
    }

    /// Nothing has come: has the client gone, or has the upstream stood still for too long?
    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<Cut> {
        if let Some(watched) = &mut self.watched
            && watched.peer.has_hung_up()
        {
            let gone = watched
                .gone
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(HANG_UP_GRACE)));
            if gone.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Cut::Client);
            }
        }
        let idle_timeout = self.idle_timeout;
        let idle = self
            .idle
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(idle_timeout)));
        ready!(idle.as_mut().poll(cx));
        Poll::Ready(Cut::Idle)
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                this.idle = None;
                if let Some(trailers) = frame.trailers_mut() {
                    headers::strip_trailers(trailers);
                }
                if this.body.is_end_stream() {
                    this.give_back();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                this.give_back();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(_broken))) => this.cut(Cut::Upstream),
            Poll::Pending => {
                let why = ready!(this.poll_wait(cx));
                this.cut(why)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
