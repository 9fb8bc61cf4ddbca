//! Appended events on their way into the transaction, and the names that they bring.

use std::sync::Arc;

use rusqlite::{Connection, params};

use super::{Appended, BATCH_MAX, Lane, POSITIONS_RESERVED, ROUTES_MAX, Route, Turn, Writer};
use crate::id::{EventId, SourceName};
use crate::store::append::Append;
use crate::store::codec;
use crate::store::sqlite::{position, recover, to_i64};

impl Writer {
    pub(super) fn write_appends(&mut self, turn: &mut Turn, batch: usize) -> rusqlite::Result<()> {
        if batch == 0 {
            return Ok(());
        }
        let end = self.next_position.saturating_add(to_i64(batch));
        let mut insert = self.conn.prepare_cached(include_str!("../append.sql"))?;
        if end > self.reserved_end {
            let reserved_end = end.saturating_add(POSITIONS_RESERVED);
            self.conn
                .prepare_cached(include_str!("../reserve_positions.sql"))?
                .execute([reserved_end])?;
            self.reserved_end = reserved_end;
        }
        for append in self.appends.drain(..batch) {
            let weight = append.bytes();
            let Append {
                mut event,
                upstreams,
                key,
                content,
                body_mark,
                head,
                random,
                receipt,
            } = append;
            let id = EventId::embedded(event.received_at, position(self.next_position), random);
            self.next_position += 1;
            if let Some(event) = Arc::get_mut(&mut event) {
                event.id = id;
            }
            // The receiver answers an error if anything below fails: it stays in the turn from here on.
            turn.receipts.push((receipt, id));
            let route = self
                .routes
                .iter()
                .find(|route| Arc::ptr_eq(&route.upstreams, &upstreams));
            let (Some(route), Some(source)) = (route, self.sources.get(&event.source)) else {
                return Err(rusqlite::Error::QueryReturnedNoRows);
            };
            insert.execute(params![
                id.position().get(),
                id.as_bytes(),
                source,
                &*route.blob,
                match key.kind() {
                    crate::key::KeyKind::Rule => 0,
                    crate::key::KeyKind::Digest => 1,
                },
                key.digest(),
                content.as_ref().map(<[u8; 32]>::as_slice),
                body_mark.as_slice(),
                event.received_at.as_millis(),
                event.delivery_id.as_deref(),
                event.event_type.as_deref(),
                head,
                &*event.body,
            ])?;
            turn.appended.push(Appended {
                id,
                source: *source,
                source_name: event.source.clone(),
                lanes: Arc::clone(&route.lanes),
                key,
                content,
                body_mark,
                received_at: event.received_at,
                weight,
                event: Some(event),
                claim: None,
            });
        }
        turn.dirty = true;
        Ok(())
    }

    /// Numbers for names that were never seen, in transactions of their own, so that no rollback takes them back.
    pub(super) fn learn_names(&mut self) -> rusqlite::Result<()> {
        self.learn_routes()?;
        for append in self.appends.iter().take(BATCH_MAX) {
            if !self.sources.contains_key(&append.event.source) {
                let id = learn_source(&self.conn, &append.event.source)?;
                self.sources.insert(append.event.source.clone(), id);
                self.source_names.insert(id, append.event.source.clone());
            }
            if self
                .routes
                .iter()
                .any(|route| Arc::ptr_eq(&route.upstreams, &append.upstreams))
            {
                continue;
            }
            if self.routes.len() >= ROUTES_MAX.max(BATCH_MAX * 2) {
                self.routes.clear();
                return self.learn_names();
            }
            let mut lanes = Vec::new();
            for name in append.upstreams.iter() {
                let known = self.lanes.iter().position(|lane| lane.name == *name);
                let slot = match known {
                    Some(slot) => slot,
                    None => {
                        let upstream = recover::learn_upstream(&self.conn, name)?;
                        let slot = self.lanes.len();
                        self.lane_of.insert(upstream, slot);
                        self.lanes.push(Lane::new(upstream, name.clone(), None));
                        slot
                    }
                };
                if !lanes.contains(&slot) {
                    lanes.push(slot);
                }
            }
            let numbers = lanes.iter().filter_map(|slot| Some(self.lanes.get(*slot)?.upstream));
            self.routes.push(Route {
                upstreams: Arc::clone(&append.upstreams),
                blob: codec::encode_upstreams(numbers).into(),
                lanes: lanes.into(),
            });
        }
        Ok(())
    }
}

fn learn_source(conn: &Connection, name: &SourceName) -> rusqlite::Result<u32> {
    conn.query_row(
        "INSERT INTO source (name) VALUES (?1) ON CONFLICT (name) DO UPDATE SET name = ?1 RETURNING id",
        [name.as_str()],
        |row| row.get(0),
    )
}
