//! The message of an attempt: the stored request with what DESIGN section 4 adds and replaces, and nothing else (P4).

use bytes::Bytes;
use data_encoding::HEXLOWER;
use http::header::{self, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, Uri};
use http_body_util::Full;
use sha2::{Digest, Sha256};

use crate::headers::{self, plain_value as value};
use crate::store::model::LeasedDispatch;

/// The body of an attempt: the stored bytes, shared, not copied.
pub type Body = Full<Bytes>;

const EVENT_ID: HeaderName = HeaderName::from_static("hooksluice-event-id");
const SOURCE: HeaderName = HeaderName::from_static("hooksluice-source");
const DELIVERY_ID: HeaderName = HeaderName::from_static("hooksluice-delivery-id");
const ATTEMPT: HeaderName = HeaderName::from_static("hooksluice-attempt");
const RECEIVED_AT: HeaderName = HeaderName::from_static("hooksluice-received-at");
const SCOPE: HeaderName = HeaderName::from_static("hooksluice-scope");
const REPLAY: HeaderName = HeaderName::from_static("hooksluice-replay");
const VERIFIED: HeaderName = HeaderName::from_static("hooksluice-verified");

/// Longest value of `Hooksluice-Delivery-Id`, in bytes as sent. A provider's id may be as long as its body, while apps
/// refuse heads over some KiB (431), and would refuse this one for ever.
pub const DELIVERY_ID_MAX: usize = 1024;

/// What the configuration says about messages to an upstream.
#[derive(Clone, Debug)]
pub struct Envelope {
    host: HeaderValue,
    preserve_host: bool,
}

impl Envelope {
    /// For the upstream at `origin`, of which only host and port are used.
    pub fn new(origin: &Uri, preserve_host: bool) -> Self {
        Self {
            host: headers::host_of(origin),
            preserve_host,
        }
    }

    /// The request to send for `dispatch`. `target` replaces the received path and query (`forward_path`); `signature`
    /// replaces headers of the same names.
    ///
    /// Method, target, body and each header's values, with their number and order, are the stored ones. The target is
    /// never joined to a URL, so it cannot change where the request goes.
    pub fn request(
        &self,
        dispatch: &LeasedDispatch,
        target: Option<&PathAndQuery>,
        signature: Vec<(HeaderName, HeaderValue)>,
    ) -> Request<Body> {
        let event = &dispatch.event;
        let mut headers = event.headers.clone();
        headers.reserve(12);

        let host = match &event.authority {
            Some(authority) if self.preserve_host => value(authority),
            _ => self.host.clone(),
        };
        headers.insert(header::HOST, host);
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(event.body.len()));
        headers.remove(header::TRANSFER_ENCODING);
        headers::add_forwarded(&mut headers, event.client, event.authority.as_deref());

        for (name, value) in signature {
            headers.insert(name, value);
        }

        headers.insert(EVENT_ID, value(&event.id.to_string()));
        headers.insert(SOURCE, value(event.source.as_str()));
        headers.insert(ATTEMPT, HeaderValue::from(dispatch.attempt));
        headers.insert(RECEIVED_AT, value(&event.received_at.to_string()));
        if let Some(id) = &event.delivery_id {
            headers.insert(DELIVERY_ID, delivery_id(id));
        }
        if let Some(scope) = &event.scope {
            headers.insert(SCOPE, value(scope));
        }
        if dispatch.replay {
            headers.insert(REPLAY, HeaderValue::from_static("true"));
        }
        if !event.verified {
            headers.insert(VERIFIED, HeaderValue::from_static("false"));
        }

        let mut request = Request::new(Full::new(event.body.clone()));
        *request.method_mut() = event.method.clone();
        *request.uri_mut() = Uri::from(target.unwrap_or(&event.target).clone());
        *request.headers_mut() = headers;
        request
    }
}

/// The id as a header value, or, when that would be longer than [`DELIVERY_ID_MAX`], `sha256:` and the SHA-256 of the id
/// in lower-case hex: still the same for the same id.
fn delivery_id(id: &str) -> HeaderValue {
    // Encoding shortens nothing, so a huge id need not be encoded first.
    if id.len() <= DELIVERY_ID_MAX {
        let plain = value(id);
        if plain.len() <= DELIVERY_ID_MAX {
            return plain;
        }
    }
    value(&format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(id))))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;
    use std::time::Duration;

    use http::{HeaderMap, Method};

    use super::*;
    use crate::id::{EventId, LeaseToken, Position, SourceName, UpstreamName};
    use crate::store::model::StoredEvent;
    use crate::time::Timestamp;

    fn dispatch(change: impl FnOnce(&mut StoredEvent)) -> LeasedDispatch {
        let received_at = Timestamp::from_millis(1_700_000_000_123);
        let mut event = StoredEvent {
            id: EventId::embedded(received_at, Position::new(7).unwrap(), 1),
            source: SourceName::new("stripe"),
            scope: None,
            secret_label: None,
            delivery_id: Some("evt_1".to_owned()),
            event_type: None,
            verified: true,
            awaited: false,
            received_at,
            method: Method::POST,
            target: PathAndQuery::from_static("/webhooks/stripe?a=%2f&b"),
            authority: Some("hooks.example.test".to_owned()),
            client: IpAddr::from([203, 0, 113, 9]),
            headers: HeaderMap::new(),
            body: Bytes::from_static(b"\xff\x00{}"),
        };
        change(&mut event);
        LeasedDispatch {
            event: Arc::new(event),
            upstream: UpstreamName::new("app"),
            attempt: 3,
            replay: false,
            clock_started_at: received_at,
            clock_stopped_before: Duration::ZERO,
            attempts_on_clock: 3,
            token: LeaseToken::new(1),
            give_back: None,
        }
    }

    fn envelope() -> Envelope {
        Envelope::new(&Uri::from_static("http://127.0.0.1:9000"), false)
    }

    fn send(change: impl FnOnce(&mut StoredEvent)) -> Request<Body> {
        envelope().request(&dispatch(change), None, Vec::new())
    }

    fn lines(request: &Request<Body>, name: &str) -> Vec<String> {
        let values = request.headers().get_all(name).iter();
        values
            .map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn the_stored_headers_go_on_with_their_bytes_number_and_order() {
        let request = send(|event| {
            for value in [b"\xd1\x82".as_slice(), b"", b"\xff", b"a"] {
                event.headers.append("x-note", HeaderValue::from_bytes(value).unwrap());
            }
            event.headers.append("accept", HeaderValue::from_static("*/*"));
        });
        let notes: Vec<_> = request
            .headers()
            .get_all("x-note")
            .iter()
            .map(HeaderValue::as_bytes)
            .collect();
        assert_eq!(notes, [b"\xd1\x82".as_slice(), b"", b"\xff", b"a"]);
        assert_eq!(lines(&request, "accept"), ["*/*"]);
    }

    #[test]
    fn our_headers_are_added() {
        let request = send(|_| {});
        for (name, expected) in [
            ("hooksluice-event-id", "018bcfe5-687b-7000-8001-000000000007"),
            ("hooksluice-source", "stripe"),
            ("hooksluice-delivery-id", "evt_1"),
            ("hooksluice-attempt", "3"),
            ("hooksluice-received-at", "2023-11-14T22:13:20.123Z"),
            ("content-length", "4"),
            ("host", "127.0.0.1:9000"),
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "hooks.example.test"),
        ] {
            assert_eq!(lines(&request, name), [expected], "{name}");
        }
        for name in ["hooksluice-scope", "hooksluice-replay", "hooksluice-verified"] {
            assert!(lines(&request, name).is_empty(), "{name}");
        }
        assert_eq!(request.uri(), "/webhooks/stripe?a=%2f&b");
    }

    #[test]
    fn a_replay_a_scope_and_an_unverified_event_are_marked() {
        let mut dispatch = dispatch(|event| {
            event.scope = Some("connect".to_owned());
            event.verified = false;
        });
        dispatch.replay = true;
        let request = envelope().request(&dispatch, None, Vec::new());
        assert_eq!(lines(&request, "hooksluice-scope"), ["connect"]);
        assert_eq!(lines(&request, "hooksluice-verified"), ["false"]);
        assert_eq!(lines(&request, "hooksluice-replay"), ["true"]);
    }

    #[test]
    fn a_delivery_id_that_is_no_header_value_is_percent_encoded() {
        for (id, expected) in [
            ("evt 1", "evt 1"),
            ("50%", "50%"),
            ("a\r\nX-Evil: 1", "a%0D%0AX-Evil:%201"),
            ("\u{442} 50%", "%D1%82%2050%25"),
            (" a", "%20a"),
            ("a ", "a%20"),
            ("a\tb", "a%09b"),
        ] {
            let request = send(|event| event.delivery_id = Some(id.to_owned()));
            assert_eq!(lines(&request, "hooksluice-delivery-id"), [expected], "{id:?}");
        }
    }

    #[test]
    fn a_delivery_id_too_long_for_a_header_is_replaced_by_its_digest() {
        let sent = |id: String| lines(&send(|event| event.delivery_id = Some(id)), "hooksluice-delivery-id");
        let longest = "a".repeat(DELIVERY_ID_MAX);
        assert_eq!(sent(longest.clone()), [longest]);
        // By another implementation: `printf 'a%.0s' {1..1025} | sha256sum`.
        assert_eq!(
            sent("a".repeat(DELIVERY_ID_MAX + 1)),
            ["sha256:4a82297889eb505cf6b5cbdf69977afab4632d6557539782f657bd7dc78091a5"]
        );
        // What counts is the length as sent: each of these takes six bytes.
        let encoded = sent("\u{442}".repeat(171));
        assert_eq!(
            encoded,
            ["sha256:3280efc14e03d1c7f48d14569c99b7f9fa082edea0cdfd4ecc2559e5a2d2d1c5"]
        );
        assert_eq!(sent("\u{442}".repeat(170)), ["%D1%82".repeat(170)]);
    }

    #[test]
    fn there_is_exactly_one_content_length_and_it_is_ours() {
        let request = send(|event| {
            event.headers.append("content-length", HeaderValue::from_static("9"));
            event.headers.append("content-length", HeaderValue::from_static("10"));
            event
                .headers
                .append("transfer-encoding", HeaderValue::from_static("chunked"));
            event.body = Bytes::new();
        });
        assert_eq!(lines(&request, "content-length"), ["0"]);
        assert!(lines(&request, "transfer-encoding").is_empty());
    }

    #[test]
    fn what_a_trusted_proxy_said_goes_on_as_it_is() {
        let said = [
            ("x-forwarded-for", "198.51.100.1, 10.0.0.1"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "public.test"),
        ];
        let request = send(|event| {
            for (name, value) in said {
                event.headers.append(name, HeaderValue::from_static(value));
            }
        });
        for (name, value) in said {
            assert_eq!(lines(&request, name), [value]);
        }
    }

    #[test]
    fn host_is_the_upstreams_unless_preserved() {
        let stored = |event: &mut StoredEvent| {
            event
                .headers
                .insert("host", HeaderValue::from_static("hooks.example.test"));
        };
        for (origin, preserve, expected) in [
            ("http://127.0.0.1:9000", false, "127.0.0.1:9000"),
            ("http://app:80", false, "app"),
            ("http://app", false, "app"),
            ("http://user:pass@app:81", false, "app:81"),
            ("http://[::1]:3000", false, "[::1]:3000"),
            ("http://127.0.0.1:9000", true, "hooks.example.test"),
        ] {
            let envelope = Envelope::new(&origin.parse().unwrap(), preserve);
            let request = envelope.request(&dispatch(stored), None, Vec::new());
            assert_eq!(lines(&request, "host"), [expected], "{origin}");
        }
    }

    #[test]
    fn no_target_changes_where_the_request_goes() {
        for target in [
            "//evil.test/x",
            "/http://evil.test/x",
            "/@evil.test",
            "/a/../b",
            "/?http://evil.test",
        ] {
            let request = send(|event| event.target = target.parse().unwrap());
            assert_eq!(request.uri().authority(), None, "{target}");
            assert_eq!(request.uri().path_and_query().map(PathAndQuery::as_str), Some(target));
        }
    }

    #[test]
    fn forward_path_and_fresh_signatures_replace_the_received_ones() {
        let dispatch = dispatch(|event| {
            event.headers.append("x-sig", HeaderValue::from_static("old"));
            event.headers.append("x-sig", HeaderValue::from_static("older"));
        });
        let fresh = vec![(HeaderName::from_static("x-sig"), HeaderValue::from_static("new"))];
        let target = PathAndQuery::from_static("/hooks");
        let request = envelope().request(&dispatch, Some(&target), fresh);
        assert_eq!(lines(&request, "x-sig"), ["new"]);
        assert_eq!(request.uri(), "/hooks");
    }
}
