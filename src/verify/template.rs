//! Texts with places for values: what a provider signs, and what we answer to a hand-shake.
//!
//! A template is compiled once. For each request it is filled into a list of byte slices that borrow from the request,
//! so a signed payload is hashed without being put together in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::json::Pointer;
use super::mac::MacKey;
use super::place::{Fields, Place};
use super::signature::Group;

use self::parse::parse_flat;
use self::value::lookup;

mod parse;
mod value;

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

    /// Whether text stands behind the secret. Then whoever has a digest has those of longer texts too: MD5, SHA-1 and
    /// SHA-256 go on from where they stopped.
    pub(super) fn can_be_extended(&self) -> bool {
        self.uses_secret() && !matches!(self.pieces.last(), Some(Piece::Token(Token::Secret)))
    }

    /// Whether the text may be another one's, extended: that begins with the padding of the hash, 0x80, with which no UTF-8
    /// text goes on. What these providers sign is text.
    pub(super) fn is_extended(&self, with: &Filling<'_>) -> Result<bool, Missing> {
        if !self.can_be_extended() {
            return Ok(false);
        }
        let mut pieces = Vec::new();
        let secret = Some(&b""[..]);
        self.fill(&Filling { secret, ..*with }, &mut pieces)?;
        Ok(pieces.iter().any(|piece| std::str::from_utf8(piece).is_err()))
    }

    /// Whether the text that was signed can have been cut elsewhere: a value in front of the time holds what looks like the
    /// time with the literals around it. Then what stands behind it there may be what the sender called its body.
    pub(super) fn can_be_cut_elsewhere(&self, with: &Filling<'_>) -> bool {
        self.pieces.windows(4).any(|pieces| {
            let [
                Piece::Token(Token::Value { place, .. }),
                Piece::Literal(before),
                Piece::Token(Token::Timestamp),
                Piece::Literal(behind),
            ] = pieces
            else {
                return false;
            };
            let value = lookup(place, with).unwrap_or_default();
            memchr::memmem::find_iter(&value, before.as_bytes()).any(|at| {
                let rest = value.get(at + before.len()..).unwrap_or_default();
                let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                digits > 0
                    && rest
                        .get(digits..)
                        .is_some_and(|rest| rest.starts_with(behind.as_bytes()))
            })
        })
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

#[cfg(test)]
mod tests;
