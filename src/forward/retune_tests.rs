//! What a lane does when its settings change while it runs.

use std::time::Duration;

use proptest::prelude::*;

use crate::forward::breaker::{BreakerState, FAILURES_TO_OPEN, Health};
use crate::forward::lane::tests::settings;
use crate::forward::lane::{Lane, Slot, Step};
use crate::forward::settings::UpstreamSettings;
use crate::reader::Rate;
use crate::store::model::Share;
use crate::time::Monotonic;

/// Timers may be late by this, and lanes make up for it; see [`crate::pace`].
const SLACK: f64 = 0.005;

fn ms(millis: u64) -> Monotonic {
    Monotonic::from_start(Duration::from_millis(millis))
}

fn lane(settings: &UpstreamSettings) -> Lane {
    Lane::new(settings, false, Duration::ZERO, ms(0))
}

fn rated(concurrency: usize, count: u32, burst: u32) -> UpstreamSettings {
    let per = Duration::from_secs(1);
    UpstreamSettings {
        rate: Some(Rate { count, per }),
        burst: Some(burst),
        ..settings(concurrency)
    }
}

fn start_all(lane: &mut Lane, now: Monotonic) -> Vec<Slot> {
    std::iter::from_fn(|| lane.start(now)).take(1_000).collect()
}

fn end(lane: &mut Lane, slot: Slot, health: Health, now: Monotonic) {
    lane.ended(slot, health, None, now);
    lane.settled();
}

#[test]
fn a_lower_concurrency_cuts_nothing_short_and_nothing_starts_above_it() {
    let mut lane = lane(&settings(4));
    let mut running = start_all(&mut lane, ms(0));
    assert_eq!(running.len(), 4);
    lane.retune(&settings(2), ms(1));
    assert_eq!(lane.status(ms(1)).running, 4);
    for left in [3, 2] {
        end(&mut lane, running.pop().unwrap(), Health::Answered, ms(2));
        assert_eq!(running.len(), left);
        assert_eq!(lane.step(ms(2)), Step::WaitForChange);
    }
    end(&mut lane, running.pop().unwrap(), Health::Answered, ms(2));
    assert_eq!(start_all(&mut lane, ms(2)).len(), 1);
}

#[test]
fn a_higher_concurrency_holds_at_once() {
    let mut lane = lane(&settings(1));
    let _running = start_all(&mut lane, ms(0));
    lane.retune(&settings(5), ms(1));
    assert_eq!(start_all(&mut lane, ms(1)).len(), 4);
}

#[test]
fn another_rate_brings_no_burst_and_takes_none_away_that_fits() {
    let mut lane = lane(&rated(100, 10, 5));
    assert_eq!(start_all(&mut lane, ms(10_000)).len(), 5);
    lane.retune(&rated(100, 1_000, 50), ms(10_000));
    assert_eq!(start_all(&mut lane, ms(10_000)).len(), 0, "no change refills it");
    assert!(matches!(lane.step(ms(10_000)), Step::WaitUntil(time) if time <= ms(10_001)));

    let mut quiet = self::lane(&rated(100, 10, 5));
    quiet.retune(&rated(100, 1, 3), ms(10_000));
    assert_eq!(start_all(&mut quiet, ms(10_000)).len(), 3);
    quiet.retune(&rated(100, 10, 5), ms(10_000));
    assert_eq!(start_all(&mut quiet, ms(10_000)).len(), 0, "two were cut off");
}

#[test]
fn a_rate_where_there_was_none_begins_without_a_burst() {
    let mut lane = lane(&settings(100));
    lane.retune(&rated(100, 10, 5), ms(10_000));
    assert_eq!(start_all(&mut lane, ms(10_000)).len(), 0);
    assert_eq!(start_all(&mut lane, ms(10_100)).len(), 1);
    lane.retune(&settings(100), ms(10_100));
    assert_eq!(start_all(&mut lane, ms(10_100)).len(), 99, "no limit holds at once");
}

#[test]
fn the_settings_of_a_lane_change_within_its_share() {
    let share = |units, of| {
        Some(Share {
            units,
            of,
            valid_until: None,
        })
    };
    let mut lane = lane(&settings(8));
    lane.set_share(share(2, 8), ms(0));
    lane.retune(&settings(4), ms(0));
    assert_eq!(
        start_all(&mut lane, ms(0)).len(),
        1,
        "a quarter of 4, until the store divides anew"
    );
    lane.set_share(share(2, 4), ms(0));
    assert_eq!(start_all(&mut lane, ms(0)).len(), 1);
    let used = lane.share_use().unwrap();
    assert_eq!((used.of, used.applied, used.busy), (4, 2, 2));
}

#[test]
fn an_open_breaker_a_pause_and_stopped_time_stay() {
    let mut lane = lane(&settings(4));
    for _ in 0..FAILURES_TO_OPEN {
        let slot = lane.start(ms(0)).unwrap();
        end(&mut lane, slot, Health::Failing, ms(0));
    }
    lane.retune(&settings(8), ms(1_000));
    assert_eq!(lane.step(ms(1_000)), Step::WaitUntil(ms(5_000)));
    assert_eq!(lane.stopped_total(ms(2_000)), Duration::from_secs(2));
    lane.pause(ms(2_000));
    lane.retune(&settings(2), ms(3_000));
    assert!(lane.is_paused());
    assert_eq!(lane.breaker_state(), BreakerState::Open);
    assert_eq!(lane.stopped_total(ms(4_000)), Duration::from_secs(4));
}

/// A lane, and what may be asked of it whatever it is told.
struct Scene {
    settings: UpstreamSettings,
    share: Option<(u32, u32)>,
    lane: Lane,
    running: Vec<Slot>,
    now: u64,
    /// How many starts the rates that held have allowed so far.
    allowed: f64,
    /// Counts the times without a limit.
    unlimited: u32,
    starts: Vec<Start>,
}

struct Start {
    allowed: f64,
    unlimited: u32,
    /// What could be started at once when it was.
    burst: f64,
}

impl Scene {
    fn new(settings: UpstreamSettings) -> Self {
        Self {
            lane: lane(&settings),
            share: None,
            running: Vec::new(),
            now: 0,
            allowed: 0.0,
            unlimited: u32::from(settings.rate.is_none()),
            starts: Vec::new(),
            settings,
        }
    }

    fn part(&self) -> f64 {
        self.share.map_or(1.0, |(units, of)| f64::from(units) / f64::from(of))
    }

    /// Starts a second, where they are limited.
    fn rate(&self) -> Option<f64> {
        let rate = self.settings.rate?;
        Some(f64::from(rate.count) / rate.per.as_secs_f64() * self.part())
    }

    fn slots(&self) -> usize {
        let (units, of) = self.share.unwrap_or((1, 1));
        self.settings.concurrency * usize::try_from(units).unwrap() / usize::try_from(of).unwrap()
    }

    fn pass(&mut self, millis: u64) {
        let seconds = Duration::from_millis(millis).as_secs_f64();
        self.allowed += self.rate().unwrap_or(0.0) * seconds;
        self.now += millis;
    }

    fn start(&mut self) {
        let now = ms(self.now);
        let Some(slot) = self.lane.start(now) else { return };
        self.running.push(slot);
        assert!(self.running.len() <= self.slots(), "{} run at once", self.running.len());
        let Some(rate) = self.rate() else { return };
        let burst = f64::from(self.settings.burst.unwrap_or(1)) * self.part();
        let start = Start {
            allowed: self.allowed,
            unlimited: self.unlimited,
            burst: burst + SLACK * rate,
        };
        self.starts.push(start);
        for (from, first) in self.starts.iter().enumerate() {
            if first.unlimited != self.unlimited {
                continue;
            }
            let started = f64::from(u32::try_from(self.starts.len() - from).unwrap());
            let most = self.allowed - first.allowed + first.burst;
            assert!(started <= most + 1e-3, "{started} starts, at most {most}");
        }
    }

    fn retune(&mut self, settings: UpstreamSettings) {
        let now = ms(self.now);
        let before = self.lane.status(now);
        self.lane.retune(&settings, now);
        let after = self.lane.status(now);
        assert_eq!(
            (
                before.paused,
                before.breaker,
                before.held_for,
                before.running,
                before.stopped_total
            ),
            (
                after.paused,
                after.breaker,
                after.held_for,
                after.running,
                after.stopped_total
            )
        );
        self.unlimited += u32::from(settings.rate.is_none());
        self.settings = settings;
    }
}

#[derive(Clone, Debug)]
enum Told {
    Retune(usize, Option<(u32, u32)>),
    Share(u32, u32),
    Start(u8),
    End(u8),
    Pause,
    Resume,
    Pass(u64),
}

fn pace() -> impl Strategy<Value = (usize, Option<(u32, u32)>)> {
    let rate = (prop_oneof![3 => 1..10_u32, 1 => 10..3_000_u32], 1..12_u32);
    (1..20_usize, prop::option::weighted(0.8, rate))
}

fn told() -> impl Strategy<Value = Told> {
    prop_oneof![
        3 => pace().prop_map(|(concurrency, rate)| Told::Retune(concurrency, rate)),
        1 => (1..5_u32).prop_flat_map(|of| (0..=of).prop_map(move |units| Told::Share(units, of))),
        4 => (0..32_u8).prop_map(Told::Start),
        3 => (0..16_u8).prop_map(Told::End),
        1 => Just(Told::Pause),
        2 => Just(Told::Resume),
        2 => (0..40_u64).prop_map(Told::Pass),
        1 => (0..4_000_u64).prop_map(Told::Pass),
    ]
}

fn with_pace((concurrency, rate): (usize, Option<(u32, u32)>)) -> UpstreamSettings {
    match rate {
        Some((rate, burst)) => rated(concurrency, rate, burst),
        None => settings(concurrency),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_order_of_changes_concurrency_and_rate_hold(
        first in pace(),
        steps in prop::collection::vec(told(), 1..150),
    ) {
        let mut scene = Scene::new(with_pace(first));
        for step in steps {
            let now = ms(scene.now);
            match step {
                Told::Retune(concurrency, rate) => scene.retune(with_pace((concurrency, rate))),
                Told::Share(units, of) => {
                    scene.lane.set_share(Some(Share { units, of, valid_until: None }), now);
                    scene.share = Some((units, of));
                }
                Told::Start(times) => (0..times).for_each(|_| scene.start()),
                Told::End(times) => {
                    for _ in 0..usize::from(times).min(scene.running.len()) {
                        let slot = scene.running.remove(0);
                        end(&mut scene.lane, slot, Health::Answered, now);
                    }
                }
                Told::Pause => scene.lane.pause(now),
                Told::Resume => scene.lane.resume(now),
                Told::Pass(millis) => scene.pass(millis),
            }
        }
    }
}
