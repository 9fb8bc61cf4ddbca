//! `/api/v1/idempotency…`: list, show and resolve records of idempotent calls.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tracing::info;

use super::Admin;
use super::dto::{self, KeptAnswer, RecordDetail, RecordFilter, Resolve};
use super::error::ApiError;
use super::events::{PAGE_DEFAULT, PAGE_MAX, masked_header, read};
use crate::id::RouteName;
use crate::store::records::{
    self, Record, RecordKey, RecordKind, RecordPlace, RecordState, Resolution, Resolved, StoredAnswer,
};

pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    query: Result<Query<RecordFilter>, QueryRejection>,
) -> Result<Json<dto::RecordPage>, ApiError> {
    let Query(filter) = query.map_err(|error| ApiError::BadRequest(error.body_text()))?;
    let asked = Asked::read(filter)?;
    let page = admin.store.records(asked.filter, asked.after, asked.limit).await?;
    Ok(Json(dto::RecordPage {
        records: page.records.into_iter().map(summary).collect(),
        next_cursor: page.next.map(|place| place.to_string()),
    }))
}

pub(super) async fn show(
    State(admin): State<Arc<Admin>>,
    Path(path): Path<(String, String)>,
) -> Result<Json<RecordDetail>, ApiError> {
    let key = key(path)?;
    let found = admin.store.record(&key).await?;
    found
        .map(|record| Json(detail(&key, &record)))
        .ok_or(ApiError::NoSuchRecord)
}

pub(super) async fn resolve(
    State(admin): State<Arc<Admin>>,
    Path(path): Path<(String, String)>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<RecordDetail>, ApiError> {
    let resolution = resolution(read(body)?)?;
    let key = key(path)?;
    let released = resolution == Resolution::Release;
    match admin.store.resolve(key.clone(), resolution).await? {
        Resolved::Done => {}
        Resolved::Unknown => return Err(ApiError::NoSuchRecord),
        Resolved::NotAmbiguous(kind) => return Err(ApiError::NotAmbiguous(kind.as_str())),
    }
    let record = key.to_string();
    info!(record, released, "a call was resolved by a person");
    if !released && let Some(found) = admin.store.record(&key).await? {
        return Ok(Json(detail(&key, &found)));
    }
    Ok(Json(RecordDetail {
        record,
        state: "released".to_owned(),
        ..RecordDetail::default()
    }))
}

/// A page that was asked for.
struct Asked {
    filter: records::RecordFilter,
    after: Option<RecordPlace>,
    limit: usize,
}

impl Asked {
    fn read(filter: RecordFilter) -> Result<Self, ApiError> {
        let limit = match filter.limit {
            None => PAGE_DEFAULT,
            Some(limit) => usize::try_from(limit)
                .ok()
                .filter(|limit| (1..=PAGE_MAX).contains(limit))
                .ok_or_else(|| ApiError::BadRequest(format!("`limit` must be 1 to {PAGE_MAX}")))?,
        };
        let after = match filter.cursor {
            None => None,
            Some(cursor) => Some(
                cursor
                    .parse()
                    .map_err(|_no_place| ApiError::BadRequest("`cursor` must be a page's `next_cursor`".to_owned()))?,
            ),
        };
        Ok(Self {
            filter: records::RecordFilter {
                route: filter.route.map(RouteName::new),
                kind: filter.state.as_deref().map(state).transpose()?,
                client_key: filter.key,
            },
            after,
            limit,
        })
    }
}

fn state(word: &str) -> Result<RecordKind, ApiError> {
    RecordKind::ALL
        .into_iter()
        .find(|kind| kind.as_str() == word)
        .ok_or_else(|| {
            let words = RecordKind::ALL.map(RecordKind::as_str).join(", ");
            ApiError::BadRequest(format!("`state` must be one of {words}"))
        })
}

/// Whatever names no record is the name of none.
fn key((route, digest): (String, String)) -> Result<RecordKey, ApiError> {
    let digest = HEXLOWER_PERMISSIVE.decode(digest.as_bytes()).ok();
    let digest = digest.and_then(|bytes| bytes.try_into().ok());
    Ok(RecordKey {
        route: RouteName::new(route),
        digest: digest.ok_or(ApiError::NoSuchRecord)?,
    })
}

fn resolution(asked: Resolve) -> Result<Resolution, ApiError> {
    let bad = |why: &str| ApiError::BadRequest(why.to_owned());
    let given = match (asked.release, asked.answer) {
        (true, None) => return Ok(Resolution::Release),
        (false, Some(given)) => given,
        (true, Some(_)) | (false, None) => {
            return Err(bad("say either `\"release\": true` or `\"answer\": {…}`"));
        }
    };
    let status = StatusCode::from_u16(given.status).ok();
    let status = status.filter(|status| (200..600).contains(&status.as_u16()));
    let mut headers = HeaderMap::new();
    if let Some(kind) = given.content_type {
        let kind = HeaderValue::from_str(&kind).map_err(|_invalid| bad("`content_type` is no header value"))?;
        headers.insert(header::CONTENT_TYPE, kind);
    }
    Ok(Resolution::Answer(Arc::new(StoredAnswer {
        status: status.ok_or_else(|| bad("`status` must be 200 to 599"))?,
        headers,
        body: given.body.unwrap_or_default().into(),
    })))
}

fn summary(record: records::RecordView) -> dto::RecordSummary {
    dto::RecordSummary {
        record: record.key.to_string(),
        key: record.client_key.to_string(),
        state: record.state.as_str().to_owned(),
        status: record.status.map(|status| status.as_u16()),
        accepted_at: record.accepted_at.to_string(),
        expires_at: record.expires_at.to_string(),
    }
}

fn detail(key: &RecordKey, record: &Record) -> RecordDetail {
    let answer = match &record.state {
        RecordState::Done(answer) => Some(answer),
        RecordState::Running | RecordState::Unstored | RecordState::Ambiguous => None,
    };
    RecordDetail {
        record: key.to_string(),
        key: Some(record.client_key.to_string()),
        state: record.kind().as_str().to_owned(),
        accepted_at: Some(record.accepted_at.to_string()),
        expires_at: Some(record.expires_at.to_string()),
        answer: answer.map(|answer| KeptAnswer {
            status: answer.status.as_u16(),
            headers: answer.headers.iter().map(masked_header).collect(),
            body_base64: BASE64.encode(&answer.body),
            body_text: std::str::from_utf8(&answer.body).ok().map(str::to_owned),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::dto::GivenAnswer;

    fn given(status: u16, content_type: Option<&str>) -> Resolve {
        Resolve {
            release: false,
            answer: Some(GivenAnswer {
                status,
                content_type: content_type.map(str::to_owned),
                body: None,
            }),
        }
    }

    #[test]
    fn a_person_says_one_of_two_things() {
        let both = Resolve {
            release: true,
            ..given(200, None)
        };
        for bad in [
            Resolve::default(),
            both,
            given(0, None),
            given(199, None),
            given(600, None),
            given(200, Some("a\nb")),
        ] {
            assert!(matches!(resolution(bad), Err(ApiError::BadRequest(_))));
        }
        let release = Resolve {
            release: true,
            answer: None,
        };
        assert_eq!(resolution(release).unwrap(), Resolution::Release);
        let Resolution::Answer(answer) = resolution(given(201, Some("text/plain"))).unwrap() else {
            panic!("an answer");
        };
        assert_eq!(answer.status, StatusCode::CREATED);
        assert_eq!(answer.headers["content-type"], "text/plain");
    }

    #[test]
    fn a_record_is_named_by_route_and_digest() {
        let digest = "ab".repeat(32);
        let found = key(("orders".to_owned(), digest.clone())).unwrap();
        assert_eq!(found.to_string(), format!("orders/{digest}"));
        for bad in ["", "ab", &"zz".repeat(32), &"ab".repeat(33)] {
            assert!(matches!(
                key(("orders".to_owned(), bad.to_owned())),
                Err(ApiError::NoSuchRecord)
            ));
        }
    }
}
