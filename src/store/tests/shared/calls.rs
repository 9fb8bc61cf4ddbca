//! What faults do to idempotent calls: no key is free that a call may have run for, and nobody waits for ever.

use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::relay::{Relay, Trap};
use super::server::SERVER;
use super::{Bench, Postgres};
use crate::store::model::AppendError;
use crate::store::records::{Begun, Call, CallEnd, Completed, RecordKind, RecordState, Resolution, Resolved};
use crate::store::tests::bench::{DEADLINE, append, reach};
use crate::store::tests::contract::calls::{ambiguous, answer, call, find, key, kind, start};
use crate::store::{Store, StoreError};

/// The function that takes keys, and the one that ends calls.
const TAKE: &str = "hooksluice.take_";
const END: &str = "hooksluice.end_calls_";

/// Begins, and waits no longer than a test may.
async fn begin(store: &Store, new: crate::store::records::NewCall) -> Result<Begun, AppendError> {
    tokio::time::timeout(DEADLINE, store.begin(new)).await.unwrap()
}

async fn complete(store: &Store, call: Call, end: CallEnd) -> Completed {
    let completed = store.complete(call, end);
    tokio::time::timeout(DEADLINE, completed).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_process_stopped_before_it_commits_a_begin_holds_no_key_for_long() {
    let bench = Postgres::new().await;
    let relay = Relay::start(SERVER.port).await;
    let (stopped, other) = (bench.over(&relay).await, bench.open().await);
    drop(start(&stopped, call(bench.now(), "first")).await);
    relay.set_for(TAKE, Trap::StopBeforeCommit);
    let hangs = TaskTracker::new().spawn(stopped.begin(call(bench.now(), "same")));
    reach(1, || async { relay.sprung() }).await;
    let begun = begin(&other, call(bench.now(), "same")).await.unwrap();
    // The stopped process tries again, and finds out; either may come first once the server has undone the transaction.
    match (begun, hangs.await.unwrap()) {
        (Begun::Started(ours), Ok(Begun::Found(record))) => {
            assert_eq!(record.state, RecordState::Running);
            assert!(other.holds_call(&ours));
        }
        (Begun::Found(record), Ok(Begun::Started(theirs))) => {
            assert_eq!(record.state, RecordState::Running);
            assert!(stopped.holds_call(&theirs));
        }
        (Begun::Started(ours), Err(AppendError::Failed(_))) => assert!(other.holds_call(&ours)),
        (ours, theirs) => panic!("{ours:?} {theirs:?}"),
    }
}

#[tokio::test]
async fn a_begin_whose_commit_was_not_heard_starts_once() {
    let bench = Postgres::new().await;
    let relay = Relay::start(SERVER.port).await;
    let (store, other) = (bench.over(&relay).await, bench.open().await);
    for round in 0..5 {
        let id = round.to_string();
        relay.set_for(TAKE, Trap::CutAfterCommit);
        let copies: Vec<_> = (0..3)
            .map(|_copy| TaskTracker::new().spawn(store.begin(call(bench.now(), &id))))
            .collect();
        let mut started = Vec::new();
        for copy in copies {
            match copy.await.unwrap().unwrap() {
                Begun::Started(call) => started.push(call),
                Begun::Found(record) => assert_eq!(record.state, RecordState::Running),
            }
        }
        assert_eq!((started.len(), relay.sprung()), (1, round + 1));
        assert_eq!(kind(&other, &id).await, Some(RecordKind::Running));
        let completed = complete(&store, started.remove(0), CallEnd::Done(answer(b"a"))).await;
        assert_eq!(completed, Completed::Recorded);
        assert_eq!(kind(&other, &id).await, Some(RecordKind::Done));
    }
}

#[tokio::test]
async fn a_begin_that_gave_up_without_hearing_of_its_commit_frees_the_key_it_took() {
    let bench = Postgres::new().await;
    let relay = Relay::start(SERVER.port).await;
    let (store, other) = (bench.over(&relay).await, bench.open().await);
    let first = start(&store, call(bench.now(), "first")).await;
    complete(&store, first, CallEnd::Unstored).await;
    relay.set_for(TAKE, Trap::Fall);
    let gives_up = TaskTracker::new().spawn(store.begin(call(bench.now(), "a")));
    let refused = gives_up.await.unwrap();
    assert!(matches!(refused, Err(AppendError::Failed(_))), "{refused:?}");
    // It stands in the database, and nobody was told that the call may run.
    let taken = "SELECT count(*) FROM hooksluice.record WHERE state = 0";
    reach(1, || bench.database.number(taken)).await;
    assert!(matches!(
        kind(&other, "a").await,
        Some(RecordKind::Running | RecordKind::Ambiguous)
    ));
    relay.mend();
    reach(None, || kind(&other, "a")).await;
    let _ours = start(&other, call(bench.now(), "a")).await;
}

#[tokio::test]
async fn an_end_whose_commit_was_not_heard_is_recorded_once() {
    let bench = Postgres::new().await;
    let relay = Relay::start(SERVER.port).await;
    let store = bench.over(&relay).await;
    for (round, end) in [
        CallEnd::Done(answer(b"a")),
        CallEnd::Unstored,
        CallEnd::Ambiguous,
        CallEnd::Released,
    ]
    .into_iter()
    .enumerate()
    {
        let id = round.to_string();
        let begun = start(&store, call(bench.now(), &id)).await;
        relay.set_for(END, Trap::CutAfterCommit);
        let left = end.kind();
        assert_eq!(complete(&store, begun, end).await, Completed::Recorded, "{left:?}");
        assert_eq!(relay.sprung(), round + 1);
        assert_eq!(kind(&store, &id).await, left);
    }
    let counts = store.record_counts().await.unwrap();
    assert_eq!(RecordKind::ALL.map(|kind| counts.kinds[&kind]), [0, 1, 1, 1]);
    store.close().await;
    bench.check().await;
}

#[tokio::test]
async fn connections_that_end_at_any_moment_lose_no_call() {
    let bench = Postgres::new().await;
    let store = bench.open().await;
    for round in 0..12 {
        let id = round.to_string();
        let begun = TaskTracker::new().spawn(store.begin(call(bench.now(), &id)));
        // Wherever it is by now.
        tokio::time::sleep(Duration::from_micros(200 * round)).await;
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hooksluice' AND datname = current_database()";
        bench.database.run(end).await;
        let Begun::Started(begun) = begun.await.unwrap().unwrap() else {
            panic!("round {round}: it is nobody else's");
        };
        let completed = store.complete(begun, CallEnd::Done(answer(b"a")));
        tokio::time::sleep(Duration::from_micros(200 * round)).await;
        bench.database.run(end).await;
        assert_eq!(completed.await.unwrap(), Completed::Recorded, "round {round}");
    }
    // Connections for looking were ended as well.
    let done = async || {
        let counts = store.record_counts().await.ok()?;
        counts.kinds.get(&RecordKind::Done).copied()
    };
    reach(Some(12), done).await;
    store.close().await;
    bench.check().await;
}

#[tokio::test]
async fn a_lease_is_renewed_for_as_long_as_its_call_lives() {
    let mut bench = Postgres::new().await;
    bench.tuning.call_ttl = Duration::from_secs(1);
    let (store, other) = (bench.open().await, bench.open().await);
    let begun = start(&store, call(bench.now(), "a")).await;
    let until = "SELECT (extract(epoch FROM lease_until) * 1000)::bigint FROM hooksluice.record";
    let first = bench.database.number(until).await;
    reach(true, || async {
        assert_eq!(kind(&other, "a").await, Some(RecordKind::Running));
        assert!(store.holds_call(&begun));
        bench.database.number(until).await > first + 3_000
    })
    .await;
    assert_eq!(complete(&store, begun, CallEnd::Unstored).await, Completed::Recorded);
}

#[tokio::test]
async fn an_owner_stops_believing_before_anybody_else_may_and_an_absence_loses_no_answer() {
    let mut bench = Postgres::new().await;
    bench.tuning.call_ttl = Duration::from_secs(5);
    let relay = Relay::start(SERVER.port).await;
    let (store, other) = (bench.over(&relay).await, bench.open().await);
    let unseen = start(&store, call(bench.now(), "unseen")).await;
    let seen = start(&store, call(bench.now(), "seen")).await;
    relay.cut();
    reach(false, || async { store.holds_call(&unseen) || store.holds_call(&seen) }).await;
    let held = "SELECT count(*) FROM hooksluice.record WHERE lease_until > clock_timestamp()";
    assert_eq!(bench.database.number(held).await, 2, "to others both still run");
    let unseen = store.complete(unseen, CallEnd::Done(answer(b"a")));
    let seen = store.complete(seen, CallEnd::Done(answer(b"a")));
    reach(Some(RecordKind::Ambiguous), || kind(&other, "seen")).await;
    reach(0, || bench.database.number(held)).await;
    relay.mend();
    let ended = async { (unseen.await.unwrap(), seen.await.unwrap()) };
    let ended = tokio::time::timeout(DEADLINE, ended).await.unwrap();
    assert_eq!(ended, (Completed::Recorded, Completed::NotOurs));
    assert_eq!(kind(&other, "unseen").await, Some(RecordKind::Done));
    assert_eq!(kind(&other, "seen").await, Some(RecordKind::Ambiguous));
}

#[tokio::test]
async fn a_database_that_stays_away_begins_no_call_and_says_so() {
    let bench = Postgres::new().await;
    let relay = Relay::start(SERVER.port).await;
    let store = bench.over(&relay).await;
    let begun = start(&store, call(bench.now(), "before")).await;
    relay.cut();
    let refused = begin(&store, call(bench.now(), "during")).await;
    assert!(matches!(refused, Err(AppendError::Failed(_))), "{refused:?}");
    let later = tokio::time::timeout(DEADLINE, store.begin(call(bench.now(), "later")));
    assert!(matches!(later.await.unwrap(), Err(AppendError::Failed(_))));
    assert!(matches!(store.record(&key("before")).await, Err(StoreError::Failed(_))));
    relay.mend();
    assert_eq!(complete(&store, begun, CallEnd::Unstored).await, Completed::Recorded);
    reach(true, || async { store.begin(call(bench.now(), "after")).await.is_ok() }).await;
}

#[tokio::test]
async fn a_taken_key_costs_no_write() {
    let bench = Postgres::new().await;
    let store = bench.open().await;
    let begun = start(&store, call(bench.now(), "done")).await;
    complete(&store, begun, CallEnd::Done(answer(b"a"))).await;
    let _runs = start(&store, call(bench.now(), "runs")).await;
    ambiguous(&store, call(bench.now(), "ambiguous")).await;
    bench
        .database
        .run(
            "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'written'; END $$; \
             CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON hooksluice.record FOR EACH ROW EXECUTE FUNCTION public.refuse()",
        )
        .await;
    for (id, kind) in [
        ("done", RecordKind::Done),
        ("runs", RecordKind::Running),
        ("ambiguous", RecordKind::Ambiguous),
    ] {
        assert_eq!(find(&store, call(bench.now(), id)).await.kind(), kind);
    }
}

#[tokio::test]
async fn over_its_budget_no_call_begins_and_those_that_run_end() {
    let mut bench = Postgres::new().await;
    let store = bench.open().await;
    let ends = start(&store, call(bench.now(), "a")).await;
    bench.setup_mut().settings.max_bytes = 1;
    let full = bench.open().await;
    let refused = full.begin(call(bench.now(), "b")).await;
    assert!(matches!(refused, Err(AppendError::DiskBudget)));
    assert_eq!(kind(&full, "a").await, Some(RecordKind::Running));
    // Whoever ends a call does not ask for room.
    full.complete(ends, CallEnd::Done(answer(b"a"))).await.unwrap();
    assert_eq!(kind(&store, "a").await, Some(RecordKind::Done));
}

#[tokio::test]
async fn a_damaged_record_is_an_error_and_harms_no_other() {
    let bench = Postgres::new().await;
    let store = bench.open().await;
    bench
        .database
        .run("ALTER TABLE hooksluice.record DROP CONSTRAINT record_is_sound")
        .await;
    for (id, damage) in [
        ("state", "state = 9"),
        ("fingerprint", "fingerprint = '\\x00'"),
        ("status", "status = 1"),
        ("answer", "answer = 0"),
    ] {
        let begun = start(&store, call(bench.now(), id)).await;
        complete(&store, begun, CallEnd::Done(answer(b"a"))).await;
        let key = data_encoding::HEXLOWER.encode(&key(id).digest);
        let sql = format!("UPDATE hooksluice.record SET {damage} WHERE digest = decode('{key}', 'hex')");
        bench.database.run(&sql).await;
        let found = store.record(&self::key(id)).await;
        assert!(matches!(found, Err(StoreError::Failed(_))), "{id}: {found:?}");
        let found = begin(&store, call(bench.now(), id)).await;
        assert!(matches!(found, Err(AppendError::Failed(_))), "{id}: {found:?}");
    }
    let _other = start(&store, call(bench.now(), "other")).await;
}

#[tokio::test]
async fn a_store_of_schema_1_is_migrated_with_what_it_holds() {
    let bench = Postgres::new().await;
    bench.database.run("CREATE SCHEMA hooksluice").await;
    bench.database.run(include_str!("../../postgres/schema_1.sql")).await;
    bench
        .database
        .run("INSERT INTO hooksluice.source (name) VALUES ('github')")
        .await;
    // Two replicas, one of which comes first.
    let (one, two) = tokio::join!(bench.try_open(), bench.try_open());
    let (one, two) = (one.unwrap(), two.unwrap());
    append(&one, &bench.delivery("a")).await;
    let begun = start(&two, call(bench.now(), "a")).await;
    assert_eq!(kind(&one, "a").await, Some(RecordKind::Running));
    assert_eq!(complete(&two, begun, CallEnd::Unstored).await, Completed::Recorded);
    let sources = "SELECT count(*) FROM hooksluice.source";
    assert_eq!(bench.database.number(sources).await, 1);
    one.close().await;
    two.close().await;
    bench.check().await;
}

#[tokio::test]
async fn a_person_and_a_retry_that_want_one_record_leave_one_of_them_out() {
    let bench = Postgres::new().await;
    let (one, two) = (bench.open().await, bench.open().await);
    for round in 0..10 {
        let id = round.to_string();
        ambiguous(&one, call(bench.now(), &id)).await;
        let mut retry = call(bench.now(), &id);
        retry.after_ambiguous = true;
        let told = Resolution::Answer(answer(b"told"));
        let (begun, resolved) = tokio::join!(one.begin(retry), two.resolve(key(&id), told));
        match (begun.unwrap(), resolved.unwrap()) {
            (Begun::Started(call), Resolved::NotAmbiguous(RecordKind::Running)) => {
                assert_eq!(
                    complete(&one, call, CallEnd::Done(answer(b"made"))).await,
                    Completed::Recorded
                );
            }
            (Begun::Found(record), Resolved::Done) => {
                assert_eq!(record.state, RecordState::Done(answer(b"told")));
            }
            (begun, resolved) => panic!("{begun:?} {resolved:?}"),
        }
    }
    assert_eq!(one.record_counts().await.unwrap().kinds[&RecordKind::Done], 10);
}
