//! The dedupe suite: one contract for whatever answers a look, on memory and on a real Redis; then what only Redis can
//! do wrong. Servers are started by the tests, on free ports, in temporary folders, and end with them.

mod faults;
mod foreign;
mod server;
mod shapes;
mod telling;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::server::Server;
use super::front::{Behind, Front};
use super::memory::RecentKeys;
use super::protocol::{About, Arrangement, OnDown, Protocol, Tell};
use super::redis::Redis;
use super::redis::address::Address;
use super::settings::{Namespace, RedisSettings};
use super::teller::{Deaths, Teller};
use crate::id::{EventId, Position, SourceName};
use crate::key::{DedupeKey, KeyKind};
use crate::store::model::{Admission, Death, Notice, Unclaimed};
use crate::telemetry::metrics::Metrics;
use crate::time::{Clock, Timestamp};

/// How long anything may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);
const WINDOW: Duration = Duration::from_secs(7 * 24 * 3600);
const DIGEST_WINDOW: Duration = Duration::from_secs(300);
const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

/// Waits until `holds`, or fails.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waited).await.is_ok(), "never: {what}");
}

fn event_at(received_at: Timestamp, n: i64) -> EventId {
    EventId::embedded(received_at, Position::new(n).unwrap(), 0)
}

fn event(n: i64) -> EventId {
    event_at(NOW, n)
}

fn key_of(n: u32, kind: KeyKind) -> DedupeKey {
    let mut digest = [0; 32];
    digest[..4].copy_from_slice(&n.to_be_bytes());
    DedupeKey::from_parts(digest, kind)
}

fn key(n: u32) -> DedupeKey {
    key_of(n, KeyKind::Rule)
}

fn source() -> SourceName {
    SourceName::new("stripe")
}

fn unclaimed(n: u32, event: EventId) -> Unclaimed {
    Unclaimed {
        event,
        source: source(),
        key: key(n),
        body_mark: [1; 8],
        received_at: NOW,
    }
}

fn durable(event: EventId) -> Tell {
    Tell::Durable {
        event,
        body_mark: [1; 8],
    }
}

fn name_of(namespace: &str, key: &DedupeKey) -> String {
    format!(
        "hooksluice:{namespace}:stripe:{}",
        data_encoding::HEXLOWER.encode(key.digest())
    )
}

/// A client of Redis with everything around it, as one process has it.
struct Node {
    redis: Redis,
    teller: Teller,
    front: Front,
    metrics: Metrics,
    namespace: watch::Sender<Option<Namespace>>,
    stop: CancellationToken,
    tasks: TaskTracker,
    telling: TaskTracker,
}

/// How a node differs from the usual one.
struct Setup {
    url: String,
    namespace: Option<&'static str>,
    arrangement: Arrangement,
    timeout: Duration,
    deaths: Deaths,
    /// Tellings are made by hand.
    clock: Clock,
}

impl Setup {
    fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            namespace: Some("shop"),
            arrangement: Arrangement::Separate(OnDown::Store),
            // The machine runs everything at once; a look's own deadline is tested where it matters.
            timeout: Duration::from_secs(2),
            deaths: Deaths::unmarked(),
            clock: Clock::system(),
        }
    }

    fn start(self) -> Node {
        let metrics = Metrics::new();
        let (namespace, watched) = watch::channel(self.namespace.map(|name| Namespace::new(name).unwrap()));
        let (tasks, telling, stop) = (TaskTracker::new(), TaskTracker::new(), CancellationToken::new());
        let stop_redis = CancellationToken::new();
        tasks.spawn({
            // As the app does: Redis's task ends after the teller's.
            let (stop, telling, stop_redis) = (stop.clone(), telling.clone(), stop_redis.clone());
            async move {
                stop.cancelled().await;
                telling.close();
                telling.wait().await;
                stop_redis.cancel();
            }
        });
        let settings = RedisSettings {
            address: Address::parse(&self.url).unwrap(),
            namespace: None,
            on_down: OnDown::Store,
            timeout: self.timeout,
            admit_timeout: RedisSettings::ADMIT_TIMEOUT,
            window: WINDOW,
            digest_window: DIGEST_WINDOW,
        };
        let redis = Redis::start(settings, watched, &metrics, Clock::system(), &tasks, stop_redis);
        let teller = Teller::start(
            redis.clone(),
            self.arrangement,
            self.deaths,
            &metrics,
            self.clock,
            &telling,
            stop.clone(),
        );
        let memory = Arc::new(RecentKeys::new(1000, DIGEST_WINDOW));
        let behind = Behind {
            redis: redis.clone(),
            teller: teller.clone(),
            protocol: Protocol {
                arrangement: self.arrangement,
                digest_window: DIGEST_WINDOW,
            },
        };
        Node {
            front: Front::new(memory, Some(behind)),
            redis,
            teller,
            metrics,
            namespace,
            stop,
            tasks,
            telling,
        }
    }

    /// Starts it and waits until it is connected.
    async fn up(self) -> Node {
        let node = self.start();
        node.wait_up().await;
        node
    }
}

impl Node {
    async fn wait_up(&self) {
        until("redis is up", async || self.redis.is_up()).await;
    }

    async fn told(&self) {
        until("redis is told everything", async || self.teller.is_empty()).await;
    }

    fn tell(&self, key: DedupeKey, tell: Tell) {
        self.teller.tell(source(), key, tell);
    }

    async fn known(&self, key: DedupeKey) -> Option<EventId> {
        self.known_at(key, NOW).await
    }

    async fn known_at(&self, key: DedupeKey, received_at: Timestamp) -> Option<EventId> {
        let found = self.front.look(&source(), &key, &about(key, received_at)).await?;
        Some(found.receipt.event())
    }

    /// Ends every task of it, and waits for them: none may hang on a server that is silent.
    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        let ended = tokio::time::timeout(PATIENCE, async {
            self.telling.wait().await;
            self.tasks.wait().await;
        })
        .await;
        assert!(ended.is_ok(), "a task did not end");
    }
}

fn about(key: DedupeKey, received_at: Timestamp) -> About {
    About {
        kind: key.kind(),
        received_at,
        body_mark: [1; 8],
    }
}

/// Whatever answers a look: the contract is one.
enum Knower {
    Memory(Front, Arc<RecentKeys>),
    Redis(Box<Node>, Server),
}

impl Knower {
    fn memory() -> Self {
        let memory = Arc::new(RecentKeys::new(1000, DIGEST_WINDOW));
        Self::Memory(Front::new(Arc::clone(&memory), None), memory)
    }

    async fn redis() -> Self {
        let server = Server::start(&[]).await;
        let node = Setup::new(server.url()).up().await;
        Self::Redis(Box::new(node), server)
    }

    async fn both() -> [Self; 2] {
        [Self::memory(), Self::redis().await]
    }

    /// The store has committed and admitted an event.
    async fn admitted(&self, key: DedupeKey, event: EventId) {
        match self {
            Self::Memory(_, memory) => memory.observe(&Notice::Admitted {
                appended: event,
                claim: None,
                source: source(),
                key,
                event,
                body_mark: [1; 8],
                received_at: event.received_at(),
                admission: Admission::New,
            }),
            Self::Redis(node, _) => {
                node.tell(key, durable(event));
                node.told().await;
            }
        }
    }

    async fn died(&self, key: DedupeKey, event: EventId) {
        let death = Death {
            source: source(),
            key,
            event,
        };
        match self {
            Self::Memory(_, memory) => memory.observe(&Notice::Died(death)),
            Self::Redis(node, _) => {
                node.teller.died(death);
                node.told().await;
            }
        }
    }

    fn front(&self) -> &Front {
        match self {
            Self::Memory(front, _) => front,
            Self::Redis(node, _) => &node.front,
        }
    }

    async fn known_at(&self, key: DedupeKey, at: Timestamp) -> Option<EventId> {
        let found = self.front().look(&source(), &key, &about(key, at)).await?;
        assert!(found.receipt.is_duplicate());
        Some(found.receipt.event())
    }

    async fn known(&self, key: DedupeKey) -> Option<EventId> {
        self.known_at(key, NOW).await
    }
}

#[tokio::test]
async fn a_look_knows_only_what_was_told_and_of_its_own_source() {
    for knower in Knower::both().await {
        assert_eq!(knower.known(key(1)).await, None);
        knower.admitted(key(1), event(1)).await;
        assert_eq!(knower.known(key(1)).await, Some(event(1)));
        assert_eq!(knower.known(key(2)).await, None);
        let other = SourceName::new("github");
        let found = knower.front().look(&other, &key(1), &about(key(1), NOW)).await;
        assert!(found.is_none(), "another source's key");
    }
}

#[tokio::test]
async fn other_bytes_under_the_same_key_are_a_conflict() {
    for knower in Knower::both().await {
        knower.admitted(key(1), event(1)).await;
        for (body_mark, conflict) in [([1; 8], false), ([2; 8], true)] {
            let about = About {
                body_mark,
                ..about(key(1), NOW)
            };
            let found = knower.front().look(&source(), &key(1), &about).await.unwrap();
            assert_eq!(found.conflict, conflict);
        }
    }
}

#[tokio::test]
async fn the_duplicate_of_a_dead_event_goes_to_the_store() {
    for knower in Knower::both().await {
        knower.admitted(key(1), event(1)).await;
        knower.admitted(key(2), event(2)).await;
        knower.died(key(1), event(1)).await;
        assert_eq!(knower.known(key(1)).await, None);
        assert_eq!(knower.known(key(2)).await, Some(event(2)));
        // It may die without ever having been told of.
        knower.died(key(3), event(3)).await;
        assert_eq!(knower.known(key(3)).await, None);
    }
}

#[tokio::test]
async fn a_digest_key_speaks_within_its_window_in_both_directions() {
    for knower in Knower::both().await {
        let digest = key_of(1, KeyKind::Digest);
        knower.admitted(digest, event(1)).await;
        for (at, known) in [
            (NOW, true),
            (NOW.after(DIGEST_WINDOW), true),
            (NOW.before(DIGEST_WINDOW), true),
            (NOW.after(DIGEST_WINDOW + Duration::from_millis(1)), false),
            (NOW.before(DIGEST_WINDOW + Duration::from_millis(1)), false),
        ] {
            assert_eq!(knower.known_at(digest, at).await.is_some(), known, "{at}");
        }
    }
}

#[tokio::test]
async fn what_is_forgotten_is_not_known_and_may_be_told_anew() {
    for knower in Knower::both().await {
        knower.admitted(key(1), event(1)).await;
        match &knower {
            Knower::Memory(front, _) => front.clear(),
            Knower::Redis(_, server) => server.cli(&["FLUSHALL"]).assert_ok(),
        }
        assert_eq!(knower.known(key(1)).await, None);
        knower.admitted(key(1), event(2)).await;
        assert_eq!(knower.known(key(1)).await, Some(event(2)));
    }
}
