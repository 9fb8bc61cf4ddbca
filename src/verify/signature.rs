//! Takes a signature header apart: from header lines to candidate digests, in every form that providers use.

use std::borrow::Cow;
use std::collections::BTreeMap;

use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD, Encoding as Codec};
use http::HeaderValue;

use crate::time::Timestamp;

use super::Reason;
use super::few::Few;
use super::jws::Members;
use super::mac::Tag;
use super::place::{Fields, Place};

/// Most candidate digests of one request. Real rotations send two or three, DocuSign up to 100 numbered headers.
const MAX_CANDIDATES: usize = 100;

/// Most groups of one header. Each costs a hash over the body; Persona's rotation sends two.
const MAX_GROUPS: usize = 4;

/// Most candidates of one request that a public key is asked for: each costs as much as a thousand comparisons of digests.
const MAX_SIGNATURES: usize = 8;

/// Longest signature by a public key, in bytes: that of an RSA key of 8192 bits, with room for base64's padding.
const MAX_SIGNATURE: usize = 1026;

/// Longest percent-encoded signature, in bytes: three characters for each of the longest one's.
const MAX_ESCAPED: usize = 3 * 1368;

/// Longest JSON that holds a signature, in bytes of base64.
const MAX_JSON: usize = 4096;

/// How digests are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Hexadecimal in either case (SH-01); signed in lower case.
    Hex,
    /// Hexadecimal in either case; signed in upper case.
    HexUpper,
    /// `0x` and hexadecimal.
    Hex0x,
    /// Canonical base64 with padding.
    Base64,
    /// Canonical base64 without padding.
    Base64NoPad,
    /// URL-safe base64 with padding.
    Base64Url,
    /// URL-safe base64 without padding.
    Base64UrlNoPad,
    /// Base64 of the hexadecimal text.
    Base64OfHex,
    /// Canonical base64 with padding, percent-encoded as in a URL (Alipay).
    Base64Percent,
}

impl Encoding {
    pub(super) const NAMED: [(&'static str, Self); 9] = [
        ("hex", Self::Hex),
        ("hex_upper", Self::HexUpper),
        ("hex_0x", Self::Hex0x),
        ("base64", Self::Base64),
        ("base64_nopad", Self::Base64NoPad),
        ("base64url", Self::Base64Url),
        ("base64url_nopad", Self::Base64UrlNoPad),
        ("base64_of_hex", Self::Base64OfHex),
        ("base64_percent", Self::Base64Percent),
    ];

    /// Its name in records.
    pub(super) fn as_str(self) -> &'static str {
        Self::NAMED
            .iter()
            .find(|(_, e)| *e == self)
            .map_or("", |(name, _)| name)
    }

    /// The digest that `text` spells. Anything but the one right spelling is none.
    pub(super) fn decode(self, text: &[u8]) -> Option<Tag> {
        // On the stack; texts longer than any digest are refused before they are looked at.
        let mut room = [0; 96];
        let len = self.decode_into(text, &mut room)?;
        Tag::new(room.get(..len)?)
    }

    /// The signature that `text` spells, which may be as long as an RSA key.
    pub(super) fn decode_long(self, text: &[u8]) -> Option<Vec<u8>> {
        let mut room = vec![0; MAX_SIGNATURE];
        let len = self.decode_into(text, &mut room)?;
        room.truncate(len);
        Some(room)
    }

    /// As [`Encoding::decode_long`], and base64 with or without its padding: for values that a signature covers.
    pub(super) fn decode_unpadded(self, text: &[u8]) -> Option<Vec<u8>> {
        let bare = text.trim_ascii_end();
        let bare = bare.strip_suffix(b"==").or(bare.strip_suffix(b"=")).unwrap_or(bare);
        match self {
            Self::Base64 | Self::Base64NoPad => Self::Base64NoPad.decode_long(bare),
            Self::Base64Url | Self::Base64UrlNoPad => Self::Base64UrlNoPad.decode_long(bare),
            other => other.decode_long(text),
        }
    }

    fn decode_into(self, text: &[u8], room: &mut [u8]) -> Option<usize> {
        match self {
            Self::Hex | Self::HexUpper => decode_hex(text, room),
            Self::Hex0x => decode_hex(text.strip_prefix(b"0x")?, room),
            Self::Base64 => decode(&BASE64, text, room),
            Self::Base64NoPad => decode(&BASE64_NOPAD, text, room),
            Self::Base64Url => decode(&BASE64URL, text, room),
            Self::Base64UrlNoPad => decode(&BASE64URL_NOPAD, text, room),
            Self::Base64OfHex => {
                if text.len() > 256 {
                    return None;
                }
                decode_hex(&BASE64.decode(text).ok()?, room)
            }
            Self::Base64Percent => {
                if text.len() > MAX_ESCAPED {
                    return None;
                }
                let text: Vec<u8> = percent_encoding::percent_decode(text).collect();
                decode(&BASE64, &text, room)
            }
        }
    }

    /// How the digest is written.
    pub(super) fn encode(self, digest: &[u8]) -> String {
        let lower = || data_encoding::HEXLOWER.encode(digest);
        match self {
            Self::Hex => lower(),
            Self::HexUpper => data_encoding::HEXUPPER.encode(digest),
            Self::Hex0x => format!("0x{}", lower()),
            Self::Base64 => BASE64.encode(digest),
            Self::Base64NoPad => BASE64_NOPAD.encode(digest),
            Self::Base64Url => BASE64URL.encode(digest),
            Self::Base64UrlNoPad => BASE64URL_NOPAD.encode(digest),
            Self::Base64OfHex => BASE64.encode(lower().as_bytes()),
            Self::Base64Percent => {
                let text = BASE64.encode(digest);
                percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC).to_string()
            }
        }
    }
}

fn decode(codec: &Codec, text: &[u8], room: &mut [u8]) -> Option<usize> {
    let room = room.get_mut(..codec.decode_len(text.len()).ok()?)?;
    codec.decode_mut(text, room).ok()
}

/// Hexadecimal in either case. Nearly every signature is written in it, so it is read without a branch for each digit.
fn decode_hex(text: &[u8], room: &mut [u8]) -> Option<usize> {
    let (pairs, odd) = text.as_chunks::<2>();
    let room = room.get_mut(..pairs.len()).filter(|_| odd.is_empty())?;
    let mut seen = 0;
    for (byte, [high, low]) in room.iter_mut().zip(pairs) {
        let (high, low) = (hex_digit(*high), hex_digit(*low));
        seen |= high | low;
        *byte = (high << 4) | (low & 0xf);
    }
    (seen & NO_DIGIT == 0).then_some(pairs.len())
}

/// A bit that no digit's value has.
const NO_DIGIT: u8 = 0x80;

const fn hex_digit(byte: u8) -> u8 {
    let (number, letter) = (byte.wrapping_sub(b'0'), (byte | 0x20).wrapping_sub(b'a'));
    let number = if number < 10 { number } else { NO_DIGIT };
    if letter < 6 { letter + 10 } else { number }
}

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
mod tests {
    use super::*;

    fn form(parse: Parse) -> Form {
        Form {
            places: vec![Place::parse("header:x-sig").unwrap()],
            parse,
            prefix: String::new(),
            prefix_optional: false,
            encoding: Encoding::Hex,
            order: Vec::new(),
            max_n: 0,
        }
    }

    fn as_lines<const N: usize>(texts: [&str; N]) -> Few<Cow<'_, [u8]>> {
        let mut lines = Few::default();
        lines.extend(texts.map(|text| Cow::Borrowed(text.as_bytes())));
        lines
    }

    fn read<'v>(form: &Form, lines: &'v Few<Cow<'_, [u8]>>) -> Result<Vec<Group<'v>>, Reason> {
        form.groups(lines, Candidate::Digest(2))
    }

    fn tags(groups: &[Group<'_>]) -> Vec<Vec<u8>> {
        groups
            .iter()
            .flat_map(|g| g.tags.iter().map(|t| t.as_slice().to_vec()))
            .collect()
    }

    #[test]
    fn hex_is_read_in_either_case_and_only_in_full() {
        assert_eq!(Encoding::Hex.decode(b"aBcD").unwrap().as_slice(), [0xab, 0xcd]);
        for bad in ["abc", "zz", "ab cd", "0xab"] {
            assert!(Encoding::Hex.decode(bad.as_bytes()).is_none(), "{bad}");
        }
        assert!(Encoding::Hex.decode(&[b'a'; 8192]).is_none());
        for byte in 0..=u8::MAX {
            for text in [[byte, b'0'], [b'0', byte]] {
                let known = data_encoding::HEXLOWER_PERMISSIVE.decode(&text).ok();
                let found = Encoding::Hex.decode(&text).map(|tag| tag.as_slice().to_vec());
                assert_eq!(found, known, "{text:?}");
            }
        }
    }

    #[test]
    fn base64_must_be_canonical_in_the_form_that_the_record_names() {
        assert!(Encoding::Base64.decode(b"AAA=").is_some());
        for bad in ["AAA", "AAB=", "AA-_", "AAA=\n", " AAA="] {
            assert!(Encoding::Base64.decode(bad.as_bytes()).is_none(), "{bad}");
        }
        assert!(Encoding::Base64NoPad.decode(b"AAA").is_some());
        assert!(Encoding::Base64UrlNoPad.decode(b"_-8").is_some());
    }

    #[test]
    fn every_encoding_reads_what_it_writes() {
        for (name, encoding) in Encoding::NAMED {
            let text = encoding.encode(&[0, 1, 0xfe, 0xff, 7]);
            assert_eq!(
                encoding.decode(text.as_bytes()).unwrap().as_slice(),
                [0, 1, 0xfe, 0xff, 7],
                "{name}"
            );
        }
    }

    #[test]
    fn key_value_lists_bear_spaces_order_and_strangers() {
        let form = form(Parse::KeyValue {
            separator: ",".into(),
            keys: vec!["v1".into()],
            group_separator: None,
        });
        for text in ["t=1, v1=abcd ,  v0=00", "v0=00,v1=abcd,t=1", "t=1,v1=abcd,x=y,,noise"] {
            let lines = as_lines([text]);
            let groups = read(&form, &lines).unwrap();
            assert_eq!(tags(&groups), [[0xab, 0xcd]], "{text}");
            assert_eq!(groups[0].get(b"t"), Some(&b"1"[..]), "{text}");
        }
        let split = as_lines(["t=1", "v1=abcd", "v0=00"]);
        assert_eq!(read(&form, &split).unwrap()[0].get(b"t"), Some(&b"1"[..]));
    }

    #[test]
    fn a_space_of_the_separator_is_written_but_not_asked_for() {
        let form = form(Parse::KeyValue {
            separator: ", ".into(),
            keys: vec!["v1".into()],
            group_separator: None,
        });
        assert_eq!(form.write(&[0xab, 0xcd], &[("t", "1")]), "t=1, v1=abcd");
        for text in ["t=1, v1=abcd", "t=1,v1=abcd"] {
            let lines = as_lines([text]);
            assert_eq!(tags(&read(&form, &lines).unwrap()), [[0xab, 0xcd]], "{text}");
        }
    }

    #[test]
    fn a_key_with_two_values_has_none() {
        let form = form(Parse::KeyValue {
            separator: ",".into(),
            keys: vec!["v1".into()],
            group_separator: None,
        });
        let lines = as_lines(["t=1,t=2,v1=abcd"]);
        assert_eq!(read(&form, &lines).unwrap()[0].get(b"t"), None);
    }

    #[test]
    fn groups_keep_their_own_time() {
        let form = form(Parse::KeyValue {
            separator: ",".into(),
            keys: vec!["v1".into()],
            group_separator: Some(" ".into()),
        });
        let lines = as_lines(["t=1,v1=abcd t=2,v1=0102"]);
        let groups = read(&form, &lines).unwrap();
        let times: Vec<_> = groups.iter().map(|g| g.get(b"t").unwrap()).collect();
        assert_eq!(times, [b"1", b"2"]);
    }

    #[test]
    fn only_our_tag_counts() {
        let form = form(Parse::Tagged {
            separator: " ".into(),
            tag_separator: ",".into(),
            tag: "v1".into(),
            public_key_tag: None,
        });
        let lines = as_lines(["v1,zz v1,abcd v2,0102 v1a,0304 0506"]);
        assert_eq!(tags(&read(&form, &lines).unwrap()), [[0xab, 0xcd]]);
        let lines = as_lines(["v2,abcd"]);
        assert_eq!(read(&form, &lines).unwrap_err(), Reason::MalformedSignature);
    }

    #[test]
    fn the_first_position_is_the_time() {
        let form = form(Parse::Positional { separator: ",".into() });
        let lines = as_lines(["1700,abcd,0102"]);
        let groups = read(&form, &lines).unwrap();
        assert_eq!(groups[0].get(b"0"), Some(&b"1700"[..]));
        assert_eq!(tags(&groups), [[0xab, 0xcd], [1, 2]]);
    }

    #[test]
    fn the_number_of_candidates_is_bounded() {
        let form = form(Parse::List { separator: ",".into() });
        let many = vec!["abcd"; MAX_CANDIDATES + 1].join(",");
        let lines = as_lines([&many]);
        assert_eq!(read(&form, &lines).unwrap_err(), Reason::MalformedSignature);
    }
}
