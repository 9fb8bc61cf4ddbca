//! [`Finished`]: what a cache may know of a key: an end that never changes before its time is over.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use http::StatusCode;

use crate::headers;
use crate::store::records::{Fingerprint, Record, RecordState, StoredAnswer};
use crate::time::Timestamp;

/// How a call ended for good. Running and ambiguous ones change, so no cache holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finished {
    /// Of the request that took the key.
    pub(super) fingerprint: Fingerprint,
    /// Its answer; `None` where it was passed on without being kept.
    pub(super) answer: Option<Arc<StoredAnswer>>,
    /// When the key is new again.
    pub(super) expires_at: Timestamp,
}

/// The first byte of the form; another form has another one, and is not read.
const FORM: u8 = 1;
const UNSTORED: u8 = 0;
const ANSWER: u8 = 1;

impl Finished {
    /// Of a record, if it is one.
    pub(super) fn of(record: &Record) -> Option<Self> {
        let answer = match &record.state {
            RecordState::Done(answer) => Some(Arc::clone(answer)),
            RecordState::Unstored => None,
            RecordState::Running | RecordState::Ambiguous => return None,
        };
        Some(Self {
            fingerprint: record.fingerprint,
            answer,
            expires_at: record.expires_at,
        })
    }

    /// The state of its record.
    pub(super) fn state(&self) -> RecordState {
        match &self.answer {
            Some(answer) => RecordState::Done(Arc::clone(answer)),
            None => RecordState::Unstored,
        }
    }

    /// Bytes that it takes in memory, roughly.
    pub(super) fn bytes(&self) -> u64 {
        const REST: usize = 256;
        const LINE: usize = 96;
        let answer = self.answer.as_deref().map_or(0, |answer| {
            let lines = answer.headers.iter();
            let headers: usize = lines
                .map(|(name, value)| name.as_str().len() + value.len() + LINE)
                .sum();
            headers + answer.body.len()
        });
        (REST + answer) as u64
    }

    /// As it is kept in Redis.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORM];
        out.extend_from_slice(&self.fingerprint.0);
        out.put_i64(self.expires_at.as_millis());
        let Some(answer) = &self.answer else {
            out.push(UNSTORED);
            return out;
        };
        out.push(ANSWER);
        out.put_u16(answer.status.as_u16());
        let mut lines = Vec::new();
        headers::encode(&answer.headers, &mut lines);
        out.put_u64(lines.len() as u64);
        out.extend_from_slice(&lines);
        out.put_u64(answer.body.len() as u64);
        out.extend_from_slice(&answer.body);
        out
    }

    /// Reads back what [`Finished::encode`] wrote; `None` for anything else, also for a part of it.
    pub(super) fn decode(mut bytes: Bytes) -> Option<Self> {
        (bytes.try_get_u8().ok()? == FORM).then_some(())?;
        let mut fingerprint = [0; 32];
        bytes.try_copy_to_slice(&mut fingerprint).ok()?;
        let expires_at = Timestamp::from_millis(bytes.try_get_i64().ok()?);
        let answer = match bytes.try_get_u8().ok()? {
            UNSTORED => None,
            ANSWER => {
                let status = StatusCode::from_u16(bytes.try_get_u16().ok()?).ok()?;
                let headers = headers::decode(part(&mut bytes)?).ok()?;
                let body = part(&mut bytes)?;
                Some(Arc::new(StoredAnswer { status, headers, body }))
            }
            _ => return None,
        };
        bytes.is_empty().then_some(Self {
            fingerprint: Fingerprint(fingerprint),
            answer,
            expires_at,
        })
    }
}

fn part(bytes: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(bytes.try_get_u64().ok()?).ok()?;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue};

    fn finished(body: &'static [u8]) -> Finished {
        let mut headers = HeaderMap::new();
        headers.append("link", HeaderValue::from_static("</a>"));
        headers.append("link", HeaderValue::from_bytes(b"</\xff>").unwrap());
        Finished {
            fingerprint: Fingerprint([7; 32]),
            answer: Some(Arc::new(StoredAnswer {
                status: StatusCode::CREATED,
                headers,
                body: Bytes::from_static(body),
            })),
            expires_at: Timestamp::from_millis(1_700_000_000_123),
        }
    }

    #[test]
    fn what_a_cache_holds_comes_back_byte_for_byte() {
        let unstored = Finished {
            answer: None,
            ..finished(b"")
        };
        for one in [finished(b""), finished(b"{\"id\":1}\0\xff"), unstored] {
            assert_eq!(Finished::decode(Bytes::from(one.encode())), Some(one));
        }
    }

    #[test]
    fn a_part_of_it_and_what_somebody_else_wrote_are_nothing() {
        let whole = finished(b"body").encode();
        for cut in 0..whole.len() {
            assert_eq!(Finished::decode(Bytes::copy_from_slice(&whole[..cut])), None, "{cut}");
        }
        let mut more = whole.clone();
        more.push(0);
        assert_eq!(Finished::decode(Bytes::from(more)), None);
        let mut other = whole;
        other[0] = 2;
        assert_eq!(Finished::decode(Bytes::from(other)), None);
        assert_eq!(Finished::decode(Bytes::from_static(b"1")), None);
    }
}
