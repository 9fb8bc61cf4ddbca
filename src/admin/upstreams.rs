//! `GET /api/v1/upstreams`, and a person's orders to their lanes: pause and resume.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use http::Uri;

use super::Admin;
use super::dto::{Nothing, ShareStatus, Upstream, Upstreams};
use super::error::ApiError;
use super::events::read;
use crate::diagnostic::did_you_mean;
use crate::forward::{LaneError, UpstreamView};
use crate::id::UpstreamName;
use crate::store::Counts;
use crate::store::model::DispatchState;

pub(super) async fn list(State(admin): State<Arc<Admin>>) -> Result<Json<Upstreams>, ApiError> {
    let counts = admin.store.counts().await?;
    let upstreams = admin.forwarder.upstreams();
    Ok(Json(Upstreams {
        upstreams: upstreams.iter().map(|view| upstream(&admin, view, &counts)).collect(),
    }))
}

pub(super) async fn pause(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Upstream>, ApiError> {
    let _: Nothing = read(body)?;
    let name = UpstreamName::new(name);
    let done = admin.forwarder.pause(&name).await;
    answer(&admin, name, done, "paused").await
}

pub(super) async fn resume(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Upstream>, ApiError> {
    let _: Nothing = read(body)?;
    let name = UpstreamName::new(name);
    let done = admin.forwarder.resume(&name).await;
    answer(&admin, name, done, "resumed").await
}

/// The upstream as it is now; or why the order does not hold for good.
async fn answer(
    admin: &Admin,
    name: UpstreamName,
    done: Result<(), LaneError>,
    ordered: &'static str,
) -> Result<Json<Upstream>, ApiError> {
    match done {
        Ok(()) => {
            let counts = admin.store.counts().await?;
            let upstreams = admin.forwarder.upstreams();
            let view = upstreams.iter().find(|view| view.settings.name == name);
            let view = view.ok_or_else(|| unknown(admin, &name))?;
            Ok(Json(upstream(admin, view, &counts)))
        }
        Err(LaneError::UnknownUpstream(name)) => Err(unknown(admin, &name)),
        Err(LaneError::NotRecorded(cause)) => Err(ApiError::NotRecorded {
            upstream: name.to_string(),
            ordered,
            cause,
        }),
    }
}

fn unknown(admin: &Admin, name: &UpstreamName) -> ApiError {
    let known = admin.store.upstreams();
    ApiError::UnknownUpstream {
        hint: did_you_mean(name.as_str(), known.iter().map(UpstreamName::as_str)),
        name: name.to_string(),
    }
}

fn upstream(admin: &Admin, view: &UpstreamView, counts: &Counts) -> Upstream {
    let UpstreamView {
        settings,
        lane,
        order_is_saved,
    } = view;
    let (now, monotonic) = (admin.clock.now(), admin.clock.monotonic());
    let counted = counts.upstreams.get(&settings.name);
    let in_state = |state| {
        let states = counted.map(|counted| &counted.states);
        states.and_then(|states| states.get(&state)).copied().unwrap_or(0)
    };
    let oldest = counted.and_then(|counted| counted.oldest_pending);
    Upstream {
        name: settings.name.to_string(),
        url: without_credentials(&settings.remote.origin),
        paused: lane.paused,
        order_saved: *order_is_saved,
        breaker: lane.breaker.as_str().to_owned(),
        held_for_seconds: lane.held_for.map(|left| left.as_secs().max(1)),
        running: u64::try_from(lane.running).unwrap_or(u64::MAX),
        concurrency: u64::try_from(settings.concurrency).unwrap_or(u64::MAX),
        rate: settings.rate.map(|rate| rate.to_string()),
        share: lane.share.map(|share| {
            let lapsed = share.valid_until.is_some_and(|end| end <= monotonic);
            ShareStatus {
                units: if lapsed { 0 } else { share.units },
                of: share.of,
            }
        }),
        backlog: in_state(DispatchState::Pending) + in_state(DispatchState::Leased),
        oldest_pending_seconds: oldest.map(|oldest| now.since(oldest).as_secs()),
    }
}

/// The configuration takes none; this is not the place to rely on it.
fn without_credentials(origin: &Uri) -> String {
    let scheme = origin.scheme_str().unwrap_or("http");
    match (origin.host(), origin.port_u16()) {
        (Some(host), Some(port)) => format!("{scheme}://{host}:{port}"),
        (Some(host), None) => format!("{scheme}://{host}"),
        (None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_a_url_are_not_shown() {
        for (url, shown) in [
            ("http://user:secret@app.test:3000/", "http://app.test:3000"),
            ("http://app.test", "http://app.test"),
            ("http://[::1]:8080", "http://[::1]:8080"),
        ] {
            assert_eq!(without_credentials(&url.parse().unwrap()), shown);
        }
    }
}
