//! Records of idempotent calls, as they are found and listed.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use rusqlite::types::Type;
use rusqlite::{OptionalExtension, Row, params};

use super::Reader;
use crate::headers;
use crate::id::RouteName;
use crate::store::records::{
    Fingerprint, Record, RecordFilter, RecordKey, RecordKind, RecordPage, RecordPlace, RecordState, RecordView,
    StoredAnswer,
};
use crate::store::sqlite::to_i64;
use crate::time::Timestamp;

/// Records of a page, at most.
const PAGE_MAX: usize = 500;
/// Records looked at for a page, at most.
const SCAN_MAX: usize = 20_000;
/// Rows read at once.
const SCAN_STEP: usize = 500;

impl Reader {
    /// What is known of a key. `now`: what has expired by then is gone; `None`: nothing has.
    pub(in crate::store::sqlite) fn record(
        &self,
        key: &RecordKey,
        now: Option<Timestamp>,
    ) -> rusqlite::Result<Option<Record>> {
        let found = self
            .conn
            .prepare_cached(include_str!("../show_record.sql"))?
            .query_row(params![key.digest.as_slice(), key.route.as_str()], |row| {
                let kind = kind(row, 0)?;
                Ok(Record {
                    expires_at: Timestamp::from_millis(row.get(1)?),
                    fingerprint: Fingerprint(row.get(2)?),
                    client_key: row.get::<_, String>(6)?.into(),
                    accepted_at: Timestamp::from_millis(row.get(7)?),
                    state: match kind {
                        RecordKind::Running => RecordState::Running,
                        RecordKind::Unstored => RecordState::Unstored,
                        RecordKind::Ambiguous => RecordState::Ambiguous,
                        RecordKind::Done => RecordState::Done(Arc::new(StoredAnswer {
                            status: status(row, 3)?.ok_or_else(|| damaged(3, "an answer without its status"))?,
                            headers: headers::decode(Bytes::from(row.get::<_, Vec<u8>>(4)?))
                                .map_err(|error| damaged(4, &error.to_string()))?,
                            body: Bytes::from(row.get::<_, Vec<u8>>(5)?),
                        })),
                    },
                })
            })
            .optional()?;
        Ok(found.filter(|record| !expired(record.kind(), record.expires_at, now)))
    }

    pub(in crate::store::sqlite) fn records(
        &mut self,
        filter: &RecordFilter,
        after: Option<RecordPlace>,
        limit: usize,
        now: Option<Timestamp>,
    ) -> rusqlite::Result<RecordPage> {
        let limit = limit.clamp(1, PAGE_MAX);
        let mut below = after.map_or(i64::MAX, |after| after.number);
        let mut page = RecordPage::default();
        let mut looked_at = 0;
        while looked_at < SCAN_MAX {
            let listed = self.listed(filter.kind, below)?;
            let last = listed.len() < SCAN_STEP;
            for (id, route, mut view) in listed {
                below = id;
                looked_at += 1;
                let wanted = !expired(view.state, view.expires_at, now)
                    && filter.kind.is_none_or(|kind| kind == view.state)
                    && filter.client_key.as_deref().is_none_or(|key| *key == *view.client_key);
                if wanted {
                    view.key.route = self.route(route)?;
                    if filter.route.as_ref().is_none_or(|wanted| *wanted == view.key.route) {
                        page.records.push(view);
                    }
                }
                if page.records.len() == limit {
                    page.next = Some(place(below));
                    return Ok(page);
                }
            }
            if last {
                return Ok(page);
            }
        }
        page.next = Some(place(below));
        Ok(page)
    }

    /// A step of the list: each record's id, its route's number, and itself without the route's name.
    fn listed(&self, kind: Option<RecordKind>, below: i64) -> rusqlite::Result<Vec<(i64, u32, RecordView)>> {
        let step = to_i64(SCAN_STEP);
        match kind {
            Some(kind @ (RecordKind::Running | RecordKind::Ambiguous)) => self
                .conn
                .prepare_cached(include_str!("../list_open_records.sql"))?
                .query_map(params![below, step, kind.number()], view)?
                .collect(),
            Some(RecordKind::Done | RecordKind::Unstored) | None => self
                .conn
                .prepare_cached(include_str!("../list_records.sql"))?
                .query_map(params![below, step], view)?
                .collect(),
        }
    }

    /// When the oldest ambiguous call was accepted.
    pub(in crate::store::sqlite) fn oldest_ambiguous(&self) -> rusqlite::Result<Option<Timestamp>> {
        self.conn
            .prepare_cached(include_str!("../oldest_ambiguous.sql"))?
            .query_row([], |row| row.get(0).map(Timestamp::from_millis))
            .optional()
    }

    fn route(&mut self, number: u32) -> rusqlite::Result<RouteName> {
        if let Some(name) = self.routes.get(&number) {
            return Ok(name.clone());
        }
        let name: String = self
            .conn
            .prepare_cached("SELECT name FROM route WHERE id = ?1")?
            .query_row([number], |row| row.get(0))?;
        let name = RouteName::new(name);
        self.routes.insert(number, name.clone());
        Ok(name)
    }
}

fn place(number: i64) -> RecordPlace {
    RecordPlace { number, rest: None }
}

/// A call that runs keeps its record, however long it takes.
fn expired(kind: RecordKind, expires_at: Timestamp, now: Option<Timestamp>) -> bool {
    kind != RecordKind::Running && now.is_some_and(|now| now >= expires_at)
}

fn view(row: &Row<'_>) -> rusqlite::Result<(i64, u32, RecordView)> {
    let view = RecordView {
        key: RecordKey {
            route: RouteName::new(""),
            digest: row.get(6)?,
        },
        client_key: row.get::<_, String>(7)?.into(),
        state: kind(row, 1)?,
        status: status(row, 2)?,
        accepted_at: Timestamp::from_millis(row.get(3)?),
        expires_at: Timestamp::from_millis(row.get(4)?),
    };
    Ok((row.get(0)?, row.get(5)?, view))
}

fn kind(row: &Row<'_>, at: usize) -> rusqlite::Result<RecordKind> {
    let number = row.get(at)?;
    RecordKind::from_number(number).ok_or(rusqlite::Error::IntegralValueOutOfRange(at, number))
}

fn status(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<StatusCode>> {
    let Some(number) = row.get::<_, Option<u16>>(at)? else {
        return Ok(None);
    };
    let status = StatusCode::from_u16(number).map_err(|_invalid| damaged(at, "a status that is none"))?;
    Ok(Some(status))
}

fn damaged(at: usize, what: &str) -> rusqlite::Error {
    rusqlite::Error::InvalidColumnType(at, format!("the record is damaged: {what}"), Type::Blob)
}
