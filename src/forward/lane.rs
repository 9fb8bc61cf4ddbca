//! [`Lane`]: the pacing state of one upstream, as a pure core. It says whether an attempt may start (P7) and for how
//! long the lane was stopped, which the give-up clocks leave out.
//!
//! An attempt passes through two counts. It is *running* from [`Lane::start`] to [`Lane::ended`], when the upstream has
//! answered or failed to: at most `concurrency` at once. Then it is *settling* until the store has its outcome: at most
//! [`SETTLING_MAX`]. They are two, so that the upstream's slots do not wait for our disk, and both are bounded, so that
//! a store that is away stops the lane and not the machine (P6).
//!
//! The lane is *stopped* while it refuses every attempt because it is paused or its breaker is open. A breaker whose
//! wait is over refuses nothing, even if nothing is due to be the probe. A hold is not a stop: the
//! upstream answered.
//!
//! A `Retry-After` is for the dispatch that got it, in full. 429 and 503 should speak of the server and not of the one
//! request (RFC 6585 section 4, RFC 9110 section 15.6.4), but an app may answer them to one event for ever, and that
//! event must not delay the others (P7). So the lane is *held* only when [`HOLD_AFTER`] different events in a row were
//! answered so, with no other end of an attempt between; each hold lasts what the last of them asked for, at most
//! [`HOLD_MAX`], and the next one needs as many again. A person's resume ends it.
//!
//! A sender may wait for an attempt ([`Lane::start_urgent`]): it goes ahead of the queue, but when [`URGENT_RUN_MAX`] of
//! its kind have gone before one that was ready in the queue, that one is next. Everything else holds for it as for any.
//!
//! Where replicas share a store, a lane has a [`Share`] of its upstream: of `U` units `u`, so that it runs at most
//! `floor(concurrency * u / U)` attempts and starts them at that part of the rate with that part of the burst
//! ([`crate::pace`]). The units of all replicas are never more than `U`, so their attempts are never more than the
//! whole. A share that grew brings no burst; one that shrank cuts no attempt short, but nothing starts above it, and
//! [`Lane::share_use`] says when its units are free; one that has lapsed is none. Each replica has its own breaker, which
//! probes and ramps within the share.

//!
//! Its settings may change while it runs ([`Lane::retune`]). What runs goes on, also above a concurrency that has become
//! lower, and nothing starts until there is room below; the bucket of the rate is never refilled by a change; the breaker, a
//! pause, a hold and the stopped time are as they were.

use std::time::Duration;

use crate::forward::breaker::{Admits, Breaker, BreakerState, Epoch, Health};
use crate::forward::settings::UpstreamSettings;
use crate::forward::tempo::Tempo;
use crate::id::EventId;
use crate::pace::{Pace, share_of};
use crate::store::model::{Share, ShareUse};
use crate::time::Monotonic;

/// Attempts that have ended and wait for the store, at most.
pub const SETTLING_MAX: usize = 256;
/// Different events in a row that must be answered 429 or 503 with `Retry-After` before the lane is held.
pub const HOLD_AFTER: usize = 3;
/// How long one hold lasts, at most, whatever the upstream asked for.
pub const HOLD_MAX: Duration = Duration::from_secs(30);

/// Attempts that senders wait for and that may start one after the other while one of the queue lies ready.
pub const URGENT_RUN_MAX: u32 = 8;

/// Dispatches for each slot that may lie ready for a lane, at most, where replicas share the store.
const READY_PER_SLOT: usize = 16;
/// Under a rate no more lie ready there than may start within this time.
const READY_FOR: Duration = Duration::from_secs(5);

/// What the lane may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Start an attempt.
    Start,
    /// Nothing before this time.
    WaitUntil(Monotonic),
    /// Nothing before an attempt ends or is settled, a person acts, or the share changes.
    WaitForChange,
}

/// Why a lane makes no attempt for some time, so that no sender need wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// A person stopped it.
    Paused,
    /// Its breaker is open; a probe may be under way.
    BreakerOpen,
}

/// The right to one running attempt, from [`Lane::start`]. Not `Clone`: it is given back once.
#[derive(Debug)]
pub struct Slot(Epoch);

/// The upstream answered 429 or 503 and said when to come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// To this event's request.
    pub event: EventId,
    /// What its `Retry-After` said, already clamped.
    pub wait: Duration,
}

/// The lane as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneStatus {
    /// A person stopped it.
    pub paused: bool,
    /// Its breaker.
    pub breaker: BreakerState,
    /// How much longer it is held, since the upstream asked for it (`Retry-After`).
    pub held_for: Option<Duration>,
    /// Attempts that run.
    pub running: usize,
    /// Attempts that have ended and wait for the store.
    pub settling: usize,
    /// Its part of the upstream's pace, where replicas divide it.
    pub share: Option<Share>,
    /// For how long the lane was stopped, over all its life.
    pub stopped_total: Duration,
    /// How long ago an attempt last ended, if one did since the start.
    pub last_ended: Option<Duration>,
}

/// The pacing state of one upstream.
#[derive(Debug)]
pub struct Lane {
    concurrency: usize,
    share: Option<Share>,
    /// What the share makes of `concurrency` until it lapses.
    slots: usize,
    pace: Pace,
    tempo: Tempo,
    breaker: Breaker,
    paused: bool,
    hold_until: Monotonic,
    /// The events of the last attempts, as long as the upstream answered all of them with `Retry-After`; fewer than
    /// [`HOLD_AFTER`], each once.
    askers: Vec<EventId>,
    running: usize,
    settling: usize,
    /// The largest concurrency that it ever had: no more can have been started.
    widest: usize,
    /// Urgent starts since the last one of the queue, while the queue waited.
    urgent_run: u32,
    stopped: Duration,
    /// `stopped` is complete up to here.
    counted_to: Monotonic,
    last_ended: Option<Monotonic>,
}

impl Lane {
    /// A lane with nothing running, and all of the upstream's pace. `paused` and `stopped` come from the store.
    pub fn new(settings: &UpstreamSettings, paused: bool, stopped: Duration, now: Monotonic) -> Self {
        let concurrency = settings.concurrency.max(1);
        Self {
            concurrency,
            share: None,
            slots: concurrency,
            pace: Pace::new(settings.rate, settings.burst),
            tempo: Tempo::new(now),
            breaker: Breaker::new(concurrency),
            paused,
            hold_until: now,
            askers: Vec::new(),
            running: 0,
            settling: 0,
            widest: concurrency,
            urgent_run: 0,
            stopped,
            counted_to: now,
            last_ended: None,
        }
    }

    /// What to do now.
    pub fn step(&self, now: Monotonic) -> Step {
        if self.paused || self.running >= self.slots_at(now) || self.settling >= SETTLING_MAX {
            return Step::WaitForChange;
        }
        if now < self.hold_until {
            return Step::WaitUntil(self.hold_until);
        }
        match self.breaker.admits(self.running, now) {
            Admits::Yes => {}
            Admits::NotBefore(time) => return Step::WaitUntil(time),
            Admits::AfterAnAttempt => return Step::WaitForChange,
        }
        match self.pace.not_before(now) {
            Some(time) => Step::WaitUntil(time),
            None => Step::Start,
        }
    }

    /// Takes a slot for a dispatch of the queue, if [`Lane::step`] says [`Step::Start`].
    pub fn start(&mut self, now: Monotonic) -> Option<Slot> {
        let slot = self.take_slot(now)?;
        self.urgent_run = 0;
        Some(slot)
    }

    /// Takes a slot for an attempt that a sender waits for, if there is one, ahead of the queue; `queue_waits`: a dispatch
    /// lies ready there.
    pub fn start_urgent(&mut self, queue_waits: bool, now: Monotonic) -> Option<Slot> {
        if !queue_waits {
            self.urgent_run = 0;
        } else if self.urgent_run >= URGENT_RUN_MAX {
            return None;
        }
        let slot = self.take_slot(now)?;
        self.urgent_run += u32::from(queue_waits);
        Some(slot)
    }

    /// Why no attempt starts for some time, if so.
    pub fn stopped(&self, now: Monotonic) -> Option<Stopped> {
        if self.paused {
            return Some(Stopped::Paused);
        }
        let open = self.breaker.state() == BreakerState::Open;
        (open && self.breaker.admits(self.running, now) != Admits::Yes).then_some(Stopped::BreakerOpen)
    }

    /// Whether it has a part of the upstream's pace: without one nothing starts here until replicas have divided it anew.
    pub fn has_share(&self, now: Monotonic) -> bool {
        self.slots_at(now) > 0
    }

    fn take_slot(&mut self, now: Monotonic) -> Option<Slot> {
        if self.step(now) != Step::Start {
            return None;
        }
        self.count_stopped(now);
        self.running += 1;
        self.pace.start(now);
        self.tempo.start(now);
        let slot = Slot(self.breaker.start());
        self.check_invariants();
        Some(slot)
    }

    /// From now on the upstream has these settings; see the module.
    pub fn retune(&mut self, settings: &UpstreamSettings, now: Monotonic) {
        self.count_stopped(now);
        self.concurrency = settings.concurrency.max(1);
        self.widest = self.widest.max(self.concurrency);
        self.pace.retune(settings.rate, settings.burst, parts(self.share), now);
        self.divide();
        self.check_invariants();
    }

    /// From now on this is the lane's part of the upstream's pace; `None`: all of it.
    pub fn set_share(&mut self, share: Option<Share>, now: Monotonic) {
        let had = parts(self.share);
        // What was the lane's before a division, or before its share lapsed, others may have used since.
        let anew = match self.share {
            None => share.is_some(),
            Some(_) => self.has_lapsed(now),
        };
        if anew {
            self.pace.set_share(0, 1, now);
        }
        let (units, of) = parts(share);
        // A mere renewal rounds nothing.
        if anew || had != (units, of) {
            self.pace.set_share(units, of, now);
        }
        self.share = share;
        self.divide();
        self.check_invariants();
    }

    /// What the share makes of the concurrency.
    fn divide(&mut self) {
        let (units, of) = parts(self.share);
        let concurrency = u64::try_from(self.concurrency).unwrap_or(u64::MAX);
        let slots = usize::try_from(share_of(concurrency, units, of)).unwrap_or(usize::MAX);
        self.slots = if self.pace.is_closed() { 0 } else { slots };
        self.breaker.set_full(self.slots.max(1));
    }

    /// Its part of the upstream's pace, where replicas divide it.
    pub fn share(&self) -> Option<Share> {
        self.share
    }

    /// When the share lapses, unless it is renewed.
    pub fn lapses_at(&self) -> Option<Monotonic> {
        self.share?.valid_until
    }

    /// What the lane makes of its share; `None` where nobody else wants it.
    pub fn share_use(&self) -> Option<ShareUse> {
        let share = self.share?;
        let running = u64::try_from(self.running).unwrap_or(u64::MAX);
        let concurrency = u64::try_from(self.concurrency).unwrap_or(u64::MAX);
        // The smallest number of units whose slots are enough for what runs.
        let busy = running.saturating_mul(u64::from(share.of)).div_ceil(concurrency);
        Some(ShareUse {
            of: share.of,
            applied: share.units,
            busy: u32::try_from(busy).unwrap_or(u32::MAX),
        })
    }

    /// How many dispatches may lie ready for the lane, where another replica could send them instead; `None` where
    /// nobody else could. A part of the pace has one more round ready, and more only while the upstream answers so fast
    /// that this would not last until the next claim: whatever lies ready here is kept from replicas that may be idle.
    pub fn appetite(&mut self, now: Monotonic) -> Option<usize> {
        let share = self.share?;
        let tempo = self.tempo.ready(now);
        let slots = self.slots_at(now);
        if self.paused || slots == 0 {
            return Some(0);
        }
        let most = match self.breaker.state() {
            BreakerState::Open => 1,
            BreakerState::Ramping => slots,
            BreakerState::Closed if now < self.hold_until => slots,
            BreakerState::Closed if share.units < share.of => tempo.clamp(slots, slots.saturating_mul(READY_PER_SLOT)),
            BreakerState::Closed => slots.saturating_mul(READY_PER_SLOT),
        };
        let starts = self.pace.starts_within(READY_FOR);
        Some(starts.map_or(most, |starts| usize::try_from(starts).unwrap_or(most).min(most)))
    }

    fn slots_at(&self, now: Monotonic) -> usize {
        if self.has_lapsed(now) { 0 } else { self.slots }
    }

    fn has_lapsed(&self, now: Monotonic) -> bool {
        self.lapses_at().is_some_and(|end| end <= now)
    }

    /// A running attempt ended and is now settling. With `asked`, the upstream asked to be left alone.
    pub fn ended(&mut self, slot: Slot, health: Health, asked: Option<Asked>, now: Monotonic) {
        self.count_stopped(now);
        self.running -= 1;
        self.settling += 1;
        self.last_ended = Some(now);
        self.breaker.ended(slot.0, health, now);
        match asked {
            Some(asked) => self.asked(asked, now),
            None => self.askers.clear(),
        }
        self.check_invariants();
    }

    fn asked(&mut self, asked: Asked, now: Monotonic) {
        if !self.askers.contains(&asked.event) {
            self.askers.push(asked.event);
        }
        if self.askers.len() >= HOLD_AFTER {
            self.askers.clear();
            self.hold_until = self.hold_until.max(now.after(asked.wait.min(HOLD_MAX)));
        }
    }

    /// A running attempt was given up without an outcome.
    pub fn abandoned(&mut self, slot: Slot, now: Monotonic) {
        self.count_stopped(now);
        self.running -= 1;
        self.breaker.abandoned(slot.0, now);
        self.check_invariants();
    }

    /// An ended attempt is in the store, or its lease is gone.
    pub fn settled(&mut self) {
        self.settling -= 1;
        self.check_invariants();
    }

    /// A person stops the lane. Running attempts go on.
    pub fn pause(&mut self, now: Monotonic) {
        self.count_stopped(now);
        self.paused = true;
    }

    /// A person starts the lane again; that also closes the breaker and ends a hold, since the person
    /// knows that the upstream is back.
    pub fn resume(&mut self, now: Monotonic) {
        self.count_stopped(now);
        self.paused = false;
        self.hold_until = now;
        self.askers.clear();
        self.breaker.reset();
    }

    /// Whether a person stopped it.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Its breaker's state.
    pub fn breaker_state(&self) -> BreakerState {
        self.breaker.state()
    }

    /// For how long the lane was stopped, over all its life.
    pub fn stopped_total(&mut self, now: Monotonic) -> Duration {
        self.count_stopped(now);
        self.stopped
    }

    /// All replicas together were stopped for so long: if that is longer than this lane knows of, it counts on from there.
    pub fn raise_stopped(&mut self, total: Duration, now: Monotonic) {
        self.count_stopped(now);
        self.stopped = self.stopped.max(total);
    }

    /// For people.
    pub fn status(&mut self, now: Monotonic) -> LaneStatus {
        let held_for = self.hold_until.since(now);
        LaneStatus {
            paused: self.paused,
            breaker: self.breaker.state(),
            held_for: (!held_for.is_zero()).then_some(held_for),
            running: self.running,
            settling: self.settling,
            share: self.share,
            stopped_total: self.stopped_total(now),
            last_ended: self.last_ended.map(|time| now.since(time)),
        }
    }

    /// Adds the stopped time up to now. Called before each change, so that in between the state was constant.
    fn count_stopped(&mut self, now: Monotonic) {
        self.stopped += if self.paused {
            now.since(self.counted_to)
        } else {
            self.breaker.refused_between(self.counted_to, now)
        };
        self.counted_to = self.counted_to.max(now);
    }

    fn check_invariants(&self) {
        // A share or a concurrency that shrank leaves what runs; it never was more than the whole as it was then.
        debug_assert!(self.running <= self.widest, "more attempts than slots");
        debug_assert!(self.slots <= self.concurrency, "a share larger than the whole");
        debug_assert!(self.askers.len() < HOLD_AFTER, "a hold that was not begun");
        debug_assert!(self.urgent_run <= URGENT_RUN_MAX, "the queue was passed over too often");
        // Each running attempt may still come to settle.
        debug_assert!(
            self.settling < SETTLING_MAX + self.widest,
            "more ended attempts than room"
        );
    }
}

/// Units of how many.
fn parts(share: Option<Share>) -> (u32, u32) {
    share.map_or((1, 1), |share| (share.units, share.of))
}

#[cfg(test)]
pub(in crate::forward) mod tests {
    use http::Uri;

    use super::*;
    use crate::forward::breaker::FAILURES_TO_OPEN;
    use crate::forward::settings::{Retry, SignaturePolicy};
    use crate::id::{Position, UpstreamName};
    use crate::net::connections::Remote;
    use crate::reader::Rate;
    use crate::time::Timestamp;

    fn at(secs: u64) -> Monotonic {
        Monotonic::from_start(Duration::from_secs(secs))
    }

    pub(in crate::forward) fn settings(concurrency: usize) -> UpstreamSettings {
        UpstreamSettings {
            name: UpstreamName::new("app"),
            remote: Remote::plain(Uri::from_static("http://127.0.0.1:3000")),
            concurrency,
            rate: None,
            burst: None,
            timeout: Duration::from_secs(30),
            retry: Retry::default(),
            signature: SignaturePolicy::Auto,
            preserve_host: false,
        }
    }

    fn lane(concurrency: usize) -> Lane {
        Lane::new(&settings(concurrency), false, Duration::ZERO, at(0))
    }

    fn fail(lane: &mut Lane, times: u32, now: Monotonic) {
        for _ in 0..times {
            let slot = lane.start(now).unwrap();
            lane.ended(slot, Health::Failing, None, now);
            lane.settled();
        }
    }

    #[test]
    fn never_more_than_concurrency_run_at_once() {
        let mut lane = lane(2);
        let first = lane.start(at(1)).unwrap();
        let _second = lane.start(at(1)).unwrap();
        assert!(lane.start(at(1)).is_none());
        assert_eq!(lane.step(at(1)), Step::WaitForChange);
        lane.ended(first, Health::Answered, None, at(2));
        assert!(lane.start(at(2)).is_some(), "a slot does not wait for the store");
    }

    #[test]
    fn a_store_that_is_away_stops_the_lane_at_a_bound() {
        let mut lane = lane(16);
        let mut attempts = 0;
        while let Some(slot) = lane.start(at(1)) {
            lane.ended(slot, Health::Answered, None, at(1));
            attempts += 1;
        }
        assert_eq!(attempts, SETTLING_MAX);
        assert_eq!(lane.step(at(1)), Step::WaitForChange);
        lane.settled();
        assert_eq!(lane.step(at(1)), Step::Start);
    }

    #[test]
    fn the_rate_holds_with_free_slots() {
        let mut lane = Lane::new(
            &UpstreamSettings {
                rate: Some(Rate {
                    count: 1,
                    per: Duration::from_secs(1),
                }),
                ..settings(16)
            },
            false,
            Duration::ZERO,
            at(0),
        );
        assert!(lane.start(at(10)).is_some());
        assert!(matches!(lane.step(at(10)), Step::WaitUntil(time) if time > at(10) && time <= at(11)));
        assert!(lane.start(at(11)).is_some());
    }

    /// The upstream answers the event with this number 503, and asks for so many seconds.
    fn ask(lane: &mut Lane, event: i64, secs: u64, now: Monotonic) {
        let slot = lane.start(now).unwrap();
        let asked = Asked {
            event: EventId::embedded(Timestamp::from_secs(1), Position::new(event).unwrap(), 1),
            wait: Duration::from_secs(secs),
        };
        lane.ended(slot, Health::Failing, Some(asked), now);
        lane.settled();
    }

    fn answer(lane: &mut Lane, now: Monotonic) {
        let slot = lane.start(now).unwrap();
        lane.ended(slot, Health::Answered, None, now);
        lane.settled();
    }

    #[test]
    fn one_event_that_is_always_answered_retry_after_never_holds_the_lane() {
        let mut lane = lane(2);
        for time in 0..5 {
            ask(&mut lane, 1, 3600, at(time));
            assert_eq!(lane.step(at(time)), Step::Start, "nothing else was answered in between");
        }
        answer(&mut lane, at(5));
        for time in 6..9 {
            ask(&mut lane, 1, 3600, at(time));
            answer(&mut lane, at(time));
        }
        assert_eq!(lane.status(at(9)).held_for, None);
    }

    #[test]
    fn three_events_in_a_row_hold_the_lane_for_what_they_ask_but_only_for_a_short_time() {
        for (asked, held) in [(7, 7), (30, 30), (3600, 30)] {
            let mut lane = lane(2);
            ask(&mut lane, 1, asked, at(0));
            ask(&mut lane, 2, asked, at(0));
            assert_eq!(lane.step(at(0)), Step::Start);
            ask(&mut lane, 3, asked, at(0));
            assert_eq!(lane.step(at(1)), Step::WaitUntil(at(held)));
            assert_eq!(lane.status(at(1)).held_for, Some(Duration::from_secs(held - 1)));
            assert_eq!(lane.step(at(held)), Step::Start);
            assert_eq!(lane.stopped_total(at(held)), Duration::ZERO, "a hold is not a stop");
            ask(&mut lane, 1, asked, at(held));
            ask(&mut lane, 2, asked, at(held));
            assert_eq!(lane.step(at(held)), Step::Start, "the next hold needs as many");
        }
    }

    #[test]
    fn another_end_between_them_begins_the_count_again() {
        let mut lane = lane(2);
        for event in 1..9 {
            ask(&mut lane, event, 60, at(0));
            if event % 2 == 0 {
                answer(&mut lane, at(0));
            }
        }
        assert_eq!(lane.step(at(0)), Step::Start);
    }

    #[test]
    fn a_resume_ends_a_hold() {
        let mut lane = lane(2);
        for event in 1..=3 {
            ask(&mut lane, event, 20, at(0));
        }
        assert_eq!(lane.step(at(1)), Step::WaitUntil(at(20)));
        lane.resume(at(1));
        assert_eq!(lane.step(at(1)), Step::Start);
    }

    #[test]
    fn a_paused_lane_starts_nothing_and_its_time_does_not_count() {
        let mut lane = lane(1);
        let running = lane.start(at(0)).unwrap();
        lane.pause(at(10));
        lane.ended(running, Health::Answered, None, at(11));
        lane.settled();
        assert_eq!(lane.step(at(12)), Step::WaitForChange);
        lane.pause(at(20));
        assert_eq!(lane.stopped_total(at(30)), Duration::from_secs(20));
        lane.resume(at(40));
        assert_eq!(lane.stopped_total(at(99)), Duration::from_secs(30));
        assert_eq!(lane.step(at(99)), Step::Start);
    }

    #[test]
    fn stopped_time_goes_on_from_what_the_store_remembers() {
        let mut lane = Lane::new(&settings(1), true, Duration::from_secs(100), at(5));
        assert!(lane.is_paused());
        assert_eq!(lane.stopped_total(at(8)), Duration::from_secs(103));
    }

    #[test]
    fn an_open_breaker_stops_the_clocks_only_while_it_refuses() {
        let mut lane = lane(4);
        fail(&mut lane, FAILURES_TO_OPEN, at(100));
        assert_eq!(lane.step(at(100)), Step::WaitUntil(at(105)));
        assert_eq!(lane.status(at(103)).breaker, BreakerState::Open);
        assert_eq!(lane.stopped_total(at(103)), Duration::from_secs(3));
        // Nothing is due until 200; from 105 on nothing was refused.
        let probe = lane.start(at(200)).unwrap();
        assert_eq!(lane.stopped_total(at(200)), Duration::from_secs(5));
        assert_eq!(lane.step(at(201)), Step::WaitForChange);
        lane.ended(probe, Health::Failing, None, at(230));
        assert_eq!(lane.stopped_total(at(230)), Duration::from_secs(35));
        assert_eq!(lane.step(at(230)), Step::WaitUntil(at(240)));
    }

    #[test]
    fn a_resumed_lane_starts_at_once_even_with_an_open_breaker() {
        let mut lane = lane(4);
        fail(&mut lane, FAILURES_TO_OPEN, at(100));
        lane.resume(at(101));
        assert_eq!(lane.step(at(101)), Step::Start);
        assert_eq!(lane.stopped_total(at(200)), Duration::from_secs(1));
    }

    /// Takes and frees a slot, urgently or for the queue; says whether there was one.
    fn run_one(lane: &mut Lane, urgent: bool, queue_waits: bool) -> bool {
        let slot = if urgent {
            lane.start_urgent(queue_waits, at(1))
        } else {
            lane.start(at(1))
        };
        let Some(slot) = slot else { return false };
        lane.ended(slot, Health::Answered, None, at(1));
        lane.settled();
        true
    }

    #[test]
    fn senders_go_ahead_of_the_queue_but_the_queue_is_passed_over_only_so_often() {
        let mut lane = lane(1);
        for _round in 0..3 {
            for _ in 0..URGENT_RUN_MAX {
                assert!(run_one(&mut lane, true, true));
            }
            assert!(!run_one(&mut lane, true, true), "the queue is next");
            assert_eq!(lane.step(at(1)), Step::Start, "and may go");
            assert!(run_one(&mut lane, false, true));
        }
        for _ in 0..URGENT_RUN_MAX * 3 {
            assert!(run_one(&mut lane, true, false), "nobody else waits");
        }
    }

    #[test]
    fn a_sender_s_attempt_takes_a_slot_and_keeps_the_rate_like_any() {
        let mut lane = lane(2);
        let _queued = lane.start(at(1)).unwrap();
        let _urgent = lane.start_urgent(true, at(1)).unwrap();
        assert!(lane.start_urgent(false, at(1)).is_none(), "no slot is left");
        let rate = Some(Rate {
            count: 1,
            per: Duration::from_secs(1),
        });
        let mut lane = Lane::new(&UpstreamSettings { rate, ..settings(16) }, false, Duration::ZERO, at(0));
        assert!(lane.start_urgent(false, at(10)).is_some());
        assert!(lane.start_urgent(false, at(10)).is_none());
        assert_eq!(lane.stopped(at(10)), None, "it is worth waiting for");
        assert!(lane.start_urgent(false, at(11)).is_some());
    }

    #[test]
    fn a_lane_says_when_no_sender_need_wait() {
        let mut lane = lane(2);
        assert_eq!(lane.stopped(at(1)), None);
        lane.pause(at(1));
        assert_eq!(lane.stopped(at(2)), Some(Stopped::Paused));
        lane.resume(at(3));
        fail(&mut lane, FAILURES_TO_OPEN, at(10));
        assert_eq!(lane.stopped(at(11)), Some(Stopped::BreakerOpen));
        assert_eq!(lane.stopped(at(15)), None, "it may be the probe");
        let probe = lane.start_urgent(true, at(15)).unwrap();
        assert_eq!(lane.stopped(at(16)), Some(Stopped::BreakerOpen), "one is under way");
        lane.ended(probe, Health::Answered, None, at(17));
        lane.settled();
        assert_eq!(lane.stopped(at(17)), None);
    }

    #[test]
    fn an_abandoned_attempt_frees_its_slot() {
        let mut lane = lane(1);
        let slot = lane.start(at(0)).unwrap();
        lane.abandoned(slot, at(1));
        assert_eq!(lane.step(at(1)), Step::Start);
        assert_eq!(lane.status(at(1)).running, 0);
    }
}
