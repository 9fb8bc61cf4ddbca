//! Says that a key held what none of us wrote: seldom, however often it is found.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tracing::warn;

use super::commands::Silence;
use crate::time::Monotonic;

/// Time between two lines of a kind; what is found meanwhile is counted and told with the next.
const SELDOM: Duration = Duration::from_secs(10);

/// What was found under keys of ours, and not said yet.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    replaced: Mutex<Seldom>,
    stuck: Mutex<Seldom>,
}

impl Foreign {
    /// It was replaced under this key. The key holds no secret: namespace, source and a digest.
    pub(super) fn replaced(&self, key: &str, now: Monotonic) {
        if let Some(count) = due(&self.replaced, now) {
            warn!(
                key,
                count,
                "a value that is not ours was found under a key and replaced: Redis has lost what it knew of the event, whose \
                 duplicate may be forwarded twice; nobody else may write under this namespace"
            );
        }
    }

    /// It could not be replaced.
    pub(super) fn stuck(&self, key: &str, silence: Option<&Silence>, now: Monotonic) {
        if let Some(count) = due(&self.stuck, now) {
            warn!(
                key,
                count,
                reason = silence.map(tracing::field::display),
                "a value that is not ours was found under a key and could not be replaced: admission waits as if Redis did \
                 not answer; delete the key, and let the user EVAL"
            );
        }
    }
}

fn due(seldom: &Mutex<Seldom>, now: Monotonic) -> Option<u64> {
    seldom.lock().unwrap_or_else(PoisonError::into_inner).due(now)
}

#[derive(Debug, Default)]
struct Seldom {
    said: Option<Monotonic>,
    unsaid: u64,
}

impl Seldom {
    /// Counts one, and says of how many a line is due now.
    fn due(&mut self, now: Monotonic) -> Option<u64> {
        self.unsaid += 1;
        if self.said.is_some_and(|said| now.since(said) < SELDOM) {
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_every_ten_seconds_and_counts_what_came_between() {
        let at = |secs| Monotonic::from_start(Duration::from_secs(secs));
        let mut seldom = Seldom::default();
        assert_eq!(seldom.due(at(1)), Some(1));
        assert_eq!(seldom.due(at(2)), None);
        assert_eq!(seldom.due(at(10)), None);
        assert_eq!(seldom.due(at(11)), Some(3));
        assert_eq!(seldom.due(at(12)), None);
    }
}
