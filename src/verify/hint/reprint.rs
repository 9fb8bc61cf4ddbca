//! Other forms that a body may have had before something on its way changed it.

use std::collections::BTreeMap;
use std::fmt::Write;

/// What must have happened to the body if `holds` says so of one of its likely earlier forms. They are made one at a
/// time, so that no more than one of them is in memory.
pub(super) fn change(body: &[u8], mut holds: impl FnMut(Vec<u8>) -> bool) -> Option<&'static str> {
    let mut tried = |change: &'static str, form: Vec<u8>| (form != body && holds(form)).then_some(change);
    let unix = replace(body, b"\r\n", b"\n");
    let dos = replace(&unix, b"\n", b"\r\n");
    let of_lines = tried("its line ends became CRLF", unix)
        .or_else(|| tried("its line ends CRLF became LF", dos))
        .or_else(|| tried("its last line end was cut off", [body, b"\n"].concat()))
        .or_else(|| tried("its last line end was cut off", [body, b"\r\n"].concat()))
        .or_else(|| {
            tried(
                "white space or a line end was added behind it",
                body.trim_ascii_end().to_vec(),
            )
        })
        .or_else(|| match body.strip_prefix(b"\xef\xbb\xbf") {
            Some(rest) => tried("a byte order mark was put in front of it", rest.to_vec()),
            None => tried("its byte order mark was cut off", [b"\xef\xbb\xbf", body].concat()),
        });
    if of_lines.is_some() {
        return of_lines;
    }
    if let Ok(decoded) = data_encoding::BASE64.decode(body.trim_ascii())
        && let Some(change) = tried("it arrived as base64, which was not decoded", decoded)
    {
        return Some(change);
    }
    let text = std::str::from_utf8(body).ok()?;
    let latin1: Result<Vec<u8>, _> = text.chars().map(|c| u8::try_from(u32::from(c))).collect();
    if let Ok(latin1) = latin1
        && let Some(change) = tried("its bytes were taken for ISO-8859-1 and written as UTF-8", latin1)
    {
        return Some(change);
    }
    let printed = Spacing::ALL.into_iter().find_map(|spacing| {
        Strings::ALL.into_iter().find_map(|style| {
            let form = reprint(text, spacing, style)?;
            tried("its JSON was read and printed again", form.into_bytes())
        })
    });
    printed.or_else(|| {
        let sorted = sorted(text)?;
        [Spacing::Compact, Spacing::Spaced].into_iter().find_map(|spacing| {
            let form = reprint(&sorted, spacing, Strings::AsIs)?;
            tried("the keys of its JSON were put in another order", form.into_bytes())
        })
    })
}

/// The JSON with the keys of its objects sorted, as many senders print theirs. `None` for what is nested too deeply.
fn sorted(text: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let mut out = String::with_capacity(text.len());
    print_sorted(&value, &mut out);
    Some(out)
}

/// Recursion is bounded by the parser's own limit.
fn print_sorted(value: &serde_json::Value, out: &mut String) {
    let mut comma = "";
    match value {
        serde_json::Value::Object(members) => {
            let members: BTreeMap<&String, &serde_json::Value> = members.iter().collect();
            out.push('{');
            for (name, value) in members {
                out.push_str(std::mem::replace(&mut comma, ","));
                out.push_str(&serde_json::Value::from(name.as_str()).to_string());
                out.push(':');
                print_sorted(value, out);
            }
            out.push('}');
        }
        serde_json::Value::Array(items) => {
            out.push('[');
            for value in items {
                out.push_str(std::mem::replace(&mut comma, ","));
                print_sorted(value, out);
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, from) {
        let (before, after) = rest.split_at(at);
        out.extend_from_slice(before);
        out.extend_from_slice(to);
        rest = after.get(from.len()..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Spacing {
    AsIs,
    /// JavaScript's `JSON.stringify`.
    Compact,
    /// Python's `json.dumps`.
    Spaced,
    Indented(usize),
}

impl Spacing {
    const ALL: [Self; 5] = [
        Self::AsIs,
        Self::Compact,
        Self::Spaced,
        Self::Indented(2),
        Self::Indented(4),
    ];
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Strings {
    AsIs,
    /// Everything outside ASCII as `\uXXXX`, lower case.
    Ascii,
    /// The same in upper case.
    AsciiUpper,
    /// `/` as `\/`.
    Slashes,
    /// PHP's `json_encode`: both.
    AsciiSlashes,
    /// No needless escapes.
    Plain,
}

impl Strings {
    const ALL: [Self; 6] = [
        Self::AsIs,
        Self::Ascii,
        Self::AsciiUpper,
        Self::Slashes,
        Self::AsciiSlashes,
        Self::Plain,
    ];
}

/// Prints JSON in another style, token by token: numbers, names and their order stay. What is no JSON gives nonsense,
/// which verifies nothing. `None` when it grows beyond what printing again explains.
fn reprint(text: &str, spacing: Spacing, style: Strings) -> Option<String> {
    let limit = text.len().saturating_mul(8).saturating_add(1024);
    let mut out = String::with_capacity(text.len() + text.len() / 4);
    let mut chars = text.chars().peekable();
    let mut depth: usize = 0;
    while let Some(c) = chars.next() {
        if out.len() > limit {
            return None;
        }
        match c {
            '"' => {
                let mut inner = String::new();
                while let Some(c) = chars.next() {
                    match c {
                        '"' => break,
                        '\\' => {
                            inner.push(c);
                            inner.extend(chars.next());
                        }
                        c => inner.push(c),
                    }
                }
                out.push('"');
                out.push_str(&restyle(&inner, style));
                out.push('"');
            }
            ' ' | '\t' | '\n' | '\r' if spacing != Spacing::AsIs => {}
            c => {
                let closes = matches!(c, '}' | ']');
                let opens = matches!(c, '{' | '[');
                depth = if closes { depth.saturating_sub(1) } else { depth };
                if let Spacing::Indented(width) = spacing
                    && closes
                    && !out.ends_with(['{', '['])
                {
                    line(&mut out, depth * width);
                }
                out.push(c);
                depth += usize::from(opens);
                if spacing != Spacing::AsIs && opens {
                    while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
                }
                let is_empty = opens && matches!(chars.peek(), Some('}' | ']'));
                match spacing {
                    Spacing::Spaced if matches!(c, ',' | ':') => out.push(' '),
                    Spacing::Indented(_) if c == ':' => out.push(' '),
                    Spacing::Indented(width) if (opens && !is_empty) || c == ',' => line(&mut out, depth * width),
                    _ => {}
                }
            }
        }
    }
    Some(out)
}

fn line(out: &mut String, width: usize) {
    out.push('\n');
    // Indents no deeper than a hostile body should be able to make us.
    out.extend(std::iter::repeat_n(' ', width.min(256)));
}

/// The inside of a string in another style.
fn restyle(inner: &str, style: Strings) -> String {
    if style == Strings::AsIs {
        return inner.to_owned();
    }
    let Ok(plain) = serde_json::from_str::<String>(&format!("\"{inner}\"")) else {
        return inner.to_owned();
    };
    let quoted = serde_json::to_string(&plain).unwrap_or_default();
    let quoted = quoted
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or_default();
    let mut out = String::with_capacity(quoted.len());
    for c in quoted.chars() {
        let slashes = matches!(style, Strings::Slashes | Strings::AsciiSlashes);
        let ascii = matches!(style, Strings::Ascii | Strings::AsciiUpper | Strings::AsciiSlashes);
        match c {
            '/' if slashes => out.push_str("\\/"),
            c if ascii && !c.is_ascii() => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a String cannot fail.
                    match style {
                        Strings::AsciiUpper => write!(out, "\\u{unit:04X}").unwrap_or_default(),
                        _ => write!(out, "\\u{unit:04x}").unwrap_or_default(),
                    }
                }
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_printed_in_the_styles_of_common_printers() {
        let text = "{\"a\":1.0,\"b\":[1,{}],\"c\":\"é/\\\"x\",\"d\":[]}";
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        let print = |text: &str, spacing, style| reprint(text, spacing, style).unwrap();
        let pretty = print(text, Spacing::Indented(2), Strings::AsIs);
        assert_eq!(pretty, serde_json::to_string_pretty(&value).unwrap());
        assert_eq!(
            print(text, Spacing::Spaced, Strings::Ascii),
            "{\"a\": 1.0, \"b\": [1, {}], \"c\": \"\\u00e9/\\\"x\", \"d\": []}"
        );
        let pretty = print(text, Spacing::Indented(4), Strings::AsciiSlashes);
        assert_eq!(print(&pretty, Spacing::Compact, Strings::Plain), text);
    }

    #[test]
    fn hostile_texts_stay_small() {
        let deep = "[".repeat(10_000);
        assert_eq!(reprint(&deep, Spacing::Indented(4), Strings::Ascii), None);
        for odd in ["", "\"", "\"\\", "}}}", "\u{feff}", "{\"a\":\"\\ud800\"}", &deep] {
            let mut largest = 0;
            let found = change(odd.as_bytes(), |form| {
                largest = largest.max(form.len());
                false
            });
            assert_eq!(found, None);
            assert!(largest <= odd.len() * 8 + 2048);
        }
    }
}
