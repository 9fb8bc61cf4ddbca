//! What an outcome means: for the dispatch ([`Next`]), and for the upstream's [`Health`].

use std::time::Duration;

use http::StatusCode;

use crate::forward::backoff::{self, Dice};
use crate::forward::breaker::Health;
use crate::forward::settings::{Late, Retry};
use crate::store::model::{Next, Outcome};
use crate::time::Timestamp;

/// What is known when an attempt has ended, besides its outcome.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// Now.
    pub now: Timestamp,
    /// When the give-up clocks started.
    pub clock_started_at: Timestamp,
    /// For how long since then the lane was stopped (paused, breaker open), which does not count.
    pub stopped: Duration,
    /// Attempts since the clocks started, this one included.
    pub attempts_on_clock: u32,
    /// What the upstream asked for, already clamped.
    pub retry_after: Option<Duration>,
    /// Whether the wall clock can be believed. If not, no clock runs out.
    pub clock_trusted: bool,
}

/// What becomes of the dispatch.
///
/// The last retry is brought forward to the end of the give-up clock, so that a long back-off does not keep a dispatch
/// past it; a `Retry-After` is never shortened.
pub fn next(outcome: &Outcome, retry: &Retry, context: &Context, dice: Dice) -> Next {
    let limit = match class(outcome) {
        Class::Delivered => return Next::Delivered,
        Class::Gone => return Next::Dead,
        Class::Failed => retry.give_up_after,
        Class::Refused => retry.give_up_refused,
    };
    if retry.max_attempts.is_some_and(|max| context.attempts_on_clock >= max) {
        return Next::Dead;
    }
    let age = context
        .now
        .since(context.clock_started_at)
        .saturating_sub(context.stopped);
    let left = limit.saturating_sub(age);
    if left.is_zero() && context.clock_trusted {
        return Next::Dead;
    }
    let wait = match context.retry_after {
        Some(asked) => asked,
        None => {
            let wait = backoff::wait(context.attempts_on_clock, retry, dice);
            if left.is_zero() { wait } else { wait.min(left) }
        }
    };
    Next::Retry {
        due: context.now.after(wait),
    }
}

/// What becomes of a dispatch after an attempt that its sender waited for: done, or pending until the sender's patience is
/// over (`due`), so that until then a duplicate makes the next attempt. Where it then goes to the queue, no sooner than a
/// retry would.
pub fn next_while_waited_for(
    outcome: &Outcome,
    late: Late,
    retry: &Retry,
    context: &Context,
    due: Timestamp,
    dice: Dice,
) -> Next {
    if matches!(outcome, Outcome::Delivered { .. }) {
        return Next::Delivered;
    }
    let wait = match late {
        Late::Dead => Duration::ZERO,
        Late::Queue => context
            .retry_after
            .unwrap_or_else(|| backoff::wait(context.attempts_on_clock, retry, dice)),
    };
    Next::Retry {
        due: due.max(context.now.after(wait)),
    }
}

/// What a lane does with a dispatch that its sender waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterWaiting {
    /// An attempt like any other.
    Attempt,
    /// It dies without one.
    Die,
    /// Not now: the clock that says that it is late cannot be believed.
    Postpone,
}

/// The sender's patience is over. A person's replay is attempted in any case.
pub fn after_waiting(late: Late, replay: bool, clock_trusted: bool) -> AfterWaiting {
    match late {
        _ if replay => AfterWaiting::Attempt,
        Late::Queue => AfterWaiting::Attempt,
        Late::Dead if clock_trusted => AfterWaiting::Die,
        Late::Dead => AfterWaiting::Postpone,
    }
}

/// What an outcome says about the upstream's health.
pub fn health(outcome: &Outcome) -> Health {
    match outcome {
        Outcome::NotSent { .. } | Outcome::Unknown { .. } => Health::Failing,
        Outcome::Delivered { .. } => Health::Answered,
        Outcome::Refused { status } => {
            if status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS {
                Health::Failing
            } else {
                Health::Answered
            }
        }
    }
}

/// Whether `Retry-After` means something with this outcome.
pub fn honours_retry_after(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Refused {
            status: StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        }
    )
}

/// Which give-up clock an outcome runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// 2xx.
    Delivered,
    /// 410: the app says that it never wants this.
    Gone,
    /// May pass by itself: no answer, 408, 409, 425, 429, 5xx. `give_up_after`.
    Failed,
    /// The app looked and said no: other 4xx, and 3xx, which is not followed. `give_up_refused`.
    Refused,
}

fn class(outcome: &Outcome) -> Class {
    match outcome {
        Outcome::Delivered { .. } => Class::Delivered,
        Outcome::NotSent { .. } | Outcome::Unknown { .. } => Class::Failed,
        Outcome::Refused { status } => match status.as_u16() {
            410 => Class::Gone,
            408 | 409 | 425 | 429 | 500.. => Class::Failed,
            _ => Class::Refused,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sender_waited_for_is_done_or_waits_for_a_duplicate() {
        let now = Timestamp::from_secs(1000);
        let context = Context {
            now,
            clock_started_at: now,
            stopped: Duration::ZERO,
            attempts_on_clock: 1,
            retry_after: None,
            clock_trusted: true,
        };
        let retry = Retry::default();
        let next = |outcome: &Outcome, late, due, context: &Context| {
            next_while_waited_for(outcome, late, &retry, context, due, Dice(u32::MAX))
        };
        let (soon, past) = (now.after(Duration::from_secs(2)), now.before(Duration::from_secs(2)));
        assert_eq!(next(&delivered(), Late::Dead, soon, &context), Next::Delivered);
        // Whatever was refused, also for good: a duplicate asks again.
        for outcome in [refused(500), refused(404), refused(410), unknown(), not_sent()] {
            assert_eq!(next(&outcome, Late::Dead, soon, &context), Next::Retry { due: soon });
            assert_eq!(next(&outcome, Late::Dead, past, &context), Next::Retry { due: now });
            let backed_off = now.after(retry.first);
            assert_eq!(
                next(&outcome, Late::Queue, soon, &context),
                Next::Retry { due: backed_off }
            );
        }
        let asked = Context {
            retry_after: Some(HOUR),
            ..context
        };
        assert_eq!(
            next(&refused(503), Late::Queue, soon, &asked),
            Next::Retry { due: now.after(HOUR) }
        );
        assert_eq!(next(&refused(503), Late::Dead, soon, &asked), Next::Retry { due: soon });
    }

    #[test]
    fn a_wrong_clock_kills_no_late_dispatch_and_a_person_s_replay_is_attempted() {
        assert_eq!(after_waiting(Late::Dead, false, true), AfterWaiting::Die);
        assert_eq!(after_waiting(Late::Dead, false, false), AfterWaiting::Postpone);
        assert_eq!(after_waiting(Late::Dead, true, true), AfterWaiting::Attempt);
        assert_eq!(after_waiting(Late::Queue, false, false), AfterWaiting::Attempt);
    }

    const HOUR: Duration = Duration::from_secs(3600);

    fn refused(status: u16) -> Outcome {
        Outcome::Refused {
            status: StatusCode::from_u16(status).unwrap(),
        }
    }

    fn unknown() -> Outcome {
        Outcome::Unknown {
            cause: "timeout".to_owned(),
        }
    }

    fn not_sent() -> Outcome {
        Outcome::NotSent {
            cause: "connection refused".to_owned(),
        }
    }

    fn delivered() -> Outcome {
        Outcome::Delivered {
            status: StatusCode::NO_CONTENT,
        }
    }

    fn aged(age: Duration) -> Context {
        Context {
            now: Timestamp::from_secs(1_700_000_000).after(age),
            clock_started_at: Timestamp::from_secs(1_700_000_000),
            stopped: Duration::ZERO,
            attempts_on_clock: 3,
            retry_after: None,
            clock_trusted: true,
        }
    }

    fn decide(outcome: &Outcome, context: &Context) -> Next {
        next(outcome, &Retry::default(), context, Dice(u32::MAX))
    }

    #[test]
    fn each_outcome_has_its_clock() {
        for (outcome, alive, dead) in [
            (not_sent(), 167, 168),
            (unknown(), 167, 168),
            (refused(408), 167, 168),
            (refused(409), 167, 168),
            (refused(425), 167, 168),
            (refused(429), 167, 168),
            (refused(500), 167, 168),
            (refused(503), 167, 168),
            (refused(599), 167, 168),
            (refused(999), 167, 168),
            (refused(301), 23, 24),
            (refused(304), 23, 24),
            (refused(400), 23, 24),
            (refused(401), 23, 24),
            (refused(404), 23, 24),
            (refused(422), 23, 24),
            (refused(101), 23, 24),
        ] {
            let decided = decide(&outcome, &aged(HOUR * alive));
            assert!(
                matches!(decided, Next::Retry { .. }),
                "{outcome:?} after {alive} h: {decided:?}"
            );
            assert_eq!(
                decide(&outcome, &aged(HOUR * dead)),
                Next::Dead,
                "{outcome:?} after {dead} h"
            );
        }
    }

    #[test]
    fn a_2xx_is_delivered_and_a_410_dies_at_once() {
        assert_eq!(decide(&delivered(), &aged(HOUR * 1000)), Next::Delivered);
        assert_eq!(decide(&refused(410), &aged(Duration::ZERO)), Next::Dead);
    }

    #[test]
    fn stopped_time_does_not_count() {
        let context = Context {
            stopped: HOUR * 3,
            ..aged(HOUR * 168)
        };
        assert!(matches!(decide(&not_sent(), &context), Next::Retry { .. }));
        let context = Context {
            stopped: HOUR * 3,
            ..aged(HOUR * 171)
        };
        assert_eq!(decide(&not_sent(), &context), Next::Dead);
    }

    #[test]
    fn the_last_retry_comes_when_the_clock_ends() {
        let age = HOUR * 168 - Duration::from_secs(3);
        let context = Context {
            attempts_on_clock: 20,
            ..aged(age)
        };
        let due = context.now.after(Duration::from_secs(3));
        assert_eq!(decide(&not_sent(), &context), Next::Retry { due });
    }

    #[test]
    fn retry_after_is_never_shortened() {
        let context = Context {
            retry_after: Some(HOUR),
            ..aged(HOUR * 168 - Duration::from_secs(3))
        };
        let due = context.now.after(HOUR);
        assert_eq!(decide(&refused(503), &context), Next::Retry { due });
    }

    #[test]
    fn max_attempts_counts_since_the_clocks_started() {
        let retry = Retry {
            max_attempts: Some(3),
            ..Retry::default()
        };
        let mut context = aged(Duration::ZERO);
        assert_eq!(next(&not_sent(), &retry, &context, Dice(7)), Next::Dead);
        context.attempts_on_clock = 2;
        assert!(matches!(
            next(&not_sent(), &retry, &context, Dice(7)),
            Next::Retry { .. }
        ));
    }

    #[test]
    fn a_wrong_clock_kills_nothing() {
        let context = Context {
            clock_trusted: false,
            ..aged(HOUR * 1_000_000)
        };
        let due = context.now.after(Duration::from_secs(20));
        assert_eq!(decide(&not_sent(), &context), Next::Retry { due });
    }

    #[test]
    fn an_answer_is_healthy_but_for_5xx_and_429() {
        for (outcome, health_expected) in [
            (delivered(), Health::Answered),
            (refused(302), Health::Answered),
            (refused(400), Health::Answered),
            (refused(408), Health::Answered),
            (refused(410), Health::Answered),
            (refused(429), Health::Failing),
            (refused(500), Health::Failing),
            (refused(503), Health::Failing),
            (not_sent(), Health::Failing),
            (unknown(), Health::Failing),
        ] {
            assert_eq!(health(&outcome), health_expected, "{outcome:?}");
        }
        assert!(honours_retry_after(&refused(429)) && honours_retry_after(&refused(503)));
        assert!(!honours_retry_after(&refused(500)) && !honours_retry_after(&delivered()));
    }
}
