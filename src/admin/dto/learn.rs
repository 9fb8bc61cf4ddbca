//! The JSON of secrets that arrive in band.

use serde::{Deserialize, Serialize};

/// Body of `POST /api/v1/sources/{name}/learn`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learn {
    /// Take one beside the secrets that the source has.
    #[serde(default)]
    pub add: bool,
}

/// A source that takes its secret in band.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct LearnStatus {
    /// `no_secret`, `armed` or `sealed`.
    pub state: String,
    /// Until when the next secret that is handed over is taken; absent unless armed. RFC 3339, UTC.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub armed_until: Option<String>,
    /// How long that is, in seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub armed_for_seconds: Option<u64>,
    /// Where it is kept.
    pub directory: String,
}
