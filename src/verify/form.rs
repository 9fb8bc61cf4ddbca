//! Query strings and form bodies (`application/x-www-form-urlencoded`), looked at as bytes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use percent_encoding::percent_decode;

/// The value of the first parameter called `name`, decoded; present-but-empty is `Some("")`.
pub(super) fn get<'t>(text: &'t [u8], name: &str) -> Option<Cow<'t, [u8]>> {
    pairs(text)
        .find(|(key, _)| key.as_ref() == name.as_bytes())
        .map(|(_, value)| value)
}

/// The value of the first parameter called `name`, as it is written.
pub(super) fn raw<'t>(text: &'t [u8], name: &str) -> Option<&'t [u8]> {
    text.split(|b| *b == b'&').find_map(|pair| {
        let at = memchr::memchr(b'=', pair)?;
        let (key, value) = pair.split_at(at);
        (decode(key).as_ref() == name.as_bytes()).then(|| value.get(1..))?
    })
}

/// Whether there are several parameters called `name`.
pub(super) fn is_repeated(text: &[u8], name: &str) -> bool {
    let mut of_name = pairs(text).filter(|(key, _)| key.as_ref() == name.as_bytes());
    of_name.nth(1).is_some()
}

/// All parameters in their order, decoded: `+` is a space, `%XX` a byte. What is no valid escape stays as it is.
pub(super) fn pairs(text: &[u8]) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    text.split(|b| *b == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let mut halves = pair.splitn(2, |b| *b == b'=');
        let key = halves.next().unwrap_or_default();
        let value = halves.next().unwrap_or_default();
        (decode(key), decode(value))
    })
}

/// The parameters as Twilio signs them: names in order, each followed by each of its distinct values in order
/// (`validateRequest` in npm twilio 6.3.1 takes the set of a repeated name's values, sorted).
pub(super) fn sorted(text: &[u8]) -> Vec<u8> {
    let mut fields: BTreeMap<Cow<'_, [u8]>, BTreeSet<Cow<'_, [u8]>>> = BTreeMap::new();
    for (key, value) in pairs(text) {
        fields.entry(key).or_default().insert(value);
    }
    let mut out = Vec::with_capacity(text.len());
    for (key, values) in &fields {
        for value in values {
            out.extend_from_slice(key);
            out.extend_from_slice(value);
        }
    }
    out
}

/// Whether the media type of a `Content-Type` value is the form one.
pub(super) fn is_form(content_type: &[u8]) -> bool {
    let media_type = content_type.split(|b| *b == b';').next().unwrap_or_default();
    media_type
        .trim_ascii()
        .eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}

/// A value as a form carries it.
pub(super) fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'+') {
        return percent_decode(text).into();
    }
    let spaced: Vec<u8> = text.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
    Cow::Owned(percent_decode(&spaced).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_decoded_and_the_first_of_its_name_counts() {
        let text = b"a=1&b=x+y%21&a=2&empty=&bare&&c=%zz";
        assert_eq!(get(text, "a").as_deref(), Some(&b"1"[..]));
        assert_eq!(get(text, "b").as_deref(), Some(&b"x y!"[..]));
        assert_eq!(get(text, "empty").as_deref(), Some(&b""[..]));
        assert_eq!(get(text, "bare").as_deref(), Some(&b""[..]));
        assert_eq!(get(text, "c").as_deref(), Some(&b"%zz"[..]));
        assert_eq!(get(text, "d"), None);
        assert!(is_repeated(text, "a") && is_repeated(b"a=1&%61=1", "a"));
        assert!(!is_repeated(text, "b") && !is_repeated(text, "d"));
    }

    #[test]
    fn sorting_takes_the_set_of_a_repeated_names_values() {
        assert_eq!(sorted(b"Media=b&Media=a&Media=b&A=1&Z="), b"A1MediaaMediabZ");
        assert_eq!(sorted(b""), b"");
    }

    #[test]
    fn the_form_media_type_is_known_with_parameters_and_in_any_case() {
        assert!(is_form(b"application/x-www-form-urlencoded"));
        assert!(is_form(b" Application/X-WWW-Form-URLencoded ; charset=utf-8"));
        assert!(!is_form(b"application/json"));
        assert!(!is_form(b""));
    }
}
