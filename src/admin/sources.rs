//! `POST /api/v1/sources/{name}/learn`: a person lets a source take the secret that its provider hands over.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};

use super::Admin;
use super::dto::{Learn, LearnStatus};
use super::error::ApiError;
use super::events::read;
use crate::diagnostic::did_you_mean;
use crate::id::SourceName;
use crate::learn::Learning;

pub(super) async fn learn(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<LearnStatus>, ApiError> {
    let Learn { add } = read(body)?;
    let sources = admin.metrics.sources();
    let mut known = sources.iter().filter(|(_, metrics)| !metrics.is_removed());
    if !known.clone().any(|(known, _)| known.as_str() == name) {
        return Err(ApiError::UnknownSource {
            hint: did_you_mean(&name, known.by_ref().map(|(name, _)| name.as_str())),
            name,
        });
    }
    let learning = admin.learners.arm(&SourceName::new(name), add).await?;
    Ok(Json(status(&learning)))
}

pub(super) fn status(learning: &Learning) -> LearnStatus {
    let state = match (learning.armed_until, learning.has_secret) {
        (Some(_), _) => "armed",
        (None, true) => "sealed",
        (None, false) => "no_secret",
    };
    LearnStatus {
        state: state.to_owned(),
        armed_until: learning.armed_until.map(|until| until.to_string()),
        armed_for_seconds: learning.left.map(|left| left.as_secs()),
        directory: learning.directory.display().to_string(),
    }
}
