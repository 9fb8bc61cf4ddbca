//! What the writer must know at opening, read from the tables.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, params};

use super::calls::Counted;
use super::filter::Bits;
use super::keys::{Entry, Key, Keys, Kind, PAGES_MAX, Partition, entries, page_id};
use super::lease::key_kind;
use super::writer::Lane;
use super::{DispatchId, Tuning, state_from, to_i64};
use crate::id::{EventId, RouteName, SourceName, UpstreamName};
use crate::store::OpenError;
use crate::store::model::{DispatchState, LaneRecord};
use crate::store::records::{RecordKey, RecordKind};
use crate::store::window::Window;
use crate::time::Timestamp;

/// Calls that ran when the store was last open, and are named in the log one by one.
const NAMED_MAX: usize = 10;

/// See the module.
pub(super) struct Recovered {
    pub(super) sources: HashMap<SourceName, u32>,
    /// The configured upstreams first.
    pub(super) lanes: Vec<Lane>,
    pub(super) keys: Keys,
    pub(super) next_position: i64,
    /// The first position that is not admitted.
    pub(super) admitted_end: i64,
    pub(super) unadmitted: usize,
    pub(super) tally_position: i64,
    /// Routes that records name.
    pub(super) routes: HashMap<RouteName, u32>,
    /// Records by state.
    pub(super) records: Counted,
    /// There are copies of events that are elsewhere.
    pub(super) has_elsewhere: bool,
    /// When the newest event, or call, was received.
    pub(super) newest: Option<Timestamp>,
}

pub(super) fn recover(
    conn: &mut Connection,
    upstreams: &[UpstreamName],
    tuning: &Tuning,
) -> Result<Recovered, OpenError> {
    let sources = names(conn, "SELECT id, name FROM source")?
        .into_iter()
        .map(|(id, name)| (SourceName::new(name), id))
        .collect();
    let mut lanes = lanes(conn, upstreams)?;
    end_leases(conn, &lanes)?;
    let tally_position = count(conn, &mut lanes)?;
    for lane in &mut lanes {
        if lane.states.get(DispatchState::Pending) > 0 {
            // All due dates are looked up at the first claim.
            lane.next_due = Some(Timestamp::from_millis(i64::MIN));
        }
    }
    // Every admitted event has a dispatch or is elsewhere, and a duplicate's row is gone.
    let dispatched = one(conn, "SELECT max(id) FROM dispatch")?.map(|id| DispatchId(id).position());
    let elsewhere = one(conn, "SELECT max(position) FROM elsewhere")?;
    let admitted_end = dispatched.max(elsewhere).map_or(0, |newest| newest + 1);
    let newest_position = one(conn, "SELECT max(position) FROM event")?;
    let reserved_end = one(conn, "SELECT reserved_end FROM meta WHERE id = 1")?
        .ok_or_else(|| OpenError::Damaged("its meta row is missing".to_owned()))?;
    if newest_position.is_some_and(|newest| newest >= reserved_end) {
        return Err(OpenError::Damaged(
            "an event lies beyond the reserved positions".to_owned(),
        ));
    }
    let unadmitted = conn.query_row(
        "SELECT count(*) FROM event WHERE position >= ?1",
        [admitted_end],
        |row| row.get::<_, i64>(0),
    )?;
    let newest = conn.query_row(
        "SELECT max(received_at) FROM (SELECT received_at FROM event ORDER BY position DESC LIMIT 1000)",
        [],
        |row| row.get::<_, Option<i64>>(0),
    )?;
    let newest_call = one(
        conn,
        "SELECT max(accepted_at) FROM (SELECT accepted_at FROM record ORDER BY id DESC LIMIT 1000)",
    )?;
    let keys = keys(conn, admitted_end, tuning)?;
    Ok(Recovered {
        sources,
        lanes,
        keys,
        next_position: reserved_end,
        admitted_end,
        unadmitted: usize::try_from(unadmitted).unwrap_or(usize::MAX),
        tally_position,
        routes: names(conn, "SELECT id, name FROM route")?
            .into_iter()
            .map(|(id, name)| (RouteName::new(name), id))
            .collect(),
        records: count_records(conn)?,
        has_elsewhere: elsewhere.is_some(),
        newest: newest.max(newest_call).map(Timestamp::from_millis),
    })
}

/// The configured upstreams, then those that only the store knows.
fn lanes(conn: &Connection, upstreams: &[UpstreamName]) -> Result<Vec<Lane>, OpenError> {
    let mut lanes = Vec::new();
    for name in upstreams {
        let upstream = learn_upstream(conn, name)?;
        lanes.push(Lane::new(upstream, name.clone(), Some(Arc::new(Window::default()))));
    }
    for (upstream, name) in names(conn, "SELECT id, name FROM upstream")? {
        if !lanes.iter().any(|lane| lane.upstream == upstream) {
            lanes.push(Lane::new(upstream, UpstreamName::new(name), None));
        }
    }
    let mut statement = conn.prepare("SELECT upstream, paused, stopped_total FROM lane")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let upstream: u32 = row.get(0)?;
        if let Some(lane) = lanes.iter_mut().find(|lane| lane.upstream == upstream) {
            lane.record = LaneRecord {
                paused: row.get(1)?,
                orders: 0,
                stopped_total: std::time::Duration::from_millis(row.get(2)?),
            };
        }
    }
    Ok(lanes)
}

/// The number of an upstream's name, new or known.
pub(super) fn learn_upstream(conn: &Connection, name: &UpstreamName) -> rusqlite::Result<u32> {
    conn.query_row(
        "INSERT INTO upstream (name) VALUES (?1) ON CONFLICT (name) DO UPDATE SET name = ?1 RETURNING id",
        [name.as_str()],
        |row| row.get(0),
    )
}

/// The lock proves their owner gone, of leases as of calls. How far such a call got is not known.
fn end_leases(conn: &mut Connection, lanes: &[Lane]) -> rusqlite::Result<()> {
    let tx = conn.transaction()?;
    for lane in lanes {
        tx.execute(include_str!("end_leases.sql"), [lane.upstream])?;
    }
    let some = some_running(&tx)?;
    let ended = tx.execute(include_str!("end_running.sql"), [])?;
    tx.commit()?;
    for key in &some {
        key.needs_a_person("it ran when the store was last open");
    }
    if ended > some.len() {
        tracing::error!(
            calls = ended,
            not_named = ended - some.len(),
            list = "hooksluice idempotency list --state ambiguous",
            "calls ran when the store was last open: whether they took effect is not known"
        );
    }
    Ok(())
}

/// The first calls that ran, to be named.
fn some_running(conn: &Connection) -> rusqlite::Result<Vec<RecordKey>> {
    let mut statement = conn.prepare(include_str!("some_running.sql"))?;
    let found = statement.query_map([to_i64(NAMED_MAX)], |row| {
        Ok(RecordKey {
            route: RouteName::new(row.get::<_, String>(0)?),
            digest: row.get(1)?,
        })
    })?;
    found.collect()
}

fn count_records(conn: &Connection) -> rusqlite::Result<Counted> {
    conn.query_row(include_str!("record_counts.sql"), [], |row| {
        let mut counted = Counted::default();
        for (at, kind) in RecordKind::ALL.into_iter().enumerate() {
            counted.add(kind, row.get(at)?);
        }
        Ok(counted)
    })
}

/// Counts dispatches by upstream and state: open ones by their index, made ones from the saved tally and the rows behind
/// it, delivered ones are what is left. Returns the tally's position.
fn count(conn: &Connection, lanes: &mut [Lane]) -> rusqlite::Result<i64> {
    let mut statement = conn.prepare(include_str!("open_count.sql"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (upstream, state, count): (u32, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let lane = lanes.iter_mut().find(|lane| lane.upstream == upstream);
        if let (Some(lane), Some(state)) = (lane, state_from(state)) {
            lane.states.add(state, count);
        }
    }
    let mut statement = conn.prepare("SELECT upstream, made, pruned, discarded FROM tally")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let upstream: u32 = row.get(0)?;
        if let Some(lane) = lanes.iter_mut().find(|lane| lane.upstream == upstream) {
            lane.made = row.get(1)?;
            lane.pruned = row.get(2)?;
            lane.states.add(DispatchState::Discarded, row.get(3)?);
        }
    }
    let tally_position: i64 = conn.query_row("SELECT tally_position FROM meta WHERE id = 1", [], |row| row.get(0))?;
    let mut statement = conn.prepare(include_str!("made_since.sql"))?;
    let mut rows = statement.query(params![DispatchId::first(tally_position)])?;
    while let Some(row) = rows.next()? {
        let upstream: u32 = row.get(0)?;
        if let Some(lane) = lanes.iter_mut().find(|lane| lane.upstream == upstream) {
            lane.made += row.get::<_, i64>(1)?;
        }
    }
    for lane in lanes.iter_mut() {
        let others: i64 = DispatchState::ALL.into_iter().map(|state| lane.states.get(state)).sum();
        lane.states
            .add(DispatchState::Delivered, lane.made - lane.pruned - others);
    }
    Ok(tally_position)
}

/// The sealed partitions with their filters, and the current one from the event rows behind them.
fn keys(conn: &Connection, admitted_end: i64, tuning: &Tuning) -> Result<Keys, OpenError> {
    let mut sealed = Vec::new();
    let mut statement =
        conn.prepare("SELECT partition, newest, pages, filter FROM key_partition ORDER BY partition")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let number: u32 = row.get(0)?;
        let bits = Bits::from_stored(row.get(3)?, tuning.partition_keys)
            .ok_or_else(|| OpenError::Damaged(format!("the filter of key partition {number} is cut")))?;
        let partition = Partition {
            number,
            pages: row.get(2)?,
            newest: Timestamp::from_millis(row.get(1)?),
        };
        sealed.push((partition, bits));
    }
    let (next, floor): (u32, i64) =
        conn.query_row("SELECT next_partition, key_floor FROM meta WHERE id = 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    let mut keys = Keys::new(sealed, next, floor, tuning.partition_keys);
    // Pages of a partition that was not sealed.
    conn.execute(
        include_str!("drop_key_pages.sql"),
        params![page_id(keys.number(), 0), page_id(u32::MAX, PAGES_MAX - 1)],
    )?;
    let mut statement = conn.prepare("SELECT entries FROM key_extra ORDER BY rowid")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        for (key, entry) in entries(&row.get::<_, Vec<u8>>(0)?) {
            keys.insert(key, entry, entry.event.received_at());
        }
    }
    let mut statement = conn.prepare(include_str!("recent_keys.sql"))?;
    let mut rows = statement.query(params![floor, admitted_end])?;
    while let Some(row) = rows.next()? {
        let entry = Entry {
            event: EventId::from_bytes(row.get(0)?),
            body_mark: row.get(5)?,
        };
        let source = row.get(1)?;
        let received_at = entry.event.received_at();
        let key = Key::new(source, Kind::from(key_kind(row.get(2)?)), &row.get(3)?);
        keys.insert(key, entry, received_at);
        if let Some(content) = row.get::<_, Option<[u8; 32]>>(4)? {
            keys.insert(Key::new(source, Kind::Content, &content), entry, received_at);
        }
    }
    keys.commit();
    Ok(keys)
}

fn names(conn: &Connection, sql: &str) -> rusqlite::Result<Vec<(u32, String)>> {
    conn.prepare(sql)?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

fn one(conn: &Connection, sql: &str) -> rusqlite::Result<Option<i64>> {
    conn.query_row(sql, [], |row| row.get(0))
}
