//! Idempotent calls: one call for a key, and what is known of it afterwards.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

use crate::id::RouteName;
use crate::store::model::AppendError;
use crate::store::records::{
    Begun, Call, CallEnd, Completed, Fingerprint, NewCall, Record, RecordKey, RecordKind, RecordState, Resolution,
    Resolved, StoredAnswer,
};
use crate::store::tests::bench::{Bench, End, SharedBench, append, reach};
use crate::store::{Store, StoreError};
use crate::time::Timestamp;

/// How long a record lives here.
pub(in crate::store::tests) const TTL: Duration = Duration::from_secs(86_400);
/// Long enough for a lease of a call to lapse.
const CALL_LAPSED: Duration = super::super::bench::LAPSED;

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

pub(in crate::store::tests) fn key(id: &str) -> RecordKey {
    RecordKey {
        route: RouteName::new("orders"),
        digest: hash(id),
    }
}

/// A call for this key, accepted now.
pub(in crate::store::tests) fn call(now: Timestamp, id: &str) -> NewCall {
    NewCall {
        key: key(id),
        fingerprint: Fingerprint(hash("its request")),
        client_key: id.into(),
        accepted_at: now,
        ttl: TTL,
        after_ambiguous: false,
    }
}

pub(in crate::store::tests) async fn start(store: &Store, call: NewCall) -> Call {
    match store.begin(call).await.unwrap() {
        Begun::Started(call) => call,
        Begun::Found(record) => panic!("{record:?}"),
    }
}

pub(in crate::store::tests) async fn find(store: &Store, call: NewCall) -> Record {
    match store.begin(call).await.unwrap() {
        Begun::Started(call) => panic!("{call:?} is ours"),
        Begun::Found(record) => record,
    }
}

pub(in crate::store::tests) fn answer(body: &'static [u8]) -> Arc<StoredAnswer> {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("link", &b"</a>"[..]),
        ("x-note", b"\xff"),
        ("link", b"</b>"),
        ("x-note", b""),
    ] {
        headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
    }
    Arc::new(StoredAnswer {
        status: StatusCode::CREATED,
        headers,
        body: Bytes::from_static(body),
    })
}

pub(in crate::store::tests) async fn kind(store: &Store, id: &str) -> Option<RecordKind> {
    let record = store.record(&key(id)).await.unwrap();
    record.map(|record| record.kind())
}

/// Makes a call whose outcome nobody knows.
pub(in crate::store::tests) async fn ambiguous(store: &Store, call: NewCall) {
    let call = start(store, call).await;
    assert_eq!(
        store.complete(call, CallEnd::Ambiguous).await.unwrap(),
        Completed::Recorded
    );
}

pub(in crate::store::tests) async fn a_call_is_begun_once_and_its_answer_is_found_as_it_was<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    assert_eq!(store.record(&key("a")).await.unwrap(), None);
    let call_a = call(bench.now(), "a");
    let begun = start(&store, call_a.clone()).await;
    assert!(store.holds_call(&begun));
    assert_eq!(begun.expires_at(), bench.now().after(TTL));
    let found = find(&store, call_a.clone()).await;
    let running = Record {
        fingerprint: call_a.fingerprint,
        state: RecordState::Running,
        client_key: Arc::clone(&call_a.client_key),
        accepted_at: call_a.accepted_at,
        expires_at: bench.now().after(TTL),
    };
    assert_eq!(found, running);
    let answer = answer(b"\x00\xff as it was");
    let completed = store.complete(begun, CallEnd::Done(Arc::clone(&answer))).await.unwrap();
    assert_eq!(completed, Completed::Recorded);
    let done = Record {
        state: RecordState::Done(answer),
        ..running
    };
    assert_eq!(find(&store, call_a).await, done);
    let mut other = call(bench.now(), "a");
    other.fingerprint = Fingerprint(hash("another request"));
    other.after_ambiguous = true;
    assert_eq!(find(&store, other).await, done, "whoever asks compares the fingerprint");
    assert_eq!(store.record(&key("a")).await.unwrap(), Some(done.clone()));
    store.close().await;
    let store = bench.open().await;
    assert_eq!(store.record(&key("a")).await.unwrap(), Some(done));
}

pub(in crate::store::tests) async fn answers_without_and_with_a_long_body_come_back<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let long: &'static [u8] = vec![7; 1 << 20].leak();
    for (id, body) in [("empty", &b""[..]), ("long", long)] {
        let begun = start(&store, call(bench.now(), id)).await;
        let bare = Arc::new(StoredAnswer {
            status: StatusCode::NO_CONTENT,
            headers: HeaderMap::new(),
            body: Bytes::from_static(body),
        });
        store.complete(begun, CallEnd::Done(Arc::clone(&bare))).await.unwrap();
        let record = store.record(&key(id)).await.unwrap().unwrap();
        assert_eq!(record.state, RecordState::Done(bare), "{id}");
    }
}

pub(in crate::store::tests) async fn of_many_calls_with_one_key_exactly_one_begins<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    for round in 0..10 {
        let id = round.to_string();
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..20 {
            asked.spawn(store.begin(call(bench.now(), &id)));
        }
        let mut started = Vec::new();
        while let Some(begun) = asked.join_next().await {
            match begun.unwrap().unwrap() {
                Begun::Started(call) => started.push(call),
                Begun::Found(record) => assert_eq!(record.state, RecordState::Running),
            }
        }
        assert_eq!(started.len(), 1);
    }
}

pub(in crate::store::tests) async fn keys_of_two_routes_are_apart<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let _one = start(&store, call(bench.now(), "a")).await;
    let mut other = call(bench.now(), "a");
    other.key.route = RouteName::new("refunds");
    let _two = start(&store, other).await;
}

pub(in crate::store::tests) async fn each_end_leaves_its_record<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    for (end, left) in [
        (CallEnd::Done(answer(b"a")), Some(RecordKind::Done)),
        (CallEnd::Unstored, Some(RecordKind::Unstored)),
        (CallEnd::Ambiguous, Some(RecordKind::Ambiguous)),
        (CallEnd::Released, None),
    ] {
        let id = format!("{left:?}");
        let begun = start(&store, call(bench.now(), &id)).await;
        assert_eq!(store.complete(begun, end).await.unwrap(), Completed::Recorded);
        assert_eq!(kind(&store, &id).await, left);
    }
    // A released key is new at once, and its call ends as any other.
    let again = start(&store, call(bench.now(), "None")).await;
    let completed = store.complete(again, CallEnd::Done(answer(b"b"))).await.unwrap();
    assert_eq!(completed, Completed::Recorded);
    assert_eq!(kind(&store, "None").await, Some(RecordKind::Done));
}

pub(in crate::store::tests) async fn an_ambiguous_call_is_made_again_only_where_that_is_allowed<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    ambiguous(&store, call(bench.now(), "a")).await;
    assert_eq!(find(&store, call(bench.now(), "a")).await.state, RecordState::Ambiguous);
    let mut retry = call(bench.now(), "a");
    retry.after_ambiguous = true;
    let mut other = retry.clone();
    other.fingerprint = Fingerprint(hash("another request"));
    assert_eq!(find(&store, other).await.state, RecordState::Ambiguous);
    let begun = start(&store, retry.clone()).await;
    assert_eq!(find(&store, retry).await.state, RecordState::Running);
    let completed = store.complete(begun, CallEnd::Done(answer(b"a"))).await.unwrap();
    assert_eq!(completed, Completed::Recorded);
    assert_eq!(kind(&store, "a").await, Some(RecordKind::Done));
}

pub(in crate::store::tests) async fn a_call_that_is_dropped_leaves_its_record_ambiguous<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    drop(start(&store, call(bench.now(), "a")).await);
    reach(Some(RecordKind::Ambiguous), || kind(&store, "a")).await;
}

pub(in crate::store::tests) async fn a_call_that_ran_at_a_close_or_a_crash_is_ambiguous_and_never_free<B: Bench>() {
    let mut bench = B::new().await;
    for how in [End::Close, End::Crash] {
        let id = format!("{how:?}");
        let store = bench.open().await;
        let begun = start(&store, call(bench.now(), &id)).await;
        let other = start(&store, call(bench.now(), &format!("{id} done"))).await;
        store.complete(other, CallEnd::Done(answer(b"a"))).await.unwrap();
        bench.end(store, how).await;
        drop(begun);
        let store = bench.open().await;
        let found = find(&store, call(bench.now(), &id)).await;
        assert_eq!(found.state, RecordState::Ambiguous, "{how:?}");
        assert_eq!(kind(&store, &format!("{id} done")).await, Some(RecordKind::Done));
        store.close().await;
    }
    bench.check().await;
}

pub(in crate::store::tests) async fn a_closed_store_begins_and_ends_no_call<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let begun = start(&store, call(bench.now(), "a")).await;
    let handle = store.clone();
    store.close().await;
    assert!(matches!(
        handle.begin(call(bench.now(), "b")).await,
        Err(AppendError::Closing)
    ));
    assert!(matches!(
        handle.complete(begun, CallEnd::Unstored).await,
        Err(StoreError::Closing)
    ));
    drop(handle);
    let store = bench.open().await;
    assert_eq!(kind(&store, "a").await, Some(RecordKind::Ambiguous));
}

pub(in crate::store::tests) async fn a_client_s_key_that_is_too_long_is_refused<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let mut long = call(bench.now(), "a");
    long.client_key = "k".repeat(256).into();
    assert!(matches!(store.begin(long).await, Err(AppendError::Failed(_))));
    let mut longest = call(bench.now(), "a");
    longest.client_key = "k".repeat(255).into();
    let _begun = start(&store, longest).await;
}

pub(in crate::store::tests) async fn calls_and_events_share_a_store<B: Bench>() {
    let bench = B::new().await;
    let store = bench.open().await;
    let mut begun = Vec::new();
    for number in 0..20 {
        append(&store, &bench.delivery(number)).await;
        begun.push(start(&store, call(bench.now(), &number.to_string())).await);
    }
    let ends: Vec<_> = begun
        .into_iter()
        .map(|call| store.complete(call, CallEnd::Unstored))
        .collect();
    for end in ends {
        assert_eq!(end.await.unwrap(), Completed::Recorded);
    }
    store.close().await;
    bench.check().await;
}

pub(in crate::store::tests) async fn of_many_calls_over_two_handles_exactly_one_begins<B: SharedBench>() {
    let bench = B::new().await;
    let (one, two) = (bench.open().await, bench.open().await);
    for round in 0..5 {
        let id = round.to_string();
        let mut asked = tokio::task::JoinSet::new();
        for number in 0..50 {
            let store = if number % 2 == 0 { &one } else { &two };
            asked.spawn(store.begin(call(bench.now(), &id)));
        }
        let mut started = Vec::new();
        while let Some(begun) = asked.join_next().await {
            match begun.unwrap().unwrap() {
                Begun::Started(call) => started.push(call),
                Begun::Found(record) => assert_eq!(record.state, RecordState::Running),
            }
        }
        assert_eq!(started.len(), 1);
        let call = started.remove(0);
        one.complete(call, CallEnd::Done(answer(b"a"))).await.unwrap();
        assert_eq!(kind(&two, &id).await, Some(RecordKind::Done));
    }
}

pub(in crate::store::tests) async fn a_call_of_a_stopped_handle_is_ambiguous_to_the_other_and_cannot_end<
    B: SharedBench,
>() {
    let bench = B::new().await;
    let (one, two) = (bench.open().await, bench.open().await);
    let looked_up = start(&one, call(bench.now(), "looked up")).await;
    let wanted = start(&one, call(bench.now(), "wanted")).await;
    let resolved = start(&one, call(bench.now(), "resolved")).await;
    let retried = start(&one, call(bench.now(), "retried")).await;
    assert_eq!(kind(&two, "looked up").await, Some(RecordKind::Running));
    bench.freeze(&one).await;
    bench.later(CALL_LAPSED).await;
    assert_eq!(kind(&two, "looked up").await, Some(RecordKind::Ambiguous));
    assert_eq!(
        find(&two, call(bench.now(), "wanted")).await.state,
        RecordState::Ambiguous
    );
    let told = two.resolve(key("resolved"), Resolution::Answer(answer(b"told"))).await;
    assert_eq!(told.unwrap(), Resolved::Done);
    let mut retry = call(bench.now(), "retried");
    retry.after_ambiguous = true;
    let again = start(&two, retry).await;
    for late in [looked_up, wanted, resolved, retried] {
        let completed = one.complete(late, CallEnd::Done(answer(b"late"))).await.unwrap();
        assert_eq!(completed, Completed::NotOurs);
    }
    assert_eq!(kind(&two, "looked up").await, Some(RecordKind::Ambiguous));
    assert_eq!(kind(&two, "wanted").await, Some(RecordKind::Ambiguous));
    let found = two.record(&key("resolved")).await.unwrap().unwrap();
    assert_eq!(found.state, RecordState::Done(answer(b"told")));
    assert_eq!(kind(&two, "retried").await, Some(RecordKind::Running));
    let completed = two.complete(again, CallEnd::Unstored).await.unwrap();
    assert_eq!(completed, Completed::Recorded);
}

pub(in crate::store::tests) async fn a_handle_that_closes_leaves_its_calls_ambiguous_at_once<B: SharedBench>() {
    let bench = B::new().await;
    let (one, two) = (bench.open().await, bench.open().await);
    let _begun = start(&one, call(bench.now(), "a")).await;
    assert_eq!(kind(&two, "a").await, Some(RecordKind::Running));
    one.close().await;
    assert_eq!(kind(&two, "a").await, Some(RecordKind::Ambiguous));
}
