//! Looks single values up in a JSON body without building it, copying it or trusting it.
//!
//! One pass over the bytes answers any number of JSON pointers (RFC 6901). The grammar of RFC 8259 is checked to the
//! end: a body that is not JSON has no values at all. Nesting costs one bit of a fixed stack, so a hostile body can
//! exhaust neither stack nor memory.

use std::borrow::Cow;
use std::ops::Range;

/// Deeper nesting than this is taken as "not JSON": ids never live that deep.
const MAX_DEPTH: u32 = 128;

/// A compiled JSON pointer such as `/event/type`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pointer {
    text: String,
    steps: Vec<String>,
}

impl Pointer {
    /// Parses `text`, which is empty or starts with `/`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self {
                text: String::new(),
                steps: Vec::new(),
            });
        }
        let steps = text
            .strip_prefix('/')?
            .split('/')
            .map(|step| step.replace("~1", "/").replace("~0", "~"))
            .collect();
        Some(Self {
            text: text.to_owned(),
            steps,
        })
    }

    /// Puts `value` where the pointer points, making objects on the way.
    pub(super) fn set(&self, document: &mut serde_json::Value, value: serde_json::Value) {
        let mut here = document;
        for step in &self.steps {
            if !here.is_object() {
                *here = serde_json::json!({});
            }
            let Some(object) = here.as_object_mut() else { return };
            here = object.entry(step).or_insert(serde_json::Value::Null);
        }
        *here = value;
    }

    /// As written.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// The pointer at the whole document.
    pub(super) fn whole() -> Self {
        Self {
            text: String::new(),
            steps: Vec::new(),
        }
    }

    /// Whether `other` points into what this one points at, or at it.
    pub(super) fn leads_to(&self, other: &Self) -> bool {
        other.steps.starts_with(&self.steps)
    }
}

/// Where the values at some pointers stand in a body, in the order of the pointers.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Empty when the body is not JSON.
    spans: Vec<Option<Range<usize>>>,
}

impl Found {
    /// The value at the pointer with this index, of the body that was looked at: a string's text, a number's literal
    /// characters, `true` or `false`. `None` for what is absent, null, an object or an array, and for all of them when the
    /// body is not JSON.
    pub(super) fn value<'b>(&self, body: &'b [u8], index: usize) -> Option<Cow<'b, str>> {
        scalar(body.get(self.spans.get(index)?.clone()?)?)
    }
}

/// Looks for the values at each pointer.
pub(super) fn find(body: &[u8], pointers: &[Pointer]) -> Found {
    Found {
        spans: scan(body, pointers).unwrap_or_default(),
    }
}

/// The value at one pointer; see [`Found::value`].
pub(super) fn value<'b>(body: &'b [u8], pointer: &Pointer) -> Option<Cow<'b, str>> {
    find(body, std::slice::from_ref(pointer)).value(body, 0)
}

/// The bytes of the value at `pointer`, as they stand in the body.
pub(super) fn raw<'b>(body: &'b [u8], pointer: &Pointer) -> Option<&'b [u8]> {
    let spans = scan(body, std::slice::from_ref(pointer))?;
    body.get(spans.into_iter().next()??)
}

/// Whether one of the pointers leads over a name that its object has twice, so that two readers may find two values.
pub(super) fn is_repeated(body: &[u8], pointers: &[Pointer]) -> bool {
    look(body, pointers).is_some_and(|(_, repeated)| repeated)
}

/// The bytes of each value in the array at `pointer`; `None` when there is no array, or one of more than `most`.
pub(super) fn elements<'b>(body: &'b [u8], pointer: &Pointer, most: usize) -> Option<Vec<&'b [u8]>> {
    let array = raw(body, pointer)?;
    let mut scanner = Scanner { body: array, at: 0 };
    let mut found = Vec::new();
    scanner.expect(b'[')?;
    scanner.space();
    if scanner.expect(b']').is_some() {
        return Some(found);
    }
    while found.len() < most {
        scanner.space();
        let start = scanner.at;
        scanner.skip()?;
        found.push(array.get(start..scanner.at)?);
        scanner.space();
        if scanner.expect(b',').is_none() {
            return scanner.expect(b']').map(|()| found);
        }
    }
    None
}

/// The quoted names and the bytes of the values of an object that is known to be well formed, in their order.
pub(super) fn members(object: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut scanner = Scanner { body: object, at: 0 };
    let mut found = Vec::new();
    scanner.expect(b'{')?;
    scanner.space();
    if scanner.expect(b'}').is_some() {
        return Some(found);
    }
    loop {
        scanner.space();
        let start = scanner.at;
        scanner.string()?;
        let name = object.get(start..scanner.at)?;
        scanner.space();
        scanner.expect(b':')?;
        scanner.space();
        let start = scanner.at;
        scanner.skip()?;
        found.push((name, object.get(start..scanner.at)?));
        scanner.space();
        if scanner.expect(b',').is_none() {
            return scanner.expect(b'}').map(|()| found);
        }
    }
}

/// The bytes of the values at each pointer, or `None` if the body is not JSON. Of a name that occurs twice the last
/// value counts, as in nearly every parser.
fn scan(body: &[u8], pointers: &[Pointer]) -> Option<Vec<Option<Range<usize>>>> {
    look(body, pointers).map(|(found, _)| found)
}

/// As [`scan`], and whether a name on the way to one of the values occurs twice.
fn look(body: &[u8], pointers: &[Pointer]) -> Option<(Vec<Option<Range<usize>>>, bool)> {
    // Some senders put a byte order mark in front; RFC 8259 lets a reader skip it.
    let start = if body.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let mut found = vec![None; pointers.len()];
    let mut repeated = false;
    // No record comes near a second pass.
    for (pointers, found) in pointers.chunks(Wanted::MOST).zip(found.chunks_mut(Wanted::MOST)) {
        let mut search = Search {
            scanner: Scanner { body, at: start },
            pointers,
            found,
            repeated: false,
        };
        search.scanner.space();
        search.value(Wanted::all(pointers.len()), 0)?;
        search.scanner.space();
        if search.scanner.at != body.len() {
            return None;
        }
        repeated |= search.repeated;
    }
    Some((found, repeated))
}

fn scalar(raw: &[u8]) -> Option<Cow<'_, str>> {
    match raw.first()? {
        b'"' => unquote(raw),
        b'{' | b'[' | b'n' => None,
        _ => std::str::from_utf8(raw).ok().map(Cow::Borrowed),
    }
}

/// What a quoted string says.
pub(super) fn unquote(raw: &[u8]) -> Option<Cow<'_, str>> {
    let inner = raw.get(1..raw.len().checked_sub(1)?)?;
    if memchr::memchr(b'\\', inner).is_some() {
        serde_json::from_slice(raw).ok().map(Cow::Owned)
    } else {
        std::str::from_utf8(inner).ok().map(Cow::Borrowed)
    }
}

/// Some of the pointers of one pass, a bit for each.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Wanted(u64);

impl Wanted {
    /// Most pointers of one pass.
    const MOST: usize = 64;

    const fn all(count: usize) -> Self {
        match count {
            0 => Self(0),
            count => Self(u64::MAX >> (Self::MOST - count)),
        }
    }

    const fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn indices(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let index = usize::try_from(rest.trailing_zeros()).ok()?;
            (rest != 0).then(|| {
                rest &= rest - 1;
                index
            })
        })
    }
}

/// One pass: what is looked for, and what was found of it.
struct Search<'s, 'b> {
    scanner: Scanner<'b>,
    pointers: &'s [Pointer],
    found: &'s mut [Option<Range<usize>>],
    /// A name that a pointer leads over occurred twice in one object.
    repeated: bool,
}

impl Search<'_, '_> {
    /// Reads the value here. `wanted` are the pointers whose first `depth` steps lead to it; the recursion is as deep
    /// as the longest pointer, never as deep as the body.
    fn value(&mut self, wanted: Wanted, depth: usize) -> Option<()> {
        let start = self.scanner.at;
        let mut steps = wanted
            .indices()
            .filter_map(|i| self.pointers.get(i))
            .map(|p| p.steps.len());
        let goes_deeper = steps.any(|steps| steps > depth);
        match self.scanner.peek()? {
            b'{' if goes_deeper => self.object(wanted, depth)?,
            b'[' if goes_deeper => self.array(wanted, depth)?,
            _ => self.scanner.skip()?,
        }
        for i in wanted.indices() {
            if self.pointers.get(i).is_some_and(|p| p.steps.len() == depth)
                && let Some(slot) = self.found.get_mut(i)
            {
                *slot = Some(start..self.scanner.at);
            }
        }
        Some(())
    }

    fn object(&mut self, wanted: Wanted, depth: usize) -> Option<()> {
        self.scanner.expect(b'{')?;
        self.scanner.space();
        if self.scanner.expect(b'}').is_some() {
            return Some(());
        }
        let mut named = Wanted(0);
        loop {
            self.scanner.space();
            let name = self.scanner.quoted()?;
            self.scanner.space();
            self.scanner.expect(b':')?;
            self.scanner.space();
            let next = self.matching(wanted, depth, |step| name.is(step));
            self.repeated |= next.0 & named.0 != 0;
            named.0 |= next.0;
            self.member(next, depth)?;
            self.scanner.space();
            if self.scanner.expect(b',').is_none() {
                return self.scanner.expect(b'}');
            }
        }
    }

    fn array(&mut self, wanted: Wanted, depth: usize) -> Option<()> {
        self.scanner.expect(b'[')?;
        self.scanner.space();
        if self.scanner.expect(b']').is_some() {
            return Some(());
        }
        for index in 0_usize.. {
            self.scanner.space();
            let next = self.matching(wanted, depth, |step| step.parse() == Ok(index));
            self.member(next, depth)?;
            self.scanner.space();
            if self.scanner.expect(b',').is_none() {
                return self.scanner.expect(b']');
            }
        }
        None
    }

    /// Reads the value of a member or element that these pointers lead to.
    fn member(&mut self, next: Wanted, depth: usize) -> Option<()> {
        if next.is_empty() {
            self.scanner.skip()
        } else {
            self.value(next, depth + 1)
        }
    }

    /// The pointers among `wanted` whose step at `depth` fits; what they found under an earlier name of the same spelling
    /// no longer counts.
    fn matching(&mut self, wanted: Wanted, depth: usize, fits: impl Fn(&str) -> bool) -> Wanted {
        let mut next = Wanted(0);
        for i in wanted.indices() {
            let step = self.pointers.get(i).and_then(|p| p.steps.get(depth));
            if step.is_some_and(|step| fits(step)) {
                next.0 |= 1 << i;
                if let Some(slot) = self.found.get_mut(i) {
                    *slot = None;
                }
            }
        }
        next
    }
}

/// A quoted name.
struct Quoted<'b> {
    /// With the quotes.
    raw: &'b [u8],
    is_escaped: bool,
}

impl Quoted<'_> {
    /// Whether it spells `step`, escapes and all.
    fn is(&self, step: &str) -> bool {
        if self.is_escaped {
            return unquote(self.raw).is_some_and(|name| name == step);
        }
        let inner = self.raw.get(1..self.raw.len().saturating_sub(1)).unwrap_or_default();
        inner == step.as_bytes()
    }
}

struct Scanner<'b> {
    body: &'b [u8],
    at: usize,
}

impl<'b> Scanner<'b> {
    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn literal(&mut self, word: &[u8]) -> Option<()> {
        self.body
            .get(self.at..)?
            .starts_with(word)
            .then(|| self.at += word.len())
    }

    /// Passes over one value of any kind without recursion: which containers are open is one bit each.
    fn skip(&mut self) -> Option<()> {
        let mut objects: u128 = 0;
        let mut depth = 0;
        loop {
            // Here a value starts.
            match self.peek()? {
                open @ (b'{' | b'[') => {
                    depth += 1;
                    if depth > MAX_DEPTH {
                        return None;
                    }
                    objects = (objects << 1) | u128::from(open == b'{');
                    self.at += 1;
                    self.space();
                    let close = if open == b'{' { b'}' } else { b']' };
                    if self.expect(close).is_none() {
                        if open == b'{' {
                            self.name()?;
                        }
                        continue;
                    }
                    objects >>= 1;
                    depth -= 1;
                }
                b'"' => self.string()?,
                b't' => self.literal(b"true")?,
                b'f' => self.literal(b"false")?,
                b'n' => self.literal(b"null")?,
                _ => self.number()?,
            }
            // Here a value has ended: close containers until one goes on.
            loop {
                if depth == 0 {
                    return Some(());
                }
                self.space();
                let in_object = objects & 1 == 1;
                if self.expect(b',').is_some() {
                    self.space();
                    if in_object {
                        self.name()?;
                    }
                    break;
                }
                self.expect(if in_object { b'}' } else { b']' })?;
                objects >>= 1;
                depth -= 1;
            }
        }
    }

    fn name(&mut self) -> Option<()> {
        self.string()?;
        self.space();
        self.expect(b':')?;
        self.space();
        Some(())
    }

    fn quoted(&mut self) -> Option<Quoted<'b>> {
        let start = self.at;
        let is_escaped = self.text()?;
        let raw = self.body.get(start..self.at)?;
        Some(Quoted { raw, is_escaped })
    }

    fn string(&mut self) -> Option<()> {
        self.text().map(|_is_escaped| ())
    }

    /// Passes over a string; whether it has escapes.
    fn text(&mut self) -> Option<bool> {
        self.expect(b'"')?;
        let mut is_escaped = false;
        loop {
            let rest = self.body.get(self.at..)?;
            let plain = plain_len(rest);
            self.at += plain + 1;
            match rest.get(plain)? {
                b'"' => return Some(is_escaped),
                b'\\' => {
                    is_escaped = true;
                    self.escape()?;
                }
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        let kind = self.peek()?;
        self.at += 1;
        match kind {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => {
                let digits = self.body.get(self.at..self.at + 4)?;
                self.at += 4;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<()> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek()? {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits()?,
            _ => return None,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}

/// How many bytes pass before a quote, a backslash or a control character. Most of a body is text inside strings: short
/// ones are looked at eight bytes at a time, long ones twice, each time as fast as the processor can.
fn plain_len(text: &[u8]) -> usize {
    /// Eights that are looked at before it is a long one.
    const SHORT: usize = 4;
    let (words, tail) = text.as_chunks::<8>();
    for (index, word) in words.iter().take(SHORT).enumerate() {
        if let Some(end) = end_in(*word) {
            return index * 8 + end;
        }
    }
    let is_control = |byte: &u8| *byte < 0x20;
    if words.len() <= SHORT {
        let end = tail
            .iter()
            .position(|byte| matches!(byte, b'"' | b'\\') || is_control(byte));
        return words.len() * 8 + end.unwrap_or(tail.len());
    }
    let rest = text.get(SHORT * 8..).unwrap_or_default();
    let end = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
    let plain = rest.get(..end).unwrap_or_default();
    // Without a way out on the way, so that the compiler makes it a few wide instructions.
    let has_control = plain.iter().fold(false, |found, byte| found | is_control(byte));
    let control = has_control.then(|| plain.iter().position(is_control)).flatten();
    SHORT * 8 + control.unwrap_or(end)
}

/// The first of eight bytes at which plain text ends.
fn end_in(word: [u8; 8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let word = u64::from_le_bytes(word);
    let quote = word ^ (ONES * 0x22);
    let backslash = word ^ (ONES * 0x5c);
    // A byte's high bit is set where the subtraction borrows: at zero bytes, and at bytes below a space. A borrow
    // may spill upwards, never downwards, so the lowest bit found is exact.
    let found = (quote.wrapping_sub(ONES) & !quote)
        | (backslash.wrapping_sub(ONES) & !backslash)
        | (word.wrapping_sub(ONES * 0x20) & !word);
    let found = found & HIGHS;
    (found != 0).then(|| usize::try_from(found.trailing_zeros() / 8).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn look(body: &str, pointer: &str) -> Option<String> {
        value(body.as_bytes(), &Pointer::parse(pointer).unwrap()).map(Cow::into_owned)
    }

    #[test]
    fn several_pointers_are_answered_in_one_pass() {
        let pointers = ["/id", "/event/type", "/a/1/b", "/event", "/none"].map(|p| Pointer::parse(p).unwrap());
        let body = br#" { "event" : {"x":[1,{}],"type":"push"}, "a":[0,{"b":1.50}], "id":"\u0041b" } "#;
        let found = find(body, &pointers);
        let values = [0, 1, 2, 3, 4].map(|index| found.value(body, index));
        assert_eq!(
            values,
            [Some("Ab".into()), Some("push".into()), Some("1.50".into()), None, None]
        );
    }

    #[test]
    fn a_number_gives_its_literal_text_and_null_gives_nothing() {
        assert_eq!(
            look("{\"v\":12345678901234567890.0}", "/v").as_deref(),
            Some("12345678901234567890.0")
        );
        assert_eq!(look("{\"v\":7}", "/v").as_deref(), Some("7"));
        assert_eq!(look("{\"v\":true}", "/v").as_deref(), Some("true"));
        for none in ["{\"v\":null}", "{\"v\":{}}", "{\"v\":[]}", "{}", "[]", "7", ""] {
            assert_eq!(look(none, "/v"), None, "{none}");
        }
    }

    #[test]
    fn pointers_may_be_more_than_one_pass_looks_for() {
        let pointers: Vec<_> = (0..200).map(|n| Pointer::parse(&format!("/m{n}")).unwrap()).collect();
        let members: Vec<_> = (0..200).map(|n| format!("\"m{n}\":{n}")).collect();
        let body = format!("{{{}}}", members.join(","));
        let found = find(body.as_bytes(), &pointers);
        for n in 0..200 {
            assert_eq!(found.value(body.as_bytes(), n), Some(n.to_string().into()), "{n}");
        }
        assert_eq!(find(b"{", &pointers).value(b"{", 199), None);
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert_eq!(look("\u{feff}{\"id\":\"x\"}", "/id").as_deref(), Some("x"));
    }

    #[test]
    fn the_last_of_repeated_names_counts_even_when_it_holds_nothing() {
        assert_eq!(look(r#"{"id":"a","id":"b"}"#, "/id").as_deref(), Some("b"));
        assert_eq!(look(r#"{"e":{"t":"a"},"e":{}}"#, "/e/t"), None);
        assert_eq!(look(r#"{"id":"a","id":null}"#, "/id"), None);
    }

    #[test]
    fn a_name_that_is_given_twice_is_noticed_where_a_pointer_leads_over_it() {
        let repeated = |body: &str, pointers: &[&str]| {
            let pointers: Vec<_> = pointers.iter().map(|p| Pointer::parse(p).unwrap()).collect();
            is_repeated(body.as_bytes(), &pointers)
        };
        assert!(repeated(r#"{"id":"a","x":1,"id":"a"}"#, &["/id"]));
        assert!(repeated(r#"{"i\u0064":"a","id":"b"}"#, &["/id"]));
        assert!(repeated(r#"{"e":{"t":"a"},"e":1}"#, &["/e/t"]));
        assert!(repeated(r#"{"e":[{"t":1,"t":2}]}"#, &["/x", "/e/0/t"]));
        assert!(!repeated(
            r#"{"e":{"t":"a","x":1,"x":2},"x":1,"x":2}"#,
            &["/e/t", "/e/y"]
        ));
        assert!(!repeated(r#"{"e":{"t":1,"u":2}}"#, &["/e/t", "/e/u", "/e"]));
        assert!(!repeated(r#"{"id":1,"id":2"#, &["/id"]));
    }

    #[test]
    fn a_body_that_is_not_json_to_its_end_has_no_values() {
        for bad in [
            r#"{"id":"a""#,
            r#"{"id":"a",}"#,
            r#"{"id":"a"}x"#,
            r#"{"id":"a" "b":1}"#,
            r#"{"id":"a","x":01}"#,
            r#"{"id":"a","x":"\q"}"#,
            r#"{"id":"a","x":[1 2]}"#,
            r#"{"id":"a","x":{]}}"#,
            "{\"id\":\"a\",\"x\":\"\n\"}",
            r#"{"id":"a","x":tru}"#,
            r#"{"id":"a","x":-}"#,
            r#"{"id":"a","x":1.}"#,
            r#"{"id":"a","x":"\u12g4"}"#,
        ] {
            assert_eq!(look(bad, "/id"), None, "{bad}");
        }
    }

    #[test]
    fn a_name_with_escapes_is_found_by_its_meaning() {
        assert_eq!(look(r#"{"i\u0064":"a"}"#, "/id").as_deref(), Some("a"));
        assert_eq!(look(r#"{"a/b":{"~":"x"}}"#, "/a~1b/~0").as_deref(), Some("x"));
    }

    #[test]
    fn deep_nesting_neither_overflows_nor_counts_as_json() {
        let deep = format!(
            "{{\"x\":{}{},\"id\":\"a\"}}",
            "[".repeat(1_000_000),
            "]".repeat(1_000_000)
        );
        assert_eq!(look(&deep, "/id"), None);
        let fine = format!("{{\"x\":{}{},\"id\":\"a\"}}", "[".repeat(128), "]".repeat(128));
        assert_eq!(look(&fine, "/id").as_deref(), Some("a"));
    }

    #[test]
    fn text_that_is_not_utf_8_gives_nothing_and_harms_no_other_value() {
        let pointers = ["/a", "/b"].map(|p| Pointer::parse(p).unwrap());
        let body = b"{\"a\":\"\xff\",\"b\":\"x\"}";
        let found = find(body, &pointers);
        assert_eq!([0, 1].map(|index| found.value(body, index)), [None, Some("x".into())]);
    }

    proptest! {
        #[test]
        fn eight_bytes_at_a_time_find_the_same_end(text in prop::collection::vec(prop::sample::select(&b"\"\\\x1f\x00\x20\x21\x5b\x7f\x80\xff\xa2\xdcaaaaaaaaaaaa"[..]), 0..40), before in 0usize..300) {
            let text = ["b".repeat(before).as_bytes(), &text].concat();
            let slow = text.iter().position(|b| matches!(b, b'"' | b'\\' | 0..=0x1f)).unwrap_or(text.len());
            prop_assert_eq!(plain_len(&text), slow);
        }

        #[test]
        fn agrees_with_serde_json_on_damaged_documents(
            at in 0usize..80, byte in prop::sample::select(&b"\"\\{}[]:,0e.-tn \x01x"[..]),
        ) {
            let mut body = br#"{"a":{"b":[1,-2.5e+3,"x\"y"],"id":"q"},"t":true,"n":null,"e":{},"l":[]}"#.to_vec();
            let at = at % body.len();
            body[at] = byte;
            let pointer = [Pointer::parse("/a/id").unwrap()];
            let ours = scan(&body, &pointer);
            let theirs: Result<serde_json::Value, _> = serde_json::from_slice(&body);
            prop_assert_eq!(ours.is_some(), theirs.is_ok(), "{}", String::from_utf8_lossy(&body));
            if let Ok(document) = theirs {
                let expected = document.pointer("/a/id").and_then(|v| match v {
                    serde_json::Value::String(s) => Some(s.clone()),
                    serde_json::Value::Number(n) => Some(n.to_string()),
                    serde_json::Value::Bool(b) => Some(b.to_string()),
                    _ => None,
                });
                prop_assert_eq!(value(&body, &pointer[0]).map(Cow::into_owned), expected);
            }
        }
    }
}
