//! Every way that Redis is set up: socket, ACL user, TLS, Sentinel, Cluster.

use std::sync::atomic::{AtomicU16, Ordering};

use super::server::{Certificates, Fake, Say, bulk, free_port, listens, usual};
use super::*;
use crate::dedupe::protocol::{Mark, Reply};
use crate::dedupe::redis::Told;
use crate::telemetry::metrics::RedisOperation;

/// Look, claim and each telling, on many keys.
async fn assert_works(node: &Node) {
    let events: Vec<_> = (0..300).map(|n| unclaimed(n, event(i64::from(n)))).collect();
    assert!(node.redis.claims(&events).await.iter().all(|r| *r == Reply::Absent));
    let tell = |n: u32, tell: Tell| crate::dedupe::redis::Telling {
        namespace: Namespace::new("shop").unwrap(),
        source: source(),
        key: key(n),
        tell,
        since: Clock::system().monotonic(),
    };
    let mut tellings = Vec::new();
    for n in 0..100 {
        let of = event(i64::from(n));
        let instead = Tell::Instead {
            of,
            event: event(1000),
            body_mark: [1; 8],
        };
        tellings.push(tell(n, instead));
        tellings.push(tell(n + 100, Tell::Dead { event: of }));
        tellings.push(tell(n + 300, durable(of)));
    }
    assert!(node.redis.tell(&tellings).await.iter().all(|told| *told == Told::Yes));
    for n in 0..100 {
        let of = event(i64::from(n));
        let held = async |n: u32| node.redis.look(&source(), &key(n)).await;
        let mark = |event| {
            Reply::Holds(Mark::Durable {
                event,
                body_mark: [1; 8],
            })
        };
        assert_eq!(held(n).await, mark(event(1000)));
        assert_eq!(held(n + 100).await, Reply::Holds(Mark::Dead { event: of }));
        assert_eq!(held(n + 200).await, mark(event(i64::from(n) + 200)));
        assert_eq!(held(n + 300).await, mark(of));
        assert_eq!(held(n + 400).await, Reply::Absent);
    }
    let keys: Vec<_> = (0..300).map(|n| (source(), key(n))).collect();
    assert_eq!(node.redis.renew(&keys).await, 0);
}

#[tokio::test]
async fn at_a_unix_socket_with_a_database() {
    let server = Server::start(&["--unixsocket", "redis.sock"]).await;
    let socket = server.dir.path().join("redis.sock");
    let node = Setup::new(format!("unix://{}?db=3", socket.display())).up().await;
    assert_works(&node).await;
    assert_eq!(server.cli(&["-n", "3", "DBSIZE"]).number(), 400);
}

#[tokio::test]
async fn as_an_acl_user_with_no_more_rights_than_needed() {
    let server = Server::start(&["--requirepass", "root"]).await;
    let password = "p@ss:/?#%word";
    let rights = [
        "-a",
        "root",
        "--no-auth-warning",
        "ACL",
        "SETUSER",
        "hooks",
        "on",
        &format!(">{password}"),
        "~hooksluice:shop:*",
        "-@all",
        "+get",
        "+set",
        "+eval",
        "+pexpire",
        "+info",
    ];
    server.cli(&rights).assert_ok();
    let url = format!("redis://hooks:p%40ss%3A%2F%3F%23%25word@127.0.0.1:{}", server.port);
    let node = Setup::new(url).up().await;
    assert_works(&node).await;
    let plain = Setup::new(format!("redis://:root@127.0.0.1:{}/1", server.port))
        .up()
        .await;
    assert_works(&plain).await;
}

fn tls_args(certificates: &Certificates, port: u16) -> Vec<String> {
    let certificate = certificates.text("server.pem");
    let (key, ca) = (certificates.text("server.key"), certificates.text("ca.pem"));
    let args = [
        "--port",
        "0",
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "no",
        "--save",
        "",
    ];
    args.map(str::to_owned).into()
}

#[tokio::test]
async fn over_tls_and_only_with_a_certificate_that_is_trusted() {
    let (certificates, others, port) = (Certificates::make(), Certificates::make(), free_port());
    let ca = certificates.text("ca.pem");
    let _server = Server::start_at(port, tls_args(&certificates, port), &["--tls", "--cacert", &ca]).await;
    for host in ["localhost", "127.0.0.1"] {
        let node = Setup::new(format!("rediss://{host}:{port}?ca={ca}")).up().await;
        node.redis.claims(&[unclaimed(1, event(1))]).await;
        assert_eq!(node.known(key(1)).await, Some(event(1)));
        node.end().await;
    }
    // The system's roots do not know it, nor does another authority.
    for url in [
        format!("rediss://localhost:{port}"),
        format!("rediss://localhost:{port}?ca={}", others.text("ca.pem")),
    ] {
        let stranger = Setup::new(url).start();
        until("it is refused", async || {
            stranger.metrics.redis().errors(RedisOperation::Connect) > 0
        })
        .await;
        assert!(!stranger.redis.is_up());
        stranger.end().await;
    }
}

#[tokio::test]
async fn behind_sentinels_through_a_fail_over() {
    let mut master = Server::start(&["--requirepass", "data", "--masterauth", "data"]).await;
    let replicaof = [
        "--requirepass",
        "data",
        "--masterauth",
        "data",
        "--replicaof",
        "127.0.0.1",
    ];
    let replica = Server::start(&[&replicaof, [master.port.to_string().as_str()].as_slice()].concat()).await;
    let sentinel = Server::sentinel(
        free_port(),
        &format!(
            "sentinel monitor main 127.0.0.1 {} 1\nsentinel auth-pass main data\nsentinel down-after-milliseconds main \
             500\nsentinel failover-timeout main 2000\nrequirepass watch\n",
            master.port
        ),
    )
    .await;
    until("the sentinel knows the replica", async || {
        let args = ["-a", "watch", "--no-auth-warning", "SENTINEL", "REPLICAS", "main"];
        sentinel.cli(&args).0.contains(&replica.port.to_string())
    })
    .await;
    let url = |service: &str| {
        format!(
            "redis+sentinel://:data@127.0.0.1:{},127.0.0.1:{}/{service}/1?sentinel_password=watch",
            free_port(),
            sentinel.port
        )
    };
    let node = Setup::new(url("main")).up().await;
    assert_works(&node).await;
    let unknown = Setup::new(url("unknown")).start();
    until("no such service", async || {
        unknown.metrics.redis().errors(RedisOperation::Connect) > 0
    })
    .await;
    assert!(!unknown.redis.is_up());

    master.kill();
    until("the loss is seen", async || !node.redis.is_up()).await;
    assert_eq!(node.redis.look(&source(), &key(1)).await, Reply::Silent);
    // Asked again and again, as admission does.
    until("the replica has taken over", async || {
        node.redis.claims(&[unclaimed(5000, event(5000))]).await != [Reply::Silent]
    })
    .await;
    let role = replica.cli(&["-a", "data", "--no-auth-warning", "ROLE"]).0;
    assert!(role.starts_with("master"), "{role}");
    assert_eq!(node.known(key(5000)).await, Some(event(5000)));
    node.end().await;
}

#[tokio::test]
async fn a_master_that_the_sentinels_have_replaced_is_left_although_it_answers() {
    let (old, new) = (Server::start(&[]).await, Server::start(&[]).await);
    let named = Arc::new(AtomicU16::new(old.port));
    let naming = Arc::clone(&named);
    let sentinel = Fake::start(move || -> Say {
        let naming = Arc::clone(&naming);
        Box::new(move |command| {
            if command[0] != "SENTINEL" {
                return Some(usual(command));
            }
            let port = naming.load(Ordering::SeqCst).to_string();
            Some(format!("*2\r\n{}{}", bulk("127.0.0.1"), bulk(&port)))
        })
    })
    .await;
    let node = Setup::new(format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port))
        .up()
        .await;
    assert_eq!(node.redis.claims(&[unclaimed(1, event(1))]).await, [Reply::Absent]);
    assert_eq!(old.cli(&["DBSIZE"]).number(), 1);
    named.store(new.port, Ordering::SeqCst);
    until("the new master is asked", async || {
        node.redis.look(&source(), &key(1)).await == Reply::Absent
    })
    .await;
    assert_eq!(node.redis.claims(&[unclaimed(2, event(2))]).await, [Reply::Absent]);
    assert_eq!(new.cli(&["DBSIZE"]).number(), 1);
    node.end().await;
}

#[tokio::test]
async fn in_a_cluster_of_three_masters() {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(Server::start(&["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]).await);
    }
    let addresses: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let create = [&["--cluster", "create"], addresses.as_slice(), &["--cluster-yes"]].concat();
    let created = nodes[0].cli(&create).0;
    assert!(created.contains("All 16384 slots covered"), "{created}");
    for node in &nodes {
        until("the cluster is whole", async || {
            node.cli(&["CLUSTER", "INFO"]).0.contains("cluster_state:ok")
        })
        .await;
    }
    let url = format!("redis+cluster://127.0.0.1:{},{}", free_port(), addresses[0]);
    let node = Setup::new(url).up().await;
    assert_works(&node).await;
    let sizes: Vec<i64> = nodes.iter().map(|node| node.cli(&["DBSIZE"]).number()).collect();
    assert_eq!(sizes.iter().sum::<i64>(), 400);
    assert!(sizes.iter().all(|size| *size > 50), "spread over the nodes: {sizes:?}");

    // One master gone, with nobody to take over: its keys are silent, and nobody's answer is wrong.
    let lost = nodes.pop().unwrap();
    let port = lost.port;
    drop(lost);
    until("it is gone", async || !listens(port)).await;
    let mut silent = 0;
    for n in 400..440 {
        match node.redis.look(&source(), &key(n)).await {
            Reply::Silent => silent += 1,
            Reply::Absent => {}
            held @ Reply::Holds(_) => panic!("{n}: {held:?}"),
        }
    }
    assert!(silent > 0);
    node.end().await;
}

#[tokio::test]
async fn in_a_cluster_over_tls_with_a_password() {
    let (certificates, port) = (Certificates::make(), free_port());
    let ca = certificates.text("ca.pem");
    let mut args = tls_args(&certificates, port);
    let more = [
        "--cluster-enabled",
        "yes",
        "--tls-cluster",
        "yes",
        "--requirepass",
        "p w",
    ];
    args.extend(more.map(str::to_owned));
    let cli = ["--tls", "--cacert", &ca, "-a", "p w", "--no-auth-warning"];
    let server = Server::start_at(port, args, &cli).await;
    server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).assert_ok();
    until("the cluster is whole", async || {
        server.cli(&["CLUSTER", "INFO"]).0.contains("cluster_state:ok")
    })
    .await;
    let node = Setup::new(format!("rediss+cluster://:p%20w@127.0.0.1:{port}?ca={ca}"))
        .up()
        .await;
    assert_works(&node).await;
    let wrong = Setup::new(format!("rediss+cluster://:other@127.0.0.1:{port}?ca={ca}")).start();
    until("the log-in is refused", async || {
        wrong.metrics.redis().errors(RedisOperation::Connect) > 0
    })
    .await;
    assert!(!wrong.redis.is_up());
}
