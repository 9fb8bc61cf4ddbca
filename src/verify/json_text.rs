//! JSON texts that providers sign in place of the body: as one string, in another spelling, or printed anew.

use super::json::{self, Pointer};

/// Deeper nesting is not printed anew: each level costs a pass over what is in it.
const MAX_DEPTH: u32 = 16;

/// Most elements of an array that is printed anew.
const MAX_ELEMENTS: usize = 100_000;

/// The text as one JSON string, quoted, as `JSON.stringify` writes it. `None` if it is not UTF-8.
pub(super) fn quoted(text: &[u8]) -> Option<Vec<u8>> {
    serde_json::to_vec(std::str::from_utf8(text).ok()?).ok()
}

/// The body as Box's SDK escapes it: what is not ASCII as `\uXXXX` for each UTF-16 unit, DEL too, and a slash as `\/`
/// unless a backslash stands before it (npm box-node-sdk 10.12.0 `jsonStringifyWithEscapedUnicode`).
pub(super) fn ascii(body: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(body).ok()?;
    let mut out = String::with_capacity(text.len());
    let mut before = None;
    for c in text.chars() {
        match c {
            '/' if before != Some('\\') => out.push_str("\\/"),
            ' '..='~' | '\0'..='\u{1f}' => out.push(c),
            c => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
        before = Some(c);
    }
    Some(out.into_bytes())
}

/// The body printed without spaces and with the names of every object in order, as NOWPayments' samples do it: names by
/// their UTF-16 units, strings as `JSON.stringify` writes them. Numbers keep the characters that they came with: the
/// sender prints them by the same rules as its own signature, and no parser of ours can know better.
pub(super) fn sorted(body: &[u8]) -> Option<Vec<u8>> {
    let whole = json::raw(body, &Pointer::whole())?;
    let mut out = Vec::with_capacity(whole.len());
    print_sorted(whole, 0, &mut out)?;
    Some(out)
}

fn print_sorted(value: &[u8], depth: u32, out: &mut Vec<u8>) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    match value.first()? {
        b'{' => {
            let members = json::members(value)?;
            let mut named = Vec::with_capacity(members.len());
            for (name, value) in members {
                let name = json::unquote(name)?;
                let units: Vec<u16> = name.encode_utf16().collect();
                named.push((units, name, value));
            }
            named.sort_by(|a, b| a.0.cmp(&b.0));
            out.push(b'{');
            let mut is_first = true;
            for (index, (_, name, value)) in named.iter().enumerate() {
                // Of a name that occurs twice the last value counts; the sort keeps their order.
                if named.get(index + 1).is_some_and(|(_, next, _)| next == name) {
                    continue;
                }
                if !std::mem::take(&mut is_first) {
                    out.push(b',');
                }
                out.extend(quoted(name.as_bytes())?);
                out.push(b':');
                print_sorted(value, depth + 1, out)?;
            }
            out.push(b'}');
        }
        b'[' => {
            out.push(b'[');
            let elements = json::elements(value, &Pointer::whole(), MAX_ELEMENTS)?;
            for (index, element) in elements.into_iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                print_sorted(element, depth + 1, out)?;
            }
            out.push(b']');
        }
        b'"' => out.extend(quoted(json::unquote(value)?.as_bytes())?),
        _ => out.extend_from_slice(value),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Option<Vec<u8>>) -> String {
        String::from_utf8(bytes.unwrap()).unwrap()
    }

    #[test]
    fn a_body_becomes_one_string() {
        assert_eq!(
            text(quoted("{\"a\":\"é\u{2028}\n\u{1}\"}".as_bytes())),
            "\"{\\\"a\\\":\\\"é\u{2028}\\n\\u0001\\\"}\""
        );
        assert_eq!(quoted(&[0xff]), None);
    }

    #[test]
    fn other_characters_are_written_as_boxs_sdk_writes_them() {
        assert_eq!(
            text(ascii("é/\u{7f}\u{1f680}".as_bytes())),
            "\\u00e9\\/\\u007f\\ud83d\\ude80"
        );
        assert_eq!(text(ascii(b"a\\/b//")), "a\\/b\\/\\/");
        assert_eq!(ascii(&[0xff]), None);
    }

    #[test]
    fn names_are_sorted_at_every_depth_and_numbers_kept() {
        let body = br#" {"b": 10.50, "a" : {"z":[{"d":1,"c":1e3}, "x"], "y":null}, "b":2.0, "\u00e9":"\u00e9\/"} "#;
        assert_eq!(
            text(sorted(body)),
            r#"{"a":{"y":null,"z":[{"c":1e3,"d":1},"x"]},"b":2.0,"é":"é/"}"#
        );
        assert_eq!(text(sorted(b"{}")), "{}");
        assert_eq!(text(sorted(b"[ ]")), "[]");
    }

    #[test]
    fn what_is_no_json_or_too_deep_is_not_printed() {
        assert_eq!(sorted(b"{\"a\":1"), None);
        assert_eq!(sorted(b""), None);
        let deep = format!("{}1{}", "[".repeat(20), "]".repeat(20));
        assert_eq!(sorted(deep.as_bytes()), None);
    }
}
