//! Looks single values up in a JSON body without building it, copying it or trusting it.
//!
//! One pass over the bytes answers any number of JSON pointers (RFC 6901). The grammar of RFC 8259 is checked to the
//! end: a body that is not JSON has no values at all. Nesting costs one bit of a fixed stack, so a hostile body can
//! exhaust neither stack nor memory.

use std::borrow::Cow;
use std::ops::Range;

use self::scanner::Scanner;

mod scanner;

/// Longest list that is made for a pointer; a step above it is taken for a name.
const MAX_MADE: usize = 16;

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

    /// Puts `value` where the pointer points, making objects on the way, and lists where a step is a small number.
    pub(super) fn set(&self, document: &mut serde_json::Value, value: serde_json::Value) {
        let mut here = document;
        for step in &self.steps {
            let index = step.parse().ok().filter(|index| *index < MAX_MADE);
            if let Some(index) = index.filter(|_| here.is_null() || here.is_array()) {
                if here.is_null() {
                    *here = serde_json::json!([]);
                }
                let Some(list) = here.as_array_mut() else { return };
                if list.len() <= index {
                    list.resize(index + 1, serde_json::Value::Null);
                }
                let Some(item) = list.get_mut(index) else { return };
                here = item;
                continue;
            }
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

#[cfg(test)]
mod tests;
