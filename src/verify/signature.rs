//! Takes a signature header apart: from header lines to candidate digests, in every form that providers use.

use std::borrow::Cow;
use std::collections::BTreeMap;

use data_encoding::BASE64;
use http::HeaderValue;

use crate::time::Timestamp;

use super::Reason;
use super::few::Few;
use super::jws::Members;
use super::mac::Tag;
use super::place::{Fields, Place};

pub(super) use self::encoding::Encoding;

mod encoding;

/// Most candidate digests of one request. Real rotations send two or three, DocuSign up to 100 numbered headers.
const MAX_CANDIDATES: usize = 100;

/// Most groups of one header. Each costs a hash over the body; Persona's rotation sends two.
const MAX_GROUPS: usize = 4;

/// Most candidates of one request that a public key is asked for: each costs as much as a thousand comparisons of digests.
const MAX_SIGNATURES: usize = 8;

/// Longest JSON that holds a signature, in bytes of base64.
const MAX_JSON: usize = 4096;

/// What candidates must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    /// Digests of so many bytes.
    Digest(usize),
    /// Signatures by a public key.
    Signature,
}

/// The grammar of the signature's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parse {
    /// One digest.
    Plain,
    /// Several digests.
    List { separator: String },
    /// `key=value` pairs, some of which are digests (Stripe).
    KeyValue {
        separator: String,
        keys: Vec<String>,
        group_separator: Option<String>,
    },
    /// `tag,digest` entries of which those with our tag count (Standard Webhooks).
    Tagged {
        separator: String,
        tag_separator: String,
        tag: String,
        /// The tag of entries that are by a public key (Standard Webhooks: `v1a` beside `v1`).
        public_key_tag: Option<String>,
    },
    /// The time first, then digests (Recurly).
    Positional { separator: String },
    /// Base64 of a JSON object, one of whose members is the signature (eBay).
    Base64Json { key: String },
}

/// Where the signature stands and how it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// All places count; those that the request lacks are passed over.
    pub(super) places: Vec<Place>,
    pub(super) parse: Parse,
    pub(super) prefix: String,
    pub(super) prefix_optional: bool,
    pub(super) encoding: Encoding,
    /// The keys in the order in which they are written, where the provider's own check goes by it (Hygraph).
    pub(super) order: Vec<String>,
    /// Highest number of [`Place::NumberedHeaders`].
    pub(super) max_n: u32,
}

/// Candidates that share the header's other values.
#[derive(Debug, Default)]
pub(super) struct Group<'v> {
    keys: Few<(&'v [u8], &'v [u8])>,
    /// What the request claims.
    pub(super) tags: Few<Tag>,
    /// What the request claims, where a public key judges it.
    pub(super) signatures: Vec<Vec<u8>>,
    /// The time that these were signed with.
    pub(super) time: Option<SignedTime<'v>>,
}

/// A time as a request shows it.
#[derive(Debug)]
pub(super) struct SignedTime<'v> {
    /// Its characters.
    pub(super) text: Cow<'v, [u8]>,
    /// What they tell, if they tell a time.
    pub(super) at: Option<Timestamp>,
}

impl<'v> Group<'v> {
    /// The characters of the time.
    pub(super) fn timestamp(&self) -> Option<&[u8]> {
        self.time.as_ref().map(|time| time.text.as_ref())
    }

    /// The time that the signature covers, where it covers one.
    pub(super) fn signed_at(&self) -> Option<Timestamp> {
        self.time.as_ref()?.at
    }

    /// The value of a key inside the header; a key that stands there with two values has none.
    pub(super) fn get(&self, key: &[u8]) -> Option<&'v [u8]> {
        let mut values = self.keys.iter().filter(|(k, _)| *k == key).map(|(_, v)| *v);
        let first = values.next()?;
        values.all(|other| other == first).then_some(first)
    }

    /// Adds a value.
    pub(super) fn set(&mut self, key: &'v [u8], value: &'v [u8]) {
        self.keys.push((key, value));
    }

    /// A group with these values, for signing.
    pub(super) fn signing(keys: impl Iterator<Item = (&'v [u8], &'v [u8])>) -> Self {
        let mut group = Self::default();
        group.keys.extend(keys);
        group
    }
}

impl Form {
    /// Whether the head alone shows the signature.
    pub(super) fn is_in_head(&self) -> bool {
        self.places.iter().all(Place::is_in_head)
    }

    /// The form with names that the source gives as parameters, where it has any.
    pub(super) fn with_params(&self, params: &BTreeMap<String, String>) -> Result<Option<Self>, (String, String)> {
        let mut form = self.clone();
        for place in &mut form.places {
            if let Some(value) = place
                .param()
                .and_then(|param| Some((param.to_owned(), params.get(param)?)))
            {
                let (param, name) = value;
                *place = place.named(name).map_err(|why| (param, why))?;
            }
        }
        if let Parse::Tagged { tag, .. } = &mut form.parse
            && let Some(param) = tag.strip_prefix('{').and_then(|tag| tag.strip_suffix('}'))
            && let Some(value) = params.get(param)
        {
            if value.is_empty() {
                return Err((param.to_owned(), "it is empty".to_owned()));
            }
            *tag = value.clone();
        }
        Ok((form != *self).then_some(form))
    }

    /// The names of parameters that it needs.
    pub(super) fn params(&self) -> Vec<&str> {
        let of_places = self.places.iter().filter_map(Place::param);
        let of_tag = match &self.parse {
            Parse::Tagged { tag, .. } => tag.strip_prefix('{').and_then(|tag| tag.strip_suffix('}')),
            _ => None,
        };
        of_places.chain(of_tag).collect()
    }

    /// The raw values, not empty, in their order.
    pub(super) fn lines<'f>(&self, fields: &'f Fields<'_>) -> Result<Few<Cow<'f, [u8]>>, Reason> {
        let mut lines = Few::default();
        let is_empty = |line: &[u8]| line.trim_ascii().is_empty();
        for place in &self.places {
            match place {
                Place::Header(name) => {
                    let all = fields.headers.get_all(name).iter().map(HeaderValue::as_bytes);
                    lines.extend(all.filter(|line| !is_empty(line)).map(Cow::Borrowed));
                }
                Place::NumberedHeaders(before, after) => {
                    let names = (1..=self.max_n).map(|n| format!("{before}{n}{after}"));
                    let found = names
                        .filter_map(|name| fields.headers.get(name))
                        .map(HeaderValue::as_bytes);
                    lines.extend(found.filter(|line| !is_empty(line)).map(Cow::Borrowed));
                }
                place => lines.extend(fields.get(place).filter(|line| !is_empty(line))),
            }
        }
        let is_single = self.parse == Parse::Plain && self.places.len() == 1;
        match lines.len() {
            0 => Err(Reason::MissingSignature),
            // A hop may join two lines with a comma (RFC 9110 section 5.3), so they mean what one joined line means:
            // nothing, in a scheme that has no list.
            2.. if is_single && matches!(self.places.first(), Some(Place::Header(_))) => {
                Err(Reason::MalformedSignature)
            }
            1..=MAX_CANDIDATES => Ok(lines),
            _ => Err(Reason::MalformedSignature),
        }
    }

    /// Takes the values apart. Entries that cannot be what is wanted are passed over; if none is left, the signature
    /// is malformed.
    pub(super) fn groups<'v>(
        &self,
        lines: &'v Few<Cow<'_, [u8]>>,
        wanted: Candidate,
    ) -> Result<Vec<Group<'v>>, Reason> {
        let mut groups = vec![Group::default()];
        for line in lines.iter() {
            match &self.parse {
                Parse::KeyValue {
                    group_separator: Some(separator),
                    ..
                } => {
                    for part in split(line, separator) {
                        let mut group = Group::default();
                        self.entries(part, wanted, &mut group);
                        groups.push(group);
                    }
                }
                _ => {
                    if let Some(group) = groups.first_mut() {
                        self.entries(line, wanted, group);
                    }
                }
            }
        }
        groups.retain(|group| !group.tags.is_empty() || !group.signatures.is_empty());
        let digests: usize = groups.iter().map(|group| group.tags.len()).sum();
        let signatures: usize = groups.iter().map(|group| group.signatures.len()).sum();
        let is_bounded = digests <= MAX_CANDIDATES && signatures <= MAX_SIGNATURES && groups.len() <= MAX_GROUPS;
        if groups.is_empty() || !is_bounded {
            return Err(Reason::MalformedSignature);
        }
        Ok(groups)
    }

    fn entries<'v>(&self, line: &'v [u8], wanted: Candidate, group: &mut Group<'v>) {
        match &self.parse {
            Parse::Plain => self.claim(line, wanted, group),
            Parse::List { separator } => split(line, separator).for_each(|entry| self.claim(entry, wanted, group)),
            Parse::KeyValue { separator, keys, .. } => {
                for entry in split(line, separator) {
                    let Some((key, value)) = cut(entry, b"=") else { continue };
                    if keys.iter().any(|known| known.as_bytes() == key) {
                        self.claim(value, wanted, group);
                    } else {
                        group.keys.push((key, value));
                    }
                }
            }
            Parse::Tagged {
                separator,
                tag_separator,
                tag,
                public_key_tag,
            } => {
                for entry in split(line, separator) {
                    match cut(entry, tag_separator.as_bytes()) {
                        Some((found, text)) if found == tag.as_bytes() => self.claim(text, wanted, group),
                        Some((found, text)) if public_key_tag.as_ref().is_some_and(|tag| tag.as_bytes() == found) => {
                            self.claim(text, Candidate::Signature, group);
                        }
                        _ => {}
                    }
                }
            }
            Parse::Positional { separator } => {
                let mut parts = split(line, separator);
                if let Some(first) = parts.next() {
                    group.keys.push((b"0", first));
                }
                parts.for_each(|entry| self.claim(entry, wanted, group));
            }
            Parse::Base64Json { key } => {
                let line = line.trim_ascii();
                let json = (line.len() <= MAX_JSON).then(|| BASE64.decode(line).ok()).flatten();
                let members = json.and_then(|json| Members::read(&json));
                if let Some(text) = members.as_ref().and_then(|members| members.text(key)) {
                    self.claim(text.as_bytes(), wanted, group);
                }
            }
        }
    }

    /// Takes in one candidate, if it can be one.
    fn claim(&self, entry: &[u8], wanted: Candidate, group: &mut Group<'_>) {
        let Some(text) = self.strip(entry) else { return };
        match wanted {
            Candidate::Digest(len) => group
                .tags
                .extend(self.encoding.decode(text).filter(|tag| tag.len() == len)),
            Candidate::Signature => group
                .signatures
                .extend(self.encoding.decode_long(text).filter(|bytes| !bytes.is_empty())),
        }
    }

    /// The value without the prefix; white space around either is not part of it (SH-02).
    pub(super) fn strip<'v>(&self, value: &'v [u8]) -> Option<&'v [u8]> {
        let value = value.trim_ascii();
        if self.prefix.is_empty() {
            return Some(value);
        }
        match value.strip_prefix(self.prefix.as_bytes()) {
            Some(rest) => Some(rest.trim_ascii()),
            None => self.prefix_optional.then_some(value),
        }
    }

    /// Whether a value beside the signature is the provider's to choose, so that one that is there stays as it is.
    pub(super) fn keeps(&self, name: &str) -> bool {
        self.order.iter().any(|known| known == name)
    }

    /// The header's value for a fresh digest and the other values that stand in it.
    pub(super) fn write(&self, digest: &[u8], values: &[(&str, &str)]) -> String {
        let text = format!("{}{}", self.prefix, self.encoding.encode(digest));
        match &self.parse {
            Parse::Plain | Parse::List { .. } => text,
            Parse::KeyValue { separator, keys, .. } if !self.order.is_empty() => {
                let entry = |name: &String| match keys.contains(name) {
                    true => Some(format!("{name}={text}")),
                    false => {
                        let (_, value) = values.iter().find(|(known, _)| known == name)?;
                        Some(format!("{name}={value}"))
                    }
                };
                let entries: Vec<_> = self.order.iter().filter_map(entry).collect();
                entries.join(separator)
            }
            Parse::KeyValue { separator, keys, .. } => {
                let key = keys.first().map(String::as_str).unwrap_or_default();
                let others = values.iter().map(|(name, value)| format!("{name}={value}{separator}"));
                format!("{}{key}={text}", others.collect::<String>())
            }
            Parse::Tagged { tag_separator, tag, .. } => format!("{tag}{tag_separator}{text}"),
            Parse::Positional { separator } => match values.first() {
                Some((_, time)) => format!("{time}{separator}{text}"),
                None => text,
            },
            Parse::Base64Json { key } => BASE64.encode(serde_json::json!({ key: text }).to_string().as_bytes()),
        }
    }
}

/// Splits at a one-character or longer separator and trims each part. Empty parts are passed over. White space around a
/// separator (`, `) is only how it is written.
fn split<'v>(text: &'v [u8], separator: &str) -> impl Iterator<Item = &'v [u8]> {
    let separator = match separator.trim() {
        "" => separator.as_bytes(),
        bare => bare.as_bytes(),
    };
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        loop {
            let here = rest?;
            let part = match find(here, separator) {
                Some((part, after)) => {
                    rest = Some(after);
                    part
                }
                None => {
                    rest = None;
                    here
                }
            };
            let part = part.trim_ascii();
            if !part.is_empty() {
                return Some(part);
            }
        }
    })
}

/// Cuts at the first `mark` and trims both sides.
fn cut<'v>(text: &'v [u8], mark: &[u8]) -> Option<(&'v [u8], &'v [u8])> {
    let (before, after) = find(text, mark)?;
    Some((before.trim_ascii(), after.trim_ascii()))
}

/// What stands before and after the first `mark`, which is nearly always a single byte.
fn find<'v>(text: &'v [u8], mark: &[u8]) -> Option<(&'v [u8], &'v [u8])> {
    let at = match mark {
        [] => None,
        [byte] => memchr::memchr(*byte, text),
        mark => memchr::memmem::find(text, mark),
    }?;
    let (before, after) = text.split_at_checked(at)?;
    Some((before, after.get(mark.len()..)?))
}

#[cfg(test)]
mod tests;
