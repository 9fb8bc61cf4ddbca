//! [`IdempotencySettings`]: what `idempotency = { … }` of a route says.

use std::time::Duration;

use http::{HeaderName, Method};

use super::fingerprint::BodyAs;
use super::scope::Scope;

/// `[routes.NAME] idempotency`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencySettings {
    /// Methods whose keys mean something; on any other the header is passed on and otherwise ignored.
    pub methods: Vec<Method>,
    /// Whether a request with such a method needs a key (400 without).
    pub required: bool,
    /// Whose keys they are.
    pub scope: Scope,
    /// How long a key is known, from the acceptance of its request.
    pub ttl: Duration,
    /// How long a repetition waits for the answer of a call that runs; zero: 409 at once.
    pub wait: Duration,
    /// What stands for the body in the fingerprint.
    pub fingerprint: BodyAs,
    /// Largest body of a request, in bytes (413).
    pub max_body: u64,
    /// Largest body of an answer that is kept, in bytes.
    pub max_stored: u64,
    /// Headers of a replay besides the usual ones.
    pub replay_headers: Vec<HeaderName>,
    /// What becomes of a call of which nobody knows whether it took effect.
    pub on_ambiguous: OnAmbiguous,
}

/// What a repetition of a call finds when nobody knows whether that call took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnAmbiguous {
    /// 504, until a person has said what became of it, or its time is over.
    #[default]
    Hold,
    /// It is made again: for an upstream that knows the key itself.
    Retry,
}
