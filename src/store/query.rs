//! What people ask a store, and its answers: page by page, newest first.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::model::{DispatchState, Outcome, StoredEvent};
use crate::id::{EventId, Position, SourceName, UpstreamName};
use crate::time::Timestamp;

/// The most events of one page.
pub const PAGE_MAX: usize = 500;

/// Which events; everything that is given must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Of this source.
    pub source: Option<SourceName>,
    /// Of this event type.
    pub event_type: Option<String>,
    /// With this delivery id.
    pub delivery_id: Option<String>,
    /// With a dispatch in this state (for `upstream`, if given).
    pub state: Option<DispatchState>,
    /// With a dispatch for this upstream.
    pub upstream: Option<UpstreamName>,
    /// Received at or after.
    pub from: Option<Timestamp>,
    /// Received before.
    pub to: Option<Timestamp>,
}

/// One page of events, newest first.
#[derive(Clone, Debug, Default)]
pub struct EventPage {
    /// The events; may be fewer than asked for, even none, although older ones match, since a page looks at a bounded
    /// number of rows.
    pub events: Vec<EventSummary>,
    /// Ask again for events strictly before this position; `None` at the end.
    pub next: Option<Position>,
}

/// One event in a list, without headers and body.
#[derive(Clone, Debug)]
pub struct EventSummary {
    /// Its id.
    pub id: EventId,
    /// The source it came in by.
    pub source: SourceName,
    /// The provider's id, where there was one.
    pub delivery_id: Option<String>,
    /// The provider's event type, where there was one.
    pub event_type: Option<String>,
    /// When its head was complete.
    pub received_at: Timestamp,
    /// Length of the body.
    pub body_bytes: u64,
    /// One for each upstream; empty while it waits for admission.
    pub dispatches: Vec<DispatchSummary>,
}

/// A dispatch as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DispatchSummary {
    /// Where to.
    pub upstream: UpstreamName,
    /// Its state.
    pub state: DispatchState,
    /// Number of its latest attempt.
    pub attempts: u32,
    /// When the next attempt may start; only while pending.
    pub due: Option<Timestamp>,
}

/// One event whole.
#[derive(Clone, Debug)]
pub struct EventDetail {
    /// The event.
    pub event: StoredEvent,
    /// One for each upstream.
    pub dispatches: Vec<DispatchSummary>,
    /// Oldest first; at most the latest 100 of each dispatch.
    pub attempts: Vec<AttemptRecord>,
}

/// A settled attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRecord {
    /// Where to.
    pub upstream: UpstreamName,
    /// Its number, from 1.
    pub number: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// How it ended.
    pub outcome: Outcome,
    /// The first bytes of the upstream's answer.
    pub excerpt: Bytes,
}

/// What a replay or discard of one event found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// So many dispatches were changed; 0 when all of them were in that state, or are being attempted.
    Dispatches(u64),
    /// No event with this id is stored.
    NoSuchEvent,
}

/// The store in numbers.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Appended events that wait for admission.
    pub unadmitted: u64,
    /// Bytes of the store's files.
    pub bytes: u64,
    /// Bytes free on the store's file system.
    pub free_bytes: u64,
    /// By upstream; also those that left the configuration and still have dispatches.
    pub upstreams: BTreeMap<UpstreamName, UpstreamCounts>,
}

/// One upstream's dispatches. Balance (P8): `made` = the sum over all states + `pruned`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamCounts {
    /// By state; a state that is absent has none.
    pub states: BTreeMap<DispatchState, u64>,
    /// Ever made.
    pub made: u64,
    /// Removed by retention.
    pub pruned: u64,
    /// When the event of the oldest pending or leased dispatch was received.
    pub oldest_pending: Option<Timestamp>,
}
