//! Header lists: what is dropped on the way in, how a list is stored, and what people may see of it.

use std::net::IpAddr;

use bytes::{Buf, BufMut, Bytes};
use http::Uri;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// What a header value that we make cannot carry as it is. `%` too, so that it can be decoded again.
const NOT_IN_A_VALUE: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// Headers that speak of one connection only (RFC 9110 section 7.6.1), with the historical ones that real proxies and
/// clients still send.
const HOP_BY_HOP: [&str; 11] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "expect",
];

/// Removes hop-by-hop headers, those that `Connection` names, and any `Hooksluice-*` or `Hooksluice_*` from outside
/// (some app servers fold `_` and `-` into one name).
///
/// Called after verification: a header that the signature covers cannot be taken away by naming it in `Connection`.
pub fn strip_untrusted(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    strip_own(headers);
}

/// Removes hop-by-hop headers and those that `Connection` names.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    for name in named {
        headers.remove(name);
    }
}

/// Removes any `Hooksluice-*` or `Hooksluice_*`.
pub fn strip_own(headers: &mut HeaderMap) {
    strip(headers, is_own);
}

/// Removes every header whose name is of this kind.
pub fn strip(headers: &mut HeaderMap, kind: impl Fn(&HeaderName) -> bool) {
    let found: Vec<HeaderName> = headers.keys().filter(|name| kind(name)).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

/// Removes from trailers what must not stand there: framing, routing, authentication and what changes how a message is
/// read (RFC 9110 section 6.5.1), and our own names.
pub fn strip_trailers(trailers: &mut HeaderMap) {
    strip(trailers, is_no_trailer);
}

/// Whether a trailer must not have this name.
pub fn is_no_trailer(name: &HeaderName) -> bool {
    let name = name.as_str();
    let hop = HOP_BY_HOP.contains(&name);
    hop || name.starts_with("hooksluice-")
        || name.starts_with("hooksluice_")
        || name.starts_with("x-forwarded-")
        || matches!(
            name,
            "content-length"
                | "content-encoding"
                | "content-range"
                | "content-type"
                | "host"
                | "forwarded"
                | "via"
                | "authorization"
                | "cookie"
                | "set-cookie"
                | "www-authenticate"
                | "cache-control"
                | "range"
                | "max-forwards"
                | "if-match"
                | "if-none-match"
                | "if-modified-since"
                | "if-unmodified-since"
                | "if-range"
                | "age"
                | "date"
                | "expires"
                | "location"
                | "retry-after"
                | "vary"
        )
}

/// `X-Forwarded-For`, `-Proto` and `-Host`, where they are not there yet. What is there came from a trusted proxy and is
/// complete, the proxy's own address included: [`crate::ingest::client::identify`] sees to that, and removes what others
/// say.
pub fn add_forwarded(headers: &mut HeaderMap, client: IpAddr, authority: Option<&str>) {
    if !headers.contains_key(FORWARDED_FOR) {
        headers.insert(FORWARDED_FOR, plain_value(&client.to_string()));
    }
    if !headers.contains_key(FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static("http"));
    }
    if let Some(authority) = authority
        && !headers.contains_key(FORWARDED_HOST)
    {
        headers.insert(FORWARDED_HOST, plain_value(authority));
    }
}

/// `Host` for the upstream at `origin`: its host, and its port where that is not the scheme's own.
pub fn host_of(origin: &Uri) -> HeaderValue {
    let host = origin.host().unwrap_or_default();
    match origin.port_u16() {
        Some(port) if Some(port) != default_port(origin) => plain_value(&format!("{host}:{port}")),
        _ => plain_value(host),
    }
}

fn default_port(origin: &Uri) -> Option<u16> {
    match origin.scheme_str() {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    }
}

/// The text as a header value: as it is when it is visible ASCII with single characters between that arrive
/// unchanged, else percent-encoded.
pub fn plain_value(text: &str) -> HeaderValue {
    let plain = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
        && !text.starts_with(' ')
        && !text.ends_with(' ');
    let found = if plain {
        HeaderValue::from_str(text)
    } else {
        HeaderValue::try_from(utf8_percent_encode(text, NOT_IN_A_VALUE).to_string())
    };
    // Visible ASCII is always a value.
    found.unwrap_or_else(|_impossible| HeaderValue::from_static(""))
}

fn is_own(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("hooksluice-") || name.starts_with("hooksluice_")
}

/// Headers whose values are credentials or signatures: people see that they were there, not what they held (P5).
pub fn is_credential(name: &HeaderName) -> bool {
    let name = name.as_str();
    matches!(name, "authorization" | "cookie" | "set-cookie") || name.starts_with("proxy-") || is_credential_name(name)
}

/// Whether a header or query parameter with this name (lower case) holds a credential or a signature.
pub fn is_credential_name(name: &str) -> bool {
    [
        "token",
        "secret",
        "signature",
        "hmac",
        "password",
        "hub-sig",
        "api-key",
        "api_key",
        "apikey",
    ]
    .iter()
    .any(|part| name.contains(part))
}

/// Why stored header bytes could not be read: the row is damaged.
#[derive(Debug, thiserror::Error)]
#[error("stored headers are damaged")]
pub struct DamagedHeaders;

/// Appends the list to `out`: for each line the name's length (u16), the name, the value's length (u32), the value.
/// Values are opaque octets (RFC 9110 section 5.5); number and order of a name's lines are kept.
pub fn encode(headers: &HeaderMap, out: &mut Vec<u8>) {
    for (name, value) in headers {
        let name = name.as_str().as_bytes();
        // The head limit (at most a few MiB) is far below what these lengths can hold.
        out.put_u16(u16::try_from(name.len()).unwrap_or(u16::MAX));
        out.extend_from_slice(name);
        out.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        out.extend_from_slice(value.as_bytes());
    }
}

/// Reads back what [`encode`] wrote.
pub fn decode(mut bytes: Bytes) -> Result<HeaderMap, DamagedHeaders> {
    let mut headers = HeaderMap::new();
    while bytes.has_remaining() {
        let name_len = usize::from(bytes.try_get_u16().map_err(|_short| DamagedHeaders)?);
        let name = take(&mut bytes, name_len)?;
        let value_len = bytes.try_get_u32().map_err(|_short| DamagedHeaders)?;
        let value = take(&mut bytes, usize::try_from(value_len).unwrap_or(usize::MAX))?;
        headers.append(
            HeaderName::from_bytes(&name).map_err(|_invalid| DamagedHeaders)?,
            HeaderValue::from_maybe_shared(value).map_err(|_invalid| DamagedHeaders)?,
        );
    }
    Ok(headers)
}

fn take(bytes: &mut Bytes, len: usize) -> Result<Bytes, DamagedHeaders> {
    if bytes.len() < len {
        return Err(DamagedHeaders);
    }
    Ok(bytes.split_to(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_bytes(value).unwrap(),
            );
        }
        headers
    }

    #[test]
    fn stored_headers_come_back_with_their_bytes_number_and_order() {
        let headers = map(&[("x-note", b"\xd1\x82"), ("a", b""), ("x-note", b"\xff")]);
        let mut bytes = Vec::new();
        encode(&headers, &mut bytes);
        let back = decode(Bytes::from(bytes)).unwrap();
        assert_eq!(back, headers);
        let notes: Vec<_> = back.get_all("x-note").iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(notes, [b"\xd1\x82".as_slice(), b"\xff"]);
    }

    #[test]
    fn damaged_headers_are_an_error_not_a_panic() {
        let mut bytes = Vec::new();
        encode(&map(&[("a", b"value")]), &mut bytes);
        for cut in 1..bytes.len() {
            assert!(decode(Bytes::copy_from_slice(&bytes[..cut])).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn trailers_say_nothing_about_framing_routing_or_identity() {
        let mut trailers = map(&[
            ("content-length", b"5"),
            ("transfer-encoding", b"chunked"),
            ("host", b"evil.test"),
            ("authorization", b"x"),
            ("x-forwarded-for", b"10.0.0.1"),
            ("hooksluice-verified", b"true"),
            ("hooksluice_event_id", b"x"),
            ("grpc-status", b"0"),
            ("content-digest", b"x"),
        ]);
        strip_trailers(&mut trailers);
        assert_eq!(trailers, map(&[("grpc-status", b"0"), ("content-digest", b"x")]));
    }

    #[test]
    fn hop_by_hop_and_named_and_own_headers_are_dropped() {
        let mut headers = map(&[
            ("connection", b"close, X-Foo"),
            ("x-foo", b"1"),
            ("keep-alive", b"1"),
            ("te", b"trailers"),
            ("trailer", b"x"),
            ("upgrade", b"h2c"),
            ("http2-settings", b"x"),
            ("proxy-authorization", b"x"),
            ("proxy-connection", b"x"),
            ("expect", b"100-continue"),
            ("hooksluice-verified", b"true"),
            ("hooksluice_event_id", b"x"),
            ("x-kept", b"1"),
        ]);
        strip_untrusted(&mut headers);
        assert_eq!(headers, map(&[("x-kept", b"1")]));
    }
}
