//! How the parts of an event that nobody searches are written into one column.
//!
//! `head` holds method, target, authority, client, scope, secret label, whether a signature was checked, whether the
//! sender waited for the upstream's answer, and the header list. One blob instead of nine columns costs the writer thread
//! one bind instead of nine, and it is made by the calling task. Every field has its length in front; the first byte is the layout's version.

use std::net::IpAddr;

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};

use crate::headers;
use crate::store::model::StoredEvent;

const VERSION: u8 = 1;

/// Bits of the flags.
const VERIFIED: u8 = 1;
const AWAITED: u8 = 2;

/// Why a stored head could not be read: the row is damaged, or a newer version wrote it.
#[derive(Debug, thiserror::Error)]
#[error("stored request head is damaged")]
pub struct DamagedHead;

/// What [`encode_head`] wrote, read back.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// As received.
    pub method: Method,
    /// Path and query as received.
    pub target: PathAndQuery,
    /// `Host` as received.
    pub authority: Option<String>,
    /// The client's address.
    pub client: IpAddr,
    /// Scope, where there is one.
    pub scope: Option<String>,
    /// Label of the secret that vouched for it.
    pub secret_label: Option<String>,
    /// Whether a signature was checked.
    pub verified: bool,
    /// Whether its sender waited for the upstream's answer.
    pub awaited: bool,
    /// The header list.
    pub headers: HeaderMap,
}

/// The `head` column of an event.
pub fn encode_head(event: &StoredEvent) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.put_u8(VERSION);
    let flag = |is: bool, bit| if is { bit } else { 0 };
    out.put_u8(flag(event.verified, VERIFIED) | flag(event.awaited, AWAITED));
    put(&mut out, Some(event.method.as_str()));
    put(&mut out, Some(event.target.as_str()));
    put(&mut out, event.authority.as_deref());
    match event.client {
        IpAddr::V4(client) => {
            out.put_u8(4);
            out.extend_from_slice(&client.octets());
        }
        IpAddr::V6(client) => {
            out.put_u8(6);
            out.extend_from_slice(&client.octets());
        }
    }
    put(&mut out, event.scope.as_deref());
    put(&mut out, event.secret_label.as_deref());
    headers::encode(&event.headers, &mut out);
    out
}

/// Reads back what [`encode_head`] wrote.
pub fn decode_head(bytes: Vec<u8>) -> Result<Head, DamagedHead> {
    let mut bytes = Bytes::from(bytes);
    if byte(&mut bytes)? != VERSION {
        return Err(DamagedHead);
    }
    let flags = byte(&mut bytes)?;
    let method = text(&mut bytes)?.ok_or(DamagedHead)?;
    let target = text(&mut bytes)?.ok_or(DamagedHead)?;
    let authority = text(&mut bytes)?;
    let client = match byte(&mut bytes)? {
        4 => IpAddr::from(array::<4>(&mut bytes)?),
        6 => IpAddr::from(array::<16>(&mut bytes)?),
        _ => return Err(DamagedHead),
    };
    let scope = text(&mut bytes)?;
    let secret_label = text(&mut bytes)?;
    Ok(Head {
        method: method.parse().map_err(|_invalid| DamagedHead)?,
        target: target.parse().map_err(|_invalid| DamagedHead)?,
        authority,
        client,
        scope,
        secret_label,
        verified: flags & VERIFIED != 0,
        awaited: flags & AWAITED != 0,
        headers: headers::decode(bytes).map_err(|_damaged| DamagedHead)?,
    })
}

/// The `upstreams` column: the ids of the names, four bytes each.
pub fn encode_upstreams(ids: impl Iterator<Item = u32>) -> Vec<u8> {
    let mut out = Vec::new();
    for id in ids {
        out.put_u32(id);
    }
    out
}

/// Reads back what [`encode_upstreams`] wrote.
pub fn decode_upstreams(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (chunks, _rest) = bytes.as_chunks::<4>();
    chunks.iter().map(|chunk| u32::from_be_bytes(*chunk))
}

/// A text with its length plus one in front; zero stands for none. The head limit is far below what the length holds.
fn put(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        None => out.put_u32(0),
        Some(text) => {
            out.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX).saturating_add(1));
            out.extend_from_slice(text.as_bytes());
        }
    }
}

fn text(bytes: &mut Bytes) -> Result<Option<String>, DamagedHead> {
    let len = bytes.try_get_u32().map_err(|_short| DamagedHead)?;
    let Some(len) = len.checked_sub(1) else {
        return Ok(None);
    };
    let len = usize::try_from(len).map_err(|_long| DamagedHead)?;
    if bytes.len() < len {
        return Err(DamagedHead);
    }
    let text = bytes.split_to(len);
    Ok(Some(
        std::str::from_utf8(&text).map_err(|_not_text| DamagedHead)?.to_owned(),
    ))
}

fn byte(bytes: &mut Bytes) -> Result<u8, DamagedHead> {
    bytes.try_get_u8().map_err(|_short| DamagedHead)
}

fn array<const N: usize>(bytes: &mut Bytes) -> Result<[u8; N], DamagedHead> {
    let mut array = [0; N];
    bytes.try_copy_to_slice(&mut array).map_err(|_short| DamagedHead)?;
    Ok(array)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{EventId, SourceName};
    use crate::time::Timestamp;

    fn event() -> StoredEvent {
        let mut headers = HeaderMap::new();
        headers.append("x-note", http::HeaderValue::from_bytes(b"\xff").unwrap());
        headers.append("x-note", http::HeaderValue::from_static(""));
        StoredEvent {
            id: EventId::from_bytes([0; 16]),
            source: SourceName::new("a"),
            scope: Some(String::new()),
            secret_label: None,
            delivery_id: None,
            event_type: None,
            verified: true,
            awaited: true,
            received_at: Timestamp::from_millis(1),
            method: Method::POST,
            target: "/a%20b?c=%zz".parse().unwrap(),
            authority: Some("h:1".to_owned()),
            client: "::1".parse().unwrap(),
            headers,
            body: Bytes::from_static(b"\0\xff"),
        }
    }

    #[test]
    fn a_head_comes_back_as_it_was() {
        let event = event();
        let head = decode_head(encode_head(&event)).unwrap();
        assert_eq!(head.method, event.method);
        assert_eq!(head.target, event.target);
        assert_eq!(head.authority, event.authority);
        assert_eq!(head.client, event.client);
        assert_eq!(head.scope, event.scope, "an empty scope is not none");
        assert_eq!(head.secret_label, None);
        assert!(head.verified && head.awaited);
        for (verified, awaited) in [(true, false), (false, true), (false, false)] {
            let event = StoredEvent {
                verified,
                awaited,
                ..event.clone()
            };
            let head = decode_head(encode_head(&event)).unwrap();
            assert_eq!((head.verified, head.awaited), (verified, awaited));
        }
        assert_eq!(head.headers, event.headers);
    }

    #[test]
    fn a_cut_head_is_an_error_not_a_panic() {
        let event = event();
        let bytes = encode_head(&event);
        let mut bare = event;
        bare.headers.clear();
        let headless = encode_head(&bare).len();
        for cut in (0..bytes.len()).filter(|cut| *cut != headless) {
            // A cut between two header lines cannot be told from a shorter list; SQLite keeps the blob's length.
            let line = headless + 2 + 6 + 4 + 1;
            if cut != line {
                assert!(decode_head(bytes[..cut].to_vec()).is_err(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn upstream_ids_come_back_in_order() {
        let bytes = encode_upstreams([3, 1, u32::MAX].into_iter());
        assert_eq!(decode_upstreams(&bytes).collect::<Vec<_>>(), [3, 1, u32::MAX]);
    }
}
