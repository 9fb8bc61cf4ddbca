//! The forms that a path takes when it is decoded and folded, in all the ways that [`Shadow`](super::Shadow) knows of.

/// A configured path in the form in which paths are compared.
pub fn folded(path: &str) -> String {
    fold(&decode_to_the_end(path.as_bytes()), Way::FIRST)
}

/// The path decoded to the end, as it is, and after each of the first rounds, where that is something else.
pub(super) fn readings(path: &[u8]) -> Vec<Vec<u8>> {
    let mut readings = vec![decode_to_the_end(path)];
    let mut reading = path.to_vec();
    for _ in 0..=3 {
        let next = decode_once(&reading);
        if !readings.contains(&reading) {
            readings.push(reading);
        }
        reading = next;
    }
    readings
}

/// One way of folding what was decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    cut: bool,
    backslash: bool,
    collapse_first: bool,
    /// Everything behind the first `;` goes, slashes too.
    parameters_to_end: bool,
    /// What follows two slashes at the beginning is a host and no part of the path.
    host_first: bool,
    /// `.json` at the end of the last segment names a format and is no part of the path.
    suffix_off: bool,
}

impl Way {
    /// The one that the configured paths are folded in, which have nothing odd in them.
    pub(super) const FIRST: Self = Self {
        cut: true,
        backslash: true,
        collapse_first: true,
        parameters_to_end: false,
        host_first: false,
        suffix_off: false,
    };

    /// All that make a difference for these bytes.
    pub(super) fn all(reading: &[u8]) -> impl Iterator<Item = Self> {
        let raw = Self {
            cut: false,
            backslash: false,
            ..Self::FIRST
        };
        let text = characters(reading, raw);
        let both = |odd: bool| if odd { &[true, false][..] } else { &[true][..] };
        let cuts = both(reading.contains(&0) || text.contains(['?', '#']));
        let backslashes = both(text.contains('\\'));
        let collapses = both(text.contains("//") || text.contains('\\'));
        let either = |odd: bool| if odd { &[false, true][..] } else { &[false][..] };
        let parameters = either(text.contains(';'));
        let suffixes = either(text.contains(['.', ':']));
        let hosts = either(host_at_front(&text.replace('\\', "/")).is_some());
        cuts.iter().flat_map(move |&cut| {
            backslashes.iter().flat_map(move |&backslash| {
                collapses.iter().flat_map(move |&collapse_first| {
                    parameters.iter().flat_map(move |&parameters_to_end| {
                        hosts.iter().flat_map(move |&host_first| {
                            suffixes.iter().map(move |&suffix_off| Self {
                                cut,
                                backslash,
                                collapse_first,
                                parameters_to_end,
                                host_first,
                                suffix_off,
                            })
                        })
                    })
                })
            })
        })
    }
}

/// The path as segments, each with a slash in front; empty for `/`.
pub(super) fn fold(reading: &[u8], way: Way) -> String {
    let mut text = characters(reading, way);
    if way.host_first
        && let Some(path) = host_at_front(&text)
    {
        text = path.to_owned();
    }
    if way.parameters_to_end
        && let Some((before, _)) = text.split_once(';')
    {
        text = before.to_owned();
    }
    let mut segments: Vec<&str> = Vec::new();
    for segment in text.split('/') {
        let segment = segment.split(';').next().unwrap_or_default();
        let bare = segment.trim_matches(' ');
        match bare {
            "" if way.collapse_first => {}
            "." => {}
            ".." => {
                segments.pop();
            }
            _ => segments.push(bare.trim_end_matches(['.', ' '])),
        }
    }
    if way.suffix_off
        && let Some(last) = segments.iter_mut().rfind(|segment| !segment.is_empty())
    {
        *last = last.split(['.', ':']).next().unwrap_or_default();
    }
    let mut folded = String::with_capacity(text.len() + 1);
    for segment in segments.into_iter().filter(|segment| !segment.is_empty()) {
        folded.push('/');
        folded.push_str(segment);
    }
    folded
}

/// The path behind a host that stands between two or more slashes and the next one.
fn host_at_front(text: &str) -> Option<&str> {
    let host = text.strip_prefix("//")?.trim_start_matches('/');
    Some(host.find('/').and_then(|end| host.get(end..)).unwrap_or_default())
}

/// Percent-decodes until nothing is left to decode, in one pass: what a decoded byte completes is looked at at once.
pub(super) fn decode_to_the_end(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for byte in bytes {
        out.push(*byte);
        while let Some((length, decoded)) = escape_at_end(&out) {
            out.truncate(out.len() - length);
            out.push(decoded);
        }
    }
    out
}

/// The escape that `bytes` end with: its length and what it means.
fn escape_at_end(bytes: &[u8]) -> Option<(usize, u8)> {
    match *bytes {
        [.., b'%', b'u' | b'U', b'0', b'0', high, low] => Some((6, hex(high, low)?)),
        [.., b'%', high, low] => Some((3, hex(high, low)?)),
        _ => None,
    }
}

pub(super) fn decode_once(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let decoded = match rest {
            [b'%', high, low, after @ ..] => hex(*high, *low).map(|byte| (byte, after)),
            _ => None,
        };
        let (byte, after) = decoded.unwrap_or((*first, after));
        out.push(byte);
        rest = after;
    }
    out
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// Reads bytes as the most lenient decoder would: overlong forms mean what they say, controls and what is no UTF-8 are
/// left out, look-alikes of ASCII are ASCII, all in lower case.
fn characters(bytes: &[u8], way: Way) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let (code, after) = sequence(*first, after);
        rest = after;
        let Some(character) = code.and_then(char::from_u32) else {
            continue;
        };
        match plain(character) {
            '\0' | '?' | '#' if way.cut => break,
            '\\' if way.backslash => text.push('/'),
            character if character.is_control() => {}
            // Upper first: some letters have no lower case of their own and an ASCII upper one.
            character => text.extend(character.to_uppercase().flat_map(char::to_lowercase)),
        }
    }
    text
}

/// The code point that begins with `first`, and what follows it.
fn sequence(first: u8, after: &[u8]) -> (Option<u32>, &[u8]) {
    let (length, bits) = match first {
        0..=0x7f => return (Some(u32::from(first)), after),
        0xc0..=0xdf => (1, first & 0x1f),
        0xe0..=0xef => (2, first & 0x0f),
        0xf0..=0xf7 => (3, first & 0x07),
        _ => return (None, after),
    };
    let mut code = u32::from(bits);
    let mut rest = after;
    for _ in 0..length {
        match rest {
            [next @ 0x80..=0xbf, behind @ ..] => {
                code = code << 6 | u32::from(next & 0x3f);
                rest = behind;
            }
            _ => return (None, after),
        }
    }
    (Some(code), rest)
}

/// What compatibility mappings make of characters that look like ASCII.
fn plain(character: char) -> char {
    match character {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(character) - 0xfee0).unwrap_or(character),
        '\u{2044}' | '\u{2215}' | '\u{29f8}' => '/',
        '\u{2216}' | '\u{29f9}' | '\u{fe68}' => '\\',
        '\u{2024}' | '\u{fe52}' => '.',
        '\u{a0}' | '\u{2000}'..='\u{200b}' | '\u{3000}' | '\u{feff}' => ' ',
        _ => character,
    }
}
