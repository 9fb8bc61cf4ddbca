//! Records of idempotent calls.

use serde::{Deserialize, Serialize};

/// `GET /api/v1/idempotency`: newest first.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct RecordPage {
    /// The records of this page; may be empty although older ones match (then `next_cursor` is there).
    pub records: Vec<RecordSummary>,
    /// Where to go on; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_cursor: Option<String>,
}

/// One record in a list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecordSummary {
    /// What it is found by: `ROUTE/DIGEST`.
    pub record: String,
    /// The client's key.
    pub key: String,
    /// `running`, `done`, `unstored` or `ambiguous`.
    pub state: String,
    /// The answer's status, where one is kept.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<u16>,
    /// When its request was accepted; RFC 3339, UTC.
    pub accepted_at: String,
    /// When the key is new again.
    pub expires_at: String,
}

/// Which records; everything that is given must match. The query of `GET /api/v1/idempotency`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecordFilter {
    /// Of this route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// In this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Of exactly this client's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// At most so many records of a page: 1 to 500, 50 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// `GET /api/v1/idempotency/{route}/{digest}`, and the answer to a resolution.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct RecordDetail {
    /// What it is found by: `ROUTE/DIGEST`.
    pub record: String,
    /// The client's key; absent when a resolution has removed the record.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    /// `running`, `done`, `unstored` or `ambiguous`; `released` when a resolution has removed it.
    pub state: String,
    /// When its request was accepted; RFC 3339, UTC. Absent when a resolution has removed the record.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub accepted_at: Option<String>,
    /// When the key is new again; absent when it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_at: Option<String>,
    /// What its repetitions get, where it is kept.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answer: Option<KeptAnswer>,
}

/// An answer as it is given again.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct KeptAnswer {
    /// Its status.
    pub status: u16,
    /// Its header lines; values of credentials are masked, bytes outside UTF-8 replaced.
    pub headers: Vec<(String, String)>,
    /// The exact bytes.
    pub body_base64: String,
    /// The body as text, where it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub body_text: Option<String>,
}

/// Body of `POST /api/v1/idempotency/{route}/{digest}/resolve`: one of both.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resolve {
    /// The call had no effect: the key is new again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub release: bool,
    /// It took effect, and this is the answer to its repetitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<GivenAnswer>,
}

/// An answer that a person gives.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenAnswer {
    /// Its status: 200 to 599.
    pub status: u16,
    /// Its `Content-Type`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub content_type: Option<String>,
    /// Its body as text.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub body: Option<String>,
}
