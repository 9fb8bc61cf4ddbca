//! What the campaign does to the world: faults in an order that dice decide, each healed after a while.

use std::collections::BTreeMap;
use std::time::Duration;

use hooksluice::time::{Clock, Monotonic};

use crate::harness::dice::Dice;
use crate::harness::fleet::Fleet;
use crate::harness::postgres::Postgres;
use crate::harness::redis::Redis;
use crate::harness::relay::Relay;

/// How long after a replica came back a request may still fail by its having been away.
const SLACK: Duration = Duration::from_secs(2);

/// Dropped in this order: servers before what they lean on.
pub(crate) struct World {
    pub(crate) fleet: Fleet,
    pub(crate) redis_links: Vec<Relay>,
    /// Empty where every replica has a store of its own.
    pub(crate) postgres_links: Vec<Relay>,
    /// The primary and, if there is a second, its replica.
    pub(crate) redis: Vec<Redis>,
    pub(crate) postgres: Option<Postgres>,
    /// Index in `redis`.
    primary: usize,
    redis_up: bool,
    postgres_up: bool,
    frozen: Vec<bool>,
    /// Since when a replica is away: killed, stopped, or starting.
    away: Vec<Option<Monotonic>>,
    absences: Vec<(usize, Monotonic, Monotonic)>,
    due: Vec<(Monotonic, Cure)>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
    clock: Clock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// SIGKILL, started again soon.
    Kill,
    /// SIGSTOP.
    Freeze,
    Flush,
    RedisRestart,
    /// The replica is promoted and the old primary dies; it comes back as the new one's replica.
    RedisFailOver,
    RedisCut,
    RedisHold,
    RedisRefuse,
    RedisSlow,
    PostgresCut,
    PostgresHold,
    PostgresRefuse,
    PostgresSlow,
    /// Immediate shutdown.
    PostgresRestart,
    /// SIGKILL of the postmaster.
    PostgresKill,
}

impl Fault {
    /// All of them.
    pub(crate) const SHARED: [Self; 15] = [
        Self::Kill,
        Self::Freeze,
        Self::Flush,
        Self::RedisRestart,
        Self::RedisFailOver,
        Self::RedisCut,
        Self::RedisHold,
        Self::RedisRefuse,
        Self::RedisSlow,
        Self::PostgresCut,
        Self::PostgresHold,
        Self::PostgresRefuse,
        Self::PostgresSlow,
        Self::PostgresRestart,
        Self::PostgresKill,
    ];

    /// Those under which separate stores keep P2: Redis keeps what it was told.
    pub(crate) const SEPARATE: [Self; 7] = [
        Self::Kill,
        Self::Freeze,
        Self::RedisRestart,
        Self::RedisCut,
        Self::RedisHold,
        Self::RedisRefuse,
        Self::RedisSlow,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "SIGKILL of a replica",
            Self::Freeze => "SIGSTOP of a replica",
            Self::Flush => "FLUSHALL",
            Self::RedisRestart => "Redis restarted",
            Self::RedisFailOver => "Redis failed over",
            Self::RedisCut => "Redis cut",
            Self::RedisHold => "Redis held",
            Self::RedisRefuse => "Redis refused",
            Self::RedisSlow => "Redis slow",
            Self::PostgresCut => "Postgres cut",
            Self::PostgresHold => "Postgres held",
            Self::PostgresRefuse => "Postgres refused",
            Self::PostgresSlow => "Postgres slow",
            Self::PostgresRestart => "Postgres restarted at once",
            Self::PostgresKill => "Postgres killed",
        }
    }
}

/// What ends a fault.
#[derive(Clone, Copy, Debug)]
enum Cure {
    Launch(usize),
    Thaw(usize),
    RedisLink(usize),
    PostgresLink(usize),
    StartRedis,
    /// As a replica of the primary.
    StartOldPrimary(usize),
    StartPostgres,
}

impl World {
    pub(crate) fn new(
        fleet: Fleet,
        redis_links: Vec<Relay>,
        postgres_links: Vec<Relay>,
        redis: Vec<Redis>,
        postgres: Option<Postgres>,
        clock: &Clock,
    ) -> Self {
        Self {
            frozen: vec![false; fleet.len()],
            away: vec![None; fleet.len()],
            fleet,
            redis_links,
            postgres_links,
            redis,
            postgres,
            primary: 0,
            redis_up: true,
            postgres_up: true,
            absences: Vec::new(),
            due: Vec::new(),
            counts: BTreeMap::new(),
            clock: clock.clone(),
        }
    }

    /// Cures what is due, and sees to replicas that come up.
    pub(crate) fn tend(&mut self) {
        let now = self.clock.monotonic();
        let (due, later): (Vec<_>, Vec<_>) = self.due.drain(..).partition(|(at, _)| *at <= now);
        self.due = later;
        for (_, cure) in due {
            self.cure(cure);
        }
        self.fleet.tend();
        for index in 0..self.fleet.len() {
            if let Some(from) = self.away[index]
                && !self.frozen[index]
                && self.fleet.is_running(index)
            {
                self.away[index] = None;
                self.absences.push((index, from, self.clock.monotonic()));
            }
        }
    }

    /// Does it, unless what it harms is harmed already.
    pub(crate) fn harm(&mut self, fault: Fault, dice: &mut Dice) {
        let index = dice.index(self.fleet.len());
        let short = Duration::from_millis(dice.below(2500));
        let long = Duration::from_millis(1000 + dice.below(9000));
        // Some much longer than a lease.
        let very_long = if dice.below(3) == 0 { long * 2 } else { long };
        let cure = match fault {
            Fault::Kill if self.fleet.is_running(index) => {
                self.frozen[index] = false;
                self.leave(index);
                self.fleet.kill(index);
                Some((short, Cure::Launch(index)))
            }
            Fault::Freeze if self.fleet.is_running(index) && self.frozen.iter().all(|frozen| !frozen) => {
                self.frozen[index] = true;
                self.leave(index);
                self.fleet.server(index).freeze();
                Some((very_long, Cure::Thaw(index)))
            }
            Fault::Flush if self.redis_up => {
                self.redis[self.primary].flush();
                None
            }
            Fault::RedisRestart if self.redis_up => {
                self.redis_up = false;
                self.redis[self.primary].kill();
                Some((short, Cure::StartRedis))
            }
            Fault::RedisFailOver if self.redis_up && self.redis.len() > 1 && !self.fails_over() => {
                let old = self.primary;
                self.primary = 1 - old;
                self.redis[self.primary].promote();
                self.redis[old].kill();
                for link in &self.redis_links {
                    link.point_to(self.redis[self.primary].address());
                }
                Some((short, Cure::StartOldPrimary(old)))
            }
            Fault::RedisCut => {
                self.redis_links[index].cut();
                None
            }
            Fault::RedisHold => {
                self.redis_links[index].hold();
                Some((long, Cure::RedisLink(index)))
            }
            Fault::RedisRefuse => {
                self.redis_links[index].refuse();
                Some((long, Cure::RedisLink(index)))
            }
            Fault::RedisSlow => {
                self.redis_links[index].slow(Duration::from_millis(5 + dice.below(200)));
                Some((long, Cure::RedisLink(index)))
            }
            Fault::PostgresCut => {
                self.postgres_links[index].cut();
                None
            }
            Fault::PostgresHold => {
                self.postgres_links[index].hold();
                Some((long, Cure::PostgresLink(index)))
            }
            Fault::PostgresRefuse => {
                self.postgres_links[index].refuse();
                Some((long, Cure::PostgresLink(index)))
            }
            Fault::PostgresSlow => {
                self.postgres_links[index].slow(Duration::from_millis(5 + dice.below(100)));
                Some((long, Cure::PostgresLink(index)))
            }
            Fault::PostgresRestart if self.postgres_up => {
                self.postgres_up = false;
                self.postgres.as_mut().unwrap().stop_immediately();
                Some((short, Cure::StartPostgres))
            }
            Fault::PostgresKill if self.postgres_up => {
                self.postgres_up = false;
                self.postgres.as_mut().unwrap().kill();
                Some((short, Cure::StartPostgres))
            }
            Fault::Kill
            | Fault::Freeze
            | Fault::Flush
            | Fault::RedisRestart
            | Fault::RedisFailOver
            | Fault::PostgresRestart
            | Fault::PostgresKill => return,
        };
        *self.counts.entry(fault.name()).or_default() += 1;
        if let Some((after, cure)) = cure {
            self.due.push((self.clock.monotonic().after(after), cure));
        }
    }

    fn fails_over(&self) -> bool {
        self.due
            .iter()
            .any(|(_, cure)| matches!(cure, Cure::StartOldPrimary(_)))
    }

    fn leave(&mut self, index: usize) {
        let now = self.clock.monotonic();
        self.away[index].get_or_insert(now);
    }

    fn cure(&mut self, cure: Cure) {
        match cure {
            Cure::Launch(index) => self.fleet.launch(index),
            Cure::Thaw(index) => {
                // It may have been killed meanwhile.
                if std::mem::replace(&mut self.frozen[index], false) {
                    self.fleet.server(index).thaw();
                }
            }
            Cure::RedisLink(index) => self.redis_links[index].heal(),
            Cure::PostgresLink(index) => self.postgres_links[index].heal(),
            Cure::StartRedis => {
                self.redis[self.primary].restart();
                self.redis_up = true;
            }
            Cure::StartOldPrimary(old) => {
                self.redis[old].restart();
                if self.redis_up {
                    self.redis[old].follow(&self.redis[self.primary]);
                } else {
                    // The new one is away too: later.
                    self.redis[old].kill();
                    let soon = self.clock.monotonic().after(Duration::from_secs(1));
                    self.due.push((soon, cure));
                }
            }
            Cure::StartPostgres => {
                self.postgres.as_mut().unwrap().restart();
                self.postgres_up = true;
            }
        }
    }

    /// Everything is as at the start, and all replicas are ready.
    pub(crate) fn heal(&mut self) {
        let clock = self.clock.clone();
        let start = clock.monotonic();
        while !self.due.is_empty() || self.away.iter().any(Option::is_some) {
            let cures: Vec<_> = self.due.drain(..).map(|(_, cure)| cure).collect();
            for cure in cures {
                self.cure(cure);
            }
            self.tend();
            assert!(
                clock.monotonic().since(start) < Duration::from_secs(120),
                "not everything came back"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        self.fleet.wait_until_ready();
    }

    /// Whether this replica was away at some moment of the time.
    pub(crate) fn was_away(&self, replica: usize, from: Monotonic, to: Monotonic) -> bool {
        let over = |left: Monotonic, back: Monotonic| left <= to && from <= back.after(SLACK);
        let past = self
            .absences
            .iter()
            .any(|(index, left, back)| *index == replica && over(*left, *back));
        past || self.away[replica].is_some_and(|left| left <= to)
    }
}
