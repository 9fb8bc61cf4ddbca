//! Names of sources, upstreams and routes and their numbers in the database, learnt once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_postgres::types::Type;

use super::connect::Failure;
use super::database::Database;
use super::transaction::Step;

/// The statements that know one kind of name.
struct Table {
    learn: &'static str,
    ids: &'static str,
    names: &'static str,
}

const SOURCES: Table = Table {
    learn: include_str!("learn_sources.sql"),
    ids: include_str!("source_ids.sql"),
    names: include_str!("source_names.sql"),
};
const UPSTREAMS: Table = Table {
    learn: include_str!("learn_upstreams.sql"),
    ids: include_str!("upstream_ids.sql"),
    names: include_str!("upstream_names.sql"),
};
const ROUTES: Table = Table {
    learn: include_str!("learn_routes.sql"),
    ids: include_str!("route_ids.sql"),
    names: include_str!("route_names.sql"),
};

/// One kind of name.
pub(super) struct Names {
    table: Table,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    ids: HashMap<String, i32>,
    names: HashMap<i32, String>,
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names")
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

impl Names {
    pub(super) fn sources() -> Self {
        Self {
            table: SOURCES,
            known: Mutex::default(),
        }
    }

    pub(super) fn upstreams() -> Self {
        Self {
            table: UPSTREAMS,
            known: Mutex::default(),
        }
    }

    pub(super) fn routes() -> Self {
        Self {
            table: ROUTES,
            known: Mutex::default(),
        }
    }

    /// A name's number, if it is known here.
    pub(super) fn id(&self, name: &str) -> Option<i32> {
        self.lock().ids.get(name).copied()
    }

    /// The name with this number, if it is known here.
    pub(super) fn name(&self, id: i32) -> Option<String> {
        self.lock().names.get(&id).cloned()
    }

    /// Gives these names numbers where they have none, in a transaction of its own.
    pub(super) async fn learn<'a>(
        &self,
        database: &Database,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), Failure> {
        let mut unknown: Vec<&str> = {
            let known = self.lock();
            names
                .into_iter()
                .filter(|name| !known.ids.contains_key(*name))
                .collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        unknown.sort_unstable();
        unknown.dedup();
        let steps = [
            Step::new(self.table.learn, [(&unknown as _, Type::TEXT_ARRAY)]),
            Step::new(self.table.ids, [(&unknown as _, Type::TEXT_ARRAY)]),
        ];
        let committed = database.write(&steps).await?;
        self.remember(committed.step(1))
    }

    /// Finds the numbers of names that may have none.
    pub(super) async fn look_up<'a>(
        &self,
        database: &Database,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), Failure> {
        let unknown: Vec<&str> = {
            let known = self.lock();
            names
                .into_iter()
                .filter(|name| !known.ids.contains_key(*name))
                .collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let rows = database.read(self.table.ids, &[(&unknown, Type::TEXT_ARRAY)]).await?;
        self.remember(&rows)
    }

    /// Finds the names of these numbers.
    pub(super) async fn find(&self, database: &Database, ids: impl IntoIterator<Item = i32>) -> Result<(), Failure> {
        let unknown: Vec<i32> = {
            let known = self.lock();
            ids.into_iter().filter(|id| !known.names.contains_key(id)).collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let rows = database.read(self.table.names, &[(&unknown, Type::INT4_ARRAY)]).await?;
        self.remember(&rows)
    }

    fn remember(&self, rows: &[tokio_postgres::Row]) -> Result<(), Failure> {
        let mut known = self.lock();
        for row in rows {
            let (name, id): (String, i32) = (row.try_get(0)?, row.try_get(1)?);
            known.ids.insert(name.clone(), id);
            known.names.insert(id, name);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
