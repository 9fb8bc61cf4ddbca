//! The JSON of the admin API, as the server writes it and the commands read it.
//!
//! Apart from the internal types on purpose: those may change, these are public interface. What the OpenAPI document
//! says is checked against them by a test.

mod events;
mod idempotency;
mod learn;
mod reload;
mod route;
mod status;
mod upstreams;

use serde::{Deserialize, Serialize};

pub use self::events::{
    Attempt, Discard, Discarded, Dispatch, EventDetail, EventPage, EventSummary, Filter, Replay, ReplayMany, Replayed,
};
pub use self::idempotency::{GivenAnswer, KeptAnswer, RecordDetail, RecordFilter, RecordPage, RecordSummary, Resolve};
pub use self::learn::{Learn, LearnStatus};
pub use self::reload::{ConfigurationStatus, Problem, RefusedStatus, ReloadRefused, Reloaded};
pub use self::route::RouteStatus;
pub use self::status::{
    IdempotencyStatus, RedisStatus, RefusalStatus, SecretStatus, SenderStatus, SourceStatus, Status, StoreStatus,
};
pub use self::upstreams::{ShareStatus, Upstream, UpstreamStatus, Upstreams};
/// Body of `POST /api/v1/upstreams/{name}/pause` and `…/resume`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Every error of the API, with a status of 400 or more.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// What went wrong.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// A word for programs, such as `not_found`.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

#[cfg(test)]
mod tests;
