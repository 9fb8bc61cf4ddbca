//! What hooksluice itself answers on an idempotent route: `application/problem+json` (RFC 9457).
//!
//! `type` is stable and meant for programs. The titles of a missing, a reused and an outstanding key are the draft's.
//! The names are in one family with those of all routes ([`problem`]). Nothing of another request, or of its stored answer, is ever in a problem.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};

use super::key::KeyError;
use super::scope::ScopeError;
use super::settings::OnAmbiguous;
use crate::ingest::body::BodyRefused;
use crate::routes::problem;
use crate::telemetry::metrics::{KeyOutcome, RouteOutcome};

/// How soon a client should come back: the other call may end any moment, and a look costs little.
const SOON: Duration = Duration::from_secs(1);
/// When our store is away.
const LATER: Duration = Duration::from_secs(5);

/// Why a request with a key (or without a required one) is not answered by the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The route requires a key (400).
    KeyMissing,
    /// The key is malformed (400).
    KeyMalformed(KeyError),
    /// Nobody can say whose key it is (400).
    NoCaller(ScopeError),
    /// The body ended early (400).
    BodyIncomplete,
    /// The body did not arrive in time (408).
    BodyTooSlow,
    /// The body is larger than `max_body` (413). The key is not used up.
    BodyTooLarge,
    /// The key is another request's (422).
    KeyReused,
    /// Its call still runs (409).
    Outstanding,
    /// Its call has ended, and its answer was not kept (409).
    NotStored,
    /// Nobody knows whether its call took effect (504), and this is what a repetition finds.
    OutcomeUnknown(OnAmbiguous),
    /// The upstream could not be reached, nothing was sent (502).
    Unreachable,
    /// Our store is not there; this request was not forwarded (503).
    Unavailable,
    /// Too many calls run, or their bodies take all the memory for them; this request was not forwarded (503).
    Overloaded,
    /// The upstream has answered, and our store has not taken that in time (504). It will, or the outcome is unknown.
    NotRecorded,
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Self {
        Self::KeyMalformed(error)
    }
}

impl From<ScopeError> for Problem {
    fn from(error: ScopeError) -> Self {
        Self::NoCaller(error)
    }
}

impl From<BodyRefused> for Problem {
    fn from(refused: BodyRefused) -> Self {
        match refused {
            BodyRefused::TooLarge => Self::BodyTooLarge,
            BodyRefused::TooSlow => Self::BodyTooSlow,
            BodyRefused::Overloaded => Self::Overloaded,
            BodyRefused::Incomplete => Self::BodyIncomplete,
        }
    }
}

impl Problem {
    /// How the request ended, for the metrics, where it was not forwarded.
    pub const fn outcome(&self) -> KeyOutcome {
        match self {
            Self::KeyMissing
            | Self::KeyMalformed(_)
            | Self::NoCaller(_)
            | Self::BodyIncomplete
            | Self::BodyTooSlow
            | Self::BodyTooLarge => KeyOutcome::Refused,
            Self::KeyReused => KeyOutcome::Mismatch,
            Self::Outstanding => KeyOutcome::Outstanding,
            Self::NotStored => KeyOutcome::NotStored,
            Self::OutcomeUnknown(_) | Self::NotRecorded => KeyOutcome::Unknown,
            Self::Unreachable => KeyOutcome::Unreachable,
            Self::Unavailable | Self::Overloaded => KeyOutcome::Failed,
        }
    }

    /// How a request ended for its route that was refused with this: without a call of its own.
    pub const fn refusal(&self) -> RouteOutcome {
        match self {
            Self::BodyTooSlow => RouteOutcome::TooSlow,
            _ => RouteOutcome::Refused,
        }
    }

    /// How a request ended for its route whose own call came to this.
    pub const fn end_of_call(&self) -> RouteOutcome {
        match self {
            Self::OutcomeUnknown(_) | Self::NotRecorded => RouteOutcome::Broken,
            Self::Unreachable => RouteOutcome::Unreachable,
            _ => self.refusal(),
        }
    }

    /// The status.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::KeyMissing | Self::KeyMalformed(_) | Self::NoCaller(_) | Self::BodyIncomplete => {
                StatusCode::BAD_REQUEST
            }
            Self::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Outstanding | Self::NotStored => StatusCode::CONFLICT,
            Self::OutcomeUnknown(_) | Self::NotRecorded => StatusCode::GATEWAY_TIMEOUT,
            Self::Unreachable => StatusCode::BAD_GATEWAY,
            Self::Unavailable | Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The last part of `type`.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::KeyMissing => "idempotency-key-missing",
            Self::KeyMalformed(_) => "idempotency-key-malformed",
            Self::NoCaller(_) => "idempotency-key-without-caller",
            Self::BodyIncomplete => "request-body-broken",
            Self::BodyTooSlow => "request-body-timeout",
            Self::BodyTooLarge => "request-body-too-large",
            Self::KeyReused => "idempotency-key-reused",
            Self::Outstanding => "idempotency-key-outstanding",
            Self::NotStored => "response-not-stored",
            Self::OutcomeUnknown(_) | Self::NotRecorded => "outcome-unknown",
            Self::Unreachable => "upstream-unreachable",
            Self::Unavailable => "store-unavailable",
            Self::Overloaded => "overloaded",
        }
    }

    const fn title(&self) -> &'static str {
        match self {
            Self::KeyMissing => "Idempotency-Key is missing",
            Self::KeyMalformed(_) => "Idempotency-Key is malformed",
            Self::NoCaller(_) => "Idempotency-Key without a caller",
            Self::BodyIncomplete => "The request ended early",
            Self::BodyTooSlow => "The request was too slow",
            Self::BodyTooLarge => "The request is too large",
            Self::KeyReused => "Idempotency-Key is already used",
            Self::Outstanding => "A request is outstanding for this Idempotency-Key",
            Self::NotStored => "The response was not stored",
            Self::OutcomeUnknown(_) => "The outcome is unknown",
            Self::Unreachable => "The application could not be reached",
            Self::Unavailable => "Idempotency cannot be ensured at the moment",
            Self::Overloaded => "Too many requests at the moment",
            Self::NotRecorded => "The answer could not be recorded in time",
        }
    }

    fn detail(&self) -> String {
        let fixed = match self {
            Self::KeyMissing => {
                "This operation is idempotent and it requires correct usage of Idempotency-Key: send a key that is unique \
                 to this operation, and the same key when you repeat it."
            }
            Self::KeyMalformed(error) => {
                return format!(
                    "An Idempotency-Key is 1 to 255 bytes of printable ASCII, bare or as a quoted string (RFC 9651): \
                     {error}. Nothing was done."
                );
            }
            Self::NoCaller(error) => return format!("This cannot be ensured: {error}. Nothing was done."),
            Self::BodyIncomplete => "The body ended before its announced length. The key is not used up.",
            Self::BodyTooSlow => "The body did not arrive in time. The key is not used up.",
            Self::BodyTooLarge => "The body is larger than this operation takes. The key is not used up.",
            Self::KeyReused => {
                "This operation is idempotent and it requires correct usage of Idempotency-Key. A key must not be reused \
                 for another request: method, path and query, Content-Type and body must be the same."
            }
            Self::Outstanding => {
                "A request with the same Idempotency-Key for the same operation is being processed. Repeat it after \
                 Retry-After to get its answer."
            }
            Self::NotStored => {
                "The request with this Idempotency-Key was carried out, and its answer was passed on without being kept. \
                 It will not be carried out again."
            }
            Self::OutcomeUnknown(OnAmbiguous::Hold) => {
                "The request with this Idempotency-Key was sent to the application, and whether it took effect is not \
                 known. It will not be carried out again until the operator has resolved it."
            }
            Self::OutcomeUnknown(OnAmbiguous::Retry) => {
                "The request with this Idempotency-Key was sent to the application, and whether it took effect is not \
                 known. Repeat it with the same key: the application is asked again."
            }
            Self::Unreachable => "Nothing was sent. The key is not used up: repeat the request.",
            Self::Unavailable => {
                "This request was not forwarded. What became of an earlier one with this key cannot be said at the moment: \
                 repeat it after Retry-After with the same key, and with no other."
            }
            Self::Overloaded => "This request was not forwarded. Repeat it after Retry-After with the same key.",
            Self::NotRecorded => {
                "The request was carried out, and its answer could not be recorded in time. Repeat it later \
                 with the same key, and with no other: it is not carried out again."
            }
        };
        fixed.to_owned()
    }

    const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Outstanding | Self::OutcomeUnknown(OnAmbiguous::Retry) => Some(SOON),
            Self::Unavailable | Self::Overloaded => Some(LATER),
            _ => None,
        }
    }

    /// Whether the rest of the request is not worth waiting for.
    const fn closes(&self) -> bool {
        matches!(self, Self::BodyTooSlow | Self::BodyTooLarge | Self::BodyIncomplete)
    }

    /// The answer.
    pub fn response(&self) -> Response<Bytes> {
        let mut response = problem::render(self.status(), self.word(), self.title(), Some(&self.detail()));
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs()));
        }
        if self.closes() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Problem; 13] = [
        Problem::KeyMissing,
        Problem::KeyMalformed(KeyError::BadQuotes),
        Problem::NoCaller(ScopeError::Missing(String::new())),
        Problem::BodyIncomplete,
        Problem::BodyTooSlow,
        Problem::BodyTooLarge,
        Problem::KeyReused,
        Problem::Outstanding,
        Problem::NotStored,
        Problem::OutcomeUnknown(OnAmbiguous::Hold),
        Problem::Unreachable,
        Problem::Unavailable,
        Problem::Overloaded,
    ];

    #[test]
    fn a_problem_says_its_case_in_type_status_and_title() {
        let mut types = std::collections::BTreeSet::new();
        for problem in ALL {
            let response = problem.response();
            assert_eq!(response.headers()["content-type"], "application/problem+json");
            let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(body["status"], response.status().as_u16());
            assert!(!body["detail"].as_str().unwrap().is_empty());
            types.insert(body["type"].as_str().unwrap().to_owned());
        }
        assert_eq!(types.len(), ALL.len());
    }

    #[test]
    fn the_titles_of_the_draft_are_used() {
        let title = |problem: Problem| {
            let body: serde_json::Value = serde_json::from_slice(problem.response().body()).unwrap();
            body["title"].as_str().unwrap().to_owned()
        };
        assert_eq!(title(Problem::KeyMissing), "Idempotency-Key is missing");
        assert_eq!(title(Problem::KeyReused), "Idempotency-Key is already used");
        assert_eq!(
            title(Problem::Outstanding),
            "A request is outstanding for this Idempotency-Key"
        );
    }

    #[test]
    fn who_may_come_back_is_told_when() {
        let waits = |problem: Problem| problem.response().headers().contains_key("retry-after");
        assert!(waits(Problem::Outstanding) && waits(Problem::Unavailable));
        // A client that repeats these by itself would never get anything else.
        assert!(
            !waits(Problem::OutcomeUnknown(OnAmbiguous::Hold))
                && !waits(Problem::KeyReused)
                && !waits(Problem::NotStored)
        );
    }
}
