//! What a backend brings to take part in the contract, and what the tests share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use sha2::{Digest, Sha256};

use crate::id::{EventId, SourceName, UpstreamName};
use crate::key::{DedupeKey, KeyKind};
use crate::request::{RawRequest, RequestHead};
use crate::store::model::{
    Admission, DispatchState, Finished, LeasedDispatch, NewEvent, Next, Notice, Outcome, Settled,
};
use crate::store::settings::{LaneSettings, StoreSettings};
use crate::store::{Feed, Store};
use crate::time::Timestamp;
use crate::verify::VerifiedRequest;

/// How long a level may take to be reached.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);
/// After so long, leases of a process that is gone have lapsed at any backend, and others may take over.
pub(super) const LAPSED: Duration = Duration::from_secs(30);

/// A place for one store that can be opened, closed and opened again.
///
/// **How a backend joins the contract.** Write a type with this trait, then `contract!(ItsBench)` in a module of its own
/// makes a test of each function in [`contract`](super::contract). A backend that several handles may have open at once
/// implements [`SharedBench`] too and adds `shared_contract!(ItsBench)`. Nothing else: a test that a backend cannot pass
/// is not left out, it is no part of the contract.
///
/// **Time.** Tests know no clock but [`Bench::now`]; what they store is received then, and they let time pass with
/// [`Bench::later`]. A backend whose ages go by a clock of its own (a database's) needs an offset to that clock, which
/// only its tests can set. Time may also pass by itself: tests compare with what [`Bench::now`] said before and after.
pub(super) trait Bench: Sized {
    /// How much time may pass by itself during a test; zero where it stands still.
    const SLACK: Duration;

    /// An empty place.
    async fn new() -> Self;

    /// What the next opening is given.
    fn setup(&self) -> &Setup;

    /// The same, for a test that wants it otherwise.
    fn setup_mut(&mut self) -> &mut Setup;

    /// Opens the store as [`Bench::setup`] says; its notices go to [`Setup::notices`].
    async fn open(&self) -> Store;

    /// The process that has `store` open dies now: nothing is finished, nothing handed back. What is opened next finds
    /// what is durable at this moment. Leases of the dead process may last until [`LAPSED`] has passed.
    async fn crash(&mut self, store: Store);

    /// The time by the clock that this backend judges ages by.
    fn now(&self) -> Timestamp;

    /// Lets time pass.
    async fn later(&self, by: Duration);

    /// Waits until the open store has forgotten the keys that are older than the window and whose events are finished,
    /// as far as it ever does: a backend may keep the newest ones for longer.
    async fn keys_are_pruned(&self, store: &Store);

    /// What must hold for the tables at rest; no store is open.
    async fn check(&self);

    /// What admission has decided so far.
    fn admissions(&self) -> Vec<Admission> {
        let notices = self.setup().notices.lock().unwrap();
        let admission = |notice: &Notice| match notice {
            Notice::Admitted { admission, .. } => Some(*admission),
            Notice::Died(_) => None,
        };
        notices.iter().filter_map(admission).collect()
    }

    /// Forgets what was told so far.
    fn forget_notices(&self) {
        self.setup().notices.lock().unwrap().clear();
    }

    /// A delivery, received now.
    fn delivery(&self, id: impl std::fmt::Display) -> Delivery {
        Delivery {
            id: id.to_string(),
            kind: KeyKind::Rule,
            body: Bytes::from(format!("body of {id}")),
            upstreams: Arc::from([app()]),
            content: false,
            received_at: self.now(),
        }
    }

    /// Ends the process that has `store` open, in one of two ways.
    async fn end(&mut self, store: Store, how: End) {
        match how {
            End::Close => {
                store.close().await;
                self.check().await;
            }
            End::Crash => {
                self.crash(store).await;
                self.later(LAPSED).await;
            }
        }
    }
}

/// A place that several handles may have open at once, as replicas have.
pub(super) trait SharedBench: Bench {
    /// The process that has `store` open is stopped (SIGSTOP): it renews nothing from now on, but what it is asked for it
    /// still sends.
    async fn freeze(&self, store: &Store);
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Close,
    Crash,
}

/// What a store is opened with.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// The place in it is the bench's business.
    pub(super) settings: StoreSettings,
    pub(super) upstreams: Vec<UpstreamName>,
    /// All that any handle was told.
    pub(super) notices: Arc<Mutex<Vec<Notice>>>,
}

impl Setup {
    pub(super) fn new() -> Self {
        Self {
            settings: StoreSettings::default(),
            upstreams: vec![app()],
            notices: Arc::default(),
        }
    }

    pub(super) fn lanes(&self) -> Vec<LaneSettings> {
        let lane = |upstream: &UpstreamName| LaneSettings {
            upstream: upstream.clone(),
            units: 16,
        };
        self.upstreams.iter().map(lane).collect()
    }

    /// Where an opening sends its notices.
    pub(super) fn listener(&self) -> Box<dyn FnMut(Notice) + Send> {
        let notices = Arc::clone(&self.notices);
        Box::new(move |notice| notices.lock().unwrap().push(notice))
    }
}

pub(super) fn app() -> UpstreamName {
    UpstreamName::new("app")
}

/// What a test wants to store.
#[derive(Clone)]
pub(super) struct Delivery {
    pub(super) id: String,
    pub(super) kind: KeyKind,
    pub(super) body: Bytes,
    pub(super) upstreams: Arc<[UpstreamName]>,
    pub(super) content: bool,
    pub(super) received_at: Timestamp,
}

impl Delivery {
    pub(super) fn event(&self) -> NewEvent {
        let mut headers = HeaderMap::new();
        headers.append("x-note", http::HeaderValue::from_bytes(b"\xff").unwrap());
        headers.append("x-note", http::HeaderValue::from_static("2"));
        headers.append("connection", http::HeaderValue::from_static("close"));
        headers.append("hooksluice-event-id", http::HeaderValue::from_static("forged"));
        let request = RawRequest {
            head: RequestHead {
                method: Method::POST,
                target: "/hooks?a=%2f".parse().unwrap(),
                authority: Some("hooks.example.com".to_owned()),
                headers,
                client: "192.0.2.7".parse().unwrap(),
                received_at: self.received_at,
            },
            body: self.body.clone(),
        };
        NewEvent {
            source: SourceName::new("github"),
            upstreams: Arc::clone(&self.upstreams),
            request: VerifiedRequest::for_tests(request, Some(&self.id)),
            key: self.key(),
            content: self.content.then(|| digest(&self.body)),
            body_mark: digest(&self.body).first_chunk().copied().unwrap(),
            awaited: false,
        }
    }

    pub(super) fn key(&self) -> DedupeKey {
        DedupeKey::from_parts(digest(self.id.as_bytes()), self.kind)
    }
}

fn digest(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

pub(super) async fn append(store: &Store, delivery: &Delivery) -> EventId {
    store.append(delivery.event()).await.unwrap().event()
}

/// Waits until what `look` finds is `wanted`.
pub(super) async fn reach<T: PartialEq + std::fmt::Debug, F: Future<Output = T>>(wanted: T, look: impl Fn() -> F) {
    let reached = tokio::time::timeout(DEADLINE, async {
        while look().await != wanted {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    if reached.await.is_err() {
        panic!("wanted {wanted:?}, still {:?}", look().await);
    }
}

pub(super) async fn all_admitted(store: &Store) {
    reach(0, || async { store.counts().await.unwrap().unadmitted }).await;
}

pub(super) async fn states(store: &Store, upstream: &str) -> HashMap<DispatchState, u64> {
    let counts = store.counts().await.unwrap();
    let shown = counts
        .upstreams
        .get(&UpstreamName::new(upstream))
        .cloned()
        .unwrap_or_default();
    let sum: u64 = shown.states.values().sum();
    assert_eq!(shown.made, sum + shown.pruned, "P8: {shown:?}");
    shown.states.into_iter().filter(|(_state, count)| *count > 0).collect()
}

pub(super) fn finished(lease: LeasedDispatch, status: u16) -> Finished {
    let status = StatusCode::from_u16(status).unwrap();
    Finished {
        outcome: if status.is_success() {
            Outcome::Delivered { status }
        } else {
            Outcome::Refused { status }
        },
        started_at: lease.event.received_at,
        lease,
        took: Duration::from_millis(7),
        excerpt: Bytes::from_static(b"ok"),
        reply: None,
    }
}

pub(super) async fn next(feed: &mut Feed) -> LeasedDispatch {
    tokio::time::timeout(DEADLINE, feed.next()).await.unwrap().unwrap()
}

/// Settles the next dispatch as delivered.
pub(super) async fn deliver(store: &Store, feed: &mut Feed) -> Seen {
    let lease = next(feed).await;
    let seen = Seen {
        event: lease.event.id,
        attempt: lease.attempt,
        replay: lease.replay,
    };
    assert_eq!(
        store.settle(finished(lease, 200), Next::Delivered).await.unwrap(),
        Settled::Recorded
    );
    seen
}

/// What a dispatch was handed out as.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) event: EventId,
    pub(super) attempt: u32,
    pub(super) replay: bool,
}
