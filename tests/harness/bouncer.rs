//! PgBouncer in transaction mode: each transaction may run on another server connection, and nothing of a session lasts.

use std::net::SocketAddr;
use std::process::Stdio;

use tempfile::TempDir;

use super::engine::{self, Engine, Port, User, leashed};
use super::eventually;
use super::postgres::{Database, PASSWORD, ROLE, query};

#[derive(Debug)]
pub(crate) struct Bouncer {
    _engine: Engine,
    port: Port,
    _directory: TempDir,
}

impl Bouncer {
    /// In front of the cluster of `database`.
    pub(crate) fn start(postgres: SocketAddr, database: &Database) -> Self {
        let directory = engine::directory();
        let port = Port::reserve();
        let users = directory.path().join("users");
        std::fs::write(&users, format!("\"{ROLE}\" \"{PASSWORD}\"\n")).unwrap();
        let config = directory.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
             unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = 4\nmax_client_conn = 500\n",
            postgres.port(),
            port.number(),
            users.display(),
        );
        std::fs::write(&config, text).unwrap();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let mut command = leashed("/usr/sbin/pgbouncer", "KILL", User::Unprivileged);
        command.arg(config).stdout(Stdio::null()).stderr(log);
        let mut engine = Engine::start(command);
        let url = database.url_by(port.address());
        eventually("PgBouncer to answer", || {
            if let Some(status) = engine.ended() {
                let said = std::fs::read_to_string(directory.path().join("log"));
                panic!("PgBouncer ended with {status}: {said:?}");
            }
            query(&url, "SELECT 1").ok()
        });
        Self {
            _engine: engine,
            port,
            _directory: directory,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }
}
