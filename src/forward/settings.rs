//! `[upstreams.NAME]` and what lanes need of `[sources.NAME]`, ready to use.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;

use crate::forward::standard_webhooks::StandardWebhooks;
use crate::id::UpstreamName;
use crate::net::connections::Remote;
use crate::reader::Rate;
use crate::store::settings::LaneSettings;
use crate::verify::Verifier;

/// Which signature headers an attempt carries (DESIGN section 4, "Signatures after a delay").
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignaturePolicy {
    /// The original headers while the forward is younger than half of the provider's tolerance, after that as `Fresh`
    /// where the scheme can be signed, else the original.
    Auto,
    /// The original headers, always.
    Original,
    /// Signed anew in the provider's own scheme with the same secret and the current time.
    Fresh,
    /// Signed in one scheme for all providers, with secrets of the upstream's own.
    StandardWebhooks(StandardWebhooks),
}

/// When and for how long a failed dispatch is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Upper bound of the first wait; it doubles with each attempt.
    pub first: Duration,
    /// Upper bound of every wait, and of an honoured `Retry-After`.
    pub max: Duration,
    /// Give up after this long of connect errors, timeouts, 408, 409, 425, 429 and 5xx.
    pub give_up_after: Duration,
    /// Give up after this long of other 4xx and 3xx.
    pub give_up_refused: Duration,
    /// Give up after this many attempts, if set.
    pub max_attempts: Option<u32>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(5),
            max: Duration::from_secs(3600),
            give_up_after: Duration::from_secs(7 * 86_400),
            give_up_refused: Duration::from_secs(86_400),
            max_attempts: None,
        }
    }
}

/// One `[upstreams.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// Its name.
    pub name: UpstreamName,
    /// Where it is and how it is spoken to; the path comes from the request or the source's `forward_path`.
    pub remote: Remote,
    /// Attempts at the same time, at least 1.
    pub concurrency: usize,
    /// Attempts per period, if limited.
    pub rate: Option<Rate>,
    /// How many attempts may start at once under `rate`.
    pub burst: Option<u32>,
    /// From the start of connecting to the end of the answer.
    pub timeout: Duration,
    /// Waits and give-up.
    pub retry: Retry,
    /// Signature headers of attempts.
    pub signature: SignaturePolicy,
    /// Send the original `Host` instead of the upstream's.
    pub preserve_host: bool,
}

impl UpstreamSettings {
    /// Into how many parts the pace can be divided between replicas, so that each part has at least one attempt at a
    /// time, and under a `rate` at least one of its `burst`.
    pub fn units(&self) -> u32 {
        let concurrency = u32::try_from(self.concurrency).unwrap_or(u32::MAX).max(1);
        match self.rate {
            Some(_) => concurrency.min(self.burst.unwrap_or(1).max(1)),
            None => concurrency,
        }
    }

    /// What the store needs to know of it.
    pub fn for_store(&self) -> LaneSettings {
        LaneSettings {
            upstream: self.name.clone(),
            units: self.units(),
        }
    }
}

/// `[sources.NAME] late`: what becomes of a dispatch that was not answered while its sender waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// It dies, and is kept; the provider's next try brings it back.
    #[default]
    Dead,
    /// It goes to the lane's queue, and is tried again like any other.
    Queue,
}

/// `reply = "upstream"`: the sender waits for the upstream's own answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synchronous {
    /// How long the sender waits. After that its dispatch is the lane's.
    pub patience: Duration,
    /// What the lane does with it then.
    pub late: Late,
}

/// What lanes need to know of a `[sources.NAME]`.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// Path and query sent upstream instead of the received ones.
    pub forward_path: Option<PathAndQuery>,
    /// Signs anew.
    pub verifier: Arc<Verifier>,
    /// Its senders wait for the answer.
    pub synchronous: Option<Synchronous>,
}
