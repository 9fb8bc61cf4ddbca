//! The inbound path of a source: look, append, answer.
//!
//! **Motivation.** The usual order (mark the id as seen, store, answer) loses an event when the process dies between the
//! first two steps, since the sender's retry then looks like a duplicate. Here nothing is marked before the event is
//! durable, and the answer needs nothing but that.
//!
//! **Theory of operation.** [`Ingest::receive`] tells the whole story. What the head alone shows is refused before a body
//! byte is read. A request that is not verified touches neither store nor memory. From verification on the work goes on
//! by itself, so a client that hangs up cancels nothing that was complete.
//!
//! A source with `reply = "upstream"` goes another way from the append on: its sender is answered what the upstream says
//! ([`crate::forward::answer`]), or 503.
//!
//! **Promises.** P1: a 2xx is made from a [`Receipt`](crate::store::model::Receipt) or a [`ChallengeAnswer`] (see
//! [`respond`]). P3: only a
//! [`VerifiedRequest`](crate::verify::VerifiedRequest) reaches the key, the memory and the store. P6: connections, heads,
//! bodies and their sum are bounded. P10: what is our failure is answered 503 with `Retry-After`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use ipnet::IpNet;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::dedupe::front::{Behind, Front};
use crate::dedupe::memory::Found;
use crate::dedupe::protocol::{About, Stage};
use crate::forward::Forwarder;
use crate::forward::answer::{Answered, Question, Unanswered};
use crate::forward::settings::Synchronous;
use crate::ingest::body::{Budget, Unread};
use crate::ingest::hearing::Hearing;
use crate::ingest::keys::Keys;
use crate::ingest::refusal_log::RefusalLog;
use crate::ingest::respond::{Accepted, Refusal};
use crate::ingest::source::{Limits, Source};
use crate::ingest::tally::{Stored, Tally};
use crate::key;
use crate::learn::{Learner, Learners};
use crate::net::listen::Peer;
use crate::pace::Pace;
use crate::request::{self, RawRequest, RequestHead};
use crate::store::Store;
use crate::store::model::NewEvent;
use crate::store::reply::Want;
use crate::store::secrets::SecretMark;
use crate::telemetry::metrics::{Metrics, Patience, SecretUse, SourceMetrics};
use crate::time::{Clock, Monotonic, Timestamp};
use crate::verify::{ChallengeAnswer, Reason, Verified, Visit};

pub mod body;
pub mod client;
pub mod clients;
mod hearing;
mod keys;
mod refusal_log;
pub mod remember;
pub mod respond;
pub mod source;
mod tally;

/// How long a sender of unknown patience is kept waiting for the store before it is told to come back.
const PATIENCE: Duration = Duration::from_secs(8);

/// When an address that a hand-shake names is visited, each time after the failure before.
const VISIT_AFTER: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(4)];

/// What ingest is built from.
#[derive(Debug)]
pub struct IngestSettings {
    /// `[limits]`.
    pub limits: Limits,
    /// All sources, each path once.
    pub sources: Vec<Source>,
    /// Proxies that may name the client.
    pub trusted_proxies: Vec<IpNet>,
    /// Of all bodies in memory (`limits.in_flight`).
    pub budget: Budget,
    /// Sources that take their secret in band.
    pub learners: Learners,
}

/// Serves the sources of one configuration. The next one is served by its [successor](Ingest::successor).
#[derive(Debug)]
pub struct Ingest {
    /// By path.
    sources: HashMap<String, Arc<Served>>,
    trusted_proxies: Vec<IpNet>,
    lasting: Lasting,
}

/// What outlives a configuration.
#[derive(Clone, Debug)]
struct Lasting {
    limits: Limits,
    budget: Budget,
    store: Store,
    front: Front,
    forwarder: Forwarder,
    refusals: Arc<RefusalLog>,
    learners: Learners,
    metrics: Metrics,
    clock: Clock,
    tracker: TaskTracker,
}

/// A source with what serving it needs.
#[derive(Debug)]
pub struct Served {
    source: Arc<Source>,
    metrics: Arc<SourceMetrics>,
    /// One for each secret of the source, in their order.
    secrets: Vec<SecretUse>,
    rate: Option<Arc<Mutex<Pace>>>,
    patience: Duration,
    /// When the sender gives up, where that is known.
    gives_up: Option<Arc<Patience>>,
    /// Where its provider's keys are fetched.
    keys: Option<Arc<Keys>>,
    /// Where its secret arrives in band.
    learner: Option<Arc<Learner>>,
}

/// How a request to a source ended well.
enum Answer {
    /// It is durable, or a duplicate of what is.
    Stored(Stored),
    /// The provider's hand-shake.
    Challenge(ChallengeAnswer),
    /// A method that a source answers by itself.
    Probe(Response<Full<Bytes>>),
}

impl Ingest {
    /// Ready to serve.
    pub fn new(
        settings: IngestSettings,
        store: Store,
        front: Front,
        forwarder: Forwarder,
        metrics: Metrics,
        clock: Clock,
        tracker: TaskTracker,
    ) -> Self {
        let lasting = Lasting {
            limits: settings.limits,
            budget: settings.budget,
            store,
            front,
            forwarder,
            refusals: Arc::new(RefusalLog::new()),
            learners: settings.learners,
            metrics,
            clock,
            tracker,
        };
        Self::over(lasting, settings.sources, settings.trusted_proxies, &[])
    }

    /// Serves another configuration. What requests of the one and of the other share stays one thing: memory for bodies,
    /// the rate of a source whose rate is the same, when a secret was last used, the log's pace. Requests that began here
    /// end here.
    #[must_use]
    pub fn successor(&self, sources: Vec<Source>, trusted_proxies: Vec<IpNet>) -> Self {
        let before: Vec<&Served> = self.sources.values().map(Arc::as_ref).collect();
        let next = Self::over(self.lasting.clone(), sources, trusted_proxies, &before);
        let still = |name| next.sources.values().any(|served| &served.source.name == name);
        for gone in before.iter().filter(|served| !still(&served.source.name)) {
            gone.metrics.removed();
        }
        next
    }

    fn over(lasting: Lasting, sources: Vec<Source>, trusted_proxies: Vec<IpNet>, before: &[&Served]) -> Self {
        let served = sources.into_iter().map(|source| {
            let predecessor = before.iter().find(|served| served.source.name == source.name);
            let served = Served::new(source, &lasting, predecessor.copied());
            (served.source.path.clone(), Arc::new(served))
        });
        let sources: HashMap<String, Arc<Served>> = served.collect();
        lasting.learners.keep_only(|name| {
            let mut learning = sources.values().filter(|served| served.learner.is_some());
            learning.any(|served| &served.source.name == name)
        });
        Self {
            sources,
            trusted_proxies,
            lasting,
        }
    }

    /// The life of a request to a source, up to its answer.
    async fn receive(
        &self,
        served: &Arc<Served>,
        tally: &mut Tally<'_>,
        hearing: &mut Hearing<'_>,
        head: RequestHead,
        body: Incoming,
        peer: &Peer,
    ) -> Result<Answer, Refusal> {
        let source = &served.source;
        if let Some(probe) = respond::probe(source, &head) {
            return Ok(Answer::Probe(probe));
        }
        let body = self.unread(&head.headers, body);
        let delivers = source.methods.contains(&head.method);
        if !delivers && !source.verifier.may_be_challenge(&head) {
            return Err(Refusal::Method);
        }
        if !source.allow.is_empty() && !source.allow.iter().any(|net| net.contains(&head.client)) {
            return Err(Refusal::Rejected(Reason::AddressNotAllowed));
        }
        if let Some(clients) = &source.clients {
            clients.judge(peer.certificate().as_deref()).map_err(Refusal::Client)?;
        }
        let mut learner = None;
        if let Err(rejection) = source.verifier.refuse_head(&head) {
            // Only what no signature vouches for may hand over a secret.
            let opened = served
                .learner
                .as_ref()
                .and_then(|learner| Some((learner, learner.opens(&head)?)));
            let Some((opened, may)) = opened else {
                let request = RawRequest {
                    head,
                    body: Bytes::new(),
                };
                return Err(Refusal::Unverified(rejection.reason, Box::new(request)));
            };
            may.map_err(Refusal::NotLearned)?;
            learner = Some(opened);
        }
        let read = body::read(
            body,
            source.max_body,
            self.lasting.limits.body_timeout,
            &self.lasting.budget,
        );
        let (body, _share) = read.await.map_err(Refusal::Body)?;

        // From here to the append nothing waits but for a key that is to be fetched: a client that hangs up now finds its
        // event stored (P1).
        let request = RawRequest { head, body };
        if let Some(learner) = learner
            && let Some(handed) = source.verifier.handed_over(&request)
        {
            let taking = learner.take(handed, request.head.client, served.patience);
            return taking.await.map(Answer::Challenge).map_err(Refusal::NotLearned);
        }
        let visit = source.verifier.visit(&request);
        let judged = match &served.keys {
            None => source.verifier.verify(request),
            Some(keys) => keys.judge(request, served.patience).await.ok_or(Refusal::NoKey)?,
        };
        let event = match judged {
            Ok(Verified::Challenge(answer)) => {
                self.visit(source, visit);
                return Ok(Answer::Challenge(answer));
            }
            // A method that only a hand-shake comes with.
            Ok(Verified::Event(_)) if !delivers => return Err(Refusal::Method),
            Ok(Verified::Event(event)) => event,
            Err(rejected) => {
                return Err(Refusal::Unverified(rejected.rejection.reason, rejected.request));
            }
        };
        hearing.is_the_senders();
        let received_at = event.request().head.received_at;
        if let Some(index) = event.proof().secret_index {
            served.secret_used(index, received_at);
        }
        if let Some(signed_at) = event.proof().signed_at {
            served.metrics.signature_age(received_at, signed_at);
        }
        let dedupe_key =
            key::dedupe_key(&event, &source.dedupe).map_err(|rejection| Refusal::Rejected(rejection.reason))?;
        let body_mark = key::body_mark(&event);
        let about = About {
            kind: dedupe_key.kind(),
            received_at,
            body_mark,
        };
        // Whoever waits for the upstream's answer needs more than to hear that it is a duplicate.
        let looks = Stage::first(source.synchronous.is_some()) == Stage::Look;
        if looks && let Some(Found { receipt, conflict }) = self.lasting.front.recent(&source.name, &dedupe_key, &about)
        {
            return Ok(Answer::Stored(Stored::Known { receipt, conflict }));
        }
        let new = NewEvent {
            source: source.name.clone(),
            upstreams: Arc::clone(&source.upstreams),
            content: source
                .dedupe
                .hold_same_content
                .then(|| key::content_digest(&event))
                .flatten(),
            key: dedupe_key,
            body_mark,
            awaited: source.synchronous.is_some(),
            request: event,
        };
        if let Some(synchronous) = source.synchronous {
            served.take_rate(self.lasting.clock.monotonic())?;
            let storing = self.append_and_ask(served, synchronous, new);
            return Ok(Answer::Stored(tally.store(storing, served.patience).await?));
        }
        let stored = match self.lasting.front.behind() {
            None => {
                served.take_rate(self.lasting.clock.monotonic())?;
                let appended = self.lasting.store.append(new);
                let storing = async move { Ok(Stored::Appended(appended.await?)) };
                tally.store(storing, served.patience).await?
            }
            Some(behind) => {
                let storing = look_then_append(
                    behind.clone(),
                    self.lasting.store.clone(),
                    Arc::clone(served),
                    self.lasting.clock.clone(),
                    new,
                    about,
                );
                tally.store(storing, served.patience).await?
            }
        };
        Ok(Answer::Stored(stored))
    }

    /// Makes the event durable and has its sender's question answered; both go on when the client hangs up. The sender's
    /// time runs from now.
    fn append_and_ask(
        &self,
        served: &Arc<Served>,
        synchronous: Synchronous,
        new: NewEvent,
    ) -> impl Future<Output = Result<Stored, Refusal>> + Send + use<> {
        let received_at = new.request.request().head.received_at;
        let until = self.lasting.clock.monotonic().after(served.patience);
        let (source, key) = (new.source.clone(), new.key);
        // The configuration gives such a source exactly one.
        let upstream = new.upstreams.first().cloned();
        let appended = self.lasting.store.append(new);
        let (forwarder, tracker) = (self.lasting.forwarder.clone(), self.lasting.tracker.clone());
        let metrics = Arc::clone(&served.metrics);
        async move {
            let receipt = appended.await?;
            let Some(upstream) = upstream else {
                return Ok(Stored::Appended(receipt));
            };
            let question = Question {
                want: Want {
                    event: receipt.event(),
                    source,
                    key,
                    received_at,
                    upstream,
                    take: true,
                },
                until,
                due: received_at.after(synchronous.patience),
            };
            let answered = forwarder.answer(question, metrics, &tracker);
            Ok(Stored::Waiting { receipt, answered })
        }
    }

    /// The source with this path, give or take one trailing slash.
    pub fn find(&self, path: &str) -> Option<&Arc<Served>> {
        self.sources
            .get(path)
            .or_else(|| self.sources.get(path.strip_suffix('/')?))
    }

    /// Answers a request to a source.
    pub async fn answer(
        &self,
        served: &Arc<Served>,
        parts: Parts,
        body: Incoming,
        peer: &Peer,
    ) -> Response<Full<Bytes>> {
        let began = self.lasting.clock.monotonic();
        let head = self.head(parts, peer);
        let client = head.client;
        let mut tally = Tally::new(&served.metrics, &self.lasting.clock, &self.lasting.tracker, began);
        let mut hearing = Hearing::new(served, &self.lasting.clock, began);
        let ended = self.receive(served, &mut tally, &mut hearing, head, body, peer).await;
        tally.end(|took| served.count(&ended, took));
        let mut why = None;
        let response = match ended {
            Ok(Answer::Stored(Stored::Appended(receipt) | Stored::Known { receipt, .. })) => {
                respond::accepted(&Accepted::new(receipt, &served.source))
            }
            Ok(Answer::Stored(Stored::Waiting { receipt, answered })) => {
                // The task that answers has ended without: the process is at its end.
                let answered = answered.await.unwrap_or(Answered::Not(Unanswered::Closing));
                respond::waited(answered, receipt, &served.source)
            }
            Ok(Answer::Challenge(answer)) => respond::challenge(answer),
            Ok(Answer::Probe(response)) => response,
            Err(refusal) => respond::refused(why.insert(refusal), &served.source),
        };
        hearing.answered(response.status(), why.as_ref());
        if let Some(refusal) = why {
            let clock = &self.lasting.clock;
            let now = (clock.now(), clock.monotonic());
            let others = || self.sources.values().cloned().collect();
            let tracker = &self.lasting.tracker;
            self.lasting.refusals.log(served, client, refusal, now, others, tracker);
        }
        response
    }

    /// Visits in the background what a verified hand-shake names, which confirms a subscription (SNS).
    fn visit(&self, source: &Arc<Source>, visit: Visit) {
        let address = match visit {
            Visit::Nothing => return,
            Visit::Lacks(param) => {
                warn!(source = %source.name, "a subscription was not confirmed: give the parameter `{param}`");
                return;
            }
            Visit::Address(address) => address,
        };
        let Some(fetching) = source.fetching.clone() else {
            return;
        };
        let (source, clock) = (Arc::clone(source), self.lasting.clock.clone());
        let tracker = self.lasting.tracker.clone();
        self.lasting.tracker.spawn(async move {
            for wait in VISIT_AFTER {
                tokio::time::sleep(wait).await;
                match fetching.get(&address, &clock, &tracker).await {
                    Ok(_) => {
                        info!(source = %source.name, "confirmed a subscription");
                        return;
                    }
                    Err(why) => warn!(source = %source.name, cause = %why, "a subscription could not be confirmed"),
                }
            }
        });
    }

    fn unread(&self, headers: &HeaderMap, body: Incoming) -> Unread<'_> {
        Unread::of(headers, body, &self.lasting.tracker)
    }

    fn head(&self, parts: Parts, peer: &Peer) -> RequestHead {
        let mut headers = parts.headers;
        let client = client::identify(peer.address.ip(), peer.is_secure(), &mut headers, &self.trusted_proxies);
        RequestHead {
            authority: request::authority(&parts.uri, &headers),
            target: parts
                .uri
                .into_parts()
                .path_and_query
                .unwrap_or_else(|| http::uri::PathAndQuery::from_static("/")),
            method: parts.method,
            headers,
            client,
            received_at: self.lasting.clock.now(),
        }
    }
}

/// The part behind the memory: Redis may know the key; if not, the store gets the event. Goes on when the client hangs up.
async fn look_then_append(
    behind: Behind,
    store: Store,
    served: Arc<Served>,
    clock: Clock,
    new: NewEvent,
    about: About,
) -> Result<Stored, Refusal> {
    if let Some(Found { receipt, conflict }) = behind.look(&new.source, &new.key, &about).await {
        return Ok(Stored::Known { receipt, conflict });
    }
    served.take_rate(clock.monotonic())?;
    Ok(Stored::Appended(store.append(new).await?))
}

impl Served {
    /// As configured; what it goes on with is `before`'s.
    fn new(source: Source, lasting: &Lasting, before: Option<&Self>) -> Self {
        let metrics = lasting.metrics.source(&source.name);
        let secrets = uses(&source, metrics.vouched(), before);
        metrics.configured(secrets.iter().cloned());
        metrics.placed(&source.path, source.verifier.record().name());
        let same_rate = before.filter(|before| before.source.rate == source.rate);
        let rate = match same_rate {
            Some(before) => before.rate.clone(),
            // A whole period's worth may come at once: senders deliver in bursts.
            None => source
                .rate
                .map(|rate| Arc::new(Mutex::new(Pace::new(Some(rate), Some(rate.count))))),
        };
        // What was fetched is kept over a reload that changes neither keys nor whom we believe.
        let same_keys = before
            .filter(|before| before.source.verifier == source.verifier && before.source.fetching == source.fetching);
        let keys = match (same_keys, &source.fetching) {
            (Some(before), _) => before.keys.clone(),
            (None, Some(fetching)) if source.verifier.secrets().is_empty() => Some(Arc::new(Keys::new(
                source.name.clone(),
                Arc::clone(&source.verifier),
                fetching.clone(),
                Arc::clone(&metrics),
                lasting.clock.clone(),
                lasting.tracker.clone(),
            ))),
            (None, _) => None,
        };
        let learner = source
            .learns_into
            .as_ref()
            .map(|directory| lasting.learners.configured(&source.name, directory, &source.verifier));
        Self {
            keys,
            learner,
            // Eight tenths of the sender's patience: the answer must still travel.
            patience: source.sender_deadline.map_or(PATIENCE, |deadline| deadline * 4 / 5),
            gives_up: metrics.sender_gives_up(source.sender_rule),
            rate,
            metrics,
            secrets,
            source: Arc::new(source),
        }
    }

    fn secret_used(&self, index: usize, now: Timestamp) {
        if let Some(secret) = self.secrets.get(index) {
            self.metrics.vouch(secret, now);
        }
    }

    fn take_rate(&self, now: Monotonic) -> Result<(), Refusal> {
        let Some(rate) = &self.rate else { return Ok(()) };
        let mut pace = rate.lock().unwrap_or_else(PoisonError::into_inner);
        match pace.not_before(now) {
            Some(next) => Err(Refusal::RateLimited { wait: next.since(now) }),
            None => {
                pace.start(now);
                Ok(())
            }
        }
    }

    fn count(&self, ended: &Result<Answer, Refusal>, took: Duration) {
        match ended {
            Ok(Answer::Stored(Stored::Known { receipt, conflict })) => {
                if *conflict && !self.source.dedupe.body_varies {
                    info!(source = %self.source.name, event = %receipt.event(), "duplicate with other bytes");
                }
                self.metrics.duplicate(*conflict, took);
            }
            // Whether it is new is counted when the store says so.
            Ok(Answer::Stored(Stored::Appended(_) | Stored::Waiting { .. })) => self.metrics.accepted(took),
            Ok(Answer::Challenge(_) | Answer::Probe(_)) => self.metrics.challenge(),
            Err(Refusal::Method) => self.metrics.method_not_allowed(),
            Err(refusal) => match refusal.failure() {
                Some(failure) => self.metrics.failed(failure),
                None => self.metrics.rejected(refusal.reason()),
            },
        }
    }
}

/// The use of each secret of `source`. One that was there before goes on, wherever it stands and whatever its label is by now.
fn uses(source: &Source, vouched: u64, before: Option<&Served>) -> Vec<SecretUse> {
    let secrets = source.verifier.secrets().iter().enumerate();
    secrets
        .map(|(index, secret)| {
            let label = secret.label.as_deref();
            let mark = SecretMark::of(&source.name, &secret.secret);
            let known = before.and_then(|served| served.secrets.iter().find(|known| known.mark() == mark));
            let usage = match known {
                Some(known) => known.moved(label, index),
                None => SecretUse::new(label, index, mark, vouched),
            };
            usage.ending(secret.not_after, source.secret_unused_after)
        })
        .collect()
}
