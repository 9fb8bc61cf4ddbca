//! Answering a sender that waits for the upstream's own answer (`reply = "upstream"`, DESIGN section 8).
//!
//! # Theory of operation
//!
//! The event is durable before this begins. [`Forwarder::answer`] asks the store for its dispatch and does what that finds:
//!
//! ```text
//! leased ── slot, ahead of the queue ── attempt ── 2xx, 3xx: kept, then relayed
//!   │                                     └─────── 4xx: relayed, not kept
//!   │                                     └─────── anything else, or nothing in time: 503
//!   └─ no slot in half of the time: handed back, 503
//! waiting, but paused or the breaker is open ── 503 at once
//! running ── waits until it has ended, and asks again (so it does where another replica has all of the pace)
//! answered before ── the same answer
//! ```
//!
//! The lease is had before the slot, so that no slot waits for the store. The attempt is the lane's: it goes on when the
//! sender has gone or its time is over, up to the upstream's `timeout`, and what comes of it is kept for a duplicate. Until
//! the sender's patience is over the dispatch is nobody else's; then the lane does as `late` says. An attempt that failed is
//! kept from nobody: each duplicate, also one that waited for it, makes the next, and there is never a second one beside it,
//! since the store leases a dispatch once.
//!
//! # Promises
//!
//! **P6**: [`QUESTIONS_MAX`] senders, 256 for each lane's slots. **P7**: each attempt
//! has a slot like any other. **P9**: an answer is told after its outcome and it are durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::forward::Forwarder;
use crate::forward::driver::Driver;
use crate::key::DedupeKey;
use crate::store::StoreError;
use crate::store::model::{DispatchState, LeasedDispatch};
use crate::store::reply::{Found, Reply, Unattempted, Want};
use crate::telemetry::metrics::{SenderAnswer, SourceMetrics};
use crate::time::{Monotonic, Timestamp};

/// Senders that may wait at once, over all sources: as many as there are connections by default.
pub const QUESTIONS_MAX: usize = 4_096;
/// How often a running attempt is looked at: another replica's says nothing here when it ends.
const LOOK: Duration = Duration::from_millis(200);
/// Who waits for an attempt waits at one of so many places, by the event's key.
const PLACES: usize = 64;

/// A sender that waits.
#[derive(Clone, Debug)]
pub struct Question {
    /// For which dispatch.
    pub want: Want,
    /// Until when it can be answered.
    pub until: Monotonic,
    /// When the dispatch is due for its lane.
    pub due: Timestamp,
}

/// What a sender is answered.
#[derive(Debug)]
pub enum Answered {
    /// What the upstream said.
    Relayed(Reply),
    /// What the upstream said to an earlier attempt.
    Kept(Reply),
    /// It is over, and nothing was kept of it.
    Over,
    /// Nothing: its own try again makes the next attempt.
    Not(Unanswered),
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The attempt failed: 5xx, or no answer.
    Failed,
    /// The sender's time is over; the attempt may still run.
    Late,
    /// The upstream is paused.
    Paused,
    /// The upstream's breaker is open.
    BreakerOpen,
    /// The upstream's slots, or the places to wait for them, are taken.
    Full,
    /// The lane has ended: we are shutting down, or its upstream has left the configuration.
    Closing,
    /// The store failed.
    Store,
    /// The event is not this store's to answer for.
    Elsewhere,
}

/// All senders that wait.
#[derive(Debug)]
pub(super) struct Answers {
    places: [Notify; PLACES],
    questions: AtomicUsize,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            places: std::array::from_fn(|_| Notify::new()),
            questions: AtomicUsize::new(0),
        }
    }
}

impl Answers {
    fn place(&self, key: &DedupeKey) -> &Notify {
        // Keys are digests: any byte is as good as another.
        let index = usize::from(key.digest()[0]) % PLACES;
        &self.places[index]
    }
}

/// A place among those that wait; free again when dropped.
struct Place {
    answers: Arc<Answers>,
    metrics: Arc<SourceMetrics>,
}

impl Place {
    fn take(answers: &Arc<Answers>, metrics: &Arc<SourceMetrics>) -> Option<Self> {
        if answers.questions.fetch_add(1, Ordering::AcqRel) >= QUESTIONS_MAX {
            answers.questions.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        metrics.waiting().add(1);
        Some(Self {
            answers: Arc::clone(answers),
            metrics: Arc::clone(metrics),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.answers.questions.fetch_sub(1, Ordering::AcqRel);
        self.metrics.waiting().add(-1);
    }
}

/// An attempt's end is told to who waits for it, and to all that found it running, also if it ends without a word.
#[derive(Debug)]
pub(super) struct WaitedFor {
    /// When the dispatch is the lane's if it is not answered.
    pub(super) due: Timestamp,
    tell: oneshot::Sender<Option<Reply>>,
    woken: Woken,
}

impl WaitedFor {
    pub(super) fn tell(self, reply: Option<Reply>) {
        // Its time may be over.
        let _late = self.tell.send(reply);
        drop(self.woken);
    }
}

/// Wakes those that wait for a key's attempt when it is dropped.
#[derive(Debug)]
struct Woken {
    answers: Arc<Answers>,
    key: DedupeKey,
}

impl Drop for Woken {
    fn drop(&mut self) {
        self.answers.place(&self.key).notify_waiters();
    }
}

impl Forwarder {
    /// Answers a sender whose event is durable, in a task of `tracker`'s: it goes on when nobody waits any more.
    pub fn answer(
        &self,
        question: Question,
        metrics: Arc<SourceMetrics>,
        tracker: &TaskTracker,
    ) -> oneshot::Receiver<Answered> {
        let (tell, told) = oneshot::channel();
        let forwarder = self.clone();
        tracker.spawn(async move {
            let answered = forwarder.answered(&question, &metrics).await;
            let how = word(&answered);
            debug!(source = %question.want.source, event = %question.want.event, how = how.as_str(), "a sender that waited");
            metrics.answered(how);
            let _hung_up = tell.send(answered);
        });
        told
    }

    async fn answered(&self, question: &Question, metrics: &Arc<SourceMetrics>) -> Answered {
        let Ok(driver) = &self.lane(&question.want.upstream) else {
            return Answered::Not(Unanswered::Elsewhere);
        };
        let answers = &self.common.answers;
        let Some(_place) = Place::take(answers, metrics) else {
            return Answered::Not(Unanswered::Full);
        };
        let key = &question.want.key;
        loop {
            // Before asking, so that an end between the answer and the wait is heard.
            let mut ended = std::pin::pin!(answers.place(key).notified());
            ended.as_mut().enable();
            let (take, stopped) = driver.may_attempt();
            let asking = self.common.store.lease_now(Want {
                take,
                ..question.want.clone()
            });
            let found = match tokio::time::timeout(self.left(question), asking).await {
                Err(_elapsed) => return Answered::Not(Unanswered::Late),
                // It has left the configuration, as for one that comes now.
                Ok(Err(StoreError::UnknownUpstream(_))) => return Answered::Not(Unanswered::Elsewhere),
                Ok(Err(error)) => {
                    warn!(source = %question.want.source, %error, "a sender that waits could not be answered");
                    return Answered::Not(Unanswered::Store);
                }
                Ok(Ok(found)) => found,
            };
            // Late, and still in the lane's queue: the sender that is here now goes ahead of it.
            if let Found::Running { event } = found
                && let Some(dispatch) = self.common.store.take_ready(&question.want.upstream, event)
            {
                return self.attempted(driver, question, dispatch).await;
            }
            match found {
                Found::Leased(dispatch) => return self.attempted(driver, question, dispatch).await,
                Found::Replied(reply) => return Answered::Kept(reply),
                Found::Over(Some(DispatchState::Held)) | Found::Elsewhere => {
                    return Answered::Not(Unanswered::Elsewhere);
                }
                Found::Over(_) => return Answered::Over,
                Found::Waiting | Found::Running { .. } => {
                    if let (Found::Waiting, Some(why)) = (&found, stopped) {
                        return Answered::Not(why);
                    }
                    // Until it has ended, or there is a share for us.
                    let wait = self.left(question).min(LOOK);
                    let _time_to_look = tokio::time::timeout(wait, ended).await;
                    if self.left(question).is_zero() {
                        return Answered::Not(Unanswered::Late);
                    }
                }
            }
        }
    }

    /// Attempts a dispatch that is ours now.
    async fn attempted(&self, driver: &Arc<Driver>, question: &Question, dispatch: LeasedDispatch) -> Answered {
        let woken = Woken {
            answers: Arc::clone(&self.common.answers),
            key: question.want.key,
        };
        // The attempt needs its time too.
        let running = match driver.urgent_slot(self.left(question) / 2).await {
            Ok(running) => running,
            Err(why) => {
                driver.decline(dispatch, Unattempted::Later { due: question.due }).await;
                drop(woken);
                return Answered::Not(why);
            }
        };
        let (tell, told) = oneshot::channel();
        let waited_for = WaitedFor {
            due: question.due,
            tell,
            woken,
        };
        driver.launch(dispatch, running, Some(waited_for));
        match tokio::time::timeout(self.left(question), told).await {
            Ok(Ok(Some(reply))) => Answered::Relayed(reply),
            Ok(Ok(None) | Err(_)) => Answered::Not(Unanswered::Failed),
            Err(_elapsed) => Answered::Not(Unanswered::Late),
        }
    }

    fn left(&self, question: &Question) -> Duration {
        question.until.since(self.common.clock.monotonic())
    }
}

/// How a sender was answered, as metrics say it.
fn word(answered: &Answered) -> SenderAnswer {
    match answered {
        Answered::Relayed(reply) if reply.status.is_client_error() => SenderAnswer::Refused,
        Answered::Relayed(_) => SenderAnswer::Relayed,
        Answered::Kept(_) => SenderAnswer::Kept,
        Answered::Over => SenderAnswer::Over,
        Answered::Not(Unanswered::Failed) => SenderAnswer::Failed,
        Answered::Not(Unanswered::Late) => SenderAnswer::Late,
        Answered::Not(Unanswered::Paused) => SenderAnswer::Paused,
        Answered::Not(Unanswered::BreakerOpen) => SenderAnswer::BreakerOpen,
        Answered::Not(Unanswered::Full) => SenderAnswer::Full,
        Answered::Not(Unanswered::Closing) => SenderAnswer::Closing,
        Answered::Not(Unanswered::Store) => SenderAnswer::Store,
        Answered::Not(Unanswered::Elsewhere) => SenderAnswer::Elsewhere,
    }
}
