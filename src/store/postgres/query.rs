//! What people ask: lists, details, counts. A page at a time, each statement a snapshot of its own, so that nothing keeps
//! the database from forgetting old row versions.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::claim::{read_event, text};
use super::manage::read;
use super::{Backend, state_from};
use crate::id::{EventId, SourceName, UpstreamName};
use crate::store::model::{DispatchState, Outcome};
use crate::store::{
    AttemptRecord, Counts, DispatchSummary, EventDetail, EventFilter, EventPage, EventSummary, StoreError,
    UpstreamCounts,
};
use crate::time::Timestamp;

/// Events of a page, at most.
const PAGE_MAX: usize = 500;
/// Events looked at for a page, at most: a filter that few pass answers a short page and where to go on.
const SCAN_MAX: usize = 4_000;
/// Rows read at once.
const SCAN_STEP: usize = 500;

/// A listed event and its number in the database.
struct Listed {
    id: Uuid,
    source: SourceName,
    delivery_id: Option<String>,
    event_type: Option<String>,
    received_at: Timestamp,
    body_bytes: u64,
}

impl Listed {
    fn passes(&self, filter: &EventFilter) -> bool {
        filter.from.is_none_or(|from| self.received_at >= from)
            && filter.to.is_none_or(|to| self.received_at < to)
            && (filter.event_type.is_none() || filter.event_type == self.event_type)
            && (filter.delivery_id.is_none() || filter.delivery_id == self.delivery_id)
            && filter.source.as_ref().is_none_or(|wanted| *wanted == self.source)
    }

    fn with(self, dispatches: Vec<DispatchSummary>) -> EventSummary {
        EventSummary {
            id: event_id(self.id),
            source: self.source,
            delivery_id: self.delivery_id,
            event_type: self.event_type,
            received_at: self.received_at,
            body_bytes: self.body_bytes,
            dispatches,
            elsewhere: None,
        }
    }
}

fn event_id(id: Uuid) -> EventId {
    EventId::from_bytes(*id.as_bytes())
}

impl Backend {
    pub(in crate::store) async fn events(
        &self,
        filter: EventFilter,
        before: Option<EventId>,
        limit: usize,
    ) -> Result<EventPage, StoreError> {
        self.shared.is_open()?;
        let limit = limit.clamp(1, PAGE_MAX);
        let below = before.map_or(Uuid::max(), |before| Uuid::from_bytes(*before.as_bytes()));
        match filter.state {
            Some(DispatchState::Dead) => self.dead_events(&filter, below, limit).await,
            _ => self.scan_events(&filter, below, limit).await,
        }
    }

    async fn scan_events(&self, filter: &EventFilter, mut below: Uuid, limit: usize) -> Result<EventPage, StoreError> {
        let mut page = EventPage::default();
        let mut looked_at = 0;
        let step = i64::try_from(SCAN_STEP).unwrap_or(i64::MAX);
        while looked_at < SCAN_MAX {
            let rows = self
                .shared
                .database
                .read(
                    include_str!("list_events.sql"),
                    &[(&below, Type::UUID), (&step, Type::INT8)],
                )
                .await?;
            let listed = self.listed(&rows).await?;
            let whole = listed.len() < SCAN_STEP;
            looked_at += listed.len();
            let last = listed.last().map(|event| event.id);
            let passed = listed.into_iter().filter(|event| event.passes(filter)).collect();
            for event in self.with_dispatches(filter, passed).await? {
                if page.events.len() == limit {
                    page.next = page.events.last().map(|last| last.id);
                    return Ok(page);
                }
                page.events.push(event);
            }
            match last {
                Some(last) if !whole => below = last,
                Some(_) | None => return Ok(page),
            }
        }
        page.next = Some(event_id(below));
        Ok(page)
    }

    async fn dead_events(&self, filter: &EventFilter, below: Uuid, limit: usize) -> Result<EventPage, StoreError> {
        let database = &self.shared.database;
        let mut upstreams = Vec::new();
        for row in database.read(include_str!("all_upstreams.sql"), &[]).await? {
            let name: String = read(&row, "name")?;
            if filter.upstream.as_ref().is_none_or(|wanted| wanted.as_str() == name) {
                upstreams.push(read::<i32>(&row, "id")?);
            }
        }
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = database
            .read(
                include_str!("list_dead.sql"),
                &[
                    (&upstreams, Type::INT4_ARRAY),
                    (&below, Type::UUID),
                    (&most, Type::INT8),
                ],
            )
            .await?;
        let mut ids: Vec<Uuid> = Vec::with_capacity(rows.len());
        for row in &rows {
            ids.push(read(row, "event")?);
        }
        let next = ids
            .last()
            .filter(|_last| ids.len() == limit)
            .map(|last| event_id(*last));
        let rows = database
            .read(include_str!("some_events.sql"), &[(&ids, Type::UUID_ARRAY)])
            .await?;
        let mut listed = self.listed(&rows).await?;
        listed.retain(|event| event.passes(filter));
        Ok(EventPage {
            events: self.with_dispatches(filter, listed).await?,
            next,
        })
    }

    async fn listed(&self, rows: &[Row]) -> Result<Vec<Listed>, StoreError> {
        let shared = &self.shared;
        let mut sources = Vec::with_capacity(rows.len());
        for row in rows {
            sources.push(read::<i32>(row, "source")?);
        }
        shared.sources.find(&shared.database, sources).await?;
        let mut listed = Vec::with_capacity(rows.len());
        for row in rows {
            let source: i32 = read(row, "source")?;
            listed.push(Listed {
                id: read(row, "id")?,
                source: SourceName::new(shared.sources.name(source).unwrap_or_else(|| format!("#{source}"))),
                delivery_id: text(read(row, "delivery_id")?),
                event_type: text(read(row, "event_type")?),
                received_at: Timestamp::from_millis(read(row, "received_at")?),
                body_bytes: u64::try_from(read::<i64>(row, "body_bytes")?).unwrap_or(0),
            });
        }
        Ok(listed)
    }

    /// With their dispatches, those that the filter wants.
    async fn with_dispatches(
        &self,
        filter: &EventFilter,
        listed: Vec<Listed>,
    ) -> Result<Vec<EventSummary>, StoreError> {
        let ids: Vec<Uuid> = listed.iter().map(|event| event.id).collect();
        let mut dispatches = self.dispatches(&ids).await?;
        let mut events = Vec::with_capacity(listed.len());
        for event in listed {
            let own: Vec<DispatchSummary> = dispatches.remove(&event.id).unwrap_or_default();
            let wanted = |dispatch: &DispatchSummary| {
                filter.state.is_none_or(|state| state == dispatch.state)
                    && filter.upstream.as_ref().is_none_or(|name| *name == dispatch.upstream)
            };
            if (filter.state.is_none() && filter.upstream.is_none()) || own.iter().any(wanted) {
                events.push(event.with(own));
            }
        }
        Ok(events)
    }

    async fn dispatches(&self, events: &[Uuid]) -> Result<HashMap<Uuid, Vec<DispatchSummary>>, StoreError> {
        let shared = &self.shared;
        let mut found: HashMap<Uuid, Vec<DispatchSummary>> = HashMap::new();
        if events.is_empty() {
            return Ok(found);
        }
        let rows = shared
            .database
            .read(include_str!("dispatches.sql"), &[(&events, Type::UUID_ARRAY)])
            .await?;
        for row in &rows {
            let number: i32 = read(row, "upstream")?;
            let upstream = shared.upstream_name(number).await?;
            let state = match state_from(read(row, "state")?) {
                // Nobody here takes it: it waits for its upstream to come back.
                DispatchState::Pending if !shared.lanes.is_configured(number) => DispatchState::Held,
                state => state,
            };
            let due: i64 = read(row, "due")?;
            found.entry(read(row, "event")?).or_default().push(DispatchSummary {
                upstream,
                state,
                attempts: count(i64::from(read::<i32>(row, "attempts")?)),
                due: (state == DispatchState::Pending).then(|| shared.database.to_ours(Timestamp::from_millis(due))),
                replay: read(row, "replay")?,
                last: attempt(row)?,
            });
        }
        Ok(found)
    }

    pub(in crate::store) async fn event(&self, id: EventId) -> Result<Option<EventDetail>, StoreError> {
        let shared = &self.shared;
        shared.is_open()?;
        let uuid = Uuid::from_bytes(*id.as_bytes());
        let rows = shared
            .database
            .read(include_str!("show_event.sql"), &[(&uuid, Type::UUID)])
            .await?;
        let Some(row) = rows.first() else { return Ok(None) };
        shared
            .sources
            .find(&shared.database, [read::<i32>(row, "source")?])
            .await?;
        let Some((event, key)) = read_event(shared, row)? else {
            return Err(StoreError::Failed("the event's head is damaged".to_owned()));
        };
        let dispatches = self.dispatches(&[uuid]).await?.remove(&uuid).unwrap_or_default();
        let mut earlier: HashMap<UpstreamName, Vec<AttemptRecord>> = HashMap::new();
        let rows = shared
            .database
            .read(include_str!("attempts.sql"), &[(&uuid, Type::UUID)])
            .await?;
        for row in &rows {
            let upstream = shared.upstream_name(read(row, "upstream")?).await?;
            earlier.entry(upstream).or_default().extend(attempt(row)?);
        }
        let with_attempts = |dispatch: DispatchSummary| {
            let mut attempts = earlier.remove(&dispatch.upstream).unwrap_or_default();
            attempts.extend(dispatch.last.clone());
            (dispatch, attempts)
        };
        Ok(Some(EventDetail {
            event,
            key,
            dispatches: dispatches.into_iter().map(with_attempts).collect(),
            elsewhere: None,
        }))
    }

    pub(in crate::store) async fn counts(&self) -> Result<Counts, StoreError> {
        let shared = &self.shared;
        shared.is_open()?;
        let rows = shared.database.read(include_str!("counts.sql"), &[]).await?;
        let mut upstreams = BTreeMap::new();
        let mut open = Vec::new();
        for row in &rows {
            let (number, name): (i32, String) = (read(row, "id")?, read(row, "name")?);
            let mut states = BTreeMap::new();
            for state in DispatchState::ALL {
                states.insert(state, u64::try_from(read::<i64>(row, state.as_str())?).unwrap_or(0));
            }
            let some = |state| states.get(&state).is_some_and(|count| *count > 0);
            let waits = some(DispatchState::Pending) || some(DispatchState::Leased);
            if !shared.lanes.is_configured(number) {
                let away = states.insert(DispatchState::Pending, 0).unwrap_or(0);
                *states.entry(DispatchState::Held).or_default() += away;
            } else if waits {
                open.push(number);
            }
            let shown = UpstreamCounts {
                states,
                made: u64::try_from(read::<i64>(row, "made")?).unwrap_or(0),
                pruned: u64::try_from(read::<i64>(row, "pruned")?).unwrap_or(0),
                oldest_pending: None,
            };
            upstreams.insert(UpstreamName::new(name), shown);
        }
        for lane in shared.lanes.iter().filter(|lane| lane.is_configured()) {
            upstreams.entry(lane.name.clone()).or_insert_with(|| UpstreamCounts {
                states: DispatchState::ALL.into_iter().map(|state| (state, 0)).collect(),
                ..UpstreamCounts::default()
            });
        }
        if !open.is_empty() {
            let oldest = shared
                .database
                .read(include_str!("oldest.sql"), &[(&open, Type::INT4_ARRAY)])
                .await?;
            for row in &oldest {
                let event: Option<Uuid> = read(row, "event")?;
                let name = shared.upstream_name(read(row, "u")?).await?;
                if let (Some(event), Some(shown)) = (event, upstreams.get_mut(&name)) {
                    shown.oldest_pending = Some(event_id(event).received_at());
                }
            }
        }
        Ok(Counts {
            upstreams,
            used_bytes: shared.used_bytes.load(Ordering::Relaxed),
            ..Counts::default()
        })
    }
}

fn count(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The finished attempt in a row; `None` where there is none.
fn attempt(row: &Row) -> Result<Option<AttemptRecord>, StoreError> {
    let Some(number) = read::<Option<i32>>(row, "number")? else {
        return Ok(None);
    };
    let status = read::<Option<i16>>(row, "status")?
        .and_then(|status| u16::try_from(status).ok())
        .and_then(|status| StatusCode::from_u16(status).ok());
    let cause = || read(row, "cause").map(|cause| text(cause).unwrap_or_default());
    let outcome = match (read::<Option<i16>>(row, "outcome")?, status) {
        (Some(0), Some(status)) => Outcome::Delivered { status },
        (Some(1), Some(status)) => Outcome::Refused { status },
        (Some(2), _) => Outcome::NotSent { cause: cause()? },
        _ => Outcome::Unknown { cause: cause()? },
    };
    let took = read::<Option<i32>>(row, "took")?.unwrap_or(0);
    Ok(Some(AttemptRecord {
        number: count(i64::from(number)),
        started_at: Timestamp::from_millis(read::<Option<i64>>(row, "started_at")?.unwrap_or(0)),
        took: Duration::from_millis(u64::try_from(took).unwrap_or(0)),
        outcome,
        excerpt: read::<Option<Vec<u8>>>(row, "excerpt")?
            .map(Bytes::from)
            .unwrap_or_default(),
    }))
}
