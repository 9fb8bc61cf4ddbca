//! Logs why requests were refused, with the likely cause, at a bounded rate: a stranger must not fill the disk.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use tracing::info;

use crate::ingest::respond::Refusal;
use crate::ingest::source::Source;
use crate::pace::Pace;
use crate::reader::Rate;
use crate::time::Monotonic;

/// Lines a second, over all sources; the rest is counted and told with the next line.
const LINES: Rate = Rate {
    count: 10,
    per: Duration::from_secs(1),
};

#[derive(Debug)]
pub(super) struct RefusalLog(Mutex<State>);

#[derive(Debug)]
struct State {
    pace: Pace,
    suppressed: u64,
}

impl RefusalLog {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State {
            pace: Pace::new(Some(LINES), Some(LINES.count)),
            suppressed: 0,
        }))
    }

    /// Neither body nor header values nor digests are logged; the hint is worked out only for lines that are written.
    pub(super) fn log(&self, source: &Source, client: IpAddr, refusal: &Refusal, now: Monotonic) {
        let suppressed = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if state.pace.not_before(now).is_some() {
                state.suppressed += 1;
                return;
            }
            state.pace.start(now);
            std::mem::take(&mut state.suppressed)
        };
        let (reason, hint) = match (refusal, refusal.failure()) {
            (Refusal::Method, _) => ("method_not_allowed", None),
            (Refusal::Unverified(reason, request), _) => {
                let hint = source.verifier.hint(request, *reason);
                (reason.as_str(), hint.map(|hint| hint.to_string()))
            }
            (Refusal::Client(why), _) => (refusal.reason().as_str(), Some(why.to_string())),
            (_, Some(failure)) => (failure.as_str(), None),
            (_, None) => (refusal.reason().as_str(), None),
        };
        info!(
            source = %source.name,
            %client,
            reason,
            hint,
            suppressed = (suppressed > 0).then_some(suppressed),
            "refused"
        );
    }
}
