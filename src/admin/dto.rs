//! The JSON of the admin API, as the server writes it and the commands read it.
//!
//! Apart from the internal types on purpose: those may change, these are public interface. What the OpenAPI document
//! says is checked against them by a test.

mod idempotency;
mod learn;
mod reload;
mod route;

use serde::{Deserialize, Serialize};

pub use self::idempotency::{GivenAnswer, KeptAnswer, RecordDetail, RecordFilter, RecordPage, RecordSummary, Resolve};
pub use self::learn::{Learn, LearnStatus};
pub use self::reload::{ConfigurationStatus, Problem, RefusedStatus, ReloadRefused, Reloaded};
pub use self::route::RouteStatus;

/// `GET /api/v1/events`: newest first.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct EventPage {
    /// The events of this page; may be empty although older ones match (then `next_cursor` is there).
    pub events: Vec<EventSummary>,
    /// Where to go on; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_cursor: Option<String>,
}

/// One event in a list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EventSummary {
    /// The event's id.
    pub id: String,
    /// The source it came in by.
    pub source: String,
    /// RFC 3339, UTC.
    pub received_at: String,
    /// The provider's own id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub delivery_id: Option<String>,
    /// The provider's name for the kind of event.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_type: Option<String>,
    /// Length of the body.
    pub body_bytes: u64,
    /// One for each upstream; empty while the event waits for admission, and where it is `elsewhere`.
    pub dispatches: Vec<Dispatch>,
    /// This is the copy of that event, which another replica has stored and forwards; replaying it forwards it here too.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub elsewhere: Option<String>,
}

/// One event for one upstream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Dispatch {
    /// The upstream.
    pub upstream: String,
    /// `pending`, `leased`, `delivered`, `dead`, `discarded` or `held`.
    pub state: String,
    /// Attempts so far.
    pub attempts: u32,
    /// When the next attempt may start; only while pending.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub due_at: Option<String>,
    /// A person asked for its next or latest attempts.
    pub replay: bool,
}

/// `GET /api/v1/events/{id}`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct EventDetail {
    /// What lists show.
    pub summary: EventSummary,
    /// Separates endpoints that share a source's path.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scope: Option<String>,
    /// Label of the secret that vouched for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub secret_label: Option<String>,
    /// Whether a signature was checked.
    pub verified: bool,
    /// As received.
    pub method: String,
    /// Path and query as received, with the values of credential parameters masked.
    pub target: String,
    /// `Host` as received.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub authority: Option<String>,
    /// The client's address.
    pub client: String,
    /// Header lines in order; values of credentials are masked, bytes outside UTF-8 replaced.
    pub headers: Vec<(String, String)>,
    /// The exact bytes, unless `body_masked`.
    pub body_base64: String,
    /// The body as text, where it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub body_text: Option<String>,
    /// The provider wrote its token into the body, and `(masked)` stands for it. What is stored and forwarded has it.
    #[serde(default)]
    pub body_masked: bool,
    /// Finished attempts, by upstream, oldest first.
    pub attempts: Vec<Attempt>,
}

/// One outbound try.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Attempt {
    /// The upstream.
    pub upstream: String,
    /// Its number, from 1.
    pub number: u32,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// How long it took.
    pub took_ms: u64,
    /// `delivered`, `refused`, `not_sent` or `unknown`.
    pub outcome: String,
    /// The upstream's status, where there was an answer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<u16>,
    /// What went wrong, where there was none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cause: Option<String>,
    /// The start of the upstream's answer; bytes outside UTF-8 replaced.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub excerpt: String,
}

/// Which events; everything that is given must match. The query of `GET /api/v1/events` and a part of
/// `POST /api/v1/events/replay`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// Of this source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Of this event type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// With this delivery id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<String>,
    /// With a dispatch in this state (at `upstream`, if given).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// With a dispatch for this upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Received at or after this time (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Received before this time (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// At most so many (1 to 500; 50 unless told).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl Filter {
    /// Whether it names no property of events, so that every event matches; `limit` and `cursor` only page.
    pub fn matches_all(&self) -> bool {
        let Self {
            source,
            event_type,
            delivery_id,
            state,
            upstream,
            from,
            to,
            limit: _,
            cursor: _,
        } = self;
        [source, event_type, delivery_id, state, upstream, from, to]
            .into_iter()
            .all(Option::is_none)
    }
}

/// Body of `POST /api/v1/events/{id}/replay`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Replay {
    /// To this upstream; without it to those that the event went to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// Body of `POST /api/v1/events/replay`: one page of matching events.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplayMany {
    /// Which events, and which page of them.
    pub filter: Filter,
    /// To this upstream; without it to those that each event went to (to the filter's, if it names one).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Must be true when the filter names nothing: so that a body that lost its filter does not replay everything.
    pub all: bool,
    /// Only count.
    pub dry_run: bool,
}

/// Answer to a replay.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Replayed {
    /// Events of this page that matched.
    pub matched: u64,
    /// Dispatches that are pending again (on a dry run: that would be).
    pub dispatches: u64,
    /// Dispatches left alone, since an attempt was running or about to.
    pub busy: u64,
    /// Where to go on; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_cursor: Option<String>,
}

/// Body of `POST /api/v1/events/{id}/discard`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Discard {
    /// Only the dispatch for this upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
}

/// Answer to a discard.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Discarded {
    /// Dispatches that are discarded now and were not before.
    pub dispatches: u64,
}

/// `GET /api/v1/status`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The server's version.
    pub version: String,
    /// RFC 3339, UTC.
    pub now: String,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// What `/readyz` says.
    pub ready: bool,
    /// Why not, if not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_ready: Option<String>,
    /// The running configuration.
    #[serde(default)]
    pub configuration: ConfigurationStatus,
    /// The store.
    pub store: StoreStatus,
    /// Redis, where it is configured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub redis: Option<RedisStatus>,
    /// Calls with an `Idempotency-Key`, where a route has `idempotency`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idempotency: Option<IdempotencyStatus>,
    /// By name.
    pub sources: Vec<SourceStatus>,
    /// By name.
    #[serde(default)]
    pub routes: Vec<RouteStatus>,
    /// Requests that no route served because their path could be taken for a source's.
    #[serde(default)]
    pub shadowed: u64,
    /// By name.
    pub upstreams: Vec<UpstreamStatus>,
}

/// The store in a status.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Whether it takes events.
    pub writable: bool,
    /// Why not, if not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
    /// Appended events that wait for admission.
    pub unadmitted: u64,
    /// Bytes that its live data takes on disk.
    pub bytes: u64,
    /// Bytes of its write-ahead log.
    pub wal_bytes: u64,
    /// Bytes free on its file system; absent where that is a database's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub free_bytes: Option<u64>,
}

/// Redis in a status.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct RedisStatus {
    /// Whether there is a connection that can be used.
    pub up: bool,
    /// Looks are not asked at the moment, because too many were not answered in time.
    pub breaker_open: bool,
    /// What it has not been told yet.
    pub waiting_tells: u64,
}

/// Records of idempotent calls in a status.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct IdempotencyStatus {
    /// Calls that run.
    pub running: u64,
    /// Calls whose answer is kept.
    pub done: u64,
    /// Calls whose answer was passed on without being kept.
    pub unstored: u64,
    /// Calls of which nobody knows whether they took effect.
    pub ambiguous: u64,
    /// Age of the oldest of these; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub oldest_ambiguous_seconds: Option<u64>,
}

/// One source in a status. Counts are since the start of the process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Its name.
    pub name: String,
    /// Its path.
    pub path: String,
    /// Its provider.
    pub provider: String,
    /// Requests that were appended.
    pub accepted: u64,
    /// Of those, or known before, duplicates.
    pub duplicates: u64,
    /// Duplicates with other bytes.
    pub conflicts: u64,
    /// Refused requests.
    pub rejected: u64,
    /// Refusals by reason; only those that occurred.
    pub rejections: Vec<(String, u64)>,
    /// Ended by a bound or a failure of ours.
    pub failed: u64,
    /// Its secrets, in the order of the configuration.
    pub secrets: Vec<SecretStatus>,
    /// Where its secret arrives in band, how that stands.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub learn: Option<LearnStatus>,
    /// How near its sender is to giving up; absent where it is not known when it does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sender: Option<SenderStatus>,
    /// Its last refusals, the newest first; under a flood only some are noted.
    #[serde(default)]
    pub last_refusals: Vec<RefusalStatus>,
}

/// How much of a sender's patience is used, by what this process has answered since its start.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SenderStatus {
    /// Its rule, in words.
    pub gives_up_after: String,
    /// `documented`, or `hint`: nobody has confirmed the rule.
    pub confidence: String,
    /// Of its limit, by requests whose signature held; 100 and more when it is reached.
    pub used_percent: u64,
    /// The same if refused requests that may have been the sender's were.
    pub possibly_used_percent: u64,
}

/// One refusal, with the likely cause.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct RefusalStatus {
    /// When it came.
    pub at: String,
    /// The client's address.
    pub client: String,
    /// Why, as in `rejections`.
    pub reason: String,
    /// The likely cause, where it could be shown; the sender does not learn it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
}

/// One secret of a source.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SecretStatus {
    /// Its label, or `#` and its place.
    pub label: String,
    /// When it was first seen in a configuration; absent until the store has said. RFC 3339, UTC, as the others.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub known_since: Option<String>,
    /// When it last vouched for a request, at any replica; absent if never since `known_since`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_used_at: Option<String>,
    /// How many requests other secrets of the source have vouched for since then, or since `known_since`.
    pub others: u64,
    /// When it ends; absent if it does not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_after: Option<String>,
    /// How long until then, 0 if it is past.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ends_in_seconds: Option<u64>,
    /// `ended`, `never_used`, `in_use`, `quiet` (unused, but so was every other) or `safe_to_remove`.
    pub standing: String,
    /// For how long it has not been used, in seconds; absent until the store has said.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unused_seconds: Option<u64>,
}

/// One upstream in a status.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct UpstreamStatus {
    /// Its name.
    pub name: String,
    /// Dispatches that wait for their time.
    pub pending: u64,
    /// Dispatches that are being attempted, or handed out to be.
    pub leased: u64,
    /// Dispatches that are done and still kept.
    pub delivered: u64,
    /// Dispatches given up.
    pub dead: u64,
    /// Dispatches given up by a person.
    pub discarded: u64,
    /// Dispatches that wait for their upstream's return or for a person.
    pub held: u64,
    /// Age of the oldest undelivered dispatch; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub oldest_pending_seconds: Option<u64>,
    /// Attempts that run now.
    pub in_flight: u64,
    /// Whether a person has paused it.
    pub paused: bool,
    /// Whether its breaker is open.
    pub breaker_open: bool,
    /// For how long its lane is still held, because it answered several events in a row with `Retry-After`; absent when
    /// it is not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub held_for_seconds: Option<u64>,
    /// When an attempt was last settled; absent if not since the start.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_progress_at: Option<String>,
}

/// `GET /api/v1/upstreams`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Upstreams {
    /// Those of the configuration, by name.
    pub upstreams: Vec<Upstream>,
}

/// One upstream with its lane: in a list, and the answer to a pause or a resume.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Upstream {
    /// Its name.
    pub name: String,
    /// Where it is, without credentials.
    pub url: String,
    /// Whether a person has paused it.
    pub paused: bool,
    /// Whether the store has the last order to pause or to resume; if not, a restart undoes it.
    pub order_saved: bool,
    /// `closed`, `open` or `ramping`.
    pub breaker: String,
    /// For how long it is still held, because it answered several events in a row with `Retry-After`; absent when it is
    /// not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub held_for_seconds: Option<u64>,
    /// Attempts that run now, in this process.
    pub running: u64,
    /// Attempts at the same time, at most, over all replicas of a shared store.
    pub concurrency: u64,
    /// Attempts per period, at most, over all replicas of a shared store; absent when there is no limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate: Option<String>,
    /// This process's part of concurrency, rate and burst; absent where no other process shares them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub share: Option<ShareStatus>,
    /// Dispatches that wait or are being attempted.
    pub backlog: u64,
    /// Age of the oldest undelivered dispatch; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub oldest_pending_seconds: Option<u64>,
}

/// A part of an upstream's pace.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ShareStatus {
    /// Units that this process has.
    pub units: u32,
    /// Units in all.
    pub of: u32,
}

/// Body of `POST /api/v1/upstreams/{name}/pause` and `…/resume`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Every error of the API, with a status of 400 or more.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// What went wrong.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// A word for programs, such as `not_found`.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;

    fn some() -> Option<String> {
        Some("x".to_owned())
    }

    /// One of each, with everything that may be absent present.
    fn samples() -> Vec<(&'static str, Value)> {
        let dispatch = Dispatch {
            due_at: some(),
            ..Dispatch::default()
        };
        let summary = EventSummary {
            delivery_id: some(),
            event_type: some(),
            dispatches: vec![dispatch.clone()],
            elsewhere: some(),
            ..EventSummary::default()
        };
        let attempt = Attempt {
            status: Some(200),
            cause: some(),
            excerpt: "x".to_owned(),
            ..Attempt::default()
        };
        let filter = Filter {
            source: some(),
            event_type: some(),
            delivery_id: some(),
            state: some(),
            upstream: some(),
            from: some(),
            to: some(),
            limit: Some(1),
            cursor: some(),
        };
        vec![
            ("Dispatch", json!(dispatch)),
            ("EventSummary", json!(summary)),
            ("Attempt", json!(attempt)),
            ("Filter", json!(filter)),
            (
                "EventPage",
                json!(EventPage {
                    events: vec![],
                    next_cursor: some(),
                }),
            ),
            (
                "EventDetail",
                json!(EventDetail {
                    scope: some(),
                    secret_label: some(),
                    authority: some(),
                    body_text: some(),
                    ..EventDetail::default()
                }),
            ),
            ("Replay", json!(Replay { to: some() })),
            (
                "ReplayMany",
                json!(ReplayMany {
                    to: some(),
                    ..ReplayMany::default()
                }),
            ),
            (
                "Replayed",
                json!(Replayed {
                    next_cursor: some(),
                    ..Replayed::default()
                }),
            ),
            ("Discard", json!(Discard { upstream: some() })),
            ("Discarded", json!(Discarded::default())),
            (
                "Status",
                json!(Status {
                    not_ready: some(),
                    redis: Some(RedisStatus::default()),
                    idempotency: Some(IdempotencyStatus::default()),
                    ..Status::default()
                }),
            ),
            (
                "StoreStatus",
                json!(StoreStatus {
                    problem: some(),
                    free_bytes: Some(1),
                    ..StoreStatus::default()
                }),
            ),
            ("RedisStatus", json!(RedisStatus::default())),
            (
                "IdempotencyStatus",
                json!(IdempotencyStatus {
                    oldest_ambiguous_seconds: Some(1),
                    ..IdempotencyStatus::default()
                }),
            ),
            (
                "RecordPage",
                json!(RecordPage {
                    next_cursor: some(),
                    ..RecordPage::default()
                }),
            ),
            (
                "RecordSummary",
                json!(RecordSummary {
                    status: Some(1),
                    ..RecordSummary::default()
                }),
            ),
            (
                "RecordDetail",
                json!(RecordDetail {
                    key: some(),
                    accepted_at: some(),
                    expires_at: some(),
                    answer: Some(KeptAnswer::default()),
                    ..RecordDetail::default()
                }),
            ),
            (
                "KeptAnswer",
                json!(KeptAnswer {
                    body_text: some(),
                    ..KeptAnswer::default()
                }),
            ),
            (
                "Resolve",
                json!(Resolve {
                    release: true,
                    answer: Some(GivenAnswer::default()),
                }),
            ),
            (
                "GivenAnswer",
                json!(GivenAnswer {
                    content_type: some(),
                    body: some(),
                    ..GivenAnswer::default()
                }),
            ),
            (
                "SourceStatus",
                json!(SourceStatus {
                    sender: Some(SenderStatus::default()),
                    learn: Some(LearnStatus::default()),
                    ..SourceStatus::default()
                }),
            ),
            ("SenderStatus", json!(SenderStatus::default())),
            (
                "RefusalStatus",
                json!(RefusalStatus {
                    hint: some(),
                    ..RefusalStatus::default()
                }),
            ),
            (
                "SecretStatus",
                json!(SecretStatus {
                    known_since: some(),
                    last_used_at: some(),
                    not_after: some(),
                    ends_in_seconds: Some(1),
                    unused_seconds: Some(1),
                    ..SecretStatus::default()
                }),
            ),
            (
                "UpstreamStatus",
                json!(UpstreamStatus {
                    oldest_pending_seconds: Some(1),
                    held_for_seconds: Some(1),
                    last_progress_at: some(),
                    ..UpstreamStatus::default()
                }),
            ),
            ("Upstreams", json!(Upstreams::default())),
            (
                "Upstream",
                json!(Upstream {
                    held_for_seconds: Some(1),
                    rate: some(),
                    share: Some(ShareStatus::default()),
                    oldest_pending_seconds: Some(1),
                    ..Upstream::default()
                }),
            ),
            ("ShareStatus", json!(ShareStatus::default())),
            ("Reloaded", json!(Reloaded::default())),
            ("ReloadRefused", json!(ReloadRefused::default())),
            ("Problem", json!(Problem::default())),
            (
                "ConfigurationStatus",
                json!(ConfigurationStatus {
                    refused: Some(RefusedStatus::default()),
                    ..ConfigurationStatus::default()
                }),
            ),
            ("RefusedStatus", json!(RefusedStatus::default())),
            ("RouteStatus", json!(RouteStatus::default())),
            ("Learn", json!(Learn::default())),
            (
                "LearnStatus",
                json!(LearnStatus {
                    armed_until: some(),
                    armed_for_seconds: Some(1),
                    ..LearnStatus::default()
                }),
            ),
            ("Nothing", json!(Nothing::default())),
            ("ErrorBody", json!(ErrorBody::default())),
            ("ErrorDetail", json!(ErrorDetail::default())),
        ]
    }

    fn keys(value: &Value) -> BTreeSet<String> {
        value
            .as_object()
            .into_iter()
            .flat_map(|object| object.keys().cloned())
            .collect()
    }

    #[test]
    fn the_openapi_document_describes_every_field_and_no_other() {
        let document: Value = serde_json::from_str(include_str!("openapi.json")).unwrap();
        let schemas = &document["components"]["schemas"];
        let samples = samples();
        let named: BTreeSet<String> = samples.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(keys(schemas), named);
        for (name, sample) in samples {
            assert_eq!(keys(&schemas[name]["properties"]), keys(&sample), "{name}");
        }
        let parameters = document["paths"]["/api/v1/events"]["get"]["parameters"]
            .as_array()
            .unwrap();
        let parameters: BTreeSet<String> = parameters
            .iter()
            .map(|p| p["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(parameters, keys(&schemas["Filter"]["properties"]));
    }

    #[test]
    fn what_the_openapi_document_requires_is_always_there() {
        let document: Value = serde_json::from_str(include_str!("openapi.json")).unwrap();
        for (name, least) in [
            ("EventPage", json!(EventPage::default())),
            ("EventSummary", json!(EventSummary::default())),
            ("EventDetail", json!(EventDetail::default())),
            ("Dispatch", json!(Dispatch::default())),
            ("Attempt", json!(Attempt::default())),
            ("Replayed", json!(Replayed::default())),
            ("Status", json!(Status::default())),
            ("StoreStatus", json!(StoreStatus::default())),
            ("SourceStatus", json!(SourceStatus::default())),
            ("SenderStatus", json!(SenderStatus::default())),
            ("RefusalStatus", json!(RefusalStatus::default())),
            ("SecretStatus", json!(SecretStatus::default())),
            ("LearnStatus", json!(LearnStatus::default())),
            ("RouteStatus", json!(RouteStatus::default())),
            ("IdempotencyStatus", json!(IdempotencyStatus::default())),
            ("RecordPage", json!(RecordPage::default())),
            ("RecordSummary", json!(RecordSummary::default())),
            ("RecordDetail", json!(RecordDetail::default())),
            ("KeptAnswer", json!(KeptAnswer::default())),
            ("UpstreamStatus", json!(UpstreamStatus::default())),
            ("Upstreams", json!(Upstreams::default())),
            ("Upstream", json!(Upstream::default())),
            ("ShareStatus", json!(ShareStatus::default())),
            ("Reloaded", json!(Reloaded::default())),
            ("ReloadRefused", json!(ReloadRefused::default())),
            ("Problem", json!(Problem::default())),
            ("ConfigurationStatus", json!(ConfigurationStatus::default())),
            ("RefusedStatus", json!(RefusedStatus::default())),
        ] {
            let required = &document["components"]["schemas"][name]["required"];
            let required: BTreeSet<String> = serde_json::from_value(required.clone()).unwrap();
            assert_eq!(required, keys(&least), "{name}");
        }
    }
}
