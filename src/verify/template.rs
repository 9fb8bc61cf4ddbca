//! Texts with places for values: what a provider signs, and what we answer to a hand-shake.
//!
//! A template is compiled once. For each request it is filled into a list of byte slices that borrow from the request,
//! so a signed payload is hashed without being put together in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;

use data_encoding::{BASE64, HEXLOWER};
use http::HeaderName;
use sha2::{Digest, Sha256};

use super::atlassian;
use super::canonical;
use super::form;
use super::json::{self, Pointer};
use super::json_text;
use super::mac::MacKey;
use super::place::{Fields, Place};
use super::signature::Group;

/// A compiled template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Template {
    text: String,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Token(Token),
    /// `[[...]]`: left out when a value in it is absent.
    Segment(Vec<Piece>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    AtlassianRequest,
    Body,
    BodyBase64Url,
    BodySha256Hex,
    FormSorted,
    Method,
    Path,
    PathQuery,
    Secret,
    Timestamp,
    Url,
    UrlNoQuery,
    Param(String),
    Value {
        place: Place,
        optional: bool,
    },
    /// `Name: value` and a line end for each header in the list that stands at the place.
    HeaderLines(Place),
    BodyCrc32,
    BodyJsonAscii,
    BodyJsonSorted,
    BodyJsonString,
    ContentfulUri,
    PlivoV3Url,
    /// The bytes of a member of the JSON body.
    JsonRaw(Pointer),
    /// A key of the signature header as a JSON string.
    SignatureJsonString(Place),
    /// The headers that this one lists.
    SignedHeaders(Place),
    /// The values in order of their bytes; `None` is the secret.
    SortedJoin(Vec<Option<Place>>),
    /// A MAC over the value, made with the source's own key; only in answers to hand-shakes.
    Mac {
        place: Place,
        form: MacForm,
    },
    /// SHA-256 over the values, one after the other; only in answers to hand-shakes.
    Sha256Hex(Vec<Summand>),
}

/// How a MAC in an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MacForm {
    Hex,
    Base64,
}

/// A part of what is hashed into an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Summand {
    Param(String),
    Place(Place),
}

/// The tokens without a name behind them.
const WORDS: [(&str, Token); 18] = [
    ("atlassian_request", Token::AtlassianRequest),
    ("body", Token::Body),
    ("body_base64url", Token::BodyBase64Url),
    ("body_crc32", Token::BodyCrc32),
    ("body_json_ascii", Token::BodyJsonAscii),
    ("body_json_sorted", Token::BodyJsonSorted),
    ("body_json_string", Token::BodyJsonString),
    ("body_sha256_hex", Token::BodySha256Hex),
    ("contentful_uri", Token::ContentfulUri),
    ("form_sorted", Token::FormSorted),
    ("method", Token::Method),
    ("path", Token::Path),
    ("path_query", Token::PathQuery),
    ("plivo_v3_url", Token::PlivoV3Url),
    ("secret", Token::Secret),
    ("timestamp", Token::Timestamp),
    ("url", Token::Url),
    ("url_no_query", Token::UrlNoQuery),
];

/// Who gave a value of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenBy {
    /// Whoever asks.
    Sender,
    /// The source's own configuration.
    Source,
}

/// A value that the text needs is not in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// In the head.
    InHead,
    /// In the body, which therefore is not of the form that the scheme signs.
    InBody,
}

/// Everything a template is filled with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filling<'a> {
    pub(super) fields: &'a Fields<'a>,
    pub(super) params: &'a BTreeMap<String, String>,
    /// The characters of the signed time, as they came.
    pub(super) timestamp: Option<&'a [u8]>,
    /// The public URL, in the spelling that is being tried.
    pub(super) url: &'a str,
    /// The signature header's own keys.
    pub(super) group: Option<&'a Group<'a>>,
    /// The secret that is being tried, where it is part of the text.
    pub(super) secret: Option<&'a [u8]>,
    /// What `{hmac_hex:…}` is made with.
    pub(super) mac: Option<&'a MacKey>,
}

impl Template {
    /// Compiles `text`. `params` are the names that a source may give values for.
    ///
    /// A `{` that no lower-case word follows is an ordinary character, so that JSON answers can be written plainly.
    pub(super) fn parse(text: &str, params: &[String]) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, tail)) = rest.split_once("[[") {
            let (inside, after) = tail.split_once("]]").ok_or("`[[` has no `]]`")?;
            parse_flat(before, params, &mut pieces)?;
            let mut segment = Vec::new();
            parse_flat(inside, params, &mut segment)?;
            pieces.push(Piece::Segment(segment));
            rest = after;
        }
        parse_flat(rest, params, &mut pieces)?;
        Ok(Self {
            text: text.to_owned(),
            pieces,
        })
    }

    /// As written.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the public URL is in it.
    pub(super) fn uses_url(&self) -> bool {
        self.tokens()
            .any(|t| matches!(t, Token::Url | Token::UrlNoQuery | Token::PlivoV3Url))
    }

    /// Whether the time is in it.
    pub(super) fn uses_timestamp(&self) -> bool {
        self.tokens().any(|t| *t == Token::Timestamp)
    }

    /// Whether the secret itself is in it.
    pub(super) fn uses_secret(&self) -> bool {
        self.tokens().any(|token| match token {
            Token::Secret => true,
            Token::SortedJoin(items) => items.contains(&None),
            _ => false,
        })
    }

    /// Whether a MAC or digest over a value of the sender's is in it.
    pub(super) fn uses_function(&self) -> bool {
        self.tokens()
            .any(|t| matches!(t, Token::Mac { .. } | Token::Sha256Hex(_)))
    }

    /// Whether it holds a MAC that is made with the source's key.
    pub(super) fn uses_mac(&self) -> bool {
        self.tokens().any(|t| matches!(t, Token::Mac { .. }))
    }

    /// The header that lists which headers are signed.
    pub(super) fn header_list(&self) -> Option<&Place> {
        self.tokens().find_map(|token| match token {
            Token::SignedHeaders(list) => Some(list),
            _ => None,
        })
    }

    /// The names of the source's parameters in it.
    pub(super) fn params(&self) -> impl Iterator<Item = &str> {
        self.tokens().flat_map(|token| match token {
            Token::Param(name) => vec![name.as_str()],
            Token::Sha256Hex(summands) => summands.iter().filter_map(Summand::param).collect(),
            _ => Vec::new(),
        })
    }

    /// Whether the fields of a form are in it.
    pub(super) fn uses_form(&self) -> bool {
        self.tokens()
            .any(|t| matches!(t, Token::FormSorted | Token::PlivoV3Url))
    }

    /// Whether the whole body is in it, as bytes, as digest or as all its fields. A checksum does not count: other bodies
    /// that have it are easily made.
    pub(super) fn covers_body(&self) -> bool {
        self.tokens().any(|token| {
            matches!(
                token,
                Token::Body
                    | Token::BodyBase64Url
                    | Token::BodySha256Hex
                    | Token::BodyJsonAscii
                    | Token::BodyJsonSorted
                    | Token::BodyJsonString
                    | Token::FormSorted
                    | Token::PlivoV3Url
            )
        })
    }

    /// Whether the value at `place` is in it.
    pub(super) fn covers(&self, place: &Place) -> bool {
        self.covers_all_around(place) || self.places().any(|known| known == place)
    }

    /// Whether what `place` is looked up in is in it as it stands, so that it has one reading.
    pub(super) fn covers_all_around(&self, place: &Place) -> bool {
        match place {
            Place::Json(at) => {
                let holds = |token: &Token| matches!(token, Token::JsonRaw(whole) if whole.leads_to(at));
                self.covers_body() || self.tokens().any(holds)
            }
            Place::Form(_) | Place::FormJson(..) | Place::Item(_) | Place::Body => self.covers_body(),
            Place::Query(_) | Place::QueryOf(_) => {
                let in_target = |t: &Token| matches!(t, Token::PathQuery | Token::ContentfulUri);
                self.uses_url() || self.tokens().any(in_target)
            }
            Place::Header(_)
            | Place::HeaderOf(_)
            | Place::NumberedHeaders(..)
            | Place::Signature(_)
            | Place::Claim(_) => false,
        }
    }

    /// The parts of a JSON body that are in it as they stand.
    pub(super) fn raw_pointers(&self) -> impl Iterator<Item = &Pointer> {
        self.tokens().filter_map(|token| match token {
            Token::JsonRaw(pointer) => Some(pointer),
            _ => None,
        })
    }

    /// The JSON pointers in it.
    pub(super) fn pointers(&self) -> impl Iterator<Item = &Pointer> {
        self.places().filter_map(|place| match place {
            Place::Json(pointer) => Some(pointer),
            _ => None,
        })
    }

    /// The places in it.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.tokens().flat_map(|token| match token {
            Token::Value { place, .. }
            | Token::Mac { place, .. }
            | Token::SignatureJsonString(place)
            | Token::HeaderLines(place) => vec![place],
            Token::SortedJoin(items) => items.iter().flatten().collect(),
            Token::Sha256Hex(summands) => summands.iter().filter_map(Summand::place).collect(),
            _ => Vec::new(),
        })
    }

    fn tokens(&self) -> impl Iterator<Item = &Token> {
        fn flat(pieces: &[Piece]) -> impl Iterator<Item = &Token> {
            pieces.iter().filter_map(|piece| match piece {
                Piece::Token(token) => Some(token),
                Piece::Literal(_) | Piece::Segment(_) => None,
            })
        }
        let inside = self.pieces.iter().flat_map(|piece| match piece {
            Piece::Segment(segment) => flat(segment),
            Piece::Literal(_) | Piece::Token(_) => flat(&[]),
        });
        flat(&self.pieces).chain(inside)
    }

    /// Appends the filled text to `out`, slice by slice.
    pub(super) fn fill<'a>(&'a self, with: &Filling<'a>, out: &mut Vec<Cow<'a, [u8]>>) -> Result<(), Missing> {
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => out.push(Cow::Borrowed(text.as_bytes())),
                Piece::Token(token) => out.push(token.value(with)?),
                Piece::Segment(segment) => {
                    let kept = out.len();
                    if fill_segment(segment, with, out).is_err() {
                        out.truncate(kept);
                    }
                }
            }
        }
        Ok(())
    }

    /// The filled text in one piece. `escape` makes of each value what is written, or refuses it, told who gave the value;
    /// what a function hashes is refused by it too.
    pub(super) fn render(
        &self,
        with: &Filling<'_>,
        escape: impl Fn(&[u8], GivenBy) -> Option<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Token(token) => {
                    for place in token.hashed() {
                        escape(&lookup(place, with)?, GivenBy::Sender)?;
                    }
                    out.extend(match token {
                        Token::Mac { .. } | Token::Sha256Hex(_) => token.value(with).ok()?.into_owned(),
                        Token::Param(_) => escape(&token.value(with).ok()?, GivenBy::Source)?,
                        token => escape(&token.value(with).ok()?, GivenBy::Sender)?,
                    });
                }
                Piece::Segment(_) => {}
            }
        }
        Some(out)
    }
}

fn fill_segment<'a>(segment: &'a [Piece], with: &Filling<'a>, out: &mut Vec<Cow<'a, [u8]>>) -> Result<(), Missing> {
    for piece in segment {
        match piece {
            Piece::Literal(text) => out.push(Cow::Borrowed(text.as_bytes())),
            Piece::Token(token) => out.push(token.value(with)?),
            Piece::Segment(_) => {}
        }
    }
    Ok(())
}

impl Token {
    fn value<'a>(&'a self, with: &Filling<'a>) -> Result<Cow<'a, [u8]>, Missing> {
        let fields = with.fields;
        let value: Cow<'a, [u8]> = match self {
            Self::Body => Cow::Borrowed(fields.body),
            Self::AtlassianRequest => Cow::Owned(atlassian::canonical(fields.method, fields.target)),
            Self::BodyBase64Url => Cow::Owned(data_encoding::BASE64URL_NOPAD.encode(fields.body).into_bytes()),
            Self::HeaderLines(place) => {
                let names = lookup(place, with).unwrap_or_default();
                Cow::Owned(header_lines(&names, fields).ok_or(Missing::InHead)?)
            }
            Self::BodySha256Hex => {
                let digest = HEXLOWER.encode(&Sha256::digest(fields.body));
                Cow::Owned(digest.into_bytes())
            }
            // A body that is no form would otherwise go uncovered by the signature.
            Self::FormSorted if !fields.has_form() => return Err(Missing::InBody),
            Self::FormSorted => Cow::Owned(form::sorted(fields.body)),
            Self::Method => Cow::Borrowed(fields.method.as_str().as_bytes()),
            Self::Path => Cow::Borrowed(fields.target.path().as_bytes()),
            Self::PathQuery => Cow::Borrowed(fields.target.as_str().as_bytes()),
            Self::Secret => Cow::Borrowed(with.secret.ok_or(Missing::InHead)?),
            Self::Timestamp => Cow::Borrowed(with.timestamp.ok_or(Missing::InHead)?),
            Self::Url => Cow::Borrowed(with.url.as_bytes()),
            Self::UrlNoQuery => Cow::Borrowed(with.url.split('?').next().unwrap_or_default().as_bytes()),
            Self::Param(name) => Cow::Borrowed(param(name, with).ok_or(Missing::InHead)?),
            Self::BodyCrc32 => Cow::Owned(crc32fast::hash(fields.body).to_string().into_bytes()),
            Self::BodyJsonAscii => Cow::Owned(json_text::ascii(fields.body).ok_or(Missing::InBody)?),
            Self::BodyJsonSorted => Cow::Owned(json_text::sorted(fields.body).ok_or(Missing::InBody)?),
            Self::BodyJsonString => Cow::Owned(json_text::quoted(fields.body).ok_or(Missing::InBody)?),
            Self::ContentfulUri => Cow::Owned(canonical::contentful_uri(fields.target.as_str()).into_bytes()),
            Self::PlivoV3Url if !fields.has_form() => return Err(Missing::InBody),
            Self::PlivoV3Url => Cow::Owned(canonical::plivo_v3_url(with.url, fields.body)),
            Self::JsonRaw(pointer) => Cow::Borrowed(json::raw(fields.body, pointer).ok_or(Missing::InBody)?),
            Self::SignatureJsonString(place) => {
                let value = lookup(place, with).ok_or(Missing::InHead)?;
                Cow::Owned(json_text::quoted(&value).ok_or(Missing::InHead)?)
            }
            Self::SignedHeaders(Place::Header(list)) => {
                Cow::Owned(canonical::signed_headers(fields, list).ok_or(Missing::InHead)?)
            }
            Self::SignedHeaders(_) => return Err(Missing::InHead),
            Self::SortedJoin(items) => {
                let mut values = Vec::with_capacity(items.len());
                for item in items {
                    values.push(match item {
                        None => Cow::Borrowed(with.secret.ok_or(Missing::InHead)?),
                        Some(place) => lookup(place, with).ok_or_else(|| place.missing())?,
                    });
                }
                values.sort();
                Cow::Owned(values.concat())
            }
            Self::Mac { place, form } => {
                let value = lookup(place, with).ok_or_else(|| place.missing())?;
                let tag = with.mac.ok_or(Missing::InHead)?.compute(&[value]);
                let text = match form {
                    MacForm::Hex => HEXLOWER.encode(tag.as_slice()),
                    MacForm::Base64 => BASE64.encode(tag.as_slice()),
                };
                Cow::Owned(text.into_bytes())
            }
            Self::Sha256Hex(summands) => {
                let mut hash = Sha256::new();
                for summand in summands {
                    match summand {
                        Summand::Param(name) => hash.update(param(name, with).ok_or(Missing::InHead)?),
                        Summand::Place(place) => hash.update(lookup(place, with).ok_or_else(|| place.missing())?),
                    }
                }
                Cow::Owned(HEXLOWER.encode(&hash.finalize()).into_bytes())
            }
            Self::Value { place, optional } => match lookup(place, with) {
                Some(value) => value,
                None if *optional => Cow::Borrowed(&[][..]),
                None => return Err(place.missing()),
            },
        };
        Ok(value)
    }

    /// The places whose values it hashes.
    fn hashed(&self) -> Vec<&Place> {
        match self {
            Self::Mac { place, .. } => vec![place],
            Self::Sha256Hex(summands) => summands.iter().filter_map(Summand::place).collect(),
            _ => Vec::new(),
        }
    }
}

impl Summand {
    fn param(&self) -> Option<&str> {
        match self {
            Self::Param(name) => Some(name),
            Self::Place(_) => None,
        }
    }

    fn place(&self) -> Option<&Place> {
        match self {
            Self::Place(place) => Some(place),
            Self::Param(_) => None,
        }
    }
}

impl Place {
    const fn missing(&self) -> Missing {
        if self.is_in_head() {
            Missing::InHead
        } else {
            Missing::InBody
        }
    }
}

fn param<'a>(name: &str, with: &Filling<'a>) -> Option<&'a [u8]> {
    with.params.get(name).map(String::as_bytes)
}

fn lookup<'a>(place: &'a Place, with: &Filling<'a>) -> Option<Cow<'a, [u8]>> {
    match place {
        Place::Header(name) => with.fields.only_header(name).map(Cow::Borrowed),
        Place::Signature(key) => with.group?.get(key.as_bytes()).map(Cow::Borrowed),
        place => with.fields.get(place),
    }
}

/// Most headers of a list that is signed.
const MAX_LISTED: usize = 32;

/// The headers that a list names, in its order and spelling. A header that is absent or stands there twice is none.
fn header_lines(names: &[u8], fields: &Fields<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let names = names.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    for (index, name) in names.filter(|name| !name.is_empty()).enumerate() {
        let header = HeaderName::from_bytes(name).ok()?;
        if index >= MAX_LISTED {
            return None;
        }
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        out.extend_from_slice(fields.only_header(&header)?);
        out.push(b'\n');
    }
    Some(out)
}

fn parse_flat(text: &str, params: &[String], pieces: &mut Vec<Piece>) -> Result<(), String> {
    let mut literal = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let (before, tail) = rest.split_at(open);
        literal.push_str(before);
        let inside = tail.strip_prefix('{').unwrap_or_default();
        if inside.starts_with(|c: char| c.is_ascii_lowercase()) {
            let (name, after) = inside
                .split_once('}')
                .ok_or_else(|| format!("`{{{inside}` has no `}}`"))?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Token(parse_token(name, params)?));
            rest = after;
        } else {
            literal.push('{');
            rest = inside;
        }
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(())
}

fn parse_token(name: &str, params: &[String]) -> Result<Token, String> {
    if let Some((_, token)) = WORDS.iter().find(|(word, _)| *word == name) {
        return Ok(token.clone());
    }
    if let Some(place) = name.strip_prefix("header_lines:") {
        return Place::parse(place)
            .map(Token::HeaderLines)
            .map_err(|why| format!("in `{{{name}}}`: {why}"));
    }
    if let Some((kind, tail)) = name.split_once(':') {
        let place = |text: &str| Place::parse(text.trim()).map_err(|why| format!("in `{{{name}}}`: {why}"));
        match kind {
            "json_raw" => {
                let pointer = Pointer::parse(tail).ok_or_else(|| format!("`{tail}` is not a JSON pointer"))?;
                return Ok(Token::JsonRaw(pointer));
            }
            "sig_json_string" => return place(&format!("sig:{tail}")).map(Token::SignatureJsonString),
            "signed_headers" => return place(&format!("header:{tail}")).map(Token::SignedHeaders),
            "sorted_join" => {
                let items = tail.split(',').map(|item| match item.trim() {
                    "secret" => Ok(None),
                    item => place(item).map(Some),
                });
                return items.collect::<Result<_, _>>().map(Token::SortedJoin);
            }
            "hmac_hex" | "hmac_base64" => {
                let form = if kind == "hmac_hex" {
                    MacForm::Hex
                } else {
                    MacForm::Base64
                };
                return Ok(Token::Mac {
                    place: place(tail)?,
                    form,
                });
            }
            "sha256_hex" => {
                let summands = tail.split('+').map(|summand| match summand.trim() {
                    known if params.iter().any(|param| param == known) => Ok(Summand::Param(known.to_owned())),
                    summand => place(summand).map(Summand::Place),
                });
                return summands.collect::<Result<_, _>>().map(Token::Sha256Hex);
            }
            _ => {}
        }
        let (kind, optional) = match kind.strip_suffix('?') {
            Some(kind) => (kind, true),
            None => (kind, false),
        };
        let place = Place::parse(&format!("{kind}:{tail}")).map_err(|why| format!("in `{{{name}}}`: {why}"))?;
        if place.param().is_some() {
            return Err(format!("`{{{name}}}` is named by a parameter; only `signature` may be"));
        }
        if matches!(place, Place::NumberedHeaders(..)) {
            return Err(format!("`{{{name}}}` names many headers"));
        }
        return Ok(Token::Value { place, optional });
    }
    if params.iter().any(|param| param == name) {
        return Ok(Token::Param(name.to_owned()));
    }
    let known = WORDS
        .iter()
        .map(|(word, _)| *word)
        .chain(params.iter().map(String::as_str));
    let near = known.min_by_key(|word| strsim::damerau_levenshtein(word, name));
    Err(match near {
        Some(near) => format!("unknown token `{{{name}}}`; did you mean `{{{near}}}`?"),
        None => format!("unknown token `{{{name}}}`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, Method};

    fn fill(template: &str, headers: &[(&'static str, &str)], body: &str) -> Result<String, Missing> {
        let params = ["app_key".to_owned()];
        let template = Template::parse(template, &params).unwrap();
        let pointers: Vec<Pointer> = template.pointers().cloned().collect();
        let map: HeaderMap = headers
            .iter()
            .map(|(k, v)| (http::HeaderName::from_static(k), v.parse().unwrap()))
            .collect();
        let target = "/p?q=1".parse().unwrap();
        let fields = Fields::new(&Method::POST, &target, &map, body.as_bytes(), &pointers);
        let params = BTreeMap::from([("app_key".to_owned(), "K".to_owned())]);
        let with = Filling {
            fields: &fields,
            params: &params,
            timestamp: Some(b"17"),
            url: "https://h.test/p?q=1",
            group: None,
            secret: None,
            mac: None,
        };
        let mut out = Vec::new();
        template.fill(&with, &mut out)?;
        Ok(String::from_utf8(out.concat()).unwrap())
    }

    #[test]
    fn tokens_take_their_values_from_the_request() {
        assert_eq!(fill("v0:{timestamp}:{body}", &[], "B").as_deref(), Ok("v0:17:B"));
        assert_eq!(
            fill("{method}{path}|{path_query}", &[], "").as_deref(),
            Ok("POST/p|/p?q=1")
        );
        assert_eq!(
            fill("{url}|{url_no_query}|{app_key}", &[], "").as_deref(),
            Ok("https://h.test/p?q=1|https://h.test/p|K")
        );
        assert_eq!(fill("{header:x-a}{query:q}", &[("x-a", "")], "").as_deref(), Ok("1"));
        assert_eq!(fill("{json:/a}{json?:/b}", &[], "{\"a\":1}").as_deref(), Ok("1"));
    }

    #[test]
    fn an_absent_value_is_told_by_where_it_should_stand() {
        assert_eq!(fill("{header:x-a}", &[], ""), Err(Missing::InHead));
        assert_eq!(fill("{json:/a}", &[], "{}"), Err(Missing::InBody));
        assert_eq!(
            fill("{form_sorted}", &[("content-type", "application/json")], "{}"),
            Err(Missing::InBody)
        );
    }

    #[test]
    fn an_optional_segment_is_left_out_whole() {
        let template = "[[id:{query:q};]][[rid:{header:x-r};]]ts:{timestamp};";
        assert_eq!(fill(template, &[], "").as_deref(), Ok("id:1;ts:17;"));
        assert_eq!(fill(template, &[("x-r", "r")], "").as_deref(), Ok("id:1;rid:r;ts:17;"));
    }

    #[test]
    fn a_repeated_signed_header_is_not_guessed_at() {
        let (name, map) = (http::HeaderName::from_static("x-a"), HeaderMap::new());
        let mut map = map;
        map.append(&name, "1".parse().unwrap());
        map.append(&name, "2".parse().unwrap());
        let template = Template::parse("{header:x-a}", &[]).unwrap();
        let target = "/".parse().unwrap();
        let fields = Fields::new(&Method::POST, &target, &map, b"", &[]);
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
        assert_eq!(template.fill(&with, &mut Vec::new()), Err(Missing::InHead));
    }

    #[test]
    fn json_braces_are_ordinary_characters() {
        assert_eq!(
            fill("{\"challenge\":\"{json:/c}\",\"t\":{}}", &[], "{\"c\":\"x\"}").as_deref(),
            Ok("{\"challenge\":\"x\",\"t\":{}}")
        );
    }

    #[test]
    fn unknown_tokens_are_refused_with_a_proposal() {
        let error = Template::parse("{boddy}", &[]).unwrap_err();
        assert!(error.contains("did you mean `{body}`?"), "{error}");
        assert!(Template::parse("{body", &[]).is_err());
        assert!(Template::parse("[[{body}", &[]).is_err());
    }
}
