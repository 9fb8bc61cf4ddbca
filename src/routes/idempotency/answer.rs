//! Answers that are given again: which headers belong to a replay, and how a replay looks.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Marks a replay. One that an upstream sends is always removed: the client must be able to believe it.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Headers that describe the answer itself, whoever gets it and whenever.
const REPLAY: [HeaderName; 10] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_DISPOSITION,
    header::LOCATION,
    header::ETAG,
    header::LAST_MODIFIED,
    header::LINK,
    header::CACHE_CONTROL,
    header::VARY,
];

/// Why a header can never belong to a replay; `None` where it may, if it is configured.
pub fn never_replayed(name: &HeaderName) -> Option<&'static str> {
    let name = name.as_str();
    match name {
        "set-cookie" | "set-cookie2" => Some("a cookie belongs to the moment and the client it was set for"),
        "date" | "age" => Some("a replay has its own"),
        "www-authenticate" | "authentication-info" => Some("it belongs to one exchange"),
        "content-length" | "transfer-encoding" => Some("framing is computed anew"),
        "idempotency-replayed" => Some("it is ours"),
        "connection" | "keep-alive" | "te" | "trailer" | "upgrade" | "http2-settings" | "expect" => {
            Some("it speaks of one connection")
        }
        _ if name.starts_with("proxy-") => Some("it speaks of one connection"),
        _ if name.starts_with("hooksluice-") || name.starts_with("hooksluice_") => Some("it is ours"),
        _ if is_rate_limit(name) => Some("a counter of an hour ago misleads"),
        _ => None,
    }
}

/// `RateLimit`, `RateLimit-Policy`, and the many spellings from before (`X-RateLimit-Remaining`, `X-Rate-Limit-Reset`).
fn is_rate_limit(name: &str) -> bool {
    let name = name.strip_prefix("x-").unwrap_or(name);
    name.starts_with("ratelimit")
        || name.starts_with("rate-limit")
        || name.contains("-ratelimit")
        || name.contains("-rate-limit")
}

/// Of an answer's headers those that belong to its replays: each line with its bytes, in their order. Copied, so that a
/// record which is kept for hours does not hold on to the buffer of the connection that it came over.
pub fn replay_headers(answer: &HeaderMap, custom: &[HeaderName]) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in REPLAY.iter().chain(custom) {
        // A name that is in both lists is taken once.
        if never_replayed(name).is_some() || kept.contains_key(name) {
            continue;
        }
        for value in answer.get_all(name) {
            if let Ok(copy) = HeaderValue::from_bytes(value.as_bytes()) {
                kept.append(name, copy);
            }
        }
    }
    kept
}

/// Takes away what only we may say.
pub fn unmark(headers: &mut HeaderMap) {
    headers.remove(REPLAYED);
}

/// Says that an answer was given before.
pub fn mark(headers: &mut HeaderMap) {
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
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
    fn a_replay_has_what_describes_the_answer_and_nothing_of_its_moment() {
        let answer = map(&[
            ("content-type", b"application/json"),
            ("location", b"/orders/1"),
            ("etag", b"\"1\""),
            ("link", b"</a>; rel=next"),
            ("link", b"</\xff>; rel=prev"),
            ("set-cookie", b"session=1"),
            ("date", b"Mon, 30 Nov 2026 00:00:00 GMT"),
            ("age", b"3"),
            ("x-request-id", b"7"),
            ("x-ratelimit-remaining", b"3"),
            ("content-length", b"2"),
            ("www-authenticate", b"Basic"),
            ("idempotency-replayed", b"true"),
            ("x-order", b"1"),
            ("x-order", b""),
        ]);
        let order = HeaderName::from_static("x-order");
        let kept = replay_headers(&answer, &[order, header::ETAG, header::SET_COOKIE]);
        let expected = map(&[
            ("content-type", b"application/json"),
            ("location", b"/orders/1"),
            ("etag", b"\"1\""),
            ("link", b"</a>; rel=next"),
            ("link", b"</\xff>; rel=prev"),
            ("x-order", b"1"),
            ("x-order", b""),
        ]);
        assert_eq!(kept, expected);
    }

    #[test]
    fn some_headers_are_never_replayed_whatever_is_configured() {
        for name in [
            "set-cookie",
            "date",
            "age",
            "www-authenticate",
            "proxy-authenticate",
            "proxy-status",
            "connection",
            "transfer-encoding",
            "content-length",
            "ratelimit",
            "ratelimit-policy",
            "x-ratelimit-remaining",
            "x-rate-limit-reset",
            "x-shopify-ratelimit",
            "idempotency-replayed",
            "hooksluice-duplicate",
        ] {
            assert!(never_replayed(&name.parse().unwrap()).is_some(), "{name}");
        }
        for name in ["x-order-id", "retry-after", "x-corporate", "etag"] {
            assert!(never_replayed(&name.parse().unwrap()).is_none(), "{name}");
        }
        for name in REPLAY {
            assert!(never_replayed(&name).is_none(), "{name}");
        }
    }
}
