//! Tells why requests were refused, with the likely cause, at a bounded rate: a stranger must neither fill the disk nor
//! keep a core busy. What is told is a line of the log and one of the source's last refusals.
//!
//! The cause is worked out when the answer has been made, on a thread for work that blocks: how long it takes tells the
//! sender nothing.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::task::TaskTracker;
use tracing::info;

use crate::ingest::Served;
use crate::ingest::respond::Refusal;
use crate::pace::Pace;
use crate::reader::Rate;
use crate::request::RawRequest;
use crate::telemetry::metrics::LastRefusal;
use crate::time::{Monotonic, Timestamp};
use crate::verify::{Reason, Verifier};

/// Lines a second, over all sources; the rest is counted and told with the next line.
const LINES: Rate = Rate {
    count: 10,
    per: Duration::from_secs(1),
};
/// Causes that are looked for, over all sources; each is many times the work of a verification.
const CAUSES: Rate = Rate {
    count: 60,
    per: Duration::from_secs(60),
};
/// Of those, at once: a person who sends a few requests to see why wants to hear it of each.
const CAUSES_AT_ONCE: u32 = 5;

#[derive(Debug)]
pub(super) struct RefusalLog(Mutex<State>);

#[derive(Debug)]
struct State {
    lines: Pace,
    causes: Pace,
    suppressed: u64,
}

/// One refusal that is told.
struct Line {
    served: Arc<Served>,
    client: IpAddr,
    at: Timestamp,
    suppressed: u64,
}

impl RefusalLog {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State {
            lines: Pace::new(Some(LINES), Some(LINES.count)),
            causes: Pace::new(Some(CAUSES), Some(CAUSES_AT_ONCE)),
            suppressed: 0,
        }))
    }

    /// Neither body nor header values nor digests are told. `others` gives the sources of the configuration.
    pub(super) fn log(
        &self,
        served: &Arc<Served>,
        client: IpAddr,
        refusal: Refusal,
        (at, now): (Timestamp, Monotonic),
        others: impl FnOnce() -> Vec<Arc<Served>>,
        tracker: &TaskTracker,
    ) {
        let Some(suppressed) = self.admit_line(now) else {
            return;
        };
        let line = Line {
            served: Arc::clone(served),
            client,
            at,
            suppressed,
        };
        let failure = refusal.failure();
        match (refusal, failure) {
            (Refusal::Unverified(reason, request), _) if self.admit_cause(now) => {
                let others = others();
                // Nobody waits for it.
                drop(tracker.spawn_blocking(move || {
                    let cause = cause(&line.served, &request, reason, &others);
                    line.tell(reason.as_str(), cause);
                }));
            }
            (Refusal::Unverified(reason, _), _) => line.tell(reason.as_str(), None),
            (Refusal::Method, _) => line.tell("method_not_allowed", None),
            (Refusal::NotLearned(why), None) => line.tell(why.reason().as_str(), Some(why.to_string())),
            (Refusal::Client(why), _) => line.tell(Reason::AddressNotAllowed.as_str(), Some(why.to_string())),
            (_, Some(failure)) => line.tell(failure.as_str(), None),
            (refusal, None) => line.tell(refusal.reason().as_str(), None),
        }
    }

    /// Whether there is room for a line, and how many were left out before it.
    fn admit_line(&self, now: Monotonic) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.lines.not_before(now).is_some() {
            state.suppressed += 1;
            return None;
        }
        state.lines.start(now);
        Some(std::mem::take(&mut state.suppressed))
    }

    fn admit_cause(&self, now: Monotonic) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = state.causes.not_before(now).is_none();
        if is_due {
            state.causes.start(now);
        }
        is_due
    }
}

fn cause(served: &Served, request: &RawRequest, reason: Reason, others: &[Arc<Served>]) -> Option<String> {
    if served.learner.is_some() && served.source.verifier.secrets().is_empty() {
        let name = &served.source.name;
        return Some(format!(
            "the source has no secret yet: `hooksluice sources learn {name}` lets it take the one that its provider hands over"
        ));
    }
    let others: Vec<(&str, &Verifier)> = others
        .iter()
        .filter(|other| other.source.name != served.source.name)
        .map(|other| (other.source.name.as_str(), &*other.source.verifier))
        .collect();
    let hint = served.source.verifier.hint_among(request, reason, &others);
    hint.map(|hint| hint.to_string())
}

impl Line {
    fn tell(self, reason: &'static str, hint: Option<String>) {
        info!(
            source = %self.served.source.name,
            client = %self.client,
            reason,
            hint,
            suppressed = (self.suppressed > 0).then_some(self.suppressed),
            "refused"
        );
        self.served.metrics.last_refusals().note(LastRefusal {
            at: self.at,
            client: self.client,
            reason,
            hint: hint.map(Arc::from),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Clock;

    #[test]
    fn a_flood_is_told_at_a_bounded_rate_and_explained_at_a_lower_one() {
        let log = RefusalLog::new();
        let start = Clock::system().monotonic();
        let (mut lines, mut causes) = (0, 0);
        for millis in 0..10_000 {
            let now = start.after(Duration::from_millis(millis));
            if log.admit_line(now).is_some() {
                lines += 1;
                causes += u32::from(log.admit_cause(now));
            }
        }
        assert!((100..=111).contains(&lines), "{lines}");
        assert!((10..=16).contains(&causes), "{causes}");
    }
}
