//! HTTP/1.1 messages as bytes: just enough to read what came over a socket without changing it.

use std::io::{self, Read};
use std::net::TcpStream;

/// Header lines in the order and spelling in which they came.
pub(crate) type Lines = Vec<(String, Vec<u8>)>;

/// A message: its first line, its header lines, its body without transfer coding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) first_line: String,
    pub(crate) lines: Lines,
    pub(crate) body: Vec<u8>,
}

/// Values of all lines of one name, in order.
pub(crate) fn values<'a>(lines: &'a Lines, name: &str) -> Vec<&'a [u8]> {
    lines
        .iter()
        .filter(|(given, _)| given.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_slice())
        .collect()
}

/// The only line of one name, as text.
pub(crate) fn value<'a>(lines: &'a Lines, name: &str) -> Option<&'a str> {
    match values(lines, name)[..] {
        [] => None,
        [value] => Some(std::str::from_utf8(value).unwrap()),
        [..] => panic!("more than one {name}: {lines:?}"),
    }
}

/// A socket with what was read from it and not used yet.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// The next message, or `None` when the peer closed before one began. `bodiless` for the answer to a HEAD.
    pub(crate) fn read_message(&mut self, bodiless: bool) -> io::Result<Option<Message>> {
        let Some(head) = self.read_head()? else {
            return Ok(None);
        };
        let mut text = head
            .split(|byte| *byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let first_line = String::from_utf8_lossy(text.next().unwrap_or_default()).into_owned();
        let lines: Lines = text.filter(|line| !line.is_empty()).map(header_line).collect();
        let never = ["HTTP/1.1 1", "HTTP/1.1 204", "HTTP/1.1 304"];
        let body = if bodiless || never.iter().any(|start| first_line.starts_with(start)) {
            Vec::new()
        } else {
            self.read_body(&first_line, &lines)?
        };
        Ok(Some(Message {
            first_line,
            lines,
            body,
        }))
    }

    /// Everything up to the end of `pattern`.
    #[track_caller]
    pub(crate) fn read_until(&mut self, pattern: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = find(&self.buffer, pattern) {
                let rest = self.buffer.split_off(at + pattern.len());
                return std::mem::replace(&mut self.buffer, rest);
            }
            let more = self.fill().unwrap();
            assert!(more, "closed after {:?}", String::from_utf8_lossy(&self.buffer));
        }
    }

    fn read_head(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let rest = self.buffer.split_off(end + 4);
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            if !self.fill()? {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed within a head"))
                };
            }
        }
    }

    fn read_body(&mut self, first_line: &str, lines: &Lines) -> io::Result<Vec<u8>> {
        if value(lines, "transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            return self.read_chunks();
        }
        match value(lines, "content-length") {
            Some(length) => self.take(length.parse().map_err(io::Error::other)?),
            // An answer without a length ends with the connection; a request without one has no body.
            None if first_line.starts_with("HTTP/") => {
                while self.fill()? {}
                Ok(std::mem::take(&mut self.buffer))
            }
            None => Ok(Vec::new()),
        }
    }

    fn read_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.read_line()?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(digits, 16).map_err(io::Error::other)?;
            if size == 0 {
                while !self.read_line()?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.take(size)?);
            self.read_line()?;
        }
    }

    fn read_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line = self.take(end + 2)?;
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            self.fill_or_fail()?;
        }
    }

    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.fill_or_fail()?;
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    fn fill_or_fail(&mut self) -> io::Result<()> {
        if self.fill()? {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed within a body"))
        }
    }

    fn fill(&mut self) -> io::Result<bool> {
        let mut more = [0; 16 << 10];
        let read = self.stream.read(&mut more)?;
        self.buffer.extend(&more[..read]);
        Ok(read > 0)
    }
}

fn header_line(line: &[u8]) -> (String, Vec<u8>) {
    let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
    let name = String::from_utf8_lossy(&line[..colon]).into_owned();
    let value = line.get(colon + 1..).unwrap_or_default();
    (name, value.trim_ascii().to_vec())
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
