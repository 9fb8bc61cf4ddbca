//! The admin listener: health, readiness, metrics and the JSON API, never on the public port.
//!
//! It reads the store page by page and changes it only by replay, discard and resolving; lanes it pauses and resumes, and sources it lets learn their secret. Who may ask is decided in [`auth`], before
//! any path is looked at; what is answered is shaped in [`dto`]; errors have one shape ([`error`]).
//!
//! `/readyz` says whether the server should get traffic: the store takes events and nobody asked it to stop. It does not
//! depend on forwarding: with a dead upstream, ingest works, and taking it out of the load balancer would lose events.
//! Whether forwarding makes progress is told by `hooksluice_oldest_pending_seconds`,
//! `hooksluice_last_progress_seconds` and `hooksluice status`.

pub mod auth;
pub mod dto;
pub mod error;

mod backup;
mod events;
mod idempotency;
mod listen;
mod reload;
mod sources;
mod status;
mod upstreams;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use http::{HeaderValue, header};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::auth::LocalAddress;
use self::error::ApiError;
use crate::forward::Forwarder;
use crate::learn::Learners;
use crate::reload::Reloads;
use crate::secret::Secret;
use crate::store::Store;
use crate::telemetry::exposition;
use crate::telemetry::metrics::Metrics;
use crate::time::{Clock, Monotonic};

/// Longest request body: a filter with long values fits many times.
const BODY_LIMIT: usize = 64 << 10;

/// From the end of the head to the start of the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The same for a backup, whose copy is made first.
const BACKUP_TIMEOUT: Duration = Duration::from_secs(3_600);

const BACKUP_PATH: &str = "/api/v1/store/backup";

/// `[admin]`.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// Where it listens; anything but loopback needs a token.
    pub listen: SocketAddr,
    /// Bearer token, when one is required.
    pub token: Option<Secret>,
    /// Names besides its own addresses that `Host` may carry.
    pub hosts: Vec<String>,
}

/// The admin listener of one server.
#[derive(Debug)]
pub struct Admin {
    settings: AdminSettings,
    forwarder: Forwarder,
    store: Store,
    reloads: Reloads,
    learners: Learners,
    metrics: Metrics,
    registry: Registry,
    clock: Clock,
    started: Monotonic,
    shutting_down: CancellationToken,
}

impl Admin {
    /// An admin listener over these parts.
    pub fn new(
        settings: AdminSettings,
        forwarder: Forwarder,
        store: Store,
        reloads: Reloads,
        learners: Learners,
        metrics: Metrics,
        clock: Clock,
    ) -> Self {
        metrics.store().commit.get_or_init(|| store.commit_times());
        Self {
            settings,
            forwarder,
            store,
            reloads,
            learners,
            registry: exposition::registry(metrics.clone()),
            metrics,
            started: clock.monotonic(),
            clock,
            shutting_down: CancellationToken::new(),
        }
    }

    /// Cancel it to make `/readyz` say 503.
    pub fn shutting_down(&self) -> CancellationToken {
        self.shutting_down.clone()
    }

    /// Answers until `stop`, then lets running requests end for a moment.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        listen::serve(listener, router(Arc::new(self)), stop).await;
    }

    /// Why the server should get no traffic, if so.
    fn not_ready(&self) -> Option<String> {
        if self.shutting_down.is_cancelled() {
            return Some("shutting down".to_owned());
        }
        self.store.is_writable().err().map(|error| error.to_string())
    }
}

fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/api/v1/status", get(status::status))
        .route("/api/v1/events", get(events::list))
        .route("/api/v1/events/replay", post(events::replay_many))
        .route("/api/v1/events/{id}", get(events::show))
        .route("/api/v1/events/{id}/replay", post(events::replay))
        .route("/api/v1/events/{id}/discard", post(events::discard))
        .route("/api/v1/idempotency", get(idempotency::list))
        .route("/api/v1/idempotency/{route}/{digest}", get(idempotency::show))
        .route(
            "/api/v1/idempotency/{route}/{digest}/resolve",
            post(idempotency::resolve),
        )
        .route("/api/v1/reload", post(reload::reload))
        .route("/api/v1/sources/{name}/learn", post(sources::learn))
        .route("/api/v1/upstreams", get(upstreams::list))
        .route("/api/v1/upstreams/{name}/pause", post(upstreams::pause))
        .route("/api/v1/upstreams/{name}/resume", post(upstreams::resume))
        .route(BACKUP_PATH, post(backup::take))
        .route("/api/v1/openapi.json", get(openapi))
        .route("/", get(async || ApiError::NoPage))
        .fallback(async || ApiError::NoSuchPath)
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn_with_state(Arc::clone(&admin), gate))
        .with_state(admin)
}

/// Around every request: who may ask, for how long, and what browsers must not do with the answer.
async fn gate(
    State(admin): State<Arc<Admin>>,
    Extension(local): Extension<LocalAddress>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let patience = match parts.uri.path() {
        BACKUP_PATH => BACKUP_TIMEOUT,
        _ => REQUEST_TIMEOUT,
    };
    let mut response = match auth::allow(&admin.settings, local, &parts) {
        Ok(()) => {
            let answer = next.run(Request::from_parts(parts, body));
            match tokio::time::timeout(patience, answer).await {
                Ok(response) => response,
                Err(_elapsed) => ApiError::Timeout.into_response(),
            }
        }
        Err(refusal) => refusal.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(admin): State<Arc<Admin>>) -> Response {
    match admin.not_ready() {
        None => "ready\n".into_response(),
        Some(why) => (http::StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")).into_response(),
    }
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    // A store that cannot be asked leaves its last numbers; `store_writable` tells.
    if let Err(error) = status::refresh(&admin).await {
        tracing::warn!(%error, "metrics without fresh numbers of the store");
    }
    match exposition::text(&admin.registry) {
        Ok(text) => ([(header::CONTENT_TYPE, exposition::CONTENT_TYPE)], text).into_response(),
        Err(_) => ApiError::Metrics.into_response(),
    }
}

async fn openapi() -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (json, include_str!("admin/openapi.json")).into_response()
}

#[cfg(test)]
mod tests;
