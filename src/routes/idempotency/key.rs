//! The client's key: what the `Idempotency-Key` field line says (draft-ietf-httpapi-idempotency-key-header-07 section 2).
//!
//! The draft makes it a Structured Field string, `"abc"` (RFC 9651 section 3.3.3); nearly all clients send it bare, `abc`.
//! Both are the same key, since a client library may change from one to the other between two tries. Whatever could be
//! read in two ways is refused, and nothing is ever cut: a key that is not understood protects nobody.

use std::sync::Arc;

use http::header::{HeaderMap, HeaderName};

/// The field.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Longest key in bytes, quotes and escapes not counted.
pub const KEY_MAX: usize = 255;

/// Why the field line is no key. Each is the client's mistake (400).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// More than one field line.
    #[error("the field is given more than once; send one key")]
    SeveralLines,
    /// Nothing, or nothing but blanks.
    #[error("the key is empty")]
    Blank,
    /// Over [`KEY_MAX`].
    #[error("the key is longer than 255 bytes")]
    TooLong,
    /// Other than printable ASCII.
    #[error("the key has a byte that is not printable ASCII")]
    NotPrintable,
    /// A quoted string that does not end, or with an escape that there is not (RFC 9651 section 4.2.5).
    #[error("the quoted key does not end, or has an escape other than \\\" and \\\\")]
    BadQuotes,
    /// Parameters, a list, or text behind the closing quote.
    #[error("the field holds more than one key: no parameters, no lists")]
    MoreThanAKey,
    /// `Connection` names it, so that it would not reach the upstream.
    #[error("the field is named in Connection, and would not reach the app")]
    OneHopOnly,
}

/// The key in `headers`, without quotes; `None` where there is no such field.
pub fn read(headers: &HeaderMap) -> Result<Option<Arc<str>>, KeyError> {
    let mut lines = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(KeyError::SeveralLines);
    }
    parse(line.as_bytes().trim_ascii()).map(Some)
}

fn parse(field: &[u8]) -> Result<Arc<str>, KeyError> {
    // Before anything else: a control character has no business in either form.
    let Some(text) = printable(field) else {
        return Err(KeyError::NotPrintable);
    };
    let key = match text.strip_prefix('"') {
        Some(quoted) => unquote(quoted)?,
        None => bare(text)?,
    };
    if key.trim_ascii().is_empty() {
        return Err(KeyError::Blank);
    }
    if key.len() > KEY_MAX {
        return Err(KeyError::TooLong);
    }
    Ok(key.into())
}

fn printable(field: &[u8]) -> Option<&str> {
    let all = field.iter().all(|byte| matches!(byte, b' '..=b'~'));
    all.then(|| std::str::from_utf8(field).ok()).flatten()
}

/// What stands behind the opening quote.
fn unquote(quoted: &str) -> Result<String, KeyError> {
    let mut key = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' if chars.as_str().is_empty() => return Ok(key),
            '"' => return Err(KeyError::MoreThanAKey),
            '\\' => match chars.next() {
                Some(escaped @ ('"' | '\\')) => key.push(escaped),
                _ => return Err(KeyError::BadQuotes),
            },
            c => key.push(c),
        }
    }
    Err(KeyError::BadQuotes)
}

/// A comma may join two lines, a semicolon begins parameters, a parenthesis an inner list: none of them is part of a bare
/// key, though each may be of a quoted one.
fn bare(text: &str) -> Result<String, KeyError> {
    if text.contains('"') {
        return Err(KeyError::BadQuotes);
    }
    if text.contains([',', ';', '(', ')']) {
        return Err(KeyError::MoreThanAKey);
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn lines(lines: &[&[u8]]) -> Result<Option<Arc<str>>, KeyError> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(line).unwrap());
        }
        read(&headers)
    }

    fn one(line: &str) -> Result<String, KeyError> {
        lines(&[line.as_bytes()]).map(|key| key.unwrap().to_string())
    }

    #[test]
    fn quoted_and_bare_are_the_same_key() {
        for (line, key) in [
            ("abc", "abc"),
            ("\"abc\"", "abc"),
            ("  \"abc\"\t", "abc"),
            (" abc ", "abc"),
            (
                "8e03978e-40d5-43e8-bc93-6894a57f9324",
                "8e03978e-40d5-43e8-bc93-6894a57f9324",
            ),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            ("\"a,b;c (d)\"", "a,b;c (d)"),
            ("order 17", "order 17"),
            (r"a\b", r"a\b"),
            ("\" abc\"", " abc"),
        ] {
            assert_eq!(one(line).as_deref(), Ok(key), "{line}");
        }
        assert_eq!(lines(&[]), Ok(None));
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for (line, error) in [
            ("", KeyError::Blank),
            ("   ", KeyError::Blank),
            ("\"\"", KeyError::Blank),
            ("\"  \"", KeyError::Blank),
            ("\"abc", KeyError::BadQuotes),
            ("\"", KeyError::BadQuotes),
            ("abc\"", KeyError::BadQuotes),
            ("a\"b", KeyError::BadQuotes),
            (r#""a\nb""#, KeyError::BadQuotes),
            (r#""abc\""#, KeyError::BadQuotes),
            ("\"abc\";v=1", KeyError::MoreThanAKey),
            ("\"a\", \"b\"", KeyError::MoreThanAKey),
            ("\"a\"\"b\"", KeyError::MoreThanAKey),
            ("abc;v=1", KeyError::MoreThanAKey),
            ("a, b", KeyError::MoreThanAKey),
            ("(a b)", KeyError::MoreThanAKey),
            ("(\"a\" \"b\")", KeyError::BadQuotes),
            ("a\tb", KeyError::NotPrintable),
            ("ключ", KeyError::NotPrintable),
            ("\"a\u{e9}\"", KeyError::NotPrintable),
        ] {
            assert_eq!(one(line), Err(error), "{line}");
        }
        assert_eq!(lines(&[b"a", b"a"]), Err(KeyError::SeveralLines));
        assert_eq!(lines(&[b"", b"a"]), Err(KeyError::SeveralLines));
    }

    #[test]
    fn a_key_is_taken_whole_or_not_at_all() {
        let longest = "k".repeat(KEY_MAX);
        assert_eq!(one(&longest).as_deref(), Ok(&*longest));
        assert_eq!(one(&format!("\"{longest}\"")).as_deref(), Ok(&*longest));
        let quotes = r#"\""#.repeat(KEY_MAX);
        assert_eq!(
            one(&format!("\"{quotes}\"")),
            Ok("\"".repeat(KEY_MAX)),
            "escapes do not count"
        );
        assert_eq!(one(&format!("{longest}k")), Err(KeyError::TooLong));
        assert_eq!(one(&format!("\"{longest}k\"")), Err(KeyError::TooLong));
    }
}
