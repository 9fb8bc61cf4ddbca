//! An attempt as a task: from the slot that it takes until the store has its outcome.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tracing::{debug, error, warn};

use super::{Driver, STORE_PATIENCE, WARN_EVERY};
use crate::forward::answer::WaitedFor;
use crate::forward::attempt::{self, Answer, Want};
use crate::forward::backoff::{self, Dice};
use crate::forward::lane::{Asked, Slot};
use crate::forward::{outcome, signature};
use crate::id::{EventId, SourceName};
use crate::store::StoreError;
use crate::store::model::{Finished, LeasedDispatch, Next, Outcome, Settled};
use crate::time::Timestamp;

impl Driver {
    /// `waited_for`: a sender wants to hear of it.
    pub(in crate::forward) fn launch(
        self: &Arc<Self>,
        dispatch: LeasedDispatch,
        running: Running,
        waited_for: Option<WaitedFor>,
    ) {
        let task = Arc::clone(self).attempt(dispatch, running, waited_for);
        // Boxed: an attempt is some 5 KB, which the tracker and the runtime would copy four times.
        self.common.tracker.spawn(Box::pin(task));
    }

    /// One attempt from its first byte until the store has its outcome.
    async fn attempt(self: Arc<Self>, dispatch: LeasedDispatch, running: Running, waited_for: Option<WaitedFor>) {
        if !self.common.store.holds(&dispatch) {
            debug!(event = %dispatch.event.id, upstream = %self.name, "not attempted: the lease was lost");
            return;
        }
        let started_at = self.common.clock.now();
        let began = self.now();
        let answer = tokio::select! {
            biased;
            answer = unpanicked(self.exchange(&dispatch, started_at)) => Some(answer),
            () = self.common.cut.cancelled() => None,
        };
        let took = self.now().since(began);
        let due = waited_for.as_ref().map(|waited_for| waited_for.due);
        let (answer, next, settling) = match answer {
            Some(answer) => {
                let (next, settling) = self.judge(&dispatch, &answer, running, due);
                (answer, next, settling)
            }
            None => {
                // Ours, not the upstream's doing: it is repeated at the next start, and no back-off is due.
                let now = self.common.clock.now();
                let due = due.map_or(now, |due| due.max(now));
                (
                    attempt::unknown("cut off by our shutdown".to_owned()),
                    Next::Retry { due },
                    running.cut_off(),
                )
            }
        };
        self.metrics().attempt(&answer.outcome, took);
        self.log_attempt(&dispatch, &answer.outcome, took);
        let finished = Finished {
            lease: dispatch,
            outcome: answer.outcome,
            started_at,
            took,
            excerpt: answer.excerpt,
            reply: answer.reply.clone().filter(|_reply| next == Next::Delivered),
        };
        self.settle(finished, next).await;
        drop(settling);
        // Not before it is durable: a duplicate after a crash must hear the same.
        if let Some(waited_for) = waited_for {
            waited_for.tell(answer.reply);
        }
    }

    async fn exchange(&self, dispatch: &LeasedDispatch, now: Timestamp) -> Answer {
        let setup = self.setup.load_full();
        let source = self.common.source(&dispatch.event.source);
        let source = source.as_deref();
        let target = source.and_then(|source| source.forward_path.as_ref());
        let verifier = source.map(|source| &*source.verifier);
        let signature = signature::headers(&setup.settings.signature, verifier, &dispatch.event, now);
        let request = setup.envelope.request(dispatch, target, signature);
        let want = match source.and_then(|source| source.synchronous) {
            Some(_) => Want::Reply,
            None => Want::Excerpt,
        };
        attempt::exchange(&setup.connections, request, setup.settings.timeout, want).await
    }

    /// What the answer means for the lane and for the dispatch; `due`: when it is the lane's, if a sender waits for it.
    fn judge(
        self: &Arc<Self>,
        dispatch: &LeasedDispatch,
        answer: &Answer,
        running: Running,
        due: Option<Timestamp>,
    ) -> (Next, Settling) {
        let retry = &self.settings().retry;
        let now = self.common.clock.now();
        let retry_after = answer
            .retry_after
            .as_ref()
            .filter(|_| outcome::honours_retry_after(&answer.outcome))
            .and_then(|value| backoff::retry_after(value, retry, now));
        let asked = retry_after.map(|wait| Asked {
            event: dispatch.event.id,
            wait,
        });
        let (settling, stopped_total) = running.ended(&answer.outcome, asked);
        let stopped_anywhere = self.common.store.stopped_total(&self.name);
        let stopped_total = stopped_total.max(stopped_anywhere.unwrap_or_default());
        let context = outcome::Context {
            now,
            clock_started_at: dispatch.clock_started_at,
            stopped: stopped_total.saturating_sub(dispatch.clock_stopped_before),
            attempts_on_clock: dispatch.attempts_on_clock,
            retry_after,
            clock_trusted: self.common.store.clock_is_trusted(),
        };
        let dice = Dice(rand::random());
        let source = self.common.source(&dispatch.event.source);
        let next = match (due, source.and_then(|source| source.synchronous)) {
            (Some(due), Some(synchronous)) => {
                outcome::next_while_waited_for(&answer.outcome, synchronous.late, retry, &context, due, dice)
            }
            _ => outcome::next(&answer.outcome, retry, &context, dice),
        };
        (next, settling)
    }

    /// Hands the outcome to the store, which waits while it cannot write: the outcome is not lost while the process
    /// lives. How many wait is bounded by the lane; after the cut they wait no longer, so that a store which cannot write
    /// does not hold up the end.
    pub(super) async fn settle(&self, finished: Finished, next: Next) {
        let upstream = &self.name;
        let id = finished.lease.event.id;
        let death = (next == Next::Dead).then(|| Death {
            source: finished.lease.event.source.clone(),
            event: id,
            attempts: finished.lease.attempt,
            why: finished.outcome.clone().into(),
        });
        let settled = tokio::select! {
            biased;
            settled = self.common.store.settle(finished, next) => settled,
            () = self.after_cut() => Err(StoreError::Closing),
        };
        match settled {
            Ok(Settled::Recorded) => {}
            Ok(Settled::LeaseLost) => {
                warn!(event = %id, %upstream, "outcome not recorded: the lease was lost");
                return;
            }
            Err(error) => {
                warn!(event = %id, %upstream, %error, "outcome not recorded: it will be attempted again");
                return;
            }
        }
        if let Some(death) = death {
            self.mourn(&death);
        }
    }

    /// A dispatch died: counted, and said with the command that replays it.
    pub(super) fn mourn(&self, death: &Death) {
        let (id, upstream) = (death.event, &self.name);
        self.metrics().dead.add(1);
        let (outcome, detail): (_, &dyn std::fmt::Display) = match &death.why {
            Why::Outcome(outcome) => (outcome.as_str(), &Detail(outcome)),
            Why::Late => ("late", &"its sender waited and was not answered"),
        };
        error!(
            source = %death.source,
            event = %id,
            %upstream,
            attempts = death.attempts,
            outcome,
            %detail,
            replay = %format_args!("hooksluice events replay {id} --to {upstream}"),
            "dispatch is dead"
        );
    }

    pub(super) async fn after_cut(&self) {
        self.common.cut.cancelled().await;
        tokio::time::sleep(STORE_PATIENCE).await;
    }

    fn log_attempt(&self, dispatch: &LeasedDispatch, outcome: &Outcome, took: Duration) {
        let upstream = &self.name;
        debug!(
            source = %dispatch.event.source, event = %dispatch.event.id, %upstream, attempt = dispatch.attempt,
            outcome = outcome.as_str(), detail = %Detail(outcome), took_ms = took.as_millis(), "attempt ended"
        );
        if matches!(outcome, Outcome::Delivered { .. }) {
            return;
        }
        let now = self.now();
        let more = {
            let mut state = self.state();
            if state.warned.is_some_and(|warned| now.since(warned) < WARN_EVERY) {
                state.unwarned += 1;
                return;
            }
            state.warned = Some(now);
            std::mem::take(&mut state.unwarned)
        };
        warn!(
            source = %dispatch.event.source, event = %dispatch.event.id, %upstream, attempt = dispatch.attempt,
            outcome = outcome.as_str(), detail = %Detail(outcome), not_shown = more, "attempt failed"
        );
    }
}

/// A slot in use. Dropped without an outcome (a panic), it is freed all the same.
#[derive(Debug)]
pub(in crate::forward) struct Running {
    driver: Arc<Driver>,
    slot: Option<Slot>,
}

impl Running {
    pub(super) fn new(driver: Arc<Driver>, slot: Slot) -> Self {
        driver.metrics().in_flight.add(1);
        Self {
            driver,
            slot: Some(slot),
        }
    }

    /// The attempt has an outcome; with it, for how long the lane was stopped so far.
    fn ended(mut self, outcome: &Outcome, asked: Option<Asked>) -> (Settling, Duration) {
        let health = outcome::health(outcome);
        let slot = self.slot.take();
        let stopped_total = self.driver.change(|lane, now| {
            if let Some(slot) = slot {
                lane.ended(slot, health, asked, now);
            }
            lane.stopped_total(now)
        });
        self.driver.metrics().in_flight.add(-1);
        self.driver
            .metrics()
            .last_progress
            .set(self.driver.common.clock.now().as_secs());
        (Settling(Some(Arc::clone(&self.driver))), stopped_total)
    }

    /// The attempt was let go of: it says nothing about the upstream.
    fn cut_off(self) -> Settling {
        Settling(None)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.driver.metrics().in_flight.add(-1);
            self.driver.change(|lane, now| lane.abandoned(slot, now));
        }
    }
}

/// An ended attempt whose outcome is on its way to the store.
#[derive(Debug)]
struct Settling(Option<Arc<Driver>>);

impl Drop for Settling {
    fn drop(&mut self) {
        if let Some(driver) = &self.0 {
            driver.change(|lane, _now| lane.settled());
        }
    }
}

/// The work's answer; a panic in it is an unknown outcome like any other, with its back-off, and not a loop.
async fn unpanicked(work: impl Future<Output = Answer>) -> Answer {
    let mut work = pin!(work);
    std::future::poll_fn(move |context| {
        // Unwind safe: after a panic the future is not polled again.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(poll) => poll,
            Err(panic) => {
                error!(
                    panic = panic_text(panic.as_ref()),
                    "an attempt panicked: please report this"
                );
                Poll::Ready(attempt::unknown("a defect in hooksluice: see its log".to_owned()))
            }
        }
    })
    .await
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match panic.downcast_ref::<&str>() {
        Some(text) => text,
        None => panic.downcast_ref::<String>().map_or("", String::as_str),
    }
}

/// What is told of a dispatch that died.
#[derive(Debug)]
pub(super) struct Death {
    pub(super) source: SourceName,
    pub(super) event: EventId,
    pub(super) attempts: u32,
    pub(super) why: Why,
}

/// Why it died.
#[derive(Debug)]
pub(super) enum Why {
    /// Of how its last attempt ended.
    Outcome(Outcome),
    /// Nobody waits for its answer any more.
    Late,
}

impl From<Outcome> for Why {
    fn from(outcome: Outcome) -> Self {
        Self::Outcome(outcome)
    }
}

/// An outcome's status or cause.
struct Detail<'a>(&'a Outcome);

impl std::fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Outcome::Delivered { status } | Outcome::Refused { status } => write!(f, "{}", status.as_u16()),
            Outcome::NotSent { cause } | Outcome::Unknown { cause } => f.write_str(cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_in_an_attempt_is_an_unknown_outcome() {
        let answer = unpanicked(async {
            tokio::task::yield_now().await;
            panic!("on purpose")
        })
        .await;
        assert!(matches!(answer.outcome, Outcome::Unknown { .. }), "{answer:?}");
    }
}
