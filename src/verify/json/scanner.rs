//! Passing over JSON: the grammar of RFC 8259, checked byte by byte where it must be and faster where it may.

use super::unquote;

/// Deeper nesting than this is taken as "not JSON": ids never live that deep.
const MAX_DEPTH: u32 = 128;

/// A quoted name.
pub(super) struct Quoted<'b> {
    /// With the quotes.
    pub(super) raw: &'b [u8],
    pub(super) is_escaped: bool,
}

impl Quoted<'_> {
    /// Whether it spells `step`, escapes and all.
    pub(super) fn is(&self, step: &str) -> bool {
        if self.is_escaped {
            return unquote(self.raw).is_some_and(|name| name == step);
        }
        let inner = self.raw.get(1..self.raw.len().saturating_sub(1)).unwrap_or_default();
        inner == step.as_bytes()
    }
}

pub(super) struct Scanner<'b> {
    pub(super) body: &'b [u8],
    pub(super) at: usize,
}

impl<'b> Scanner<'b> {
    pub(super) fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    pub(super) fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    pub(super) fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn literal(&mut self, word: &[u8]) -> Option<()> {
        self.body
            .get(self.at..)?
            .starts_with(word)
            .then(|| self.at += word.len())
    }

    /// Passes over one value of any kind without recursion: which containers are open is one bit each.
    pub(super) fn skip(&mut self) -> Option<()> {
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

    pub(super) fn quoted(&mut self) -> Option<Quoted<'b>> {
        let start = self.at;
        let is_escaped = self.text()?;
        let raw = self.body.get(start..self.at)?;
        Some(Quoted { raw, is_escaped })
    }

    pub(super) fn string(&mut self) -> Option<()> {
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
pub(super) fn plain_len(text: &[u8]) -> usize {
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
