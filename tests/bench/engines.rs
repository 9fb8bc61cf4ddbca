//! What hooksluice keeps its events in, and the engines behind it with what they use.

use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;

use crate::harness::postgres::{Database, Postgres};
use crate::harness::redis::Redis;
use crate::server::cpu_of;

/// Where events are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// The embedded store.
    Sqlite,
    /// A store on PostgreSQL.
    Postgres,
    /// The same with Redis in front.
    PostgresRedis,
    /// An embedded store with Redis, as several replicas with a store each have it.
    SqliteRedis,
}

/// Running engines; each server gets a database of its own.
#[derive(Debug)]
pub(crate) struct Engines {
    postgres: Option<Postgres>,
    redis: Option<Redis>,
}

impl Engines {
    pub(crate) fn start(kind: Kind) -> Self {
        let postgres = matches!(kind, Kind::Postgres | Kind::PostgresRedis).then(Postgres::start);
        let redis = matches!(kind, Kind::PostgresRedis | Kind::SqliteRedis).then(Redis::start);
        Self { postgres, redis }
    }

    /// The tables of a server's configuration, for a store in `directory` or a new database.
    pub(crate) fn tables(&self, directory: &Path) -> String {
        let mut tables = "[store]\nretention = \"1s\"\n".to_owned();
        match &self.postgres {
            Some(postgres) => {
                let url = Database::url(&postgres.database());
                tables.push_str(&format!("[store.postgres]\nurl = \"{url}\"\n"));
            }
            None => tables.push_str(&format!(
                "[store.sqlite]\npath = \"{}\"\n",
                directory.join("store").display()
            )),
        }
        if let Some(redis) = &self.redis {
            tables.push_str(&format!("[dedupe.redis]\nurl = \"{}\"\n", redis.url()));
            if self.postgres.is_none() {
                tables.push_str("namespace = \"bench\"\n");
            }
        }
        tables
    }

    /// CPU time of all their processes, those that have ended left out.
    pub(crate) fn cpu(&self) -> Duration {
        let postgres = self.postgres.as_ref().map(|postgres| {
            let postmaster = postgres.pid();
            let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"));
            let children = children.unwrap_or_default();
            let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
            pids.map(cpu_of).sum::<Duration>() + cpu_of(postmaster)
        });
        let redis = self.redis.as_ref().map(|redis| cpu_of(redis.pid()));
        postgres.unwrap_or_default() + redis.unwrap_or_default()
    }
}
