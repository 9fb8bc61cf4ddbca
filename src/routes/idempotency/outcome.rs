//! What becomes of a key when its call has ended: one table from what was seen to what is kept.
//!
//! The question behind each line is whether the app may have acted. An answer that the app gave is kept, so that its
//! retries get the same. Where the app said "not now" the key is free again. Where nobody knows, a second call could be
//! the second charge, so the key is closed until a person has looked.

use std::sync::Arc;

use http::StatusCode;

use super::fingerprint;
use crate::store::records::{Fingerprint, RecordState, StoredAnswer};

/// How a call ended, as far as the proxy can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Not a byte was sent: refused, no address, no TLS.
    NotSent,
    /// Something was sent, and no head of an answer came, or not in time.
    NoAnswer,
    /// The head of an answer is here.
    Head {
        /// Its status.
        status: StatusCode,
        /// Whether it has a `Retry-After`.
        retry_after: bool,
    },
}

/// What is done with the key and with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The answer is read whole and kept; one that cannot be kept is passed on (`unstored`).
    Keep,
    /// It is passed on as it comes, and never given again.
    PassOn,
    /// The key is free again, and the answer is passed on.
    Release,
    /// The key is free again, and there is no answer: 502.
    ReleaseUnsent,
    /// Nobody knows: 504 to the client and to its retries.
    Ambiguous,
}

/// The table.
pub fn fate(ended: Ended) -> Fate {
    let (status, retry_after) = match ended {
        Ended::NotSent => return Fate::ReleaseUnsent,
        Ended::NoAnswer => return Fate::Ambiguous,
        Ended::Head { status, retry_after } => (status.as_u16(), retry_after),
    };
    match status {
        // A tunnel, which nobody asked for: there is no answer to keep.
        100..=199 => Fate::PassOn,
        401 | 403 | 408 | 409 | 421 | 425 | 429 => Fate::Release,
        200..=499 => Fate::Keep,
        503 if retry_after => Fate::Release,
        // Said by the app itself, which has therefore ended.
        500 | 501 | 505..=508 | 510 => Fate::Keep,
        // 502, 503 and 504, and what gateways invented besides (509, 511, 520 …): said by something in between, or by an
        // app that lost one of its own; whether it acted, this does not say.
        _ => Fate::Ambiguous,
    }
}

/// What kept an answer from being kept although its status would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unkept {
    /// It is larger than `max_stored`.
    TooLarge,
    /// It is a tunnel, which nobody asked for.
    NoAnswer,
    /// It is an event stream, whose end nobody waits for.
    EventStream,
    /// It ends with trailers, which a replay could not give again.
    Trailers,
    /// The memory for bodies (`limits.in_flight`) is spent.
    NoRoom,
}

impl Unkept {
    /// For the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "larger than max_stored",
            Self::NoAnswer => "a switch of protocols",
            Self::EventStream => "an event stream",
            Self::Trailers => "with trailers",
            Self::NoRoom => "no room in limits.in_flight",
        }
    }
}

/// What a request finds whose key has been used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// The key is another request's.
    Mismatch,
    /// The call still runs.
    Running,
    /// This is its answer.
    Answer(Arc<StoredAnswer>),
    /// It has ended, and its answer was not kept.
    NotStored,
    /// Nobody knows whether it took effect.
    Unknown,
}

/// What this request finds in that record. That the key is another request's wins over everything: a client that mixes
/// up its keys is told so also while the first call runs.
pub fn repetition(asked: &Fingerprint, of: &Fingerprint, state: &RecordState) -> Repetition {
    if !fingerprint::same(asked, of) {
        return Repetition::Mismatch;
    }
    match state {
        RecordState::Running => Repetition::Running,
        RecordState::Done(answer) => Repetition::Answer(Arc::clone(answer)),
        RecordState::Unstored => Repetition::NotStored,
        RecordState::Ambiguous => Repetition::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, retry_after: bool) -> Fate {
        fate(Ended::Head {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after,
        })
    }

    #[test]
    fn every_status_has_one_fate() {
        for status in 100..=999 {
            let expected = match status {
                100..=199 => Fate::PassOn,
                401 | 403 | 408 | 409 | 421 | 425 | 429 => Fate::Release,
                200..=400 | 402 | 404..=407 | 410..=420 | 422..=424 | 426..=428 | 430..=499 => Fate::Keep,
                500 | 501 | 505 | 506 | 507 | 508 | 510 => Fate::Keep,
                _ => Fate::Ambiguous,
            };
            assert_eq!(of(status, false), expected, "{status}");
            let expected = if status == 503 { Fate::Release } else { expected };
            assert_eq!(of(status, true), expected, "{status} with Retry-After");
        }
    }

    #[test]
    fn without_an_answer_only_what_was_not_sent_is_known() {
        assert_eq!(fate(Ended::NotSent), Fate::ReleaseUnsent);
        assert_eq!(fate(Ended::NoAnswer), Fate::Ambiguous);
    }

    #[test]
    fn another_request_is_told_so_whatever_became_of_the_first() {
        let answer = Arc::new(StoredAnswer {
            status: StatusCode::CREATED,
            headers: http::HeaderMap::new(),
            body: bytes::Bytes::new(),
        });
        let (mine, other) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
        for (state, expected) in [
            (RecordState::Running, Repetition::Running),
            (RecordState::Done(Arc::clone(&answer)), Repetition::Answer(answer)),
            (RecordState::Unstored, Repetition::NotStored),
            (RecordState::Ambiguous, Repetition::Unknown),
        ] {
            assert_eq!(repetition(&mine, &mine, &state), expected);
            assert_eq!(repetition(&mine, &other, &state), Repetition::Mismatch);
        }
    }
}
