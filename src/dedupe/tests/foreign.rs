//! Values that nobody of us wrote, under keys of ours: a look learns nothing from them, a claim takes their place.

use super::faults::{mark, telling};
use super::server::Answer;
use super::*;
use crate::dedupe::protocol::{Mark, Reply};
use crate::dedupe::redis::breaker::SILENT_TO_OPEN;
use crate::dedupe::redis::{Redis, Told};
use crate::telemetry::metrics::RedisOperation;

/// Commands that put something foreign under a key.
fn foreigners() -> Vec<Vec<String>> {
    let id = event(1);
    let mut all: Vec<Vec<String>> = ["garbage", "", "1", "dead:", ":"]
        .map(str::to_owned)
        .into_iter()
        .chain([
            format!("{id}"),
            format!("{id}:"),
            format!("{id}:0101"),
            format!("{id}:01010101010101zz"),
            format!("{id}:01010101010101010"),
            format!("dead:{id}:0101010101010101"),
            format!(" dead:{id}"),
            format!("{id}:0101010101010101\n"),
        ])
        .map(|value| vec!["SET".to_owned(), value])
        .collect();
    all.push(vec!["LPUSH".to_owned(), "x".to_owned()]);
    all.push(vec!["SADD".to_owned(), "x".to_owned()]);
    all.push(vec!["HSET".to_owned(), "x".to_owned(), "y".to_owned()]);
    all
}

fn put(server: &Server, n: u32, foreigner: &[String]) -> Answer {
    let name = name_of("shop", &key(n));
    let mut words = vec![foreigner[0].as_str(), name.as_str()];
    words.extend(foreigner[1..].iter().map(String::as_str));
    server.cli(&words)
}

#[tokio::test]
async fn a_claim_takes_the_place_of_what_is_not_ours_and_its_neighbours_notice_nothing() {
    let server = Server::start(&[]).await;
    let node = Setup::new(server.url()).up().await;
    let foreigners = foreigners();
    let mut slice = Vec::new();
    let mut n = 0;
    for foreigner in &foreigners {
        put(&server, n, foreigner);
        slice.extend([
            unclaimed(n, event(i64::from(n) + 10)),
            unclaimed(n + 1, event(i64::from(n) + 11)),
        ]);
        n += 2;
    }
    let replies = node.redis.claims(&slice).await;
    assert!(replies.iter().all(|reply| *reply == Reply::Absent), "{replies:?}");
    let window = i64::try_from(WINDOW.as_millis()).unwrap();
    for asked in &slice {
        let held = node.redis.look(&source(), &asked.key).await;
        assert_eq!(held, Reply::Holds(mark(asked.event)));
        let left = server.cli(&["PTTL", &name_of("shop", &asked.key)]).number();
        assert!((window - 60_000..=window).contains(&left), "{left}");
    }
    // Asked again, they are ours.
    for (asked, reply) in slice.iter().zip(node.redis.claims(&slice).await) {
        assert_eq!(reply, Reply::Holds(mark(asked.event)));
    }
    let replaced = u64::try_from(foreigners.len()).unwrap();
    assert_eq!(node.metrics.redis().errors(RedisOperation::Claim), replaced);
}

#[tokio::test]
async fn of_two_that_claim_such_a_key_at_once_one_wins() {
    let server = Server::start(&[]).await;
    let (one, two) = (Setup::new(server.url()).up().await, Setup::new(server.url()).up().await);
    for (round, foreigner) in foreigners().iter().cycle().take(64).enumerate() {
        let n = u32::try_from(round).unwrap();
        put(&server, n, foreigner);
        let claim = async |redis: &Redis, id: i64| redis.claims(&[unclaimed(n, event(id))]).await[0];
        let replies = tokio::join!(claim(&one.redis, 1), claim(&two.redis, 2));
        assert!(
            replies == (Reply::Absent, Reply::Holds(mark(event(1))))
                || replies == (Reply::Holds(mark(event(2))), Reply::Absent),
            "{replies:?}"
        );
    }
}

#[tokio::test]
async fn what_is_ours_is_never_replaced() {
    let server = Server::start(&[]).await;
    let node = Setup::new(server.url()).up().await;
    for ours in [mark(event(1)), Mark::Dead { event: event(1) }] {
        server
            .cli(&["SET", &name_of("shop", &key(1)), &ours.encode()])
            .assert_ok();
        // Between the claim and its second step another one has written.
        let script = crate::dedupe::redis::replace_command(&name_of("shop", &key(1)), event(2));
        let words: Vec<&str> = script.iter().map(String::as_str).collect();
        assert_eq!(server.cli(&words).0, ours.encode());
        assert_eq!(node.redis.look(&source(), &key(1)).await, Reply::Holds(ours));
    }
}

#[tokio::test]
async fn looks_and_tellings_leave_such_a_key_alone_and_it_is_no_outage() {
    let server = Server::start(&[]).await;
    let node = Setup::new(server.url()).up().await;
    for foreigner in foreigners() {
        server.cli(&["DEL", &name_of("shop", &key(1))]);
        put(&server, 1, &foreigner);
        for _ in 0..=SILENT_TO_OPEN {
            assert_eq!(node.redis.look(&source(), &key(1)).await, Reply::Silent);
        }
        assert_eq!(node.metrics.redis().breaker_open.get(), 0);
        node.redis.tell(&[telling(1, durable(event(1)))]).await;
        assert_eq!(node.known(key(1)).await, None, "a durable does not cover it");
        let dead = Tell::Dead { event: event(1) };
        assert_eq!(node.redis.tell(&[telling(1, dead)]).await, [Told::Yes]);
        let held = Reply::Holds(Mark::Dead { event: event(1) });
        assert_eq!(node.redis.look(&source(), &key(1)).await, held);
    }
    let instead = Tell::Instead {
        of: event(1),
        event: event(2),
        body_mark: [0; 8],
    };
    assert_eq!(server.cli(&["LPUSH", &name_of("shop", &key(2)), "x"]).number(), 1);
    assert_eq!(node.redis.tell(&[telling(2, instead)]).await, [Told::Silent]);
    // Even under the key that probes read.
    assert_eq!(server.cli(&["LPUSH", "hooksluice:shop:probe", "x"]).number(), 1);
    let late = Setup::new(server.url()).up().await;
    assert_eq!(late.redis.look(&source(), &key(3)).await, Reply::Absent);
}

#[tokio::test]
async fn where_scripts_are_forbidden_such_a_key_stays_silent_and_its_neighbours_have_their_answers() {
    let server = Server::start(&[]).await;
    let rights = [
        "on",
        ">pw",
        "~hooksluice:*",
        "-@all",
        "+get",
        "+set",
        "+pexpire",
        "+info",
    ];
    server
        .cli(&[&["ACL", "SETUSER", "writer"], rights.as_slice()].concat())
        .assert_ok();
    let node = Setup::new(format!("redis://writer:pw@127.0.0.1:{}", server.port))
        .up()
        .await;
    for (n, foreigner) in (0..).zip(foreigners()) {
        put(&server, 2 * n, &foreigner);
        let slice = [2 * n, 2 * n + 1].map(|n| unclaimed(n, event(1)));
        assert_eq!(node.redis.claims(&slice).await, [Reply::Silent, Reply::Absent]);
    }
    assert!(node.redis.is_up());
    // The right to a script alone is not the right to what it does: nor is that an answer.
    let reader = ["on", ">pw", "~hooksluice:*", "-@all", "+eval", "+get", "+info"];
    server
        .cli(&[&["ACL", "SETUSER", "writer", "reset"], reader.as_slice()].concat())
        .assert_ok();
    assert_eq!(node.redis.claims(&[unclaimed(0, event(1))]).await, [Reply::Silent]);
}
