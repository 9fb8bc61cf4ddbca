//! Why routes failed, in the log at a bounded rate: neither a stranger nor an outage may fill the disk.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tracing::{info, warn};

use super::Route;
use crate::id::SourceName;
use crate::pace::Pace;
use crate::reader::Rate;
use crate::time::Monotonic;

/// Lines a second, over all routes; the rest is counted and told with the next line.
const LINES: Rate = Rate {
    count: 10,
    per: Duration::from_secs(1),
};

#[derive(Debug)]
pub(super) struct FailureLog {
    failures: Limited,
    shadows: Limited,
}

/// Lets so many lines through.
#[derive(Debug)]
pub(super) struct Limited(Mutex<State>);

#[derive(Debug)]
struct State {
    pace: Pace,
    suppressed: u64,
}

impl Limited {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State {
            pace: Pace::new(Some(LINES), Some(LINES.count)),
            suppressed: 0,
        }))
    }

    /// Lines that were left out before this one, if one may be written now.
    pub(super) fn turn(&self, now: Monotonic) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.pace.not_before(now).is_some() {
            state.suppressed += 1;
            return None;
        }
        state.pace.start(now);
        Some(std::mem::take(&mut state.suppressed))
    }
}

impl FailureLog {
    pub(super) fn new() -> Self {
        Self {
            failures: Limited::new(),
            shadows: Limited::new(),
        }
    }

    /// The upstream gave no answer. Path and query are not logged: they may be credentials.
    pub(super) fn failed(&self, route: &Route, client: IpAddr, status: StatusCode, cause: &str, now: Monotonic) {
        let Some(suppressed) = self.failures.turn(now) else {
            return;
        };
        warn!(
            route = %route.name(),
            upstream = %route.proxy.upstream(),
            %client,
            status = status.as_u16(),
            cause,
            suppressed,
            "the upstream gave no answer"
        );
    }

    /// A path that could be taken for a source's was refused.
    pub(super) fn shadowed(&self, source: &SourceName, client: IpAddr, now: Monotonic) {
        let Some(suppressed) = self.shadows.turn(now) else {
            return;
        };
        info!(%source, %client, suppressed, "a route must not reach a source's path");
    }
}
