//! Records of idempotent calls: what is known of one key on one route.
//!
//! ```text
//! absent ── begin ──→ running ── complete ──→ done | unstored | ambiguous | absent again (released)
//!                        └─ its owner is gone ─→ ambiguous ── resolved by a person ──→ done | absent again
//! ```
//!
//! A record ends with its TTL, in any state but running.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::id::{LeaseToken, RouteName};
use crate::time::Timestamp;

/// The longest a client's key may be, in bytes.
pub const CLIENT_KEY_MAX: usize = 255;

/// What a record is found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordKey {
    /// Its `[routes.NAME]`.
    pub route: RouteName,
    /// SHA-256 over caller and key, each with its length in front.
    pub digest: [u8; 32],
}

impl RecordKey {
    /// Says in the log that a person is needed. The client's key is not told: where all callers share their keys it is
    /// all that guards an answer.
    pub fn needs_a_person(&self, cause: &str) {
        tracing::error!(
            route = %self.route,
            record = %self,
            cause,
            resolve = format!("hooksluice idempotency resolve {self} --release (or --status 201 --body …)"),
            "nobody knows whether a call took effect"
        );
    }
}

/// How people name a record: `ROUTE/DIGEST`.
impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.route, data_encoding::HEXLOWER.encode(&self.digest))
    }
}

/// SHA-256 of what the request says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint")
    }
}

/// A call that wants to begin.
#[derive(Clone, Debug)]
pub struct NewCall {
    /// Its record.
    pub key: RecordKey,
    /// Of its request.
    pub fingerprint: Fingerprint,
    /// The client's key as text, for people who look for it.
    pub client_key: Arc<str>,
    /// When its head was complete.
    pub accepted_at: Timestamp,
    /// How long its record lives from then on; at least until the call ends.
    pub ttl: Duration,
    /// Also where an earlier call ended ambiguous with the same fingerprint (`on_ambiguous = "retry"`).
    pub after_ambiguous: bool,
}

/// What beginning a call found.
#[derive(Debug)]
pub enum Begun {
    /// Nothing: the call is ours to make. Durable.
    Started(Call),
    /// The key is taken.
    Found(Record),
}

impl Record {
    /// Its state as a word.
    pub fn kind(&self) -> RecordKind {
        match self.state {
            RecordState::Running => RecordKind::Running,
            RecordState::Done(_) => RecordKind::Done,
            RecordState::Unstored => RecordKind::Unstored,
            RecordState::Ambiguous => RecordKind::Ambiguous,
        }
    }
}

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Of the request that took the key.
    pub fingerprint: Fingerprint,
    /// How far it got.
    pub state: RecordState,
    /// The client's key.
    pub client_key: Arc<str>,
    /// When the call was accepted.
    pub accepted_at: Timestamp,
    /// When the key is new again.
    pub expires_at: Timestamp,
}

/// How far a call got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// It runs, here or at another replica.
    Running,
    /// It ended with this answer.
    Done(Arc<StoredAnswer>),
    /// It ended, and its answer was passed through without being kept.
    Unstored,
    /// Nobody knows whether it took effect.
    Ambiguous,
}

/// An answer as it is given again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAnswer {
    /// Its status.
    pub status: StatusCode,
    /// Those of its headers that belong to a replay.
    pub headers: HeaderMap,
    /// Its body, byte for byte.
    pub body: Bytes,
}

/// The right to make one call. Not `Clone`: one owner completes its record, once. The store keeps its lease alive for as
/// long as it exists; dropped without being completed, it leaves the record ambiguous.
pub struct Call {
    /// Its record.
    pub key: RecordKey,
    /// The fence.
    pub(crate) token: LeaseToken,
    /// When its record ends.
    pub(crate) expires_at: Timestamp,
    /// Called when it is dropped without being completed.
    pub(crate) abandon: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Call {
    /// When its record ends.
    pub fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// Its end is recorded otherwise.
    pub(crate) fn forget(mut self) -> (RecordKey, LeaseToken) {
        self.abandon = None;
        (self.key.clone(), self.token)
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(abandon) = self.abandon.take() {
            abandon();
        }
    }
}

impl CallEnd {
    /// The state it leaves the record in; `None`: no record.
    pub(crate) fn kind(&self) -> Option<RecordKind> {
        match self {
            Self::Done(_) => Some(RecordKind::Done),
            Self::Unstored => Some(RecordKind::Unstored),
            Self::Ambiguous => Some(RecordKind::Ambiguous),
            Self::Released => None,
        }
    }

    /// The answer to keep.
    pub(crate) fn answer(&self) -> Option<&StoredAnswer> {
        match self {
            Self::Done(answer) => Some(answer),
            Self::Unstored | Self::Ambiguous | Self::Released => None,
        }
    }
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// With an answer that is kept.
    Done(Arc<StoredAnswer>),
    /// With an answer that is not kept.
    Unstored,
    /// Nobody knows.
    Ambiguous,
    /// It had no effect: the key is new again.
    Released,
}

/// What completing found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// Recorded; durable.
    Recorded,
    /// The record was no longer ours (its lease ran out, or a person resolved it): nothing was changed.
    NotOurs,
}

/// Which records a list shows; every condition that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordFilter {
    /// Of this route.
    pub route: Option<RouteName>,
    /// In this state.
    pub kind: Option<RecordKind>,
    /// Of exactly this client's key.
    pub client_key: Option<String>,
}

/// A page of a list, in the order in which the calls were accepted, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordPage {
    /// The records found; may be fewer than asked for, even none, while there is more to look at.
    pub records: Vec<RecordView>,
    /// Where the next page goes on; `None` at the end.
    pub next: Option<RecordPlace>,
}

/// A place in the list of records, for the next page. Its text is the store's own business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    /// The backend's number: a row's, or a time.
    pub(crate) number: i64,
    /// What tells records of the same number apart, where the number alone does not.
    pub(crate) rest: Option<([u8; 32], i32)>,
}

impl fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)?;
        match &self.rest {
            Some((digest, route)) => write!(f, ".{}.{route}", data_encoding::HEXLOWER.encode(digest)),
            None => Ok(()),
        }
    }
}

/// The text is not a place in the list of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a place in the list of records")]
pub struct NoSuchPlace;

impl FromStr for RecordPlace {
    type Err = NoSuchPlace;

    fn from_str(text: &str) -> Result<Self, NoSuchPlace> {
        let mut parts = text.split('.');
        let number = parts.next().and_then(|number| number.parse().ok()).ok_or(NoSuchPlace)?;
        let rest = match (parts.next(), parts.next()) {
            (None, _) => None,
            (Some(digest), Some(route)) => {
                let digest = data_encoding::HEXLOWER
                    .decode(digest.as_bytes())
                    .map_err(|_not_hex| NoSuchPlace)?;
                let digest = digest.try_into().map_err(|_length| NoSuchPlace)?;
                Some((digest, route.parse().map_err(|_not_a_number| NoSuchPlace)?))
            }
            (Some(_), None) => return Err(NoSuchPlace),
        };
        match parts.next() {
            None => Ok(Self { number, rest }),
            Some(_) => Err(NoSuchPlace),
        }
    }
}

/// How many records there are, expired ones that were not removed yet included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// By state, all of them.
    pub kinds: BTreeMap<RecordKind, u64>,
    /// When the oldest ambiguous call was accepted.
    pub oldest_ambiguous: Option<Timestamp>,
}

/// One record, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordView {
    /// What it is found by.
    pub key: RecordKey,
    /// The client's key.
    pub client_key: Arc<str>,
    /// How far it got; without the answer's body.
    pub state: RecordKind,
    /// The answer's status, where one is kept.
    pub status: Option<StatusCode>,
    /// When the call was accepted.
    pub accepted_at: Timestamp,
    /// When the key is new again.
    pub expires_at: Timestamp,
}

/// The state of a record as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// See [`RecordState`].
    Running,
    /// See [`RecordState`].
    Done,
    /// See [`RecordState`].
    Unstored,
    /// See [`RecordState`].
    Ambiguous,
}

impl RecordKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Running, Self::Done, Self::Unstored, Self::Ambiguous];

    /// The number that it has in a database.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Running => 0,
            Self::Done => 1,
            Self::Unstored => 2,
            Self::Ambiguous => 3,
        }
    }

    /// Reads back [`RecordKind::number`].
    pub(crate) fn from_number(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| i64::from(kind.number()) == number)
    }

    /// The word used in metrics, the API and the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Unstored => "unstored",
            Self::Ambiguous => "ambiguous",
        }
    }
}

/// What a person says of an ambiguous record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It had no effect: the key is new again.
    Release,
    /// It took effect, and this is the answer to its retries.
    Answer(Arc<StoredAnswer>),
}

/// What resolving found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// Done; durable.
    Done,
    /// There is no such record.
    Unknown,
    /// It is not ambiguous.
    NotAmbiguous(RecordKind),
}
