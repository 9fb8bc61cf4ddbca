//! What changes in a message between a client and the upstream of a route: hop-by-hop headers, forwarding headers,
//! `Host`, framing. Nothing else does (P4).

use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, StatusCode, Uri, Version, request, response};
use hyper::body::Body;

use crate::headers;
use crate::net::connections::Protocol;
use crate::routes::shadow::Shadow;

const TRAILERS: &str = "trailers";

/// What only a trusted proxy may say, because frameworks route by it instead of by the path, or take it for the client's
/// address.
const ROUTING: [&str; 25] = [
    "x-original-url",
    "x-original-uri",
    "x-original-path",
    "x-rewrite-url",
    "x-envoy-original-path",
    "x-forwarded-prefix",
    "x-forwarded-path",
    "x-forwarded-uri",
    "x-forwarded-server",
    "x-forwarded-scheme",
    "x-forwarded-ssl",
    "x-script-name",
    "script-name",
    "path-info",
    "x-real-ip",
    "client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-remote-addr",
    "forwarded-for",
    "x-forwarded-protocol",
    "x-forwarded-url",
    "x-original-host",
    "x-url-scheme",
    "front-end-https",
];

/// Those of them that carry a whole path. A proxy that is trusted may pass on what its client sent, so what names a
/// source goes from everyone.
const PATHS: [&str; 8] = [
    "x-original-url",
    "x-original-uri",
    "x-original-path",
    "x-rewrite-url",
    "x-envoy-original-path",
    "x-forwarded-path",
    "x-forwarded-uri",
    "x-forwarded-url",
];

/// Names that some app servers fold onto one of ours or the framing's when they are written with `_` for `-`. Nobody
/// sends these for a good reason.
const FOLDED: [&str; 10] = [
    "idempotency-key",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "content-length",
    "transfer-encoding",
    "x-real-ip",
    "x-original-url",
    "x-rewrite-url",
];

/// Who sent a request, as far as its forwarding headers can be believed.
#[derive(Clone, Debug)]
pub struct Sender {
    /// The client's address.
    pub client: IpAddr,
    /// The host that it asked for.
    pub authority: Option<String>,
    /// Who it is by its connection's certificate, where it has shown one.
    pub certificate: Option<[u8; 32]>,
    /// Its peer is a trusted proxy.
    pub trusted: bool,
}

/// How long a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// There is none.
    None,
    /// So many bytes.
    Known(u64),
    /// As many as come.
    Unknown,
}

impl Length {
    /// Of this body.
    pub fn of(body: &impl Body) -> Self {
        if body.is_end_stream() {
            Self::None
        } else {
            body.size_hint().exact().map_or(Self::Unknown, Self::Known)
        }
    }
}

/// How an upstream wants to be spoken to.
#[derive(Clone, Debug)]
pub struct Envelope {
    host: HeaderValue,
    preserve_host: bool,
    protocol: Protocol,
}

impl Envelope {
    /// For the upstream at `origin`, of which only host and port are used.
    pub fn new(origin: &Uri, preserve_host: bool, protocol: Protocol) -> Self {
        Self {
            host: headers::host_of(origin),
            preserve_host,
            protocol,
        }
    }

    /// The head to send. The target is path and query as received, never joined to a URL, so it cannot change where the
    /// request goes (SC-05). Exactly one framing, computed from the body.
    pub fn outbound(&self, parts: request::Parts, sender: &Sender, length: Length) -> request::Parts {
        let (mut out, ()) = http::Request::new(()).into_parts();
        let mut headers = parts.headers;
        let had_length = headers.contains_key(header::CONTENT_LENGTH);
        let takes_trailers = self.protocol != Protocol::Http1 && takes_trailers(&headers);
        let announced = match length {
            Length::Unknown => announced_trailers(&headers),
            Length::None | Length::Known(_) => None,
        };

        headers::strip_untrusted(&mut headers);
        headers::strip(&mut headers, |name| misleads(name, sender.trusted));
        headers::add_forwarded(&mut headers, sender.client, sender.authority.as_deref());

        let host = match &sender.authority {
            Some(authority) if self.preserve_host => headers::plain_value(authority),
            _ => self.host.clone(),
        };
        headers.insert(header::HOST, host);
        headers.remove(header::CONTENT_LENGTH);
        match length {
            Length::None if had_length || means_something_by_a_body(&parts.method) => {
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
            }
            Length::None => {}
            Length::Known(bytes) => {
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
            }
            Length::Unknown if self.protocol == Protocol::Http1 => {
                headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
            Length::Unknown => {}
        }
        if let Some(announced) = announced {
            headers.insert(header::TRAILER, announced);
        }
        if takes_trailers {
            headers.insert(header::TE, HeaderValue::from_static(TRAILERS));
        }

        out.method = parts.method;
        out.uri = target(parts.uri);
        out.version = Version::HTTP_11;
        out.headers = headers;
        out
    }
}

/// Path and query alone, as they came.
fn target(uri: Uri) -> Uri {
    let target = uri.into_parts().path_and_query;
    Uri::from(target.unwrap_or_else(|| PathAndQuery::from_static("/")))
}

/// A body of these is expected, so that none is said to be empty (RFC 9110 section 8.6).
fn means_something_by_a_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

pub(super) fn misleads(name: &HeaderName, trusted: bool) -> bool {
    let name = name.as_str();
    if name.contains('_') {
        let folded = name.replace('_', "-");
        return FOLDED.contains(&folded.as_str()) || (!trusted && ROUTING.contains(&folded.as_str()));
    }
    // CGI makes `HTTP_PROXY` of it, which HTTP clients take for their proxy (httpoxy); `Proxy-*` is for one hop.
    if name.starts_with("proxy") {
        return name == "proxy" || name.starts_with("proxy-");
    }
    // The list is not looked through for what nearly all begin with.
    !trusted && name.starts_with(['x', 's', 'p', 'c', 'f']) && ROUTING.contains(&name)
}

/// Drops what tells the app to take the request for one to a source's path (P3).
pub fn drop_shadowed(headers: &mut HeaderMap, shadow: &Shadow) {
    for name in PATHS {
        let names_a_source = |value: &HeaderValue| shadow.named_by(value.as_bytes()).is_some();
        if headers.get_all(name).iter().any(names_a_source) {
            headers.remove(name);
        }
    }
}

/// Whether whoever sent these headers takes trailers (RFC 9110 section 10.1.4).
fn takes_trailers(headers: &HeaderMap) -> bool {
    tokens(headers, header::TE).any(|token| {
        let coding = token.split(';').next().unwrap_or_default();
        coding.trim().eq_ignore_ascii_case(TRAILERS)
    })
}

/// The names of trailers that were announced and may be passed on.
fn announced_trailers(headers: &HeaderMap) -> Option<HeaderValue> {
    let names = tokens(headers, header::TRAILER).filter_map(|token| token.parse::<HeaderName>().ok());
    let names: Vec<String> = names
        .filter(|name| !headers::is_no_trailer(name))
        .map(|name| name.to_string())
        .collect();
    if names.is_empty() {
        return None;
    }
    HeaderValue::try_from(names.join(", ")).ok()
}

/// The members of a comma-separated list over all of a name's lines.
pub(super) fn tokens(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// Makes an upstream's answer one of ours: hop-by-hop headers go, the length is the body's.
///
/// `bodiless`: the answer to a `HEAD`, whose length is that of the body which is not there.
pub fn inbound(parts: &mut response::Parts, length: Length, bodiless: bool) {
    let announced = match length {
        Length::Unknown => announced_trailers(&parts.headers),
        Length::None | Length::Known(_) => None,
    };
    headers::strip_hop_by_hop(&mut parts.headers);
    let said = parts.headers.remove(header::CONTENT_LENGTH);
    let length = match length {
        _ if parts.status == StatusCode::NO_CONTENT => None,
        _ if bodiless || parts.status == StatusCode::NOT_MODIFIED => {
            let said = said.as_ref().and_then(|said| said.to_str().ok());
            said.and_then(|said| said.split(',').next()?.trim().parse().ok())
        }
        Length::None => Some(0),
        Length::Known(bytes) => Some(bytes),
        Length::Unknown => None,
    };
    if let Some(bytes) = length {
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    }
    if let Some(announced) = announced {
        parts.headers.insert(header::TRAILER, announced);
    }
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(trusted: bool) -> Sender {
        Sender {
            client: IpAddr::from([203, 0, 113, 9]),
            authority: Some("shop.test".to_owned()),
            certificate: None,
            trusted,
        }
    }

    fn parts(method: &str, target: &str, lines: &[(&str, &[u8])]) -> request::Parts {
        let mut request = http::Request::builder().method(method).uri(target);
        for (name, value) in lines {
            request = request.header(*name, HeaderValue::from_bytes(value).unwrap());
        }
        request.body(()).unwrap().into_parts().0
    }

    fn envelope(protocol: Protocol) -> Envelope {
        Envelope::new(&Uri::from_static("http://127.0.0.1:9000"), false, protocol)
    }

    fn lines(headers: &HeaderMap, name: &str) -> Vec<Vec<u8>> {
        headers
            .get_all(name)
            .iter()
            .map(|value| value.as_bytes().to_vec())
            .collect()
    }

    fn send(given: &[(&str, &[u8])], length: Length) -> request::Parts {
        envelope(Protocol::Http1).outbound(parts("POST", "/x", given), &sender(false), length)
    }

    #[test]
    fn hop_by_hop_named_own_and_misleading_headers_stay_here() {
        let out = send(
            &[
                ("connection", b"close, X-Foo"),
                ("x-foo", b"1"),
                ("te", b"trailers"),
                ("upgrade", b"h2c"),
                ("http2-settings", b"x"),
                ("proxy-authorization", b"x"),
                ("expect", b"100-continue"),
                ("trailer", b"X-T"),
                ("hooksluice-event-id", b"x"),
                ("hooksluice_source", b"x"),
                ("x-original-url", b"/webhooks/stripe"),
                ("x-rewrite-url", b"/webhooks/stripe"),
                ("x_original_url", b"/webhooks/stripe"),
                ("script_name", b"/x"),
                ("path-info", b"/webhooks/stripe"),
                ("x_forwarded_for", b"10.0.0.1"),
                ("content_length", b"7"),
                ("x-kept", b"1"),
                ("x_kept", b"2"),
            ],
            Length::Known(3),
        );
        let names: Vec<&str> = out.headers.keys().map(HeaderName::as_str).collect();
        for name in [
            "x-kept",
            "x_kept",
            "host",
            "content-length",
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-forwarded-host",
        ] {
            assert!(names.contains(&name), "{name} in {names:?}");
        }
        assert_eq!(names.len(), 7, "{names:?}");
        assert_eq!(lines(&out.headers, "x-forwarded-for"), [b"203.0.113.9"]);
        assert_eq!(lines(&out.headers, "host"), [b"127.0.0.1:9000"]);
    }

    #[test]
    fn a_trusted_proxy_may_say_where_a_request_was_meant_to_go() {
        let given = parts(
            "GET",
            "/x",
            &[("x-original-url", b"/y"), ("x_forwarded_for", b"1.1.1.1")],
        );
        let out = envelope(Protocol::Http1).outbound(given, &sender(true), Length::None);
        assert_eq!(lines(&out.headers, "x-original-url"), [b"/y"]);
        assert!(lines(&out.headers, "x_forwarded_for").is_empty());
    }

    #[test]
    fn other_headers_keep_bytes_number_and_order() {
        let out = send(
            &[
                ("x-note", b"\xd1\x82"),
                ("x-note", b""),
                ("accept", b"*/*"),
                ("x-note", b"\xff"),
            ],
            Length::None,
        );
        assert_eq!(lines(&out.headers, "x-note"), [b"\xd1\x82".as_slice(), b"", b"\xff"]);
        assert_eq!(lines(&out.headers, "accept"), [b"*/*"]);
    }

    #[test]
    fn there_is_one_framing_and_it_is_computed() {
        for (length, content_length, transfer_encoding) in [
            (Length::None, Some("0"), None),
            (Length::Known(5), Some("5"), None),
            (Length::Unknown, None, Some("chunked")),
        ] {
            let out = send(
                &[
                    ("content-length", b"9"),
                    ("content-length", b"10"),
                    ("transfer-encoding", b"gzip"),
                ],
                length,
            );
            let one = |name: &str| -> Vec<String> {
                let found = lines(&out.headers, name);
                found
                    .into_iter()
                    .map(|value| String::from_utf8(value).unwrap())
                    .collect()
            };
            assert_eq!(one("content-length"), Vec::from_iter(content_length), "{length:?}");
            assert_eq!(
                one("transfer-encoding"),
                Vec::from_iter(transfer_encoding),
                "{length:?}"
            );
        }
        let get = envelope(Protocol::Http1).outbound(parts("GET", "/x", &[]), &sender(false), Length::None);
        assert!(lines(&get.headers, "content-length").is_empty());
    }

    #[test]
    fn trailers_are_announced_and_asked_for_only_where_they_can_come() {
        let given: &[(&str, &[u8])] = &[("trailer", b"X-Sum, Content-Length"), ("te", b"gzip;q=0.5, trailers")];
        let h1 = send(given, Length::Unknown);
        assert_eq!(lines(&h1.headers, "trailer"), [b"x-sum"]);
        assert!(lines(&h1.headers, "te").is_empty());
        let h2 = envelope(Protocol::H2c).outbound(parts("POST", "/x", given), &sender(false), Length::Unknown);
        assert_eq!(lines(&h2.headers, "te"), [b"trailers"]);
        assert!(lines(&h2.headers, "transfer-encoding").is_empty());
        assert!(lines(&send(given, Length::Known(1)).headers, "trailer").is_empty());
    }

    #[test]
    fn no_target_changes_where_the_request_goes() {
        for (target, path) in [
            ("http://evil.test/x?y", "/x?y"),
            ("http://evil.test", "/"),
            ("//evil.test/x", "//evil.test/x"),
            ("/http://evil.test/x", "/http://evil.test/x"),
            ("/@evil.test", "/@evil.test"),
            ("/\\evil.test", "/\\evil.test"),
            ("/api/%252e%252e/?a=%2f&b", "/api/%252e%252e/?a=%2f&b"),
        ] {
            let out = envelope(Protocol::Http1).outbound(parts("POST", target, &[]), &sender(false), Length::None);
            assert_eq!(out.uri.authority(), None, "{target}");
            assert_eq!(out.uri.to_string(), path, "{target}");
        }
    }

    #[test]
    fn host_is_the_upstreams_unless_preserved() {
        let envelope = Envelope::new(&Uri::from_static("http://app:3000"), true, Protocol::Http1);
        let out = envelope.outbound(
            parts("GET", "/", &[("host", b"shop.test")]),
            &sender(false),
            Length::None,
        );
        assert_eq!(lines(&out.headers, "host"), [b"shop.test"]);
        assert_eq!(lines(&out.headers, "x-forwarded-host"), [b"shop.test"]);
    }

    fn answer(status: u16, given: &[(&str, &str)], length: Length, bodiless: bool) -> response::Parts {
        let mut response = http::Response::builder().status(status).version(Version::HTTP_10);
        for (name, value) in given {
            response = response.header(*name, *value);
        }
        let (mut parts, ()) = response.body(()).unwrap().into_parts();
        inbound(&mut parts, length, bodiless);
        parts
    }

    #[test]
    fn an_answer_is_stripped_and_its_length_is_the_body_s() {
        let parts = answer(
            200,
            &[
                ("connection", "X-Foo"),
                ("x-foo", "1"),
                ("keep-alive", "timeout=5"),
                ("transfer-encoding", "chunked"),
                ("upgrade", "h2c"),
                ("trailer", "Grpc-Status"),
                ("set-cookie", "a=1"),
                ("set-cookie", "b=2"),
            ],
            Length::Unknown,
            false,
        );
        assert_eq!(lines(&parts.headers, "set-cookie"), [b"a=1", b"b=2"]);
        assert_eq!(lines(&parts.headers, "trailer"), [b"grpc-status"]);
        assert_eq!(parts.headers.len(), 3);
        assert_eq!(parts.version, Version::HTTP_11);
    }

    #[test]
    fn a_body_that_is_not_there_keeps_its_length() {
        for (status, length, bodiless, expected) in [
            (200, Length::None, true, vec!["10"]),
            (304, Length::None, false, vec!["10"]),
            (204, Length::None, false, vec![]),
            (200, Length::None, false, vec!["0"]),
            (200, Length::Known(7), false, vec!["7"]),
            (200, Length::Unknown, false, vec![]),
        ] {
            let parts = answer(
                status,
                &[("content-length", "10"), ("content-length", "10")],
                length,
                bodiless,
            );
            let found: Vec<_> = parts.headers.get_all("content-length").iter().collect();
            assert_eq!(found, expected, "{status} {length:?}");
        }
    }
}
