//! A PostgreSQL server of the tests' own: started once per test binary, ended with it, one database for each test.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use tokio_util::task::TaskTracker;

use crate::secret::Secret;

/// Makes a cluster in a temporary folder and runs it until its standard input ends, which happens whatever way the test
/// process does.
const RUN: &str = r#"
set -eu
dir=$(mktemp -d /tmp/hooksluice-postgres-XXXXXX)
server=
stop() { if [ -n "$server" ]; then kill -INT "$server"; wait "$server" || true; fi; server=; }
trap 'stop; rm -rf "$dir"' EXIT
"$1/initdb" -D "$dir/data" -A trust -U postgres -E UTF8 --no-sync >"$dir/initdb.log" 2>&1
start() {
    "$1/postgres" -D "$dir/data" -c port="$2" -c listen_addresses=127.0.0.1 -c unix_socket_directories="$dir" \
        -c max_connections=400 -c fsync=off -c full_page_writes=off >>"$dir/log" 2>&1 </dev/null &
    server=$!
}
start "$@"
echo up
while read -r word; do
    stop
    case $word in
    # As after a recovery to a point in time, or a fail-over: the log goes on under another timeline.
    recover) echo "restore_command = 'false'" >>"$dir/data/postgresql.auto.conf"; touch "$dir/data/recovery.signal" ;;
    esac
    start "$@"
    echo up
done
"#;

/// What a server can be told.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::tests) enum Order {
    /// Stop and start again.
    Restart,
    /// The same, recovered from its log.
    Recover,
}

pub(in crate::store::tests) static SERVER: LazyLock<Server> = LazyLock::new(Server::start);

#[derive(Debug)]
pub(in crate::store::tests) struct Server {
    pub(in crate::store::tests) port: u16,
    /// Holds the standard input open.
    runner: Mutex<Child>,
}

impl Server {
    pub(in crate::store::tests) fn start() -> Self {
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
        wait_until_up(&mut runner);
        Self {
            port,
            runner: Mutex::new(runner),
        }
    }

    /// Does so and returns when the server's process runs again.
    pub(in crate::store::tests) fn order(&self, order: Order) {
        let mut runner = self.runner.lock().unwrap();
        let word = match order {
            Order::Restart => "restart",
            Order::Recover => "recover",
        };
        writeln!(runner.stdin.as_mut().unwrap(), "{word}").unwrap();
        wait_until_up(&mut runner);
    }

    pub(in crate::store::tests) fn url(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }
}

/// Reads the runner's word, a byte at a time: what it says next is for the next who waits.
fn wait_until_up(runner: &mut Child) {
    let mut said = String::new();
    let stdout = runner.stdout.as_mut().unwrap();
    while !said.ends_with('\n') {
        let mut byte = [0];
        assert_eq!(stdout.read(&mut byte).unwrap(), 1, "PostgreSQL could not be started");
        said.push(char::from(byte[0]));
    }
    assert_eq!(said, "up\n");
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
        database.create_on(&SERVER).await;
        database
    }

    pub(in crate::store::tests) async fn create_on(&self, server: &Server) {
        let create = format!("CREATE DATABASE {}", self.name);
        self.run_on(server, "postgres", &create).await;
    }

    pub(in crate::store::tests) async fn run_on(&self, server: &Server, database: &str, sql: &str) {
        let client = connect(server, database, &self.tracker).await;
        client.batch_execute(sql).await.unwrap();
    }

    /// As the superuser.
    pub(in crate::store::tests) async fn connect(&self) -> Client {
        connect(&SERVER, &self.name, &self.tracker).await
    }

    pub(in crate::store::tests) async fn run(&self, sql: &str) {
        self.connect().await.batch_execute(sql).await.unwrap();
    }

    /// The number that a query answers.
    pub(in crate::store::tests) async fn number(&self, sql: &str) -> i64 {
        self.connect().await.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Notes in each transaction of the open store that answers rest on what it would wait for at its commit.
    pub(in crate::store::tests) async fn watch_commits(&self) {
        self.run(
            "CREATE TABLE public.seen (setting text); GRANT ALL ON public.seen TO public; \
             CREATE FUNCTION public.look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO public.seen SELECT current_setting('synchronous_commit'); RETURN NULL; END $$; \
             CREATE TRIGGER look AFTER INSERT ON hooksluice.key FOR EACH STATEMENT EXECUTE FUNCTION public.look(); \
             CREATE TRIGGER look AFTER UPDATE ON hooksluice.dispatch FOR EACH STATEMENT EXECUTE FUNCTION public.look(); \
             CREATE TRIGGER look AFTER INSERT OR UPDATE OR DELETE ON hooksluice.record FOR EACH ROW EXECUTE FUNCTION public.look()",
        )
        .await;
    }

    /// What [`Database::watch_commits`] noted.
    pub(in crate::store::tests) async fn no_commit_was_lazy(&self) {
        let seen = self.number("SELECT count(*) FROM public.seen").await;
        let lazy = self
            .number("SELECT count(*) FROM public.seen WHERE setting <> 'on'")
            .await;
        assert!(seen >= 20 && lazy == 0, "{seen} seen, {lazy} lazy");
    }

    pub(in crate::store::tests) fn url(&self) -> Secret {
        Secret::new(SERVER.url("postgres", &self.name))
    }
}

/// Connects as the superuser, as soon as the server answers.
async fn connect(server: &Server, database: &str, tracker: &TaskTracker) -> Client {
    let url = server.url("postgres", database);
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
