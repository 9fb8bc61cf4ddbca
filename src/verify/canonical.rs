//! Canonical forms of URLs and headers that single providers invented and sign.

use std::collections::BTreeMap;

use http::HeaderName;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::form;
use super::place::Fields;

/// Most headers that a request may list as signed.
const MAX_SIGNED_HEADERS: usize = 100;

/// What JavaScript's `encodeURIComponent`, and Node's `querystring.escape`, leave as it is.
const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

/// What JavaScript's `encodeURI` leaves as it is.
const URI: &AsciiSet = &COMPONENT
    .remove(b';')
    .remove(b',')
    .remove(b'/')
    .remove(b'?')
    .remove(b':')
    .remove(b'@')
    .remove(b'&')
    .remove(b'=')
    .remove(b'+')
    .remove(b'$')
    .remove(b'#');

/// Contentful's form of the target: `encodeURI(path + "?" + escape(query))`, so that a query is encoded twice (npm
/// @contentful/node-apps-toolkit 3.16.1 `getNormalizedEncodedURI`).
pub(super) fn contentful_uri(target: &str) -> String {
    let mut halves = target.split('?');
    let path = halves.next().unwrap_or_default();
    let query = halves.next().unwrap_or_default();
    let query = utf8_percent_encode(query, COMPONENT).to_string();
    let whole = if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    };
    utf8_percent_encode(&whole, URI).to_string()
}

/// The headers that the header called `list` names, divided by commas: `name:value`, in order of their names, joined with
/// `;` (Contentful). A header that is absent or repeated cannot be signed.
pub(super) fn signed_headers(fields: &Fields<'_>, list: &HeaderName) -> Option<Vec<u8>> {
    let mut values = BTreeMap::new();
    for name in fields.only_header(list)?.split(|b| *b == b',') {
        let name = HeaderName::from_bytes(name.trim_ascii()).ok()?;
        let value = fields.only_header(&name)?;
        if values.len() >= MAX_SIGNED_HEADERS {
            return None;
        }
        values.insert(name.as_str().to_owned(), value);
    }
    let lines: Vec<Vec<u8>> = values
        .into_iter()
        .map(|(name, value)| [name.as_bytes(), b":", value].concat())
        .collect();
    Some(lines.join(&b';'))
}

/// Plivo's V3 form of the URL: the query sorted and decoded, then the sorted form fields, with a dot between the two (npm
/// plivo 4.79.0 `dist/utils/v3Security.js`).
pub(super) fn plivo_v3_url(url: &str, form_body: &[u8]) -> Vec<u8> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let query = query.split('#').next().unwrap_or_default();
    let sorted = |text: &[u8], between: &[u8]| -> Vec<Vec<u8>> {
        let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = form::pairs(text)
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        pairs.sort();
        let joined = pairs.into_iter().map(|(name, value)| [&name, between, &value].concat());
        joined.collect()
    };
    let query = sorted(query.as_bytes(), b"=").join(&b'&');
    let fields = sorted(form_body, b"").concat();
    let mut out = base.as_bytes().to_vec();
    if !query.is_empty() || !fields.is_empty() {
        out.push(b'?');
        out.extend(&query);
    }
    if !query.is_empty() && !fields.is_empty() {
        out.push(b'.');
    }
    out.extend(fields);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, Method};

    #[test]
    fn contentfuls_query_is_encoded_twice() {
        // node -e 'getNormalizedEncodedURI(…)' of the SDK.
        assert_eq!(contentful_uri("/in?a=1&b=x y"), "/in?a%253D1%2526b%253Dx%2520y");
        assert_eq!(contentful_uri("/in/\u{e9}%20"), "/in/%C3%A9%2520");
        assert_eq!(contentful_uri("/in?"), "/in");
        assert_eq!(contentful_uri("/in?a?b"), "/in?a");
    }

    #[test]
    fn listed_headers_are_signed_in_order_of_their_names() {
        let mut headers = HeaderMap::new();
        headers.insert("x-list", " X-B , x-list,x-a".parse().unwrap());
        headers.insert("x-a", "1".parse().unwrap());
        headers.insert("x-b", " two ".parse().unwrap());
        let target = "/".parse().unwrap();
        let text = |headers: &HeaderMap| {
            let fields = Fields::new(&Method::POST, &target, headers, b"", &[]);
            signed_headers(&fields, &HeaderName::from_static("x-list"))
        };
        assert_eq!(
            text(&headers).as_deref(),
            Some(&b"x-a:1;x-b:two;x-list:X-B , x-list,x-a"[..])
        );
        headers.append("x-a", "2".parse().unwrap());
        assert_eq!(text(&headers), None);
        headers.remove("x-a");
        assert_eq!(text(&headers), None);
    }

    #[test]
    fn plivos_url_has_a_dot_only_between_query_and_fields() {
        let url = |url: &str, body: &str| String::from_utf8(plivo_v3_url(url, body.as_bytes())).unwrap();
        // node -e 'construct_post_url(…)' of the SDK.
        assert_eq!(url("https://h.test/in", ""), "https://h.test/in");
        assert_eq!(url("https://h.test/in?b=2&a=%201", ""), "https://h.test/in?a= 1&b=2");
        assert_eq!(url("https://h.test/in", "B=2&A=1&A=0"), "https://h.test/in?A0A1B2");
        assert_eq!(
            url("https://h.test/in?x=1", "B=2&A=a+b"),
            "https://h.test/in?x=1.Aa bB2"
        );
    }
}
