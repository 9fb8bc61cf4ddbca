//! Tokens that a provider writes into its bodies, which people are not shown.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, header};

use super::super::place::Place;
use super::super::verifier::MAX_ITEMS;
use super::super::{form, json, multipart};
use super::{Kind, Record};

impl Record {
    /// The body with each of the secrets that it shows replaced by `mask`; `None` where it shows none. A body that was
    /// verified shows them where the record says; the same characters elsewhere are masked too.
    pub fn without_tokens(&self, headers: &HeaderMap, body: &Bytes, mask: &[u8]) -> Option<Vec<u8>> {
        if self.kind != Kind::Token {
            return None;
        }
        let mut shown: Vec<Vec<u8>> = Vec::new();
        for scheme in &self.schemes {
            for place in &scheme.signature.places {
                match place {
                    Place::Json(pointer) => shown.extend(json::raw(body, pointer).map(inside)),
                    Place::Item(pointer) => {
                        let items = scheme
                            .each
                            .as_ref()
                            .and_then(|array| json::elements(body, array, MAX_ITEMS));
                        let values = items.into_iter().flatten().filter_map(|item| json::raw(item, pointer));
                        shown.extend(values.map(inside));
                    }
                    Place::Form(name) | Place::FormJson(name, _) => {
                        shown.extend(field(headers, body, name).map(<[u8]>::to_vec));
                    }
                    _ => {}
                }
            }
        }
        shown.retain(|value| !value.is_empty());
        let mut masked = Cow::Borrowed(body.as_ref());
        // A longer one may hold a shorter one.
        shown.sort_by_key(|value| std::cmp::Reverse(value.len()));
        shown.dedup();
        for value in &shown {
            masked = Cow::Owned(replaced(&masked, value, mask));
        }
        (!shown.is_empty()).then(|| masked.into_owned())
    }
}

/// The value of a form's field as it stands in the body.
fn field<'b>(headers: &HeaderMap, body: &'b [u8], name: &str) -> Option<&'b [u8]> {
    let media_type = headers.get(header::CONTENT_TYPE)?.as_bytes();
    match multipart::boundary(media_type) {
        Some(boundary) => multipart::get(body, boundary, name),
        None => form::raw(body, name),
    }
}

/// A string without its quotes.
fn inside(value: &[u8]) -> Vec<u8> {
    let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    quoted.unwrap_or(value).to_vec()
}

fn replaced(text: &[u8], value: &[u8], with: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, value) {
        let (before, from) = rest.split_at(at);
        out.extend_from_slice(before);
        out.extend_from_slice(with);
        rest = from.get(value.len()..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use crate::diagnostic::Diagnostics;

    use super::*;

    fn masked(record: &str, media_type: &'static str, body: &str) -> Option<String> {
        let mut problems = Diagnostics::new();
        let record = Record::read_text("acme", record, &mut problems).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        let masked = record.without_tokens(&headers, &Bytes::from(body.to_owned()), b"***")?;
        Some(String::from_utf8(masked).unwrap())
    }

    #[test]
    fn a_token_is_masked_wherever_it_stands_in_the_body() {
        let of = |place: &str| format!("kind = \"token\"\nsignature = \"{place}\"\n");
        let json = "application/json";
        assert_eq!(
            masked(&of("json:/a/b"), json, r#"{"a":{"b":"s3\/x"},"c":"s3\/x!"}"#).as_deref(),
            Some(r#"{"a":{"b":"***"},"c":"***!"}"#)
        );
        let each = format!("{}each = \"/v\"\n", of("item:/k"));
        assert_eq!(
            masked(&each, json, r#"{"v":[{"k":"s"},{"k":"sss"}]}"#).as_deref(),
            Some(r#"{"v":[{"k":"***"},{"k":"***"}]}"#)
        );
        let form = "application/x-www-form-urlencoded";
        assert_eq!(
            masked(&of("form:k"), form, "a=1&k=s%203&b=2").as_deref(),
            Some("a=1&k=***&b=2")
        );
        assert_eq!(masked(&of("json:/a"), json, r#"{"b":1}"#), None);
        assert_eq!(masked(&of("header:x-k"), json, "{}"), None);
        let signed = "kind = \"hmac\"\nsignature = \"json:/sig\"\npayload = \"{json:/a}\"\n";
        assert_eq!(
            masked(signed, json, r#"{"a":1,"sig":"00"}"#),
            None,
            "a signature is no secret"
        );
    }
}
