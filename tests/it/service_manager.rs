//! What a service manager is told (sd_notify(3)), with a socket of ours in the place of systemd's.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::postgres::Postgres;
use crate::harness::sign::SECRET;
use crate::harness::{PATIENCE, Setup, Upstream, eventually, server};

/// The receiving end of `$NOTIFY_SOCKET`.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
    _directory: TempDir,
}

impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            path,
            _directory: directory,
        }
    }

    /// The command under this manager, with a watchdog of this period.
    fn starts(&self, mut command: Command, watchdog: Duration) -> Command {
        command.env("NOTIFY_SOCKET", &self.path);
        command.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        command
    }

    #[track_caller]
    fn next(&self) -> String {
        let mut bytes = [0; 500];
        let length = self.socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    /// The next message that is no feeding of the watchdog.
    #[track_caller]
    fn next_state(&self) -> String {
        eventually("a state", || Some(self.next()).filter(|said| said != "WATCHDOG=1"))
    }

    fn said_nothing(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let said = self.socket.recv(&mut [0; 500]);
        self.socket.set_nonblocking(false).unwrap();
        said.is_err()
    }
}

/// Far apart enough to count, near enough to wait for.
const WATCHDOG: Duration = Duration::from_millis(40);

#[test]
fn a_service_manager_hears_of_start_and_end_and_that_the_process_lives_in_between() {
    let manager = Manager::new();
    let setup = Setup::new(&Upstream::start()).plain();
    let server = setup.start_command(manager.starts(setup.command(), WATCHDOG));
    assert_eq!(manager.next_state(), "READY=1");
    assert!(!server::is_closed(server.address()));
    for _ in 0..5 {
        assert_eq!(manager.next(), "WATCHDOG=1");
    }
    server.stop();
    assert_eq!(manager.next_state(), "STOPPING=1");
}

#[test]
fn a_start_that_cannot_listen_is_never_ready() {
    let manager = Manager::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let store = tempfile::tempdir().unwrap();
    let mut command = server::program();
    command.args(["serve", "--provider", "hmac", "--secret-env", "HOOK_SECRET"]);
    command.args(["--upstream", "http://127.0.0.1:9", "--admin-listen", "127.0.0.1:0"]);
    command.args(["--listen", &taken.local_addr().unwrap().to_string(), "--store"]);
    command.arg(store.path().join("store")).env("HOOK_SECRET", SECRET);
    let output = manager.starts(command, WATCHDOG).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(manager.said_nothing());
}

/// systemd would kill the process and start another, which could not reach the database either, and would have lost its
/// connections, its leases and what it remembers.
#[test]
fn a_database_that_is_away_does_not_starve_the_watchdog() {
    let manager = Manager::new();
    let mut postgres = Postgres::start();
    let setup = Setup::new(&Upstream::start())
        .plain()
        .postgres(&postgres.database().url())
        .allow_log("");
    let server = setup.start_command(manager.starts(setup.command(), WATCHDOG));
    assert_eq!(manager.next_state(), "READY=1");
    postgres.kill();
    server.wait_until_refusing();
    while !manager.said_nothing() {}
    for _ in 0..5 {
        assert_eq!(manager.next(), "WATCHDOG=1");
    }
    assert_eq!(server.admin_get("/healthz").status, 200);
}

/// `systemctl reload` waits for the end of a reload, also of one that changes nothing.
#[test]
fn a_service_manager_hears_when_a_reload_begins_and_when_it_is_over() {
    let manager = Manager::new();
    let setup = Setup::new(&Upstream::start())
        .plain()
        .allow_log("configuration refused")
        .allow_log("nothing was changed");
    let server = setup.start_command(manager.starts(setup.command(), WATCHDOG));
    assert_eq!(manager.next_state(), "READY=1");
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
    for text in [setup.text(), "what is this".to_owned()] {
        std::fs::write(setup.directory().join("hooksluice.toml"), text).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
        let began = manager.next_state();
        assert!(began.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{began}");
        assert_eq!(manager.next_state(), "READY=1");
    }
    server.stop();
}
