//! Finds in the raw bytes of an HTTP/1 connection what the HTTP library would let pass.
//!
//! **Why.** Two readings of where a request ends are how a second request is smuggled past a proxy. hyper accepts a bare
//! LF as a line end, and drops `Content-Length` when `Transfer-Encoding` is there too (RFC 9112 section 6.3 allows
//! both); behind another proxy that reads them differently, either is a hole. We answer 400 and close instead.
//!
//! **How.** [`HeadGuard`] follows the byte stream in front of hyper: head, then as many body bytes as `Content-Length`
//! says, then the next head. On a violation it overwrites one byte of the head with NUL, which no HTTP parser takes, so
//! that hyper itself answers 400 and closes the connection. After a chunked request it stops looking, and the server
//! closes the connection behind that request's answer; so it need not parse chunks. The same holds for a request that
//! asks for a WebSocket: what follows it may be frames, which are no head ([`ends_with_answer`]). HTTP/2 is recognised by its preface
//! and left alone: its frames have one length each.
//!
//! It also knows when a head has begun and not ended, which the connection's timers need.

use http::header::{self, HeaderMap};
use memchr::{memchr, memchr_iter};

/// The start of the HTTP/2 connection preface (RFC 9113 section 3.4), enough to tell it from any HTTP/1 request.
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// Follows one connection's inbound bytes.
#[derive(Debug)]
pub struct HeadGuard {
    state: State,
    /// The unfinished line of a head that arrives in several reads.
    line: Vec<u8>,
    /// Bytes of the current head so far.
    head_bytes: usize,
    limit: usize,
    framing: Framing,
}

/// What the lines of a head have said about what follows it.
#[derive(Debug, Default)]
struct Framing {
    length: Option<u64>,
    has_length: bool,
    chunked: bool,
    websocket: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing of the next head has arrived.
    Between,
    /// In a head.
    Head,
    /// In a body with this many bytes left.
    Body(u64),
    /// HTTP/2, or behind a request that is the last of its connection, or a violation: nothing to follow any more.
    Off,
}

/// What a read has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing wrong.
    Fine,
    /// The connection is spoiled; a byte was overwritten so that the parser refuses the head.
    Violation,
}

impl HeadGuard {
    /// Follows a new connection. Heads over `limit` bytes are left to the HTTP library, which answers 431.
    pub fn new(limit: usize) -> Self {
        Self {
            state: State::Between,
            line: Vec::new(),
            head_bytes: 0,
            limit,
            framing: Framing::default(),
        }
    }

    /// Whether a head has begun and not ended.
    pub fn in_head(&self) -> bool {
        self.state == State::Head
    }

    /// Looks at bytes just read, in order.
    pub fn inspect(&mut self, mut bytes: &mut [u8]) -> Seen {
        while !bytes.is_empty() {
            match self.state {
                State::Off => return Seen::Fine,
                State::Body(left) => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = bytes.split_at_mut(here).1;
                    let left = left.saturating_sub(here as u64);
                    self.state = if left == 0 { State::Between } else { State::Body(left) };
                }
                State::Between | State::Head => match self.head(bytes) {
                    Step::Consumed(used) => bytes = bytes.split_at_mut(used).1,
                    Step::Violation => {
                        if let Some(first) = bytes.first_mut() {
                            *first = 0;
                        }
                        self.state = State::Off;
                        return Seen::Violation;
                    }
                },
            }
        }
        Seen::Fine
    }

    /// Reads lines of a head; says how many bytes belong to it.
    fn head(&mut self, bytes: &[u8]) -> Step {
        if self.state == State::Between {
            self.state = State::Head;
            self.head_bytes = 0;
            self.line.clear();
            self.framing = Framing::default();
        }
        let mut start = 0;
        for newline in memchr_iter(b'\n', bytes) {
            let part = bytes.get(start..newline).unwrap_or_default();
            start = newline + 1;
            let verdict = if self.line.is_empty() {
                self.head_bytes += part.len() + 1;
                self.framing.take_line(part, self.head_bytes)
            } else {
                self.line.extend_from_slice(part);
                self.head_bytes += part.len() + 1;
                let line = std::mem::take(&mut self.line);
                self.framing.take_line(&line, self.head_bytes)
            };
            match verdict {
                Line::Header => {}
                Line::Violation => return Step::Violation,
                Line::H2 => {
                    self.state = State::Off;
                    return Step::Consumed(bytes.len());
                }
                Line::LeadingBlank => self.head_bytes = 0,
                Line::End => {
                    self.state = match self.framing.length {
                        _ if self.framing.chunked || self.framing.websocket => State::Off,
                        None | Some(0) => State::Between,
                        Some(length) => State::Body(length),
                    };
                    return Step::Consumed(start);
                }
            }
        }
        let rest = bytes.get(start..).unwrap_or_default();
        self.head_bytes += rest.len();
        if self.head_bytes > self.limit {
            // The HTTP library refuses it; nothing behind it is read.
            self.state = State::Off;
        } else {
            self.line.extend_from_slice(rest);
        }
        Step::Consumed(bytes.len())
    }
}

enum Step {
    Consumed(usize),
    Violation,
}

enum Line {
    Header,
    /// An empty line before the request line (RFC 9112 section 2.2 lets servers skip it).
    LeadingBlank,
    End,
    H2,
    Violation,
}

impl Framing {
    /// Judges one line (without its LF).
    fn take_line(&mut self, line: &[u8], head_bytes: usize) -> Line {
        let Some((b'\r', line)) = line.split_last() else {
            return Line::Violation; // a bare LF
        };
        if memchr(b'\r', line).is_some() {
            return Line::Violation; // a bare CR
        }
        let is_first = head_bytes == line.len() + 2;
        if line.is_empty() {
            return if is_first { Line::LeadingBlank } else { Line::End };
        }
        if is_first {
            if memchr(b'#', line).is_some() {
                // A fragment is no part of a request target (RFC 9112 section 3.2); the library would drop it (P4).
                return Line::Violation;
            }
            let is_h2 = H2_PREFACE.strip_suffix(b"\r\n") == Some(line);
            return if is_h2 { Line::H2 } else { Line::Header };
        }
        if let Some(value) = header_value(line, b"content-length") {
            if self.has_length || self.chunked {
                // Two lengths, or both kinds: one reading each.
                return Line::Violation;
            }
            self.has_length = true;
            self.length = std::str::from_utf8(value.trim_ascii())
                .ok()
                .and_then(|text| text.parse().ok());
        } else if let Some(value) = header_value(line, b"transfer-encoding") {
            // Only `chunked`, once: any other coding would be taken off by nobody and announced to nobody.
            if self.has_length || self.chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return Line::Violation;
            }
            self.chunked = true;
        } else if let Some(value) = header_value(line, b"upgrade") {
            self.websocket |= names_websocket(value);
        }
        Line::Header
    }
}

/// Whether a request's connection must close behind its answer (unless that is a 101), since [`HeadGuard`] follows it no
/// further.
pub fn ends_with_answer(headers: &HeaderMap) -> bool {
    headers.contains_key(header::TRANSFER_ENCODING)
        || headers
            .get_all(header::UPGRADE)
            .iter()
            .any(|value| names_websocket(value.as_bytes()))
}

fn names_websocket(value: &[u8]) -> bool {
    const NAME: &[u8] = b"websocket";
    value.windows(NAME.len()).any(|part| part.eq_ignore_ascii_case(NAME))
}

fn header_value<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    if !start.eq_ignore_ascii_case(name) {
        return None;
    }
    value.strip_prefix(b":")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn inspect(pieces: &[&[u8]]) -> (HeadGuard, Seen) {
        let mut guard = HeadGuard::new(1024);
        let mut seen = Seen::Fine;
        for piece in pieces {
            let mut bytes = piece.to_vec();
            if guard.inspect(&mut bytes) == Seen::Violation {
                assert!(bytes.contains(&0), "the parser must see the violation");
                seen = Seen::Violation;
            }
        }
        (guard, seen)
    }

    #[test]
    fn both_lengths_bare_lf_and_bare_cr_are_violations() {
        for bad in [
            "POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\ncontent-length: 4\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
            "POST / HTTP/1.1\nHost: x\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: x\n\r\n",
            "POST / HTTP/1.1\r\nX: a\rb\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST /a?b#c HTTP/1.1\r\nHost: x\r\n\r\n",
        ] {
            assert_eq!(inspect(&[bad.as_bytes()]).1, Seen::Violation, "{bad:?}");
            // The same bytes one at a time: the verdict must not depend on how they were read.
            let pieces: Vec<&[u8]> = bad.as_bytes().chunks(1).collect();
            assert_eq!(inspect(&pieces).1, Seen::Violation, "{bad:?} byte by byte");
        }
    }

    #[test]
    fn ordinary_requests_pass_and_pipelined_heads_are_found_behind_bodies() {
        let two = b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\na\nbPOST /b HTTP/1.1\nHost: x\r\n\r\n";
        assert_eq!(inspect(&[two]).1, Seen::Violation, "the second head has a bare LF");
        let fine = b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\na\nbGET /b HTTP/1.1\r\nHost: x\r\n\r\n";
        let (guard, seen) = inspect(&[fine]);
        assert_eq!(seen, Seen::Fine);
        assert!(!guard.in_head());
    }

    #[test]
    fn a_head_is_open_until_its_empty_line() {
        let (guard, _) = inspect(&[b"POST / HTTP/1.1\r\nHost: x\r\n"]);
        assert!(guard.in_head());
        let (guard, _) = inspect(&[b"\r\n", b"GET / HTTP/1.1\r\n\r\n"]);
        assert!(!guard.in_head());
    }

    #[test]
    fn chunked_requests_and_http_2_are_followed_no_further() {
        let (guard, seen) = inspect(&[b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\na"]);
        assert_eq!(seen, Seen::Fine);
        assert_eq!(guard.state, State::Off);
        let head = b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c, WebSocket\r\n\r\n";
        let (guard, seen) = inspect(&[head, b"\n\x01\n", b"frames\n"]);
        assert_eq!((guard.state, seen), (State::Off, Seen::Fine));
        let (guard, seen) = inspect(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\n\n\n"]);
        assert_eq!(seen, Seen::Fine);
        assert!(!guard.in_head());
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_do_not_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20)) {
            let mut guard = HeadGuard::new(64);
            for piece in pieces {
                let mut bytes = piece;
                guard.inspect(&mut bytes);
            }
        }

        #[test]
        fn the_verdict_does_not_depend_on_how_the_bytes_were_split(cut in 0usize..90) {
            let text = b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\na\nbPOST /b HTTP/1.1\r\nX: y\nHost: x\r\n\r\n";
            let cut = cut.min(text.len());
            prop_assert_eq!(inspect(&[&text[..cut], &text[cut..]]).1, Seen::Violation);
        }
    }
}
