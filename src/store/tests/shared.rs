//! The shared store: its bench, and what is its own (failures of the network and the database, poolers, replicas).

mod bouncer;
mod calls;
mod faults;
mod reconfigure;
mod relay;
mod server;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::server::Database;
use super::bench::{Bench, LAPSED, Setup, SharedBench, reach};
use super::contract::{contract, instantiate, shared_contract};
use crate::secret::Secret;
use crate::store::settings::{Place, PostgresSettings, StoreSettings};
use crate::store::{Backend, OpenError, Store, postgres};
use crate::time::{Clock, Timestamp};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

/// A store in a database of its own.
pub(super) struct Postgres {
    database: Database,
    setup: Setup,
    place: PostgresSettings,
    clock: Clock,
    tuning: postgres::Tuning,
    /// A process died, and its leases last for a while.
    crashed: AtomicBool,
}

impl Bench for Postgres {
    const SLACK: Duration = Duration::ZERO;

    async fn new() -> Self {
        let database = Database::create().await;
        Self {
            setup: Setup::new(),
            place: PostgresSettings::read(database.url()).unwrap(),
            database,
            clock: Clock::manual(NOW),
            tuning: postgres::Tuning::for_tests(),
            crashed: AtomicBool::new(false),
        }
    }

    fn setup(&self) -> &Setup {
        &self.setup
    }

    fn setup_mut(&mut self) -> &mut Setup {
        &mut self.setup
    }

    async fn open(&self) -> Store {
        self.try_open().await.unwrap()
    }

    async fn crash(&mut self, store: Store) {
        of(&store).crash().await;
        self.crashed.store(true, Ordering::Relaxed);
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The server's clock, by which leases go, cannot be set; what it would do to those of dead processes can.
    async fn later(&self, by: Duration) {
        self.clock.set(self.clock.now().after(by));
        if by >= LAPSED && self.crashed.swap(false, Ordering::Relaxed) {
            let over = "UPDATE hooksluice.dispatch SET lease_until = clock_timestamp() WHERE state = 1; \
                UPDATE hooksluice.record SET lease_until = clock_timestamp() - interval '1 second' WHERE state = 0; UPDATE hooksluice.share SET valid_until = clock_timestamp()";
            self.database.run(over).await;
        }
    }

    async fn keys_are_pruned(&self, _store: &Store) {
        let old = self.clock.now().before(self.setup.settings.window).as_millis();
        let sql = format!(
            "SELECT count(*) FROM hooksluice.key k WHERE k.received_at < {old} AND NOT EXISTS (SELECT FROM hooksluice.dispatch d \
             WHERE d.event = k.event AND d.state < 4)"
        );
        reach(0, || self.database.number(&sql)).await;
    }

    async fn check(&self) {
        let none = [
            (
                "a dispatch without its event",
                "SELECT count(*) FROM hooksluice.dispatch d WHERE NOT EXISTS (SELECT FROM hooksluice.event e WHERE e.id = d.event)",
            ),
            (
                "an event without a dispatch",
                "SELECT count(*) FROM hooksluice.event e WHERE NOT EXISTS (SELECT FROM hooksluice.dispatch d WHERE d.event = e.id)",
            ),
            (
                "an attempt without its dispatch",
                "SELECT count(*) FROM hooksluice.attempt a WHERE NOT EXISTS (SELECT FROM hooksluice.dispatch d \
                 WHERE d.event = a.event AND d.upstream = a.upstream)",
            ),
            (
                "an answer without its event",
                "SELECT count(*) FROM hooksluice.reply r WHERE NOT EXISTS (SELECT FROM hooksluice.event e WHERE e.id = r.event)",
            ),
            (
                "two events with one rule key",
                &format!(
                    "SELECT count(*) FROM hooksluice.event a JOIN hooksluice.event b USING (source, key) \
                     WHERE a.key_kind = 0 AND b.key_kind = 0 AND a.id < b.id AND b.received_at - a.received_at < {}",
                    self.setup.settings.window.as_millis()
                ),
            ),
            (
                "a lease that nobody handed back",
                "SELECT count(*) FROM hooksluice.dispatch WHERE state = 1 AND lease_until > clock_timestamp()",
            ),
            (
                "an answer without its record",
                "SELECT count(*) FROM hooksluice.answer a WHERE NOT EXISTS (SELECT FROM hooksluice.record r WHERE r.answer = a.number)",
            ),
            (
                "a done record without its answer",
                "SELECT count(*) FROM hooksluice.record r WHERE r.state = 1 AND NOT EXISTS (SELECT FROM hooksluice.answer a WHERE a.number = r.answer)",
            ),
            (
                "a record that the tally does not know",
                "SELECT count(*) FROM (SELECT coalesce(sum(done), 0) d, coalesce(sum(unstored), 0) u FROM hooksluice.record_tally) t, \
                 (SELECT count(*) FILTER (WHERE state = 1) d, count(*) FILTER (WHERE state = 2) u FROM hooksluice.record) r \
                 WHERE (t.d, t.u) IS DISTINCT FROM (r.d, r.u)",
            ),
            (
                "a state that the tally does not know",
                "SELECT count(*) FROM (SELECT upstream, sum(pending) p, sum(leased) l, sum(dead) d, sum(held) h, sum(delivered) v, \
                 sum(discarded) x, sum(made) - sum(pruned) m FROM hooksluice.tally GROUP BY upstream) t \
                 FULL JOIN (SELECT upstream, count(*) FILTER (WHERE state = 0) p, count(*) FILTER (WHERE state = 1) l, \
                 count(*) FILTER (WHERE state = 2) d, count(*) FILTER (WHERE state = 3) h, count(*) FILTER (WHERE state = 4) v, \
                 count(*) FILTER (WHERE state = 5) x, count(*) m FROM hooksluice.dispatch GROUP BY upstream) s USING (upstream) \
                 WHERE (t.p, t.l, t.d, t.h, t.v, t.x, t.m) IS DISTINCT FROM (s.p, s.l, s.d, s.h, s.v, s.x, s.m) AND \
                 (t.p, t.l, t.d, t.h, t.v, t.x, t.m) IS DISTINCT FROM (0, 0, 0, 0, 0, 0, 0)",
            ),
        ];
        for (what, sql) in none {
            assert_eq!(self.database.number(sql).await, 0, "{what}");
        }
    }
}

impl SharedBench for Postgres {
    async fn freeze(&self, store: &Store) {
        of(store).freeze();
        self.crashed.store(true, Ordering::Relaxed);
    }
}

fn of(store: &Store) -> &postgres::Backend {
    match &store.backend {
        Backend::Postgres(postgres) => postgres,
        other => panic!("{other:?}"),
    }
}

impl Postgres {
    /// A database of the same name on another server.
    async fn database_on(&self, server: &server::Server) -> String {
        self.database.create_on(server).await;
        self.database.name.clone()
    }

    async fn run_on(&self, server: &server::Server, database: &str, sql: &str) {
        self.database.run_on(server, database, sql).await;
    }

    async fn try_open(&self) -> Result<Store, OpenError> {
        self.try_open_at(self.place.url().clone()).await
    }

    /// Opens the store over another way to the same database.
    async fn try_open_at(&self, url: Secret) -> Result<Store, OpenError> {
        let place = PostgresSettings::read(url).map_err(|error| OpenError::Unsuitable(error.to_string()))?;
        Store::open_shared(
            StoreSettings {
                place: Place::Postgres(place),
                ..self.setup.settings.clone()
            },
            self.setup.lanes(),
            self.clock.clone(),
            self.setup.listener(),
            self.tuning.clone(),
        )
        .await
    }
}

contract!(Postgres);
shared_contract!(Postgres);
instantiate! { Postgres: records::a_start_far_from_the_newest_call_frees_no_key_until_the_clock_agreed }
