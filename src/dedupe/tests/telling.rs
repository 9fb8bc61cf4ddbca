//! What Redis is told, and that it is told until it has it.

use std::sync::Mutex;

use super::server::free_port;
use super::*;
use crate::dedupe::protocol::{Mark, Reply};
use crate::dedupe::teller::TELLS;
use crate::telemetry::metrics::{RedisOperation, TellDropped};

/// A store's marks of deaths.
#[derive(Clone, Debug, Default)]
struct Marks(Arc<Mutex<Vec<Death>>>);

impl Marks {
    fn mark(&self, key: DedupeKey, event: EventId) -> Death {
        let death = Death {
            source: source(),
            key,
            event,
        };
        self.0.lock().unwrap().push(death.clone());
        death
    }

    fn left(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn deaths(&self) -> Deaths {
        let (read, told) = (self.clone(), self.clone());
        Deaths {
            untold: Box::new(move |limit| {
                let marks = read.0.lock().unwrap().iter().take(limit).cloned().collect();
                Box::pin(std::future::ready(marks))
            }),
            told: Box::new(move |deaths| {
                told.0.lock().unwrap().retain(|mark| !deaths.contains(mark));
                Box::pin(std::future::ready(()))
            }),
        }
    }
}

#[tokio::test]
async fn a_death_is_told_from_the_store_s_mark_after_a_restart_and_the_mark_goes() {
    let server = Server::start(&[]).await;
    let before = Setup::new(server.url()).up().await;
    before.tell(key(1), durable(event(1)));
    before.told().await;
    before.end().await;
    let marks = Marks::default();
    // More than are read at once.
    for n in 1..=2500 {
        marks.mark(key(n), event(i64::from(n)));
    }
    let node = Setup {
        deaths: marks.deaths(),
        ..Setup::new(server.url())
    }
    .start();
    until("every mark is told", async || marks.left() == 0).await;
    node.told().await;
    for n in [1, 2500] {
        assert_eq!(
            node.redis.look(&source(), &key(n)).await,
            Reply::Holds(Mark::Dead {
                event: event(i64::from(n))
            })
        );
    }
    assert_eq!(server.cli(&["DBSIZE"]).number(), 2500);
    node.end().await;
}

#[tokio::test]
async fn a_redelivery_goes_to_the_store_although_redis_was_away_when_the_event_died() {
    let mut server = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let marks = Marks::default();
    let node = Setup {
        deaths: marks.deaths(),
        ..Setup::new(server.url())
    }
    .up()
    .await;
    node.tell(key(1), durable(event(1)));
    node.told().await;
    assert_eq!(node.known(key(1)).await, Some(event(1)));
    server.kill();
    until("the loss is seen", async || !node.redis.is_up()).await;
    node.teller.died(marks.mark(key(1), event(1)));
    assert!(node.teller.has_death(&source(), &key(1)));
    server.restart().await;
    // At no moment does the old value answer: first the death is known here, then Redis has it.
    until("redis is told", async || {
        assert_eq!(node.known(key(1)).await, None);
        marks.left() == 0
    })
    .await;
    node.told().await;
    let dead = Reply::Holds(Mark::Dead { event: event(1) });
    assert_eq!(node.redis.look(&source(), &key(1)).await, dead);
    assert_eq!(node.known(key(1)).await, None);
    // Told a second time after a second death, and durable again by whoever was late: it stays.
    node.teller.died(marks.mark(key(1), event(1)));
    node.tell(key(1), durable(event(1)));
    until("redis is told again", async || marks.left() == 0).await;
    node.told().await;
    assert_eq!(node.redis.look(&source(), &key(1)).await, dead);
    node.end().await;
}

#[tokio::test]
async fn on_a_shared_store_a_durable_that_waited_is_dropped_and_a_death_is_not() {
    for (arrangement, is_dropped) in [
        (Arrangement::Shared, true),
        (Arrangement::Separate(OnDown::Store), false),
    ] {
        let port = free_port();
        let clock = Clock::manual(NOW);
        let node = Setup {
            arrangement,
            clock: clock.clone(),
            ..Setup::new(format!("redis://127.0.0.1:{port}"))
        }
        .start();
        node.tell(key(1), durable(event(1)));
        node.tell(key(2), Tell::Dead { event: event(2) });
        clock.set(NOW.after(Duration::from_secs(10)));
        node.tell(key(3), durable(event(3)));
        let args = ["--port", &port.to_string(), "--save", ""].map(str::to_owned);
        let server = Server::start_at(port, args.into(), &[]).await;
        node.told().await;
        let dropped = node.metrics.redis().tells_dropped(TellDropped::TooLate);
        assert_eq!(dropped, u64::from(is_dropped), "{arrangement:?}");
        assert_eq!(node.known(key(1)).await.is_none(), is_dropped, "{arrangement:?}");
        assert_eq!(node.known(key(3)).await, Some(event(3)));
        let dead = server.cli(&["GET", &name_of("shop", &key(2))]).0;
        assert_eq!(dead, format!("dead:{}", event(2)));
        node.end().await;
    }
}

#[tokio::test]
async fn the_queue_is_bounded_while_redis_is_away() {
    let node = Setup::new(format!("redis://127.0.0.1:{}", free_port())).start();
    for n in 0..u32::try_from(TELLS).unwrap() + 10 {
        node.tell(key(n), durable(event(1)));
    }
    assert_eq!(node.teller.len(), TELLS);
    let metrics = node.metrics.redis();
    assert_eq!(metrics.tells_dropped(TellDropped::Overflow), 10);
    assert_eq!(metrics.tells_queued.get(), i64::try_from(TELLS).unwrap());
    node.end().await;
}

#[tokio::test]
async fn tellings_are_repeated_until_redis_takes_them() {
    let server = Server::start(&["--maxmemory-policy", "noeviction", "--maxmemory", "1"]).await;
    let node = Setup::new(server.url()).up().await;
    for n in 0..1000 {
        node.tell(key(n), durable(event(i64::from(n))));
    }
    until("it was tried", async || {
        node.metrics.redis().errors(RedisOperation::Tell) > 0
    })
    .await;
    assert_eq!(node.teller.len(), 1000);
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]).assert_ok();
    node.told().await;
    assert_eq!(node.known(key(999)).await, Some(event(999)));
    assert_eq!(server.cli(&["DBSIZE"]).number(), 1000);
}

#[tokio::test]
async fn what_waits_at_the_end_is_told_once_more() {
    let server = Server::start(&[]).await;
    let node = Setup::new(server.url()).up().await;
    for n in 0..2000 {
        node.tell(key(n), durable(event(i64::from(n))));
    }
    node.end().await;
    assert_eq!(server.cli(&["DBSIZE"]).number(), 2000);
}
