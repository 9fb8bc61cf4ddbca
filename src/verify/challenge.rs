//! Hand-shakes that we answer ourselves, and the conditions by which a record tells requests apart.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use super::ChallengeAnswer;
use super::json::Pointer;
use super::place::{Fields, Place};
use super::template::{Filling, Template};

/// Longest value that is echoed to somebody whose signature held, in bytes.
const MAX_ECHO_SIGNED: usize = 1024;

/// Longest value that is echoed to anybody, in bytes (RS-09).
const MAX_ECHO_UNSIGNED: usize = 256;

/// A condition on a request, such as `json:/type == "url_verification"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// `method == GET`
    Method(Method),
    /// `body is empty`
    BodyIsEmpty,
    /// `header:X` — the value is there.
    Present(Place),
    /// `header:X == "text"`
    Equals(Place, String),
    /// `header:X contains "text"`
    Contains(Place, String),
}

impl Condition {
    /// Parses conditions joined by `and`.
    pub(super) fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        text.split(" and ").map(|part| Self::parse(part.trim())).collect()
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == "body is empty" {
            return Ok(Self::BodyIsEmpty);
        }
        if let Some((left, right)) = text.split_once(" == ") {
            if left.trim() == "method" {
                return match right.trim().parse() {
                    Ok(method) => Ok(Self::Method(method)),
                    Err(_) => Err(format!("`{right}` is not a method")),
                };
            }
            return Ok(Self::Equals(Place::parse(left.trim())?, unquote(right)));
        }
        match text.split_once(" contains ") {
            Some((left, right)) => Ok(Self::Contains(Place::parse(left.trim())?, unquote(right))),
            None => Place::parse(text).map(Self::Present),
        }
    }

    /// Whether the head alone decides.
    pub(super) fn is_in_head(&self) -> bool {
        match self {
            Self::Method(_) => true,
            Self::BodyIsEmpty => false,
            Self::Present(place) | Self::Equals(place, _) | Self::Contains(place, _) => place.is_in_head(),
        }
    }

    /// Whether it holds.
    pub(super) fn holds(&self, fields: &Fields<'_>) -> bool {
        match self {
            Self::Method(method) => fields.method == method,
            Self::BodyIsEmpty => fields.body.is_empty(),
            Self::Present(place) => fields.get(place).is_some(),
            Self::Equals(place, text) => fields.get(place).is_some_and(|value| value.as_ref() == text.as_bytes()),
            Self::Contains(place, text) => fields
                .get(place)
                .is_some_and(|value| memchr::memmem::find(&value, text.as_bytes()).is_some()),
        }
    }

    /// The JSON pointer it looks at.
    pub(super) fn pointer(&self) -> Option<&Pointer> {
        match self {
            Self::Present(Place::Json(pointer))
            | Self::Equals(Place::Json(pointer), _)
            | Self::Contains(Place::Json(pointer), _) => Some(pointer),
            _ => None,
        }
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Method(method) => write!(f, "method == {method}"),
            Self::BodyIsEmpty => f.write_str("body is empty"),
            Self::Present(place) => write!(f, "{place}"),
            Self::Equals(place, text) => write!(f, "{place} == \"{text}\""),
            Self::Contains(place, text) => write!(f, "{place} contains \"{text}\""),
        }
    }
}

fn unquote(text: &str) -> String {
    let text = text.trim();
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    inner.unwrap_or(text).to_owned()
}

/// A hand-shake and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Challenge {
    pub(super) name: String,
    pub(super) when: Vec<Condition>,
    /// Only a request whose signature holds gets the answer.
    pub(super) verify_first: bool,
    pub(super) status: StatusCode,
    pub(super) content_type: String,
    pub(super) headers: Vec<(HeaderName, Template)>,
    pub(super) body: Template,
}

impl Challenge {
    /// Whether the request is this hand-shake.
    pub(super) fn is_asked(&self, fields: &Fields<'_>) -> bool {
        self.when.iter().all(|condition| condition.holds(fields))
    }

    /// Whether a request with this head may be this hand-shake; conditions on the body are taken to hold.
    pub(super) fn may_be_asked(&self, head: &Fields<'_>) -> bool {
        let mut in_head = self.when.iter().filter(|condition| condition.is_in_head());
        in_head.all(|condition| condition.holds(head))
    }

    /// The answer, or nothing if a value is absent or is not one that may be echoed.
    pub(super) fn answer(&self, with: &Filling<'_>) -> Option<ChallengeAnswer> {
        let escape = |value: &[u8]| self.escape(value);
        let body = self.body.render(with, escape)?;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(&self.content_type).ok()?);
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        for (name, template) in &self.headers {
            let value = template.render(with, |value| self.limited(value).map(<[u8]>::to_vec))?;
            headers.insert(name, HeaderValue::from_bytes(&value).ok()?);
        }
        Some(ChallengeAnswer {
            status: self.status,
            headers,
            body: body.into(),
        })
    }

    fn escape(&self, value: &[u8]) -> Option<Vec<u8>> {
        let value = self.limited(value)?;
        if self.content_type.starts_with("application/json") {
            let quoted = serde_json::to_vec(std::str::from_utf8(value).ok()?).ok()?;
            return quoted.get(1..quoted.len().checked_sub(1)?).map(<[u8]>::to_vec);
        }
        Some(value.to_vec())
    }

    /// Anybody can ask for an unsigned echo, so it is short and made of characters that mean nothing to a browser.
    fn limited<'v>(&self, value: &'v [u8]) -> Option<&'v [u8]> {
        let harmless = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:~+/= ".contains(b);
        let fits = if self.verify_first {
            value.len() <= MAX_ECHO_SIGNED
        } else {
            value.len() <= MAX_ECHO_UNSIGNED && value.iter().all(harmless)
        };
        fits.then_some(value)
    }

    /// The JSON pointers it looks at.
    pub(super) fn pointers(&self) -> impl Iterator<Item = &Pointer> {
        let conditions = self.when.iter().filter_map(Condition::pointer);
        let headers = self.headers.iter().flat_map(|(_, template)| template.pointers());
        conditions.chain(self.body.pointers()).chain(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn ask(challenge: &Challenge, target: &str, body: &str) -> Option<ChallengeAnswer> {
        let pointers: Vec<Pointer> = challenge.pointers().cloned().collect();
        let (target, headers) = (target.parse().unwrap(), HeaderMap::new());
        let fields = Fields::new(&Method::GET, &target, &headers, body.as_bytes(), &pointers);
        let params = BTreeMap::new();
        let with = Filling {
            fields: &fields,
            params: &params,
            timestamp: None,
            url: "",
            group: None,
            secret: None,
        };
        challenge.is_asked(&fields).then(|| challenge.answer(&with))?
    }

    fn echo(content_type: &str, body: &str, verify_first: bool) -> Challenge {
        Challenge {
            name: "test".into(),
            when: Condition::parse_all("method == GET and query:c").unwrap(),
            verify_first,
            status: StatusCode::OK,
            content_type: content_type.into(),
            headers: Vec::new(),
            body: Template::parse(body, &[]).unwrap(),
        }
    }

    #[test]
    fn an_echo_is_text_that_no_browser_sniffs() {
        let answer = ask(&echo("text/plain", "{query:c}", false), "/?c=abc", "").unwrap();
        assert_eq!(answer.body, "abc");
        assert_eq!(answer.headers[header::CONTENT_TYPE], "text/plain");
        assert_eq!(answer.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    }

    #[test]
    fn strangers_get_no_markup_and_no_long_texts_back() {
        let challenge = echo("text/plain", "{query:c}", false);
        assert_eq!(ask(&challenge, "/?c=%3Cscript%3E", ""), None);
        assert_eq!(ask(&challenge, &format!("/?c={}", "a".repeat(257)), ""), None);
        let signed = echo("text/plain", "{query:c}", true);
        assert!(ask(&signed, &format!("/?c={}", "a".repeat(1024)), "").is_some());
        assert_eq!(ask(&signed, &format!("/?c={}", "a".repeat(1025)), ""), None);
    }

    #[test]
    fn values_inside_json_are_escaped() {
        let challenge = echo("application/json", "{\"c\":\"{query:c}\"}", true);
        let answer = ask(&challenge, "/?c=a%22,%22b%22:%22%0A", "").unwrap();
        let value: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(value, serde_json::json!({"c": "a\",\"b\":\"\n"}));
    }

    #[test]
    fn conditions_are_read_as_written() {
        let text = "method == GET and body is empty and header:x-a and json:/t == \"u v\" and query:q contains z";
        let conditions = Condition::parse_all(text).unwrap();
        assert_eq!(conditions.len(), 5);
        let shown: Vec<String> = conditions.iter().map(ToString::to_string).collect();
        assert_eq!(Condition::parse_all(&shown.join(" and ")).as_ref(), Ok(&conditions));
        assert_eq!(
            conditions[3],
            Condition::Equals(Place::parse("json:/t").unwrap(), "u v".into())
        );
        assert!(Condition::parse_all("cookie == 1").is_err());
    }
}
