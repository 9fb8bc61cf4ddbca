//! The task that keeps the connection to Redis: connects, probes, notices that it is lost, and begins again.

use std::error::Error as _;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, error, info, warn};

use super::Shared;
use super::commands::{self, Silence};
use super::connect::{self, Away};
use super::contact::Eviction;
use super::link::Link;
use crate::telemetry::metrics::RedisOperation;
use crate::time::Monotonic;

/// How long connecting may take, with the first contact.
const CONNECT: Duration = Duration::from_secs(5);
/// First wait before the next try; it doubles.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest wait before the next try.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// A connection that has lived for so long was a good one: the next try need not wait.
const GOOD: Duration = Duration::from_secs(10);
/// How often a connection is probed when nothing else shows whether it lives, and its server asked what it is.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// A probe without an answer for so long means that the connection is lost.
const PROBE: Duration = Duration::from_secs(3);
/// How often it is said that Redis is still away.
const REMIND: Duration = Duration::from_secs(600);

/// Runs until `stop`.
pub(super) async fn keep(shared: Arc<Shared>, tracker: TaskTracker, stop: CancellationToken) {
    let mut voice = Voice::default();
    let mut wait = RETRY_FIRST;
    while !stop.is_cancelled() {
        let opening = tokio::time::timeout(CONNECT, open(&shared, &tracker));
        let opened = tokio::select! {
            opened = opening => opened.unwrap_or(Err(Away::TimedOut)),
            () = stop.cancelled() => break,
        };
        match opened {
            Ok((link, eviction)) => {
                let since = shared.clock.monotonic();
                voice.up(&shared, eviction);
                shared.link.send_replace(Some(link.clone()));
                shared.metrics.up.set(1);
                let reason = tokio::select! {
                    reason = serve(&shared, &link, &tracker) => Some(reason),
                    () = stop.cancelled() => None,
                };
                shared.link.send_replace(None);
                shared.metrics.up.set(0);
                link.lost.cancel();
                if let Some(reason) = reason {
                    debug!(reason = %chain(&reason), "connection to redis lost");
                }
                if shared.clock.monotonic().since(since) >= GOOD {
                    wait = RETRY_FIRST;
                }
            }
            Err(away) => {
                shared.metrics.failed(RedisOperation::Connect);
                voice.down(&shared, &away);
            }
        }
        // Not all at the same time: half of the wait is diced.
        let diced = wait.mul_f64(rand::random_range(0.5..1.0));
        wait = (wait * 2).min(RETRY_MAX);
        tokio::select! {
            () = tokio::time::sleep(diced) => {}
            () = stop.cancelled() => break,
        }
    }
}

/// Connects, and probes right away: a server that loads its data, or a user who may not read, is not up.
pub(super) async fn open(shared: &Shared, tracker: &TaskTracker) -> Result<(Link, Eviction), Away> {
    let (link, eviction) = connect::open(&shared.settings.address, tracker).await?;
    shared.breaker().probe();
    match probe(shared, &link).await {
        Ok(()) => Ok((link, eviction)),
        Err(silence) => {
            link.lost.cancel();
            Err(Away::Mute(silence))
        }
    }
}

/// Watches over a connection until it is lost, and says why.
async fn serve(shared: &Shared, link: &Link, tracker: &TaskTracker) -> Away {
    let mut beat = shared.clock.monotonic().after(HEARTBEAT);
    loop {
        let due = shared.breaker().probe_due().map_or(beat, |due| due.min(beat));
        let now = shared.clock.monotonic();
        tokio::select! {
            () = link.lost.cancelled() => return Away::Lost,
            () = tokio::time::sleep(due.since(now)) => {
                let is_beat = now >= beat;
                shared.breaker().probe();
                match probe(shared, link).await {
                    Ok(()) | Err(Silence::Error { .. } | Silence::Forbidden) => {}
                    Err(silence) => return Away::Mute(silence),
                }
                if is_beat {
                    let good = connect::still_good(link, &shared.settings.address, tracker);
                    let good = tokio::select! {
                        good = good => good,
                        () = link.lost.cancelled() => Err(Away::Lost),
                    };
                    if let Err(away) = good {
                        return away;
                    }
                    beat = shared.clock.monotonic().after(HEARTBEAT);
                }
            }
            () = shared.opened.notified() => {}
        }
    }
}

/// One look of our own. The breaker closes only when it is answered as fast as a look must be.
async fn probe(shared: &Shared, link: &Link) -> Result<(), Silence> {
    let began = shared.clock.monotonic();
    let namespace = shared.namespace();
    let mut answer = link.ask(commands::probe(namespace.as_ref()), PROBE).await;
    if namespace.is_none() && matches!(answer, Err(Silence::Forbidden)) {
        // A user with no more rights than needed may not PING; being told so is an answer.
        answer = Ok(redis::Value::Nil);
    }
    if answer.as_ref().is_err_and(Silence::is_other_type) {
        // Somebody has written there; Redis answers all the same.
        answer = Ok(redis::Value::Nil);
    }
    let now = shared.clock.monotonic();
    let in_time = answer.is_ok() && now.since(began) <= shared.settings.timeout;
    let mut breaker = shared.breaker();
    breaker.probed(in_time, now);
    shared.metrics.breaker_open.set(i64::from(breaker.is_open()));
    drop(breaker);
    answer.map(|_| ())
}

/// Says what changes, and reminds of what stays wrong.
#[derive(Debug, Default)]
struct Voice {
    /// What was said last about Redis being away, and when.
    away: Option<(String, Monotonic)>,
    eviction: Option<Eviction>,
}

impl Voice {
    fn up(&mut self, shared: &Shared, eviction: Eviction) {
        let address = &shared.settings.address;
        info!(redis = %address, "redis is there");
        self.away = None;
        if self.eviction.as_ref() == Some(&eviction) {
            return;
        }
        match &eviction {
            Eviction::Never => {}
            Eviction::Evicts { policy } => warn!(
                redis = %address,
                maxmemory_policy = policy,
                "redis throws keys away when its memory is full; a duplicate whose key is gone is found by the store alone, \
                 and over replicas with a store each it is forwarded twice; set maxmemory-policy to noeviction"
            ),
            Eviction::Unknown => info!(
                redis = %address,
                "redis does not let us see its maxmemory-policy; it should be noeviction"
            ),
        }
        self.eviction = Some(eviction);
    }

    fn down(&mut self, shared: &Shared, away: &Away) {
        let address = &shared.settings.address;
        let now = shared.clock.monotonic();
        let reason = chain(away);
        let is_news = self.away.as_ref().is_none_or(|(said, _)| *said != reason);
        let is_old = self.away.as_ref().is_some_and(|(_, at)| now.since(*at) >= REMIND);
        if !is_news && !is_old {
            return;
        }
        if away.is_for_a_person() {
            error!(redis = %address, reason, "redis cannot be used; duplicates are found by the store alone");
        } else if self.away.is_none() || is_old {
            warn!(redis = %address, reason, "redis is away; no look asks it until it is back");
        } else {
            // The same outage, seen from another side.
            debug!(redis = %address, reason, "redis is still away");
            return;
        }
        self.away = Some((reason, now));
    }
}

/// An error with its causes.
fn chain(away: &Away) -> String {
    let mut text = away.to_string();
    let mut source = away.source();
    while let Some(error) = source {
        // Writing to a string cannot fail.
        write!(text, ": {error}").ok();
        source = error.source();
    }
    text
}
