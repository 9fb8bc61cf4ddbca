//! Events whose sender waits for the upstream's own answer (`reply = "upstream"`).
//!
//! Their dispatches are not handed to a lane as others are. Whoever has the sender asks for the dispatch itself
//! ([`Store::lease_now`](crate::store::Store::lease_now)) and attempts it at once; only when the sender's patience is over
//! ([`StoreSettings::synchronous`](crate::store::settings::StoreSettings::synchronous)) is it due for its lane. What the
//! upstream answered is kept with the outcome, in one transaction, before anybody is told of it, so that every duplicate
//! hears the same and none makes the upstream act twice.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::headers;
use crate::id::{EventId, SourceName, UpstreamName};
use crate::key::DedupeKey;
use crate::store::model::{DispatchState, LeasedDispatch};
use crate::time::Timestamp;

/// Longest body that is kept, and relayed: 1 MiB.
pub const REPLY_MAX: usize = 1 << 20;

/// An upstream's answer that is given to the sender and to every duplicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// 2xx or 3xx where it is kept.
    pub status: StatusCode,
    /// Without those that speak of one connection only.
    pub headers: HeaderMap,
    /// `None`: it was longer than [`REPLY_MAX`].
    pub body: Option<Bytes>,
}

impl Reply {
    /// The headers as a store holds them.
    pub(super) fn encoded_headers(&self) -> Vec<u8> {
        let mut out = Vec::new();
        headers::encode(&self.headers, &mut out);
        out
    }

    /// Reads back what a store holds; `None` where it is damaged.
    pub(super) fn decode(status: i64, headers: Vec<u8>, body: Option<Vec<u8>>) -> Option<Self> {
        let status = u16::try_from(status).ok()?;
        Some(Self {
            status: StatusCode::from_u16(status).ok()?,
            headers: headers::decode(Bytes::from(headers)).ok()?,
            body: body.map(Bytes::from),
        })
    }
}

/// Who asks for an event's dispatch. Answered once the event is admitted.
#[derive(Clone, Debug)]
pub struct Want {
    /// The appended event; if it is a duplicate, the one that has its key is meant.
    pub event: EventId,
    /// Its source.
    pub source: SourceName,
    /// Its key.
    pub key: DedupeKey,
    /// When it was received.
    pub received_at: Timestamp,
    /// Of which upstream.
    pub upstream: UpstreamName,
    /// Lease it, if nobody has it; otherwise only say how it stands.
    pub take: bool,
}

/// What there is of a wanted dispatch.
#[derive(Debug)]
pub enum Found {
    /// It waited, or was dead: it is leased to who asked, and nobody else attempts it now.
    Leased(LeasedDispatch),
    /// It waits, or is dead, and was not to be taken.
    Waiting,
    /// It is being attempted, or handed out to be: if here, [`Store::take_ready`](crate::store::Store::take_ready) has it.
    Running {
        /// The event that is meant.
        event: EventId,
    },
    /// It was delivered, and this is what the upstream answered.
    Replied(Reply),
    /// It is over, and no answer was kept: delivered by a source that acknowledges by itself, or ended by a person, or
    /// forgotten since.
    Over(Option<DispatchState>),
    /// It is not here: another store has the event, or it went to another upstream.
    Elsewhere,
}

/// What becomes of a leased dispatch that is not attempted. Its attempt's number was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unattempted {
    /// Pending again, not before `due`.
    Later {
        /// When.
        due: Timestamp,
    },
    /// Given up: kept, visible, replayable.
    Dead,
}
