//! `multipart/form-data` (RFC 7578), looked at as bytes: where a field's value stands in the body.
//!
//! Strict and bounded, since the body is not trusted when it is read: lines end with CR LF, a part says its name in
//! `Content-Disposition`, and the body ends with the closing delimiter. What is written otherwise has no fields at all.

use std::ops::ControlFlow;

/// Most parts of one body.
const MAX_PARTS: usize = 64;

/// Longest head of a part, in bytes.
const MAX_PART_HEAD: usize = 4096;

/// Longest boundary (RFC 2046 section 5.1.1), in bytes.
const MAX_BOUNDARY: usize = 70;

/// The boundary of a `Content-Type` value, if it is one of multipart forms.
pub(super) fn boundary(content_type: &[u8]) -> Option<&[u8]> {
    let mut parts = content_type.split(|b| *b == b';');
    let media_type = parts.next()?.trim_ascii();
    if !media_type.eq_ignore_ascii_case(b"multipart/form-data") {
        return None;
    }
    let value = parameter(parts, b"boundary")?;
    let is_of_a_boundary = |b: &u8| b.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(b);
    let fits = (1..=MAX_BOUNDARY).contains(&value.len()) && value.iter().all(is_of_a_boundary);
    fits.then_some(value)
}

/// The value of the first field called `name`.
pub(super) fn get<'b>(body: &'b [u8], boundary: &[u8], name: &str) -> Option<&'b [u8]> {
    first(body, boundary, name).map(|(value, _)| value)
}

/// Whether there are several fields called `name`.
pub(super) fn is_repeated(body: &[u8], boundary: &[u8], name: &str) -> bool {
    first(body, boundary, name).is_some_and(|(_, repeated)| repeated)
}

/// The first field's value, and whether there are others of its name.
fn first<'b>(body: &'b [u8], boundary: &[u8], name: &str) -> Option<(&'b [u8], bool)> {
    let delimiter = [b"--", boundary].concat();
    let between = [b"\r\n--", boundary].concat();
    let mut rest = body.strip_prefix(delimiter.as_slice())?;
    let mut found = None;
    for _part in 0..=MAX_PARTS {
        match part(rest, &between)? {
            ControlFlow::Break(()) => return found,
            ControlFlow::Continue((field, value, after)) => {
                if field == name.as_bytes() {
                    found = Some(found.map_or((value, false), |(first, _)| (first, true)));
                }
                rest = after;
            }
        }
    }
    None
}

/// A part's name, its value, and what comes behind its delimiter; `Break` at the end of the body.
type Part<'b> = ControlFlow<(), (&'b [u8], &'b [u8], &'b [u8])>;

fn part<'b>(behind_delimiter: &'b [u8], between: &[u8]) -> Option<Part<'b>> {
    if let Some(end) = behind_delimiter.strip_prefix(b"--") {
        return end.trim_ascii().is_empty().then_some(ControlFlow::Break(()));
    }
    let part = behind_delimiter.strip_prefix(b"\r\n")?;
    let head_window = part.get(..part.len().min(MAX_PART_HEAD + 4))?;
    let head_len = memchr::memmem::find(head_window, b"\r\n\r\n")?;
    let head = part.get(..head_len)?;
    let value = part.get(head_len + 4..)?;
    let value_len = memchr::memmem::find(value, between)?;
    let after = value.get(value_len + between.len()..)?;
    let mut dispositions = head.split(|b| *b == b'\n').filter_map(disposition);
    let parameters = dispositions.next().filter(|_only| dispositions.next().is_none())?;
    let mut parameters = parameters.split(|b| *b == b';');
    if !parameters.next()?.trim_ascii().eq_ignore_ascii_case(b"form-data") {
        return None;
    }
    let name = parameter(parameters, b"name")?;
    Some(ControlFlow::Continue((name, value.get(..value_len)?, after)))
}

/// The value of a `Content-Disposition` line.
fn disposition(line: &[u8]) -> Option<&[u8]> {
    let at = memchr::memchr(b':', line)?;
    let (header, value) = line.split_at(at);
    let is_it = header.trim_ascii().eq_ignore_ascii_case(b"content-disposition");
    is_it.then(|| value.get(1..))?
}

/// The value of `key=value` or `key="value"` among parameters. None where readers disagree on what it is: given twice,
/// beside an extended one (`key*=`, RFC 8187), in single quotes, or with a quote or a backslash in it.
fn parameter<'p>(parts: impl Iterator<Item = &'p [u8]>, key: &[u8]) -> Option<&'p [u8]> {
    let mut found = None;
    for part in parts {
        let Some(at) = memchr::memchr(b'=', part) else { continue };
        let (name, value) = part.split_at(at);
        let name = name.trim_ascii();
        let plain = name.strip_suffix(b"*").unwrap_or(name);
        if !plain.trim_ascii().eq_ignore_ascii_case(key) {
            continue;
        }
        if found.is_some() || plain.len() != name.len() {
            return None;
        }
        let value = value.get(1..)?.trim_ascii();
        let inner = match value.strip_prefix(b"\"") {
            Some(open) => open.strip_suffix(b"\"")?,
            None => value,
        };
        let is_read_alike = !value.is_empty() && !value.starts_with(b"'");
        let is_plain = !inner.iter().any(|b| matches!(b, b'"' | b'\\'));
        found = Some((is_read_alike && is_plain).then_some(inner)?);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BODY: &[u8] =
        b"--B\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Type: text/plain\r\n\r\none\r\n--B\r\n\
        content-disposition: form-data; name=json; filename=\"x\"\r\n\r\n{\"k\":\r\n1}\r\n--B--\r\n";

    #[test]
    fn a_field_is_found_by_its_name() {
        assert_eq!(get(BODY, b"B", "a"), Some(&b"one"[..]));
        assert_eq!(get(BODY, b"B", "json"), Some(&b"{\"k\":\r\n1}"[..]));
        assert_eq!(get(BODY, b"B", "b"), None);
        assert_eq!(get(BODY, b"C", "a"), None);
    }

    #[test]
    fn the_boundary_is_read_from_the_media_type() {
        assert_eq!(boundary(b"multipart/form-data; boundary=----B"), Some(&b"----B"[..]));
        assert_eq!(
            boundary(b"Multipart/Form-Data; charset=utf-8; Boundary=\"a b\""),
            Some(&b"a b"[..])
        );
        for other in [
            "multipart/mixed; boundary=B",
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\"\"",
            "multipart/form-data; boundary=a\u{e9}",
        ] {
            assert_eq!(boundary(other.as_bytes()), None, "{other}");
        }
        let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
        assert_eq!(boundary(long.as_bytes()), None);
    }

    #[test]
    fn a_body_that_is_cut_off_or_written_otherwise_has_no_fields() {
        for end in 0..BODY.len() - 4 {
            assert_eq!(get(&BODY[..end], b"B", "a"), None, "{end}");
        }
        let unix: Vec<u8> = BODY.iter().copied().filter(|b| *b != b'\r').collect();
        assert_eq!(get(&unix, b"B", "a"), None);
        assert_eq!(get(&[b"x", BODY].concat(), b"B", "a"), None);
        assert_eq!(get(&[BODY, b"x"].concat(), b"B", "a"), None);
    }

    #[test]
    fn what_readers_name_differently_has_no_name() {
        for head in [
            "Content-Disposition: form-data; name=\"x\"; name=\"json\"",
            "Content-Disposition: form-data; name=\"x\"; name*=utf-8''json",
            "Content-Disposition: form-data; name*=utf-8''json; name=\"x\"",
            "Content-Disposition: form-data; name='json'",
            "Content-Disposition: form-data; name=\"x\\\"",
            "Content-Disposition: form-data; name=\"x\"\r\nContent-Disposition: form-data; name=\"json\"",
            "Content-Disposition: form-data; filename=\"a;name=json\"; name=\"x\"",
        ] {
            let first = format!("--B\r\n{head}\r\n\r\nevil\r\n");
            let body = [first.as_bytes(), BODY].concat();
            assert_eq!(get(&body, b"B", "a"), None, "{head}");
        }
        let named = "--B\r\nContent-Disposition: form-data; filename*=utf-8''y; name=\"x\"\r\n\r\n1\r\n";
        let body = [named.as_bytes(), BODY].concat();
        assert_eq!(get(&body, b"B", "a"), Some(&b"one"[..]));
        assert_eq!(boundary(b"multipart/form-data; boundary=B; boundary=C"), None);
        assert_eq!(boundary(b"multipart/form-data; boundary=B; boundary*=utf-8''C"), None);
    }

    #[test]
    fn the_number_of_parts_is_bounded() {
        let part = "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n";
        let of = |n: usize| format!("{}--B--\r\n", part.repeat(n)).into_bytes();
        assert_eq!(get(&of(MAX_PARTS), b"B", "a"), Some(&b"1"[..]));
        assert_eq!(get(&of(MAX_PARTS + 1), b"B", "a"), None);
    }

    proptest! {
        #[test]
        fn no_body_stops_the_reader(body in proptest::collection::vec(any::<u8>(), 0..300), cut in 0..BODY.len()) {
            let _: Option<&[u8]> = get(&body, b"B", "a");
            let mixed = [&BODY[..cut], &body].concat();
            let _: Option<&[u8]> = get(&mixed, b"B", "a");
        }
    }
}
