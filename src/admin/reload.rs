//! `POST /api/v1/reload`: has the configuration taken over that is written now.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;

use super::Admin;
use super::dto::{ErrorDetail, Nothing, Problem, ReloadRefused, Reloaded};
use super::error::ApiError;
use super::events::read;
use crate::reload::{self, Outcome, Said, Trigger};

pub(super) async fn reload(
    State(admin): State<Arc<Admin>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let _: Nothing = read(body)?;
    match admin.reloads.ask(Trigger::Command).await {
        Outcome::Applied { changed, said } => Ok(done(changed, said)),
        Outcome::Unchanged(said) => Ok(done(Vec::new(), said)),
        Outcome::Refused(said) => Ok(refused(said)),
        Outcome::Closing => Err(ApiError::Closing),
    }
}

fn done(changed: Vec<String>, said: Said) -> Response {
    Json(Reloaded {
        changed,
        report: said.text,
        problems: said.problems.into_iter().map(problem).collect(),
    })
    .into_response()
}

fn refused(said: Said) -> Response {
    let body = ReloadRefused {
        error: ErrorDetail {
            code: "configuration_refused".to_owned(),
            message: "the configuration was refused, and nothing was changed".to_owned(),
        },
        report: said.text,
        problems: said.problems.into_iter().map(problem).collect(),
    };
    (StatusCode::UNPROCESSABLE_ENTITY, Json(body)).into_response()
}

fn problem(problem: reload::Problem) -> Problem {
    Problem {
        severity: problem.severity.to_owned(),
        file: problem.file,
        line: problem.line,
        column: problem.column,
        message: problem.message,
        label: problem.label,
        help: problem.help,
    }
}
