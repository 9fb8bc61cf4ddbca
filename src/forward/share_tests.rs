//! Lanes of several replicas that divide one upstream: what each may do, and that together they never exceed the whole.

use std::time::Duration;

use proptest::prelude::*;

use crate::forward::breaker::{BreakerState, FAILURES_TO_OPEN, Health};
use crate::forward::lane::tests::settings;
use crate::forward::lane::{Lane, Slot, Step};
use crate::forward::settings::UpstreamSettings;
use crate::reader::Rate;
use crate::store::model::{Share, ShareUse};
use crate::time::Monotonic;

/// Lateness of timers that a pace makes up for.
const SLACK: Duration = Duration::from_millis(5);

fn ms(millis: u64) -> Monotonic {
    Monotonic::from_start(Duration::from_millis(millis))
}

fn share(units: u32, of: u32) -> Option<Share> {
    Some(Share {
        units,
        of,
        valid_until: None,
    })
}

fn until(units: u32, of: u32, end: Monotonic) -> Option<Share> {
    Some(Share {
        units,
        of,
        valid_until: Some(end),
    })
}

fn rated(concurrency: usize, count: u32, burst: Option<u32>) -> UpstreamSettings {
    let per = Duration::from_secs(1);
    UpstreamSettings {
        rate: Some(Rate { count, per }),
        burst,
        ..settings(concurrency)
    }
}

fn lane(settings: &UpstreamSettings) -> Lane {
    Lane::new(settings, false, Duration::ZERO, ms(0))
}

fn start_all(lane: &mut Lane, now: Monotonic) -> Vec<Slot> {
    std::iter::from_fn(|| lane.start(now)).collect()
}

fn end(lane: &mut Lane, slot: Slot, health: Health, now: Monotonic) {
    lane.ended(slot, health, None, now);
    lane.settled();
}

#[test]
fn units_are_as_fine_as_concurrency_and_burst_allow() {
    assert_eq!(settings(16).units(), 16);
    assert_eq!(rated(16, 100, None).units(), 1, "a burst of one cannot be divided");
    assert_eq!(rated(16, 100, Some(4)).units(), 4);
    assert_eq!(rated(2, 100, Some(4)).units(), 2);
    assert_eq!(settings(0).units(), 1);
}

#[test]
fn a_lane_runs_its_part_of_the_concurrency() {
    let mut lane = lane(&settings(5));
    lane.set_share(share(2, 3), ms(0));
    assert_eq!(start_all(&mut lane, ms(0)).len(), 3);
    assert_eq!(lane.step(ms(0)), Step::WaitForChange);
}

#[test]
fn no_units_start_nothing_and_want_nothing() {
    let mut lane = lane(&rated(16, 10, Some(4)));
    assert_eq!(lane.appetite(ms(0)), None, "nobody else could send it");
    lane.set_share(share(0, 4), ms(0));
    assert_eq!(lane.step(ms(10_000)), Step::WaitForChange);
    assert_eq!(lane.appetite(ms(10_000)), Some(0));
    assert_eq!(
        lane.stopped_total(ms(10_000)),
        Duration::ZERO,
        "others go on, and so do the clocks"
    );
}

#[test]
fn a_share_that_has_lapsed_is_none_until_it_is_renewed() {
    let mut lane = lane(&settings(4));
    lane.set_share(until(4, 4, ms(100)), ms(0));
    assert_eq!(lane.step(ms(99)), Step::Start);
    assert_eq!(lane.step(ms(100)), Step::WaitForChange);
    assert_eq!(lane.appetite(ms(100)), Some(0));
    lane.set_share(until(4, 4, ms(200)), ms(150));
    assert_eq!(lane.step(ms(150)), Step::Start);
}

#[test]
fn a_renewed_share_after_a_lapse_has_no_burst() {
    let mut lane = lane(&rated(16, 10, Some(4)));
    lane.set_share(until(4, 4, ms(10_000)), ms(0));
    assert_eq!(start_all(&mut lane, ms(5_000)).len(), 4);
    lane.set_share(until(4, 4, ms(20_000)), ms(11_000));
    assert_eq!(start_all(&mut lane, ms(11_000)).len(), 0, "others may have used it");
}

#[test]
fn a_share_that_shrank_cuts_nothing_short_and_says_when_it_is_free() {
    let mut lane = lane(&settings(6));
    lane.set_share(share(3, 3), ms(0));
    let mut running = start_all(&mut lane, ms(0));
    lane.set_share(share(1, 3), ms(1));
    let used = |lane: &Lane| lane.share_use().unwrap();
    assert_eq!(
        used(&lane),
        ShareUse {
            of: 3,
            applied: 1,
            busy: 3
        }
    );
    for (left, busy) in [(5, 3), (4, 2), (3, 2), (2, 1)] {
        end(&mut lane, running.pop().unwrap(), Health::Answered, ms(2));
        assert_eq!(running.len(), left);
        assert_eq!(used(&lane).busy, busy);
        assert_eq!(lane.step(ms(2)), Step::WaitForChange);
    }
    end(&mut lane, running.pop().unwrap(), Health::Answered, ms(2));
    assert_eq!(lane.step(ms(2)), Step::Start);
}

#[test]
fn the_breaker_probes_and_ramps_within_a_share_of_one_slot() {
    let mut lane = lane(&settings(4));
    lane.set_share(share(1, 4), ms(0));
    for _ in 0..FAILURES_TO_OPEN {
        let slot = lane.start(ms(0)).unwrap();
        end(&mut lane, slot, Health::Failing, ms(0));
    }
    assert_eq!(lane.appetite(ms(0)), Some(1), "enough for a probe");
    let probe = lane.start(ms(5_000)).unwrap();
    assert!(lane.start(ms(5_000)).is_none());
    end(&mut lane, probe, Health::Answered, ms(5_001));
    assert_eq!(lane.breaker_state(), BreakerState::Closed);
}

#[test]
fn a_probe_waits_until_a_share_that_shrank_has_a_slot() {
    let mut lane = lane(&settings(4));
    lane.set_share(share(4, 4), ms(0));
    let slow: Vec<Slot> = std::iter::from_fn(|| lane.start(ms(0))).take(3).collect();
    for _ in 0..FAILURES_TO_OPEN {
        let slot = lane.start(ms(0)).unwrap();
        end(&mut lane, slot, Health::Failing, ms(0));
    }
    lane.set_share(share(1, 4), ms(0));
    assert_eq!(lane.step(ms(6_000)), Step::WaitForChange);
    for slot in slow {
        end(&mut lane, slot, Health::Answered, ms(6_000));
    }
    assert_eq!(lane.step(ms(6_000)), Step::Start);
}

#[test]
fn what_lies_ready_is_what_the_lane_can_send_soon() {
    let mut free = lane(&settings(4));
    free.set_share(share(4, 4), ms(0));
    assert_eq!(free.appetite(ms(0)), Some(64), "nobody else could send it sooner");
    free.set_share(share(2, 4), ms(0));
    assert_eq!(free.appetite(ms(0)), Some(2), "one more round");
    free.pause(ms(0));
    assert_eq!(free.appetite(ms(0)), Some(0));
    let mut rated = lane(&rated(16, 10, Some(4)));
    rated.set_share(share(2, 4), ms(0));
    assert_eq!(rated.appetite(ms(0)), Some(8), "one more round");
    rated.set_share(share(4, 4), ms(0));
    assert_eq!(
        rated.appetite(ms(0)),
        Some(54),
        "5 s at 10/s, a burst of 4, and a timer's lateness"
    );
}

#[test]
fn a_share_of_a_fast_upstream_has_more_rounds_ready_and_one_of_a_slow_upstream_one() {
    let whole = settings(16);
    let run = |took: u64| {
        let mut lane = lane(&whole);
        lane.set_share(share(5, 16), ms(0));
        for time in (0..10_000).step_by(usize::try_from(took).unwrap()) {
            for slot in start_all(&mut lane, ms(time)) {
                end(&mut lane, slot, Health::Answered, ms(time + took));
            }
            lane.appetite(ms(time + took));
        }
        lane
    };
    assert_eq!(run(2_000).appetite(ms(10_000)), Some(5));
    assert_eq!(run(200).appetite(ms(10_000)), Some(16), "half a second at 25/s");
    let mut fast = run(2);
    assert_eq!(fast.appetite(ms(10_000)), Some(80), "never more than 16 rounds");
    assert_eq!(fast.appetite(ms(12_000)), Some(5), "it became slow");
}

#[test]
fn stopped_time_of_other_replicas_counts_once() {
    let mut lane = Lane::new(&settings(1), true, Duration::from_secs(10), ms(0));
    lane.raise_stopped(Duration::from_secs(12), ms(5_000));
    assert_eq!(
        lane.stopped_total(ms(5_000)),
        Duration::from_secs(15),
        "it knew more itself"
    );
    lane.raise_stopped(Duration::from_secs(20), ms(6_000));
    assert_eq!(lane.stopped_total(ms(7_000)), Duration::from_secs(21));
}

/// One replica, and what the store granted it.
struct Replica {
    lane: Lane,
    /// Units that are not free for others.
    granted: u32,
    /// Units that it is to have.
    wanted: u32,
    running: Vec<Slot>,
    /// Of those, attempts whose share lapsed meanwhile: their leases are lost too.
    lost: usize,
}

/// The store's side of the bargain, and everybody's starts.
struct Fleet {
    settings: UpstreamSettings,
    whole: u32,
    replicas: Vec<Replica>,
    now: u64,
    starts: Vec<u64>,
}

impl Fleet {
    fn new(settings: UpstreamSettings, count: usize) -> Self {
        let whole = settings.units();
        let replica = |_| {
            let mut lane = lane(&settings);
            lane.set_share(share(0, whole), ms(0));
            Replica {
                lane,
                granted: 0,
                wanted: 0,
                running: Vec::new(),
                lost: 0,
            }
        };
        Self {
            whole,
            replicas: (0..count).map(replica).collect(),
            settings,
            now: 0,
            starts: Vec::new(),
        }
    }

    fn free(&self) -> u32 {
        self.whole - self.replicas.iter().map(|replica| replica.granted).sum::<u32>()
    }

    fn step(&mut self, which: usize, step: u8, size: u32) {
        let (now, free) = (ms(self.now), self.free());
        let whole = self.whole;
        let replica = &mut self.replicas[which];
        match step {
            // Another share, as the store sees fit: often all there is, or nothing. What is given up is free once it is not
            // used.
            0 | 1 => {
                let most = replica.granted + free;
                replica.wanted = match size % 4 {
                    0 => 0,
                    1 | 2 => most,
                    _ => size % (most + 1),
                };
                replica.granted = replica.granted.max(replica.wanted);
                replica.lane.set_share(share(replica.wanted, whole), now);
            }
            // The replica is taken for dead, and comes back.
            2 => {
                replica.lane.set_share(until(replica.wanted, whole, now), now);
                replica.lost = replica.running.len();
                (replica.granted, replica.wanted) = (0, 0);
            }
            3 | 4 => {
                for _ in 0..=size % 32 {
                    if let Some(slot) = replica.lane.start(now) {
                        replica.running.push(slot);
                        self.starts.push(self.now);
                    }
                }
            }
            5 => {
                for _ in 0..=size % 8 {
                    if !replica.running.is_empty() {
                        let slot = replica.running.remove(0);
                        replica.lost = replica.lost.saturating_sub(1);
                        end(&mut replica.lane, slot, Health::Answered, now);
                    }
                }
            }
            6 => self.now += u64::from(size % 40),
            // Long enough for a burst to be earned.
            _ => self.now += u64::from(size % 4_000),
        }
        for replica in &mut self.replicas {
            let used = replica.lane.share_use().unwrap();
            if used.applied <= replica.wanted {
                replica.granted = replica.granted.min(replica.wanted.max(used.busy));
            }
        }
        self.check();
    }

    fn check(&self) {
        let running: usize = self
            .replicas
            .iter()
            .map(|replica| replica.running.len() - replica.lost)
            .sum();
        assert!(running <= self.settings.concurrency, "{running} run at once");
        let Some(rate) = self.settings.rate else { return };
        let burst = f64::from(self.settings.burst.unwrap_or(1));
        let Some(last) = self.starts.last() else { return };
        // Windows that end now; those that ended earlier were looked at then.
        for (from, first) in self.starts.iter().enumerate() {
            let started = u32::try_from(self.starts.len() - from).unwrap();
            let time = Duration::from_millis(last - first) + SLACK;
            let most = time.as_secs_f64() * f64::from(rate.count) / rate.per.as_secs_f64() + burst;
            assert!(
                f64::from(started) <= most + 1e-6,
                "{started} starts within {time:?}, at most {most}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn together_the_lanes_never_exceed_the_whole_while_units_move(
        count in 1..5_usize,
        concurrency in 1..20_usize,
        rate in prop::option::weighted(0.8, (prop_oneof![3 => 1..10_u32, 1 => 10..3_000_u32], 1..12_u32)),
        steps in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8, any::<u32>()), 1..150),
    ) {
        let settings = match rate {
            Some((rate, burst)) => rated(concurrency, rate, Some(burst)),
            None => settings(concurrency),
        };
        let mut fleet = Fleet::new(settings, count);
        for (which, step, size) in steps {
            fleet.step(which.index(count), step, size);
        }
    }
}
