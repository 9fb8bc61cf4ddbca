//! What people and programs may ask a store, and what it answers.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::id::{EventId, SourceName, UpstreamName};
use crate::key::DedupeKey;
use crate::store::model::{DispatchState, Outcome, StoredEvent};
use crate::time::Timestamp;

/// Which events a list shows; every condition that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Came in by this source.
    pub source: Option<SourceName>,
    /// Has exactly this event type.
    pub event_type: Option<String>,
    /// Has exactly this delivery id.
    pub delivery_id: Option<String>,
    /// Has a dispatch in this state (of `upstream`, when that is set).
    pub state: Option<DispatchState>,
    /// Has a dispatch for this upstream.
    pub upstream: Option<UpstreamName>,
    /// Received at this time or later.
    pub from: Option<Timestamp>,
    /// Received before this time.
    pub to: Option<Timestamp>,
}

/// A page of a list, newest first.
#[derive(Clone, Debug, Default)]
pub struct EventPage {
    /// The events found; may be fewer than asked for, even none, while there is more to look at.
    pub events: Vec<EventSummary>,
    /// Where the next page goes on (events before this one); `None` at the end.
    pub next: Option<EventId>,
}

/// One event in a list.
#[derive(Clone, Debug)]
pub struct EventSummary {
    /// Its stable id.
    pub id: EventId,
    /// The source it came in by.
    pub source: SourceName,
    /// The provider's id, where there was one.
    pub delivery_id: Option<String>,
    /// The provider's event type, where there was one.
    pub event_type: Option<String>,
    /// When its head was complete.
    pub received_at: Timestamp,
    /// Length of its body.
    pub body_bytes: u64,
    /// Its dispatches; empty before admission, and for one that is dispatched elsewhere.
    pub dispatches: Vec<DispatchSummary>,
    /// It is the copy of this event, which is durable in another replica's store: dispatched there, and here only if a
    /// person replays it.
    pub elsewhere: Option<EventId>,
}

/// One dispatch, without its earlier attempts.
#[derive(Clone, Debug)]
pub struct DispatchSummary {
    /// Where to.
    pub upstream: UpstreamName,
    /// What became of it. Pending for an upstream that left the configuration shows as held.
    pub state: DispatchState,
    /// Attempts that were granted; a crash or shutdown may have left some of them unused.
    pub attempts: u32,
    /// When a pending one is due.
    pub due: Option<Timestamp>,
    /// Its next or last attempts are a person's re-send.
    pub replay: bool,
    /// The newest finished attempt.
    pub last: Option<AttemptRecord>,
}

/// One finished attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRecord {
    /// Its number, from 1.
    pub number: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// How it ended.
    pub outcome: Outcome,
    /// The first bytes of the upstream's answer body.
    pub excerpt: Bytes,
}

/// Everything about one event.
#[derive(Clone, Debug)]
pub struct EventDetail {
    /// The event with its headers and body, unmasked: whoever shows it masks credentials.
    pub event: StoredEvent,
    /// What decides "the same again".
    pub key: DedupeKey,
    /// Its dispatches, each with its attempts in order; empty before admission.
    pub dispatches: Vec<(DispatchSummary, Vec<AttemptRecord>)>,
    /// See [`EventSummary::elsewhere`].
    pub elsewhere: Option<EventId>,
}

/// How many dispatches there are.
///
/// Balance (P8): `made` = the sum over all states + `pruned`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By upstream, also those that left the configuration and still have dispatches.
    pub upstreams: BTreeMap<UpstreamName, UpstreamCounts>,
    /// Appended events that wait for admission.
    pub unadmitted: u64,
    /// The bound on `unadmitted`.
    pub unadmitted_max: u64,
    /// Bytes that the store's live data takes on disk.
    pub used_bytes: u64,
    /// Bytes of the write-ahead log that hold commits not yet copied into the database file.
    pub wal_bytes: u64,
    /// Bytes free on the store's file system, as of the last second; none where the disk is a database's.
    pub free_bytes: Option<u64>,
}

/// Dispatches of one upstream, over the store's whole life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamCounts {
    /// By state.
    pub states: BTreeMap<DispatchState, u64>,
    /// Ever made.
    pub made: u64,
    /// Finished and removed after retention.
    pub pruned: u64,
    /// Received-at of the oldest event that is pending or leased.
    pub oldest_pending: Option<Timestamp>,
}

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// There is no such event.
    NotFound,
    /// It is appended and not admitted yet: it will be forwarded anyway.
    NotAdmitted,
    /// These dispatches are pending again, due now, with fresh give-up clocks.
    Pending {
        /// Their upstreams.
        upstreams: Vec<UpstreamName>,
        /// Left alone, since an attempt is running or about to.
        busy: Vec<UpstreamName>,
    },
}

/// What a discard found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// There is no such event.
    NotFound,
    /// It is appended and not admitted yet.
    NotAdmitted,
    /// The dispatches of these upstreams are discarded; empty when all were delivered or discarded before.
    Discarded {
        /// Their upstreams.
        upstreams: Vec<UpstreamName>,
    },
}
