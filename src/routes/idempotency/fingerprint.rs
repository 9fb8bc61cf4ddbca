//! What a request asks for, as a digest: the same key with another one is refused (422), so two requests that mean
//! different things never have the same.

use http::Method;
use http::header::{self, HeaderMap};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::canonical;
use crate::store::records::Fingerprint;

/// What stands for the body (`fingerprint`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BodyAs {
    /// Its bytes.
    #[default]
    Bytes,
    /// RFC 8785 of it, for clients that order members differently from try to try. Its bytes where it is no JSON, or JSON
    /// that loses something on the way: see [`canonical`].
    CanonicalJson,
}

/// SHA-256 of method, raw path and query, each `Content-Type` line, and the body, each with its length in front.
///
/// The headers are those that go upstream.
pub fn of(method: &Method, target: &str, headers: &HeaderMap, body: &[u8], body_as: BodyAs) -> Fingerprint {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(method.as_str().as_bytes());
    part(target.as_bytes());
    let types = headers.get_all(header::CONTENT_TYPE);
    part(&(types.iter().count() as u64).to_be_bytes());
    for line in types {
        part(line.as_bytes());
    }
    let canonical = match body_as {
        BodyAs::CanonicalJson if is_json(headers) => canonical::json(body),
        BodyAs::CanonicalJson | BodyAs::Bytes => None,
    };
    part(canonical.as_deref().unwrap_or(body));
    Fingerprint(hash.finalize().into())
}

/// Whether two requests ask for the same; takes as long for any two.
pub fn same(one: &Fingerprint, other: &Fingerprint) -> bool {
    one.0.ct_eq(&other.0).into()
}

/// Whether the body is announced as JSON in UTF-8: `application/json` or `…+json`, in one line, and not compressed. In
/// another character encoding the bytes of a string and its escapes would not mean the same.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(only), None) = (types.next(), types.next()) else {
        return false;
    };
    let Ok(only) = only.to_str() else { return false };
    let mut parts = only.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
    let is_json = essence == "application/json" || essence.ends_with("+json");
    is_json && parts.all(|parameter| !is_other_charset(parameter)) && !headers.contains_key(header::CONTENT_ENCODING)
}

fn is_other_charset(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else {
        return false;
    };
    let value = value.trim().trim_matches('"');
    name.trim().eq_ignore_ascii_case("charset") && !value.eq_ignore_ascii_case("utf-8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn print(method: &str, target: &str, lines: &[(&str, &str)], body: &str, body_as: BodyAs) -> Fingerprint {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        of(&method.parse().unwrap(), target, &headers, body.as_bytes(), body_as)
    }

    const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

    #[test]
    fn each_part_counts_and_other_headers_do_not() {
        let first = print("POST", "/a", JSON, "{\"a\":1}", BodyAs::Bytes);
        let again = print(
            "POST",
            "/a",
            &[("content-type", "application/json"), ("x-request-id", "2")],
            "{\"a\":1}",
            BodyAs::Bytes,
        );
        assert!(same(&first, &again));
        for other in [
            print("PUT", "/a", JSON, "{\"a\":1}", BodyAs::Bytes),
            print("POST", "/b", JSON, "{\"a\":1}", BodyAs::Bytes),
            print("POST", "/a?x=1", JSON, "{\"a\":1}", BodyAs::Bytes),
            print("POST", "/a?", JSON, "{\"a\":1}", BodyAs::Bytes),
            print("POST", "/%61", JSON, "{\"a\":1}", BodyAs::Bytes),
            print("POST", "/a", JSON, "{\"a\": 1}", BodyAs::Bytes),
            print("POST", "/a", JSON, "", BodyAs::Bytes),
            print("POST", "/a", &[], "{\"a\":1}", BodyAs::Bytes),
            print(
                "POST",
                "/a",
                &[("content-type", "application/JSON")],
                "{\"a\":1}",
                BodyAs::Bytes,
            ),
        ] {
            assert!(!same(&first, &other));
        }
        let empty = print("POST", "/a", JSON, "", BodyAs::Bytes);
        assert!(!same(&empty, &print("POST", "/a", JSON, "{}", BodyAs::Bytes)));
    }

    #[test]
    fn a_byte_cannot_move_from_one_part_to_the_next() {
        let one = print("POST", "/a", &[("content-type", "b")], "c", BodyAs::Bytes);
        for other in [
            print("POST", "/ab", &[("content-type", "")], "c", BodyAs::Bytes),
            print("POST", "/a", &[("content-type", "bc")], "", BodyAs::Bytes),
            print(
                "POST",
                "/a",
                &[("content-type", "b"), ("content-type", "c")],
                "",
                BodyAs::Bytes,
            ),
            print("POST", "/a", &[], "bc", BodyAs::Bytes),
        ] {
            assert!(!same(&one, &other));
        }
    }

    #[test]
    fn reordered_json_is_the_same_only_where_the_route_says_so() {
        let (one, other) = ("{\"a\":1,\"b\":[2]}", "{ \"b\": [ 2.0 ],\n \"a\": 1e0 }");
        let both = |lines: &[(&str, &str)], body_as| {
            same(
                &print("POST", "/", lines, one, body_as),
                &print("POST", "/", lines, other, body_as),
            )
        };
        assert!(!both(JSON, BodyAs::Bytes));
        assert!(both(JSON, BodyAs::CanonicalJson));
        for json in [
            "application/problem+json",
            "Application/JSON; charset=\"UTF-8\"",
            "application/json;a=b",
        ] {
            assert!(both(&[("content-type", json)], BodyAs::CanonicalJson), "{json}");
        }
        for no_json in [
            &[][..],
            &[("content-type", "text/plain")],
            &[("content-type", "application/json-seq")],
            &[("content-type", "application/json; charset=latin1")],
            &[("content-type", "application/json"), ("content-encoding", "gzip")],
            &[
                ("content-type", "application/json"),
                ("content-type", "application/json"),
            ],
        ] {
            assert!(!both(no_json, BodyAs::CanonicalJson), "{no_json:?}");
        }
    }
}
