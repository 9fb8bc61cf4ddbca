//! The embedded store: its bench, and what is its own (files, the lock, partitions).

mod records;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;

use super::bench::{Bench, Setup, all_admitted, app, append, deliver, reach, states};
use super::contract::calls::{answer, call, start};
use super::contract::{self, contract, instantiate};
use crate::store::model::{Admission, AppendError, DispatchState};
use crate::store::records::CallEnd;
use crate::store::settings::{Place, SqliteSettings, StoreSettings};
use crate::store::{EventFilter, OpenError, Store, sqlite};
use crate::time::{Clock, Timestamp};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

/// A store in a temporary directory.
pub(super) struct Sqlite {
    directory: TempDir,
    pub(super) setup: Setup,
    pub(super) place: SqliteSettings,
    clock: Clock,
    pub(super) tuning: sqlite::Tuning,
}

impl Bench for Sqlite {
    const SLACK: Duration = Duration::ZERO;

    async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        Self {
            setup: Setup::new(),
            place: SqliteSettings {
                path: directory.path().join("data"),
                min_free: 0,
                ..SqliteSettings::default()
            },
            directory,
            clock: Clock::manual(NOW),
            // Small, so that keys are sealed in partitions and the tail is read back.
            tuning: sqlite::Tuning {
                wal_bytes: 1 << 20,
                partition_keys: 40,
                tail_events: 16,
                tail_bytes: 1 << 20,
                copy_wal_max: 64 << 20,
            },
        }
    }

    fn setup(&self) -> &Setup {
        &self.setup
    }

    fn setup_mut(&mut self) -> &mut Setup {
        &mut self.setup
    }

    async fn open(&self) -> Store {
        self.try_open().unwrap()
    }

    /// Copies the files as they are while the store is open, and goes on with the copy.
    async fn crash(&mut self, store: Store) {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("data");
        std::fs::create_dir(&path).unwrap();
        for file in ["hooksluice.db-wal", "hooksluice.db"] {
            std::fs::copy(self.place.path.join(file), path.join(file)).unwrap();
        }
        self.place.path = path;
        // What the original still tells is not heard any more.
        self.setup.notices = std::sync::Arc::default();
        store.close().await;
        self.directory = directory;
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn later(&self, by: Duration) {
        self.clock.set(self.clock.now().after(by));
    }

    async fn keys_are_pruned(&self, _store: &Store) {
        // Whole partitions go; the newest keys are in the third.
        let old = || async {
            let sql = "SELECT count(*) FROM key_partition WHERE partition < 2";
            self.database().query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
        };
        reach(0, old).await;
    }

    async fn check(&self) {
        let database = self.database();
        let count = |sql: &str| -> i64 { database.query_row(sql, [], |row| row.get(0)).unwrap() };
        let none = [
            (
                "a dispatch without its event",
                "SELECT count(*) FROM dispatch d LEFT JOIN event e ON e.position = d.id >> 14 WHERE e.position IS NULL",
            ),
            (
                "an attempt without its dispatch",
                "SELECT count(*) FROM attempt a LEFT JOIN dispatch d ON d.id = a.dispatch WHERE d.id IS NULL",
            ),
            (
                "an answer without its dispatch",
                "SELECT count(*) FROM reply r LEFT JOIN dispatch d ON d.id = r.dispatch WHERE d.id IS NULL",
            ),
            (
                "an admitted event without a dispatch",
                "SELECT count(*) FROM event WHERE position <= (SELECT max(id) >> 14 FROM dispatch) AND position NOT IN (SELECT id >> 14 FROM dispatch) AND position NOT IN (SELECT position FROM elsewhere)",
            ),
            (
                "a copy without its event",
                "SELECT count(*) FROM elsewhere WHERE position NOT IN (SELECT position FROM event)",
            ),
            (
                "an answer without its record",
                "SELECT count(*) FROM answer a WHERE NOT EXISTS (SELECT 1 FROM record r WHERE r.id = a.record AND r.state = 1)",
            ),
            (
                "a done record without its answer",
                "SELECT count(*) FROM record r WHERE r.state = 1 AND NOT EXISTS (SELECT 1 FROM answer a WHERE a.record = r.id)",
            ),
            (
                "a position beyond the reserved ones",
                "SELECT count(*) FROM event WHERE position >= (SELECT reserved_end FROM meta)",
            ),
            (
                "a page without its partition",
                "SELECT count(*) FROM key_page WHERE id >> 16 NOT IN (SELECT partition FROM key_partition) AND id >> 16 < (SELECT next_partition FROM meta)",
            ),
            (
                "an id that names another position",
                "SELECT count(*) FROM event WHERE substr(hex(id), 21) <> printf('%012X', position)",
            ),
        ];
        for (what, sql) in none {
            assert_eq!(count(sql), 0, "{what}");
        }
        let sound: String = database
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(sound, "ok");
    }
}

impl Sqlite {
    fn try_open(&self) -> Result<Store, OpenError> {
        Store::open_tuned(
            StoreSettings {
                place: Place::Sqlite(self.place.clone()),
                ..self.setup.settings.clone()
            },
            self.setup.lanes(),
            self.clock.clone(),
            self.setup.listener(),
            self.tuning.clone(),
        )
    }

    pub(super) fn database(&self) -> rusqlite::Connection {
        let path = self.place.path.join("hooksluice.db");
        rusqlite::Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
    }
}

contract!(Sqlite);
instantiate! { Sqlite: records::a_start_far_from_the_newest_call_frees_no_key_until_the_clock_agreed }

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_one_event_per_key_and_delivers_each(steps in contract::history::steps(150)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut bench = Sqlite::new().await;
            bench.tuning.partition_keys = 7;
            bench.tuning.tail_events = 3;
            contract::history::keeps_one_event_per_key_and_delivers_each(bench, steps).await;
        });
    }
}

#[tokio::test]
async fn over_its_disk_budget_accepting_stops_and_settling_goes_on() {
    let mut bench = Sqlite::new().await;
    let store = bench.open().await;
    append(&store, &bench.delivery("a")).await;
    all_admitted(&store).await;
    store.close().await;
    bench.setup.settings.max_bytes = 1;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    assert!(matches!(
        store.append(bench.delivery("b").event()).await,
        Err(AppendError::DiskBudget)
    ));
    assert!(store.is_writable().is_err());
    deliver(&store, &mut feed).await;
    store.close().await;
    bench.setup.settings.max_bytes = 1 << 30;
    bench.place.min_free = u64::MAX;
    let store = bench.open().await;
    assert!(matches!(
        store.append(bench.delivery("b").event()).await,
        Err(AppendError::DiskBudget)
    ));
    store.close().await;
    bench.place.min_free = 0;
    let store = bench.open().await;
    assert!(store.is_writable().is_ok());
    append(&store, &bench.delivery("b")).await;
}

#[tokio::test]
async fn one_store_serves_one_process() {
    let bench = Sqlite::new().await;
    let store = bench.open().await;
    assert!(matches!(bench.try_open(), Err(OpenError::Locked { .. })));
    // The lock is none of a file that can be removed.
    std::fs::remove_file(bench.place.path.join("lock")).unwrap();
    assert!(matches!(bench.try_open(), Err(OpenError::Locked { .. })));
    store.close().await;
    drop(bench.open().await);
}

#[tokio::test]
async fn a_symbolic_link_is_not_followed() {
    let bench = Sqlite::new().await;
    bench.open().await.close().await;
    let elsewhere = bench.directory.path().join("elsewhere");
    for name in ["lock", "hooksluice.db"] {
        let path = bench.place.path.join(name);
        std::fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(matches!(bench.try_open(), Err(OpenError::Io { path: refused, .. }) if refused == path));
        std::fs::rename(&elsewhere, &path).unwrap();
    }
    bench.open().await.close().await;
}

#[tokio::test]
async fn a_file_taken_away_from_an_open_store_stops_accepting_until_a_restart() {
    // The stores wait for their next look together.
    let mut stores = Vec::new();
    for name in ["hooksluice.db", "hooksluice.db-wal", "hooksluice.db-shm"] {
        let bench = Sqlite::new().await;
        let store = bench.open().await;
        stores.push((name, bench, store));
    }
    for (name, bench, store) in &stores {
        append(store, &bench.delivery("a")).await;
        let path = bench.place.path.join(name);
        std::fs::rename(&path, path.with_extension("away")).unwrap();
    }
    for (name, bench, store) in stores {
        reach(true, || async { store.is_writable().is_err() }).await;
        let path = bench.place.path.join(name);
        std::fs::rename(path.with_extension("away"), path).unwrap();
        assert!(
            matches!(store.append(bench.delivery("b").event()).await, Err(AppendError::Failed(why)) if why.contains(name))
        );
        assert!(matches!(store.is_writable(), Err(AppendError::Failed(_))));
        store.close().await;
        append(&bench.open().await, &bench.delivery("b")).await;
    }
}

#[tokio::test]
async fn a_store_that_lost_a_file_is_refused_and_opens_when_it_is_back() {
    let bench = Sqlite::new().await;
    let store = bench.open().await;
    append(&store, &bench.delivery("a")).await;
    all_admitted(&store).await;
    store.close().await;
    for name in ["hooksluice.db", "hooksluice.db-wal"] {
        let path = bench.place.path.join(name);
        let away = path.with_extension("away");
        std::fs::rename(&path, &away).unwrap();
        assert!(matches!(bench.try_open(), Err(OpenError::Incomplete { lost, .. }) if lost == path));
        assert!(!path.exists());
        std::fs::write(&path, b"").unwrap();
        assert!(matches!(bench.try_open(), Err(OpenError::Incomplete { lost, .. }) if lost == path));
        std::fs::rename(&away, &path).unwrap();
        bench.open().await.close().await;
    }
    // A person's decision: the database alone, as from a backup.
    for name in ["hooksluice.db-wal", "hooksluice.db-shm", "reserve"] {
        std::fs::remove_file(bench.place.path.join(name)).unwrap();
    }
    let store = bench.open().await;
    let page = store.events(EventFilter::default(), None, 100).await.unwrap();
    assert_eq!(page.events.len(), 1);
}

#[tokio::test]
async fn a_first_opening_that_was_interrupted_goes_on() {
    let bench = Sqlite::new().await;
    std::fs::create_dir(&bench.place.path).unwrap();
    let path = |name: &str| bench.place.path.join(name);
    std::fs::write(path("hooksluice.db"), b"").unwrap();
    std::fs::write(path("lock"), b"").unwrap();
    bench.open().await.close().await;
    std::fs::remove_dir_all(&bench.place.path).unwrap();
    std::fs::create_dir(&bench.place.path).unwrap();
    // The first page says that there is a log; no commit is in it yet.
    let conn = rusqlite::Connection::open(path("hooksluice.db")).unwrap();
    conn.execute_batch("PRAGMA page_size = 8192; PRAGMA journal_mode = wal;")
        .unwrap();
    drop(conn);
    std::fs::write(path("hooksluice.db-wal"), b"").unwrap();
    std::fs::write(path("hooksluice.db-shm"), [0; 32 << 10]).unwrap();
    append(&bench.open().await, &bench.delivery("a")).await;
}

#[tokio::test]
async fn a_newer_schema_is_refused_untouched() {
    let bench = Sqlite::new().await;
    bench.open().await.close().await;
    let path = bench.place.path.join("hooksluice.db");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[63] = 99;
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(
        bench.try_open(),
        Err(OpenError::Newer {
            found: 99,
            known: 6,
            ..
        })
    ));
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[tokio::test]
async fn a_store_of_schema_1_opens_with_its_keys_and_events() {
    let bench = Sqlite::new().await;
    std::fs::create_dir(&bench.place.path).unwrap();
    let path = bench.place.path.join("hooksluice.db");
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch("PRAGMA page_size = 8192; PRAGMA application_id = 1752394851; PRAGMA user_version = 1;")
        .unwrap();
    conn.execute_batch(include_str!("../sqlite/schema_1.sql")).unwrap();
    conn.execute_batch(include_str!("schema_1_rows.sql")).unwrap();
    drop(conn);
    let store = bench.open().await;
    let mut wanted = HashMap::from([(DispatchState::Delivered, 1), (DispatchState::Dead, 1)]);
    wanted.insert(DispatchState::Leased, 1);
    reach(wanted, || states(&store, "app")).await;
    for id in ["delivered", "dead", "pending"] {
        append(&store, &bench.delivery(id)).await;
    }
    all_admitted(&store).await;
    assert!(matches!(
        bench.admissions()[..],
        [
            Admission::Duplicate { conflict: false, .. },
            Admission::Revived { .. },
            Admission::Duplicate { conflict: false, .. }
        ]
    ));
    let mut feed = store.feed(&app()).unwrap();
    for _ in 0..2 {
        deliver(&store, &mut feed).await;
    }
    let begun = start(&store, call(bench.now(), "a")).await;
    store.complete(begun, CallEnd::Done(answer(b"a"))).await.unwrap();
    store.close().await;
    bench.check().await;
    let version: i32 = bench
        .database()
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert_eq!(version, 6);
}

#[tokio::test]
async fn a_foreign_or_damaged_file_is_refused_loudly() {
    let bench = Sqlite::new().await;
    bench.open().await.close().await;
    let path = bench.place.path.join("hooksluice.db");
    let sound = std::fs::read(&path).unwrap();
    std::fs::write(&path, b"#!/bin/sh\n".repeat(100)).unwrap();
    assert!(matches!(bench.try_open(), Err(OpenError::NotOurs { .. })));
    let mut damaged = sound.clone();
    damaged[100..8192].fill(0x5a);
    std::fs::write(&path, &damaged).unwrap();
    let error = anyhow::Error::from(bench.try_open().unwrap_err());
    let text = format!("{error:#}");
    assert_eq!(text.matches("malformed").count(), 1, "{text}");
    assert!(text.contains("restore a backup"), "{text}");
    std::fs::write(&path, &sound).unwrap();
    drop(bench.open().await);
}

#[tokio::test]
async fn a_torn_log_loses_only_what_was_not_committed() {
    let mut bench = Sqlite::new().await;
    let store = bench.open().await;
    for id in 0..10 {
        append(&store, &bench.delivery(id)).await;
    }
    all_admitted(&store).await;
    bench.crash(store).await;
    let wal = bench.place.path.join("hooksluice.db-wal");
    let mut bytes = std::fs::read(&wal).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end - 5..=end].fill(0xa5);
    std::fs::write(&wal, bytes).unwrap();
    let store = bench.open().await;
    let page = store.events(EventFilter::default(), None, 100).await.unwrap();
    assert!(!page.events.is_empty());
    append(&store, &bench.delivery("goes on")).await;
    all_admitted(&store).await;
    store.close().await;
    bench.check().await;
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Sqlite::new().await;
    let store = bench.open().await;
    append(&store, &bench.delivery("a")).await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&bench.place.path), 0o700);
    for entry in std::fs::read_dir(&bench.place.path).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
}
