//! What people ask: lists, details, ages. On connections that cannot write, a page at a time, so that no snapshot keeps
//! the log from being reused (ST-07).

mod records;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::lease::{RawEvent, elsewhere, key_kind};
use super::schema::{self, Files};
use super::{DispatchId, Shared, state_from, to_i64};
use crate::id::{EventId, RouteName, SourceName, UpstreamName};
use crate::key::DedupeKey;
use crate::store::model::{Death, DispatchState, Outcome, Undelivered};
use crate::store::secrets::{SecretMark, SecretRecord};
use crate::store::{AttemptRecord, Counts, DispatchSummary, EventDetail, EventFilter, EventPage, EventSummary};
use crate::time::Timestamp;

/// Events of a page, at most.
const PAGE_MAX: usize = 500;
/// Events looked at for a page, at most: a filter that few pass answers a short page and where to go on.
const SCAN_MAX: usize = 4_000;
/// Rows read at once.
const SCAN_STEP: usize = 250;
/// The same on a walk that nobody waits for.
const WALK_STEP: usize = 1_000;
/// How much earlier an event may have been received than one before it: longer than any body takes to arrive, and a
/// clock to be set.
const WALK_SLACK: Duration = Duration::from_secs(3_600);

/// A connection for queries.
#[derive(Debug)]
pub(in crate::store) struct Reader {
    conn: Connection,
    shared: Arc<Shared>,
    sources: HashMap<u32, SourceName>,
    routes: HashMap<u32, RouteName>,
}

impl Reader {
    pub(super) fn open(files: &Files, shared: Arc<Shared>) -> rusqlite::Result<Self> {
        Ok(Self {
            conn: schema::open_reader(files)?,
            shared,
            sources: HashMap::new(),
            routes: HashMap::new(),
        })
    }

    pub(super) fn events(
        &mut self,
        filter: &EventFilter,
        before: Option<EventId>,
        limit: usize,
    ) -> rusqlite::Result<EventPage> {
        let limit = limit.clamp(1, PAGE_MAX);
        match filter.state {
            Some(DispatchState::Dead) => self.dead_events(filter, before, limit),
            _ => self.scan_events(filter, before, limit),
        }
    }

    fn scan_events(
        &mut self,
        filter: &EventFilter,
        before: Option<EventId>,
        limit: usize,
    ) -> rusqlite::Result<EventPage> {
        let mut below = before.map_or(i64::MAX, |before| before.position().get());
        let mut page = EventPage::default();
        let mut last = None;
        let mut looked_at = 0;
        while looked_at < SCAN_MAX {
            let rows: Vec<(i64, Found)> = self
                .conn
                .prepare_cached(include_str!("list_events.sql"))?
                .query_map(params![below, to_i64(SCAN_STEP)], found)?
                .collect::<Result<_, _>>()?;
            let step = rows.len();
            for (number, row) in rows {
                below = number;
                last = Some(EventId::from_bytes(row.id));
                looked_at += 1;
                if let Some(event) = self.pick(filter, number, row)? {
                    page.events.push(event);
                    if page.events.len() == limit {
                        page.next = last.filter(|_last| number > 0);
                        return Ok(page);
                    }
                }
            }
            if step < SCAN_STEP {
                return Ok(page);
            }
        }
        page.next = last;
        Ok(page)
    }

    fn dead_events(
        &mut self,
        filter: &EventFilter,
        before: Option<EventId>,
        limit: usize,
    ) -> rusqlite::Result<EventPage> {
        let below = before.map_or(DispatchId(i64::MAX), |before| {
            DispatchId::first(before.position().get())
        });
        let upstreams: Vec<u32> = self.shared.status(|status| {
            let lanes = status.lanes.iter();
            lanes
                .filter(|lane| filter.upstream.as_ref().is_none_or(|name| *name == lane.name))
                .map(|lane| lane.upstream)
                .collect()
        });
        let mut positions = Vec::new();
        let mut more = false;
        for upstream in upstreams {
            let ids: Vec<i64> = self
                .conn
                .prepare_cached(include_str!("list_dead.sql"))?
                .query_map(params![upstream, below, to_i64(limit)], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            more |= ids.len() == limit;
            positions.extend(ids.into_iter().map(|id| DispatchId(id).position()));
        }
        positions.sort_unstable_by(|a, b| b.cmp(a));
        positions.dedup();
        more |= positions.len() > limit;
        positions.truncate(limit);
        let mut page = EventPage::default();
        for number in positions {
            let row = self
                .conn
                .prepare_cached(include_str!("one_event.sql"))?
                .query_row([number], found)
                .optional()?;
            let Some((number, row)) = row else { continue };
            page.next = Some(EventId::from_bytes(row.id)).filter(|_last| more);
            if let Some(event) = self.pick(filter, number, row)? {
                page.events.push(event);
            }
        }
        Ok(page)
    }

    /// The event, if the filter wants it.
    fn pick(&mut self, filter: &EventFilter, number: i64, row: Found) -> rusqlite::Result<Option<EventSummary>> {
        let received_at = Timestamp::from_millis(row.received_at);
        if filter.from.is_some_and(|from| received_at < from)
            || filter.to.is_some_and(|to| received_at >= to)
            || (filter.event_type.is_some() && filter.event_type != row.event_type)
            || (filter.delivery_id.is_some() && filter.delivery_id != row.delivery_id)
        {
            return Ok(None);
        }
        let source = self.source(row.source)?;
        if filter.source.as_ref().is_some_and(|wanted| *wanted != source) {
            return Ok(None);
        }
        let dispatches: Vec<DispatchSummary> = self
            .dispatches(number)?
            .into_iter()
            .map(|(_id, dispatch)| dispatch)
            .collect();
        if filter.state.is_some() || filter.upstream.is_some() {
            let wanted = |dispatch: &DispatchSummary| {
                filter.state.is_none_or(|state| state == dispatch.state)
                    && filter.upstream.as_ref().is_none_or(|name| *name == dispatch.upstream)
            };
            if !dispatches.iter().any(wanted) {
                return Ok(None);
            }
        }
        Ok(Some(EventSummary {
            id: EventId::from_bytes(row.id),
            source,
            delivery_id: row.delivery_id,
            event_type: row.event_type,
            received_at,
            body_bytes: row.body_bytes,
            dispatches,
            elsewhere: row.elsewhere.map(EventId::from_bytes),
        }))
    }

    pub(super) fn event(&mut self, id: EventId) -> rusqlite::Result<Option<EventDetail>> {
        let number = id.position().get();
        let row = self
            .conn
            .prepare_cached(include_str!("show_event.sql"))?
            .query_row([number], |row| {
                let raw = RawEvent {
                    id: row.get(0)?,
                    source: None,
                    received_at: row.get(2)?,
                    delivery_id: row.get(3)?,
                    event_type: row.get(4)?,
                    head: row.get(5)?,
                    body: row.get(6)?,
                };
                let key = DedupeKey::from_parts(row.get(8)?, key_kind(row.get(7)?));
                Ok((raw, row.get::<_, u32>(1)?, key))
            })
            .optional()?;
        let Some((mut raw, source, key)) = row else {
            return Ok(None);
        };
        if EventId::from_bytes(raw.id) != id {
            return Ok(None);
        }
        raw.source = Some(self.source(source)?);
        let Some(event) = raw.decode() else {
            return Err(rusqlite::Error::InvalidColumnType(
                5,
                "head is damaged".to_owned(),
                rusqlite::types::Type::Blob,
            ));
        };
        let mut dispatches = Vec::new();
        for (id, summary) in self.dispatches(number)? {
            let mut attempts: Vec<AttemptRecord> = self
                .conn
                .prepare_cached(include_str!("attempts.sql"))?
                .query_map([id], |row| attempt(row, 0))?
                .filter_map(Result::transpose)
                .collect::<Result<_, _>>()?;
            attempts.extend(summary.last.clone());
            dispatches.push((summary, attempts));
        }
        Ok(Some(EventDetail {
            event,
            key,
            dispatches,
            elsewhere: elsewhere(&self.conn, number)?,
        }))
    }

    fn dispatches(&self, number: i64) -> rusqlite::Result<Vec<(DispatchId, DispatchSummary)>> {
        let lanes: HashMap<u32, (UpstreamName, bool)> = self.shared.status(|status| {
            let lanes = status.lanes.iter();
            lanes
                .map(|lane| (lane.upstream, (lane.name.clone(), lane.configured)))
                .collect()
        });
        self.conn
            .prepare_cached(include_str!("dispatches.sql"))?
            .query_map(
                params![DispatchId::first(number), DispatchId::first(number + 1)],
                |row| {
                    let number: i64 = row.get(2)?;
                    let stored = state_from(number).ok_or(rusqlite::Error::IntegralValueOutOfRange(2, number))?;
                    let upstream: u32 = row.get(1)?;
                    let (name, configured) = lanes
                        .get(&upstream)
                        .cloned()
                        .unwrap_or_else(|| (UpstreamName::new(format!("#{upstream}")), false));
                    let state = match stored {
                        DispatchState::Pending if !configured => DispatchState::Held,
                        other => other,
                    };
                    Ok((
                        DispatchId(row.get(0)?),
                        DispatchSummary {
                            upstream: name,
                            state,
                            attempts: row.get(3)?,
                            due: match state {
                                DispatchState::Pending => Some(Timestamp::from_millis(row.get(4)?)),
                                _ => None,
                            },
                            replay: row.get(5)?,
                            last: attempt(row, 6)?,
                        },
                    ))
                },
            )?
            .collect()
    }

    /// Fills in how old the oldest pending or leased dispatch of each upstream is.
    pub(super) fn with_oldest_pending(&mut self, mut counts: Counts) -> rusqlite::Result<Counts> {
        let lanes: Vec<(u32, UpstreamName)> = self.shared.status(|status| {
            let lanes = status.lanes.iter().filter(|lane| lane.configured);
            lanes.map(|lane| (lane.upstream, lane.name.clone())).collect()
        });
        for (upstream, name) in lanes {
            let Some(shown) = counts.upstreams.get_mut(&name) else {
                continue;
            };
            let open = [DispatchState::Pending, DispatchState::Leased]
                .iter()
                .any(|state| shown.states.get(state).is_some_and(|count| *count > 0));
            if !open {
                continue;
            }
            let from = self.shared.oldest_open(upstream);
            let oldest: Option<i64> = self
                .conn
                .prepare_cached(include_str!("oldest_pending.sql"))?
                .query_row(params![from, upstream], |row| row.get(0))
                .optional()?;
            if let Some(oldest) = oldest {
                self.shared.found_oldest_open(upstream, from, oldest);
                let id: Option<[u8; 16]> = self
                    .conn
                    .prepare_cached("SELECT id FROM event WHERE position = ?1")?
                    .query_row([DispatchId(oldest).position()], |row| row.get(0))
                    .optional()?;
                shown.oldest_pending = id.map(|id| EventId::from_bytes(id).received_at());
            }
        }
        Ok(counts)
    }

    /// The oldest untold deaths, each with its position and its number.
    pub(super) fn untold_deaths(&mut self, limit: usize) -> rusqlite::Result<Vec<(Death, i64)>> {
        let rows: Vec<([u8; 16], u32, DedupeKey, i64)> = self
            .conn
            .prepare_cached(include_str!("untold_deaths.sql"))?
            .query_map([to_i64(limit)], |row| {
                let key = DedupeKey::from_parts(row.get(3)?, key_kind(row.get(2)?));
                Ok((row.get(0)?, row.get(1)?, key, row.get(4)?))
            })?
            .collect::<Result<_, _>>()?;
        rows.into_iter()
            .map(|(event, source, key, times)| {
                let death = Death {
                    source: self.source(source)?,
                    key,
                    event: EventId::from_bytes(event),
                };
                Ok((death, times))
            })
            .collect()
    }

    pub(super) fn secrets(&mut self) -> rusqlite::Result<Vec<SecretRecord>> {
        let mut all = self.conn.prepare_cached(include_str!("secrets.sql"))?;
        let records = all.query_map([], |row| {
            Ok(SecretRecord {
                source: SourceName::new(row.get::<_, String>(0)?),
                mark: SecretMark::new(row.get(1)?),
                since: Timestamp::from_millis(row.get(2)?),
                last_used: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_millis),
                others: u64::try_from(row.get::<_, i64>(4)?).unwrap_or(0),
            })
        })?;
        records.collect()
    }

    /// Walks the dispatches by id, which is the order of arrival, and stops where events are too young. What is
    /// delivered and not yet pruned is passed over: an index on what is not would be paid for by each dispatch.
    pub(super) fn undelivered(
        &mut self,
        before: Timestamp,
        after: Option<EventId>,
        limit: usize,
    ) -> rusqlite::Result<Vec<Undelivered>> {
        let mut from = after.map_or(0, |after| DispatchId::first(after.position().get() + 1).0);
        let mut found: Vec<Undelivered> = Vec::new();
        loop {
            let rows: Vec<(DispatchId, Option<DispatchState>)> = self
                .conn
                .prepare_cached(include_str!("prunable.sql"))?
                .query_map(params![from, to_i64(WALK_STEP)], |row| {
                    Ok((DispatchId(row.get(0)?), state_from(row.get(1)?)))
                })?
                .collect::<Result<_, _>>()?;
            let Some((last, _state)) = rows.last().copied() else {
                return Ok(found);
            };
            from = last.0 + 1;
            for (id, state) in rows {
                let open = !matches!(state, Some(DispatchState::Delivered | DispatchState::Discarded));
                if open && let Some(undelivered) = self.undelivered_event(id.position(), before)? {
                    let dead = state == Some(DispatchState::Dead);
                    let full = found.len() >= limit;
                    match found.last_mut().filter(|last| last.event == undelivered.event) {
                        Some(same) => same.dead |= dead,
                        None if full => return Ok(found),
                        None => found.push(Undelivered { dead, ..undelivered }),
                    }
                }
            }
            let reached: Option<[u8; 16]> = self
                .conn
                .prepare_cached(include_str!("event_key.sql"))?
                .query_row([last.position()], |row| row.get(0))
                .optional()?;
            // Events are appended about in the order in which they were received.
            let young = before.after(WALK_SLACK);
            if reached.is_some_and(|id| EventId::from_bytes(id).received_at() > young) {
                return Ok(found);
            }
        }
    }

    fn undelivered_event(&mut self, position: i64, before: Timestamp) -> rusqlite::Result<Option<Undelivered>> {
        let found = self
            .conn
            .prepare_cached(include_str!("undelivered_event.sql"))?
            .query_row([position], |row| {
                let key = DedupeKey::from_parts(row.get(3)?, key_kind(row.get(2)?));
                Ok((
                    EventId::from_bytes(row.get(0)?),
                    row.get::<_, u32>(1)?,
                    key,
                    row.get(4)?,
                ))
            })
            .optional()?;
        let Some((event, source, key, body_mark)) = found.filter(|(event, ..)| event.received_at() < before) else {
            return Ok(None);
        };
        Ok(Some(Undelivered {
            event,
            source: self.source(source)?,
            key,
            body_mark,
            dead: false,
        }))
    }

    fn source(&mut self, id: u32) -> rusqlite::Result<SourceName> {
        if let Some(name) = self.sources.get(&id) {
            return Ok(name.clone());
        }
        let name: String = self
            .conn
            .prepare_cached("SELECT name FROM source WHERE id = ?1")?
            .query_row([id], |row| row.get(0))?;
        let name = SourceName::new(name);
        self.sources.insert(id, name.clone());
        Ok(name)
    }
}

/// The columns of a listed event.
struct Found {
    id: [u8; 16],
    source: u32,
    received_at: i64,
    delivery_id: Option<String>,
    event_type: Option<String>,
    body_bytes: u64,
    elsewhere: Option<[u8; 16]>,
}

fn found(row: &Row<'_>) -> rusqlite::Result<(i64, Found)> {
    Ok((
        row.get(0)?,
        Found {
            id: row.get(1)?,
            source: row.get(2)?,
            received_at: row.get(3)?,
            delivery_id: row.get(4)?,
            event_type: row.get(5)?,
            body_bytes: row.get(6)?,
            elsewhere: row.get(7)?,
        },
    ))
}

/// The attempt whose seven columns start at `at`; `None` where there is none.
fn attempt(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<AttemptRecord>> {
    let Some(number) = row.get::<_, Option<u32>>(at)? else {
        return Ok(None);
    };
    let outcome: i64 = row.get(at + 3)?;
    let status = row
        .get::<_, Option<u16>>(at + 4)?
        .and_then(|status| StatusCode::from_u16(status).ok());
    let cause = || row.get::<_, Option<String>>(at + 5).map(Option::unwrap_or_default);
    let outcome = match (outcome, status) {
        (0, Some(status)) => Outcome::Delivered { status },
        (1, Some(status)) => Outcome::Refused { status },
        (2, _) => Outcome::NotSent { cause: cause()? },
        _ => Outcome::Unknown { cause: cause()? },
    };
    Ok(Some(AttemptRecord {
        number,
        started_at: Timestamp::from_millis(row.get(at + 1)?),
        took: Duration::from_millis(row.get(at + 2)?),
        outcome,
        excerpt: row
            .get::<_, Option<Vec<u8>>>(at + 6)?
            .map(Bytes::from)
            .unwrap_or_default(),
    }))
}
