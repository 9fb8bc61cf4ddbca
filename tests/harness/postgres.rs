//! A PostgreSQL cluster of the tests' own, with the durability that it has in production.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rustix::process::Signal;
use tempfile::TempDir;

use super::engine::{self, Engine, Port, User, leashed, postgres_program};
use super::eventually;

/// The role that the product uses: it owns its database and nothing else.
pub(crate) const ROLE: &str = "sluice";
pub(crate) const PASSWORD: &str = "postgres-test-password-0123456789";

/// When it is dropped it is stopped, and its directory goes.
#[derive(Debug)]
pub(crate) struct Postgres {
    engine: Option<Engine>,
    port: Port,
    directory: TempDir,
    databases: AtomicU32,
}

impl Postgres {
    /// A cluster that a test may harm.
    pub(crate) fn start() -> Self {
        let directory = engine::directory();
        let mut init = leashed(postgres_program("initdb"), "KILL", User::Unprivileged);
        let password = directory.path().join("password");
        std::fs::write(&password, PASSWORD).unwrap();
        init.arg("--pgdata").arg(directory.path().join("data"));
        init.arg("--pwfile").arg(&password);
        // The start's own files need not survive the machine; what the product commits must.
        init.args(["--username=postgres", "--auth=scram-sha-256", "--no-sync"]);
        init.args(["--encoding=UTF8", "--no-locale", "--no-instructions"]);
        let output = init.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut postgres = Self {
            engine: None,
            port: Port::reserve(),
            directory,
            databases: AtomicU32::new(0),
        };
        postgres.restart();
        postgres.sql("postgres", &format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'"));
        postgres
    }

    /// The cluster for tests that only need a database: one while any of them runs.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
        // A test that failed while it started one leaves nothing half made.
        let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(running) = shared.upgrade() {
            return running;
        }
        let started = Arc::new(Self::start());
        *shared = Arc::downgrade(&started);
        started
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.engine.as_ref().unwrap().pid()
    }

    /// A copy of what it has now, which has not been started yet. [`Postgres::restart`] makes a primary of it, on a timeline
    /// of its own, as a fail-over does.
    pub(crate) fn copy(&self) -> Self {
        let directory = engine::directory();
        let mut backup = leashed(postgres_program("pg_basebackup"), "KILL", User::Unprivileged);
        backup.arg("--pgdata").arg(directory.path().join("data"));
        let url = format!("postgres://postgres:{PASSWORD}@{}/postgres", self.address());
        backup.args(["--checkpoint=fast", "--no-sync", "--dbname", &url]);
        let output = backup.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // Recovers what it brought along, finds no more, and goes on by itself.
        let signal = directory.path().join("data/recovery.signal");
        std::fs::write(signal, "").unwrap();
        Self {
            engine: None,
            port: Port::reserve(),
            directory,
            databases: AtomicU32::new(self.databases.load(Ordering::Relaxed)),
        }
    }

    /// A new, empty database that belongs to [`ROLE`].
    pub(crate) fn database(&self) -> Database {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("sluice_{number}");
        self.sql("postgres", &format!("CREATE DATABASE {name} OWNER {ROLE}"));
        Database {
            name,
            address: self.address(),
        }
    }

    /// Rows of the answer as a superuser gets it, fields separated by `|`.
    #[track_caller]
    pub(crate) fn sql(&self, database: &str, sql: &str) -> String {
        let url = format!("postgres://postgres:{PASSWORD}@{}/{database}", self.address());
        query(&url, sql).unwrap_or_else(|said| panic!("{sql}: {said}"))
    }

    /// Starts it (again, if it runs: as after a crash), on the same port and data.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.path().join("log"))
            .unwrap();
        // SIGQUIT: it takes its shared memory along.
        let mut command = leashed(postgres_program("postgres"), "QUIT", User::Unprivileged);
        command.arg("-D").arg(self.data());
        for setting in [
            "listen_addresses=127.0.0.1",
            &format!("port={}", self.port.number()),
            "unix_socket_directories=",
            "max_connections=200",
            "shared_buffers=64MB",
            "timezone=UTC",
            // Only for a copy.
            "restore_command=false",
        ] {
            command.args(["-c", setting]);
        }
        command.stdout(Stdio::null()).stderr(log);
        self.engine = Some(Engine::start(command));
        eventually("Postgres to answer", || {
            if let Some(status) = self.engine.as_mut().unwrap().ended() {
                panic!("Postgres ended with {status}:\n{}", self.log());
            }
            let url = format!("postgres://postgres:{PASSWORD}@{}/postgres", self.address());
            query(&url, "SELECT 1").ok()
        });
    }

    /// Stops at once and cleans up nothing; the next start recovers.
    pub(crate) fn stop_immediately(&mut self) {
        if let Some(mut engine) = self.engine.take() {
            engine.signal(Signal::QUIT);
            engine.wait_for_end();
        }
    }

    /// SIGKILL of the postmaster; its processes notice and end.
    pub(crate) fn kill(&mut self) {
        if let Some(mut engine) = self.engine.take() {
            engine.kill();
        }
        // It holds the data until the last of them is gone; a new one would refuse to start.
        let lock = self.data().join("postmaster.pid");
        if lock.exists() {
            eventually("Postgres's last process to end", || {
                let path = self.data();
                (!processes_on(&path)).then_some(())
            });
        }
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.signal(Signal::QUIT);
            for _ in 0..2000 {
                if engine.ended().is_some() {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }
}

/// Whether a process works in this directory, as every process of a cluster does.
fn processes_on(data: &std::path::Path) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return false;
    };
    processes
        .flatten()
        .any(|process| std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == data))
}

/// A database of a test's own.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    name: String,
    address: SocketAddr,
}

impl Database {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn url(&self) -> String {
        self.url_by(self.address)
    }

    /// Reached by another address: a relay's, a pooler's.
    pub(crate) fn url_by(&self, address: SocketAddr) -> String {
        format!("postgres://{ROLE}:{PASSWORD}@{address}/{}", self.name)
    }

    /// As the product's role.
    #[track_caller]
    pub(crate) fn sql(&self, sql: &str) -> String {
        query(&self.url(), sql).unwrap_or_else(|said| panic!("{sql}: {said}"))
    }
}

/// Rows of the answer, or what psql said.
pub(crate) fn query(url: &str, sql: &str) -> Result<String, String> {
    let mut command = Command::new(postgres_program("psql"));
    command
        .args(["--no-psqlrc", "--tuples-only", "--no-align", "--quiet"])
        .args(["--set", "ON_ERROR_STOP=1", "--command", sql, url])
        .env("PGCONNECT_TIMEOUT", "10")
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap().trim_end().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
