//! Errors of the admin API: one shape, one table from error to status.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use tracing::error;

use super::dto::{ErrorBody, ErrorDetail};
use crate::learn::{ArmError, CannotArm};
use crate::store::StoreError;
use crate::store::backup::BackupError;

/// Why a request to the admin API was not done.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// `Host` is no name of this listener: a page elsewhere made a browser ask (DNS rebinding).
    #[error(
        "this listener does not answer to that Host; use localhost, 127.0.0.1, [::1], its own address, or a name in \
         [admin] hosts"
    )]
    WrongHost,
    /// A token is configured, and the request has another or none.
    #[error("a bearer token is required")]
    Unauthorized,
    /// A change asked for by a page of another origin.
    #[error("changes are not taken from pages of another origin")]
    ForeignOrigin,
    /// A change without `Content-Type: application/json`, which a foreign form could send.
    #[error("changes need Content-Type: application/json")]
    NotJson,
    /// The request cannot be read.
    #[error("{0}")]
    BadRequest(String),
    /// Over the request body limit.
    #[error("the request's body is too large")]
    TooLarge,
    /// No such path.
    #[error("there is nothing at this path; see /api/v1/openapi.json")]
    NoSuchPath,
    /// No page yet.
    #[error("the page is not in this version; the API is described at /api/v1/openapi.json, metrics are at /metrics")]
    NoPage,
    /// The path has no such method.
    #[error("this path does not have that method")]
    MethodNotAllowed,
    /// No event with this id is stored (any more).
    #[error("no event with this id is stored; events are pruned after [store] retention")]
    NoSuchEvent,
    /// It is appended and not admitted yet.
    #[error("the event waits for admission and will be forwarded by itself; ask again in a moment")]
    NotAdmitted,
    /// No record of an idempotent call is found by this (any more).
    #[error("there is no such record; a record ends with its route's `ttl`")]
    NoSuchRecord,
    /// Only what nobody knows needs a person's word.
    #[error("the record is {0}, not ambiguous: there is nothing to resolve")]
    NotAmbiguous(&'static str),
    /// No upstream with this name is configured.
    #[error("no upstream `{0}` is configured")]
    NoSuchUpstream(String),
    /// As above, where a path names it.
    #[error("no upstream `{name}` is configured: {hint}")]
    UnknownUpstream {
        /// What was asked for.
        name: String,
        /// What was probably meant.
        hint: String,
    },
    /// No source with this name is configured.
    #[error("no source `{name}` is configured: {hint}")]
    UnknownSource {
        /// What was asked for.
        name: String,
        /// What was probably meant.
        hint: String,
    },
    /// A source takes no secret in band.
    #[error(transparent)]
    NotArmed(#[from] ArmError),
    /// An order that holds in this process only, as far as is known.
    #[error(
        "{upstream} is {ordered}, but as far as is known only here and until a restart, since the store could not record \
         it: {cause}; give the order again once `hooksluice status` says that the store is well"
    )]
    NotRecorded {
        /// The upstream.
        upstream: String,
        /// What it is now.
        ordered: &'static str,
        /// What the store said.
        #[source]
        cause: StoreError,
    },
    /// The store could not answer.
    #[error("the store could not answer: {0}")]
    Store(#[source] StoreError),
    /// There is no backup, and why.
    #[error("no backup was made: {0}")]
    Backup(#[from] BackupError),
    /// The metrics could not be written as text.
    #[error("the metrics could not be printed")]
    Metrics,
    /// Too late for it.
    #[error("the server is shutting down")]
    Closing,
    /// Not done in time.
    #[error("not done in time")]
    Timeout,
}

impl ApiError {
    /// The word for programs, which does not change.
    fn code(&self) -> &'static str {
        match self {
            Self::WrongHost => "wrong_host",
            Self::Unauthorized => "unauthorized",
            Self::ForeignOrigin => "foreign_origin",
            Self::NotJson => "not_json",
            Self::BadRequest(_) => "bad_request",
            Self::TooLarge => "too_large",
            Self::NoSuchPath => "no_such_path",
            Self::NoPage => "no_page",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::NoSuchEvent => "no_such_event",
            Self::NotAdmitted => "not_admitted",
            Self::NoSuchRecord => "no_such_record",
            Self::NotAmbiguous(_) => "not_ambiguous",
            Self::NoSuchUpstream(_) | Self::UnknownUpstream { .. } => "no_such_upstream",
            Self::UnknownSource { .. } => "no_such_source",
            Self::NotArmed(ArmError::DoesNotLearn(_)) => "does_not_learn",
            Self::NotArmed(ArmError::Cannot(CannotArm::Sealed(_))) => "sealed",
            Self::NotArmed(ArmError::Cannot(CannotArm::Busy(_))) => "busy",
            Self::NotArmed(ArmError::NotWritable { .. }) => "not_writable",
            Self::NotRecorded { .. } => "not_recorded",
            Self::Backup(BackupError::Shared) => "store_is_shared",
            Self::Backup(BackupError::Running) => "backup_running",
            Self::Backup(BackupError::NoRoom { .. }) => "no_room",
            Self::Backup(BackupError::TooBusy { .. } | BackupError::Stopped | BackupError::Failed(_)) => {
                "backup_failed"
            }
            Self::Metrics => "metrics_failed",
            Self::Store(_) => "store_failed",
            Self::Closing => "closing",
            Self::Timeout => "timeout",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::WrongHost => StatusCode::MISDIRECTED_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::ForeignOrigin => StatusCode::FORBIDDEN,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::BadRequest(_) | Self::NoSuchUpstream(_) => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NoSuchPath
            | Self::NoPage
            | Self::NoSuchEvent
            | Self::NoSuchRecord
            | Self::UnknownUpstream { .. }
            | Self::UnknownSource { .. } => StatusCode::NOT_FOUND,
            Self::NotAdmitted | Self::NotAmbiguous(_) | Self::Backup(BackupError::Shared | BackupError::Running) => {
                StatusCode::CONFLICT
            }
            Self::Backup(BackupError::NoRoom { .. }) => StatusCode::INSUFFICIENT_STORAGE,
            Self::NotArmed(ArmError::DoesNotLearn(_) | ArmError::Cannot(_)) => StatusCode::CONFLICT,
            Self::NotArmed(ArmError::NotWritable { .. }) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Backup(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Metrics => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Store(_) | Self::NotRecorded { .. } | Self::Closing | Self::Timeout => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::UnknownUpstream(name) => Self::NoSuchUpstream(name.to_string()),
            StoreError::Closing | StoreError::Overloaded | StoreError::Failed(_) => Self::Store(error),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if let Self::Store(cause) | Self::NotRecorded { cause, .. } = &self {
            error!(%cause, "the admin API could not use the store");
        }
        let body = ErrorBody {
            error: ErrorDetail {
                code: self.code().to_owned(),
                message: self.to_string(),
            },
        };
        let mut response = (self.status(), Json(body)).into_response();
        if matches!(self, Self::Unauthorized) {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
