//! What the network, the database and whoever shares it can do to the store (P1, P2, P10).

use std::sync::Arc;
use std::time::Duration;

use crate::secret::Secret;
use crate::store::model::{Admission, AppendError, DispatchState, Next, Settled};
use crate::store::records::CallEnd;
use crate::store::tests::bench::{Bench, DEADLINE, all_admitted, app, append, deliver, finished, next, reach, states};
use crate::store::tests::contract::calls::{call, start};
use crate::store::tests::shared::relay::{Relay, Trap};
use crate::store::tests::shared::server::{Order, SERVER, Server};
use crate::store::tests::shared::{Postgres, of};
use crate::store::{OpenError, Store};

impl Postgres {
    pub(super) async fn over(&self, relay: &Relay) -> Store {
        let url = format!(
            "postgres://postgres@127.0.0.1:{}/{}?sslmode=disable",
            relay.port(),
            self.database.name
        );
        self.try_open_at(Secret::new(url)).await.unwrap()
    }
}

#[tokio::test]
async fn a_process_stopped_before_its_commit_holds_no_key_for_long() {
    let bench = Postgres::new().await;
    let relay = Relay::start(SERVER.port).await;
    let (stopped, other) = (bench.over(&relay).await, bench.open().await);
    append(&stopped, &bench.delivery("first")).await;
    relay.set(Trap::StopBeforeCommit);
    let hangs = stopped.append(bench.delivery("same").event());
    reach(1, || async { relay.sprung() }).await;
    let receipt = tokio::time::timeout(DEADLINE, other.append(bench.delivery("same").event()))
        .await
        .unwrap()
        .unwrap();
    // The stopped process tries again, and finds out; either may come first once the server has undone the transaction.
    match tokio::time::timeout(DEADLINE, hangs).await.unwrap() {
        Ok(late) => {
            assert_eq!(late.event(), receipt.event());
            assert_ne!(late.is_duplicate(), receipt.is_duplicate());
        }
        Err(AppendError::Failed(_)) => {}
        Err(other) => panic!("{other}"),
    }
    let events = bench.database.number("SELECT count(*) FROM hooksluice.event").await;
    assert_eq!(events, 2);
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_acknowledged_once_and_handed_out_once() {
    let bench = Postgres::new().await;
    let relay = Relay::start(SERVER.port).await;
    let store = bench.over(&relay).await;
    let mut feed = store.feed(&app()).unwrap();
    append(&store, &bench.delivery("first")).await;
    deliver(&store, &mut feed).await;
    for round in 0..5 {
        bench.forget_notices();
        relay.set(Trap::CutAfterCommit);
        let copies: Vec<_> = (0..3)
            .map(|_copy| store.append(bench.delivery(round).event()))
            .collect();
        let mut event = None;
        for copy in copies {
            let receipt = tokio::time::timeout(DEADLINE, copy).await.unwrap().unwrap();
            assert_eq!(*event.get_or_insert(receipt.event()), receipt.event());
        }
        assert_eq!(relay.sprung(), round + 1);
        let admissions = bench.admissions();
        let new = admissions.iter().filter(|admission| **admission == Admission::New);
        assert_eq!((new.count(), admissions.len()), (1, 3), "{admissions:?}");
        let seen = deliver(&store, &mut feed).await;
        assert_eq!((Some(seen.event), seen.attempt), (event, 1));
    }
    reach(6, || async { states(&store, "app").await[&DispatchState::Delivered] }).await;
    store.close().await;
    bench.check().await;
}

#[tokio::test]
async fn an_outcome_whose_commit_was_not_heard_is_recorded_once() {
    let bench = Postgres::new().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    for round in 0..10 {
        // What ended the connections of the round before may reach this one's: its sender tries again.
        let delivery = bench.delivery(round);
        let appending = async { while store.append(delivery.event()).await.is_err() {} };
        tokio::time::timeout(DEADLINE, appending).await.unwrap();
        let lease = next(&mut feed).await;
        let settled = store.settle(finished(lease, 200), Next::Delivered);
        // Wherever it is by now.
        tokio::time::sleep(Duration::from_micros(300 * round)).await;
        bench
            .database
            .run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hooksluice' AND datname = current_database()")
            .await;
        let settled = tokio::time::timeout(DEADLINE, settled).await.unwrap().unwrap();
        assert_eq!(settled, Settled::Recorded, "round {round}");
    }
    reach(10, || async { states(&store, "app").await[&DispatchState::Delivered] }).await;
    store.close().await;
    bench.check().await;
}

#[tokio::test]
async fn lost_connections_are_replaced() {
    let bench = Postgres::new().await;
    let relay = Relay::start(SERVER.port).await;
    let store = bench.over(&relay).await;
    let mut feed = store.feed(&app()).unwrap();
    append(&store, &bench.delivery("before")).await;
    relay.cut();
    let during = store.append(bench.delivery("during").event());
    reach(true, || async { store.is_writable().is_err() }).await;
    relay.mend();
    let during = tokio::time::timeout(DEADLINE, during).await.unwrap();
    assert!(during.is_ok(), "a short absence is waited for: {during:?}");
    reach(true, || async { store.is_writable().is_ok() }).await;
    for _ in 0..2 {
        deliver(&store, &mut feed).await;
    }
    store.close().await;
    bench.check().await;
}

#[tokio::test]
async fn a_database_that_stays_away_is_our_failure_and_says_so() {
    let bench = Postgres::new().await;
    let relay = Relay::start(SERVER.port).await;
    let store = bench.over(&relay).await;
    append(&store, &bench.delivery("before")).await;
    relay.cut();
    let failed = tokio::time::timeout(DEADLINE, store.append(bench.delivery("during").event()));
    assert!(matches!(failed.await.unwrap(), Err(AppendError::Failed(_))));
    // From now on nobody waits for it: the store's own patience is longer than this.
    let at_once = tokio::time::timeout(Duration::from_secs(6), store.append(bench.delivery("later").event()));
    assert!(matches!(at_once.await.unwrap(), Err(AppendError::Failed(_))));
    relay.mend();
    reach(true, || async {
        store.append(bench.delivery("after").event()).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_deadlock_with_somebody_else_is_tried_again() {
    let bench = Postgres::new().await;
    let store = bench.open().await;
    append(&store, &bench.delivery("first")).await;
    // Two keys in the order in which a batch takes them.
    let mut deliveries = [bench.delivery("a"), bench.delivery("b")];
    deliveries.sort_by_key(|delivery| *delivery.key().digest());
    let key = |at: usize| data_encoding::HEXLOWER.encode(deliveries[at].key().digest());
    let take = |key: String| {
        format!(
            "INSERT INTO hooksluice.key SELECT id, 0, decode('{key}', 'hex'), gen_random_uuid(), 0, 0 FROM hooksluice.source"
        )
    };
    let other = bench.database.connect().await;
    other
        .batch_execute("BEGIN; SET LOCAL deadlock_timeout = '20s'")
        .await
        .unwrap();
    other.batch_execute(&take(key(1))).await.unwrap();
    // One batch: nobody runs between the two.
    let appends: Vec<_> = deliveries
        .iter()
        .map(|delivery| store.append(delivery.event()))
        .collect();
    reach(1, || {
        bench.database.number(
            "SELECT least(count(*), 1) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()",
        )
    })
    .await;
    // Now it wants what the batch has: the server ends one of the two.
    let crossed = other.batch_execute(&take(key(0))).await;
    other.batch_execute("ROLLBACK").await.unwrap();
    for append in appends {
        assert!(!append.await.unwrap().is_duplicate());
    }
    drop(crossed);
    let deadlocks = "SELECT least(deadlocks, 1) FROM pg_stat_database WHERE datname = current_database()";
    reach(1, || bench.database.number(deadlocks)).await;
    store.close().await;
    bench.check().await;
}

#[tokio::test]
async fn a_serialization_failure_is_tried_again() {
    let bench = Postgres::new().await;
    let store = bench.open().await;
    // The first two inserts fail as a serializable transaction would.
    bench
        .database
        .run(
            "CREATE SEQUENCE public.tries; CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF nextval('public.tries') <= 2 THEN RAISE EXCEPTION 'not now' USING ERRCODE = '40001'; END IF; RETURN NULL; END $$; \
             CREATE TRIGGER fail AFTER INSERT ON hooksluice.key FOR EACH STATEMENT EXECUTE FUNCTION public.fail()",
        )
        .await;
    let receipt = store.append(bench.delivery("a").event()).await.unwrap();
    assert!(!receipt.is_duplicate());
    assert_eq!(bench.admissions(), [Admission::New]);
}

#[tokio::test]
async fn one_event_that_the_database_refuses_fails_alone() {
    let bench = Postgres::new().await;
    let store = bench.open().await;
    append(&store, &bench.delivery("first")).await;
    bench
        .database
        .run("ALTER TABLE hooksluice.event ADD CONSTRAINT no_poison CHECK (delivery_id <> 'poison')")
        .await;
    let appends: Vec<_> = (0..40)
        .map(|id| {
            let id = if id == 17 { "poison".to_owned() } else { id.to_string() };
            store.append(bench.delivery(id).event())
        })
        .collect();
    for (id, append) in appends.into_iter().enumerate() {
        assert_eq!(append.await.is_err(), id == 17, "delivery {id}");
    }
    assert!(store.is_writable().is_ok());
    reach(40, || async { states(&store, "app").await.values().sum::<u64>() }).await;
    store.close().await;
    bench.check().await;
}

#[tokio::test]
async fn what_no_text_column_could_hold_is_stored() {
    let bench = Postgres::new().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    append(&store, &bench.delivery("nul \0 and \u{1f980}")).await;
    assert_eq!(
        next(&mut feed).await.event.delivery_id.as_deref(),
        Some("nul \0 and \u{1f980}")
    );
}

#[tokio::test]
async fn a_role_that_does_not_wait_for_the_disk_waits_for_ours() {
    let bench = Postgres::new().await;
    bench.open().await.close().await;
    let role = format!("lazy_{}", bench.database.name);
    bench
        .database
        .run(&format!(
            "CREATE ROLE {role} LOGIN; ALTER ROLE {role} SET synchronous_commit = off; GRANT postgres TO {role}"
        ))
        .await;
    bench.database.watch_commits().await;
    let store = bench
        .try_open_at(Secret::new(SERVER.url(&role, &bench.database.name)))
        .await
        .unwrap();
    let mut feed = store.feed(&app()).unwrap();
    for id in 0..5 {
        append(&store, &bench.delivery(id)).await;
        deliver(&store, &mut feed).await;
        let begun = start(&store, call(bench.now(), &id.to_string())).await;
        store.complete(begun, CallEnd::Unstored).await.unwrap();
    }
    bench.database.no_commit_was_lazy().await;
}

#[tokio::test]
async fn replicas_that_start_at_once_make_the_tables_once() {
    let bench = Postgres::new().await;
    let (a, b, c, d) = tokio::join!(bench.try_open(), bench.try_open(), bench.try_open(), bench.try_open());
    let stores = [a.unwrap(), b.unwrap(), c.unwrap(), d.unwrap()];
    for (id, store) in stores.iter().enumerate() {
        append(store, &bench.delivery(id)).await;
    }
    for store in stores {
        store.close().await;
    }
    bench.check().await;
}

#[tokio::test]
async fn a_store_that_cannot_be_opened_says_what_to_do() {
    let bench = Postgres::new().await;
    let text = |error: OpenError| anyhow::Error::from(error).to_string();
    let role = format!("poor_{}", bench.database.name);
    bench.database.run(&format!("CREATE ROLE {role} LOGIN")).await;
    let poor = Secret::new(SERVER.url(&role, &bench.database.name));
    let refused = text(bench.try_open_at(poor.clone()).await.unwrap_err());
    assert!(
        refused.contains(&format!("GRANT CREATE ON DATABASE {}", bench.database.name)),
        "{refused}"
    );
    bench.open().await.close().await;
    let refused = text(bench.try_open_at(poor).await.unwrap_err());
    assert!(refused.contains("belongs to role postgres"), "{refused}");
    bench.database.run("UPDATE hooksluice.meta SET version = 99").await;
    assert!(matches!(
        bench.try_open().await,
        Err(OpenError::Newer { found: 99, .. })
    ));
    bench
        .database
        .run("DROP SCHEMA hooksluice CASCADE; CREATE SCHEMA hooksluice; CREATE TABLE hooksluice.other ()")
        .await;
    assert!(matches!(bench.try_open().await, Err(OpenError::NotOurs { .. })));
    for (url, why) in [
        ("postgres://u@h/d?sslmode=perhaps", "sslmode"),
        ("postgres://h/d", "user"),
        ("nonsense", "postgres://"),
        ("postgres://u:secret@h/d?what=is", "what"),
    ] {
        let refused = text(bench.try_open_at(Secret::new(url)).await.unwrap_err());
        assert!(refused.contains(why) && !refused.contains("secret"), "{url}: {refused}");
    }
}

#[tokio::test]
async fn over_its_budget_accepting_stops_and_settling_goes_on() {
    let mut bench = Postgres::new().await;
    let store = bench.open().await;
    append(&store, &bench.delivery("a")).await;
    store.close().await;
    bench.setup_mut().settings.max_bytes = 1;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    let refused = store.append(bench.delivery("b").event()).await;
    assert!(matches!(refused, Err(AppendError::DiskBudget)));
    assert!(store.is_writable().is_err());
    deliver(&store, &mut feed).await;
}

#[tokio::test]
async fn a_replica_that_comes_begins_an_era_that_all_learn() {
    let bench = Postgres::new().await;
    let store = bench.open().await;
    let identity = store.identity().unwrap();
    let before = identity.borrow().clone();
    assert!(before.is_some());
    let other = bench.open().await;
    let theirs = other.identity().unwrap().borrow().clone();
    assert!(theirs.is_some() && theirs != before);
    reach(theirs, || async { identity.borrow().clone() }).await;
    other.close().await;
    store.close().await;
}

#[tokio::test]
async fn another_store_has_another_identity() {
    let bench = Postgres::new().await;
    let server = tokio::task::spawn_blocking(Server::start).await.unwrap();
    let database = bench.database_on(&server).await;
    let store = bench
        .try_open_at(Secret::new(server.url("postgres", &database)))
        .await
        .unwrap();
    let identity = store.identity().unwrap();
    let known = || {
        let identity = identity.clone();
        async move { identity.borrow().clone() }
    };
    let first: Arc<str> = known().await.expect("known from the start");
    let mut server = server;
    // After a restart it may be a copy of its files from yesterday, which is the same by every name the server has.
    for order in [Order::Restart, Order::Recover] {
        server = tokio::task::spawn_blocking(move || {
            server.order(order);
            server
        })
        .await
        .unwrap();
        reach(true, || async {
            known().await.is_some() && store.is_writable().is_ok()
        })
        .await;
        reach(Some(false), || async { known().await.map(|now| now == first) }).await;
        append(&store, &bench.delivery(format!("{order:?}"))).await;
    }
    // The same bytes under another name: a clone that was told to be another store.
    let cloned = known().await;
    bench
        .run_on(
            &server,
            &database,
            "UPDATE hooksluice.meta SET store = gen_random_uuid()",
        )
        .await;
    reach(false, || async { known().await == cloned || known().await.is_none() }).await;
    of(&store).crash().await;
}

#[tokio::test]
async fn the_shares_of_all_replicas_are_never_more_than_the_whole() {
    let bench = Postgres::new().await;
    let one = bench.open().await;
    let units = |store: &Store| store.share(&app()).unwrap().units;
    assert_eq!((units(&one), one.share(&app()).unwrap().of), (16, 16));
    let two = bench.open().await;
    assert_eq!(units(&one) + units(&two), 16, "the first one has not let go yet");
    reach((8, 8), || async {
        assert!(units(&one) + units(&two) <= 16);
        (units(&one), units(&two))
    })
    .await;
    let three = bench.open().await;
    reach(vec![5, 5, 6], || async {
        let mut all = vec![units(&one), units(&two), units(&three)];
        assert!(all.iter().sum::<u32>() <= 16, "{all:?}");
        all.sort_unstable();
        all
    })
    .await;
    three.close().await;
    two.close().await;
    reach(16, || async { units(&one) }).await;
}

#[tokio::test]
async fn units_in_use_are_not_granted_to_others() {
    let bench = Postgres::new().await;
    let one = bench.open().await;
    let busy = |busy| crate::store::model::ShareUse {
        of: 16,
        applied: busy,
        busy,
    };
    one.report_share_use(&app(), busy(16));
    let two = bench.open().await;
    let units = |store: &Store| store.share(&app()).unwrap().units;
    reach(8, || async { units(&one) }).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(units(&two), 0, "all are in use by attempts that run");
    one.report_share_use(&app(), busy(8));
    reach(8, || async { units(&two) }).await;
    all_admitted(&one).await;
}
