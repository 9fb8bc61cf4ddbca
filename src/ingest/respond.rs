//! Answers of a source: the one table from what happened to a status (DESIGN section 3).
//!
//! A 2xx for an event is made by [`accepted`] from a receipt, one for a hand-shake by [`challenge`], and what an upstream
//! said to an event that is durable is given on by [`waited`]; nothing else acknowledges (P1). Never a 3xx of our own. A refusal tells the sender its status and nothing more (P5).

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode, Version};
use http_body_util::Full;

use crate::forward::answer::Answered;
use crate::ingest::body::BodyRefused;
use crate::ingest::clients::NotTaken;
use crate::ingest::source::Source;
use crate::learn::NotLearned;
use crate::request::{RawRequest, RequestHead};
use crate::store::model::{AppendError, Receipt};
use crate::telemetry::metrics::Failure;
use crate::verify::{ChallengeAnswer, Reason};

const DUPLICATE: HeaderName = HeaderName::from_static("hooksluice-duplicate");

/// After how long a sender should come back when we have failed it.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why a request to a source was not accepted.
#[derive(Debug)]
pub enum Refusal {
    /// The provider does not deliver with this method (405).
    Method,
    /// Refused by a check.
    Rejected(Reason),
    /// Its client's certificate is not one that the source takes.
    Client(NotTaken),
    /// Its signature does not hold; the request is kept for the log to find the likely cause.
    Unverified(Reason, Box<RawRequest>),
    /// The body was not taken.
    Body(BodyRefused),
    /// Over the source's inbound rate (429).
    RateLimited {
        /// When a request fits again.
        wait: Duration,
    },
    /// It hands over a secret, or may, which is not taken (401), or could not be kept (503).
    NotLearned(NotLearned),
    /// The provider's key, which would judge it, could not be fetched (503).
    NoKey,
    /// The store did not take it (503).
    Store(AppendError),
    /// The store did not answer while the sender could still wait (503).
    StoreTooSlow,
}

impl From<AppendError> for Refusal {
    fn from(error: AppendError) -> Self {
        Self::Store(error)
    }
}

impl Refusal {
    /// The bound or part of ours that was at its end, unless the sender is at fault.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Self::Method
            | Self::Rejected(_)
            | Self::Client(_)
            | Self::Unverified(..)
            | Self::Body(BodyRefused::TooLarge) => None,
            Self::NotLearned(NotLearned::NotKept) => Some(Failure::SecretNotKept),
            Self::NotLearned(_) => None,
            Self::Body(BodyRefused::TooSlow) => Some(Failure::TooSlow),
            Self::Body(BodyRefused::Incomplete) => Some(Failure::Incomplete),
            Self::Body(BodyRefused::Overloaded) => Some(Failure::Overloaded),
            Self::RateLimited { .. } => Some(Failure::RateLimited),
            Self::NoKey => Some(Failure::KeyUnavailable),
            Self::Store(AppendError::DiskBudget) => Some(Failure::DiskBudget),
            Self::Store(AppendError::Failed(_)) | Self::StoreTooSlow => Some(Failure::StoreFailed),
            Self::Store(AppendError::Closing) => Some(Failure::Closing),
            Self::Store(AppendError::Overloaded) => Some(Failure::Overloaded),
        }
    }

    /// The reason to count a rejection under; asked only where [`Refusal::failure`] has none.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Rejected(reason) | Self::Unverified(reason, _) => *reason,
            // The catalogue has one word for "not from there".
            Self::Client(_) => Reason::AddressNotAllowed,
            Self::NotLearned(why) => why.reason(),
            _ => Reason::TooLarge,
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Rejected(reason) | Self::Unverified(reason, _) => match reason {
                Reason::MissingSignature
                | Reason::MalformedSignature
                | Reason::WrongSignature
                | Reason::MissingTimestamp
                | Reason::MalformedTimestamp
                | Reason::Stale
                | Reason::FromTheFuture => StatusCode::UNAUTHORIZED,
                Reason::MissingId | Reason::BodyMalformed => StatusCode::BAD_REQUEST,
                Reason::AddressNotAllowed => StatusCode::FORBIDDEN,
                Reason::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                Reason::TooSlow => StatusCode::REQUEST_TIMEOUT,
            },
            Self::Client(_) => StatusCode::FORBIDDEN,
            Self::Body(BodyRefused::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(BodyRefused::TooSlow) => StatusCode::REQUEST_TIMEOUT,
            Self::Body(BodyRefused::Incomplete) => StatusCode::BAD_REQUEST,
            Self::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Body(BodyRefused::Overloaded)
            | Self::NotLearned(NotLearned::NotKept)
            | Self::NoKey
            | Self::Store(_)
            | Self::StoreTooSlow => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotLearned(_) => StatusCode::UNAUTHORIZED,
        }
    }
}

/// The acknowledgement of an event; there is none without a receipt.
#[derive(Debug)]
pub struct Accepted<'s> {
    receipt: Receipt,
    source: &'s Source,
}

impl<'s> Accepted<'s> {
    /// The source's acknowledgement for this receipt.
    pub fn new(receipt: Receipt, source: &'s Source) -> Self {
        Self { receipt, source }
    }
}

/// 200 (or the source's own): stored and synced, or a duplicate of what is. Both look the same to the sender but for
/// one header.
pub fn accepted(accepted: &Accepted<'_>) -> Response<Full<Bytes>> {
    let mut response = plain(accepted.source.ack_status, accepted.source.ack_body.clone());
    if accepted.receipt.is_duplicate() {
        response
            .headers_mut()
            .insert(DUPLICATE, HeaderValue::from_static("true"));
    }
    response
}

/// What the upstream said, to a sender that waited for it: the one way to a 3xx. A duplicate is marked. What could not be
/// kept whole is nobody's: 502, since the upstream has acted and a further attempt would make it act again.
pub fn waited(answered: Answered, receipt: Receipt, source: &Source) -> Response<Full<Bytes>> {
    let (reply, is_duplicate) = match answered {
        Answered::Relayed(reply) => (reply, false),
        Answered::Kept(reply) => (reply, true),
        Answered::Over => {
            let receipt = Receipt::duplicate_of(receipt.event());
            return accepted(&Accepted::new(receipt, source));
        }
        Answered::Not(_) => {
            let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, Bytes::new());
            retry_after(&mut response, RETRY_AFTER);
            return response;
        }
    };
    let mut response = match reply.body {
        Some(body) => {
            let mut response = plain(reply.status, body);
            *response.headers_mut() = reply.headers;
            response
        }
        None => plain(StatusCode::BAD_GATEWAY, Bytes::new()),
    };
    if is_duplicate {
        response
            .headers_mut()
            .insert(DUPLICATE, HeaderValue::from_static("true"));
    }
    response
}

/// The answer to a provider's hand-shake.
pub fn challenge(answer: ChallengeAnswer) -> Response<Full<Bytes>> {
    let mut response = plain(answer.status, answer.body);
    *response.headers_mut() = answer.headers;
    response
}

/// `HEAD` and `OPTIONS` on every source, and `GET` where the provider probes with it: harmless, nothing is stored.
pub fn probe(source: &Source, head: &RequestHead) -> Option<Response<Full<Bytes>>> {
    let delivers = source.methods.contains(&head.method);
    if head.method == Method::HEAD || (head.method == Method::GET && source.get_probe && !delivers) {
        return Some(plain(StatusCode::OK, Bytes::new()));
    }
    if head.method == Method::OPTIONS && !delivers {
        let mut response = plain(StatusCode::NO_CONTENT, Bytes::new());
        response.headers_mut().insert(header::ALLOW, allow(source));
        return Some(response);
    }
    None
}

/// The refusal's status, its `Allow` or `Retry-After`, and an empty body.
pub fn refused(refusal: &Refusal, source: &Source) -> Response<Full<Bytes>> {
    let status = refusal.status();
    let mut response = plain(status, Bytes::new());
    let headers = response.headers_mut();
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, allow(source));
    }
    let wait = match refusal {
        Refusal::RateLimited { wait } => Some(*wait),
        _ if status == StatusCode::SERVICE_UNAVAILABLE => Some(RETRY_AFTER),
        _ => None,
    };
    if matches!(status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT) {
        // What is left of the body is not worth waiting for.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(wait) = wait {
        retry_after(&mut response, wait);
    }
    response
}

/// Rounded up: coming back early would only be refused again.
fn retry_after(response: &mut Response<Full<Bytes>>, wait: Duration) {
    let seconds = wait.as_millis().div_ceil(1000).max(1);
    if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
}

/// Requests that no origin server answers otherwise, whatever their path: `CONNECT`, and HTTP/1.1 without exactly one
/// `Host` (RFC 9112 section 3.2).
pub fn not_for_an_origin(parts: &http::request::Parts) -> Option<Response<Full<Bytes>>> {
    if parts.method == Method::CONNECT {
        return Some(plain(StatusCode::METHOD_NOT_ALLOWED, Bytes::new()));
    }
    let hosts = parts.headers.get_all(header::HOST).iter().count();
    let one = match parts.version {
        Version::HTTP_11 => hosts == 1,
        _ => hosts <= 1,
    };
    if one {
        return None;
    }
    let mut response = plain(StatusCode::BAD_REQUEST, Bytes::new());
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
    Some(response)
}

/// No source has this path.
pub fn not_found() -> Response<Full<Bytes>> {
    plain(StatusCode::NOT_FOUND, Bytes::new())
}

/// For load balancers that see only the public listener.
pub fn health(ready: bool) -> Response<Full<Bytes>> {
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    plain(status, Bytes::new())
}

fn plain(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response
}

fn allow(source: &Source) -> HeaderValue {
    let mut methods: Vec<&str> = source.methods.iter().map(Method::as_str).collect();
    methods.extend(["HEAD", "OPTIONS"]);
    if source.get_probe && !methods.contains(&"GET") {
        methods.push("GET");
    }
    HeaderValue::from_str(&methods.join(", ")).unwrap_or_else(|_| HeaderValue::from_static("POST"))
}
