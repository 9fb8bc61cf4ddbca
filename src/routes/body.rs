//! Bodies on their way through: frames are handed on as they come, one at a time, so that the slower side sets the pace
//! and memory does not grow with a body.

mod download;
mod upload;

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Frame, SizeHint};

pub use self::download::{Cut, Download};
pub use self::upload::{Progress, Upload, UploadFailed};
use crate::routes::idempotency::passing::Passing;

/// A body that could not be read to its end, or that somebody else makes.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The body of an answer of a route.
#[derive(Debug)]
pub enum Body {
    /// Made here.
    Full(Full<Bytes>),
    /// An upstream's, as it comes.
    Live(Box<Download>),
    /// Of the first answer to a request with an `Idempotency-Key`.
    First(Box<Passing<Download>>),
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Full(Full::new(bytes))
    }
}

impl From<Full<Bytes>> for Body {
    fn from(body: Full<Bytes>) -> Self {
        Self::Full(body)
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Full(body) => Pin::new(body)
                .poll_frame(cx)
                .map_err(|never: Infallible| match never {}),
            Self::Live(body) => Pin::new(body.as_mut()).poll_frame(cx).map_err(BoxError::from),
            Self::First(body) => Pin::new(body.as_mut()).poll_frame(cx).map_err(BoxError::from),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(body) => body.is_end_stream(),
            Self::Live(body) => body.is_end_stream(),
            Self::First(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(body) => body.size_hint(),
            Self::Live(body) => body.size_hint(),
            Self::First(body) => body.size_hint(),
        }
    }
}

/// The body of a request to an upstream.
#[derive(Debug)]
pub enum Outgoing {
    /// None, or whole in memory.
    Whole(Full<Bytes>),
    /// A client's, as it comes.
    Live(Upload),
}

impl Outgoing {
    /// There is none.
    pub fn none() -> Self {
        Self::Whole(Full::default())
    }

    /// How far a client's has come.
    pub fn progress(&self) -> Option<&Progress> {
        match self {
            Self::Whole(_) => None,
            Self::Live(upload) => Some(upload.progress()),
        }
    }
}

impl hyper::body::Body for Outgoing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body)
                .poll_frame(cx)
                .map_err(|never: Infallible| match never {}),
            Self::Live(upload) => upload.poll(cx).map_err(BoxError::from),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Live(upload) => upload.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Live(upload) => upload.size_hint(),
        }
    }
}
