//! One delivery, many copies: P2 over replicas, and what must not be believed across deployments and stores.

use std::collections::BTreeSet;

use crate::grounds::{
    COPIES, Grounds, ROUNDS, accept, assert_once, delivered, events, noisy, request, settled, setup, storm,
};
use crate::harness::bouncer::Bouncer;
use crate::harness::eventually;
use crate::harness::fleet::Fleet;
use crate::harness::ledger::Accountant;
use crate::harness::postgres::{self, Postgres};
use crate::harness::redis::{self, Redis};
use crate::harness::relay::Relay;

// DD-01, DD-10
#[test]
fn fifty_copies_at_once_at_three_replicas_of_one_store_are_one_event() {
    let grounds = Grounds::new();
    let fleet = grounds.fleet(3);
    storm(&fleet.balancer(), ROUNDS);
    delivered(&grounds.accountant, ROUNDS);
    settled(&fleet);
    assert_once(&grounds.accountant, ROUNDS);
    let stored = fleet.metric("hooksluice_events_stored_total", &[]);
    let duplicates = fleet.metric("hooksluice_duplicates_total", &[]);
    assert_eq!((stored, duplicates), (ROUNDS as f64, (ROUNDS * (COPIES - 1)) as f64));
    // Told once, or once more in the era that began with the last replica.
    let keys = grounds.redis.keys();
    let told: BTreeSet<&str> = keys.keys().filter_map(|key| key.rsplit(':').next()).collect();
    assert_eq!(told.len(), ROUNDS);
    grounds.redis.assert_all_expire();
}

// DD-01
#[test]
fn fifty_copies_at_once_without_redis_are_one_event_on_one_store() {
    let accountant = Accountant::start();
    let postgres = Postgres::shared();
    let database = postgres.database();
    let fleet = Fleet::start((0..3).map(|_| setup(&accountant).postgres(&database.url())).collect());
    storm(&fleet.balancer(), ROUNDS / 4);
    delivered(&accountant, ROUNDS / 4);
    settled(&fleet);
    assert_once(&accountant, ROUNDS / 4);
}

#[test]
fn replicas_that_start_together_on_an_empty_database_share_it() {
    for _ in 0..5 {
        let grounds = Grounds::new();
        let fleet = grounds.fleet(4);
        for (index, server) in fleet.servers().enumerate() {
            accept(server, &format!("by-{index}"));
            accept(server, "by-all");
        }
        delivered(&grounds.accountant, 5);
        settled(&fleet);
        assert_once(&grounds.accountant, 5);
        // Where events lie whose partition could not be made any more.
        let astray = grounds.database.sql("SELECT count(*) FROM hooksluice.event_rest");
        assert_eq!(astray, "0", "events outside of the partitions");
    }
}

#[test]
fn two_deployments_on_one_redis_do_not_see_each_other_s_keys() {
    let (one, other) = (Grounds::new(), Grounds::new());
    let accountants = [Accountant::start(), Accountant::start()];
    let redis = &one.redis;
    let shared = [&one, &other].map(|grounds| {
        setup(&grounds.accountant)
            .postgres(&grounds.database.url())
            .redis(&redis.url(), "")
    });
    let embedded = ["one", "other"]
        .iter()
        .zip(&accountants)
        .map(|(name, accountant)| setup(accountant).redis(&redis.url(), &format!("namespace = \"{name}\"")));
    let fleet = Fleet::start(shared.into_iter().chain(embedded).collect());
    for server in fleet.servers() {
        assert!(!accept(server, "same"), "nobody here has seen it");
    }
    for accountant in [&one.accountant, &other.accountant, &accountants[0], &accountants[1]] {
        delivered(accountant, 1);
    }
    eventually("a key for each", || (redis.keys().len() == 4).then_some(()));
    settled(&fleet);
    for accountant in [&one.accountant, &other.accountant, &accountants[0], &accountants[1]] {
        assert_once(accountant, 1);
    }
    redis.assert_all_expire();
}

#[test]
fn a_new_database_does_not_believe_what_redis_knows_of_the_old_one() {
    let grounds = Grounds::new();
    let mut fleet = grounds.fleet(1);
    accept(fleet.server(0), "again");
    delivered(&grounds.accountant, 1);
    eventually("Redis to be told", || (grounds.redis.keys().len() == 1).then_some(()));
    fleet.stop(0);
    let name = grounds.database.name();
    grounds.postgres.sql("postgres", &format!("DROP DATABASE {name}"));
    let role = postgres::ROLE;
    grounds
        .postgres
        .sql("postgres", &format!("CREATE DATABASE {name} OWNER {role}"));
    fleet.restart(0);
    assert!(!accept(fleet.server(0), "again"), "a new store has never seen it");
    eventually("its own forward", || {
        grounds.accountant.read(|ledger| (ledger.attempts == 2).then_some(()))
    });
}

// The primary is gone with what it had committed last; the copy that takes over lacks it.
#[test]
fn a_failed_over_database_does_not_believe_what_its_replicas_and_redis_know_of_the_lost_one() {
    let accountant = Accountant::start();
    let redis = Redis::start();
    let mut primary = Postgres::start();
    let database = primary.database();
    let link = Relay::to(primary.address());
    let configure = || {
        noisy(setup(&accountant))
            .postgres(&database.url_by(link.address()))
            .redis(&redis.url(), "")
    };
    let fleet = Fleet::start(vec![configure(), configure()]);
    accept(fleet.server(0), "kept");
    delivered(&accountant, 1);
    settled(&fleet);
    let mut copy = primary.copy();
    accept(fleet.server(0), "lost");
    delivered(&accountant, 2);
    eventually("Redis to be told", || (redis.keys().len() == 2).then_some(()));
    primary.kill();
    copy.restart();
    link.point_to(copy.address());
    for server in fleet.servers() {
        eventually("the new primary to be used", || server.is_ready().then_some(()));
    }
    // The provider sends it again, to both: nothing that the lost store knew may answer for it.
    for server in fleet.servers() {
        eventually("an answer", || {
            let answer = server.send(&request("lost"));
            assert!(matches!(answer.status, 200 | 503), "{answer:?}");
            (answer.status == 200).then_some(())
        });
    }
    eventually("the lost event to come again", || {
        accountant.read(|ledger| (ledger.attempts == 3).then_some(()))
    });
    assert_eq!(events(fleet.server(0), "lost").len(), 1);
    // What it does have, it knows.
    eventually("an answer", || {
        (fleet.server(1).send(&request("kept")).status == 200).then_some(())
    });
    settled(&fleet);
    accountant.read(|ledger| assert_eq!(ledger.attempts, 3));
    assert_eq!(events(fleet.server(0), "kept").len(), 1);
}

// Each transaction runs on any of four server connections, which nobody may leave in another state.
#[test]
fn behind_pgbouncer_a_role_that_commits_carelessly_does_not_make_the_store_careless() {
    let grounds = Grounds::new();
    let role = postgres::ROLE;
    let name = grounds.database.name();
    grounds.postgres.sql(
        "postgres",
        &format!("ALTER ROLE {role} IN DATABASE {name} SET synchronous_commit = off"),
    );
    assert_eq!(grounds.database.sql("SHOW synchronous_commit"), "off");
    let bouncer = Bouncer::start(grounds.postgres.address(), &grounds.database);
    let configure = || {
        setup(&grounds.accountant)
            .postgres(&grounds.database.url_by(bouncer.address()))
            .redis(&grounds.redis.url(), "")
    };
    let fleet = Fleet::start((0..3).map(|_| configure()).collect());
    // Read in the transaction itself, by a witness on every table.
    grounds.postgres.sql(name, WITNESS);
    storm(&fleet.balancer(), 10);
    delivered(&grounds.accountant, 10);
    settled(&fleet);
    assert_once(&grounds.accountant, 10);
    let seen = grounds.postgres.sql(
        name,
        "SELECT DISTINCT place, operation, setting FROM witness ORDER BY 1, 2, 3",
    );
    println!("{seen}");
    let appends: Vec<_> = seen.lines().filter(|line| line.ends_with("|on")).collect();
    assert!(appends.iter().any(|line| line.starts_with("event|INSERT")), "{seen}");
    assert!(!seen.contains("|off"), "{seen}");
    // Nothing of ours stays behind on the server connections.
    let by_pooler = |sql| postgres::query(&grounds.database.url_by(bouncer.address()), sql).unwrap();
    assert_eq!(by_pooler("SHOW synchronous_commit"), "off");
    assert_eq!(by_pooler("SELECT count(*) FROM pg_prepared_statements"), "0");
    assert_eq!(by_pooler("SELECT count(*) FROM pg_listening_channels()"), "0");
}

const WITNESS: &str = "
CREATE TABLE public.witness (place text, operation text, setting text);
CREATE FUNCTION public.witness() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    INSERT INTO public.witness VALUES (TG_TABLE_NAME, TG_OP, current_setting('synchronous_commit'));
    RETURN NULL;
END $$;
DO $$ DECLARE place regclass; BEGIN
    FOR place IN SELECT oid FROM pg_class WHERE relnamespace = 'hooksluice'::regnamespace AND relkind IN ('r', 'p')
        AND relname IN ('event', 'key', 'dispatch') AND NOT relispartition
    LOOP
        EXECUTE format('CREATE TRIGGER witness AFTER INSERT ON %s FOR EACH STATEMENT EXECUTE FUNCTION public.witness()', place);
    END LOOP;
END $$";

#[test]
fn with_sentinel_a_fail_over_of_redis_is_no_event() {
    let grounds = Grounds::new();
    let mut primary = Redis::start();
    let replica = primary.replica();
    let sentinel = redis::Sentinel::watching(&primary, 1);
    let url = format!(
        "redis+sentinel://:{}@{}/{}",
        redis::PASSWORD,
        sentinel.address(),
        redis::Sentinel::NAME
    );
    let configure = || {
        noisy(setup(&grounds.accountant))
            .postgres(&grounds.database.url())
            .redis(&url, "")
    };
    let fleet = Fleet::start(vec![configure(), configure()]);
    let send = |from: usize, to: usize| {
        for number in from..to {
            accept(fleet.server(number % 2), &format!("id-{number}"));
        }
    };
    send(0, 20);
    primary.kill();
    send(20, 40);
    eventually("the fail-over", || {
        (sentinel.primary() == replica.address()).then_some(())
    });
    // Found by itself: new keys arrive at the new primary.
    let mut round = 40;
    eventually("the new primary to be told", || {
        send(round, round + 1);
        round += 1;
        (replica.keys().len() > 20).then_some(())
    });
    // And nothing was forgotten that the store knows.
    for number in 0..40 {
        accept(fleet.server((number + 1) % 2), &format!("id-{number}"));
    }
    delivered(&grounds.accountant, round);
    settled(&fleet);
    assert_once(&grounds.accountant, round);
}
