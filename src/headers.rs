//! Header lists: what is dropped on the way in, how a list is stored, and what people may see of it.

use bytes::{Buf, BufMut, Bytes};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

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
    let own: Vec<HeaderName> = headers.keys().filter(|name| is_own(name)).cloned().collect();
    for name in own {
        headers.remove(name);
    }
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
