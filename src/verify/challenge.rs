//! Hand-shakes that we answer ourselves, and the conditions by which a record tells requests apart.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use subtle::ConstantTimeEq;

use super::ChallengeAnswer;
use super::json::Pointer;
use super::place::{Fields, Place};
use super::template::{Filling, GivenBy, Template};

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
    /// `always`
    Always,
    /// `body starts with "text"`
    BodyStarts(String),
    /// `body is "text<digits>"`: the text and then nothing but digits.
    BodyIsNumbered(String),
    /// `not …`
    Not(Box<Self>),
}

/// Most digits behind the text of [`Condition::BodyIsNumbered`].
const MAX_DIGITS: usize = 20;

impl Condition {
    /// Parses conditions joined by `and`.
    pub(super) fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        text.split(" and ").map(|part| Self::parse(part.trim())).collect()
    }

    fn parse(text: &str) -> Result<Self, String> {
        if let Some(inner) = text.strip_prefix("not ") {
            return Ok(Self::Not(Box::new(Self::parse(inner.trim())?)));
        }
        if text == "body is empty" {
            return Ok(Self::BodyIsEmpty);
        }
        if text == "always" {
            return Ok(Self::Always);
        }
        if let Some(start) = text.strip_prefix("body starts with ") {
            return Ok(Self::BodyStarts(unquote(start)?));
        }
        if let Some(whole) = text.strip_prefix("body is ") {
            let whole = unquote(whole)?;
            let start = whole.strip_suffix("<digits>");
            let start = start.ok_or("expected `body is empty` or `body is \"TEXT<digits>\"`")?;
            return Ok(Self::BodyIsNumbered(start.to_owned()));
        }
        if let Some(place) = text.strip_suffix(" exists") {
            return Place::parse(place.trim()).map(Self::Present);
        }
        if let Some((left, right)) = text.split_once(" == ") {
            if left.trim() == "method" {
                return match right.trim().parse() {
                    Ok(method) => Ok(Self::Method(method)),
                    Err(_) => Err(format!("`{right}` is not a method")),
                };
            }
            return Ok(Self::Equals(Place::parse(left.trim())?, unquote(right)?));
        }
        match text.split_once(" contains ") {
            Some((left, right)) => Ok(Self::Contains(Place::parse(left.trim())?, unquote(right)?)),
            None if text.contains(" = ") => Err(format!("`{text}` is no condition; write `PLACE == \"text\"`")),
            None => Place::parse(text).map(Self::Present),
        }
    }

    /// Whether the head alone decides.
    pub(super) fn is_in_head(&self) -> bool {
        match self {
            Self::Method(_) | Self::Always => true,
            Self::BodyIsEmpty | Self::BodyStarts(_) | Self::BodyIsNumbered(_) => false,
            Self::Not(inner) => inner.is_in_head(),
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
            Self::Always => true,
            Self::BodyStarts(text) => fields.body.starts_with(text.as_bytes()),
            Self::BodyIsNumbered(text) => fields.body.strip_prefix(text.as_bytes()).is_some_and(|number| {
                (1..=MAX_DIGITS).contains(&number.len()) && number.iter().all(u8::is_ascii_digit)
            }),
            Self::Not(inner) => !inner.holds(fields),
        }
    }

    /// The place and the text of `PLACE == "text"`.
    pub(super) fn equality(&self) -> Option<(&Place, &str)> {
        match self {
            Self::Equals(place, text) => Some((place, text)),
            _ => None,
        }
    }

    /// The JSON pointer it looks at.
    pub(super) fn pointer(&self) -> Option<&Pointer> {
        match self {
            Self::Present(Place::Json(pointer))
            | Self::Equals(Place::Json(pointer), _)
            | Self::Contains(Place::Json(pointer), _) => Some(pointer),
            Self::Not(inner) => inner.pointer(),
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
            Self::Always => f.write_str("always"),
            Self::BodyStarts(text) => write!(f, "body starts with \"{text}\""),
            Self::BodyIsNumbered(text) => write!(f, "body is \"{text}<digits>\""),
            Self::Not(inner) => write!(f, "not {inner}"),
        }
    }
}

/// A text in double quotes, or a word.
fn unquote(text: &str) -> Result<String, String> {
    let text = text.trim();
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    match inner {
        Some(inner) => Ok(inner.to_owned()),
        None if text.starts_with(['"', '\'']) || text.ends_with(['"', '\'']) => {
            Err(format!("`{text}` is not a text in double quotes"))
        }
        None => Ok(text.to_owned()),
    }
}

/// What the sender's values in an answer may be, such as `hex 20..32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Values {
    class: Class,
    min: usize,
    max: usize,
}

/// A set of characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Digits,
    Hex,
    Token,
    Base64,
}

impl Class {
    const NAMED: [(&'static str, Self); 4] = [
        ("digits", Self::Digits),
        ("hex", Self::Hex),
        ("token", Self::Token),
        ("base64", Self::Base64),
    ];

    fn has(self, byte: u8) -> bool {
        match self {
            Self::Digits => byte.is_ascii_digit(),
            Self::Hex => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
            Self::Token => byte.is_ascii_alphanumeric() || b"-_".contains(&byte),
            Self::Base64 => byte.is_ascii_alphanumeric() || b"-_+/=".contains(&byte),
        }
    }
}

impl Values {
    /// Parses `CLASS MIN..MAX`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts = || {
            let (class, range) = text.split_once(' ')?;
            let (min, max) = range.trim().split_once("..")?;
            let class = Class::NAMED.iter().find(|(name, _)| *name == class)?.1;
            Some((class, min.parse().ok()?, max.parse().ok()?))
        };
        match parts() {
            Some((class, min, max)) if (1..=max).contains(&min) && max <= MAX_ECHO_UNSIGNED => {
                Ok(Self { class, min, max })
            }
            Some(_) => Err(format!("lengths lie between 1 and {MAX_ECHO_UNSIGNED}")),
            None => {
                let names: Vec<_> = Class::NAMED.iter().map(|(name, _)| *name).collect();
                Err(format!(
                    "expected such as \"hex 20..32\", with one of {}",
                    names.join(", ")
                ))
            }
        }
    }

    /// Whether the value is one.
    fn allow(self, value: &[u8]) -> bool {
        (self.min..=self.max).contains(&value.len()) && value.iter().all(|byte| self.class.has(*byte))
    }

    /// Whether the pieces, one after the other, are one.
    pub(super) fn allow_pieces(self, pieces: &[Cow<'_, [u8]>]) -> bool {
        let len = pieces.iter().map(|piece| piece.len()).fold(0, usize::saturating_add);
        (self.min..=self.max).contains(&len)
            && pieces
                .iter()
                .all(|piece| piece.iter().all(|byte| self.class.has(*byte)))
    }
}

/// What became of a hand-shake.
#[derive(Debug)]
pub(super) enum Handshake {
    /// The answer.
    Answered(ChallengeAnswer),
    /// What the sender must know is not what it said.
    CheckFailed,
    /// A value is absent or is not one that may be echoed: it is no hand-shake.
    NotOne,
}

/// A hand-shake and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Challenge {
    pub(super) name: String,
    pub(super) when: Vec<Condition>,
    /// Only a request whose signature holds gets the answer.
    pub(super) verify_first: bool,
    /// Where it hands over the secret itself, which a source takes only while a person lets it (see [`super::handover`]).
    pub(super) hands_over_secret: Option<Place>,
    /// Pairs of texts that must be equal; compared in constant time, since one of them is what only the provider knows.
    pub(super) check: Vec<(Template, Template)>,
    /// The provider's own status for a check that fails; otherwise it is refused like any request.
    pub(super) check_failed_status: Option<StatusCode>,
    /// What the sender's values may be; always given where one of them is MACed.
    pub(super) values: Option<Values>,
    pub(super) status: StatusCode,
    pub(super) content_type: String,
    /// Each with its name as the record spells it, for people.
    pub(super) headers: Vec<(HeaderName, String, Template)>,
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

    /// Whether it says itself that requests with this method may be it.
    pub(super) fn names_method(&self, method: &Method) -> bool {
        self.when
            .iter()
            .any(|condition| matches!(condition, Condition::Method(known) if known == method))
    }

    /// What becomes of a request that is this hand-shake.
    pub(super) fn answer(&self, with: &Filling<'_>) -> Handshake {
        if !self.check.iter().all(|(left, right)| are_equal(left, right, with)) {
            return match self.check_failed_status {
                Some(status) => Handshake::Answered(ChallengeAnswer {
                    status,
                    spelled: Vec::new(),
                    headers: HeaderMap::new(),
                    body: Bytes::new(),
                }),
                None => Handshake::CheckFailed,
            };
        }
        self.written(with).map_or(Handshake::NotOne, Handshake::Answered)
    }

    /// The templates of the answer.
    pub(super) fn texts(&self) -> impl Iterator<Item = &Template> {
        self.headers
            .iter()
            .map(|(_, _, template)| template)
            .chain(std::iter::once(&self.body))
    }

    /// What its answer MACs, if it MACs anything: an event whose signed text is such a value is refused, so that the
    /// answer vouches for nothing.
    pub(super) fn macs(&self) -> Option<Values> {
        self.values.filter(|_| self.texts().any(Template::uses_mac))
    }

    fn written(&self, with: &Filling<'_>) -> Option<ChallengeAnswer> {
        let escape = |value: &[u8], given_by: GivenBy| self.escape(value, given_by);
        let body = self.body.render(with, escape)?;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(&self.content_type).ok()?);
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        for (name, _, template) in &self.headers {
            let value = template.render(with, |value, given_by| {
                self.limited(value, given_by).map(<[u8]>::to_vec)
            })?;
            headers.insert(name, HeaderValue::from_bytes(&value).ok()?);
        }
        Some(ChallengeAnswer {
            status: self.status,
            spelled: self.headers.iter().map(|(_, spelled, _)| spelled.clone()).collect(),
            headers,
            body: body.into(),
        })
    }

    fn escape(&self, value: &[u8], given_by: GivenBy) -> Option<Vec<u8>> {
        let value = self.limited(value, given_by)?;
        if self.content_type.starts_with("application/json") {
            let quoted = serde_json::to_vec(std::str::from_utf8(value).ok()?).ok()?;
            return quoted.get(1..quoted.len().checked_sub(1)?).map(<[u8]>::to_vec);
        }
        Some(value.to_vec())
    }

    /// Anybody can ask for an unsigned echo, so it is short and made of characters that mean nothing to a browser.
    fn limited<'v>(&self, value: &'v [u8], given_by: GivenBy) -> Option<&'v [u8]> {
        if given_by == GivenBy::Source {
            return Some(value);
        }
        if self.values.is_some_and(|values| !values.allow(value)) {
            return None;
        }
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
        let checked = self.check.iter().flat_map(|(left, right)| [left, right]);
        let texts = checked.chain(self.texts());
        let handed_over = self.hands_over_secret.as_ref().and_then(Place::pointer);
        conditions.chain(texts.flat_map(Template::pointers)).chain(handed_over)
    }
}

/// Whether both texts can be filled and are the same; takes a time that tells nothing but lengths.
fn are_equal(left: &Template, right: &Template, with: &Filling<'_>) -> bool {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    if left.fill(with, &mut a).is_err() || right.fill(with, &mut b).is_err() {
        return false;
    }
    bool::from(a.concat().ct_eq(&b.concat()))
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
            mac: None,
        };
        match challenge.is_asked(&fields).then(|| challenge.answer(&with))? {
            Handshake::Answered(answer) => Some(answer),
            Handshake::CheckFailed | Handshake::NotOne => None,
        }
    }

    fn echo(content_type: &str, body: &str, verify_first: bool) -> Challenge {
        Challenge {
            name: "test".into(),
            when: Condition::parse_all("method == GET and query:c").unwrap(),
            verify_first,
            hands_over_secret: None,
            check: Vec::new(),
            check_failed_status: None,
            values: None,
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
        for wrong in [
            "cookie == 1",
            "json:/t == 'u'",
            "json:/t == \"u",
            "header:x-a = u",
            "header:x-a contains 'u'",
        ] {
            assert!(Condition::parse_all(wrong).is_err(), "{wrong}");
        }
        let text = "always and not header:x-a and body starts with \"{\" and body is \"id=<digits>\" and form:a exists";
        let conditions = Condition::parse_all(text).unwrap();
        let shown: Vec<String> = conditions.iter().map(ToString::to_string).collect();
        assert_eq!(Condition::parse_all(&shown.join(" and ")).as_ref(), Ok(&conditions));
        assert!(Condition::parse_all("body is \"x\"").is_err());
    }

    #[test]
    fn a_numbered_body_is_that_and_nothing_else() {
        let numbered = Condition::parse("body is \"webhook_id=<digits>\"").unwrap();
        let target = "/".parse().unwrap();
        let headers = HeaderMap::new();
        let holds = |body: &str| numbered.holds(&Fields::new(&Method::POST, &target, &headers, body.as_bytes(), &[]));
        assert!(holds("webhook_id=7"));
        for other in [
            "webhook_id=",
            "webhook_id=7&a=1",
            "webhook_id=7\n",
            "xwebhook_id=7",
            "webhook_id=123456789012345678901",
        ] {
            assert!(!holds(other), "{other}");
        }
    }

    #[test]
    fn values_have_a_class_and_a_length() {
        let hex = Values::parse("hex 20..32").unwrap();
        assert!(hex.allow(&[b'a'; 20]) && hex.allow(&[b'0'; 32]));
        assert!(!hex.allow(&[b'a'; 19]) && !hex.allow(&[b'a'; 33]) && !hex.allow(&[b'A'; 20]));
        for bad in ["", "hex", "hex 0..4", "hex 4..2", "hex 1..1000", "text 1..2", "hex 1-2"] {
            assert!(Values::parse(bad).is_err(), "{bad}");
        }
    }
}
