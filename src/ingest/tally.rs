//! Counts each request once, also when its client leaves before the answer (P8).
//!
//! The HTTP library drops the work on a request whose client has gone. An event that was handed to the store by then is
//! stored all the same (also while Redis is still asked whether it is known), so the work goes on beside the connection and it is
//! counted when it has ended.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use crate::forward::answer::Answered;
use crate::ingest::respond::Refusal;
use crate::store::model::Receipt;
use crate::telemetry::metrics::{Failure, SourceMetrics};
use crate::time::{Clock, Monotonic};

/// A verified request that will be stored, or was found to be stored already.
type Storing = Pin<Box<dyn Future<Output = Result<Stored, Refusal>> + Send>>;

/// How a verified request came to be durable.
#[derive(Debug)]
pub(super) enum Stored {
    /// The store has it, new or not.
    Appended(Receipt),
    /// A look found its key's event, before the store was asked.
    Known {
        /// That event.
        receipt: Receipt,
        /// The bytes differ.
        conflict: bool,
    },
    /// The store has it, and its sender waits for what the upstream says.
    Waiting {
        /// The appended event.
        receipt: Receipt,
        /// What it will be answered.
        answered: oneshot::Receiver<Answered>,
    },
}

/// One request to a source, until it is counted.
pub(super) struct Tally<'i> {
    metrics: &'i Arc<SourceMetrics>,
    clock: &'i Clock,
    tracker: &'i TaskTracker,
    began: Monotonic,
    state: State,
}

enum State {
    /// Nothing has been decided.
    Open,
    /// It is on its way into the store, whoever is still there to hear of it.
    Storing(Storing),
    /// Done.
    Counted,
}

impl<'i> Tally<'i> {
    pub(super) fn new(
        metrics: &'i Arc<SourceMetrics>,
        clock: &'i Clock,
        tracker: &'i TaskTracker,
        began: Monotonic,
    ) -> Self {
        Self {
            metrics,
            clock,
            tracker,
            began,
            state: State::Open,
        }
    }

    /// Waits for the store, for as long as the sender has patience. After that it may still be stored; the sender's
    /// retry is then its duplicate, and it is counted by what the store says in the end.
    pub(super) async fn store(
        &mut self,
        storing: impl Future<Output = Result<Stored, Refusal>> + Send + 'static,
        patience: Duration,
    ) -> Result<Stored, Refusal> {
        let State::Storing(storing) = self.state.hand_over(Box::pin(storing)) else {
            return Err(Refusal::StoreTooSlow);
        };
        let Ok(answer) = tokio::time::timeout(patience, storing).await else {
            return Err(Refusal::StoreTooSlow);
        };
        self.state = State::Open;
        answer
    }

    /// Counts the request by how it ended, unless the store has yet to say.
    pub(super) fn end(mut self, count: impl FnOnce(Duration)) {
        if matches!(self.state, State::Open) {
            self.state = State::Counted;
            count(self.clock.monotonic().since(self.began));
        }
    }
}

impl State {
    fn hand_over(&mut self, storing: Storing) -> &mut Self {
        *self = Self::Storing(storing);
        self
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.state, State::Counted) {
            State::Counted => {}
            State::Open => self.metrics.failed(Failure::Incomplete),
            State::Storing(storing) => {
                // Without a runtime the process is at its end, and nobody reads the counters.
                let Ok(runtime) = tokio::runtime::Handle::try_current() else {
                    return;
                };
                let (metrics, clock, began) = (Arc::clone(self.metrics), self.clock.clone(), self.began);
                let counted = async move {
                    let ended = storing.await;
                    let took = clock.monotonic().since(began);
                    match ended {
                        Ok(Stored::Appended(_) | Stored::Waiting { .. }) => metrics.accepted(took),
                        Ok(Stored::Known { conflict, .. }) => metrics.duplicate(conflict, took),
                        Err(refusal) => metrics.failed(refusal.failure().unwrap_or(Failure::StoreFailed)),
                    }
                };
                self.tracker.spawn_on(counted, &runtime);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::EventId;
    use crate::telemetry::metrics::RequestOutcome;
    use crate::time::Timestamp;

    #[tokio::test]
    async fn an_event_whose_client_left_is_counted_when_it_is_stored() {
        let (metrics, tracker) = (Arc::new(SourceMetrics::default()), TaskTracker::new());
        let clock = Clock::manual(Timestamp::from_secs(1));
        let (stored, waiting) = tokio::sync::oneshot::channel();
        let storing = async move {
            let receipt: Receipt = waiting.await.unwrap();
            Ok(Stored::Appended(receipt))
        };
        let mut tally = Tally::new(&metrics, &clock, &tracker, clock.monotonic());
        let waited = tokio::time::timeout(Duration::ZERO, tally.store(storing, Duration::from_secs(9))).await;
        assert!(waited.is_err(), "the client leaves while the store works");
        drop(tally);
        assert_eq!(metrics.requests(RequestOutcome::Accepted), 0);
        stored.send(Receipt::stored(EventId::from_bytes([1; 16]))).unwrap();
        tracker.close();
        tracker.wait().await;
        assert_eq!(metrics.requests(RequestOutcome::Accepted), 1);
        assert_eq!(metrics.requests(RequestOutcome::Failed), 0);
    }

    #[tokio::test]
    async fn a_request_that_never_came_whole_is_counted_as_failed() {
        let (metrics, tracker) = (Arc::new(SourceMetrics::default()), TaskTracker::new());
        let clock = Clock::manual(Timestamp::from_secs(1));
        drop(Tally::new(&metrics, &clock, &tracker, clock.monotonic()));
        assert_eq!(metrics.failures(Failure::Incomplete), 1);
        Tally::new(&metrics, &clock, &tracker, clock.monotonic()).end(|_took| metrics.challenge());
        assert_eq!(metrics.requests(RequestOutcome::Failed), 1);
    }
}
