//! Words and lists of a record, read one by one.

use std::ops::Range;

use http::StatusCode;

use crate::diagnostic::Diagnostics;
use crate::reader::{self, At, Section};
use crate::verify::place::Place;

use super::{Confidence, IdMissing, Kind, Part};

/// The second inputs that a record declares: `NAME`, or `NAME?` where a source may leave it out, or `NAME=USUAL`.
#[derive(Debug, Default)]
pub(super) struct Params {
    pub(super) needed: Vec<String>,
    pub(super) optional: Vec<String>,
    pub(super) usual: Vec<(String, String)>,
}

impl Params {
    pub(super) fn of(written: Option<At<Vec<At<String>>>>) -> Self {
        let mut params = Self::default();
        for name in written.map_or_else(Vec::new, |found| found.value) {
            if let Some((name, usual)) = name.value.split_once('=') {
                params.optional.push(name.to_owned());
                params.usual.push((name.to_owned(), usual.to_owned()));
            } else if let Some(name) = name.value.strip_suffix('?') {
                params.optional.push(name.to_owned());
            } else {
                params.needed.push(name.value);
            }
        }
        params
    }

    pub(super) fn all(&self) -> Vec<String> {
        self.needed.iter().chain(&self.optional).cloned().collect()
    }

    /// Without these nothing can be verified.
    pub(super) fn check_needed<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
        span: &Range<usize>,
        problems: &mut Diagnostics,
    ) {
        let usual = self.usual.iter().map(|(name, _)| name);
        let always: Vec<&String> = self.needed.iter().chain(usual).collect();
        for name in names.filter(|name| !always.iter().any(|known| known == name)) {
            let label = format!("`{name}` stands in the signature or the payload");
            let help = Some(format!("declare it with `params = [\"{name}\"]`"));
            problems.error(span.clone(), format!("no parameter `{name}` is required"), label, help);
        }
    }
}

/// Whether the signature is over the bytes before the sender compressed them.
pub(super) const SIGNED_OVER: [(&str, bool); 2] = [("wire", false), ("decoded", true)];

pub(super) const PARSES: [&str; 7] = ["plain", "kv", "list", "tagged", "positional", "pairs", "base64_json"];

pub(super) const CONFIDENCES: [(&str, Confidence); 3] = [
    ("proven", Confidence::Proven),
    ("documented", Confidence::Documented),
    ("unverified", Confidence::Unverified),
];

pub(super) const PARTS: [(&str, Part); 3] = [("id", Part::Id), ("type", Part::Type), ("body", Part::Body)];

pub(super) const ID_MISSING: [(&str, IdMissing); 2] = [("digest", IdMissing::Digest), ("reject", IdMissing::Reject)];

pub(super) const KINDS: [(&str, Kind); 9] = [
    ("hmac", Kind::Hmac),
    ("digest", Kind::Digest),
    ("ed25519", Kind::Ed25519),
    ("ecdsa", Kind::Ecdsa),
    ("rsa", Kind::Rsa),
    ("jwt", Kind::Jwt),
    ("token", Kind::Token),
    ("basic", Kind::Basic),
    ("none", Kind::None),
];

pub(super) fn named<T: Copy>(text: &str, names: &[(&str, T)]) -> Result<T, String> {
    match names.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(*value),
        None => {
            let all: Vec<_> = names.iter().map(|(name, _)| format!("\"{name}\"")).collect();
            Err(format!("expected one of {}", all.join(", ")))
        }
    }
}

/// A list whose every item is parsed; mistakes are told at the item.
pub(super) fn each<T>(
    s: &mut Section<'_>,
    key: &'static str,
    problems: &mut Diagnostics,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<At<Vec<T>>> {
    let found = s.strings(key, problems)?;
    let mut out = Vec::new();
    for item in found.value {
        match parse(&item.value) {
            Ok(value) => out.push(value),
            Err(label) => problems.error(item.span, format!("bad value in `{}`", s.full(key)), label, None),
        }
    }
    Some(At {
        value: out,
        span: found.span,
    })
}

pub(super) fn texts(s: &mut Section<'_>, key: &'static str, problems: &mut Diagnostics) -> Option<At<Vec<String>>> {
    each(s, key, problems, |text| Ok(text.to_owned()))
}

/// One text, or a list of texts, each with its place.
pub(super) fn one_or_more(
    s: &mut Section<'_>,
    key: &'static str,
    problems: &mut Diagnostics,
) -> Option<At<Vec<At<String>>>> {
    s.describe(key, reader::Kind::Form("text, or list of texts"));
    if s.value(key)?.value.as_array().is_some() {
        return s.strings(key, problems);
    }
    let found = s.string(key, problems)?;
    let span = found.span.clone();
    Some(At {
        value: vec![found],
        span,
    })
}

/// One place, or a list of places.
pub(super) fn places(s: &mut Section<'_>, key: &'static str, problems: &mut Diagnostics) -> Option<At<Vec<Place>>> {
    s.describe(key, reader::Kind::Form("place, or list of places"));
    let is_list = s.value(key)?.value.as_array().is_some();
    if is_list {
        return each(s, key, problems, Place::parse);
    }
    s.parsed(key, problems, Place::parse)
        .map(|found| found.map(|place| vec![place]))
}

pub(super) fn value<T>(found: Option<At<T>>) -> Option<T> {
    found.map(|found| found.value)
}

pub(super) fn text_of(found: &Option<At<String>>) -> String {
    found.as_ref().map(|found| found.value.clone()).unwrap_or_default()
}

pub(super) fn non_empty(found: &Option<At<String>>) -> Option<String> {
    found
        .as_ref()
        .map(|found| found.value.clone())
        .filter(|text| !text.is_empty())
}

pub(super) fn status(code: i64) -> StatusCode {
    u16::try_from(code)
        .ok()
        .and_then(|code| StatusCode::from_u16(code).ok())
        .unwrap_or(StatusCode::OK)
}
