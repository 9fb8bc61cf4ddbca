//! Verification: `RawRequest` → `VerifiedRequest`, `ChallengeAnswer` or `Rejection` (P3).
//!
//! A [`VerifiedRequest`] is proof: its fields are private and only this module makes one, so nothing that takes one
//! can be reached by a request whose signature did not hold.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::request::RawRequest;

/// Why a request was refused. Metrics, logs and `hooksluice verify` share these words; the sender learns none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The place where the signature belongs is absent or empty.
    MissingSignature,
    /// Something is there that cannot be a signature of this scheme.
    MalformedSignature,
    /// Well formed, and made with none of the live secrets.
    WrongSignature,
    /// The scheme signs a time and the request has none.
    MissingTimestamp,
    /// The time cannot be read in the scheme's unit.
    MalformedTimestamp,
    /// Signed too long ago.
    Stale,
    /// Signed too far ahead of our clock.
    FromTheFuture,
    /// Verified, but the id that the source requires is absent (400).
    MissingId,
    /// The scheme signs fields of the body and the body cannot be read that way (400).
    BodyMalformed,
    /// The client's address is not on the source's list (403).
    AddressNotAllowed,
    /// Over the body limit (413).
    TooLarge,
    /// The body did not arrive in time (408).
    TooSlow,
}

impl Reason {
    /// All of them, for metrics that should exist before the first refusal.
    pub const ALL: [Self; 12] = [
        Self::MissingSignature,
        Self::MalformedSignature,
        Self::WrongSignature,
        Self::MissingTimestamp,
        Self::MalformedTimestamp,
        Self::Stale,
        Self::FromTheFuture,
        Self::MissingId,
        Self::BodyMalformed,
        Self::AddressNotAllowed,
        Self::TooLarge,
        Self::TooSlow,
    ];

    /// The word used in metrics, logs and command output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MissingSignature => "missing_signature",
            Self::MalformedSignature => "malformed_signature",
            Self::WrongSignature => "wrong_signature",
            Self::MissingTimestamp => "missing_timestamp",
            Self::MalformedTimestamp => "malformed_timestamp",
            Self::Stale => "stale",
            Self::FromTheFuture => "from_the_future",
            Self::MissingId => "missing_id",
            Self::BodyMalformed => "body_malformed",
            Self::AddressNotAllowed => "address_not_allowed",
            Self::TooLarge => "too_large",
            Self::TooSlow => "too_slow",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refusal: the reason, for metrics and the log. Never contains digests, secrets or header values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Rejection {
    /// Why.
    pub reason: Reason,
}

/// The answer to a provider's hand-shake, from the provider's record. One of the two makers of a 2xx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChallengeAnswer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers, `Content-Type` among them.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// Which secret vouched for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Its index among all configured secrets; `None` for sources without verification (`kind = "none"`).
    pub secret_index: Option<usize>,
    /// The label that the operator gave it, for people; never part of a key.
    pub label: Option<Arc<str>>,
    /// The scope that it carries; part of the dedupe key.
    pub scope: Option<Arc<str>>,
}

/// A request whose signature holds. Made only by this module.
#[derive(Clone, Debug)]
pub struct VerifiedRequest {
    request: RawRequest,
    proof: Proof,
    delivery_id: Option<String>,
    event_type: Option<String>,
    record_scope: Option<String>,
}

impl VerifiedRequest {
    /// The request itself, byte for byte.
    pub fn request(&self) -> &RawRequest {
        &self.request
    }

    /// Which secret vouched for it.
    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// The provider's own id for what it sent, where the request has one.
    pub fn delivery_id(&self) -> Option<&str> {
        self.delivery_id.as_deref()
    }

    /// The provider's name for the kind of event, where the request has one.
    pub fn event_type(&self) -> Option<&str> {
        self.event_type.as_deref()
    }

    /// The value that the provider's record adds to the scope (GitHub: `X-GitHub-Hook-ID`), where there is one.
    pub fn record_scope(&self) -> Option<&str> {
        self.record_scope.as_deref()
    }

    /// Takes the request back, to be stored.
    pub fn into_request(self) -> RawRequest {
        self.request
    }
}

/// Checks requests of one source. Placeholder until the engine is here.
#[derive(Debug)]
pub struct Verifier {}
