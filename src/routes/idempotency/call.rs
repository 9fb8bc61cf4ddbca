//! One call: takes the key, sends the request once, and records what became of it, whether or not the client still waits.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, header, response};
use http_body_util::Full;
use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::collect::{Collected, collect, is_event_stream};
use super::finished::Finished;
use super::outcome::{Ended, Fate, Unkept, fate};
use super::passing::Passing;
use super::problem::Problem;
use super::settings::OnAmbiguous;
use super::shared::Running;
use super::{Asked, Idempotency, answer};
use crate::dedupe::redis::Held;
use crate::routes::body::{Body, Download, Outgoing};
use crate::routes::message::{self, Length};
use crate::routes::proxy::SendError;
use crate::store::StoreError;
use crate::store::records::{
    Begun, Call, CallEnd, Completed, Fingerprint, NewCall, Record, RecordKey, RecordState, StoredAnswer,
};
use crate::telemetry::metrics::{KeyOutcome, KnownBy};

/// How long a client is kept waiting for the store: to take its key, and to record the end of its call.
const PATIENCE: Duration = Duration::from_secs(8);

/// How long a store that took no key is waited for to say what it knows of it.
const LOOK: Duration = Duration::from_secs(2);

/// What the client is told of a call that was made.
pub(super) type Made = Result<Response<Body>, Problem>;

/// What came of an attempt to make the call.
#[derive(Debug)]
pub(super) enum Attempt {
    /// It was made; counted already.
    Made(Box<Made>),
    /// The key has been used.
    Found(Known),
    /// Nothing was done.
    Refused(Problem),
}

/// What is known of a key that has been used.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) fingerprint: Fingerprint,
    pub(super) state: RecordState,
}

impl From<Record> for Known {
    fn from(record: Record) -> Self {
        Self {
            fingerprint: record.fingerprint,
            state: record.state,
        }
    }
}

impl From<&Finished> for Known {
    fn from(finished: &Finished) -> Self {
        Self {
            fingerprint: finished.fingerprint,
            state: finished.state(),
        }
    }
}

/// The client, who is told once, and may have left.
struct Client(Option<oneshot::Sender<Attempt>>);

impl Client {
    fn tell(&mut self, attempt: Attempt) {
        if let Some(reply) = self.0.take() {
            // One that has left repeats its request, and finds the record.
            reply.send(attempt).ok();
        }
    }
}

/// A call that is under way, with what its record is about.
struct Flying {
    call: Call,
    key: RecordKey,
    fingerprint: Fingerprint,
    running: Running,
}

impl Idempotency {
    /// Makes the call if the key is free. It goes on when whoever asks for this goes away.
    pub(super) async fn attempt(self: &Arc<Self>, asked: Asked) -> Attempt {
        let Some(running) = self.shared.run() else {
            return Attempt::Refused(Problem::Overloaded);
        };
        let (reply, attempt) = oneshot::channel();
        let this = Arc::clone(self);
        let call = async move { this.take_and_make(asked, running, Client(Some(reply))).await };
        self.shared.tracker.spawn(call);
        attempt.await.unwrap_or_else(|_ended_without_a_word| {
            // It has dropped its call, which is then ambiguous.
            self.metrics.ended(KeyOutcome::Ambiguous);
            Attempt::Made(Box::new(self.unknown()))
        })
    }

    async fn take_and_make(&self, asked: Asked, running: Running, mut client: Client) {
        let (known, redis_lacks_it) = self.look_at_redis(&asked.key).await;
        if let Some(finished) = known {
            self.metrics.known(KnownBy::Redis);
            client.tell(Attempt::Found(Known::from(&*finished)));
            return self.shared.remember(&asked.key, &finished, self.settings.ttl);
        }
        let begin = self.shared.store.begin(NewCall {
            key: asked.key.clone(),
            fingerprint: asked.fingerprint,
            client_key: Arc::clone(&asked.client_key),
            accepted_at: asked.accepted_at,
            ttl: self.settings.ttl,
            after_ambiguous: self.settings.on_ambiguous == OnAmbiguous::Retry,
        });
        // Given up, it is released when the store comes round to it.
        let call = match tokio::time::timeout(PATIENCE, begin).await {
            Ok(Ok(Begun::Started(call))) => call,
            Ok(Ok(Begun::Found(record))) => {
                self.metrics.known(KnownBy::Store);
                if let Some(finished) = Finished::of(&record).map(Arc::new) {
                    self.shared.remember(&asked.key, &finished, self.settings.ttl);
                    if redis_lacks_it {
                        self.shared.publish(&asked.key, &finished);
                    }
                }
                return client.tell(Attempt::Found(record.into()));
            }
            Ok(Err(error)) => return self.not_taken(&asked.key, &error.to_string(), &mut client).await,
            Err(_elapsed) => return self.not_taken(&asked.key, "not in time", &mut client).await,
        };
        let Asked {
            key,
            fingerprint,
            parts,
            body,
            share,
            ..
        } = asked;
        let landing = self.shared.flights.begin(key.clone(), fingerprint);
        let flying = Flying {
            call,
            key,
            fingerprint,
            running,
        };
        self.make(flying, parts, body, &mut client).await;
        drop((landing, share));
    }

    /// What Redis knows of the key, and whether it said that it knows nothing.
    async fn look_at_redis(&self, key: &RecordKey) -> (Option<Arc<Finished>>, bool) {
        let Some(redis) = &self.shared.redis else {
            return (None, false);
        };
        match redis.kept(&key.route, &key.digest).await {
            Held::Bytes(bytes) => {
                let now = self.shared.clock.now();
                // What is none of ours, or over, says nothing.
                let finished = Finished::decode(bytes).filter(|finished| now < finished.expires_at);
                (finished.map(Arc::new), false)
            }
            Held::Nothing => (None, true),
            Held::Silent => (None, false),
        }
    }

    /// The key is ours: sends the request, once, and does with the answer what the table says.
    async fn make(&self, flying: Flying, parts: Parts, body: Bytes, client: &mut Client) {
        if !self.shared.store.holds_call(&flying.call) {
            // The process stood still since then, and others believe that the call is lost. Not a byte was sent.
            return self
                .release(flying, KeyOutcome::Failed, Err(Problem::Unavailable), client)
                .await;
        }
        let body = Outgoing::Whole(Full::new(body));
        let sent = self.proxy.send(parts, body, self.timeout, self.idle_timeout).await;
        let ended = match &sent {
            Ok(response) => Ended::Head {
                status: response.status(),
                retry_after: response.headers().contains_key(header::RETRY_AFTER),
            },
            Err(SendError::NotSent { .. }) => Ended::NotSent,
            Err(SendError::Unknown { .. } | SendError::Upload(_)) => Ended::NoAnswer,
        };
        match (fate(ended), sent) {
            (Fate::Keep, Ok(response)) => {
                let (head, body) = response.into_parts();
                let collected = if is_event_stream(&head.headers) {
                    Collected::unread(Unkept::EventStream, body)
                } else {
                    collect(body, self.settings.max_stored, &self.shared.budget).await
                };
                self.keep(flying, head, collected, client).await;
            }
            (Fate::PassOn, Ok(response)) => {
                let (head, body) = response.into_parts();
                let collected = Collected::unread(Unkept::NoAnswer, body);
                self.keep(flying, head, collected, client).await;
            }
            (Fate::Release, Ok(response)) => {
                let response = ours(response.map(|body| Body::Live(Box::new(body))));
                self.release(flying, KeyOutcome::Released, Ok(response), client).await;
            }
            (Fate::ReleaseUnsent, Err(error)) => {
                if let Some(suppressed) = self.shared.may_log() {
                    let upstream = self.proxy.upstream();
                    warn!(route = %self.route, %upstream, %error, suppressed, "the upstream could not be reached");
                }
                self.release(flying, KeyOutcome::Unreachable, Err(Problem::Unreachable), client)
                    .await;
            }
            (_, Ok(response)) => {
                let cause = format!("the upstream answered {}", response.status().as_u16());
                self.ambiguous(flying.call, &flying.key, &cause, client).await;
            }
            (_, Err(error)) => {
                self.ambiguous(flying.call, &flying.key, &error.to_string(), client)
                    .await
            }
        }
    }

    /// Keeps an answer that has been read whole; passes it on where it cannot be kept.
    async fn keep(&self, flying: Flying, head: response::Parts, collected: Collected<Download>, client: &mut Client) {
        let Flying {
            call,
            key,
            fingerprint,
            running,
        } = flying;
        let (whole, body) = match collected {
            Collected::Whole(body, share) => (Some(body.clone()), Passing::whole(body, share)),
            Collected::Unkept {
                why,
                start,
                trailers,
                rest,
            } => {
                debug!(route = %self.route, why = why.as_str(), "an answer is passed on without being kept");
                let drain = (why != Unkept::EventStream).then(|| self.shared.tracker.clone());
                (None, Passing::resumed(start, rest, trailers, running, drain))
            }
            Collected::CutShort => return self.ambiguous(call, &key, "the answer ended early", client).await,
        };
        let response = ours(Response::from_parts(head, Body::First(Box::new(body))));
        let answer = whole.map(|body| StoredAnswer {
            status: response.status(),
            headers: answer::replay_headers(response.headers(), &self.settings.replay_headers),
            body,
        });
        self.end_for_good(call, key, fingerprint, answer.map(Arc::new), response, client)
            .await;
    }

    /// Records that the call has ended for good, and only then lets the client have its answer.
    async fn end_for_good(
        &self,
        call: Call,
        key: RecordKey,
        fingerprint: Fingerprint,
        answer: Option<Arc<StoredAnswer>>,
        response: Response<Body>,
        client: &mut Client,
    ) {
        let (end, outcome) = match &answer {
            Some(answer) => (CallEnd::Done(Arc::clone(answer)), KeyOutcome::Kept),
            None => (CallEnd::Unstored, KeyOutcome::Unstored),
        };
        let finished = Arc::new(Finished {
            fingerprint,
            answer,
            expires_at: call.expires_at(),
        });
        match self
            .record(call, end, || {
                self.tell(client, KeyOutcome::Ambiguous, Err(Problem::NotRecorded));
            })
            .await
        {
            Ok(Completed::Recorded) => {
                self.shared.remember(&key, &finished, self.settings.ttl);
                self.shared.publish(&key, &finished);
                self.tell(client, outcome, Ok(response));
            }
            Ok(Completed::NotOurs) => {
                key.needs_a_person("its answer came after its lease was over, and is not kept");
                self.tell(client, KeyOutcome::Ambiguous, self.unknown());
            }
            Err(_closing) => {
                key.needs_a_person("its answer came when the store was closing, and is not kept");
                self.tell(client, KeyOutcome::Ambiguous, self.unknown());
            }
        }
    }

    /// Records that the call had no effect, and tells the client.
    async fn release(&self, flying: Flying, outcome: KeyOutcome, made: Made, client: &mut Client) {
        let mut made = Some(made);
        let mut tell = || {
            if let Some(made) = made.take() {
                self.tell(client, outcome, made);
            }
        };
        // Nothing is promised of a released key, so the client need not wait longer than is sensible. One that comes
        // again before the release is recorded is told that the call still runs.
        if self.record(flying.call, CallEnd::Released, &mut tell).await.is_err() {
            flying
                .key
                .needs_a_person("it had no effect, which could not be recorded: the store was closing");
        }
        tell();
    }

    /// Records that nobody knows whether the call took effect, and tells a person.
    async fn ambiguous(&self, call: Call, key: &RecordKey, cause: &str, client: &mut Client) {
        match self.settings.on_ambiguous {
            OnAmbiguous::Hold => key.needs_a_person(cause),
            OnAmbiguous::Retry => {
                warn!(route = %self.route, record = %key, cause, "nobody knows whether a call took effect");
            }
        }
        // However this ends: a record that is not ended by its owner is ambiguous too.
        self.record(call, CallEnd::Ambiguous, || {}).await.ok();
        self.tell(client, KeyOutcome::Ambiguous, self.unknown());
    }

    /// Records the end of a call, however long that takes; calls `late` when a client has waited long enough.
    async fn record(&self, call: Call, end: CallEnd, late: impl FnOnce()) -> Result<Completed, StoreError> {
        let mut recording = pin!(self.shared.store.complete(call, end));
        match tokio::time::timeout(PATIENCE, recording.as_mut()).await {
            Ok(recorded) => recorded,
            Err(_elapsed) => {
                warn!(route = %self.route, "the end of a call could not be recorded in time; it will be");
                late();
                recording.await
            }
        }
    }

    fn tell(&self, client: &mut Client, outcome: KeyOutcome, made: Made) {
        if client.0.is_some() {
            self.metrics.ended(outcome);
        }
        client.tell(Attempt::Made(Box::new(made)));
    }

    fn unknown(&self) -> Made {
        Err(Problem::OutcomeUnknown(self.settings.on_ambiguous))
    }

    /// The store takes no key. What it knows of an earlier call it may still say: a full disk can be read.
    async fn not_taken(&self, key: &RecordKey, cause: &str, client: &mut Client) {
        let look = tokio::time::timeout(LOOK, self.shared.store.record(key));
        if let Ok(Ok(Some(record))) = look.await {
            self.metrics.known(KnownBy::Store);
            return client.tell(Attempt::Found(record.into()));
        }
        if let Some(suppressed) = self.shared.may_log() {
            warn!(route = %self.route, cause, suppressed, "no key could be taken; nothing was forwarded");
        }
        client.tell(Attempt::Refused(Problem::Unavailable));
    }
}

/// An upstream's answer as one of ours.
fn ours(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    message::inbound(&mut head, Length::of(&body), false);
    answer::unmark(&mut head.headers);
    Response::from_parts(head, body)
}
