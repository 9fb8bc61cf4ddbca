//! [`Tempo`]: how fast a lane really starts attempts, for how much should lie ready where another replica could send it.
//!
//! What is leased and not begun keeps an idle replica from it. A slow upstream needs next to nothing ready: the claim's
//! round trip is short beside an attempt. A fast one empties a small window before the next claim is answered. So what
//! lies ready follows the starts of the last second. It moves in steps, and falls late: what is handed back costs a
//! transaction, and another to be claimed again.

use std::time::Duration;

use crate::time::Monotonic;

const SPAN: Duration = Duration::from_secs(1);
/// The part of a second's starts that should lie ready, as a divisor: work for half a second.
const READY_PART: usize = 2;
/// So many times less must do before less lies ready.
const FALL: usize = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct Tempo {
    /// When the span began whose starts are counted.
    began: Monotonic,
    count: usize,
    /// The starts of the span before.
    before: usize,
    ready: usize,
}

impl Tempo {
    pub(super) fn new(now: Monotonic) -> Self {
        Self {
            began: now,
            count: 0,
            before: 0,
            ready: 0,
        }
    }

    pub(super) fn start(&mut self, now: Monotonic) {
        self.pass(now);
        self.count = self.count.saturating_add(1);
    }

    /// How many should lie ready for what starts at this tempo; 0 when nothing does.
    pub(super) fn ready(&mut self, now: Monotonic) -> usize {
        let wanted = self.recent(now) / READY_PART;
        if wanted > self.ready || wanted.saturating_mul(FALL) < self.ready {
            self.ready = wanted.checked_next_power_of_two().unwrap_or(wanted);
        }
        if wanted == 0 {
            self.ready = 0;
        }
        self.ready
    }

    /// Starts of the last second: all of this span, and of the one before the part that is not older, as if they had been
    /// spread evenly.
    fn recent(&mut self, now: Monotonic) -> usize {
        self.pass(now);
        let left = SPAN.saturating_sub(now.since(self.began)).as_millis();
        let left = usize::try_from(left).unwrap_or(0);
        self.count.saturating_add(self.before.saturating_mul(left) / 1_000)
    }

    fn pass(&mut self, now: Monotonic) {
        let passed = now.since(self.began);
        if passed < SPAN {
            return;
        }
        self.before = if passed < SPAN * 2 { self.count } else { 0 };
        self.count = 0;
        self.began = if passed < SPAN * 2 { self.began.after(SPAN) } else { now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Monotonic {
        Monotonic::from_start(Duration::from_millis(millis))
    }

    /// `each` starts every 10 ms.
    fn run(tempo: &mut Tempo, from: u64, to: u64, each: usize) {
        for time in (from..to).step_by(10) {
            (0..each).for_each(|_| tempo.start(ms(time)));
            tempo.ready(ms(time));
        }
    }

    #[test]
    fn half_a_second_s_work_lies_ready_soon_after_the_start_and_steadily() {
        let mut tempo = Tempo::new(ms(0));
        assert_eq!(tempo.ready(ms(0)), 0);
        run(&mut tempo, 0, 500, 4);
        assert_eq!(tempo.ready(ms(500)), 128, "200 starts so far");
        run(&mut tempo, 500, 1_500, 4);
        for from in (1_500..5_000).step_by(100) {
            run(&mut tempo, from, from + 100, 4 - usize::from(from % 200 == 0));
            assert_eq!(tempo.ready(ms(from + 100)), 256, "small changes move nothing");
        }
    }

    #[test]
    fn an_upstream_that_became_slow_has_little_ready_within_two_seconds() {
        let mut tempo = Tempo::new(ms(0));
        run(&mut tempo, 0, 3_000, 4);
        assert_eq!(tempo.ready(ms(3_000)), 256);
        assert_eq!(tempo.ready(ms(3_990)), 2, "what is left of the second before");
        tempo.start(ms(4_500));
        assert_eq!(tempo.ready(ms(5_000)), 0);
        assert_eq!(tempo.ready(ms(50_000)), 0);
    }
}
