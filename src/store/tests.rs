//! The contract of a store, through its public face.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::model::{Admission, DispatchState, Outcome};
use super::settings::SqliteSettings;
use super::*;
use crate::id::{Position, SourceName};
use crate::key::{DedupeKey, KeyKind};
use crate::request::{RawRequest, RequestHead};
use crate::time::Timestamp;
use crate::verify::VerifiedRequest;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
/// How long a level may take to be reached.
const DEADLINE: Duration = Duration::from_secs(20);

/// A store in a temporary directory that can be closed and opened again.
struct Harness {
    directory: TempDir,
    settings: StoreSettings,
    place: SqliteSettings,
    upstreams: Vec<UpstreamName>,
    clock: Clock,
    tuning: sqlite::Tuning,
    notices: Arc<Mutex<Vec<Notice>>>,
}

impl Harness {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        Self {
            settings: StoreSettings::default(),
            place: SqliteSettings {
                path: directory.path().join("data"),
                min_free: 0,
                ..SqliteSettings::default()
            },
            directory,
            upstreams: vec![UpstreamName::new("app")],
            clock: Clock::manual(NOW),
            tuning: sqlite::Tuning {
                wal_bytes: 1 << 20,
                partition_keys: 40,
                tail_events: 16,
                tail_bytes: 1 << 20,
            },
            notices: Arc::default(),
        }
    }

    fn open(&self) -> Store {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> Result<Store, OpenError> {
        let notices = Arc::clone(&self.notices);
        Store::open_tuned(
            StoreSettings {
                place: Place::Sqlite(self.place.clone()),
                ..self.settings.clone()
            },
            self.upstreams.clone(),
            self.clock.clone(),
            Box::new(move |notice| notices.lock().unwrap().push(notice)),
            self.tuning.clone(),
        )
    }

    /// The store as a crash at this moment would leave it.
    fn crashed(&self) -> Self {
        let copy = Self::new();
        std::fs::create_dir(&copy.place.path).unwrap();
        for file in ["hooksluice.db-wal", "hooksluice.db"] {
            std::fs::copy(self.place.path.join(file), copy.place.path.join(file)).unwrap();
        }
        Self {
            directory: copy.directory,
            settings: self.settings.clone(),
            place: copy.place,
            upstreams: self.upstreams.clone(),
            clock: self.clock.clone(),
            tuning: self.tuning.clone(),
            notices: Arc::default(),
        }
    }

    fn database(&self) -> rusqlite::Connection {
        let path = self.place.path.join("hooksluice.db");
        rusqlite::Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
    }

    fn admissions(&self) -> Vec<Admission> {
        let notices = self.notices.lock().unwrap();
        let admission = |notice: &Notice| match notice {
            Notice::Admitted { admission, .. } => Some(*admission),
            Notice::Died(_) => None,
        };
        notices.iter().filter_map(admission).collect()
    }

    fn later(&self, by: Duration) {
        self.clock.set(self.clock.now().after(by));
    }
}

fn app() -> UpstreamName {
    UpstreamName::new("app")
}

/// What a test wants to store.
#[derive(Clone)]
struct Delivery {
    id: String,
    kind: KeyKind,
    body: Bytes,
    upstreams: Arc<[UpstreamName]>,
    content: bool,
    received_at: Timestamp,
}

fn delivery(id: impl std::fmt::Display) -> Delivery {
    Delivery {
        id: id.to_string(),
        kind: KeyKind::Rule,
        body: Bytes::from(format!("body of {id}")),
        upstreams: Arc::from([app()]),
        content: false,
        received_at: NOW,
    }
}

impl Delivery {
    fn event(&self) -> NewEvent {
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
        let digest = |text: &[u8]| -> [u8; 32] { Sha256::digest(text).into() };
        NewEvent {
            source: SourceName::new("github"),
            upstreams: Arc::clone(&self.upstreams),
            request: VerifiedRequest::for_tests(request, Some(&self.id)),
            key: DedupeKey::from_parts(digest(self.id.as_bytes()), self.kind),
            content: self.content.then(|| digest(&self.body)),
            body_mark: digest(&self.body).first_chunk().copied().unwrap(),
        }
    }
}

async fn append(store: &Store, delivery: &Delivery) -> EventId {
    store.append(delivery.event()).await.unwrap().event()
}

/// Waits until what `look` finds is `wanted`.
async fn reach<T: PartialEq + std::fmt::Debug, F: Future<Output = T>>(wanted: T, look: impl Fn() -> F) {
    let reached = tokio::time::timeout(DEADLINE, async {
        while look().await != wanted {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    if reached.await.is_err() {
        panic!("wanted {wanted:?}, still {:?}", look().await);
    }
}

async fn all_admitted(store: &Store) {
    reach(0, || async { store.counts().await.unwrap().unadmitted }).await;
}

async fn states(store: &Store, upstream: &str) -> HashMap<DispatchState, u64> {
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

fn finished(lease: LeasedDispatch, status: u16) -> Finished {
    let status = StatusCode::from_u16(status).unwrap();
    Finished {
        lease,
        outcome: if status.is_success() {
            Outcome::Delivered { status }
        } else {
            Outcome::Refused { status }
        },
        started_at: NOW,
        took: Duration::from_millis(7),
        excerpt: Bytes::from_static(b"ok"),
    }
}

async fn next(feed: &mut Feed) -> LeasedDispatch {
    tokio::time::timeout(DEADLINE, feed.next()).await.unwrap().unwrap()
}

async fn deliver(store: &Store, feed: &mut Feed) -> LeasedDispatchSeen {
    let lease = next(feed).await;
    let seen = LeasedDispatchSeen {
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

#[derive(Debug, PartialEq, Eq)]
struct LeasedDispatchSeen {
    event: EventId,
    attempt: u32,
    replay: bool,
}

/// What must hold for the tables of any store at rest.
fn check_tables(harness: &Harness) {
    let database = harness.database();
    let count = |sql: &str| -> i64 { database.query_row(sql, [], |row| row.get(0)).unwrap() };
    let none = [
        (
            "a dispatch without its event",
            "SELECT count(*) FROM dispatch d LEFT JOIN event e ON e.position = d.id >> 14 WHERE e.position IS NULL",
        ),
        (
            "an attempt without its dispatch",
            "SELECT count(*) FROM attempt a LEFT JOIN dispatch d ON d.id = a.dispatch WHERE d.id IS NULL",
        ),
        (
            "an admitted event without a dispatch",
            "SELECT count(*) FROM event WHERE position <= (SELECT max(id) >> 14 FROM dispatch) AND position NOT IN (SELECT id >> 14 FROM dispatch)",
        ),
        (
            "a position beyond the reserved ones",
            "SELECT count(*) FROM event WHERE position >= (SELECT reserved_end FROM meta)",
        ),
        (
            "a page without its partition",
            "SELECT count(*) FROM key_page WHERE id >> 16 NOT IN (SELECT partition FROM key_partition) AND id >> 16 < (SELECT next_partition FROM meta)",
        ),
        (
            "an id that names another position",
            "SELECT count(*) FROM event WHERE substr(hex(id), 21) <> printf('%012X', position)",
        ),
    ];
    for (what, sql) in none {
        assert_eq!(count(sql), 0, "{what}");
    }
    let sound: String = database
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(sound, "ok");
}

#[tokio::test]
async fn an_event_is_stored_handed_out_settled_and_shown_as_it_was() {
    let harness = Harness::new();
    let store = harness.open();
    let mut feed = store.feed(&app()).unwrap();
    let sent = delivery("a");
    let receipt = store.append(sent.event()).await.unwrap();
    assert!(!receipt.is_duplicate());
    let lease = next(&mut feed).await;
    assert_eq!(lease.event.id, receipt.event());
    assert_eq!((lease.attempt, lease.attempts_on_clock, lease.replay), (1, 1, false));
    assert_eq!(lease.event.body, sent.body);
    assert_eq!(lease.event.target, "/hooks?a=%2f");
    assert_eq!(lease.event.delivery_id.as_deref(), Some("a"));
    let notes: Vec<&[u8]> = lease
        .event
        .headers
        .get_all("x-note")
        .iter()
        .map(|value| value.as_bytes())
        .collect();
    assert_eq!(notes, [b"\xff".as_slice(), b"2"]);
    assert_eq!(
        lease.event.headers.len(),
        2,
        "hop-by-hop and our own names are not stored"
    );
    assert!(store.holds(&lease));
    let headers = lease.event.headers.clone();
    assert_eq!(
        store.settle(finished(lease, 204), Next::Delivered).await.unwrap(),
        Settled::Recorded
    );
    let detail = store.event(receipt.event()).await.unwrap().unwrap();
    assert_eq!(detail.event.headers, headers);
    assert_eq!(detail.event.body, sent.body);
    let (dispatch, attempts) = &detail.dispatches[0];
    assert_eq!((dispatch.state, dispatch.attempts), (DispatchState::Delivered, 1));
    assert_eq!(attempts.len(), 1);
    assert_eq!(
        attempts[0].outcome,
        Outcome::Delivered {
            status: StatusCode::NO_CONTENT
        }
    );
    assert_eq!(attempts[0].excerpt, "ok");
    assert_eq!(harness.admissions(), [Admission::New]);
    store.close().await;
    check_tables(&harness);
}

#[tokio::test]
async fn concurrent_duplicates_make_one_event_and_all_are_acknowledged() {
    let harness = Harness::new();
    let store = harness.open();
    let mut feed = store.feed(&app()).unwrap();
    let appends: Vec<_> = (0..64).map(|_copy| store.append(delivery("same").event())).collect();
    for append in appends {
        append.await.unwrap();
    }
    all_admitted(&store).await;
    let admissions = harness.admissions();
    assert_eq!(
        admissions
            .iter()
            .filter(|admission| **admission == Admission::New)
            .count(),
        1
    );
    assert_eq!(admissions.len(), 64);
    deliver(&store, &mut feed).await;
    let mut other = delivery("same");
    other.body = Bytes::from_static(b"other bytes");
    append(&store, &other).await;
    all_admitted(&store).await;
    assert!(matches!(
        harness.admissions().last(),
        Some(Admission::Duplicate { conflict: true, .. })
    ));
    assert_eq!(
        states(&store, "app").await,
        HashMap::from([(DispatchState::Delivered, 1)])
    );
    store.close().await;
    check_tables(&harness);
}

#[tokio::test]
async fn a_dropped_append_is_stored_all_the_same() {
    let harness = Harness::new();
    let store = harness.open();
    drop(store.append(delivery("hung up").event()));
    let mut feed = store.feed(&app()).unwrap();
    assert_eq!(next(&mut feed).await.event.delivery_id.as_deref(), Some("hung up"));
}

#[tokio::test]
async fn every_key_is_known_after_a_restart_and_after_a_crash() {
    let harness = Harness::new();
    let store = harness.open();
    let mut feed = store.feed(&app()).unwrap();
    // Several partitions of 40 keys, sealed and not.
    for id in 0..230 {
        append(&store, &delivery(id)).await;
        deliver(&store, &mut feed).await;
    }
    let crashed = harness.crashed();
    store.close().await;
    check_tables(&harness);
    for harness in [&harness, &crashed] {
        harness.notices.lock().unwrap().clear();
        let store = harness.open();
        for id in 0..231 {
            append(&store, &delivery(id)).await;
        }
        all_admitted(&store).await;
        let admissions = harness.admissions();
        assert_eq!(admissions.len(), 231);
        for (id, admission) in admissions.iter().enumerate() {
            let duplicate = matches!(admission, Admission::Duplicate { conflict: false, .. });
            assert_eq!(duplicate, id < 230, "delivery {id}: {admission:?}");
        }
        store.close().await;
        check_tables(harness);
    }
}

#[tokio::test]
async fn a_crash_repeats_attempts_under_new_numbers_and_loses_none() {
    let harness = Harness::new();
    let store = harness.open();
    let mut feed = store.feed(&app()).unwrap();
    for id in 0..20 {
        append(&store, &delivery(id)).await;
    }
    all_admitted(&store).await;
    let done = deliver(&store, &mut feed).await;
    let running = next(&mut feed).await;
    let crashed = harness.crashed();
    let store = crashed.open();
    let mut feed = store.feed(&app()).unwrap();
    let mut seen = BTreeSet::new();
    for _ in 0..19 {
        let again = deliver(&store, &mut feed).await;
        assert_eq!(again.attempt, 2);
        seen.insert(again.event);
    }
    assert!(seen.contains(&running.event.id) && !seen.contains(&done.event));
    assert_eq!(
        states(&store, "app").await,
        HashMap::from([(DispatchState::Delivered, 20)])
    );
}

#[tokio::test]
async fn a_close_hands_unused_leases_back_with_their_numbers() {
    let harness = Harness::new();
    let store = harness.open();
    let mut feed = store.feed(&app()).unwrap();
    for id in 0..3 {
        append(&store, &delivery(id)).await;
    }
    all_admitted(&store).await;
    let dropped = next(&mut feed).await;
    let first = dropped.event.id;
    drop(dropped);
    store.close().await;
    assert!(feed.next().await.is_none());
    let store = harness.open();
    let mut feed = store.feed(&app()).unwrap();
    let seen = deliver(&store, &mut feed).await;
    assert_eq!(
        (seen.event, seen.attempt),
        (first, 2),
        "the number of a dropped lease stays used"
    );
    assert_eq!(deliver(&store, &mut feed).await.attempt, 1);
}

#[tokio::test]
async fn a_lease_that_is_dropped_comes_back() {
    let harness = Harness::new();
    let store = harness.open();
    let mut feed = store.feed(&app()).unwrap();
    append(&store, &delivery("a")).await;
    drop(next(&mut feed).await);
    let again = next(&mut feed).await;
    assert_eq!((again.attempt, again.attempts_on_clock), (2, 1));
}

#[tokio::test]
async fn a_lost_lease_cannot_settle() {
    let harness = Harness::new();
    let store = harness.open();
    let mut feed = store.feed(&app()).unwrap();
    let id = append(&store, &delivery("a")).await;
    let lease = next(&mut feed).await;
    assert!(store.holds(&lease));
    let discarded = store.discard(id, None).await.unwrap();
    assert_eq!(discarded, Discarded::Discarded { upstreams: vec![app()] });
    assert!(!store.holds(&lease));
    let settled = store.settle(finished(lease, 200), Next::Delivered).await.unwrap();
    assert_eq!(settled, Settled::LeaseLost);
    assert_eq!(
        states(&store, "app").await,
        HashMap::from([(DispatchState::Discarded, 1)])
    );
    append(&store, &delivery("a")).await;
    all_admitted(&store).await;
    assert!(
        matches!(harness.admissions().last(), Some(Admission::Duplicate { .. })),
        "not revived"
    );
}

#[tokio::test]
async fn a_retry_waits_for_its_time_and_keeps_its_attempts() {
    let harness = Harness::new();
    let store = harness.open();
    let mut feed = store.feed(&app()).unwrap();
    let id = append(&store, &delivery("a")).await;
    let due = NOW.after(Duration::from_secs(60));
    let lease = next(&mut feed).await;
    store.settle(finished(lease, 500), Next::Retry { due }).await.unwrap();
    append(&store, &delivery("b")).await;
    assert_eq!(
        deliver(&store, &mut feed).await.attempt,
        1,
        "a newer event is not held up"
    );
    assert!(
        tokio::time::timeout(Duration::from_millis(300), feed.next())
            .await
            .is_err()
    );
    harness.later(Duration::from_secs(60));
    let lease = next(&mut feed).await;
    assert_eq!((lease.event.id, lease.attempt, lease.attempts_on_clock), (id, 2, 2));
    store.settle(finished(lease, 200), Next::Delivered).await.unwrap();
    let detail = store.event(id).await.unwrap().unwrap();
    let numbers: Vec<u32> = detail.dispatches[0].1.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, 2]);
}

#[tokio::test]
async fn the_duplicate_of_a_dead_dispatch_revives_it() {
    let harness = Harness::new();
    let store = harness.open();
    let mut feed = store.feed(&app()).unwrap();
    let id = append(&store, &delivery("a")).await;
    let lease = next(&mut feed).await;
    store.settle(finished(lease, 410), Next::Dead).await.unwrap();
    assert!(
        harness
            .notices
            .lock()
            .unwrap()
            .iter()
            .any(|notice| matches!(notice, Notice::Died(death) if death.event == id))
    );
    harness.later(Duration::from_secs(5));
    append(&store, &delivery("a")).await;
    let lease = next(&mut feed).await;
    assert_eq!(
        (lease.event.id, lease.attempt, lease.attempts_on_clock, lease.replay),
        (id, 2, 1, false)
    );
    assert_eq!(lease.clock_started_at, NOW.after(Duration::from_secs(5)));
    assert_eq!(harness.admissions(), [Admission::New, Admission::Revived { of: id }]);
}

#[tokio::test]
async fn an_upstream_that_left_holds_its_dispatches_until_it_returns() {
    let mut harness = Harness::new();
    let store = harness.open();
    append(&store, &delivery("a")).await;
    let mut away = delivery("b");
    away.upstreams = Arc::from([UpstreamName::new("later"), app()]);
    append(&store, &away).await;
    all_admitted(&store).await;
    assert_eq!(states(&store, "later").await, HashMap::from([(DispatchState::Held, 1)]));
    store.close().await;
    harness.upstreams = vec![UpstreamName::new("later")];
    let store = harness.open();
    assert!(store.feed(&app()).is_none());
    assert_eq!(states(&store, "app").await, HashMap::from([(DispatchState::Held, 2)]));
    let mut feed = store.feed(&UpstreamName::new("later")).unwrap();
    assert_eq!(next(&mut feed).await.event.delivery_id.as_deref(), Some("b"));
}

#[tokio::test]
async fn a_backlog_is_handed_out_in_order_and_through_a_bounded_window() {
    let harness = Harness::new();
    let store = harness.open();
    let mut ids = Vec::new();
    for id in 0..700 {
        ids.push(append(&store, &delivery(id)).await);
    }
    all_admitted(&store).await;
    let leased = states(&store, "app").await[&DispatchState::Leased];
    assert!(leased <= 256, "{leased} in the window");
    let mut feed = store.feed(&app()).unwrap();
    for id in ids {
        let seen = deliver(&store, &mut feed).await;
        assert_eq!((seen.event, seen.attempt), (id, 1));
    }
    assert_eq!(
        states(&store, "app").await,
        HashMap::from([(DispatchState::Delivered, 700)])
    );
    store.close().await;
    check_tables(&harness);
}

#[tokio::test]
async fn digest_keys_last_for_their_window_by_the_received_at_times() {
    let harness = Harness::new();
    let store = harness.open();
    let mut again = delivery("digest");
    again.kind = KeyKind::Digest;
    append(&store, &again).await;
    again.received_at = NOW.after(Duration::from_secs(300));
    append(&store, &again).await;
    again.received_at = NOW.after(Duration::from_secs(301));
    append(&store, &again).await;
    again.received_at = NOW.after(Duration::from_secs(500));
    append(&store, &again).await;
    all_admitted(&store).await;
    let new: Vec<bool> = harness
        .admissions()
        .iter()
        .map(|admission| *admission == Admission::New)
        .collect();
    assert_eq!(new, [true, false, true, false], "re-pointed to the newer event");
}

#[tokio::test]
async fn same_content_under_another_id_is_held_for_a_person() {
    let harness = Harness::new();
    let store = harness.open();
    let mut first = delivery("a");
    first.content = true;
    append(&store, &first).await;
    let mut second = first.clone();
    second.id = "b".to_owned();
    let held = append(&store, &second).await;
    let mut late = first.clone();
    late.id = "c".to_owned();
    late.received_at = NOW.after(Duration::from_secs(301));
    append(&store, &late).await;
    all_admitted(&store).await;
    assert_eq!(harness.admissions(), [Admission::New, Admission::Held, Admission::New]);
    let replayed = store.replay(held, None).await.unwrap();
    assert_eq!(
        replayed,
        Replayed::Pending {
            upstreams: vec![app()],
            busy: vec![]
        }
    );
    let mut feed = store.feed(&app()).unwrap();
    let mut replays = Vec::new();
    for _ in 0..3 {
        replays.push(deliver(&store, &mut feed).await.replay);
    }
    assert_eq!(replays.iter().filter(|replay| **replay).count(), 1);
}

#[tokio::test]
async fn a_replay_sends_again_also_to_another_upstream() {
    let mut harness = Harness::new();
    harness.upstreams.push(UpstreamName::new("other"));
    let store = harness.open();
    let mut feed = store.feed(&app()).unwrap();
    let id = append(&store, &delivery("a")).await;
    let lease = next(&mut feed).await;
    assert_eq!(
        store.replay(id, None).await.unwrap(),
        Replayed::Pending {
            upstreams: vec![],
            busy: vec![app()]
        }
    );
    store.settle(finished(lease, 200), Next::Delivered).await.unwrap();
    let other = UpstreamName::new("other");
    let replayed = store.replay(id, Some(vec![app(), other.clone()])).await.unwrap();
    assert_eq!(
        replayed,
        Replayed::Pending {
            upstreams: vec![app(), other.clone()],
            busy: vec![]
        }
    );
    assert_eq!(
        deliver(&store, &mut feed).await,
        LeasedDispatchSeen {
            event: id,
            attempt: 2,
            replay: true
        }
    );
    let mut feed = store.feed(&other).unwrap();
    assert_eq!(
        deliver(&store, &mut feed).await,
        LeasedDispatchSeen {
            event: id,
            attempt: 1,
            replay: true
        }
    );
    assert_eq!(
        states(&store, "other").await,
        HashMap::from([(DispatchState::Delivered, 1)])
    );
    let unknown = store.replay(id, Some(vec![UpstreamName::new("nobody")])).await;
    assert!(matches!(unknown, Err(StoreError::UnknownUpstream(_))));
    let missing = EventId::embedded(NOW, Position::new(77).unwrap(), 0);
    assert_eq!(store.replay(missing, None).await.unwrap(), Replayed::NotFound);
    assert_eq!(store.discard(missing, None).await.unwrap(), Discarded::NotFound);
    assert!(store.event(missing).await.unwrap().is_none());
    store.close().await;
    let store = harness.open();
    assert_eq!(
        states(&store, "other").await,
        HashMap::from([(DispatchState::Delivered, 1)])
    );
    assert_eq!(
        states(&store, "app").await,
        HashMap::from([(DispatchState::Delivered, 1)])
    );
}

#[tokio::test]
async fn what_is_delivered_goes_after_retention_and_what_is_not_stays() {
    let mut harness = Harness::new();
    harness.settings.retention = Duration::from_secs(600);
    let store = harness.open();
    let mut feed = store.feed(&app()).unwrap();
    for id in 0..90 {
        append(&store, &delivery(id)).await;
    }
    let mut kept = Vec::new();
    for number in 0..90 {
        let lease = next(&mut feed).await;
        let (status, next) = match number % 30 {
            0 => (
                500,
                Next::Retry {
                    due: NOW.after(Duration::from_secs(86_400)),
                },
            ),
            1 => (410, Next::Dead),
            _ => (200, Next::Delivered),
        };
        if number % 30 < 2 {
            kept.push(lease.event.id);
        }
        store.settle(finished(lease, status), next).await.unwrap();
    }
    harness.later(Duration::from_secs(599));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(store.counts().await.unwrap().upstreams[&app()].pruned, 0);
    harness.later(Duration::from_secs(61));
    append(&store, &delivery("wakes the writer")).await;
    reach(84, || async { store.counts().await.unwrap().upstreams[&app()].pruned }).await;
    for id in kept {
        assert!(store.event(id).await.unwrap().is_some());
    }
    // Pruned events are still duplicates, also after a restart.
    let crashed = harness.crashed();
    store.close().await;
    for harness in [harness, crashed] {
        harness.notices.lock().unwrap().clear();
        let store = harness.open();
        states(&store, "app").await;
        for id in 0..90 {
            append(&store, &delivery(id)).await;
        }
        all_admitted(&store).await;
        let new = harness
            .admissions()
            .iter()
            .filter(|admission| **admission == Admission::New)
            .count();
        assert_eq!(new, 0);
        store.close().await;
        check_tables(&harness);
    }
}

#[tokio::test]
async fn keys_go_after_the_window_unless_their_event_is_undelivered() {
    let mut harness = Harness::new();
    harness.settings.window = Duration::from_secs(3600);
    let store = harness.open();
    let mut feed = store.feed(&app()).unwrap();
    for id in 0..100 {
        append(&store, &delivery(id)).await;
        let lease = next(&mut feed).await;
        let next = match id % 10 {
            0 => Next::Retry {
                due: NOW.after(Duration::from_secs(1_000_000)),
            },
            _ => Next::Delivered,
        };
        store.settle(finished(lease, 200), next).await.unwrap();
    }
    harness.later(Duration::from_secs(4000));
    let partitions = || async {
        let database = harness.database();
        database
            .query_row("SELECT count(*) FROM key_partition WHERE partition < 2", [], |row| {
                row.get::<_, i64>(0)
            })
            .unwrap()
    };
    append(&store, &delivery("wakes the writer")).await;
    reach(0, partitions).await;
    let crashed = harness.crashed();
    store.close().await;
    for harness in [&harness, &crashed] {
        harness.notices.lock().unwrap().clear();
        let store = harness.open();
        for id in (0..80).step_by(10).chain([1]) {
            append(&store, &delivery(id)).await;
        }
        all_admitted(&store).await;
        let admissions = harness.admissions();
        let new: Vec<bool> = admissions
            .iter()
            .map(|admission| *admission == Admission::New)
            .collect();
        assert_eq!(new, [false, false, false, false, false, false, false, false, true]);
        store.close().await;
        check_tables(harness);
    }
}

#[tokio::test]
async fn lists_are_filtered_and_paged_newest_first() {
    let harness = Harness::new();
    let store = harness.open();
    let mut feed = store.feed(&app()).unwrap();
    let mut ids = Vec::new();
    for id in 0..25 {
        ids.push(append(&store, &delivery(id)).await);
        let lease = next(&mut feed).await;
        let next = if id % 5 == 0 { Next::Dead } else { Next::Delivered };
        store.settle(finished(lease, 200), next).await.unwrap();
    }
    ids.reverse();
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = store.events(EventFilter::default(), before, 10).await.unwrap();
        assert!(page.events.len() <= 10);
        seen.extend(page.events.iter().map(|event| event.id));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids);
    for state in [DispatchState::Dead, DispatchState::Delivered] {
        let filter = EventFilter {
            state: Some(state),
            upstream: Some(app()),
            ..EventFilter::default()
        };
        let mut seen = Vec::new();
        let mut before = None;
        loop {
            let page = store.events(filter.clone(), before, 3).await.unwrap();
            seen.extend(page.events.iter().map(|event| event.id));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(seen.len(), if state == DispatchState::Dead { 5 } else { 20 });
    }
    let by_id = EventFilter {
        delivery_id: Some("7".to_owned()),
        ..EventFilter::default()
    };
    let page = store.events(by_id, None, 10).await.unwrap();
    assert_eq!(page.events.len(), 1);
    assert_eq!(page.events[0].body_bytes, 9);
    let nothing = EventFilter {
        to: Some(NOW),
        ..EventFilter::default()
    };
    assert!(store.events(nothing, None, 10).await.unwrap().events.is_empty());
}

#[tokio::test]
async fn a_lane_is_remembered() {
    let harness = Harness::new();
    let store = harness.open();
    assert_eq!(store.lane_record(&app()), LaneRecord::default());
    let record = LaneRecord {
        paused: true,
        stopped_total: Duration::from_millis(1234),
    };
    store.save_lane_record(app(), record).await.unwrap();
    assert_eq!(store.lane_record(&app()), record);
    store.close().await;
    assert_eq!(harness.open().lane_record(&app()), record);
}

#[tokio::test]
async fn over_its_disk_budget_accepting_stops_and_settling_goes_on() {
    let mut harness = Harness::new();
    let store = harness.open();
    append(&store, &delivery("a")).await;
    all_admitted(&store).await;
    store.close().await;
    harness.settings.max_bytes = 1;
    let store = harness.open();
    let mut feed = store.feed(&app()).unwrap();
    assert!(matches!(
        store.append(delivery("b").event()).await,
        Err(AppendError::DiskBudget)
    ));
    assert!(store.is_writable().is_err());
    deliver(&store, &mut feed).await;
    store.close().await;
    harness.settings.max_bytes = 1 << 30;
    harness.place.min_free = u64::MAX;
    let store = harness.open();
    assert!(matches!(
        store.append(delivery("b").event()).await,
        Err(AppendError::DiskBudget)
    ));
    store.close().await;
    harness.place.min_free = 0;
    let store = harness.open();
    assert!(store.is_writable().is_ok());
    append(&store, &delivery("b")).await;
}

#[tokio::test]
async fn a_closed_store_refuses_and_says_so() {
    let harness = Harness::new();
    let store = harness.open();
    let other = store.clone();
    store.close().await;
    assert!(matches!(
        other.append(delivery("a").event()).await,
        Err(AppendError::Closing)
    ));
    assert!(matches!(other.is_writable(), Err(AppendError::Closing)));
    let id = EventId::embedded(NOW, Position::new(0).unwrap(), 0);
    assert!(matches!(other.replay(id, None).await, Err(StoreError::Closing)));
}

#[tokio::test]
async fn one_store_serves_one_process() {
    let harness = Harness::new();
    let store = harness.open();
    assert!(matches!(harness.try_open(), Err(OpenError::Locked { .. })));
    // The lock is none of a file that can be removed.
    std::fs::remove_file(harness.place.path.join("lock")).unwrap();
    assert!(matches!(harness.try_open(), Err(OpenError::Locked { .. })));
    store.close().await;
    drop(harness.open());
}

#[tokio::test]
async fn a_symbolic_link_is_not_followed() {
    let harness = Harness::new();
    harness.open().close().await;
    let elsewhere = harness.directory.path().join("elsewhere");
    for name in ["lock", "hooksluice.db"] {
        let path = harness.place.path.join(name);
        std::fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(matches!(harness.try_open(), Err(OpenError::Io { path: refused, .. }) if refused == path));
        std::fs::rename(&elsewhere, &path).unwrap();
    }
    harness.open().close().await;
}

#[tokio::test]
async fn a_file_taken_away_from_an_open_store_stops_accepting_until_a_restart() {
    let open = |name: &'static str| {
        let harness = Harness::new();
        let store = harness.open();
        (name, harness, store)
    };
    // The stores wait for their next look together.
    let stores = ["hooksluice.db", "hooksluice.db-wal", "hooksluice.db-shm"].map(open);
    for (name, harness, store) in &stores {
        append(store, &delivery("a")).await;
        let path = harness.place.path.join(name);
        std::fs::rename(&path, path.with_extension("away")).unwrap();
    }
    for (name, harness, store) in stores {
        reach(true, || async { store.is_writable().is_err() }).await;
        let path = harness.place.path.join(name);
        std::fs::rename(path.with_extension("away"), path).unwrap();
        assert!(
            matches!(store.append(delivery("b").event()).await, Err(AppendError::Failed(why)) if why.contains(name))
        );
        assert!(matches!(store.is_writable(), Err(AppendError::Failed(_))));
        store.close().await;
        append(&harness.open(), &delivery("b")).await;
    }
}

#[tokio::test]
async fn a_store_that_lost_a_file_is_refused_and_opens_when_it_is_back() {
    let harness = Harness::new();
    let store = harness.open();
    append(&store, &delivery("a")).await;
    all_admitted(&store).await;
    store.close().await;
    for name in ["hooksluice.db", "hooksluice.db-wal"] {
        let path = harness.place.path.join(name);
        let away = path.with_extension("away");
        std::fs::rename(&path, &away).unwrap();
        assert!(matches!(harness.try_open(), Err(OpenError::Incomplete { lost, .. }) if lost == path));
        assert!(!path.exists());
        std::fs::write(&path, b"").unwrap();
        assert!(matches!(harness.try_open(), Err(OpenError::Incomplete { lost, .. }) if lost == path));
        std::fs::rename(&away, &path).unwrap();
        harness.open().close().await;
    }
    // A person's decision: the database alone, as from a backup.
    for name in ["hooksluice.db-wal", "hooksluice.db-shm", "reserve"] {
        std::fs::remove_file(harness.place.path.join(name)).unwrap();
    }
    let store = harness.open();
    let page = store.events(EventFilter::default(), None, 100).await.unwrap();
    assert_eq!(page.events.len(), 1);
}

#[tokio::test]
async fn a_first_opening_that_was_interrupted_goes_on() {
    let harness = Harness::new();
    std::fs::create_dir(&harness.place.path).unwrap();
    let path = |name: &str| harness.place.path.join(name);
    std::fs::write(path("hooksluice.db"), b"").unwrap();
    std::fs::write(path("lock"), b"").unwrap();
    harness.open().close().await;
    std::fs::remove_dir_all(&harness.place.path).unwrap();
    std::fs::create_dir(&harness.place.path).unwrap();
    // The first page says that there is a log; no commit is in it yet.
    let conn = rusqlite::Connection::open(path("hooksluice.db")).unwrap();
    conn.execute_batch("PRAGMA page_size = 8192; PRAGMA journal_mode = wal;")
        .unwrap();
    drop(conn);
    std::fs::write(path("hooksluice.db-wal"), b"").unwrap();
    std::fs::write(path("hooksluice.db-shm"), [0; 32 << 10]).unwrap();
    append(&harness.open(), &delivery("a")).await;
}

#[tokio::test]
async fn a_newer_schema_is_refused_untouched() {
    let harness = Harness::new();
    harness.open().close().await;
    let path = harness.place.path.join("hooksluice.db");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[63] = 99;
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(
        harness.try_open(),
        Err(OpenError::Newer {
            found: 99,
            known: 1,
            ..
        })
    ));
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[tokio::test]
async fn a_foreign_or_damaged_file_is_refused_loudly() {
    let harness = Harness::new();
    harness.open().close().await;
    let path = harness.place.path.join("hooksluice.db");
    let sound = std::fs::read(&path).unwrap();
    std::fs::write(&path, b"#!/bin/sh\n".repeat(100)).unwrap();
    assert!(matches!(harness.try_open(), Err(OpenError::NotOurs { .. })));
    let mut damaged = sound.clone();
    damaged[100..8192].fill(0x5a);
    std::fs::write(&path, &damaged).unwrap();
    let error = anyhow::Error::from(harness.try_open().unwrap_err());
    let text = format!("{error:#}");
    assert_eq!(text.matches("malformed").count(), 1, "{text}");
    assert!(text.contains("restore a backup"), "{text}");
    std::fs::write(&path, &sound).unwrap();
    drop(harness.open());
}

#[tokio::test]
async fn a_torn_log_loses_only_what_was_not_committed() {
    let harness = Harness::new();
    let store = harness.open();
    for id in 0..10 {
        append(&store, &delivery(id)).await;
    }
    all_admitted(&store).await;
    let crashed = harness.crashed();
    let wal = crashed.place.path.join("hooksluice.db-wal");
    let mut bytes = std::fs::read(&wal).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end - 5..=end].fill(0xa5);
    std::fs::write(&wal, bytes).unwrap();
    let store = crashed.open();
    let page = store.events(EventFilter::default(), None, 100).await.unwrap();
    assert!(!page.events.is_empty());
    append(&store, &delivery("goes on")).await;
    all_admitted(&store).await;
    store.close().await;
    check_tables(&crashed);
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let harness = Harness::new();
    let store = harness.open();
    append(&store, &delivery("a")).await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&harness.place.path), 0o700);
    for entry in std::fs::read_dir(&harness.place.path).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Append(u8),
    Deliver,
    Fail,
    Die,
    Restart,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..120_u8).prop_map(Step::Append),
        6 => Just(Step::Deliver),
        2 => Just(Step::Fail),
        2 => Just(Step::Die),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Any history, with restarts and crashes in it: one event per key, every event delivered in the end, numbers that
    /// only rise.
    #[test]
    fn any_history_keeps_one_event_per_key_and_delivers_each(steps in prop::collection::vec(step(), 1..150)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut harness = Harness::new();
            harness.tuning.partition_keys = 7;
            harness.tuning.tail_events = 3;
            let mut store = harness.open();
            let mut feed = store.feed(&app()).unwrap();
            let mut known: HashMap<u8, BTreeSet<EventId>> = HashMap::new();
            let mut numbers: HashMap<EventId, u32> = HashMap::new();
            let mut delivered: BTreeSet<EventId> = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Append(key) => {
                        append(&store, &delivery(key)).await;
                        known.entry(key).or_default();
                    }
                    Step::Deliver | Step::Fail | Step::Die => {
                        all_admitted(&store).await;
                        let open = states(&store, "app").await;
                        let open = |state| open.get(&state).copied().unwrap_or(0);
                        if open(DispatchState::Pending) + open(DispatchState::Leased) == 0 {
                            continue;
                        }
                        let lease = next(&mut feed).await;
                        let last = numbers.insert(lease.event.id, lease.attempt).unwrap_or(0);
                        assert!(lease.attempt > last, "numbers only rise");
                        let key: u8 = lease.event.delivery_id.as_deref().unwrap().parse().unwrap();
                        known.get_mut(&key).unwrap().insert(lease.event.id);
                        let (status, next) = match step {
                            Step::Deliver => (200, Next::Delivered),
                            Step::Fail => (500, Next::Retry { due: NOW }),
                            _ => (410, Next::Dead),
                        };
                        if next == Next::Delivered {
                            assert!(delivered.insert(lease.event.id), "delivered twice without a crash");
                        }
                        store.settle(finished(lease, status), next).await.unwrap();
                    }
                    Step::Restart => {
                        store.close().await;
                        check_tables(&harness);
                        store = harness.open();
                        feed = store.feed(&app()).unwrap();
                    }
                    Step::Crash => {
                        harness = harness.crashed();
                        store = harness.open();
                        feed = store.feed(&app()).unwrap();
                    }
                }
            }
            all_admitted(&store).await;
            store.close().await;
            check_tables(&harness);
            let store = harness.open();
            states(&store, "app").await;
            let page = store.events(EventFilter::default(), None, 500).await.unwrap();
            let mut keys = BTreeSet::new();
            for event in &page.events {
                assert!(keys.insert(event.delivery_id.clone()), "one event per key");
            }
            assert_eq!(keys.len(), known.len());
            for ids in known.values() {
                assert!(ids.len() <= 1);
            }
        });
    }
}
