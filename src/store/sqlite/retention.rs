//! Forgetting: events after their retention, key partitions after the dedupe window; in small slices.
//!
//! Promises: nothing undelivered is ever removed (P8): only events all of whose dispatches are delivered or discarded, or
//! dead for `dead_retention`, and keys only as whole partitions after those of unfinished events were carried over. A
//! wrong clock never deletes: while [`TimeTrust`](crate::store::trust::TimeTrust) doubts it, nothing here runs.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::{OptionalExtension, params};

use super::admit::read_key_page;
use super::keys::{Entry, Key, Kind, encode_entry, entries, page_id};
use super::lease::key_kind;
use super::writer::{Move, Turn, Writer};
use super::{DispatchId, state_from, to_i64};
use crate::id::EventId;
use crate::store::model::DispatchState;
use crate::time::{Monotonic, Timestamp};

/// Dispatch rows looked at per turn: over 200 an accept would wait for milliseconds.
const SLICE: usize = 200;
/// Key pages looked at per turn while appends wait, and while none does.
const PAGES_WHILE_BUSY: usize = 1;
const PAGES_WHILE_QUIET: usize = 8;

/// How far forgetting is.
#[derive(Debug, Default)]
pub(super) struct Retention {
    /// The next dispatch id to look at, while a pass is under way.
    cursor: Option<i64>,
    cursor_before: Option<i64>,
    /// The next position to look at among the copies of events that are elsewhere.
    elsewhere: Option<i64>,
    elsewhere_before: Option<i64>,
    next_pass: Monotonic,
    dropping: Option<Dropping>,
    dropping_before: Option<Dropping>,
}

/// A partition whose keys are being looked through.
#[derive(Clone, Copy, Debug)]
struct Dropping {
    number: u32,
    pages: usize,
    next_page: usize,
}

impl Retention {
    pub(super) fn is_pruning(&self) -> bool {
        self.cursor.is_some() || self.elsewhere.is_some() || self.dropping.is_some()
    }

    pub(super) fn rolled_back(&mut self) {
        self.cursor = self.cursor_before;
        self.elsewhere = self.elsewhere_before;
        self.dropping = self.dropping_before;
    }
}

/// Neighbouring events that can go: positions from `first` to before `end`.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: i64,
    end: i64,
}

impl Writer {
    /// Notes the time, and says so when its trust changes.
    pub(super) fn keep_time(&mut self) {
        self.now = self.clock.now();
        let trusted = self.trust.observe(self.now, self.clock.monotonic());
        if self.shared.clock_trusted.swap(trusted, Ordering::Relaxed) != trusted {
            if trusted {
                tracing::info!("the clock has agreed for an hour: expiry goes on");
            } else {
                tracing::warn!("the clock jumped: expiry, pruning and giving up stop until it has agreed for an hour");
            }
        }
    }

    /// Removes a slice of what is old; `batch` appends share this turn.
    pub(super) fn prune_step(&mut self, turn: &mut Turn, batch: usize) -> rusqlite::Result<()> {
        self.retention.cursor_before = self.retention.cursor;
        self.retention.elsewhere_before = self.retention.elsewhere;
        self.retention.dropping_before = self.retention.dropping;
        if !self.shared.clock_trusted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let monotonic = self.clock.monotonic();
        if self.retention.cursor.is_none() && monotonic >= self.retention.next_pass {
            let pause = (self.settings.retention / 20).clamp(Duration::from_secs(1), Duration::from_secs(60));
            self.retention.next_pass = monotonic.after(pause);
            self.retention.cursor = Some(0);
            self.retention.elsewhere = self.has_elsewhere.then_some(0);
        }
        if let Some(cursor) = self.retention.cursor {
            // A little more than arrives, so that under a constant load what is old goes as fast as what is new comes.
            let slice = if batch == 0 {
                SLICE
            } else {
                (batch + batch / 2 + 8).min(SLICE)
            };
            self.retention.cursor = self.prune(turn, cursor, slice)?;
        } else if let Some(cursor) = self.retention.elsewhere {
            self.retention.elsewhere = self.prune_elsewhere(turn, cursor)?;
        }
        self.drop_partition_step(turn, batch > 0)
    }

    /// Looks at `slice` dispatches from `cursor` on and removes the events that can go. Returns where to go on.
    fn prune(&mut self, turn: &mut Turn, cursor: i64, slice: usize) -> rusqlite::Result<Option<i64>> {
        let now = self.clock.now();
        let rows: Vec<(DispatchId, i64, i64)> = self
            .conn
            .prepare_cached(include_str!("prunable.sql"))?
            .query_map(params![cursor, to_i64(slice)], |row| {
                Ok((DispatchId(row.get(0)?), row.get(1)?, row.get(2)?))
            })?
            .collect::<Result<_, _>>()?;
        let whole = rows.len() < slice;
        let mut next = None;
        let mut runs: Vec<Run> = Vec::new();
        let mut gap = true;
        for event in rows.chunk_by(|a, b| a.0.position() == b.0.position()) {
            let Some(position) = event.first().map(|(id, ..)| id.position()) else {
                continue;
            };
            let is_last = event.last().map(|(id, ..)| id) == rows.last().map(|(id, ..)| id);
            if is_last && !whole {
                // Some of its dispatches may lie behind the slice.
                next = Some(DispatchId::first(position).0);
                if position == DispatchId(cursor).position() && event.len() == slice {
                    return self.skip_wide_event(position);
                }
                break;
            }
            match self.verdict(event, now) {
                Verdict::Young => break,
                Verdict::Keep => gap = true,
                Verdict::Remove => {
                    match runs.last_mut() {
                        Some(run) if !gap => run.end = position + 1,
                        Some(_) | None => runs.push(Run {
                            first: position,
                            end: position + 1,
                        }),
                    }
                    gap = false;
                    for (id, state, _started) in event {
                        if let (Some(lane), Some(state)) = (self.lane_of.get(&id.upstream()), state_from(*state)) {
                            turn.moves.push(Move {
                                lane: *lane,
                                from: Some(state),
                                to: None,
                            });
                        }
                    }
                }
            }
        }
        for run in runs {
            self.remove_run(turn, run)?;
        }
        Ok(next)
    }

    /// Removes copies of events that are elsewhere, like delivered ones after `retention`. Returns where to go on.
    fn prune_elsewhere(&self, turn: &mut Turn, cursor: i64) -> rusqlite::Result<Option<i64>> {
        let now = self.clock.now();
        let rows: Vec<(i64, i64, bool)> = self
            .conn
            .prepare_cached(include_str!("prunable_elsewhere.sql"))?
            .query_map(params![cursor, to_i64(SLICE)], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?
            .collect::<Result<_, _>>()?;
        let more = rows.len() == SLICE;
        let mut next = None;
        for (position, admitted_at, has_dispatches) in rows {
            if now.since(Timestamp::from_millis(admitted_at)) < self.settings.retention {
                return Ok(None);
            }
            next = Some(position + 1).filter(|_next| more);
            if !has_dispatches {
                turn.dirty = true;
                // Its key is not ours, so there is none to keep.
                for sql in [include_str!("prune_events.sql"), include_str!("prune_elsewhere.sql")] {
                    self.conn.prepare_cached(sql)?.execute([position, position + 1])?;
                }
            }
        }
        Ok(next)
    }

    /// An event with more dispatches than a slice holds is left alone: upstreams are few.
    #[expect(clippy::unnecessary_wraps, reason = "has the shape of its caller's answer")]
    fn skip_wide_event(&self, position: i64) -> rusqlite::Result<Option<i64>> {
        Ok(Some(DispatchId::first(position + 1).0))
    }

    fn verdict(&self, event: &[(DispatchId, i64, i64)], now: Timestamp) -> Verdict {
        let youngest = event.iter().map(|(.., started)| *started).max().unwrap_or(i64::MAX);
        let age = now.since(Timestamp::from_millis(youngest));
        let mut keep_for = self.settings.retention;
        for (_id, state, _started) in event {
            match state_from(*state) {
                Some(DispatchState::Delivered | DispatchState::Discarded) => {}
                Some(DispatchState::Dead) => keep_for = self.settings.dead_retention,
                Some(DispatchState::Pending | DispatchState::Leased | DispatchState::Held) | None => {
                    return Verdict::Keep;
                }
            }
        }
        if age >= keep_for {
            Verdict::Remove
        } else if keep_for == self.settings.retention {
            // Those behind it are younger still, but for replays, which a later pass finds.
            Verdict::Young
        } else {
            Verdict::Keep
        }
    }

    fn remove_run(&mut self, turn: &mut Turn, run: Run) -> rusqlite::Result<()> {
        turn.dirty = true;
        turn.save_tally = true;
        self.keep_keys(run)?;
        let dispatches = params![DispatchId::first(run.first), DispatchId::first(run.end)];
        self.conn
            .prepare_cached(include_str!("prune_attempts.sql"))?
            .execute(dispatches)?;
        self.conn
            .prepare_cached(include_str!("prune_replies.sql"))?
            .execute(dispatches)?;
        self.conn
            .prepare_cached(include_str!("prune_dispatches.sql"))?
            .execute(dispatches)?;
        self.conn
            .prepare_cached(include_str!("prune_events.sql"))?
            .execute(params![run.first, run.end])?;
        if self.has_elsewhere {
            // Copies between them are older than the last of them.
            self.conn
                .prepare_cached(include_str!("prune_elsewhere.sql"))?
                .execute(params![run.first, run.end])?;
        }
        Ok(())
    }

    /// Keys that opening would read from rows which are about to go.
    fn keep_keys(&mut self, run: Run) -> rusqlite::Result<()> {
        if self.keys.unsealed_partition_of(run.end - 1).is_none() {
            return Ok(());
        }
        let mut select = self.conn.prepare_cached(include_str!("recent_keys.sql"))?;
        let mut rows = select.query(params![run.first, run.end])?;
        let mut extra: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let entry = Entry {
                event: EventId::from_bytes(row.get(0)?),
                body_mark: row.get(5)?,
            };
            let Some(partition) = self.keys.unsealed_partition_of(entry.event.position().get()) else {
                continue;
            };
            let key = Key::new(row.get(1)?, Kind::from(key_kind(row.get(2)?)), &row.get(3)?);
            encode_entry(&key, &entry, extra.entry(partition).or_default());
        }
        drop(rows);
        for (partition, entries) in extra {
            self.write_key_extra(partition, &entries)?;
        }
        Ok(())
    }

    fn write_key_extra(&self, partition: u32, entries: &[u8]) -> rusqlite::Result<()> {
        self.conn
            .prepare_cached(include_str!("write_key_extra.sql"))?
            .execute(params![partition, entries])?;
        Ok(())
    }

    /// Looks through a partition whose window has passed, carries the keys of unfinished events into the current one,
    /// and drops it.
    fn drop_partition_step(&mut self, turn: &mut Turn, busy: bool) -> rusqlite::Result<()> {
        let mut dropping = match self.retention.dropping {
            Some(dropping) => dropping,
            None => {
                let now = self.clock.now();
                let old = self.keys.partitions().first().copied();
                let Some(old) = old.filter(|old| now.since(old.newest) > self.settings.window) else {
                    return Ok(());
                };
                Dropping {
                    number: old.number,
                    pages: old.pages,
                    next_page: 0,
                }
            }
        };
        turn.dirty = true;
        let mut carried = Vec::new();
        let most = if busy { PAGES_WHILE_BUSY } else { PAGES_WHILE_QUIET };
        for _ in 0..most {
            if dropping.next_page >= dropping.pages {
                break;
            }
            let page = read_key_page(&self.conn, page_id(dropping.number, dropping.next_page))?;
            dropping.next_page += 1;
            for (key, entry) in entries(&page.unwrap_or_default()) {
                if key.is_rule() && self.is_unfinished(entry.event.position().get())? && !self.keys.in_memory(&key) {
                    encode_entry(&key, &entry, &mut carried);
                    self.keys.insert(key, entry, entry.event.received_at());
                }
            }
        }
        if !carried.is_empty() {
            self.write_key_extra(self.keys.number(), &carried)?;
        }
        self.retention.dropping = Some(dropping);
        if dropping.next_page >= dropping.pages {
            self.conn
                .prepare_cached(include_str!("drop_key_pages.sql"))?
                .execute(params![page_id(dropping.number, 0), page_id(dropping.number + 1, 0)])?;
            self.conn
                .prepare_cached(include_str!("drop_key_partition.sql"))?
                .execute([dropping.number])?;
            turn.dropped_partition = Some(dropping.number);
            self.retention.dropping = None;
        }
        Ok(())
    }

    fn is_unfinished(&self, position: i64) -> rusqlite::Result<bool> {
        let found: Option<i64> = self
            .conn
            .prepare_cached(include_str!("is_open.sql"))?
            .query_row(
                params![DispatchId::first(position), DispatchId::first(position + 1)],
                |row| row.get(0),
            )
            .optional()?;
        Ok(found.is_some())
    }
}

enum Verdict {
    Remove,
    /// Not finished, or not old enough though others behind it may be.
    Keep,
    /// Finished, and too young, as all behind it.
    Young,
}
