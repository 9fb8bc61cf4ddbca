//! The faults themselves: a test that cuts a network should know that it is cut.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::harness::bouncer::Bouncer;
use crate::harness::engine::Port;
use crate::harness::eventually;
use crate::harness::postgres::{self, Postgres};
use crate::harness::redis::{self, Redis, Reply, Sentinel};
use crate::harness::relay::{Relay, Trap};

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(10);

/// A connection that is logged in.
fn open(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
        .write_all(format!("AUTH {}\r\n", redis::PASSWORD).as_bytes())
        .unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
    stream
}

fn set(redis: &Redis, key: &str) {
    redis.command(&["SET", key, "v", "PX", "600000"]);
}

#[test]
fn a_reserved_port_refuses_and_can_be_listened_on_again_and_again() {
    let port = Port::reserve();
    for _ in 0..3 {
        assert!(TcpStream::connect(port.address()).is_err());
        let listener = TcpListener::bind(port.address()).unwrap();
        let mut there = TcpStream::connect(port.address()).unwrap();
        let (here, _) = listener.accept().unwrap();
        drop(here);
        assert_eq!(there.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn redis_forgets_over_a_restart_unless_it_is_durable() {
    let mut forgetful = Redis::start();
    let mut durable = Redis::durable();
    for redis in [&mut forgetful, &mut durable] {
        set(redis, "hooksluice:a:b:c");
        redis.assert_all_expire();
        redis.restart();
    }
    assert_eq!(forgetful.keys().len(), 0);
    assert_eq!(durable.keys().len(), 1);
    durable.flush();
    assert_eq!(durable.keys().len(), 0);
    durable.kill();
    assert!(TcpStream::connect(durable.address()).is_err());
}

#[test]
#[should_panic(expected = "would stay for ever")]
fn a_key_without_an_end_is_noticed() {
    let redis = Redis::start();
    redis.command(&["SET", "hooksluice:a:b:c", "v"]);
    redis.assert_all_expire();
}

#[test]
fn a_frozen_redis_takes_connections_and_says_nothing() {
    let redis = Redis::start();
    redis.freeze();
    let mut stream = TcpStream::connect(redis.address()).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    stream.set_read_timeout(Some(SHORT)).unwrap();
    let silence = stream.read(&mut [0]).unwrap_err();
    assert!(matches!(silence.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    redis.thaw();
    stream.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 1);
}

#[test]
fn a_replica_has_what_its_primary_has_and_can_be_promoted() {
    let mut primary = Redis::start();
    set(&primary, "hooksluice:a:b:c");
    let replica = primary.replica();
    assert!(matches!(replica.command(&["SET", "x", "y"]), Reply::Error(said) if said.starts_with("READONLY")));
    primary.kill();
    replica.promote();
    set(&replica, "hooksluice:a:b:d");
    assert_eq!(replica.keys().len(), 2);
    primary.restart();
    primary.follow(&replica);
    assert_eq!(primary.keys().len(), 2);
}

#[test]
fn sentinel_promotes_the_replica_of_a_primary_that_is_gone() {
    let mut primary = Redis::start();
    let replica = primary.replica();
    let sentinel = Sentinel::watching(&primary, 1);
    assert_eq!(sentinel.primary(), primary.address());
    primary.kill();
    eventually("the fail-over", || {
        let promoted = sentinel.primary() == replica.address();
        (promoted && matches!(replica.command(&["SET", "x", "y"]), Reply::Simple(_))).then_some(())
    });
}

#[test]
fn postgres_keeps_what_it_committed_over_a_crash() {
    let mut cluster = Postgres::start();
    let database = cluster.database();
    database.sql("CREATE TABLE t (n int)");
    for number in 0..4 {
        database.sql(&format!("INSERT INTO t VALUES ({number})"));
        match number {
            0 => cluster.kill(),
            1 => cluster.stop_immediately(),
            _ => {}
        }
        if number < 2 {
            assert!(postgres::query(&database.url(), "SELECT 1").is_err());
        }
        cluster.restart();
    }
    assert_eq!(database.sql("SELECT count(*) FROM t"), "4");
}

#[test]
fn databases_are_apart_and_belong_to_a_role_that_may_little() {
    let cluster = Postgres::shared();
    let (one, other) = (cluster.database(), cluster.database());
    one.sql("CREATE TABLE t (n int)");
    assert!(postgres::query(&other.url(), "SELECT * FROM t").is_err());
    assert_eq!(one.sql("SELECT current_setting('is_superuser')"), "off");
    assert_eq!(one.sql("SHOW fsync"), "on");
}

#[test]
fn pgbouncer_hands_each_transaction_to_any_server_connection() {
    let cluster = Postgres::shared();
    let database = cluster.database();
    let bouncer = Bouncer::start(cluster.address(), &database);
    let url = database.url_by(bouncer.address());
    let addressed = postgres::query(&url, "SELECT current_database()").unwrap();
    assert_eq!(addressed, database.name());
    // Another client gets the same server connection, which a session of its own would not be.
    let backend = || postgres::query(&url, "SELECT pg_backend_pid()").unwrap();
    assert_eq!(backend(), backend());
}

#[test]
fn a_relay_passes_is_cut_refuses_and_heals() {
    let redis = Redis::start();
    let relay = Relay::to(redis.address());
    let ping = || redis::try_command(relay.address(), &["PING"]);
    ping().unwrap();
    let mut stream = open(relay.address());
    relay.cut();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    ping().unwrap();
    relay.refuse();
    assert_eq!(ping().unwrap_err().kind(), ErrorKind::ConnectionRefused);
    relay.heal();
    ping().unwrap();
    drop(redis);
    assert!(ping().is_err(), "nobody is behind it");
}

#[test]
fn a_relay_holds_and_slows() {
    let redis = Redis::start();
    let relay = Relay::to(redis.address());
    let mut held = open(relay.address());
    relay.hold();
    held.write_all(b"PING\r\n").unwrap();
    held.set_read_timeout(Some(SHORT)).unwrap();
    assert!(held.read(&mut [0]).is_err());
    // Also for those who come meanwhile.
    let mut late = TcpStream::connect(relay.address()).unwrap();
    late.write_all(b"PING\r\n").unwrap();
    late.set_read_timeout(Some(SHORT)).unwrap();
    assert!(late.read(&mut [0]).is_err());
    relay.heal();
    for stream in [&mut held, &mut late] {
        stream.set_read_timeout(Some(LONG)).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 1);
    }
    held.read_exact(&mut [0; 6]).unwrap();
    relay.slow(SHORT);
    held.set_read_timeout(Some(SHORT / 2)).unwrap();
    held.write_all(b"PING\r\n").unwrap();
    assert!(held.read(&mut [0]).is_err(), "the answer is not there yet");
    held.set_read_timeout(Some(LONG)).unwrap();
    held.read_exact(&mut [0; 7]).unwrap();
}

#[test]
fn a_trap_cuts_before_or_after_the_effect() {
    let redis = Redis::start();
    let relay = Relay::to(redis.address());
    let key = "hooksluice:a:b:c";
    let set = || redis::try_command(relay.address(), &["SET", key, "v", "PX", "600000"]);
    relay.trap("SET", Trap::CutBefore);
    assert!(set().is_err());
    relay.wait_for_trap();
    assert_eq!(redis.keys().len(), 0);
    relay.trap("SET", Trap::CutAfter);
    assert!(set().is_err());
    relay.wait_for_trap();
    eventually("the effect", || (redis.keys().len() == 1).then_some(()));
    set().unwrap();
}

#[test]
fn a_trap_holds_before_or_after_the_effect() {
    let redis = Redis::start();
    for (trap, effect) in [(Trap::HoldBefore, 0), (Trap::HoldAfter, 1)] {
        redis.flush();
        let relay = Relay::to(redis.address());
        relay.trap("SET", trap);
        let mut stream = open(relay.address());
        stream
            .write_all(b"PING\r\nSET hooksluice:a:b:c v PX 600000\r\n")
            .unwrap();
        relay.wait_for_trap();
        eventually("the effect", || (redis.keys().len() == effect).then_some(()));
        relay.heal();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut answers = [0; 12];
        stream.read_exact(&mut answers).unwrap();
        assert_eq!(&answers, b"+PONG\r\n+OK\r\n");
        assert_eq!(redis.keys().len(), 1);
    }
}

#[test]
fn a_trap_ends_what_the_client_sends_and_lets_the_answers_through() {
    let redis = Redis::start();
    let relay = Relay::to(redis.address());
    relay.trap("SET", Trap::HalfClose);
    let mut stream = open(relay.address());
    stream
        .write_all(b"PING\r\nSET hooksluice:a:b:c v PX 600000\r\n")
        .unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    assert_eq!(answers, "+PONG\r\n");
    assert_eq!(redis.keys().len(), 0);
}

#[test]
fn a_relay_can_be_pointed_elsewhere() {
    let (one, other) = (Redis::start(), Redis::start());
    set(&other, "hooksluice:a:b:c");
    let relay = Relay::to(one.address());
    let size = || redis::try_command(relay.address(), &["DBSIZE"]).unwrap();
    assert_eq!(size(), Reply::Integer(0));
    relay.point_to(other.address());
    assert_eq!(size(), Reply::Integer(1));
}
