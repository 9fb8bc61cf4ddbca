//! `/api/v1/events…`: list, show, replay and discard.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use data_encoding::BASE64;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, StatusCode};
use serde::de::DeserializeOwned;
use tracing::info;

use super::Admin;
use super::dto::{self, Discard, Discarded, Filter, Replay, ReplayMany, Replayed};
use super::error::ApiError;
use crate::forward::ProofPlaces;
use crate::headers::{is_credential, is_credential_name};
use crate::id::{EventId, SourceName, UpstreamName};
use crate::store::model::{DispatchState, Outcome};
use crate::store::{self, AttemptRecord, DispatchSummary, EventDetail, EventFilter, EventSummary};
use crate::time::Timestamp;

/// The most events of a page.
pub(super) const PAGE_MAX: usize = 500;

/// Events of a page unless the request says otherwise.
pub(super) const PAGE_DEFAULT: usize = 50;

/// What stands for a value that nobody should see.
const MASKED: &str = "(masked)";

pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    query: Result<Query<Filter>, QueryRejection>,
) -> Result<Json<dto::EventPage>, ApiError> {
    let Query(filter) = query.map_err(|error| ApiError::BadRequest(error.body_text()))?;
    let asked = Asked::read(filter)?;
    let page = admin.store.events(asked.filter, asked.before, asked.limit).await?;
    Ok(Json(dto::EventPage {
        events: page.events.iter().map(summary).collect(),
        next_cursor: page.next.map(|before| before.to_string()),
    }))
}

pub(super) async fn show(
    State(admin): State<Arc<Admin>>,
    Path(id): Path<String>,
) -> Result<Json<dto::EventDetail>, ApiError> {
    let found = admin.store.event(event_id(&id)?).await?;
    let found = found.ok_or(ApiError::NoSuchEvent)?;
    let proofs = admin.forwarder.proof_places(&found.event.source);
    Ok(Json(detail(found, &proofs)))
}

pub(super) async fn replay(
    State(admin): State<Arc<Admin>>,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Replayed>, ApiError> {
    let asked: Replay = read(body)?;
    let id = event_id(&id)?;
    let to = asked.to.map(|name| configured(&admin, name)).transpose()?;
    match admin.store.replay(id, to.map(|upstream| vec![upstream])).await? {
        store::Replayed::Pending { upstreams, busy } => {
            info!(event = %id, ?upstreams, ?busy, "replayed by a person");
            Ok(Json(Replayed {
                matched: 1,
                dispatches: count(&upstreams),
                busy: count(&busy),
                next_cursor: None,
            }))
        }
        store::Replayed::NotAdmitted => Err(ApiError::NotAdmitted),
        store::Replayed::NotFound => Err(ApiError::NoSuchEvent),
    }
}

/// One page of the events that match.
pub(super) async fn replay_many(
    State(admin): State<Arc<Admin>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Replayed>, ApiError> {
    let asked: ReplayMany = read(body)?;
    let to = asked.to.map(|name| configured(&admin, name)).transpose()?;
    if asked.filter.matches_all() && !asked.all {
        return Err(ApiError::BadRequest(
            "say which events with `filter`, or say `\"all\": true`".to_owned(),
        ));
    }
    let Asked { filter, before, limit } = Asked::read(asked.filter)?;
    let page = admin.store.events(filter.clone(), before, limit).await?;
    let mut replayed = Replayed {
        next_cursor: page.next.map(|before| before.to_string()),
        ..Replayed::default()
    };
    for event in &page.events {
        let targets = targets(event, &filter, to.as_ref());
        if asked.dry_run {
            replayed.matched += 1;
            replayed.dispatches += count(&targets);
            continue;
        }
        // What was pruned since the look, or waits for admission and will be forwarded anyway, is not counted.
        if let store::Replayed::Pending { upstreams, busy } = admin.store.replay(event.id, Some(targets)).await? {
            replayed.matched += 1;
            replayed.dispatches += count(&upstreams);
            replayed.busy += count(&busy);
        }
    }
    if !asked.dry_run {
        let (events, dispatches) = (replayed.matched, replayed.dispatches);
        info!(events, dispatches, "replayed by a person");
    }
    Ok(Json(replayed))
}

pub(super) async fn discard(
    State(admin): State<Arc<Admin>>,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Discarded>, ApiError> {
    let asked: Discard = read(body)?;
    let id = event_id(&id)?;
    match admin.store.discard(id, asked.upstream.map(UpstreamName::new)).await? {
        store::Discarded::Discarded { upstreams } => {
            if !upstreams.is_empty() {
                info!(event = %id, ?upstreams, "discarded by a person");
            }
            Ok(Json(Discarded {
                dispatches: count(&upstreams),
            }))
        }
        store::Discarded::NotAdmitted => Err(ApiError::NotAdmitted),
        store::Discarded::NotFound => Err(ApiError::NoSuchEvent),
    }
}

fn count(upstreams: &[UpstreamName]) -> u64 {
    u64::try_from(upstreams.len()).unwrap_or(u64::MAX)
}

/// Where a matching event goes: to the named upstream, else to those whose dispatches made it match. Without this, the
/// replay of what is dead at one upstream would send it again to another that has it.
fn targets(event: &EventSummary, filter: &EventFilter, to: Option<&UpstreamName>) -> Vec<UpstreamName> {
    if let Some(to) = to {
        return vec![to.clone()];
    }
    event
        .dispatches
        .iter()
        .filter(|dispatch| filter.state.is_none_or(|state| state == dispatch.state))
        .filter(|dispatch| filter.upstream.as_ref().is_none_or(|name| *name == dispatch.upstream))
        .map(|dispatch| dispatch.upstream.clone())
        .collect()
}

/// A page that was asked for.
struct Asked {
    filter: EventFilter,
    before: Option<EventId>,
    limit: usize,
}

impl Asked {
    fn read(filter: Filter) -> Result<Self, ApiError> {
        let limit = match filter.limit {
            None => PAGE_DEFAULT,
            Some(limit) => usize::try_from(limit)
                .ok()
                .filter(|limit| (1..=PAGE_MAX).contains(limit))
                .ok_or_else(|| ApiError::BadRequest(format!("`limit` must be 1 to {PAGE_MAX}")))?,
        };
        let before =
            match filter.cursor {
                None => None,
                Some(cursor) => {
                    let before = cursor.parse();
                    Some(before.map_err(|_not_an_id| {
                        ApiError::BadRequest("`cursor` must be a page's `next_cursor`".to_owned())
                    })?)
                }
            };
        Ok(Self {
            filter: EventFilter {
                source: filter.source.map(SourceName::new),
                event_type: filter.event_type,
                delivery_id: filter.delivery_id,
                state: filter.state.as_deref().map(state).transpose()?,
                upstream: filter.upstream.map(UpstreamName::new),
                from: filter.from.as_deref().map(|text| time("from", text)).transpose()?,
                to: filter.to.as_deref().map(|text| time("to", text)).transpose()?,
            },
            before,
            limit,
        })
    }
}

fn state(word: &str) -> Result<DispatchState, ApiError> {
    DispatchState::ALL
        .into_iter()
        .find(|state| state.as_str() == word)
        .ok_or_else(|| {
            let words = DispatchState::ALL.map(DispatchState::as_str).join(", ");
            ApiError::BadRequest(format!("`state` must be one of {words}"))
        })
}

fn time(key: &str, text: &str) -> Result<Timestamp, ApiError> {
    match text.parse::<jiff::Timestamp>() {
        Ok(time) => Ok(Timestamp::from_millis(time.as_millisecond())),
        Err(_) => Err(ApiError::BadRequest(format!(
            "`{key}` must be an RFC 3339 time such as 2026-11-29T20:15:00Z"
        ))),
    }
}

fn event_id(text: &str) -> Result<EventId, ApiError> {
    // Whatever is no id is the id of no event.
    text.parse().map_err(|_not_a_uuid| ApiError::NoSuchEvent)
}

fn configured(admin: &Admin, name: String) -> Result<UpstreamName, ApiError> {
    let mut upstreams = admin.store.upstreams().into_iter();
    match upstreams.find(|upstream| upstream.as_str() == name) {
        Some(upstream) => Ok(upstream),
        None => Err(ApiError::NoSuchUpstream(name)),
    }
}

/// A JSON object; an empty body is `{}`.
pub(super) fn read<T: DeserializeOwned + Default>(body: Result<Bytes, BytesRejection>) -> Result<T, ApiError> {
    let body = body.map_err(|error| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::TooLarge,
        _ => ApiError::BadRequest(error.body_text()),
    })?;
    if body.is_empty() {
        return Ok(T::default());
    }
    // serde would take a list for the fields in their order.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(ApiError::BadRequest("the body must be a JSON object".to_owned()));
    }
    serde_json::from_slice(&body)
        .map_err(|error| ApiError::BadRequest(format!("the body is not as described: {error}")))
}

fn summary(event: &EventSummary) -> dto::EventSummary {
    dto::EventSummary {
        id: event.id.to_string(),
        source: event.source.to_string(),
        received_at: event.received_at.to_string(),
        delivery_id: event.delivery_id.clone(),
        event_type: event.event_type.clone(),
        body_bytes: event.body_bytes,
        dispatches: event.dispatches.iter().map(dispatch).collect(),
        elsewhere: event.elsewhere.map(|of| of.to_string()),
    }
}

fn dispatch(dispatch: &DispatchSummary) -> dto::Dispatch {
    dto::Dispatch {
        upstream: dispatch.upstream.to_string(),
        state: dispatch.state.to_string(),
        attempts: dispatch.attempts,
        due_at: dispatch.due.map(|due| due.to_string()),
        replay: dispatch.replay,
    }
}

/// `proofs` tells where the source's provider puts its signature or token, whatever the name of that place.
fn detail(found: EventDetail, proofs: &ProofPlaces) -> dto::EventDetail {
    let EventDetail {
        event,
        dispatches,
        elsewhere,
        ..
    } = found;
    let masked = proofs.without_tokens(&event.headers, &event.body, MASKED.as_bytes());
    let body = masked.as_deref().unwrap_or(&event.body);
    dto::EventDetail {
        summary: dto::EventSummary {
            id: event.id.to_string(),
            source: event.source.to_string(),
            received_at: event.received_at.to_string(),
            delivery_id: event.delivery_id,
            event_type: event.event_type,
            body_bytes: u64::try_from(event.body.len()).unwrap_or(u64::MAX),
            dispatches: dispatches.iter().map(|(summary, _)| dispatch(summary)).collect(),
            elsewhere: elsewhere.map(|of| of.to_string()),
        },
        scope: event.scope,
        secret_label: event.secret_label,
        verified: event.verified,
        method: event.method.to_string(),
        target: masked_target(&event.target, |name| proofs.in_query(name)),
        authority: event.authority,
        client: event.client.to_string(),
        headers: event
            .headers
            .iter()
            .map(|(name, value)| match proofs.in_header(name.as_str()) {
                true => (name.to_string(), MASKED.to_owned()),
                false => masked_header((name, value)),
            })
            .collect(),
        body_base64: BASE64.encode(body),
        body_text: std::str::from_utf8(body).ok().map(str::to_owned),
        body_masked: masked.is_some(),
        attempts: dispatches
            .iter()
            .flat_map(|(summary, attempts)| attempts.iter().map(|record| attempt(&summary.upstream, record)))
            .collect(),
    }
}

fn attempt(upstream: &UpstreamName, record: &AttemptRecord) -> dto::Attempt {
    let (status, cause) = match &record.outcome {
        Outcome::Delivered { status } | Outcome::Refused { status } => (Some(status.as_u16()), None),
        Outcome::NotSent { cause } | Outcome::Unknown { cause } => (None, Some(cause.clone())),
    };
    dto::Attempt {
        upstream: upstream.to_string(),
        number: record.number,
        started_at: record.started_at.to_string(),
        took_ms: u64::try_from(record.took.as_millis()).unwrap_or(u64::MAX),
        outcome: record.outcome.as_str().to_owned(),
        status,
        cause,
        excerpt: String::from_utf8_lossy(&record.excerpt).into_owned(),
    }
}

pub(super) fn masked_header((name, value): (&HeaderName, &HeaderValue)) -> (String, String) {
    let shown = if is_credential(name) {
        MASKED.to_owned()
    } else {
        String::from_utf8_lossy(value.as_bytes()).into_owned()
    };
    (name.to_string(), shown)
}

/// Path and query, with the values of credential parameters masked: with some providers the URL is the credential.
fn masked_target(target: &PathAndQuery, is_proof: impl Fn(&str) -> bool) -> String {
    let is_credential = |name: &str| is_credential_name(&name.to_ascii_lowercase()) || is_proof(name);
    let Some(query) = target.query() else {
        return target.path().to_owned();
    };
    let parameters: Vec<String> = query
        .split('&')
        .map(|parameter| match parameter.split_once('=') {
            Some((name, _)) if is_credential(name) => format!("{name}={MASKED}"),
            _ => parameter.to_owned(),
        })
        .collect();
    format!("{}?{}", target.path(), parameters.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_parameters_of_a_target_are_masked() {
        for (target, shown) in [
            ("/hooks?token=s3&a=1", "/hooks?token=(masked)&a=1"),
            ("/hooks?Api_Key=s3", "/hooks?Api_Key=(masked)"),
            ("/hooks?k=s3&kk=s3", "/hooks?k=(masked)&kk=s3"),
            ("/hooks?signature", "/hooks?signature"),
            ("/hooks", "/hooks"),
        ] {
            assert_eq!(masked_target(&target.parse().unwrap(), |name| name == "k"), shown);
        }
    }

    #[test]
    fn only_the_dispatches_that_match_are_replayed() {
        let dispatch = |upstream: &str, state| DispatchSummary {
            upstream: UpstreamName::new(upstream),
            state,
            attempts: 1,
            due: None,
            replay: false,
            last: None,
        };
        let event = EventSummary {
            id: EventId::from_bytes([1; 16]),
            source: SourceName::new("s"),
            delivery_id: None,
            event_type: None,
            received_at: Timestamp::from_secs(1),
            body_bytes: 0,
            dispatches: vec![
                dispatch("app", DispatchState::Dead),
                dispatch("audit", DispatchState::Delivered),
            ],
            elsewhere: None,
        };
        let dead = EventFilter {
            state: Some(DispatchState::Dead),
            ..EventFilter::default()
        };
        assert_eq!(targets(&event, &dead, None), [UpstreamName::new("app")]);
        assert_eq!(targets(&event, &EventFilter::default(), None).len(), 2);
        let other = UpstreamName::new("other");
        assert_eq!(targets(&event, &dead, Some(&other)), std::slice::from_ref(&other));
    }

    #[test]
    fn what_is_asked_must_make_sense() {
        let bad = |filter: Filter| Asked::read(filter).is_err();
        let some = |text: &str| Some(text.to_owned());
        assert!(bad(Filter {
            limit: Some(0),
            ..Filter::default()
        }));
        assert!(bad(Filter {
            limit: Some(501),
            ..Filter::default()
        }));
        assert!(bad(Filter {
            cursor: some("-1"),
            ..Filter::default()
        }));
        assert!(bad(Filter {
            cursor: some("x"),
            ..Filter::default()
        }));
        assert!(bad(Filter {
            state: some("ded"),
            ..Filter::default()
        }));
        assert!(bad(Filter {
            from: some("yesterday"),
            ..Filter::default()
        }));
        let good = Asked::read(Filter {
            from: some("1970-01-01T00:00:01Z"),
            ..Filter::default()
        })
        .unwrap();
        assert_eq!(good.filter.from, Some(Timestamp::from_secs(1)));
        assert_eq!(good.limit, PAGE_DEFAULT);
    }
}
