//! `POST /api/v1/store/backup`: a copy of the running store, as one file.
//!
//! It holds every stored body, so whoever may ask for it may see all of them: the same token as for a single event. It is
//! a POST although it changes nothing, since a page elsewhere could have a browser send a GET, and a copy is work. One is
//! made at a time.

use std::io::Read;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use http::header;
use hyper::body::{Frame, SizeHint};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::Admin;
use super::dto::Nothing;
use super::error::ApiError;
use super::events::read;
use super::listen::Progress;
use crate::store::backup::Backup;

/// Read at once.
const CHUNK: usize = 256 << 10;

pub(super) async fn take(
    State(admin): State<Arc<Admin>>,
    Extension(progress): Extension<Progress>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let _: Nothing = read(body)?;
    info!("a backup of the store is being taken");
    let backup = match admin.store.backup().await {
        Ok(backup) => backup,
        Err(error) => {
            warn!(%error, "no backup of the store");
            return Err(error.into());
        }
    };
    info!(bytes = backup.bytes, "a backup of the store is handed out");
    let body = Download {
        left: backup.bytes,
        progress,
        step: Step::Idle(backup),
    };
    let kind = [(header::CONTENT_TYPE, "application/vnd.sqlite3")];
    Ok((kind, Body::new(body)).into_response())
}

/// A file on its way, read off the async threads.
struct Download {
    left: u64,
    progress: Progress,
    step: Step,
}

enum Step {
    Idle(Backup),
    Reading(JoinHandle<std::io::Result<(Backup, Bytes)>>),
    Over,
}

fn read_chunk(mut backup: Backup) -> std::io::Result<(Backup, Bytes)> {
    let mut chunk = vec![0; CHUNK];
    let len = backup.file.read(&mut chunk)?;
    chunk.truncate(len);
    Ok((backup, chunk.into()))
}

impl hyper::body::Body for Download {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        loop {
            match std::mem::replace(&mut self.step, Step::Over) {
                Step::Over => return Poll::Ready(None),
                Step::Idle(_) if self.left == 0 => {}
                Step::Idle(backup) => {
                    self.step = Step::Reading(tokio::task::spawn_blocking(|| read_chunk(backup)));
                }
                Step::Reading(mut reading) => {
                    let Poll::Ready(done) = Pin::new(&mut reading).poll(cx) else {
                        self.step = Step::Reading(reading);
                        return Poll::Pending;
                    };
                    let (backup, chunk) = match done {
                        Ok(Ok(read)) => read,
                        Ok(Err(error)) => return Poll::Ready(Some(Err(error))),
                        Err(ended) => return Poll::Ready(Some(Err(std::io::Error::other(ended)))),
                    };
                    let len = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
                    if len == 0 || len > self.left {
                        let error = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                        return Poll::Ready(Some(Err(error)));
                    }
                    self.left -= len;
                    self.step = Step::Idle(backup);
                    self.progress.made();
                    return Poll::Ready(Some(Ok(Frame::data(chunk))));
                }
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
