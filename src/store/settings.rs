//! `[store]` and the parts of `[dedupe]` and `[limits]` that a store is held to.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::id::{SourceName, UpstreamName};
use crate::secret::Secret;
use crate::store::postgres;
use crate::time::Timestamp;

/// What a store is opened with.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Where it is.
    pub place: Place,
    /// How long finished events are kept with their bodies.
    pub retention: Duration,
    /// How long dead dispatches and their events are kept.
    pub dead_retention: Duration,
    /// Bytes the store may take on its disk; over it accepting stops, settling goes on.
    pub max_bytes: u64,
    /// How long keys made by a `dedupe` rule are remembered, at least.
    pub window: Duration,
    /// How long keys made from a content digest are remembered, exactly.
    pub digest_window: Duration,
    /// Bound on appended events that wait for admission.
    pub unadmitted: usize,
    /// Deaths are kept until they were told ([`Store::untold_deaths`](crate::store::Store::untold_deaths)): where Redis
    /// is configured.
    pub keep_deaths: bool,
    /// Sources whose sender waits for the upstream's answer, and for how long. Their dispatches are attempted by whoever
    /// has the sender ([`Store::lease_now`](crate::store::Store::lease_now)); so long after the receipt (or a revival) they
    /// are due for their lane.
    pub synchronous: BTreeMap<SourceName, Duration>,
}

impl StoreSettings {
    /// When a dispatch of this source is due for its lane, that begins at `start`.
    pub(super) fn due(&self, source: &SourceName, start: Timestamp) -> Timestamp {
        match self.synchronous.get(source) {
            Some(patience) => start.after(*patience),
            None => start,
        }
    }

    /// What of these, with the configured upstreams, can be changed while the store is open.
    pub fn live(&self, lanes: Vec<LaneSettings>) -> Live {
        Live {
            lanes,
            window: self.window,
            synchronous: self.synchronous.clone(),
        }
    }

    /// Takes over what can be changed; the lanes are not here.
    pub(super) fn take_over(&mut self, live: &Live) {
        self.window = live.window;
        self.synchronous.clone_from(&live.synchronous);
    }

    /// The defaults, for an embedded store in this directory.
    pub fn embedded(path: impl Into<PathBuf>) -> Self {
        Self {
            place: Place::Sqlite(SqliteSettings {
                path: path.into(),
                ..SqliteSettings::default()
            }),
            ..Self::default()
        }
    }
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            place: Place::Sqlite(SqliteSettings::default()),
            retention: Duration::from_secs(3 * 86_400),
            dead_retention: Duration::from_secs(30 * 86_400),
            max_bytes: 20 << 30,
            window: Duration::from_secs(7 * 86_400),
            digest_window: Duration::from_secs(300),
            unadmitted: 100_000,
            keep_deaths: false,
            synchronous: BTreeMap::new(),
        }
    }
}

/// What a store takes over from another configuration while it is open ([`Store::reconfigure`](super::Store::reconfigure)).
/// Everything else of [`StoreSettings`] needs a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// The configured upstreams. Dispatches of others are held.
    pub lanes: Vec<LaneSettings>,
    /// See [`StoreSettings::window`]: sources raise it.
    pub window: Duration,
    /// See [`StoreSettings::synchronous`].
    pub synchronous: BTreeMap<SourceName, Duration>,
}

/// One upstream of the configuration, as a store needs to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneSettings {
    /// Its name.
    pub upstream: UpstreamName,
    /// Into how many equal parts its pace can be divided between replicas; at least 1.
    pub units: u32,
}

/// `[store.sqlite]` or `[store.postgres]`.
#[derive(Clone, Debug)]
pub enum Place {
    /// Embedded, for one process.
    Sqlite(SqliteSettings),
    /// Shared by any number of replicas.
    Postgres(PostgresSettings),
}

/// For people: the directory, or host and database without user and password.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(sqlite) => sqlite.path.display().fmt(f),
            Self::Postgres(postgres) => write!(f, "postgres at {}", postgres.shown),
        }
    }
}

/// `[store.sqlite]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteSettings {
    /// Its directory (created with mode 0700).
    pub path: PathBuf,
    /// Bytes that must stay free on the file system; below it accepting stops, settling goes on.
    pub min_free: u64,
    /// Several replicas have a store each: what was appended is admitted only with a
    /// [`Claim`](crate::store::model::Claim).
    pub separate: bool,
    /// The name under which Redis is told of the events, where it is. A copy of a store is not opened under a name of
    /// the store that it was copied from.
    pub namespace: Option<String>,
}

impl Default for SqliteSettings {
    fn default() -> Self {
        Self {
            path: PathBuf::from("hooksluice-data"),
            min_free: 512 << 20,
            separate: false,
            namespace: None,
        }
    }
}

/// Why the URL of a database is of no use; said without repeating it, since it holds a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadUrl(pub(super) String);

/// `[store.postgres]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresSettings {
    url: Secret,
    shown: String,
}

impl PostgresSettings {
    /// From a `postgres://` URL or a connection string, as libpq writes them; it holds a password.
    ///
    /// # Errors
    /// What is wrong with it, without repeating it.
    pub fn read(url: Secret) -> Result<Self, BadUrl> {
        let shown = postgres::shown(&url)?;
        Ok(Self { url, shown })
    }

    pub(super) fn url(&self) -> &Secret {
        &self.url
    }
}
