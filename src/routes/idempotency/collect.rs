//! Reads an upstream's answer whole, as far as it can be kept.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap};
use hyper::body::Body;

use super::outcome::Unkept;
use crate::ingest::body::{Budget, Share};

/// An answer's body.
#[derive(Debug)]
pub(super) enum Collected<B> {
    /// All of it.
    Whole(Bytes, Share),
    /// It cannot be kept: what has been read, and the rest.
    Unkept {
        /// Why.
        why: Unkept,
        /// What has been read of it.
        start: Bytes,
        /// Trailers that have been read.
        trailers: Option<HeaderMap>,
        /// What has not.
        rest: B,
    },
    /// It ended early.
    CutShort,
}

impl<B> Collected<B> {
    /// Of which nothing was read.
    pub(super) fn unread(why: Unkept, rest: B) -> Self {
        Self::Unkept {
            why,
            start: Bytes::new(),
            trailers: None,
            rest,
        }
    }
}

/// Whether nobody should wait for the end of this answer.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    const STREAM: &[u8] = b"text/event-stream";
    kind.and_then(|kind| kind.get(..STREAM.len()))
        .is_some_and(|start| start.eq_ignore_ascii_case(STREAM))
}

/// Reads `body` up to `limit` bytes, inside the budget of bodies in memory.
pub(super) async fn collect<B>(mut body: B, limit: u64, budget: &Budget) -> Collected<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut share = budget.share();
    let mut bytes = BytesMut::new();
    let unkept = |why, bytes: BytesMut, trailers, rest| Collected::Unkept {
        why,
        start: bytes.freeze(),
        trailers,
        rest,
    };
    if body.size_hint().lower() > limit {
        return Collected::unread(Unkept::TooLarge, body);
    }
    loop {
        let frame = match std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            // Copied once more, to its size: it may be kept for hours.
            None => return Collected::Whole(Bytes::copy_from_slice(&bytes), share),
            Some(Err(_broken)) => return Collected::CutShort,
            Some(Ok(frame)) => frame,
        };
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => match frame.into_trailers() {
                Ok(trailers) if !trailers.is_empty() => {
                    return unkept(Unkept::Trailers, bytes, Some(trailers), body);
                }
                Ok(_) | Err(_) => continue,
            },
        };
        bytes.extend_from_slice(&data);
        let total = bytes.len() as u64;
        if total > limit {
            return unkept(Unkept::TooLarge, bytes, None, body);
        }
        if share.grow_to(total).is_err() {
            return unkept(Unkept::NoRoom, bytes, None, body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::body::Bodies;
    use crate::telemetry::metrics::Metrics;
    use http::HeaderValue;
    use hyper::body::Frame;
    use std::collections::VecDeque;
    use std::task::{Context, Poll};

    struct Frames(VecDeque<Result<Frame<Bytes>, &'static str>>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(self.0.pop_front())
        }
    }

    fn data(bytes: &'static [u8]) -> Result<Frame<Bytes>, &'static str> {
        Ok(Frame::data(Bytes::from_static(bytes)))
    }

    fn trailers() -> Result<Frame<Bytes>, &'static str> {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Ok(Frame::trailers(trailers))
    }

    async fn of(frames: Vec<Result<Frame<Bytes>, &'static str>>, limit: u64, room: u64) -> Collected<Frames> {
        let budget = Budget::new(room, Bodies::Calls, Metrics::new());
        // Somebody else holds a byte, so that the budget is not ours alone.
        let mut other = budget.share();
        other.grow_to(1).unwrap();
        collect(Frames(frames.into()), limit, &budget).await
    }

    #[tokio::test]
    async fn a_body_up_to_the_limit_is_read_whole() {
        let Collected::Whole(bytes, _) = of(vec![data(b"ab"), data(b""), data(b"cd")], 4, 100).await else {
            panic!("whole");
        };
        assert_eq!(bytes, "abcd");
        let empty = of(vec![Ok(Frame::trailers(HeaderMap::new()))], 0, 100).await;
        assert!(matches!(empty, Collected::Whole(bytes, _) if bytes.is_empty()));
    }

    #[tokio::test]
    async fn what_cannot_be_kept_is_handed_on_without_a_byte_lost() {
        for (frames, limit, room, expected) in [
            (vec![data(b"ab"), data(b"cd"), data(b"ef")], 3, 100, Unkept::TooLarge),
            (vec![data(b"ab"), data(b"cd"), data(b"ef")], 100, 4, Unkept::NoRoom),
            (vec![data(b"abcdef"), trailers()], 100, 100, Unkept::Trailers),
        ] {
            let Collected::Unkept {
                why,
                start,
                rest,
                trailers,
            } = of(frames, limit, room).await
            else {
                panic!("{expected:?}");
            };
            assert_eq!(why, expected);
            assert_eq!(trailers.is_some(), expected == Unkept::Trailers);
            let rest = rest.0.into_iter().filter_map(|frame| frame.unwrap().into_data().ok());
            let rest: Vec<u8> = rest.flatten().collect();
            assert_eq!([&start[..], &rest[..]].concat(), b"abcdef");
        }
    }

    #[tokio::test]
    async fn an_early_end_is_told_from_an_end() {
        let cut = of(vec![data(b"ab"), Err("reset")], 100, 100).await;
        assert!(matches!(cut, Collected::CutShort));
    }

    #[test]
    fn event_streams_are_known_by_their_type() {
        let is = |kind: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            is_event_stream(&headers)
        };
        assert!(is("text/event-stream") && is("Text/Event-Stream; charset=utf-8"));
        assert!(!is("text/plain") && !is("") && !is_event_stream(&HeaderMap::new()));
    }
}
