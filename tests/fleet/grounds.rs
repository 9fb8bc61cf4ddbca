//! What most tests stand on: a shared database or separate stores, a Redis, an upstream that keeps accounts.

use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use crate::harness::dice::body;
use crate::harness::fleet::{Balancer, Fleet, Lines};
use crate::harness::ledger::Accountant;
use crate::harness::postgres::{Database, Postgres};
use crate::harness::redis::Redis;
use crate::harness::{Request, Server, Setup, eventually, sign};

/// A database on the cluster of all tests, and a Redis of a test's own. Dropped after the servers that use them.
pub(crate) struct Grounds {
    pub(crate) accountant: Accountant,
    pub(crate) redis: Redis,
    pub(crate) database: Database,
    pub(crate) postgres: Arc<Postgres>,
}

impl Grounds {
    pub(crate) fn new() -> Self {
        let postgres = Postgres::shared();
        Self {
            accountant: Accountant::start(),
            redis: Redis::start(),
            database: postgres.database(),
            postgres,
        }
    }

    /// On the shared database, with Redis.
    pub(crate) fn shared(&self) -> Setup {
        setup(&self.accountant)
            .postgres(&self.database.url())
            .redis(&self.redis.url(), "")
    }

    pub(crate) fn fleet(&self, size: usize) -> Fleet {
        Fleet::start((0..size).map(|_| self.shared()).collect())
    }
}

/// A source `plain`, and retries that tests can wait for.
pub(crate) fn setup(accountant: &Accountant) -> Setup {
    Setup::new(&accountant.upstream)
        .upstream("retry = { first = \"50ms\", max = \"500ms\" }")
        .plain()
}

/// With a store of its own and this Redis; `"refuse"` but for what a test says.
pub(crate) fn separate(accountant: &Accountant, redis: &str) -> Setup {
    setup(accountant).redis(redis, "namespace = \"fleet\"\non_down = \"refuse\"")
}

/// The request of a delivery id.
pub(crate) fn request(id: &str) -> Request {
    sign::plain("/hooks/plain", id, &body(id))
}

/// Is answered 200.
#[track_caller]
pub(crate) fn accept(server: &Server, id: &str) -> bool {
    let answer = server.send(&request(id));
    assert_eq!(answer.status, 200, "{id}: {answer:?}\n{}", server.log_text());
    answer.header("Hooksluice-Duplicate") == Some("true")
}

/// Waits until so many delivery ids were answered 200 by the upstream.
#[track_caller]
pub(crate) fn delivered(accountant: &Accountant, count: usize) {
    eventually(&format!("{count} deliveries"), || {
        accountant.read(|ledger| (ledger.delivered.len() >= count).then_some(()))
    });
}

/// Waits until every server has admitted what it appended, and nothing is to be forwarded.
#[track_caller]
pub(crate) fn settled(fleet: &Fleet) {
    let waiting = || {
        let states = ["state=\"pending\"", "state=\"leased\""];
        let dispatches = states.map(|state| fleet.metric("hooksluice_dispatches", &[state]));
        dispatches.iter().sum::<f64>() + fleet.metric("hooksluice_unadmitted", &[])
    };
    // Twice, since a copy may be between two of the counts.
    eventually("everything to be settled", || {
        (waiting() == 0.0).then(|| std::thread::sleep(Duration::from_millis(200)))?;
        (waiting() == 0.0).then_some(())
    });
}

/// Every delivery id came to the upstream exactly once and under one event id.
#[track_caller]
pub(crate) fn assert_once(accountant: &Accountant, count: usize) {
    accountant.read(|ledger| {
        assert!(ledger.wrong.is_empty(), "{:#?}", ledger.wrong);
        assert_eq!(ledger.delivered.len(), count, "delivered");
        assert_eq!(ledger.attempts, count as u64, "attempts");
    });
}

/// Events under this delivery id, as a server lists them.
pub(crate) fn events(server: &Server, id: &str) -> Vec<serde_json::Value> {
    server.events(&format!("delivery_id={id}"))
}

/// The state of the only dispatch of this delivery id; `None` until it is there.
pub(crate) fn state(server: &Server, id: &str) -> Option<String> {
    let events = events(server, id);
    let dispatch = events.first()?["dispatches"].get(0)?.clone();
    Some(dispatch["state"].as_str()?.to_owned())
}

/// Waits until the only dispatch of this delivery id is in this state.
#[track_caller]
pub(crate) fn wait_for_state(server: &Server, id: &str, wanted: &str) {
    eventually(&format!("{id} to be {wanted}"), || {
        (state(server, id).as_deref() == Some(wanted)).then_some(())
    });
}

pub(crate) const ROUNDS: usize = 200;
pub(crate) const COPIES: usize = 50;
pub(crate) const THREADS: usize = 10;

/// In each round all copies of one id are written to all replicas before any answer is read; all are answered 200.
pub(crate) fn storm(balancer: &Balancer, rounds: usize) {
    let barrier = Barrier::new(THREADS);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (barrier, wrong) = (&barrier, &wrong);
            scope.spawn(move || {
                let copies = COPIES / THREADS;
                let mut lines: Vec<_> = (0..copies).map(|_| Lines::default()).collect();
                for round in 0..rounds {
                    let request = request(&format!("round-{round}"));
                    barrier.wait();
                    let replica = |copy: usize| (thread + copy) % balancer.len();
                    for (copy, lines) in lines.iter_mut().enumerate() {
                        lines.write(balancer, replica(copy), &request).unwrap();
                    }
                    for (copy, lines) in lines.iter_mut().enumerate() {
                        match lines.read(replica(copy)) {
                            Ok(answer) if answer.status == 200 => {}
                            other => wrong.lock().unwrap().push(format!("{round}: {other:?}")),
                        }
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of the answers: {wrong:#?}", wrong.len());
}

/// The provider's button, pressed until it has worked: another replica may know the event as it was for ten seconds.
#[track_caller]
pub(crate) fn redeliver(server: &Server, accountant: &Accountant, id: &str) {
    let before = accountant.read(|ledger| ledger.attempts);
    eventually("the redelivery to make an attempt", || {
        accept(server, id);
        std::thread::sleep(std::time::Duration::from_millis(100));
        (accountant.read(|ledger| ledger.attempts) > before).then_some(())
    });
}

/// One event with these attempt numbers, delivered in the end.
#[track_caller]
pub(crate) fn lived(server: &Server, accountant: &Accountant, id: &str, numbers: &[u32]) {
    wait_for_state(server, id, "delivered");
    assert_eq!(events(server, id).len(), 1);
    accountant.read(|ledger| {
        assert_eq!(ledger.numbers(id), numbers);
        assert!(ledger.wrong.is_empty(), "{:?}", ledger.wrong);
    });
}

/// Waits until Redis holds a mark of a death.
pub(crate) fn dead_mark(redis: &Redis) {
    eventually("Redis to know of the death", || {
        redis
            .keys()
            .values()
            .any(|value| value.starts_with("dead:"))
            .then_some(())
    });
}

/// The replica that makes the only attempt under way: not always the one that accepted the event.
#[track_caller]
pub(crate) fn holder(fleet: &Fleet, accountant: &Accountant) -> usize {
    eventually("the attempt to arrive", || {
        accountant.read(|ledger| (ledger.attempts == 1).then_some(()))
    });
    let runs = |server: &Server| {
        let list = server.admin_get("/api/v1/upstreams").json();
        list["upstreams"][0]["running"] == 1
    };
    eventually("an attempt under way", || {
        (0..fleet.len()).find(|index| runs(fleet.server(*index)))
    })
}

/// May warn of what a test does to it.
pub(crate) fn noisy(setup: Setup) -> Setup {
    setup
        .allow_log("\"level\":\"WARN\"")
        .allow_log("the database does not take what it is given")
}
