//! Sealing: a full partition of keys goes to disk, a few pages a turn (see keys.rs).

use std::sync::Arc;

use rusqlite::params;

use super::keys::{self, page_id};
use super::to_i64;
use super::writer::{Turn, Writer};

/// Pages written per turn while appends wait, and while none does.
const PAGES_WHILE_BUSY: usize = 16;
const PAGES_WHILE_QUIET: usize = 128;

impl Writer {
    /// Starts to seal the current partition when it is full.
    pub(super) fn freeze_when_full(&mut self) {
        if self.keys.current_len() < self.tuning.partition_keys {
            return;
        }
        let end = self.admitted_end();
        if let Some(frozen) = self.keys.freeze(end) {
            self.helper.seal(Arc::clone(&frozen.map), frozen.column.clone());
        }
    }

    /// Goes on writing the frozen partition's pages. When the next one is full already, finishes: that is the bound on
    /// the memory of keys, and where admission waits for the disk.
    pub(super) fn seal_step(&mut self, turn: &mut Turn, busy: bool) -> rusqlite::Result<()> {
        let must_finish = self.keys.current_len() >= self.tuning.partition_keys;
        let Some(frozen) = &mut self.keys.frozen else {
            return Ok(());
        };
        if frozen.sealed.is_none() {
            frozen.sealed = self.helper.sealed(must_finish);
        }
        let Some(sealed) = &frozen.sealed else {
            return Ok(());
        };
        let most = match (must_finish, busy) {
            (true, _) => usize::MAX,
            (false, true) => PAGES_WHILE_BUSY,
            (false, false) => PAGES_WHILE_QUIET,
        };
        turn.dirty = true;
        let mut write = self.conn.prepare_cached(include_str!("write_key_page.sql"))?;
        let pages = sealed.pages.iter().enumerate().skip(frozen.pages_written).take(most);
        let mut written = 0;
        for (number, entries) in pages {
            write.execute(params![page_id(frozen.number, number), entries])?;
            written += 1;
        }
        frozen.pages_written += written;
        if frozen.pages_written < sealed.pages.len() {
            return Ok(());
        }
        self.conn
            .prepare_cached(include_str!("write_key_partition.sql"))?
            .execute(params![
                frozen.number,
                frozen.newest.as_millis(),
                to_i64(frozen.map.len()),
                to_i64(sealed.pages.len()),
                sealed.filter.as_bytes()
            ])?;
        self.conn
            .prepare_cached(include_str!("raise_key_floor.sql"))?
            .execute(params![frozen.end_position, frozen.number + 1])?;
        self.conn
            .prepare_cached(include_str!("drop_key_extra.sql"))?
            .execute([frozen.number])?;
        turn.sealed = true;
        Ok(())
    }

    /// A start that finds a full partition seals it before anything else, so that crashes while sealing do not let the
    /// unsealed keys add up.
    pub(super) fn finish_partition_at_open(&mut self) -> rusqlite::Result<()> {
        if self.keys.current_len() < self.tuning.partition_keys {
            return Ok(());
        }
        let end = self.admitted_end();
        self.keys.freeze(end);
        if let Some(frozen) = &mut self.keys.frozen {
            frozen.sealed = Some(keys::seal(&frozen.map, &frozen.column));
        }
        let mut turn = Turn::default();
        self.conn.execute_batch("BEGIN IMMEDIATE")?;
        while !turn.sealed {
            self.seal_step(&mut turn, false)?;
        }
        self.conn.execute_batch("COMMIT")?;
        self.keys.sealed();
        Ok(())
    }
}
