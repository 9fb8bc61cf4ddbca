//! `Idempotency-Key` on ordinary routes: a request that is repeated with its key is carried out once, and its answer is
//! given again.
//!
//! **Motivation.** A caller whose `POST` timed out cannot know whether it took effect. With a key it may repeat it. Most
//! middlewares for this lose the guarantee where it matters: they forget a key that is in progress when a process dies,
//! they run two requests that come at once, they give one caller another's answer, or replay half an answer. What a
//! proxy can promise honestly is *at most once per key within its time while the store survives*; the rest is known to
//! be unknown, and said.
//!
//! **Theory of operation.** [`Idempotency::serve`] reads the request whole, works out whose key it is ([`scope`]) and what
//! is asked ([`fingerprint`]), and looks for the key where it is cheapest: in this process's [`memory`] of finished
//! calls, among those that run here ([`flights`]), in Redis, in the store. A key that is new is taken in the store,
//! durably, before a byte goes upstream. From then on the [`call`] is a task of its own: a client that hangs up cancels
//! nothing. What the upstream's answer means for the key is one table ([`outcome`]). The answer is durable before the
//! client has the end of it; one that cannot be kept is passed on once the record says so, and is never asked for again.
//!
//! **Promises.** P10: our failure is 503, and nothing was forwarded; once something was, it is 504 `outcome-unknown` and
//! never a guess. P5: of the caller only a digest is kept, and no key is logged, since with `scope = "public"` the key is
//! all that guards its answer. P6: bodies and answers are bounded one by one and together, running calls by their number,
//! answers in memory by their bytes.

pub mod answer;
mod call;
mod canonical;
mod collect;
pub mod fingerprint;
mod finished;
mod flights;
pub mod key;
pub mod memory;
pub mod outcome;
pub mod passing;
pub mod problem;
pub mod scope;
pub mod settings;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use hyper::body::Incoming;

use self::call::{Attempt, Known, Made};
use self::key::{IDEMPOTENCY_KEY, KeyError};
use self::outcome::Repetition;
use self::problem::Problem;
pub use self::settings::{IdempotencySettings, OnAmbiguous};
pub use self::shared::{Shared, SharedParts};
use crate::id::RouteName;
use crate::ingest::body::{self, Share, Unread};
use crate::routes::body::Body;
use crate::routes::message::{Length, Sender};
use crate::routes::proxy::Proxy;
use crate::routes::settings::RouteSettings;
use crate::store::records::{Fingerprint, RecordKey, RecordState, StoredAnswer};
use crate::telemetry::metrics::{KeyMetrics, KeyOutcome, KnownBy, RouteOutcome};
use crate::time::{Monotonic, Timestamp};

/// How often the record of a call is looked at that runs at another replica.
const POLL: Duration = Duration::from_millis(200);

/// `idempotency = { … }` of one route, at work.
#[derive(Debug)]
pub struct Idempotency {
    route: RouteName,
    settings: IdempotencySettings,
    /// For the head of the upstream's answer.
    timeout: Duration,
    /// How long its body may stand still.
    idle_timeout: Duration,
    proxy: Arc<Proxy>,
    shared: Shared,
    metrics: Arc<KeyMetrics>,
}

/// A request with a key, whole.
#[derive(Clone, Debug)]
struct Asked {
    key: RecordKey,
    fingerprint: Fingerprint,
    client_key: Arc<str>,
    accepted_at: Timestamp,
    /// Its head, as it goes upstream.
    parts: Parts,
    body: Bytes,
    /// What the body holds of the memory for bodies.
    share: Arc<Share>,
}

impl Idempotency {
    /// Ready to serve `route`.
    pub fn new(route: &RouteSettings, settings: IdempotencySettings, proxy: Arc<Proxy>, shared: Shared) -> Self {
        Self {
            metrics: shared.metrics.keys(&route.name),
            route: route.name.clone(),
            settings,
            timeout: route.timeout,
            idle_timeout: route.idle_timeout,
            proxy,
            shared,
        }
    }

    /// Whether a request is its business; any other is passed on, with its key if it has one.
    pub fn concerns(&self, parts: &Parts) -> bool {
        self.settings.methods.contains(&parts.method)
            && (self.settings.required || parts.headers.contains_key(IDEMPOTENCY_KEY))
    }

    /// The whole life of a request that it [concerns](Idempotency::concerns), up to its answer, which is ready to be sent;
    /// with how it ended for the route.
    pub async fn serve(
        self: &Arc<Self>,
        parts: Parts,
        body: Incoming,
        sender: &Sender,
    ) -> (RouteOutcome, Response<Body>) {
        let answered = match self.read(parts, body, sender).await {
            Ok(asked) => self.answer(asked).await,
            Err(problem) => Err(problem),
        };
        match answered {
            Ok(Ok(response)) => (RouteOutcome::of(response.status()), response),
            Ok(Err(problem)) => (problem.end_of_call(), problem.response().map(Body::from)),
            Err(problem) => {
                self.metrics.ended(problem.outcome());
                (problem.refusal(), problem.response().map(Body::from))
            }
        }
    }

    /// Reads what the request says. Nothing is known, stored or used up before it is whole.
    async fn read(&self, parts: Parts, body: Incoming, sender: &Sender) -> Result<Asked, Problem> {
        let accepted_at = self.shared.clock.now();
        // Dropped with a refusal, it lets the client read that.
        let unread = Unread::of(&parts.headers, body, &self.shared.tracker);
        let client_key = key::read(&parts.headers)?.ok_or(Problem::KeyMissing)?;
        // A caller who is not even named need not send a body.
        self.settings.scope.caller(&parts.headers, sender.certificate)?;
        let Shared { budget, .. } = &self.shared;
        let (body, share) = body::read(unread, self.settings.max_body, self.shared.body_timeout, budget).await?;

        let length = match body.len() {
            0 => Length::None,
            bytes => Length::Known(bytes as u64),
        };
        let parts = self.proxy.outbound(parts, sender, length);
        if !parts.headers.contains_key(IDEMPOTENCY_KEY) {
            return Err(KeyError::OneHopOnly.into());
        }
        // What the app will see decides: a header that is taken away on the way names nobody.
        let caller = self.settings.scope.caller(&parts.headers, sender.certificate)?;
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let body_as = self.settings.fingerprint;
        let fingerprint = fingerprint::of(&parts.method, target, &parts.headers, &body, body_as);
        Ok(Asked {
            key: RecordKey {
                route: self.route.clone(),
                digest: caller.record(&client_key),
            },
            fingerprint,
            client_key,
            accepted_at,
            parts,
            body,
            share: Arc::new(share),
        })
    }

    /// Finds the answer, or makes the call; while another one runs with this key, waits for it as long as the route says.
    /// An error has not been counted yet, and comes of no call of this request's.
    async fn answer(self: &Arc<Self>, asked: Asked) -> Result<Made, Problem> {
        let until = self.shared.clock.monotonic().after(self.settings.wait);
        loop {
            let known = match self.known_here(&asked) {
                Some(known) => known,
                None => match self.attempt(asked.clone()).await {
                    Attempt::Made(made) => return Ok(*made),
                    Attempt::Refused(problem) => return Err(problem),
                    Attempt::Found(known) => known,
                },
            };
            match outcome::repetition(&asked.fingerprint, &known.fingerprint, &known.state) {
                Repetition::Mismatch => return Err(Problem::KeyReused),
                Repetition::NotStored => return Err(Problem::NotStored),
                Repetition::Unknown => return Err(Problem::OutcomeUnknown(self.settings.on_ambiguous)),
                Repetition::Answer(answer) => {
                    self.metrics.ended(KeyOutcome::Replayed);
                    return Ok(Ok(replay(&answer)));
                }
                Repetition::Running if self.shared.clock.monotonic() >= until => return Err(Problem::Outstanding),
                Repetition::Running => self.wait(&asked.key, until).await,
            }
        }
    }

    /// What this process knows by itself.
    fn known_here(&self, asked: &Asked) -> Option<Known> {
        if let Some(finished) = self.shared.memory.get(&asked.key, &self.shared.clock) {
            self.metrics.known(KnownBy::Memory);
            return Some(Known {
                fingerprint: finished.fingerprint,
                state: finished.state(),
            });
        }
        let flight = self.shared.flights.get(&asked.key)?;
        Some(Known {
            fingerprint: flight.fingerprint,
            state: RecordState::Running,
        })
    }

    /// Waits until the call of this key has ended, or `until`.
    async fn wait(&self, key: &RecordKey, until: Monotonic) {
        let left = || until.since(self.shared.clock.monotonic());
        if let Some(flight) = self.shared.flights.get(key) {
            // Over time or ended: either way it is looked at once more.
            tokio::time::timeout(left(), flight.ended()).await.ok();
            return;
        }
        // At another replica; nobody tells us.
        while !left().is_zero() {
            tokio::time::sleep(POLL.min(left())).await;
            let record = self.shared.store.record(key).await;
            let runs = matches!(&record, Ok(Some(record)) if record.state == RecordState::Running);
            if !runs || self.shared.flights.get(key).is_some() {
                return;
            }
        }
    }
}

/// An answer that is given again.
fn replay(answer: &StoredAnswer) -> Response<Body> {
    let mut response = Response::new(Body::from(answer.body.clone()));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers.clone();
    answer::mark(response.headers_mut());
    response
}
