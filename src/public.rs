//! [`Public`]: what the public listener serves, in order: what no origin answers → sources → health → routes → 404.
//!
//! Sources come first, so that no route can take a request away from one; what is almost a source's path is for the
//! routes to refuse (P3).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use tokio_util::task::TaskTracker;

use crate::ingest::body::Unread;
use crate::ingest::{Ingest, respond};
use crate::net::head_guard;
use crate::net::listen::{Handler, Peer};
use crate::routes::Routes;
use crate::routes::body::Body;
use crate::telemetry::metrics::Metrics;

/// Serves the public listener, by the configuration of the moment. A request is served by one from its head to its
/// answer, also while another takes over, and the last one of them takes the old one along.
#[derive(Debug)]
pub struct Public {
    serving: ArcSwap<Serving>,
    metrics: Metrics,
    tracker: TaskTracker,
    draining: AtomicBool,
}

/// What one configuration serves.
#[derive(Debug)]
pub struct Serving {
    /// The sources.
    pub ingest: Ingest,
    /// What is no source's.
    pub routes: Routes,
    /// Answered 200 (503 while shutting down), when set.
    pub health_path: Option<String>,
}

impl Public {
    /// Ready to serve.
    pub fn new(serving: Serving, metrics: Metrics, tracker: TaskTracker) -> Self {
        Self {
            serving: ArcSwap::from_pointee(serving),
            metrics,
            tracker,
            draining: AtomicBool::new(false),
        }
    }

    /// What requests that begin now are served by.
    pub fn serving(&self) -> Arc<Serving> {
        self.serving.load_full()
    }

    /// Requests that begin from now on are served by another configuration.
    pub fn replace(&self, serving: Serving) {
        self.serving.store(Arc::new(serving));
    }

    /// From now on every answer closes its connection: the process is about to stop.
    pub fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    async fn answer(&self, request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let (parts, body) = request.into_parts();
        if let Some(refusal) = respond::not_for_an_origin(&parts) {
            drop(Unread::of(&parts.headers, body, &self.tracker));
            self.metrics.server().heads_malformed.add(1);
            return refusal.map(Body::from);
        }
        let serving = self.serving();
        let path = parts.uri.path();
        if let Some(served) = serving.ingest.find(path) {
            let answer = serving.ingest.answer(served, parts, body, &peer).await;
            return answer.map(Body::from);
        }
        if serving.health_path.as_deref() == Some(path) {
            drop(Unread::of(&parts.headers, body, &self.tracker));
            return respond::health(!self.draining.load(Ordering::Relaxed)).map(Body::from);
        }
        match serving.routes.serve(parts, body, peer).await {
            Ok(response) => response,
            Err((parts, body)) => {
                drop(Unread::of(&parts.headers, body, &self.tracker));
                self.metrics.server().not_found.add(1);
                respond::not_found().map(Body::from)
            }
        }
    }
}

impl Handler for Public {
    type Body = Body;

    async fn handle(self: Arc<Self>, request: Request<Incoming>, peer: Peer) -> Response<Self::Body> {
        let is_http1 = request.version() < Version::HTTP_2;
        let closes = is_http1 && head_guard::ends_with_answer(request.headers());
        let mut response = self.answer(request, peer).await;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return response;
        }
        if is_http1 && (closes || self.draining.load(Ordering::Relaxed)) {
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        } else if !is_http1 {
            // Connection-specific headers do not exist in HTTP/2 (RFC 9113 section 8.2.2).
            response.headers_mut().remove(header::CONNECTION);
        }
        response
    }
}
