//! What stands in a template's places, for one request.

use std::borrow::Cow;

use data_encoding::{BASE64, HEXLOWER};
use http::HeaderName;
use sha2::{Digest, Sha256};

use crate::verify::atlassian;
use crate::verify::canonical;
use crate::verify::form;
use crate::verify::json;
use crate::verify::json_text;
use crate::verify::place::{Fields, Place};

use super::{Filling, MacForm, Missing, Summand, Token};

impl Token {
    pub(super) fn value<'a>(&'a self, with: &Filling<'a>) -> Result<Cow<'a, [u8]>, Missing> {
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
    pub(super) fn hashed(&self) -> Vec<&Place> {
        match self {
            Self::Mac { place, .. } => vec![place],
            Self::Sha256Hex(summands) => summands.iter().filter_map(Summand::place).collect(),
            _ => Vec::new(),
        }
    }
}

impl Summand {
    pub(super) fn param(&self) -> Option<&str> {
        match self {
            Self::Param(name) => Some(name),
            Self::Place(_) => None,
        }
    }

    pub(super) fn place(&self) -> Option<&Place> {
        match self {
            Self::Place(place) => Some(place),
            Self::Param(_) => None,
        }
    }
}

impl Place {
    pub(super) const fn missing(&self) -> Missing {
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

pub(super) fn lookup<'a>(place: &'a Place, with: &Filling<'a>) -> Option<Cow<'a, [u8]>> {
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
