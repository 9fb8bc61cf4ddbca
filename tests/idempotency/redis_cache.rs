//! Redis as a cache of answers in front of the durable records.

use crate::ground::{App, Site, assert_first, assert_problem, assert_replayed, job, route};
use crate::harness::eventually;
use crate::harness::postgres::Postgres;
use crate::harness::redis::Redis;
use crate::harness::{Setup, server};

/// Answers leave memory at once, so that it is Redis and the store that are asked.
const NO_MEMORY: &str = "[limits]\nreplay_cache = \"0B\"";

fn answers(redis: &Redis) -> Vec<String> {
    redis
        .names()
        .into_iter()
        .filter(|key| key.contains(":idem:jobs:"))
        .collect()
}

fn known(server: &server::Server, by: &str) -> f64 {
    server.metric("hooksluice_idempotency_known_total", &[&format!("by=\"{by}\"")])
}

fn sticky(app: &App, redis: &Redis) -> Setup {
    route(
        Setup::new(&app.upstream)
            .redis(&redis.url(), "namespace = \"shop\"")
            .tables(NO_MEMORY),
        "replicas = \"sticky\", ttl = \"1h\"",
    )
}

#[test]
fn redis_answers_for_the_store_until_it_is_flushed() {
    let (app, redis) = (App::start(), Redis::start());
    let server = Site::open(sticky(&app, &redis));
    assert_first(&server.send(&job("k", "{}")));
    eventually("Redis to have it", || (!answers(&redis).is_empty()).then_some(()));
    let name = answers(&redis).remove(0);
    assert!(name.starts_with("hooksluice:shop:idem:jobs:"), "{name}");
    assert_eq!(name.len(), "hooksluice:shop:idem:jobs:".len() + 64);
    redis.assert_all_expire();
    eventually("Redis to answer", || {
        assert_replayed(&server.send(&job("k", "{}")));
        (known(&server, "redis") >= 1.0).then_some(())
    });
    let by_store = known(&server, "store");
    assert_problem(&server.send(&job("k", "{ }")), 422, "idempotency-key-reused");
    redis.flush();
    assert_replayed(&server.send(&job("k", "{}")));
    assert_eq!(known(&server, "store"), by_store + 1.0, "the durable record wins");
    eventually("Redis to have it again", || (!answers(&redis).is_empty()).then_some(()));
    assert_eq!(app.made(), 1);
}

#[test]
fn what_somebody_else_wrote_there_says_nothing() {
    let (app, redis) = (App::start(), Redis::start());
    let server = Site::open(sticky(&app, &redis));
    assert_first(&server.send(&job("k", "{}")));
    let name = eventually("Redis to have it", || answers(&redis).pop());
    for nonsense in ["", "1", "{\"status\":200}"] {
        redis.command(&["SET", &name, nonsense, "PX", "60000"]);
        assert_replayed(&server.send(&job("k", "{}")));
    }
    redis.command(&["DEL", &name]);
    redis.command(&["LPUSH", &name, "x"]);
    redis.command(&["PEXPIRE", &name, "60000"]);
    assert_replayed(&server.send(&job("k", "{}")));
    assert_eq!(app.made(), 1);
}

#[test]
fn without_redis_and_with_a_silent_one_the_store_answers() {
    let (app, mut redis) = (App::start(), Redis::start());
    let server = Site::open(sticky(&app, &redis).allow_log("edis"));
    assert_first(&server.send(&job("k", "{}")));
    redis.freeze();
    for _ in 0..8 {
        assert_replayed(&server.send(&job("k", "{}")));
    }
    redis.thaw();
    redis.kill();
    assert_replayed(&server.send(&job("k", "{}")));
    assert_eq!(server.send(&job("new", "{}")).text(), "{\"id\":\"job_2\"}");
    assert_replayed(&server.send(&job("k", "{}")));
    assert_eq!(app.made(), 2);
}

#[test]
fn replicas_of_one_database_share_answers_over_redis() {
    let postgres = Postgres::shared();
    let database = postgres.database();
    let (app, redis) = (App::start(), Redis::start());
    let setup = || {
        route(
            Setup::new(&app.upstream)
                .postgres(&database.url())
                .redis(&redis.url(), "")
                .tables(NO_MEMORY),
            "",
        )
    };
    let (one, other) = (setup(), setup());
    let (one, other) = (one.start(), other.start());
    assert_first(&one.send(&job("k", "{}")));
    eventually("Redis to have it", || (!answers(&redis).is_empty()).then_some(()));
    // It may not know yet whose store it shares, or be asked too late; then the store answers.
    eventually("Redis to answer", || {
        assert_replayed(&other.send(&job("k", "{}")));
        (known(&other, "redis") >= 1.0).then_some(())
    });
    assert_eq!(app.made(), 1);
}
