//! What goes into and comes out of a store, whatever the backend.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};

use crate::id::{EventId, LeaseToken, SourceName, UpstreamName};
use crate::key::DedupeKey;
use crate::store::reply::Reply;
use crate::time::{Monotonic, Timestamp};
use crate::verify::VerifiedRequest;

/// The first 8 bytes of the body's SHA-256: tells a duplicate with other bytes (a conflict).
pub type BodyMark = [u8; 8];

/// A verified request on its way into the store, with everything the configuration said about it at that moment.
#[derive(Debug)]
pub struct NewEvent {
    /// The source it came in by.
    pub source: SourceName,
    /// Where it goes; never empty.
    pub upstreams: Arc<[UpstreamName]>,
    /// The request, with the proof that its signature held.
    pub request: VerifiedRequest,
    /// What decides "the same again".
    pub key: DedupeKey,
    /// With `same_content = "hold"`: the digest of its content, which holds a same-content event under another id.
    pub content: Option<[u8; 32]>,
    /// See [`BodyMark`].
    pub body_mark: BodyMark,
    /// Whether its sender waits for the upstream's answer. Who does not is promised attempts by the 200.
    pub awaited: bool,
}

/// Proof that an event is durable: committed and synced, or the duplicate of one that is (P1).
///
/// Only a store, or a look-up of what is durable, makes one; a 200 cannot be built without it.
#[derive(Debug)]
pub struct Receipt {
    event: EventId,
    duplicate: bool,
}

impl Receipt {
    /// The event is committed and synced.
    pub(crate) fn stored(event: EventId) -> Self {
        Self {
            event,
            duplicate: false,
        }
    }

    /// An earlier event with the same key is.
    pub(crate) fn duplicate_of(event: EventId) -> Self {
        Self { event, duplicate: true }
    }

    /// The durable event.
    pub fn event(&self) -> EventId {
        self.event
    }

    /// Whether it was known, at the time of the answer, to be a duplicate.
    pub fn is_duplicate(&self) -> bool {
        self.duplicate
    }
}

/// What admission decided about one appended event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admission {
    /// The first with its key: dispatches are made.
    New,
    /// Its key belongs to an event that is already durable.
    Duplicate {
        /// That event.
        of: EventId,
        /// The bytes differ.
        conflict: bool,
    },
    /// A duplicate that brought dead dispatches back to life.
    Revived {
        /// The surviving event.
        of: EventId,
    },
    /// New, but its content was seen under another id: dispatches wait for a person.
    Held,
    /// Its key belongs to an event that is durable in another replica's store: this copy is kept without dispatches.
    Elsewhere {
        /// That event.
        of: EventId,
        /// A dispatch of it died, and only its own store can revive it.
        dead: bool,
    },
}

/// What Redis said about an appended event's key, where several replicas have a store each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// The key was free, or already ours: it now names this event.
    Ours,
    /// It names another event, of this store or another's.
    Held {
        /// That event.
        by: EventId,
        /// A dispatch of it died: whoever has it may revive it.
        dead: bool,
    },
    /// It names an event that is too old to speak for this one (a digest key outside its window).
    Expired {
        /// That event.
        of: EventId,
    },
    /// Redis did not answer in time and need not be waited for (`on_down = "store"`).
    Unheard,
}

/// Who an appended event is a duplicate of, if of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Nobody: it is the first with its key.
    New,
    /// The event that the own store has for the key: its dead dispatches come back to life.
    DuplicateHere {
        /// That event.
        of: EventId,
    },
    /// An event in another store.
    Elsewhere {
        /// That event.
        of: EventId,
        /// A dispatch of it died.
        dead: bool,
    },
}

/// The decision of admission (P2): `own` is the event that this store's unique key has for the key. It decides first: an
/// event that is here can be revived here, whatever Redis says. So it does where Redis names another event of this very
/// store, `by_is_here`: one behind this one whose claim came first, which would otherwise be waited for and may in its turn
/// wait for this one.
pub fn decide(own: Option<EventId>, event: EventId, claim: Claim, by_is_here: bool) -> Decision {
    match (own, claim) {
        (Some(of), _) => Decision::DuplicateHere { of },
        (None, Claim::Held { by, dead }) if by != event && !by_is_here => Decision::Elsewhere { of: by, dead },
        (None, Claim::Ours | Claim::Held { .. } | Claim::Expired { .. } | Claim::Unheard) => Decision::New,
    }
}

/// Told by the store, in the order of its commits, after each of them.
#[derive(Clone, Debug)]
pub enum Notice {
    /// An appended event was admitted (or found to be a duplicate).
    Admitted {
        /// The appended event.
        appended: EventId,
        /// What Redis said, on a separate store.
        claim: Option<Claim>,
        /// Its source.
        source: SourceName,
        /// Its key.
        key: DedupeKey,
        /// The event that now stands for the key (for duplicates the earlier one).
        event: EventId,
        /// Mark of the surviving event's body.
        body_mark: BodyMark,
        /// When the surviving event was received.
        received_at: Timestamp,
        /// What was decided.
        admission: Admission,
    },
    /// A dispatch died: its event's key must be forgotten by every memory, so that a duplicate reaches the store.
    Died(Death),
}

/// A dispatch of this event died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// Source of the event.
    pub source: SourceName,
    /// Its key.
    pub key: DedupeKey,
    /// The event.
    pub event: EventId,
}

/// An appended event of a separate store that waits for its [`Claim`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unclaimed {
    /// The event.
    pub event: EventId,
    /// Its source.
    pub source: SourceName,
    /// Its key.
    pub key: DedupeKey,
    /// Mark of its body.
    pub body_mark: BodyMark,
    /// When it was received.
    pub received_at: Timestamp,
}

/// An event with a dispatch that is not delivered: its key must not lapse in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    /// The event.
    pub event: EventId,
    /// Its source.
    pub source: SourceName,
    /// Its key.
    pub key: DedupeKey,
    /// Mark of its body.
    pub body_mark: BodyMark,
    /// A dispatch of it is dead: Redis must not answer for it.
    pub dead: bool,
}

/// One stored event as the forwarder needs it.
#[derive(Clone, Debug)]
pub struct StoredEvent {
    /// Its stable id.
    pub id: EventId,
    /// The source it came in by.
    pub source: SourceName,
    /// Scope, where there is one (`Hooksluice-Scope`).
    pub scope: Option<String>,
    /// Label of the secret that vouched for it.
    pub secret_label: Option<String>,
    /// The provider's id, where there was one.
    pub delivery_id: Option<String>,
    /// The provider's event type, where there was one.
    pub event_type: Option<String>,
    /// Whether a signature was checked (`kind = "none"` does not).
    pub verified: bool,
    /// Whether its sender waited for the upstream's answer.
    pub awaited: bool,
    /// When its head was complete.
    pub received_at: Timestamp,
    /// As received.
    pub method: Method,
    /// Path and query as received.
    pub target: PathAndQuery,
    /// `Host` as received.
    pub authority: Option<String>,
    /// The client's address.
    pub client: std::net::IpAddr,
    /// As received, without hop-by-hop headers and `Hooksluice-*`.
    pub headers: HeaderMap,
    /// The exact body.
    pub body: Bytes,
}

/// A time-limited right to attempt one dispatch. Not `Clone`: a second holder could settle after the lease is lost.
///
/// It is consumed by settling. Dropped unsettled (a panic, a cancelled task), it gives the dispatch back to the store.
#[derive(Debug)]
pub struct LeasedDispatch {
    /// What to send.
    pub event: Arc<StoredEvent>,
    /// Where to.
    pub upstream: UpstreamName,
    /// Number of this attempt, from 1; durable before the lease was handed out (P9).
    pub attempt: u32,
    /// A person asked for it (`Hooksluice-Replay: true`).
    pub replay: bool,
    /// When the give-up clocks started: admission, revival or replay.
    pub clock_started_at: Timestamp,
    /// How long the lane had been stopped in total (paused, breaker open) when the clocks started.
    pub clock_stopped_before: Duration,
    /// Attempts since the clocks started, this one included; for `max_attempts`.
    pub attempts_on_clock: u32,
    /// The fence.
    pub(crate) token: LeaseToken,
    /// Gives the dispatch back when dropped unsettled.
    pub(crate) give_back: Option<GiveBack>,
}

impl LeasedDispatch {
    /// Drops it without giving it back: its end is recorded otherwise.
    pub(crate) fn forget(mut self) {
        self.give_back = None;
    }
}

/// Called with the lease when it is dropped unsettled.
pub(crate) struct GiveBack(pub(crate) Box<dyn FnOnce() + Send + Sync>);

impl fmt::Debug for GiveBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GiveBack")
    }
}

impl Drop for LeasedDispatch {
    fn drop(&mut self) {
        if let Some(give_back) = self.give_back.take() {
            (give_back.0)();
        }
    }
}

/// How one attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 2xx.
    Delivered {
        /// The status.
        status: StatusCode,
    },
    /// Any other status.
    Refused {
        /// The status.
        status: StatusCode,
    },
    /// Nothing reached the upstream (connection refused, DNS, TLS).
    NotSent {
        /// A short cause, without URL or credentials.
        cause: String,
    },
    /// Something was sent and no answer came: the upstream may have acted.
    Unknown {
        /// A short cause, without URL or credentials.
        cause: String,
    },
}

impl Outcome {
    /// The word used in metrics, the API and the store.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Delivered { .. } => "delivered",
            Self::Refused { .. } => "refused",
            Self::NotSent { .. } => "not_sent",
            Self::Unknown { .. } => "unknown",
        }
    }
}

/// A finished attempt, ready to be settled.
#[derive(Debug)]
pub struct Finished {
    /// The lease it used.
    pub lease: LeasedDispatch,
    /// How it ended.
    pub outcome: Outcome,
    /// When the attempt began.
    pub started_at: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// The first bytes of the upstream's answer body (at most 2 KiB), for people.
    pub excerpt: Bytes,
    /// The upstream's answer, to be kept for duplicates if the dispatch is delivered with it.
    pub reply: Option<Reply>,
}

/// What becomes of the dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Done.
    Delivered,
    /// Pending again, not before `due`.
    Retry {
        /// When.
        due: Timestamp,
    },
    /// Given up: kept, visible, replayable.
    Dead,
}

/// What settling found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Recorded.
    Recorded,
    /// The lease was no longer ours (a person discarded the dispatch, or it expired): nothing was changed.
    LeaseLost,
}

/// State of a dispatch, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DispatchState {
    /// Waits for its time.
    Pending,
    /// Being attempted, or handed out to be.
    Leased,
    /// Done.
    Delivered,
    /// Given up.
    Dead,
    /// Given up by a person.
    Discarded,
    /// Its upstream is not in the configuration, or its content waits for a person.
    Held,
}

impl DispatchState {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Leased,
        Self::Delivered,
        Self::Dead,
        Self::Discarded,
        Self::Held,
    ];

    /// The word used in metrics, the API and the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Leased => "leased",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
            Self::Discarded => "discarded",
            Self::Held => "held",
        }
    }
}

impl fmt::Display for DispatchState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a lane must remember over a restart, and what the lanes of a shared store's replicas agree on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneRecord {
    /// Paused by a person.
    pub paused: bool,
    /// How many orders to pause or to resume were carried out: tells which of two records is newer. It never goes back
    /// while a store is open; an embedded one, which has no other process to agree with, begins again at each opening.
    pub orders: u64,
    /// How long it has been stopped in total (paused, breaker open): the give-up clocks stand still meanwhile.
    pub stopped_total: Duration,
}

/// What a lane asks the store to remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSave {
    /// A person's order to pause (`true`) or to resume: counted in [`LaneRecord::orders`] even where nothing changes,
    /// since a resume also closes breakers. `None` leaves the pause alone: another replica's order may have come
    /// between.
    pub order: Option<bool>,
    /// For how long this lane was stopped; the store keeps the larger of this and what it has.
    pub stopped_total: Duration,
}

/// How much of an upstream's pace this replica has (P7): `units` of `of` of its concurrency, rate and burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Units that this replica holds.
    pub units: u32,
    /// Units that the upstream has in all.
    pub of: u32,
    /// When the grant lapses, if ever: from then on it stands for nothing.
    pub valid_until: Option<Monotonic>,
}

/// What a lane says of its [`Share`], so that the store knows what may be granted to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareUse {
    /// Units that the upstream has in all, as the lane knows it: what the others are parts of.
    pub of: u32,
    /// The units that the lane holds itself to: nothing starts above them.
    pub applied: u32,
    /// The units that its running attempts take; more than `applied` while a share that shrank is not free yet.
    pub busy: u32,
}

/// Why the store did not take an event. Our failure: 503 with `Retry-After` (P10).
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// `store.max_bytes` or `store.min_free` is reached.
    #[error("the store's disk budget is spent")]
    DiskBudget,
    /// Writing failed (disk full, I/O error); the event is not durable.
    #[error("the store could not write: {0}")]
    Failed(String),
    /// The store is shutting down.
    #[error("the store is closing")]
    Closing,
    /// Too much waits to be written.
    #[error("the store's queue is full")]
    Overloaded,
}
