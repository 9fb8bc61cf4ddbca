//! The request as Atlassian Connect signs it: method, path and sorted query, whose digest is the claim `qsh`
//! (npm atlassian-jwt 2.0.3, `createCanonicalRequest`).

use std::collections::BTreeMap;

use http::Method;
use http::uri::PathAndQuery;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

use super::form;

/// Everything but the unreserved characters of RFC 3986 section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// `METHOD&path&query`. The token's own parameter, `jwt`, is no part of it.
pub(super) fn canonical(method: &Method, target: &PathAndQuery) -> Vec<u8> {
    let path = match target.path().trim_end_matches('/') {
        "" => "/",
        path => path,
    };
    let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in form::pairs(target.query().unwrap_or_default().as_bytes()) {
        if name.as_ref() != b"jwt" {
            parameters.entry(encode(&name)).or_default().push(encode(&value));
        }
    }
    let pairs = parameters.into_iter().map(|(name, mut values)| {
        values.sort();
        format!("{name}={}", values.join(","))
    });
    let query = pairs.collect::<Vec<_>>().join("&");
    format!("{method}&{}&{query}", path.replace('&', "%26")).into_bytes()
}

fn encode(text: &[u8]) -> String {
    percent_encoding::percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: Method, target: &str) -> String {
        String::from_utf8(canonical(&method, &target.parse().unwrap())).unwrap()
    }

    #[test]
    fn the_query_is_sorted_and_escaped_anew() {
        assert_eq!(of(Method::POST, "/hook"), "POST&/hook&");
        assert_eq!(of(Method::GET, "/a/b/?b=2&a=1&jwt=x"), "GET&/a/b&a=1&b=2");
        assert_eq!(
            of(Method::GET, "/?q=a+b&q=%2A~&Z=%e2%82%ac"),
            "GET&/&Z=%E2%82%AC&q=%2A~,a%20b"
        );
    }
}
