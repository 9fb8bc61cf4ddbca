//! Verification: `RawRequest` → `VerifiedRequest`, `ChallengeAnswer` or `Rejection` (P3).
//!
//! A [`VerifiedRequest`] is proof: its fields are private and only this module makes one, so nothing that takes one
//! can be reached by a request whose signature did not hold.
//!
//! Theory of operation. A provider is a [`record::Record`]: data, read once and compiled. A [`Verifier`] is a record
//! with a source's secrets, their keys prepared. Judging a request: choose one header family by the head alone
//! (`record`), take the signature header apart into candidates (`signature`), judge the signed time (`window`), fill
//! the signed text into slices of the request (`template`), and compare the MAC under every live secret with every
//! candidate in constant time (`mac`). JSON is only looked at (`json`), forms and URLs are handled as the bytes that
//! came (`form`, `url`). Nothing here knows a provider by name.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use sha2::{Digest, Sha256};

use crate::request::RawRequest;
use crate::time::Timestamp;

mod atlassian;
mod canonical;
mod challenge;
mod coding;
mod elsewhere;
mod encrypted;
mod few;
mod form;
mod handover;
mod hint;
mod json;
mod json_text;
mod jws;
mod jwt;
mod mac;
mod multipart;
mod picked;
mod place;
mod public_key;
mod renewal;
mod secrets;
mod signature;
mod template;
mod verifier;
mod window;

pub mod presets;
pub mod record;
pub mod sample;
pub mod sign;
pub mod url;

pub use elsewhere::Visit;
pub use handover::{HandedOver, Likeness, Unfit};
pub use hint::Hint;
pub use mac::Hash;
pub use renewal::Hindrance;
pub use verifier::{Rejected, SourceSecret, Tolerance, Verified, Verifier, VerifierOptions, VerifierProblem};

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
    /// The names of headers as the provider's documents spell them, for people; on the wire case means nothing.
    pub spelled: Vec<String>,
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
    /// The time that the signature covers, where the scheme signs one.
    pub signed_at: Option<Timestamp>,
}

/// A request whose signature holds. Made only by this module.
#[derive(Clone, Debug)]
pub struct VerifiedRequest {
    request: RawRequest,
    proof: Proof,
    names: Names,
    has_content: bool,
    body_digest: OnceLock<[u8; 32]>,
}

/// What a verified request calls itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names {
    delivery_id: Option<String>,
    dedupe_id: Option<String>,
    /// The record names a place of its own for the id that decides.
    names_dedupe_id: bool,
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
        self.names.delivery_id.as_deref()
    }

    /// The id that decides "the same again": the delivery id, unless the provider's record names another one for it
    /// (Shopify shows its event's id and sends one event to several subscriptions).
    pub fn dedupe_id(&self) -> Option<&str> {
        self.names.dedupe_id.as_deref().or(self.names.delivery_id.as_deref())
    }

    /// The id that may decide alone: where the record names another than the delivery id for it, only that one.
    pub fn deciding_id(&self) -> Option<&str> {
        match self.names.names_dedupe_id {
            true => self.names.dedupe_id.as_deref(),
            false => self.delivery_id(),
        }
    }

    /// The provider's name for the kind of event, where the request has one.
    pub fn event_type(&self) -> Option<&str> {
        self.names.event_type.as_deref()
    }

    /// The value that the provider's record adds to the scope (GitHub: `X-GitHub-Hook-ID`), where there is one.
    pub fn record_scope(&self) -> Option<&str> {
        self.names.record_scope.as_deref()
    }

    /// Whether the bytes say something of their own: not for an empty body, nor where the provider's record says that
    /// its requests only ring a bell (`ping`).
    pub fn has_content(&self) -> bool {
        self.has_content && !self.request.body.is_empty()
    }

    /// The provider's record says that its requests only ring a bell (`ping`): two with the same bytes are two events.
    pub fn rings_only(&self) -> bool {
        !self.has_content
    }

    /// SHA-256 of the body, worked out once.
    pub fn body_digest(&self) -> &[u8; 32] {
        self.body_digest
            .get_or_init(|| Sha256::digest(&self.request.body).into())
    }

    /// A request that is taken as verified, for the tests of what comes after.
    #[cfg(test)]
    pub(crate) fn for_tests(request: RawRequest, delivery_id: Option<&str>) -> Self {
        Self {
            request,
            proof: Proof {
                secret_index: Some(0),
                label: None,
                scope: None,
                signed_at: None,
            },
            names: Names {
                delivery_id: delivery_id.map(str::to_owned),
                ..Names::default()
            },
            has_content: true,
            body_digest: OnceLock::new(),
        }
    }

    /// Takes the request back, to be stored.
    pub fn into_request(self) -> RawRequest {
        self.request
    }
}

#[cfg(test)]
mod tests;
