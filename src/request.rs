//! [`RawRequest`]: one inbound HTTP request as it came, not yet trusted (P4).

use std::net::IpAddr;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri, header};

use crate::time::Timestamp;

/// Everything before the body.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// The method as received.
    pub method: Method,
    /// Path and query, byte for byte as received. Of an absolute-form target only these parts are kept.
    pub target: PathAndQuery,
    /// The host the client asked for: `Host`, or `:authority` of HTTP/2, or the authority of an absolute-form target.
    pub authority: Option<String>,
    /// All header lines; values are opaque octets.
    pub headers: HeaderMap,
    /// The client's address (the peer's, or what a trusted proxy says).
    pub client: IpAddr,
    /// When the head was complete. Freshness of signatures is judged by this, once.
    pub received_at: Timestamp,
}

/// A whole request: exact body bytes, never decoded or re-printed.
#[derive(Clone, Debug)]
pub struct RawRequest {
    /// Everything before the body.
    pub head: RequestHead,
    /// The body's bytes, with transfer coding (framing) removed and nothing else.
    pub body: Bytes,
}

/// The host the client asked for: of an absolute-form target or `:authority`, else `Host`.
pub fn authority(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    match uri.authority() {
        Some(authority) => Some(authority.as_str().to_owned()),
        None => headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok())
            .map(str::to_owned),
    }
}
