//! The pools of connections, and what each answer says about the server: its clock and its identity.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool::managed::{Manager, Metrics, Object, Pool, PoolError, RecycleError, RecycleResult};
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, watch};
use tokio_postgres::Row;
use uuid::Uuid;

use super::connect::{Conn, Connector, Failure};
use super::transaction::{ANSWER_TIMEOUT, Committed, Parameter, Server, Step, transaction};
use crate::time::{Clock, Monotonic, Timestamp};

/// Connections for what senders and lanes wait for: two batches of appends, settles, claims, renewals and the heartbeat; and
/// for calls, two batches that begin, one that ends, renewals, and two that look records up. Made when they are needed.
const WRITERS_MAX: usize = 13;
/// Connections for what people ask, and for forgetting.
const READERS_MAX: usize = 3;
/// How long a connection of the pool may be waited for; making one has its own limit.
const POOL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a command that keeps house may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(600);

/// Where ages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ages {
    /// The database's clock.
    Server,
    /// Our own clock, in tests, which can set no server's.
    #[cfg(test)]
    Own,
}

struct Connections {
    connector: Connector,
    /// A connection ended while it lay idle.
    lost: Arc<AtomicBool>,
}

impl Manager for Connections {
    type Type = Conn;
    type Error = Failure;

    async fn create(&self) -> Result<Conn, Failure> {
        self.connector.connect(None).await
    }

    async fn recycle(&self, conn: &mut Conn, _metrics: &Metrics) -> RecycleResult<Failure> {
        if conn.client.is_closed() {
            self.lost.store(true, Ordering::Release);
            return Err(RecycleError::message("the connection was lost"));
        }
        Ok(())
    }
}

/// The database, as its answers show it.
pub(super) struct Database {
    writers: Pool<Connections>,
    readers: Pool<Connections>,
    clock: Clock,
    ages: Ages,
    seen: Mutex<Seen>,
    /// The name under which others (Redis) may speak for this store; `None` while it is not known which store answers. A
    /// store put back from a copy of its files is the same by every name that the server has, so whoever has lost a
    /// connection, and every start, begins a new era, which the others learn with their next heartbeat.
    identity: watch::Sender<Option<Arc<str>>>,
    /// The identity must be read again.
    pub(super) doubted: Notify,
    /// How often it was.
    doubts: AtomicU64,
    lost: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The server's clock at a moment of ours.
    time: Option<(Timestamp, Monotonic)>,
    /// Of the identity that is published.
    system: i64,
    timeline: String,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

impl Database {
    pub(super) fn new(connector: &Connector, clock: Clock, ages: Ages) -> Result<Self, Failure> {
        let lost = Arc::new(AtomicBool::new(false));
        let pool = |size| {
            let connections = Connections {
                connector: connector.clone(),
                lost: Arc::clone(&lost),
            };
            Pool::builder(connections)
                .max_size(size)
                .runtime(deadpool::Runtime::Tokio1)
                .wait_timeout(Some(POOL_TIMEOUT))
                .create_timeout(Some(POOL_TIMEOUT))
                .build()
                .map_err(|error| Failure::Refused(error.to_string()))
        };
        Ok(Self {
            writers: pool(WRITERS_MAX)?,
            readers: pool(READERS_MAX)?,
            clock,
            ages,
            seen: Mutex::default(),
            identity: watch::channel(None).0,
            doubted: Notify::new(),
            doubts: AtomicU64::new(0),
            lost,
        })
    }

    /// Runs a transaction that somebody waits for. It is durable when this returns `Ok`.
    pub(super) async fn write(&self, steps: &[Step<'_>]) -> Result<Committed, Failure> {
        self.run(&self.writers, steps).await
    }

    /// The same for what can wait.
    pub(super) async fn write_quietly(&self, steps: &[Step<'_>]) -> Result<Committed, Failure> {
        self.run(&self.readers, steps).await
    }

    async fn run(&self, pool: &Pool<Connections>, steps: &[Step<'_>]) -> Result<Committed, Failure> {
        let conn = self.take(pool).await?;
        let done = transaction(&conn, steps).await;
        self.put_back(conn, &done);
        let committed = done?;
        self.saw(&committed.server);
        Ok(committed)
    }

    /// A statement without parameters that is a transaction of its own, for what can wait.
    pub(super) async fn command(&self, sql: &str) -> Result<(), Failure> {
        let conn = self.take(&self.readers).await?;
        let done = match tokio::time::timeout(COMMAND_TIMEOUT, conn.client.batch_execute(sql)).await {
            Ok(answer) => answer.map_err(Failure::from),
            Err(_elapsed) => Err(Failure::Lost("no answer in time".to_owned())),
        };
        self.put_back(conn, &done);
        done
    }

    /// One statement that only reads, for people.
    pub(super) async fn read(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Failure> {
        self.ask(&self.readers, sql, parameters).await
    }

    /// The same for lanes, which must not wait for people.
    pub(super) async fn read_at_once(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Failure> {
        self.ask(&self.writers, sql, parameters).await
    }

    async fn ask(
        &self,
        pool: &Pool<Connections>,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Failure> {
        match self.ask_once(pool, sql, parameters).await {
            // The connection may have been lost long ago, while nobody used it, or is ended just now.
            Err(Failure::Lost(_) | Failure::Again(_)) => self.ask_once(pool, sql, parameters).await,
            answer => answer,
        }
    }

    async fn ask_once(
        &self,
        pool: &Pool<Connections>,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Failure> {
        let conn = self.take(pool).await?;
        let done = match tokio::time::timeout(ANSWER_TIMEOUT, conn.client.query_typed(sql, parameters)).await {
            Ok(answer) => answer.map_err(Failure::from),
            Err(_elapsed) => Err(Failure::Lost("no answer in time".to_owned())),
        };
        self.put_back(conn, &done);
        done
    }

    async fn take(&self, pool: &Pool<Connections>) -> Result<Object<Connections>, Failure> {
        let taken = pool.get().await;
        if self.lost.swap(false, Ordering::AcqRel) {
            self.doubt();
        }
        taken.map_err(|error| {
            self.doubt();
            match error {
                PoolError::Backend(failure) => failure,
                // No connection, so nothing is under way.
                PoolError::Timeout(_) => Failure::Again("no connection to the database in time".to_owned()),
                other => Failure::Again(other.to_string()),
            }
        })
    }

    fn put_back<T>(&self, conn: Object<Connections>, done: &Result<T, Failure>) {
        let lost = matches!(done, Err(Failure::Lost(_))) || conn.client.is_closed();
        if lost {
            // Its next answers would be those of the last transaction.
            drop(Object::take(conn));
            self.doubt();
        }
    }

    /// Closes the connections; what is under way ends.
    pub(super) fn close(&self) {
        self.writers.close();
        self.readers.close();
        self.identity.send_replace(None);
    }

    /// The time that ages are judged by.
    pub(super) fn now(&self) -> Timestamp {
        match self.ages {
            #[cfg(test)]
            Ages::Own => self.clock.now(),
            Ages::Server => {
                let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.time.map_or_else(
                    || self.clock.now(),
                    |(then, at)| then.after(self.clock.monotonic().since(at)),
                )
            }
        }
    }

    /// A time of ours, as the database's clock has it.
    pub(super) fn to_theirs(&self, ours: Timestamp) -> Timestamp {
        let (now, theirs) = (self.clock.now(), self.now());
        if ours >= now {
            theirs.after(ours.since(now))
        } else {
            theirs.before(now.since(ours))
        }
    }

    /// A time by the database's clock, as ours has it.
    pub(super) fn to_ours(&self, theirs: Timestamp) -> Timestamp {
        let (now, there) = (self.clock.now(), self.now());
        if theirs >= there {
            now.after(theirs.since(there))
        } else {
            now.before(there.since(theirs))
        }
    }

    pub(super) fn identity(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.identity.subscribe()
    }

    /// Whether a connection was lost since the store was last identified, or it never was.
    pub(super) fn is_doubted(&self) -> bool {
        self.identity.borrow().is_none()
    }

    /// Changes when the identity is doubted.
    pub(super) fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::Acquire)
    }

    /// Which store answers is not known until it is asked again.
    fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::AcqRel);
        self.identity.send_if_modified(|identity| identity.take().is_some());
        self.doubted.notify_one();
    }

    fn saw(&self, server: &Server) {
        let changed = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.time = Some((server.now, self.clock.monotonic()));
            (seen.system, seen.timeline.as_str()) != (server.system, server.timeline.as_str())
        };
        if changed && self.identity.borrow().is_some() {
            self.doubt();
        }
    }

    /// Publishes what `identity.sql` found, unless it was doubted since `doubts`.
    pub(super) fn identify(&self, row: &Row, doubts: u64) -> Result<(), Failure> {
        let store: Uuid = row.try_get("store")?;
        let system: i64 = row.try_get("system_identifier")?;
        let timeline: String = row.try_get("timeline")?;
        let table: u32 = row.try_get("key_table")?;
        let mut hash = Sha256::new();
        hash.update(store.as_bytes());
        hash.update(row.try_get::<_, Uuid>("era")?.as_bytes());
        hash.update(system.to_be_bytes());
        hash.update(table.to_be_bytes());
        hash.update(timeline.as_bytes());
        let digest = data_encoding::HEXLOWER.encode(&hash.finalize());
        let name: Arc<str> = digest.get(..24).unwrap_or(&digest).into();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.system = system;
        seen.timeline = timeline;
        drop(seen);
        if self.doubts() != doubts {
            return Ok(());
        }
        self.identity
            .send_if_modified(|identity| identity.replace(Arc::clone(&name)).as_ref() != Some(&name));
        Ok(())
    }
}
