//! A captured request as a raw HTTP/1.1 message.

use std::net::{IpAddr, Ipv4Addr};

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::request::{RawRequest, RequestHead};
use crate::time::Timestamp;

/// Reads the message. Its lines may end in LF or CRLF, as editors leave them; the body's bytes are kept.
///
/// With `Content-Length` the body is that long, and what an editor added behind it is left out. A chunked body is put
/// together, as the server would.
pub(super) fn parse(bytes: Vec<u8>, received_at: Timestamp) -> Result<RawRequest, String> {
    let mut rest = bytes.as_slice();
    let request_line = line(&mut rest).unwrap_or_default();
    let (method, target) = match request_line.split(|b| *b == b' ').collect::<Vec<_>>()[..] {
        [method, target, version] if version.starts_with(b"HTTP/") => (method, target),
        _ => return Err("not an HTTP message: the first line is not `METHOD TARGET HTTP/1.1`".to_owned()),
    };
    let mut headers = HeaderMap::new();
    loop {
        let line = line(&mut rest).ok_or("the head has no end: an empty line is missing")?;
        if line.is_empty() {
            break;
        }
        let shown = || format!("not a header line: `{}`", String::from_utf8_lossy(line));
        let colon = line.iter().position(|b| *b == b':').ok_or_else(shown)?;
        let (name, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or_default().trim_ascii();
        headers.append(
            HeaderName::from_bytes(name).ok().ok_or_else(shown)?,
            HeaderValue::from_bytes(value).ok().ok_or_else(shown)?,
        );
    }
    let (authority, target) = target_of(target)?;
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .map(str::to_owned);
    Ok(RawRequest {
        head: RequestHead {
            method: method
                .try_into()
                .map_err(|_invalid| "the method is malformed".to_owned())?,
            target,
            authority: authority.or(host),
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            received_at,
            headers: headers.clone(),
        },
        body: body(rest, &headers)?.into(),
    })
}

/// Takes one line off, without its end.
fn line<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let at = memchr::memchr(b'\n', rest)?;
    let line = rest.get(..at)?;
    *rest = rest.get(at + 1..)?;
    Some(line.strip_suffix(b"\r").unwrap_or(line))
}

/// Of an absolute-form target only path and query are kept.
fn target_of(text: &[u8]) -> Result<(Option<String>, PathAndQuery), String> {
    let malformed = || format!("the target is malformed: `{}`", String::from_utf8_lossy(text));
    let text = std::str::from_utf8(text).ok().ok_or_else(malformed)?;
    let (authority, target) = match text.split_once("://") {
        Some((_, rest)) if !text.starts_with('/') => {
            let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            (Some(authority.to_owned()), if target.is_empty() { "/" } else { target })
        }
        _ => (None, text),
    };
    Ok((authority, target.parse().ok().ok_or_else(malformed)?))
}

fn body(rest: &[u8], headers: &HeaderMap) -> Result<Vec<u8>, String> {
    if let Some(coding) = headers.get(header::TRANSFER_ENCODING) {
        return match coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            true => unchunk(rest).ok_or_else(|| "the chunked body is malformed or cut short".to_owned()),
            false => Err("a `Transfer-Encoding` other than chunked".to_owned()),
        };
    }
    let Some(announced) = headers.get(header::CONTENT_LENGTH) else {
        return Ok(rest.to_vec());
    };
    let announced: Option<usize> = announced.to_str().ok().and_then(|text| text.parse().ok());
    let announced = announced.ok_or("`Content-Length` is not a number")?;
    rest.get(..announced).map(<[u8]>::to_vec).ok_or_else(|| {
        let found = rest.len();
        format!("the body has {found} bytes and `Content-Length` says {announced}: was it changed when it was saved?")
    })
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let size = line(&mut rest)?.split(|b| *b == b';').next()?.trim_ascii();
        let size = usize::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size..)?;
        line(&mut rest)?.is_empty().then_some(())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RawRequest, String> {
        parse(text.as_bytes().to_vec(), Timestamp::from_secs(1))
    }

    #[test]
    fn a_message_is_read_with_either_line_end_and_its_body_kept() {
        for end in ["\n", "\r\n"] {
            let text = format!("POST /in?x=1 HTTP/1.1{end}Host: h{end}X-A:  b {end}X-A: c{end}{end}line\r\n\n");
            let request = read(&text).unwrap();
            assert_eq!(request.head.target, "/in?x=1");
            assert_eq!(request.head.authority.as_deref(), Some("h"));
            assert_eq!(
                request.head.headers.get_all("x-a").iter().collect::<Vec<_>>(),
                ["b", "c"]
            );
            assert_eq!(request.body, "line\r\n\n");
        }
    }

    #[test]
    fn the_announced_length_cuts_what_an_editor_added_and_a_short_body_is_told() {
        let text = "POST / HTTP/1.1\nContent-Length: 3\n\nabc\n";
        assert_eq!(read(text).unwrap().body, "abc");
        let short = "POST / HTTP/1.1\nContent-Length: 9\n\nabc\n";
        assert!(read(short).unwrap_err().contains("`Content-Length` says 9"));
    }

    #[test]
    fn chunks_are_put_together() {
        let text =
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\n{\"a\r\n4\r\n\":1}\r\n0\r\nT: x\r\n\r\n";
        assert_eq!(read(text).unwrap().body, "{\"a\":1}");
        assert!(read("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"").is_err());
    }

    #[test]
    fn what_is_no_message_says_why() {
        for bad in [
            "",
            "hello\n\n",
            "POST / HTTP/1.1\nX-A b\n\n",
            "POST / HTTP/1.1\nX-A: b\n",
            "POST a b HTTP/1.1\n\n",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn of_an_absolute_target_the_path_is_kept() {
        let request = read("POST http://h.test/a?b HTTP/1.1\n\n").unwrap();
        assert_eq!(
            (request.head.target.as_str(), request.head.authority.as_deref()),
            ("/a?b", Some("h.test"))
        );
    }
}
