//! Redis as the dedupe protocol needs it: look, claim, tell, renew ([`super::protocol`] says what for).
//!
//! **Motivation.** Redis may be down, slow, silent, flushed, full, a replica, or somebody else's. None of that may cost a
//! sender its answer, and none may look like an answer (DD-03): whatever is not a clear answer is [`Reply::Silent`].
//!
//! **Theory of operation.** One task keeps one connection ([`link`]): it connects ([`connect`]), makes the first contact
//! ([`contact`]), publishes the connection, probes it, and starts again when it is lost, with a back-off. All questions of
//! all requests are pipelined over that connection. A look is given `timeout` as a whole and never waits for a
//! connection; five that get no answer in a row open the [`breaker`], and then a look costs nothing until a probe of
//! that task is answered in time. Claims and tellings are not on the way of an answer: they wait for a connection for a
//! while, the breaker does not concern them, and whoever asks decides how often to ask again.
//!
//! # What may be repeated, and what may come late
//!
//! A command that got no reply may have had its effect, may be repeated (by us, or in a Cluster by the library), and may
//! still have its effect later, when a network comes back. The system gives unacknowledged bytes up after ten seconds.
//! None of these does harm:
//!
//! | command | repeated | late |
//! |---|---|---|
//! | `GET` | reads | its reply is thrown away |
//! | claim: `SET k v NX GET PX` | finds its own event there, which [`Protocol`](super::protocol::Protocol) takes for `Ours` | the event is durable: it was before it was claimed |
//! | claim of a key that holds what is not ours: `EVAL` set unless it is ours | finds its own event there, as above | the event is durable; it never covers a mark of ours, `dead:` neither |
//! | durable: `SET k v NX PX` | finds something there and leaves it | the same; it never covers `dead:`. The event may have died at another replica meanwhile only if it was older than the bound on lateness, and is dropped before |
//! | dead: `SET k dead:… PX` | sets the same | sends a duplicate to the store, which knows better: a look more, nothing lost |
//! | instead: `EVAL` compare-and-set | finds `<of>:` gone and does nothing | the same: it can only ever replace the event that it names |
//! | renew: `PEXPIRE` | starts the time again | a key lives a little longer |
//! | [`keep`](Redis::keep): `SET k v PX` | sets the same | the answer of a call that has ended never changes; after its time it is not believed |
//!
//! **Values that are not ours.** Somebody else may write under our keys. To a look this says nothing. To a claim it is an
//! answer: Redis has lost what it was told under this key, and this key alone; so the claim takes it, and a person is
//! told. Were it silence, one such key would hold up every event behind it.
//!
//! **Promises.** P1: no error, time-out or strange value answers a look. P2: a claim's reply is what Redis held of
//! ours, or silence. P6: one connection, bounded buffers, a deadline for everything. P10: a look never takes longer than
//! `timeout`.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::answers::Held;
use self::breaker::Breaker;
use self::commands::Silence;
use self::foreign::Foreign;
use self::link::Link;
use super::protocol::{Reply, Tell};
use super::settings::{Namespace, RedisSettings};
use crate::id::{EventId, SourceName};
use crate::key::{DedupeKey, KeyKind};
use crate::store::model::Unclaimed;
use crate::telemetry::metrics::{LookResult, Metrics, RedisMetrics, RedisOperation};
use crate::time::{Clock, Monotonic};

pub mod address;
mod answers;
pub mod breaker;
mod commands;
mod connect;
pub mod contact;
mod foreign;
mod keeper;
mod link;
pub mod probe;

/// How long one try of a claim or telling may take, waiting for a connection too. Admission tries until its own patience
/// ends.
pub const TRY: Duration = Duration::from_secs(2);

/// Commands that go out in one pipeline; longer slices are cut.
pub const SLICE: usize = 256;

/// Redis, away or not. Cheap to clone.
#[derive(Clone)]
pub struct Redis(Arc<Shared>);

struct Shared {
    settings: RedisSettings,
    /// How long rule keys live from now on, in milliseconds; begins as `settings.window`.
    window: AtomicU64,
    namespace: watch::Receiver<Option<Namespace>>,
    clock: Clock,
    metrics: Arc<RedisMetrics>,
    /// The connection, while there is one that has passed its first contact.
    link: watch::Sender<Option<Link>>,
    breaker: Mutex<Breaker>,
    /// The breaker has opened: a probe is due soon.
    opened: Notify,
    foreign: Foreign,
}

/// Something that Redis is to be told.
#[derive(Clone, Debug)]
pub struct Telling {
    /// Whose event it is: the namespace under which the store committed it. Once that is no longer the current one, it
    /// must not be told.
    pub namespace: Namespace,
    /// The event's source.
    pub source: SourceName,
    /// Its key.
    pub key: DedupeKey,
    /// What is told.
    pub tell: Tell,
    /// Since when it has been true.
    pub since: Monotonic,
}

/// Whether Redis was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Redis has it, or holds something that it must not cover.
    Yes,
    /// No answer, or an error: it may or may not have it.
    Silent,
    /// Redis does not let us.
    Refused,
    /// The namespace has changed, or is unknown.
    OtherStore,
}

impl Redis {
    /// Starts the task that keeps the connection, until `stop`. Redis need not be there.
    ///
    /// `namespace` is what keys begin with: unknown, or another one, from one moment to the next, where a shared store's
    /// identity is the namespace. While it is unknown looks find nothing and nothing is told.
    pub fn start(
        settings: RedisSettings,
        namespace: watch::Receiver<Option<Namespace>>,
        metrics: &Metrics,
        clock: Clock,
        tracker: &TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let redis = Self(Arc::new(Shared {
            window: millis(settings.window).into(),
            settings,
            namespace,
            clock,
            metrics: metrics.redis(),
            link: watch::Sender::new(None),
            breaker: Mutex::default(),
            opened: Notify::new(),
            foreign: Foreign::default(),
        }));
        tracker.spawn(keeper::keep(Arc::clone(&redis.0), tracker.clone(), stop));
        redis
    }

    /// From now on rule keys live for so long: those that are written, and those that are renewed. Others live as long as
    /// they were to when they were written.
    pub fn remember_for(&self, window: Duration) {
        self.0.window.store(millis(window), Ordering::Relaxed);
    }

    /// How long rule keys live that are written now.
    pub fn window(&self) -> Duration {
        self.0.ttl(KeyKind::Rule)
    }

    /// The settings it was started with.
    pub fn settings(&self) -> &RedisSettings {
        &self.0.settings
    }

    /// The namespace now.
    pub fn namespace(&self) -> Option<Namespace> {
        self.0.namespace()
    }

    /// Whether there is a connection.
    pub fn is_up(&self) -> bool {
        self.0.link.borrow().is_some()
    }

    /// Waits until there is a connection and a namespace.
    pub async fn ready(&self) {
        self.0.ready().await;
    }

    /// What Redis holds under the key, within `timeout`. Never waits for a connection.
    pub async fn look(&self, source: &SourceName, key: &DedupeKey) -> Reply {
        let answer = self.ask(|namespace| commands::name(namespace, source, key)).await;
        let reply = answer.as_ref().map_or(Reply::Silent, commands::held);
        // What is not ours is no answer to a look, and everything else that is silent is counted already.
        if answer.is_some() && reply == Reply::Silent {
            self.count_silent();
        }
        reply
    }

    /// The value under a key, within `timeout`, past the breaker; `None` without an answer, which is counted.
    async fn ask(&self, name: impl FnOnce(&Namespace) -> String) -> Option<Value> {
        let shared = &self.0;
        let skipped = || {
            shared.metrics.looked(LookResult::Skipped);
            None
        };
        let Some(namespace) = shared.namespace() else {
            return skipped();
        };
        let Some(link) = shared.link.borrow().clone() else {
            return skipped();
        };
        let Some(epoch) = shared.breaker().admits() else {
            return skipped();
        };
        let command = commands::get(&name(&namespace));
        let answer = link.ask(command, shared.settings.timeout).await;
        let now = shared.clock.monotonic();
        {
            let mut breaker = shared.breaker();
            let answered = answer.as_ref().map_or_else(Silence::is_other_type, |_| true);
            breaker.ended(epoch, answered, now);
            if breaker.is_open() {
                shared.metrics.breaker_open.set(1);
                shared.opened.notify_one();
            }
        }
        match answer {
            // Meanwhile the store may have become another one, of which the answer says nothing.
            Ok(value) if shared.namespace().as_ref() == Some(&namespace) => Some(value),
            Ok(_) | Err(_) => {
                self.count_silent();
                None
            }
        }
    }

    fn count_silent(&self) {
        self.0.metrics.failed(RedisOperation::Look);
        self.0.metrics.looked(LookResult::Silent);
    }

    /// Counts how a look that was answered ended.
    pub(super) fn looked(&self, heard: Reply, known: bool) {
        match (heard, known) {
            (_, true) => self.0.metrics.looked(LookResult::Hit),
            (Reply::Absent | Reply::Holds(_), false) => self.0.metrics.looked(LookResult::Miss),
            // Counted where it happened.
            (Reply::Silent, false) => {}
        }
    }

    /// Asks for the keys of appended events; the replies are in the order of the events. A try takes at most [`TRY`] for each
    /// [`SLICE`], and as long again where keys hold what is not ours; what is silent is to be asked again, after a pause:
    /// an error may come at once.
    pub async fn claims(&self, unclaimed: &[Unclaimed]) -> Vec<Reply> {
        let shared = &self.0;
        let mut replies = Vec::with_capacity(unclaimed.len());
        for slice in unclaimed.chunks(SLICE) {
            let events: Vec<&Unclaimed> = slice.iter().collect();
            let answers = shared.try_claims(&events, commands::claim).await;
            let is_foreign: Vec<bool> = answers.iter().map(commands::is_foreign).collect();
            let foreign: Vec<&Unclaimed> = slice
                .iter()
                .zip(&is_foreign)
                .filter(|(_, is)| **is)
                .map(|(e, _)| e)
                .collect();
            let mut replaced = shared.replace(&foreign).await.into_iter();
            replies.extend(answers.iter().zip(is_foreign).map(|(answer, is_foreign)| {
                if is_foreign {
                    replaced.next().unwrap_or(Reply::Silent)
                } else {
                    heard(answer)
                }
            }));
        }
        shared.count_failures(
            RedisOperation::Claim,
            replies.iter().filter(|r| **r == Reply::Silent).count(),
        );
        replies
    }

    /// Tells Redis; the results are in the order of `tellings`. A try takes at most [`TRY`] for each [`SLICE`].
    pub async fn tell(&self, tellings: &[Telling]) -> Vec<Told> {
        let shared = &self.0;
        let mut told = Vec::with_capacity(tellings.len());
        for slice in tellings.chunks(SLICE) {
            told.extend(self.tell_slice(slice).await);
        }
        shared.count_failures(
            RedisOperation::Tell,
            told.iter().filter(|t| **t == Told::Silent).count(),
        );
        told
    }

    async fn tell_slice(&self, slice: &[Telling]) -> Vec<Told> {
        let shared = &self.0;
        let Some(namespace) = shared.namespace() else {
            return vec![Told::OtherStore; slice.len()];
        };
        let current: Vec<&Telling> = slice.iter().filter(|telling| telling.namespace == namespace).collect();
        let answers = shared
            .try_all(current.len(), |_| {
                let tell = |telling: &&Telling| {
                    let name = commands::name(&telling.namespace, &telling.source, &telling.key);
                    commands::tell(&name, &telling.tell, shared.ttl(telling.key.kind()))
                };
                current.iter().map(tell).collect()
            })
            .await;
        let mut answers = answers.into_iter();
        let outcome = |telling: &Telling| {
            if telling.namespace != namespace {
                return Told::OtherStore;
            }
            match answers.next() {
                Some(Ok(value)) if commands::took(&value) => Told::Yes,
                // Only the script is dispensable: it needs a right that the others do not.
                Some(Err(Silence::Forbidden)) if matches!(telling.tell, Tell::Instead { .. }) => Told::Refused,
                _ => Told::Silent,
            }
        };
        slice.iter().map(outcome).collect()
    }

    /// Lets keys live for their whole time from now on, because a dispatch of their event is still undelivered. Digest keys
    /// are left alone: they are remembered for their window and no longer. Says how many got no answer.
    pub async fn renew(&self, keys: &[(SourceName, DedupeKey)]) -> usize {
        let shared = &self.0;
        let keys: Vec<_> = keys.iter().filter(|(_, key)| key.kind() == KeyKind::Rule).collect();
        let mut silent = 0;
        for slice in keys.chunks(SLICE) {
            let answers = shared
                .try_all(slice.len(), |namespace| {
                    let ttl = shared.ttl(KeyKind::Rule);
                    let renew = |(source, key): &&(SourceName, DedupeKey)| {
                        commands::renew(&commands::name(namespace, source, key), ttl)
                    };
                    slice.iter().map(renew).collect()
                })
                .await;
            silent += answers.iter().filter(|answer| answer.is_err()).count();
        }
        shared.count_failures(RedisOperation::Renew, silent);
        silent
    }
}

#[cfg(test)]
impl Redis {
    /// Whether connecting anew fails in a way that only a person can mend.
    pub(super) async fn needs_a_person(&self) -> bool {
        let opened = keeper::open(&self.0, &TaskTracker::new()).await;
        opened.is_err_and(|away| away.is_for_a_person())
    }
}

/// The words of the second step of a claim.
#[cfg(test)]
pub(super) fn replace_command(name: &str, event: EventId) -> Vec<String> {
    let words = commands::replace(name, event, [1; 8], TRY);
    let word = |arg| match arg {
        redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    words.args_iter().map(word).collect()
}

fn heard(answer: &Result<Value, Silence>) -> Reply {
    answer.as_ref().map_or(Reply::Silent, commands::held)
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("address", &self.0.settings.address)
            .field("up", &self.is_up())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn namespace(&self) -> Option<Namespace> {
        self.namespace.borrow().clone()
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_failures(&self, operation: RedisOperation, count: usize) {
        for _ in 0..count {
            self.metrics.failed(operation);
        }
    }

    async fn ready(&self) -> (Link, Namespace) {
        let mut links = self.link.subscribe();
        let mut namespaces = self.namespace.clone();
        loop {
            let link = links.borrow_and_update().clone();
            let namespace = namespaces.borrow_and_update().clone();
            if let (Some(link), Some(namespace)) = (link, namespace) {
                return (link, namespace);
            }
            tokio::select! {
                // We hold its sender.
                _ = links.changed() => {}
                // Without a sender it stays what it is.
                Ok(()) = namespaces.changed() => {}
            }
        }
    }

    /// How long a key of this kind lives that is written now.
    fn ttl(&self, kind: KeyKind) -> Duration {
        match kind {
            KeyKind::Rule => Duration::from_millis(self.window.load(Ordering::Relaxed)),
            KeyKind::Digest => self.settings.ttl(kind),
        }
    }

    /// One try of several claims.
    async fn try_claims(
        &self,
        events: &[&Unclaimed],
        make: fn(&str, EventId, [u8; 8], Duration) -> Cmd,
    ) -> Vec<Result<Value, Silence>> {
        let make = |namespace: &Namespace| {
            let claim = |event: &&Unclaimed| {
                let name = commands::name(namespace, &event.source, &event.key);
                make(&name, event.event, event.body_mark, self.ttl(event.key.kind()))
            };
            events.iter().map(claim).collect()
        };
        self.try_all(events.len(), make).await
    }

    /// Claims keys that hold what is not ours, and tells a person of them.
    async fn replace(&self, events: &[&Unclaimed]) -> Vec<Reply> {
        let answers = self.try_claims(events, commands::replace).await;
        let namespace = self.namespace();
        let now = self.clock.monotonic();
        for (event, answer) in events.iter().zip(&answers) {
            let Some(namespace) = &namespace else { break };
            let name = commands::name(namespace, &event.source, &event.key);
            match heard(answer) {
                // Silence is counted with all the others.
                Reply::Silent => self.foreign.stuck(&name, answer.as_ref().err(), now),
                Reply::Absent => {
                    self.metrics.failed(RedisOperation::Claim);
                    self.foreign.replaced(&name, now);
                }
                // Another replica was faster, and says so.
                Reply::Holds(_) => {}
            }
        }
        answers.iter().map(heard).collect()
    }

    /// One try of several commands, made for the current namespace: waits for a connection, then for the answers.
    async fn try_all(&self, count: usize, make: impl FnOnce(&Namespace) -> Vec<Cmd>) -> Vec<Result<Value, Silence>> {
        if count == 0 {
            return Vec::new();
        }
        let began = self.clock.monotonic();
        let Ok((link, namespace)) = tokio::time::timeout(TRY, self.ready()).await else {
            return (0..count).map(|_| Err(Silence::TimedOut)).collect();
        };
        let left = TRY.saturating_sub(self.clock.monotonic().since(began));
        let answers = link.ask_all(make(&namespace), left).await;
        if self.namespace().as_ref() == Some(&namespace) {
            return answers;
        }
        // The store has become another one meanwhile, of which the answers say nothing.
        (0..count).map(|_| Err(Silence::TimedOut)).collect()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
