//! Answers of ours to requests of routes: `application/problem+json` (RFC 9457) with a stable `type` for each case.
//!
//! A `detail` says what the client can do, never why the upstream failed: that is for the log.

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;

/// What every `type` begins with.
const TYPES: &str = "urn:hooksluice:problem:";

/// A case, with what is said about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Status of the answer.
    pub status: StatusCode,
    /// The end of `type`: lower-case words with hyphens, stable.
    pub name: &'static str,
    /// The same for every answer of this type.
    pub title: &'static str,
    /// What is said beside it, if anything.
    pub detail: Option<&'static str>,
}

const fn problem(status: StatusCode, name: &'static str, title: &'static str) -> Problem {
    Problem {
        status,
        name,
        title,
        detail: None,
    }
}

/// The upstream could not be reached: nothing was sent.
pub const UNREACHABLE: Problem = problem(
    StatusCode::BAD_GATEWAY,
    "upstream-unreachable",
    "The upstream could not be reached",
);
/// The upstream ended the connection, or what it sent is no answer.
pub const BROKEN: Problem = problem(
    StatusCode::BAD_GATEWAY,
    "upstream-answer-broken",
    "The upstream gave no valid answer",
);
/// The upstream did not answer in time.
pub const TIMEOUT: Problem = problem(
    StatusCode::GATEWAY_TIMEOUT,
    "upstream-timeout",
    "The upstream did not answer in time",
);
/// The client did not send its body in time.
pub const TOO_SLOW: Problem = problem(
    StatusCode::REQUEST_TIMEOUT,
    "request-body-timeout",
    "The request's body did not arrive in time",
);
/// The body is over the route's `max_body`.
pub const TOO_LARGE: Problem = problem(
    StatusCode::PAYLOAD_TOO_LARGE,
    "request-body-too-large",
    "The request's body is too large",
);
/// The body ended early, or its framing is broken.
pub const BODY_BROKEN: Problem = problem(
    StatusCode::BAD_REQUEST,
    "request-body-broken",
    "The request's body is incomplete or malformed",
);
/// The path has dot segments.
pub const DOT_SEGMENTS: Problem = problem(
    StatusCode::BAD_REQUEST,
    "dot-segments",
    "The path has dot segments, which clients remove before they send",
);
/// The path is longer than any that is looked at.
pub const PATH_TOO_LONG: Problem = problem(StatusCode::URI_TOO_LONG, "path-too-long", "The path is too long");
/// A request for a WebSocket that is not one of RFC 6455.
pub const NO_WEBSOCKET: Problem = problem(
    StatusCode::BAD_REQUEST,
    "bad-websocket-handshake",
    "The request is not a valid WebSocket handshake",
);
/// A WebSocket of another version.
pub const WEBSOCKET_VERSION: Problem = problem(
    StatusCode::UPGRADE_REQUIRED,
    "websocket-version",
    "Only version 13 of the WebSocket protocol is supported",
);

impl Problem {
    /// With something to say about this one.
    #[must_use]
    pub const fn detail(self, detail: &'static str) -> Self {
        Self {
            detail: Some(detail),
            ..self
        }
    }

    /// The answer.
    pub fn response(self) -> Response<Full<Bytes>> {
        render(self.status, self.name, self.title, self.detail).map(Full::new)
    }
}

/// An answer of this kind: `name` is the end of its `type`.
pub fn render(status: StatusCode, name: &str, title: &str, detail: Option<&str>) -> Response<Bytes> {
    let mut members = serde_json::Map::new();
    members.insert("type".to_owned(), format!("{TYPES}{name}").into());
    members.insert("title".to_owned(), title.into());
    members.insert("status".to_owned(), status.as_u16().into());
    if let Some(detail) = detail {
        members.insert("detail".to_owned(), detail.into());
    }
    let mut response = Response::new(Bytes::from(serde_json::Value::Object(members).to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    // Of this moment: a cache that kept it would answer for what has changed since.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_its_type_title_and_status() {
        let response = TIMEOUT.detail("Try again.").response();
        assert_eq!(response.status(), 504);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let body = format!("{:?}", response.into_body());
        for part in ["urn:hooksluice:problem:upstream-timeout", "504", "Try again."] {
            assert!(body.contains(part), "{part} in {body}");
        }
    }
}
