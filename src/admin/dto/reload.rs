//! The JSON of reloads.

use serde::{Deserialize, Serialize};

use super::ErrorDetail;

/// Answer to `POST /api/v1/reload`, 200: what is written runs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Reloaded {
    /// What is different now, in words; empty when nothing is.
    pub changed: Vec<String>,
    /// The warnings as `hooksluice check` prints them; empty when there are none.
    pub report: String,
    /// The same for programs.
    pub problems: Vec<Problem>,
}

/// Answer to `POST /api/v1/reload`, 422: nothing was changed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ReloadRefused {
    /// With the code `configuration_refused`.
    pub error: ErrorDetail,
    /// Everything that is wrong, as `hooksluice check` prints it.
    pub report: String,
    /// The same for programs.
    pub problems: Vec<Problem>,
}

/// One problem of a configuration.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Problem {
    /// `error` or `warning`.
    pub severity: String,
    /// Name of the configuration.
    pub file: String,
    /// From 1; null where a problem has no place.
    pub line: Option<usize>,
    /// In characters, from 1; null where a problem has no place.
    pub column: Option<usize>,
    /// The short fact.
    pub message: String,
    /// What to say at the place itself.
    pub label: String,
    /// What the operator can do.
    pub help: Option<String>,
}

/// The running configuration in a status.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ConfigurationStatus {
    /// When what runs was last found to be what is configured (RFC 3339, UTC).
    pub loaded_at: String,
    /// What is configured was refused, and the one before goes on; absent once that is mended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refused: Option<RefusedStatus>,
}

/// A configuration that was not taken.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct RefusedStatus {
    /// RFC 3339, UTC.
    pub at: String,
    /// Its first error.
    pub why: String,
}
