//! Ordinary routes: requests that are no source's go on to an upstream, as they are, and its answers come back.
//!
//! **Motivation.** The app has one front door. What hooksluice does not store it must pass on at wire speed and without
//! changing it; and nothing that passes here may reach what the app keeps for verified events.
//!
//! **Theory of operation.** [`Routes::serve`] tells the whole story: shadow → route → framing → one exchange. Bodies
//! stream both ways; nothing is held but the frame under way, so `limits.in_flight` and an upstream's `concurrency` and
//! `rate`, which are for events, hold no route. A request is sent once.
//!
//! **Promises.** P3: [`shadow`] decides on every path before a route sees it; only a proven WebSocket opens a tunnel
//! ([`upgrade`]); what is ours to say is taken out of what comes from outside ([`message`]). P5: neither paths nor
//! queries are logged. P6: bodies have a pace and tunnels and answers an idle limit; connections are bounded by
//! `limits.connections`.

pub mod body;
pub mod idempotency;
mod log;
pub mod message;
pub mod problem;
pub mod proxy;
pub mod settings;
pub mod shadow;
pub mod table;
mod upgrade;

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use ipnet::IpNet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::body::{Body, Outgoing, Upload, UploadFailed};
use self::idempotency::Idempotency;
use self::log::FailureLog;
use self::message::{Length, Sender};
use self::problem::Problem;
use self::proxy::{Proxy, SendError};
use self::settings::{RouteSettings, Target};
use self::shadow::Shadow;
use self::table::Table;
use self::upgrade::{Asked, Handshake, Tunnel};
use crate::id::{RouteName, SourceName, UpstreamName};
use crate::ingest::body::Unread;
use crate::ingest::client;
use crate::ingest::respond;
use crate::ingest::source::Source;
use crate::net::listen::Peer;
use crate::request;
use crate::telemetry::metrics::{Metrics, RouteMetrics, RouteOutcome};
use crate::time::Clock;

/// How long a client that has closed its side may still wait for an answer: some do, nearly all have gone.
pub const HANG_UP_GRACE: Duration = Duration::from_secs(1);
/// How often idle connections to upstreams are looked at.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// What routes are built from.
#[derive(Debug)]
pub struct RoutesSettings {
    /// All routes, each pattern once.
    pub routes: Vec<RouteSettings>,
    /// Proxies that may say who the client is.
    pub trusted_proxies: Vec<IpNet>,
    /// How long a client may send nothing of a body that is wanted (`limits.body_timeout`).
    pub body_timeout: Duration,
    /// For routes with `idempotency`, where there are any.
    pub idempotency: Option<idempotency::Shared>,
}

/// Serves what no source does, by the routes of one configuration. The next one is served by its
/// [successor](Routes::successor).
#[derive(Debug)]
pub struct Routes {
    table: Table<Arc<Route>>,
    names: BTreeSet<RouteName>,
    shadow: Shadow,
    /// One for each upstream that a route leads to.
    proxies: BTreeMap<UpstreamName, Arc<Proxy>>,
    trusted_proxies: Vec<IpNet>,
    body_timeout: Duration,
    lasting: Lasting,
}

/// What outlives a configuration.
#[derive(Clone, Debug)]
struct Lasting {
    failures: Arc<FailureLog>,
    metrics: Metrics,
    clock: Clock,
    tracker: TaskTracker,
    /// Ends tunnels.
    stop: CancellationToken,
}

/// A route with what serving it needs.
#[derive(Debug)]
pub struct Route {
    settings: RouteSettings,
    /// Its pattern's beginning, as [`shadow::folded`] has it.
    folded: String,
    proxy: Arc<Proxy>,
    idempotency: Option<Arc<Idempotency>>,
    metrics: Arc<RouteMetrics>,
}

/// Why a route gave no answer of the upstream's.
enum Failed {
    /// We refuse the request.
    Refused(Problem),
    /// The exchange failed.
    Send(SendError),
    /// The client left meanwhile.
    ClientLeft,
}

impl From<SendError> for Failed {
    fn from(error: SendError) -> Self {
        Self::Send(error)
    }
}

impl Routes {
    /// Ready to serve, until `stop`. `sources` are those that no route may reach.
    pub fn new<'s>(
        settings: RoutesSettings,
        sources: impl IntoIterator<Item = &'s Source>,
        metrics: Metrics,
        clock: Clock,
        tracker: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let lasting = Lasting {
            failures: Arc::new(FailureLog::new()),
            metrics,
            clock,
            tracker,
            stop,
        };
        Self::over(lasting, settings, sources, &BTreeMap::new())
    }

    /// Serves another configuration. Connections to an upstream that is reached as before stay; requests that began here
    /// end here, and tunnels that were opened here stay open.
    #[must_use]
    pub fn successor<'s>(&self, settings: RoutesSettings, sources: impl IntoIterator<Item = &'s Source>) -> Self {
        let next = Self::over(self.lasting.clone(), settings, sources, &self.proxies);
        for gone in self.names.difference(&next.names) {
            self.lasting.metrics.route(gone).removed();
        }
        next
    }

    fn over<'s>(
        lasting: Lasting,
        settings: RoutesSettings,
        sources: impl IntoIterator<Item = &'s Source>,
        before: &BTreeMap<UpstreamName, Arc<Proxy>>,
    ) -> Self {
        let shadow = Shadow::new(sources.into_iter().map(|source| {
            let forward_path = source.forward_path.as_ref().map(http::uri::PathAndQuery::path);
            (&source.name, source.path.as_str(), forward_path)
        }));
        let shared = settings.idempotency;
        let (mut proxies, mut names) = (BTreeMap::new(), BTreeSet::new());
        let mut table = Table::default();
        for settings in settings.routes {
            let target = &settings.upstream;
            let proxy: &Arc<Proxy> = proxies
                .entry(target.name.clone())
                .or_insert_with(|| proxy(target, before.get(&target.name), &lasting));
            let pattern = settings.pattern.clone();
            let own = lasting.metrics.route(&settings.name);
            own.configured(pattern.to_string(), target.name.to_string());
            names.insert(settings.name.clone());
            let with_keys = shared.as_ref().zip(settings.idempotency.clone());
            let idempotency =
                with_keys.map(|(shared, own)| Idempotency::new(&settings, own, Arc::clone(proxy), shared.clone()));
            let route = Route {
                idempotency: idempotency.map(Arc::new),
                folded: shadow::folded(pattern.prefix()),
                proxy: Arc::clone(proxy),
                metrics: own,
                settings,
            };
            // The configuration has each pattern once.
            let _taken = table.insert(&pattern, Arc::new(route));
        }
        Self {
            table,
            names,
            shadow,
            proxies,
            trusted_proxies: settings.trusted_proxies,
            body_timeout: settings.body_timeout,
            lasting,
        }
    }

    /// Answers a request that no source serves; an error gives back one that no route serves either.
    pub async fn serve(&self, parts: Parts, body: Incoming, peer: Peer) -> Result<Response<Body>, (Parts, Incoming)> {
        let path = parts.uri.path();
        let route = self.table.find(path);
        if path.len() > shadow::STRANGE_MAX {
            return match route {
                Some(route) => Ok(self.refuse(route, problem::PATH_TOO_LONG, &parts.headers, body)),
                None => Err((parts, body)),
            };
        }
        let prefix = route.map(|route| route.folded.as_str()).unwrap_or_default();
        if let Some(source) = self.shadow.covers(path, prefix) {
            self.shadowed(source, &peer);
            drop(Unread::of(&parts.headers, body, &self.lasting.tracker));
            return Ok(respond::not_found().map(Body::from));
        }
        let Some(route) = route else {
            return Err((parts, body));
        };
        if shadow::has_dot_segment(path) {
            return Ok(self.refuse(route, problem::DOT_SEGMENTS, &parts.headers, body));
        }
        Ok(self.pass(route, parts, body, peer).await)
    }

    async fn pass(&self, route: &Arc<Route>, mut parts: Parts, body: Incoming, peer: Peer) -> Response<Body> {
        let began = self.lasting.clock.monotonic();
        let running = route.metrics.began();
        let sender = self.sender(&mut parts, &peer);
        let is_head = parts.method == Method::HEAD;
        let passed = match upgrade::asked(&mut parts, &body) {
            Asked::Nothing => match route.keys_of(&parts) {
                Some(idempotency) => {
                    let (outcome, response) = idempotency.serve(parts, body, &sender).await;
                    running.end(outcome, self.lasting.clock.monotonic().since(began));
                    return response;
                }
                None => self.exchange(route, parts, body, &sender, &peer).await,
            },
            Asked::WebSocket(handshake) => self.open(route, parts, &sender, &peer, handshake).await,
            Asked::Invalid(problem) => {
                drop(Unread::of(&parts.headers, body, &self.lasting.tracker));
                Err(Failed::Refused(problem))
            }
        };
        let took = self.lasting.clock.monotonic().since(began);
        match passed {
            Ok((outcome, response)) => {
                running.end(outcome, took);
                let (mut parts, body) = response.into_parts();
                if outcome == RouteOutcome::Upgraded {
                    return Response::from_parts(parts, body);
                }
                message::inbound(&mut parts, Length::of(&body), is_head);
                if route.idempotency.is_some() {
                    idempotency::answer::unmark(&mut parts.headers);
                }
                Response::from_parts(parts, body)
            }
            Err(failed) => {
                let (outcome, response) = self.failed(route, &sender, failed);
                running.end(outcome, took);
                response.map(Body::from)
            }
        }
    }

    /// One exchange with the upstream, bodies streamed.
    async fn exchange(
        &self,
        route: &Route,
        parts: Parts,
        body: Incoming,
        sender: &Sender,
        peer: &Peer,
    ) -> Result<(RouteOutcome, Response<Body>), Failed> {
        let settings = &route.settings;
        let length = Length::of(&body);
        if let (Length::Known(bytes), Some(limit)) = (length, settings.max_body)
            && bytes > limit
        {
            drop(Unread::of(&parts.headers, body, &self.lasting.tracker));
            return Err(Failed::Refused(problem::TOO_LARGE));
        }
        let out = route.proxy.outbound(parts, sender, length);
        let body = match length {
            Length::None => Outgoing::none(),
            Length::Known(_) | Length::Unknown => Outgoing::Live(Upload::new(
                body,
                settings.max_body,
                self.body_timeout,
                self.lasting.clock.clone(),
            )),
        };
        let sending = route.proxy.send(out, body, settings.timeout, settings.idle_timeout);
        let mut response = unless_gone(peer, sending).await.ok_or(Failed::ClientLeft)??;
        response.body_mut().watch(peer.clone(), Arc::clone(&route.metrics));
        let outcome = RouteOutcome::of(response.status());
        Ok((outcome, response.map(|body| Body::Live(Box::new(body)))))
    }

    /// Opens a WebSocket, or passes on why the upstream does not.
    async fn open(
        &self,
        route: &Arc<Route>,
        parts: Parts,
        sender: &Sender,
        peer: &Peer,
        handshake: Handshake,
    ) -> Result<(RouteOutcome, Response<Body>), Failed> {
        let settings = &route.settings;
        let mut out = route.proxy.outbound(parts, sender, Length::None);
        upgrade::ask(&mut out.headers);
        let sending = route.proxy.send_upgrade(out, settings.timeout);
        let mut switched = unless_gone(peer, sending).await.ok_or(Failed::ClientLeft)??;
        if switched.response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let mut response = route.proxy.download(switched, settings.idle_timeout);
            response.body_mut().watch(peer.clone(), Arc::clone(&route.metrics));
            let outcome = RouteOutcome::of(response.status());
            return Ok((outcome, response.map(|body| Body::Live(Box::new(body)))));
        }
        handshake
            .is_answered_by(switched.response.headers())
            .map_err(proxy::unknown)?;
        let tunnel = Tunnel {
            client: handshake.into_client(),
            upstream: hyper::upgrade::on(&mut switched.response),
            connection: switched.connection,
            busy: peer.hold(),
            idle_timeout: settings.idle_timeout,
            clock: self.lasting.clock.clone(),
            stop: self.lasting.stop.clone(),
        };
        let counted = route.metrics.tunnel();
        let name = settings.name.clone();
        self.lasting.tracker.spawn(async move {
            let ended = tunnel.run().await;
            drop(counted);
            tracing::debug!(route = %name, ?ended, "tunnel ended");
        });
        let (mut parts, _empty) = switched.response.into_parts();
        message::inbound(&mut parts, Length::None, false);
        parts.status = upgrade::switching(&mut parts.headers);
        let response = Response::from_parts(parts, Body::from(Full::default()));
        Ok((RouteOutcome::Upgraded, response))
    }

    fn sender(&self, parts: &mut Parts, peer: &Peer) -> Sender {
        let address = peer.address.ip();
        let authority = request::authority(&parts.uri, &parts.headers);
        message::drop_shadowed(&mut parts.headers, &self.shadow);
        Sender {
            trusted: client::is_trusted(address.to_canonical(), &self.trusted_proxies),
            client: client::identify(address, peer.is_secure(), &mut parts.headers, &self.trusted_proxies),
            authority,
            certificate: peer.certificate().map(|shown| shown.identity),
        }
    }

    fn refuse(&self, route: &Route, problem: Problem, headers: &HeaderMap, body: Incoming) -> Response<Body> {
        drop(Unread::of(headers, body, &self.lasting.tracker));
        route.metrics.refused();
        problem.response().map(Body::from)
    }

    fn shadowed(&self, source: &SourceName, peer: &Peer) {
        self.lasting.metrics.server().shadowed.add(1);
        self.lasting
            .failures
            .shadowed(source, peer.address.ip(), self.lasting.clock.monotonic());
    }

    /// What the client is told, and the log.
    fn failed(&self, route: &Route, sender: &Sender, failed: Failed) -> (RouteOutcome, Response<Full<Bytes>>) {
        let (outcome, problem, cause) = match failed {
            Failed::Refused(problem) => {
                let mut response = closing(problem);
                if problem == problem::WEBSOCKET_VERSION {
                    upgrade::say_version(response.headers_mut());
                }
                return (RouteOutcome::Refused, response);
            }
            Failed::ClientLeft => {
                let mut response = Response::new(Full::default());
                // nginx's status for it; nobody is expected to read it.
                *response.status_mut() = StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST);
                return (RouteOutcome::ClientLeft, close(response));
            }
            Failed::Send(SendError::Upload(why)) => {
                let (outcome, problem) = match why {
                    UploadFailed::TooSlow => (RouteOutcome::TooSlow, problem::TOO_SLOW),
                    UploadFailed::TooLarge => (RouteOutcome::Refused, problem::TOO_LARGE),
                    UploadFailed::Broken => (RouteOutcome::Refused, problem::BODY_BROKEN),
                };
                return (outcome, closing(problem));
            }
            Failed::Send(SendError::NotSent {
                cause,
                timed_out: false,
            }) => (RouteOutcome::Unreachable, problem::UNREACHABLE, cause),
            Failed::Send(SendError::Unknown {
                cause,
                timed_out: false,
            }) => (RouteOutcome::Broken, problem::BROKEN, cause),
            Failed::Send(
                SendError::NotSent { cause, timed_out: true } | SendError::Unknown { cause, timed_out: true },
            ) => (RouteOutcome::TimedOut, problem::TIMEOUT, cause),
        };
        self.lasting.failures.failed(
            route,
            sender.client,
            problem.status,
            &cause,
            self.lasting.clock.monotonic(),
        );
        (outcome, problem.response())
    }
}

impl Route {
    /// What serves a request whose `Idempotency-Key`, or whose lack of one, means something here.
    fn keys_of(&self, parts: &Parts) -> Option<&Arc<Idempotency>> {
        self.idempotency
            .as_ref()
            .filter(|idempotency| idempotency.concerns(parts))
    }

    /// Its name.
    pub fn name(&self) -> &RouteName {
        &self.settings.name
    }
}

/// A refusal behind which what is left of the body is not worth waiting for.
fn closing(problem: Problem) -> Response<Full<Bytes>> {
    close(problem.response())
}

fn close(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    let close = header::HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

/// The work's value, unless the client goes first: it is given [`HANG_UP_GRACE`] from when it closed its side.
async fn unless_gone<T>(peer: &Peer, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut grace = None;
    poll_fn(|cx| {
        if let Poll::Ready(value) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        if !peer.has_hung_up() {
            return Poll::Pending;
        }
        let grace = grace.get_or_insert_with(|| Box::pin(tokio::time::sleep(HANG_UP_GRACE)));
        grace.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// The one that reached this upstream so far, with its connections, or a new one.
fn proxy(target: &Target, before: Option<&Arc<Proxy>>, lasting: &Lasting) -> Arc<Proxy> {
    if let Some(proxy) = before.filter(|proxy| proxy.reaches(target)) {
        return Arc::clone(proxy);
    }
    let proxy = Arc::new(Proxy::new(target, lasting.clock.clone(), lasting.tracker.clone()));
    let tidied = tidy(Arc::downgrade(&proxy), lasting.stop.clone());
    lasting.tracker.spawn(tidied);
    proxy
}

/// Closes connections to an upstream that nobody has used for a while, for as long as anybody may use it.
async fn tidy(proxy: Weak<Proxy>, stop: CancellationToken) {
    while tokio::time::timeout(TIDY_EVERY, stop.cancelled()).await.is_err() {
        match proxy.upgrade() {
            Some(proxy) => proxy.close_idle(),
            None => return,
        }
    }
    if let Some(proxy) = proxy.upgrade() {
        proxy.close_all();
    }
}
