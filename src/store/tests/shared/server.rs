//! A PostgreSQL server of the tests' own: started once per test binary, ended with it, one database for each test.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use tokio_util::task::TaskTracker;

use crate::secret::Secret;

/// Makes a cluster in a temporary folder and runs it until its standard input ends, which happens whatever way the test
/// process does.
const RUN: &str = r#"
set -eu
dir=$(mktemp -d /tmp/hooksluice-postgres-XXXXXX)
trap 'rm -rf "$dir"' EXIT
"$1/initdb" -D "$dir/data" -A trust -U postgres -E UTF8 --no-sync >"$dir/initdb.log" 2>&1
"$1/postgres" -D "$dir/data" -c port="$2" -c listen_addresses=127.0.0.1 -c unix_socket_directories="$dir" \
    -c max_connections=400 -c fsync=off -c full_page_writes=off -c logging_collector=off \
    -c log_statement=none >"$dir/log" 2>&1 </dev/null &
server=$!
echo "$dir"
cat >/dev/null
kill -INT "$server"
wait "$server" || true
"#;

pub(in crate::store::tests) static SERVER: LazyLock<Server> = LazyLock::new(Server::start);

#[derive(Debug)]
pub(in crate::store::tests) struct Server {
    pub(in crate::store::tests) port: u16,
    /// Holds the standard input open.
    _runner: Child,
}

impl Server {
    fn start() -> Self {
        let port = free_port();
        let mut command = as_nobody_special("sh");
        let mut runner = command
            .args(["-c", RUN, "sh"])
            .arg(binaries())
            .arg(port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .current_dir("/")
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = runner.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let directory = PathBuf::from(line.trim());
        assert!(directory.is_absolute(), "PostgreSQL could not be started");
        Self { port, _runner: runner }
    }

    pub(in crate::store::tests) fn url(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }
}

/// A database of one test.
#[derive(Debug)]
pub(in crate::store::tests) struct Database {
    pub(in crate::store::tests) name: String,
    /// Drives the connections of [`Database::connect`].
    tracker: TaskTracker,
}

impl Database {
    pub(in crate::store::tests) async fn create() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let database = Self {
            name: format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
            tracker: TaskTracker::new(),
        };
        let admin = connect("postgres", &database.tracker).await;
        admin
            .batch_execute(&format!("CREATE DATABASE {}", database.name))
            .await
            .unwrap();
        database
    }

    /// As the superuser.
    pub(in crate::store::tests) async fn connect(&self) -> Client {
        connect(&self.name, &self.tracker).await
    }

    pub(in crate::store::tests) async fn run(&self, sql: &str) {
        self.connect().await.batch_execute(sql).await.unwrap();
    }

    /// The number that a query answers.
    pub(in crate::store::tests) async fn number(&self, sql: &str) -> i64 {
        self.connect().await.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub(in crate::store::tests) fn url(&self) -> Secret {
        Secret::new(SERVER.url("postgres", &self.name))
    }
}

/// Connects as the superuser, as soon as the server answers.
async fn connect(database: &str, tracker: &TaskTracker) -> Client {
    let url = SERVER.url("postgres", database);
    let mut failure = None;
    for _ in 0..600 {
        match tokio_postgres::connect(&url, NoTls).await {
            Ok((client, connection)) => {
                tracker.spawn(async move {
                    let _ended = connection.await;
                });
                return client;
            }
            Err(error) => failure = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("PostgreSQL does not answer: {failure:?}");
}

/// PostgreSQL and its pooler refuse to run as root.
pub(in crate::store::tests) fn as_nobody_special(program: &str) -> Command {
    if rustix::process::geteuid().is_root() {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--", program]);
        command
    } else {
        Command::new(program)
    }
}

/// Where Debian puts the programs of each version, which are on nobody's path; or where they are on the path.
fn binaries() -> PathBuf {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|path| path.join("initdb").exists())
        .collect();
    found.sort();
    let on_path = || {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&paths).find(|path| path.join("initdb").exists())
    };
    found
        .pop()
        .or_else(on_path)
        .expect("these tests need PostgreSQL: apt-get install postgresql")
}

pub(in crate::store::tests) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}
