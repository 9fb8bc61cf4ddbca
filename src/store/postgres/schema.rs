//! What opening asks of the server, and the tables, made or migrated by whichever replica comes first.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::{Conn, Connector, Failure, describe};
use super::stored;
use crate::store::OpenError;
use crate::time::{Clock, Monotonic};

/// The oldest server that has all we use.
const VERSION_MIN: i32 = 150_000;
/// The newest schema this version knows; also the number of [`MIGRATIONS`].
pub(super) const SCHEMA_VERSION: i32 = 4;
const MIGRATIONS: [&str; 4] = [
    include_str!("schema_1.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
];
/// How long a start waits for a database that is away; whoever runs us starts us again.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(500);

/// Connects, waits a while for a database that is away, and makes the tables ready.
pub(super) async fn prepare(connector: &Connector, clock: &Clock) -> Result<(), OpenError> {
    let began = clock.monotonic();
    let mut told: Option<Monotonic> = None;
    loop {
        let failure = match connector.connect(None).await {
            Ok(conn) => match prepare_on(&conn).await {
                Ok(()) => return Ok(()),
                Err(Refusal::Open(error)) => return Err(error),
                Err(Refusal::Database(failure)) => failure,
            },
            Err(failure) => failure,
        };
        let now = clock.monotonic();
        match failure {
            Failure::Lost(why) | Failure::Again(why) if now.since(began) < PATIENCE => {
                if told.is_none_or(|told| now.since(told) > Duration::from_secs(5)) {
                    tracing::warn!(why, "the database does not answer yet");
                    told = Some(now);
                }
            }
            failure => return Err(OpenError::Database(failure.to_string())),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Why the tables cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    Open(OpenError),
    #[error(transparent)]
    Database(Failure),
}

impl From<tokio_postgres::Error> for Refusal {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(Failure::from(error))
    }
}

async fn prepare_on(conn: &Conn) -> Result<(), Refusal> {
    let rows = conn.client.query_typed(include_str!("check.sql"), &[]).await?;
    let Some(row) = rows.first() else {
        return Err(Refusal::Database(Failure::Lost(
            "the server did not say what it is".to_owned(),
        )));
    };
    let found = Found::read(row)?;
    found.judge().map_err(Refusal::Open)?;
    if !found.loses_nothing() {
        tracing::warn!(
            fsync = found.fsync,
            full_page_writes = found.full_page_writes,
            "the server is set to lose data when its machine crashes: what is acknowledged is not safe"
        );
    }
    let version = if found.laid_out {
        Some(version(conn).await?)
    } else {
        None
    };
    if version != Some(SCHEMA_VERSION) || !stored::are_made(conn).await.map_err(Refusal::Database)? {
        migrate(conn).await?;
    }
    Ok(())
}

/// See `check.sql`.
pub(super) struct Found {
    version: i32,
    pub(super) version_text: String,
    standby: bool,
    fsync: bool,
    full_page_writes: bool,
    role: String,
    database: String,
    may_create: bool,
    may_identify: bool,
    present: bool,
    ours: bool,
    owner: Option<String>,
    pub(super) laid_out: bool,
    used: bool,
}

impl Found {
    pub(super) fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            version: row.try_get("version")?,
            version_text: row.try_get("version_text")?,
            standby: row.try_get("standby")?,
            fsync: row.try_get("fsync")?,
            full_page_writes: row.try_get("full_page_writes")?,
            role: row.try_get("role")?,
            database: row.try_get("database")?,
            may_create: row.try_get("may_create")?,
            may_identify: row.try_get("may_identify")?,
            present: row.try_get("present")?,
            ours: row.try_get("ours")?,
            owner: row.try_get("owner")?,
            laid_out: row.try_get("laid_out")?,
            used: row.try_get("used")?,
        })
    }

    /// Whether a crash of the server's machine takes nothing that it has confirmed.
    pub(super) fn loses_nothing(&self) -> bool {
        self.fsync && self.full_page_writes
    }

    pub(super) fn judge(&self) -> Result<(), OpenError> {
        let unsuitable = |why: String| Err(OpenError::Unsuitable(why));
        let Self { role, database, .. } = self;
        if self.version < VERSION_MIN {
            return unsuitable(format!(
                "PostgreSQL 15 or newer is needed, the server is {}",
                self.version_text
            ));
        }
        if self.standby {
            return unsuitable(
                "the server is a read-only standby: name the primary, or all hosts of the cluster".to_owned(),
            );
        }
        if !self.may_identify {
            return unsuitable(format!(
                "role {role} may not ask which server this is: GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO {role}"
            ));
        }
        if self.used && !self.laid_out {
            return Err(OpenError::NotOurs {
                path: PathBuf::from("schema hooksluice"),
            });
        }
        if self.present && !self.ours {
            return unsuitable(format!(
                "schema hooksluice belongs to role {owner}, and role {role} is no member of it: GRANT {owner} TO {role}, or use \
                 that role",
                owner = self.owner.as_deref().unwrap_or("?"),
            ));
        }
        if !self.present && !self.may_create {
            return unsuitable(format!(
                "role {role} may not create a schema: GRANT CREATE ON DATABASE {database} TO {role}, or CREATE SCHEMA hooksluice \
                 AUTHORIZATION {role}"
            ));
        }
        Ok(())
    }
}

pub(super) async fn version(conn: &Conn) -> Result<i32, Refusal> {
    let rows = conn.client.query_typed(include_str!("version.sql"), &[]).await?;
    match rows.first() {
        Some(row) => {
            let version = row.try_get(0)?;
            known(version).map_err(Refusal::Open)
        }
        None => Err(Refusal::Open(OpenError::Damaged("hooksluice.meta is empty".to_owned()))),
    }
}

fn known(version: i32) -> Result<i32, OpenError> {
    if version > SCHEMA_VERSION {
        return Err(OpenError::Newer {
            path: PathBuf::from("schema hooksluice"),
            found: version,
            known: SCHEMA_VERSION,
        });
    }
    Ok(version)
}

/// In one transaction; replicas that start at once wait for each other.
async fn migrate(conn: &Conn) -> Result<(), Refusal> {
    let client = &conn.client;
    client
        .batch_execute(
            "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; SET LOCAL lock_timeout = '20s'; SET LOCAL statement_timeout = 0; \
             SET LOCAL idle_in_transaction_session_timeout = '10s'; SET LOCAL synchronous_commit = on",
        )
        .await?;
    client.query_typed(include_str!("migration_lock.sql"), &[]).await?;
    let laid_out = client.query_typed(include_str!("check.sql"), &[]).await?;
    let (laid_out, present) = match laid_out.first() {
        Some(row) => (row.try_get("laid_out")?, row.try_get("present")?),
        None => (false, false),
    };
    let from = if laid_out { version(conn).await? } else { 0 };
    if from == 0 && !present {
        // Not "IF NOT EXISTS": that needs the right to create even where an administrator has made it.
        client.batch_execute("CREATE SCHEMA hooksluice").await?;
    }
    for (step, sql) in MIGRATIONS.iter().enumerate() {
        let to = i32::try_from(step).unwrap_or(i32::MAX).saturating_add(1);
        if to > from {
            client.batch_execute(sql).await?;
            client
                .query_typed(include_str!("set_version.sql"), &[(&to, Type::INT4)])
                .await?;
        }
    }
    stored::make(conn).await.map_err(Refusal::Database)?;
    client.batch_execute("COMMIT").await.map_err(|error| {
        // Done or not: the next look sees it.
        Refusal::Database(Failure::Lost(describe(&error)))
    })?;
    if from < SCHEMA_VERSION {
        tracing::info!(from, to = SCHEMA_VERSION, "the store's tables are ready");
    }
    Ok(())
}
