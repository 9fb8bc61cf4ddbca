//! What a Redis can do wrong: none of it is an answer (DD-03), none of it costs a sender its answer (DD-04).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::AsyncWriteExt;

use super::server::{Fake, Say, free_port, is_probe, usual};
use super::*;
use crate::dedupe::protocol::{Input, Mark, Reply, Stage};
use crate::dedupe::redis::breaker::SILENT_TO_OPEN;
use crate::dedupe::redis::{Telling, Told};
use crate::store::model::Claim;
use crate::telemetry::metrics::{LookResult, RedisOperation};

pub(super) fn mark(event: EventId) -> Mark {
    Mark::Durable {
        event,
        body_mark: [1; 8],
    }
}

pub(super) fn telling(n: u32, tell: Tell) -> Telling {
    Telling {
        namespace: Namespace::new("shop").unwrap(),
        source: source(),
        key: key(n),
        tell,
        since: Clock::system().monotonic(),
    }
}

/// Neither a look nor a claim nor a telling takes what this server says for an answer.
async fn assert_silent(node: &Node, n: u32) {
    assert_eq!(node.redis.look(&source(), &key(n)).await, Reply::Silent);
    assert_eq!(node.redis.claims(&[unclaimed(n, event(1))]).await, [Reply::Silent]);
    assert_eq!(node.redis.tell(&[telling(n, durable(event(1)))]).await, [Told::Silent]);
    assert_eq!(node.known(key(n)).await, None);
}

#[tokio::test]
async fn a_claim_takes_a_free_key_and_reads_its_own_id_back() {
    let server = Server::start(&[]).await;
    let node = Setup::new(server.url()).up().await;
    let slice: Vec<_> = (0..600).map(|n| unclaimed(n, event(i64::from(n)))).collect();
    assert!(node.redis.claims(&slice).await.iter().all(|r| *r == Reply::Absent));
    let again = node.redis.claims(&slice).await;
    for (asked, reply) in slice.iter().zip(again) {
        assert_eq!(reply, Reply::Holds(mark(asked.event)));
    }
    let other = node.redis.claims(&[unclaimed(0, event(1000))]).await;
    assert_eq!(other, [Reply::Holds(mark(event(0)))], "the first keeps it");
    assert_eq!(node.metrics.redis().errors(RedisOperation::Claim), 0);
}

/// Between client and server: hands on what the client says, and may swallow the answer and cut the connection.
struct Relay {
    port: u16,
    swallow: Arc<AtomicBool>,
}

impl Relay {
    async fn start(to: u16) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let swallow = Arc::new(AtomicBool::new(false));
        let (tasks, swallowing) = (TaskTracker::new(), Arc::clone(&swallow));
        tasks.clone().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = tokio::net::TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                let swallow = Arc::clone(&swallowing);
                tasks.spawn(async move {
                    let (mut from_client, mut to_client) = client.into_split();
                    let (mut from_server, mut to_server) = server.into_split();
                    tokio::select! {
                        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                        () = async {
                            let mut buffer = [0; 4096];
                            while let Ok(count) = tokio::io::AsyncReadExt::read(&mut from_server, &mut buffer).await {
                                let cut = count == 0 || swallow.load(Ordering::SeqCst);
                                if cut || to_client.write_all(&buffer[..count]).await.is_err() {
                                    return;
                                }
                            }
                        } => {}
                    }
                });
            }
        });
        Self { port, swallow }
    }
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_is_ours_when_it_is_asked_again() {
    let server = Server::start(&[]).await;
    let relay = Relay::start(server.port).await;
    let node = Setup::new(format!("redis://127.0.0.1:{}", relay.port)).up().await;
    relay.swallow.store(true, Ordering::SeqCst);
    assert_eq!(node.redis.claims(&[unclaimed(1, event(1))]).await, [Reply::Silent]);
    assert_eq!(
        server.cli(&["GET", &name_of("shop", &key(1))]).0,
        mark(event(1)).encode(),
        "the command had its effect"
    );
    relay.swallow.store(false, Ordering::SeqCst);
    node.wait_up().await;
    let replies = node.redis.claims(&[unclaimed(1, event(1))]).await;
    let protocol = Protocol {
        arrangement: Arrangement::Separate(OnDown::Refuse),
        digest_window: DIGEST_WINDOW,
    };
    let claim = Stage::Claim {
        event: event(1),
        late: true,
    };
    assert_eq!(
        protocol.step(&about(key(1), NOW), claim, Input::Heard(replies[0])),
        Stage::Admit {
            event: event(1),
            claim: Claim::Ours
        }
    );
}

#[tokio::test]
async fn every_key_has_a_time_to_live_from_the_command_that_sets_it() {
    let server = Server::start(&[]).await;
    let node = Setup::new(server.url()).up().await;
    node.redis.claims(&[unclaimed(1, event(1))]).await;
    node.tell(key(2), durable(event(2)));
    node.tell(key(3), Tell::Dead { event: event(3) });
    node.tell(key_of(4, KeyKind::Digest), durable(event(4)));
    node.told().await;
    let instead = Tell::Instead {
        of: event(1),
        event: event(5),
        body_mark: [1; 8],
    };
    assert_eq!(node.redis.tell(&[telling(1, instead)]).await, [Told::Yes]);
    let window = i64::try_from(WINDOW.as_millis()).unwrap();
    let twice = 2 * i64::try_from(DIGEST_WINDOW.as_millis()).unwrap();
    let ttl = |n: u32| server.cli(&["PTTL", &name_of("shop", &key(n))]).number();
    for (n, whole) in [(1, window), (2, window), (3, window), (4, twice)] {
        let left = ttl(n);
        assert!((whole - 60_000..=whole).contains(&left), "{n}: {left} of {whole}");
    }
    assert_eq!(server.cli(&["DBSIZE"]).number(), 4);
    // Renewed while a dispatch is undelivered; a digest key is not.
    for n in [1, 4] {
        assert_eq!(server.cli(&["PEXPIRE", &name_of("shop", &key(n)), "50000"]).number(), 1);
    }
    let keys = [(source(), key(1)), (source(), key_of(4, KeyKind::Digest))];
    assert_eq!(node.redis.renew(&keys).await, 0);
    assert!(ttl(1) > 60_000 && ttl(4) <= 50_000);
    // A source that retries for longer has come.
    node.redis.remember_for(WINDOW * 2);
    assert_eq!(node.redis.renew(&keys).await, 0);
    node.redis.claims(&[unclaimed(6, event(6))]).await;
    for (n, least) in [(1, window), (6, window), (2, 0)] {
        assert!((least..=(least + window)).contains(&ttl(n)), "{n}: {}", ttl(n));
    }
    assert!(ttl(4) <= 50_000);
}

#[tokio::test]
async fn instead_replaces_only_the_event_that_it_names() {
    let server = Server::start(&[]).await;
    let node = Setup::new(server.url()).up().await;
    let instead = |of| Tell::Instead {
        of,
        event: event(9),
        body_mark: [1; 8],
    };
    let (held, dead) = (mark(event(1)), Mark::Dead { event: event(1) });
    let held_by = async |n: u32| node.redis.look(&source(), &key(n)).await;
    let tell = async |n: u32, tell: Tell| assert_eq!(node.redis.tell(&[telling(n, tell)]).await, [Told::Yes]);
    for (n, before) in [
        (1, Some(durable(event(1)))),
        (2, Some(Tell::Dead { event: event(1) })),
        (3, None),
    ] {
        if let Some(before) = before {
            tell(n, before).await;
        }
        tell(n, instead(event(2))).await;
    }
    assert_eq!(held_by(1).await, Reply::Holds(held), "another event's key");
    for n in [1, 2, 3] {
        tell(n, instead(event(1))).await;
    }
    assert_eq!(held_by(1).await, Reply::Holds(mark(event(9))));
    assert_eq!(held_by(2).await, Reply::Holds(dead), "once dead, always dead");
    assert_eq!(held_by(3).await, Reply::Absent);
    // Repeated, it does nothing.
    tell(1, instead(event(1))).await;
    assert_eq!(held_by(1).await, Reply::Holds(mark(event(9))));
    tell(2, durable(event(5))).await;
    assert_eq!(held_by(2).await, Reply::Holds(dead), "a durable never covers a dead");
}

#[tokio::test]
async fn a_full_redis_refuses_claims_and_still_answers_looks() {
    let server = Server::start(&["--maxmemory-policy", "noeviction"]).await;
    let node = Setup::new(server.url()).up().await;
    assert_eq!(node.redis.claims(&[unclaimed(1, event(1))]).await, [Reply::Absent]);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]).assert_ok();
    assert_eq!(
        node.redis.claims(&[unclaimed(2, event(2))]).await,
        [Reply::Silent],
        "-OOM"
    );
    assert_eq!(node.redis.tell(&[telling(2, durable(event(2)))]).await, [Told::Silent]);
    assert_eq!(node.redis.look(&source(), &key(1)).await, Reply::Holds(mark(event(1))));
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]).assert_ok();
    assert_eq!(node.redis.claims(&[unclaimed(2, event(2))]).await, [Reply::Absent]);
}

#[tokio::test]
async fn evicted_and_flushed_keys_are_unknown_and_never_wrong() {
    let server = Server::start(&["--maxmemory", "2mb", "--maxmemory-policy", "allkeys-lru"]).await;
    let node = Setup::new(server.url()).up().await;
    let all: Vec<Telling> = (0..50_000).map(|n| telling(n, durable(event(i64::from(n))))).collect();
    assert!(node.redis.tell(&all).await.iter().all(|told| *told == Told::Yes));
    let mut known = 0;
    for n in (0..50_000).step_by(100) {
        match node.redis.look(&source(), &key(n)).await {
            Reply::Absent => {}
            Reply::Holds(held) => {
                assert_eq!(held.event(), event(i64::from(n)));
                known += 1;
            }
            Reply::Silent => panic!("silent"),
        }
    }
    assert!((1..400).contains(&known), "{known} of 500: most are evicted, not all");
    server.cli(&["FLUSHALL"]).assert_ok();
    for n in (0..50_000).step_by(100) {
        assert_eq!(node.known(key(n)).await, None);
    }
}

#[tokio::test]
async fn a_replica_is_never_asked_and_a_master_that_becomes_one_is_left() {
    let master = Server::start(&[]).await;
    let replica = Server::start(&["--replicaof", "127.0.0.1", &master.port.to_string()]).await;
    let node = Setup::new(master.url()).up().await;
    node.redis.claims(&[unclaimed(1, event(1))]).await;
    let other = Setup::new(replica.url()).start();
    until("the replica is refused", async || {
        other.metrics.redis().errors(RedisOperation::Connect) > 0
    })
    .await;
    assert!(!other.redis.is_up());
    assert_eq!(other.redis.look(&source(), &key(1)).await, Reply::Silent);

    let port = replica.port.to_string();
    replica.cli(&["REPLICAOF", "NO", "ONE"]).assert_ok();
    master.cli(&["REPLICAOF", "127.0.0.1", &port]).assert_ok();
    assert_eq!(
        node.redis.claims(&[unclaimed(2, event(2))]).await,
        [Reply::Silent],
        "-READONLY"
    );
    until("it is left", async || !node.redis.is_up()).await;
    other.wait_up().await;
    master.cli(&["REPLICAOF", "NO", "ONE"]).assert_ok();
    node.wait_up().await;
    assert_eq!(node.redis.claims(&[unclaimed(2, event(2))]).await, [Reply::Absent]);
}

#[tokio::test]
async fn what_the_user_may_not_do_is_no_answer() {
    let server = Server::start(&[]).await;
    let user = |name: &str, rights: &[&str]| {
        let base = ["ACL", "SETUSER", name, "on", ">pw", "~hooksluice:*", "-@all", "+get"];
        server.cli(&[&base, rights].concat()).assert_ok();
        Setup::new(format!("redis://{name}:pw@127.0.0.1:{}", server.port))
    };
    // Neither INFO nor CONFIG: it is used all the same.
    let reader = user("reader", &["+hello"]).up().await;
    assert_eq!(reader.redis.look(&source(), &key(1)).await, Reply::Absent);
    assert_eq!(reader.redis.claims(&[unclaimed(1, event(1))]).await, [Reply::Silent]);
    assert_eq!(
        reader.redis.tell(&[telling(1, durable(event(1)))]).await,
        [Told::Silent]
    );
    let writer = user("writer", &["+set", "+pexpire", "+info"]).up().await;
    assert_eq!(writer.redis.claims(&[unclaimed(1, event(1))]).await, [Reply::Absent]);
    let instead = Tell::Instead {
        of: event(1),
        event: event(2),
        body_mark: [0; 8],
    };
    assert_eq!(writer.redis.tell(&[telling(1, instead)]).await, [Told::Refused]);
    writer.tell(key(1), instead);
    writer.told().await;
    let refused = crate::telemetry::metrics::TellDropped::Refused;
    assert_eq!(writer.metrics.redis().tells_dropped(refused), 1);
    assert_eq!(
        writer.redis.look(&source(), &key(1)).await,
        Reply::Holds(mark(event(1)))
    );
    let wrong = Setup::new(format!("redis://reader:other@127.0.0.1:{}", server.port)).start();
    until("the log-in is refused", async || {
        wrong.metrics.redis().errors(RedisOperation::Connect) > 0
    })
    .await;
    assert_eq!(wrong.redis.look(&source(), &key(1)).await, Reply::Silent);
}

#[tokio::test]
async fn a_log_in_or_a_database_that_is_refused_needs_a_person() {
    let server = Server::start(&["--requirepass", "root"]).await;
    let at =
        |before: &str, after: &str| Setup::new(format!("redis://{before}127.0.0.1:{}{after}", server.port)).start();
    for (before, after, needed) in [
        ("", "", true),
        ("", "/1", true),
        (":other@", "", true),
        (":root@", "/1000", true),
        (":root@", "/1", false),
    ] {
        let node = at(before, after);
        assert_eq!(node.redis.needs_a_person().await, needed, "{before} {after}");
        node.end().await;
    }
    let nobody = Setup::new(format!("redis://127.0.0.1:{}", free_port())).start();
    assert!(!nobody.redis.needs_a_person().await, "away is another matter");
    nobody.end().await;
}

/// A server that answers the client's own questions as a fit one does, and everything else like this.
async fn answering(answer: &'static str) -> Fake {
    Fake::start(move || -> Say {
        Box::new(move |command| {
            let is_ours = command.iter().any(|word| word.starts_with("hooksluice:"));
            Some(if is_ours && !is_probe(command) {
                answer.to_owned()
            } else {
                usual(command)
            })
        })
    })
    .await
}

#[tokio::test]
async fn no_error_answer_is_an_answer() {
    for answer in [
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        "-READONLY You can't write against a read only replica.\r\n",
        "-MOVED 3999 127.0.0.1:1\r\n",
        "-ASK 3999 127.0.0.1:1\r\n",
        "-MASTERDOWN Link with MASTER is down\r\n",
        "-CLUSTERDOWN The cluster is down\r\n",
        "-NOREPLICAS Not enough good replicas to write.\r\n",
        "-ERR syntax error\r\n",
        "-BUSY Redis is busy running a script.\r\n",
        ":1\r\n",
        "*0\r\n",
        "$1\r\n1\r\n",
    ] {
        let fake = answering(answer).await;
        let node = Setup::new(fake.url()).up().await;
        assert_eq!(node.redis.look(&source(), &key(1)).await, Reply::Silent, "{answer}");
        node.wait_up().await;
        assert_eq!(
            node.redis.claims(&[unclaimed(1, event(1))]).await,
            [Reply::Silent],
            "{answer}"
        );
        if answer.starts_with('-') {
            node.wait_up().await;
            let told = node.redis.tell(&[telling(1, durable(event(1)))]).await;
            assert_eq!(told, [Told::Silent], "{answer}");
        }
        node.end().await;
    }
}

#[tokio::test]
async fn bytes_that_are_not_redis_s_language_end_the_connection() {
    let fake = answering("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let node = Setup::new(fake.url()).up().await;
    assert_eq!(node.redis.look(&source(), &key(1)).await, Reply::Silent);
    node.wait_up().await;
    assert_silent(&node, 1).await;
    node.end().await;
}

#[tokio::test]
async fn a_server_that_loads_is_not_up_before_it_has_loaded() {
    static LOADING: AtomicBool = AtomicBool::new(true);
    let fake = Fake::start(|| -> Say {
        Box::new(|command| {
            let is_loading = LOADING.load(Ordering::SeqCst) && command[0] == "GET";
            Some(if is_loading {
                "-LOADING Redis is loading\r\n".to_owned()
            } else {
                usual(command)
            })
        })
    })
    .await;
    let node = Setup::new(fake.url()).start();
    until("it was tried twice", async || {
        node.metrics.redis().errors(RedisOperation::Connect) >= 2
    })
    .await;
    assert!(!node.redis.is_up());
    LOADING.store(false, Ordering::SeqCst);
    node.wait_up().await;
    assert_eq!(node.redis.look(&source(), &key(1)).await, Reply::Absent);
    node.end().await;
}

#[tokio::test]
async fn an_older_redis_is_treated_as_if_it_were_away() {
    let fake = Fake::start(|| -> Say {
        Box::new(|command| Some(usual(command).replace("redis_version:7.0.15", "redis_version:6.2.14")))
    })
    .await;
    let node = Setup::new(fake.url()).start();
    until("it was refused twice", async || {
        node.metrics.redis().errors(RedisOperation::Connect) >= 2
    })
    .await;
    assert!(!node.redis.is_up());
    assert_eq!(node.redis.look(&source(), &key(1)).await, Reply::Silent);
    assert_eq!(node.metrics.redis().looks(LookResult::Skipped), 1);
    node.end().await;
}

#[tokio::test]
async fn looks_at_a_silent_server_stop_costing_anything_and_start_again_when_it_speaks() {
    static SILENT: AtomicBool = AtomicBool::new(false);
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let fake = Fake::start(|| -> Say {
        Box::new(|command| {
            if command[0] == "GET" && !is_probe(command) {
                ASKED.fetch_add(1, Ordering::SeqCst);
            }
            let is_silent = SILENT.load(Ordering::SeqCst) && command[0] == "GET";
            (!is_silent).then(|| usual(command))
        })
    })
    .await;
    let node = Setup {
        timeout: Duration::from_millis(200),
        ..Setup::new(fake.url())
    }
    .up()
    .await;
    assert_eq!(node.redis.look(&source(), &key(1)).await, Reply::Absent);
    SILENT.store(true, Ordering::SeqCst);
    let metrics = node.metrics.redis();
    until("the breaker opens", async || {
        assert_eq!(node.redis.look(&source(), &key(1)).await, Reply::Silent);
        metrics.breaker_open.get() == 1
    })
    .await;
    assert!(metrics.looks(LookResult::Silent) >= u64::from(SILENT_TO_OPEN));
    let asked = ASKED.load(Ordering::SeqCst);
    for n in 0..1000 {
        assert_eq!(node.redis.look(&source(), &key(n)).await, Reply::Silent);
    }
    assert_eq!(ASKED.load(Ordering::SeqCst), asked, "an open breaker asks nothing");
    SILENT.store(false, Ordering::SeqCst);
    until("looks are answered again", async || {
        node.redis.look(&source(), &key(1)).await == Reply::Absent
    })
    .await;
    assert_eq!(metrics.breaker_open.get(), 0);
    node.end().await;
}

#[tokio::test]
async fn a_stalled_server_holds_up_neither_looks_nor_the_end() {
    let server = Server::start(&[]).await;
    let setup = || Setup {
        timeout: Duration::from_millis(200),
        ..Setup::new(server.url())
    };
    let (node, ending) = (setup().up().await, setup().up().await);
    node.redis.claims(&[unclaimed(1, event(1))]).await;
    server.pause();
    let stopped = async {
        for _ in 0..1000 {
            assert_eq!(node.redis.look(&source(), &key(1)).await, Reply::Silent);
        }
    };
    // A thousand deadlines would be 200 s.
    tokio::time::timeout(PATIENCE, stopped)
        .await
        .expect("looks are held up");
    assert_eq!(node.redis.claims(&[unclaimed(2, event(2))]).await, [Reply::Silent]);
    ending.tell(key(3), durable(event(3)));
    ending.end().await;
    server.resume();
    until("looks are answered again", async || {
        node.redis.look(&source(), &key(1)).await == Reply::Holds(mark(event(1)))
    })
    .await;
}

#[tokio::test]
async fn a_start_without_redis_works_and_it_is_found_when_it_comes() {
    let port = free_port();
    let node = Setup::new(format!("redis://127.0.0.1:{port}")).start();
    until("it was tried", async || {
        node.metrics.redis().errors(RedisOperation::Connect) > 0
    })
    .await;
    assert_eq!(node.known(key(1)).await, None);
    node.tell(key(1), durable(event(1)));
    let args = ["--port", &port.to_string(), "--save", ""].map(str::to_owned);
    let mut server = Server::start_at(port, args.into(), &[]).await;
    node.told().await;
    assert_eq!(node.known(key(1)).await, Some(event(1)));
    // Killed and empty again: found again, and nothing is believed that is gone.
    server.kill();
    until("the loss is seen", async || !node.redis.is_up()).await;
    assert_eq!(node.known(key(1)).await, None);
    server.restart().await;
    node.wait_up().await;
    assert_eq!(node.known(key(1)).await, None);
    node.end().await;
}

#[tokio::test]
async fn two_deployments_with_equal_sources_do_not_see_each_other_s_keys() {
    let server = Server::start(&[]).await;
    let shop = Setup::new(server.url()).up().await;
    let other = Setup {
        namespace: Some("other"),
        ..Setup::new(server.url())
    }
    .up()
    .await;
    shop.tell(key(1), durable(event(1)));
    shop.told().await;
    assert_eq!(shop.known(key(1)).await, Some(event(1)));
    assert_eq!(other.known(key(1)).await, None);
    assert_eq!(other.redis.claims(&[unclaimed(1, event(2))]).await, [Reply::Absent]);
}

#[tokio::test]
async fn a_store_that_becomes_another_one_does_not_believe_the_old_one_s_keys() {
    let server = Server::start(&[]).await;
    let node = Setup::new(server.url()).up().await;
    node.tell(key(1), durable(event(1)));
    node.told().await;
    node.namespace.send_replace(None);
    assert_eq!(node.known(key(1)).await, None, "unknown: nothing is asked");
    node.tell(key(2), durable(event(2)));
    assert!(node.teller.is_empty(), "unknown: nothing is told");
    node.namespace.send_replace(Namespace::new("restored"));
    assert_eq!(node.known(key(1)).await, None);
    // Committed in the old store, told in the new one's time.
    node.teller
        .tell_of(Namespace::new("shop").unwrap(), source(), key(3), durable(event(3)));
    node.told().await;
    assert_eq!(node.known(key(3)).await, None);
    assert_eq!(server.cli(&["DBSIZE"]).number(), 1);
    node.namespace.send_replace(Namespace::new("shop"));
    assert_eq!(node.known(key(1)).await, Some(event(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_answer_for_the_old_store_is_not_believed_by_the_new_one() {
    let (asked, mut was_asked) = tokio::sync::mpsc::channel::<()>(1);
    let (answer, answered) = std::sync::mpsc::sync_channel::<()>(1);
    let answered = Arc::new(std::sync::Mutex::new(answered));
    let fake = Fake::start(move || -> Say {
        let (asked, answered) = (asked.clone(), Arc::clone(&answered));
        Box::new(move |command| {
            if command[0] == "GET" && !is_probe(command) {
                asked.try_send(()).unwrap();
                // The test's own thread goes on: it runs on another worker.
                answered.lock().unwrap().recv().unwrap();
                return Some(super::server::bulk(&mark(event(1)).encode()));
            }
            Some(usual(command))
        })
    })
    .await;
    let node = Setup::new(fake.url()).up().await;
    let looking = node.redis.clone();
    let look = node.tasks.spawn(async move { looking.look(&source(), &key(1)).await });
    was_asked.recv().await.unwrap();
    node.namespace.send_replace(Namespace::new("failed-over"));
    answer.send(()).unwrap();
    assert_eq!(look.await.unwrap(), Reply::Silent);
}

#[tokio::test]
async fn a_thousand_looks_at_once_share_one_connection() {
    let server = Server::start(&[]).await;
    let node = Setup::new(server.url()).up().await;
    node.redis.claims(&[unclaimed(7, event(7))]).await;
    let looks: Vec<_> = (0..1000)
        .map(|n| {
            let redis = node.redis.clone();
            node.tasks.spawn(async move { redis.look(&source(), &key(n)).await })
        })
        .collect();
    for (n, look) in looks.into_iter().enumerate() {
        let expected = if n == 7 {
            Reply::Holds(mark(event(7)))
        } else {
            Reply::Absent
        };
        assert_eq!(look.await.unwrap(), expected, "{n}: answers do not shift");
    }
    let stats = server.cli(&["INFO", "stats"]).0;
    let made = stats
        .lines()
        .find_map(|line| line.trim_end().strip_prefix("total_connections_received:"));
    let ours: u32 = made.unwrap().parse().unwrap();
    // One is ours, the rest redis-cli's: while the server started, and for this question.
    assert!(ours < 20, "{ours}");
}
