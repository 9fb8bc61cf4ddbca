//! `[routes.NAME]` and the part of `[upstreams.NAME]` that routes need, ready to use.

use std::time::Duration;

use crate::id::{RouteName, UpstreamName};
use crate::net::connections::Remote;
use crate::routes::idempotency::IdempotencySettings;
use crate::routes::table::Pattern;

/// One `[routes.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteSettings {
    /// Its name.
    pub name: RouteName,
    /// Which paths it serves.
    pub pattern: Pattern,
    /// Where requests go.
    pub upstream: Target,
    /// How long the upstream may take to answer: from the last byte of the request to the end of the answer's head.
    /// Connecting is part of it.
    pub timeout: Duration,
    /// How long an answer's body, or a tunnel in both directions, may stand still.
    pub idle_timeout: Duration,
    /// Bytes of a request's body; over it 413. `None`: no limit, since a body is never held in memory.
    pub max_body: Option<u64>,
    /// What an `Idempotency-Key` means; `None`: nothing, it is passed on.
    pub idempotency: Option<IdempotencySettings>,
}

/// Where requests of a route go. Its `concurrency` and `rate` are for events, and hold no route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name of the upstream.
    pub name: UpstreamName,
    /// Where it is and how it is spoken to.
    pub remote: Remote,
    /// Send the original `Host` instead of the upstream's.
    pub preserve_host: bool,
}
