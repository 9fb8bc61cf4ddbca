//! Records of idempotent calls: looked up, listed, counted, resolved by people, forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::calls::{PRUNER, RESOLVER};
use super::connect::Failure;
use super::manage::read;
use super::transaction::Step;
use super::{Backend, Shared};
use crate::headers;
use crate::id::RouteName;
use crate::store::StoreError;
use crate::store::records::{
    Fingerprint, Record, RecordCounts, RecordFilter, RecordKey, RecordKind, RecordPage, RecordPlace, RecordState,
    RecordView, Resolution, Resolved, StoredAnswer,
};
use crate::time::Timestamp;

/// Records of a page, at most.
const PAGE_MAX: usize = 500;
/// Records looked at for a page, at most.
const SCAN_MAX: usize = 20_000;
/// Rows read at once.
const SCAN_STEP: usize = 1_000;
/// How often a record is read whose lease is found to be over.
const LOOKS: u32 = 3;
/// Pages of records looked at per transaction.
const PAGES: i64 = 256;
/// And per round, at least; more where the table is large, so that it is gone through in an hour.
const PAGES_MIN: i64 = 1_024;
const ROUND_TRIP: Duration = Duration::from_secs(3_600);

/// A row, as far as it is needed to say whether it is there.
struct Seen {
    kind: RecordKind,
    /// It runs and its lease is over.
    lapsed: bool,
    /// By the database's clock.
    expires_at: Timestamp,
}

impl Seen {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let number: i16 = read(row, "state")?;
        Ok(Self {
            kind: RecordKind::from_number(number.into()).ok_or_else(|| damaged("its state"))?,
            lapsed: read::<Option<bool>>(row, "lapsed")?.unwrap_or(false),
            expires_at: Timestamp::from_millis(read(row, "expires_at")?),
        })
    }

    /// A call that runs keeps its record, however long it takes.
    fn has_expired(&self, now: Option<Timestamp>) -> bool {
        (self.kind != RecordKind::Running || self.lapsed) && now.is_some_and(|now| now >= self.expires_at)
    }

    fn shown(&self) -> RecordKind {
        if self.lapsed { RecordKind::Ambiguous } else { self.kind }
    }
}

fn damaged(what: &str) -> StoreError {
    StoreError::Failed(format!("a record is damaged: {what}"))
}

fn status(row: &Row) -> Result<Option<StatusCode>, StoreError> {
    let Some(number) = read::<Option<i16>>(row, "status")? else {
        return Ok(None);
    };
    let status = u16::try_from(number)
        .ok()
        .and_then(|number| StatusCode::from_u16(number).ok());
    status.map(Some).ok_or_else(|| damaged("its status"))
}

fn digest(bytes: &[u8]) -> Result<[u8; 32], StoreError> {
    bytes.try_into().map_err(|_length| damaged("a digest"))
}

fn client_key(row: &Row) -> Result<Arc<str>, StoreError> {
    Ok(String::from_utf8_lossy(read(row, "client_key")?).into())
}

impl Backend {
    pub(in crate::store) async fn record(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let shared = &self.shared;
        shared.is_open()?;
        // So that a burst of looks leaves connections for what writes.
        let _look = shared
            .calls
            .looks
            .acquire()
            .await
            .map_err(|_closed| StoreError::Closing)?;
        let Some(route) = shared.route_number(&key.route).await? else {
            return Ok(None);
        };
        let digest = key.digest.as_slice();
        for _ in 0..LOOKS {
            let found = shared
                .database
                .read_at_once(
                    include_str!("show_record.sql"),
                    &[(&digest, Type::BYTEA), (&route, Type::INT4)],
                )
                .await?;
            let Some(row) = found.first() else { return Ok(None) };
            let seen = Seen::read(row)?;
            if seen.has_expired(shared.expiry_now()) {
                return Ok(None);
            }
            if !seen.lapsed {
                return shared.read_record(row, &seen).map(Some);
            }
            // Before anybody is told that nobody knows: its owner must not end it after that.
            let step = Step::new(
                include_str!("lapse_record.sql"),
                [(&digest as _, Type::BYTEA), (&route as _, Type::INT4)],
            );
            let committed = shared.database.write(&[step]).await?;
            // Once, by whoever made it so.
            if !committed.step(0).is_empty() {
                key.needs_a_person("its lease is over: whoever made it was killed, or lost the database");
            }
        }
        Err(StoreError::Failed("the record changes too fast".to_owned()))
    }

    pub(in crate::store) async fn records(
        &self,
        filter: RecordFilter,
        after: Option<RecordPlace>,
        limit: usize,
    ) -> Result<RecordPage, StoreError> {
        let shared = &self.shared;
        shared.is_open()?;
        let limit = limit.clamp(1, PAGE_MAX);
        let sql = match filter.kind {
            Some(RecordKind::Running | RecordKind::Ambiguous) => include_str!("list_open_records.sql"),
            Some(RecordKind::Done | RecordKind::Unstored) | None => include_str!("list_records.sql"),
        };
        let mut below = after.unwrap_or(RecordPlace {
            number: i64::MAX,
            rest: None,
        });
        let mut page = RecordPage::default();
        let mut looked_at = 0;
        let step = i64::try_from(SCAN_STEP).unwrap_or(i64::MAX);
        while looked_at < SCAN_MAX {
            let (digest, route) = below.rest.unwrap_or(([0; 32], 0));
            let digest = digest.as_slice();
            let rows = shared
                .database
                .read(
                    sql,
                    &[
                        (&below.number, Type::INT8),
                        (&digest, Type::BYTEA),
                        (&route, Type::INT4),
                        (&step, Type::INT8),
                    ],
                )
                .await?;
            let now = shared.expiry_now();
            for row in &rows {
                looked_at += 1;
                let (view, place) = shared.read_view(row, now).await?;
                below = place;
                let wanted = view.filter(|view| {
                    filter.kind.is_none_or(|kind| kind == view.state)
                        && filter.route.as_ref().is_none_or(|route| *route == view.key.route)
                        && filter.client_key.as_deref().is_none_or(|key| *key == *view.client_key)
                });
                page.records.extend(wanted);
                if page.records.len() == limit {
                    page.next = Some(below);
                    return Ok(page);
                }
            }
            if rows.len() < SCAN_STEP {
                return Ok(page);
            }
        }
        page.next = Some(below);
        Ok(page)
    }

    pub(in crate::store) async fn resolve(
        &self,
        key: RecordKey,
        resolution: Resolution,
    ) -> Result<Resolved, StoreError> {
        let shared = &self.shared;
        shared.is_open()?;
        let Some(route) = shared.route_number(&key.route).await? else {
            return Ok(Resolved::Unknown);
        };
        let answer = match &resolution {
            Resolution::Release => None,
            Resolution::Answer(answer) => Some(answer),
        };
        let status = answer.and_then(|answer| i16::try_from(answer.status.as_u16()).ok());
        let list = answer.map(|answer| {
            let mut list = Vec::new();
            headers::encode(&answer.headers, &mut list);
            list
        });
        let body = answer.map(|answer| &*answer.body);
        let digest = key.digest.as_slice();
        let now = shared.expiry_now().map(Timestamp::as_millis);
        let _one_at_a_time = shared.orders.lock().await;
        let step = Step::new(
            include_str!("resolve_record.sql"),
            [
                (&digest as _, Type::BYTEA),
                (&route as _, Type::INT4),
                (&now as _, Type::INT8),
                (&status as _, Type::INT2),
                (&list as _, Type::BYTEA),
                (&body as _, Type::BYTEA),
                (&shared.replica as _, Type::UUID),
                (&RESOLVER as _, Type::INT2),
            ],
        );
        let committed = shared.database.write_quietly(&[step]).await?;
        let Some(row) = committed.step(0).first() else {
            return Ok(Resolved::Unknown);
        };
        if read(row, "ambiguous")? {
            return Ok(Resolved::Done);
        }
        let number: i16 = read(row, "state")?;
        let kind = RecordKind::from_number(number.into()).ok_or_else(|| damaged("its state"))?;
        Ok(Resolved::NotAmbiguous(kind))
    }

    pub(in crate::store) async fn record_counts(&self) -> Result<RecordCounts, StoreError> {
        let shared = &self.shared;
        shared.is_open()?;
        let rows = shared.database.read(include_str!("count_records.sql"), &[]).await?;
        let Some(row) = rows.first() else {
            return Ok(RecordCounts::default());
        };
        let mut kinds = BTreeMap::new();
        for kind in RecordKind::ALL {
            let count: i64 = read(row, kind.as_str())?;
            kinds.insert(kind, u64::try_from(count).unwrap_or(0));
        }
        let oldest: Option<i64> = read(row, "oldest_ambiguous")?;
        Ok(RecordCounts {
            kinds,
            oldest_ambiguous: oldest.map(|oldest| shared.database.to_ours(Timestamp::from_millis(oldest))),
        })
    }
}

impl Shared {
    async fn route_number(&self, route: &RouteName) -> Result<Option<i32>, StoreError> {
        self.routes.look_up(&self.database, [route.as_str()]).await?;
        Ok(self.routes.id(route.as_str()))
    }

    fn read_record(&self, row: &Row, seen: &Seen) -> Result<Record, StoreError> {
        Ok(Record {
            fingerprint: Fingerprint(digest(read(row, "fingerprint")?)?),
            client_key: client_key(row)?,
            accepted_at: self.database.to_ours(Timestamp::from_millis(read(row, "accepted_at")?)),
            expires_at: self.database.to_ours(seen.expires_at),
            state: match seen.kind {
                RecordKind::Running => RecordState::Running,
                RecordKind::Unstored => RecordState::Unstored,
                RecordKind::Ambiguous => RecordState::Ambiguous,
                RecordKind::Done => {
                    let list = Bytes::from(read::<Vec<u8>>(row, "headers")?);
                    RecordState::Done(Arc::new(StoredAnswer {
                        status: status(row)?.ok_or_else(|| damaged("its status"))?,
                        headers: headers::decode(list).map_err(|_damaged| damaged("its headers"))?,
                        body: Bytes::from(read::<Vec<u8>>(row, "body")?),
                    }))
                }
            },
        })
    }

    /// A row of the list; no view where it has expired.
    async fn read_view(
        &self,
        row: &Row,
        now: Option<Timestamp>,
    ) -> Result<(Option<RecordView>, RecordPlace), StoreError> {
        let seen = Seen::read(row)?;
        let accepted_at: i64 = read(row, "accepted_at")?;
        let route: i32 = read(row, "route")?;
        let digest = digest(read(row, "digest")?)?;
        let place = RecordPlace {
            number: accepted_at,
            rest: Some((digest, route)),
        };
        if seen.has_expired(now) {
            return Ok((None, place));
        }
        self.routes.find(&self.database, [route]).await?;
        let name = self.routes.name(route).unwrap_or_else(|| format!("#{route}"));
        let view = RecordView {
            key: RecordKey {
                route: RouteName::new(name),
                digest,
            },
            client_key: client_key(row)?,
            state: seen.shown(),
            status: status(row)?,
            accepted_at: self.database.to_ours(Timestamp::from_millis(accepted_at)),
            expires_at: self.database.to_ours(seen.expires_at),
        };
        Ok((Some(view), place))
    }
}

/// Removes records whose time is over, a part of the table each round.
pub(super) async fn prune(shared: &Shared, page: &mut i64) -> Result<(), Failure> {
    let Some(now) = shared.expiry_now() else { return Ok(()) };
    let now = now.as_millis();
    let rows = shared.database.read(include_str!("record_pages.sql"), &[]).await?;
    let pages: i64 = match rows.first() {
        Some(row) => row.try_get(0)?,
        None => 0,
    };
    let rounds = i64::try_from(ROUND_TRIP.as_millis() / shared.tuning.janitor.as_millis().max(1));
    let budget = (pages / rounds.unwrap_or(i64::MAX).max(1)).max(PAGES_MIN);
    let mut done = 0;
    while done < budget.min(pages) {
        if *page >= pages {
            *page = 0;
        }
        let (from, to) = (*page, *page + PAGES);
        let step = Step::new(
            include_str!("prune_records.sql"),
            [
                (&from as _, Type::INT8),
                (&to as _, Type::INT8),
                (&now as _, Type::INT8),
                (&shared.replica as _, Type::UUID),
                (&PRUNER as _, Type::INT2),
            ],
        );
        shared.database.write_quietly(&[step]).await?;
        *page = to;
        done += PAGES;
    }
    Ok(())
}
