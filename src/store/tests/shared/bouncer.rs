//! The store behind PgBouncer in transaction mode: each transaction may run on another server connection, and nothing of a
//! session lasts.

use std::process::{Child, Stdio};
use std::time::Duration;

use super::server::{SERVER, as_nobody_special, free_port};
use super::{Bench, Postgres, SharedBench, of};
use crate::secret::Secret;
use crate::store::Store;
use crate::store::records::CallEnd;
use crate::store::tests::bench::{app, append, deliver};
use crate::store::tests::contract::calls::{call, start};
use crate::store::tests::contract::{contract, shared_contract};
use crate::time::Timestamp;

/// Runs the pooler until its standard input ends.
const RUN: &str = r#"
set -eu
dir=$(mktemp -d /tmp/hooksluice-pgbouncer-XXXXXX)
pooler=
trap '[ -z "$pooler" ] || kill -INT "$pooler"; rm -rf "$dir"' EXIT
cat >"$dir/ini" <<INI
[databases]
* = host=127.0.0.1 port=$2
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $3
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 6
max_client_conn = 500
INI
sed -i 's/^\* = .*/& user=postgres/' "$dir/ini"
"$1" "$dir/ini" >"$dir/log" 2>&1 </dev/null &
pooler=$!
cat >/dev/null
"#;

/// A store whose every connection goes through a pooler of its own.
pub(super) struct Pooled {
    inner: Postgres,
    url: Secret,
    /// Holds the pooler's standard input open.
    _pooler: Child,
}

impl Bench for Pooled {
    const SLACK: Duration = Postgres::SLACK;

    async fn new() -> Self {
        let inner = Postgres::new().await;
        let port = free_port();
        let pooler = as_nobody_special("sh")
            .args(["-c", RUN, "sh", "/usr/sbin/pgbouncer"])
            .args([SERVER.port.to_string(), port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .current_dir("/")
            .spawn()
            .unwrap();
        let url = format!("postgres://postgres@127.0.0.1:{port}/{}", inner.database.name);
        Self {
            inner,
            url: Secret::new(url),
            _pooler: pooler,
        }
    }

    fn setup(&self) -> &super::Setup {
        self.inner.setup()
    }

    fn setup_mut(&mut self) -> &mut super::Setup {
        self.inner.setup_mut()
    }

    async fn open(&self) -> Store {
        self.inner.try_open_at(self.url.clone()).await.unwrap()
    }

    async fn crash(&mut self, store: Store) {
        self.inner.crash(store).await;
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    async fn later(&self, by: Duration) {
        self.inner.later(by).await;
    }

    async fn keys_are_pruned(&self, store: &Store) {
        self.inner.keys_are_pruned(store).await;
    }

    async fn check(&self) {
        self.inner.check().await;
    }
}

impl SharedBench for Pooled {
    async fn freeze(&self, store: &Store) {
        of(store).freeze();
        self.inner.freeze(store).await;
    }
}

#[tokio::test]
async fn a_session_that_does_not_wait_for_the_disk_waits_for_ours() {
    let bench = Pooled::new().await;
    let lazy = format!(
        "ALTER DATABASE {} SET synchronous_commit = off",
        bench.inner.database.name
    );
    bench.inner.database.run(&lazy).await;
    bench.inner.open().await.close().await;
    bench.inner.database.watch_commits().await;
    let store = bench.open().await;
    let mut feed = store.feed(&app()).unwrap();
    for id in 0..5 {
        append(&store, &bench.delivery(id)).await;
        deliver(&store, &mut feed).await;
        let begun = start(&store, call(bench.now(), &id.to_string())).await;
        store.complete(begun, CallEnd::Unstored).await.unwrap();
    }
    bench.inner.database.no_commit_was_lazy().await;
}

contract!(Pooled);
shared_contract!(Pooled);
