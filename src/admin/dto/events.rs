//! The JSON of events, and of what a person does with them.

use serde::{Deserialize, Serialize};

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
