//! Idempotent calls in the embedded store: its files, its one writer, its damage.

use std::time::Duration;

use super::{Bench, Sqlite};
use crate::store::StoreError;
use crate::store::model::AppendError;
use crate::store::records::{Begun, CallEnd, Completed, RecordKind};
use crate::store::tests::bench::DEADLINE;
use crate::store::tests::contract::calls::{ambiguous, answer, call, find, key, kind, start};

impl Sqlite {
    /// As somebody else with the right to write.
    fn meddle(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.place.path.join("hooksluice.db")).unwrap()
    }
}

#[tokio::test]
async fn over_its_disk_budget_no_call_begins_and_those_that_run_end() {
    let mut bench = Sqlite::new().await;
    let store = bench.open().await;
    let begun = start(&store, call(bench.now(), "a")).await;
    store.close().await;
    drop(begun);
    bench.setup.settings.max_bytes = 1;
    let store = bench.open().await;
    let refused = store.begin(call(bench.now(), "b")).await;
    assert!(matches!(refused, Err(AppendError::DiskBudget)), "{refused:?}");
    assert_eq!(kind(&store, "a").await, Some(RecordKind::Ambiguous));
}

#[tokio::test]
async fn a_taken_key_costs_no_write() {
    let bench = Sqlite::new().await;
    let store = bench.open().await;
    let begun = start(&store, call(bench.now(), "done")).await;
    store.complete(begun, CallEnd::Done(answer(b"a"))).await.unwrap();
    let _runs = start(&store, call(bench.now(), "runs")).await;
    ambiguous(&store, call(bench.now(), "ambiguous")).await;
    let database = bench.database();
    let version = || -> i64 {
        database
            .pragma_query_value(None, "data_version", |row| row.get(0))
            .unwrap()
    };
    let before = version();
    for (id, kind) in [
        ("done", RecordKind::Done),
        ("runs", RecordKind::Running),
        ("ambiguous", RecordKind::Ambiguous),
    ] {
        for _ in 0..5 {
            assert_eq!(find(&store, call(bench.now(), id)).await.kind(), kind);
        }
    }
    assert_eq!(version(), before, "something was committed");
    let released = start(&store, call(bench.now(), "other")).await;
    store.complete(released, CallEnd::Released).await.unwrap();
    assert_ne!(version(), before, "it would have been seen");
}

#[tokio::test]
async fn while_it_cannot_write_no_call_begins_and_ends_wait() {
    let bench = Sqlite::new().await;
    let store = bench.open().await;
    let begun = start(&store, call(bench.now(), "a")).await;
    let meddler = bench.meddle();
    meddler.execute_batch("BEGIN IMMEDIATE").unwrap();
    let ended = store.complete(begun, CallEnd::Done(answer(b"a")));
    let refused = store.begin(call(bench.now(), "b")).await;
    assert!(matches!(refused, Err(AppendError::Failed(_))), "{refused:?}");
    meddler.execute_batch("ROLLBACK").unwrap();
    assert_eq!(ended.await.unwrap(), Completed::Recorded);
    let counts = async || {
        let counts = store.record_counts().await.unwrap();
        RecordKind::ALL.map(|kind| counts.kinds[&kind])
    };
    assert_eq!(counts().await, [0, 1, 0, 0]);
    let _other = start(&store, call(bench.now(), "b")).await;
    assert_eq!(counts().await, [1, 1, 0, 0]);
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_any_more_is_not_begun() {
    let bench = Sqlite::new().await;
    let store = bench.open().await;
    let meddler = bench.meddle();
    meddler.execute_batch("BEGIN IMMEDIATE").unwrap();
    let gone = tokio::time::timeout(Duration::from_millis(50), store.begin(call(bench.now(), "a"))).await;
    assert!(gone.is_err(), "it waits for the writer");
    meddler.execute_batch("ROLLBACK").unwrap();
    // Taken for a moment, then free: nobody was handed the call.
    let begun = tokio::time::timeout(DEADLINE, async {
        loop {
            match store.begin(call(bench.now(), "a")).await.unwrap() {
                Begun::Started(call) => return call,
                Begun::Found(found) => assert_eq!(found.kind(), RecordKind::Running),
            }
        }
    });
    let begun = begun.await.unwrap();
    assert_eq!(
        store.complete(begun, CallEnd::Unstored).await.unwrap(),
        Completed::Recorded
    );
}

#[tokio::test]
async fn a_damaged_record_is_an_error_and_harms_no_other() {
    let bench = Sqlite::new().await;
    let store = bench.open().await;
    let damages = [
        ("state", "UPDATE record SET state = 9 WHERE client_key = 'state'"),
        (
            "fingerprint",
            "UPDATE record SET fingerprint = x'00' WHERE client_key = 'fingerprint'",
        ),
        ("digest", "UPDATE record SET status = 1 WHERE client_key = 'digest'"),
        (
            "headers",
            "UPDATE answer SET headers = x'00' WHERE record = (SELECT id FROM record WHERE client_key = 'headers')",
        ),
        (
            "gone",
            "DELETE FROM answer WHERE record = (SELECT id FROM record WHERE client_key = 'gone')",
        ),
    ];
    for (id, _sql) in damages {
        let begun = start(&store, call(bench.now(), id)).await;
        store.complete(begun, CallEnd::Done(answer(b"a"))).await.unwrap();
    }
    let meddler = bench.meddle();
    meddler.pragma_update(None, "ignore_check_constraints", true).unwrap();
    for (_id, sql) in damages {
        assert_eq!(meddler.execute(sql, []).unwrap(), 1, "{sql}");
    }
    drop(meddler);
    store.close().await;
    let store = bench.open().await;
    for (id, _sql) in damages {
        let found = store.record(&key(id)).await;
        assert!(matches!(found, Err(StoreError::Failed(_))), "{id}: {found:?}");
        let found = store.begin(call(bench.now(), id)).await;
        assert!(matches!(found, Err(AppendError::Failed(_))), "{id}: {found:?}");
    }
    let other = start(&store, call(bench.now(), "other")).await;
    assert_eq!(
        store.complete(other, CallEnd::Unstored).await.unwrap(),
        Completed::Recorded
    );
    assert!(store.is_writable().is_ok());
}
