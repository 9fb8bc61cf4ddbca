//! Programs that the product leans on, as child processes: each ends with the test, also when the test does not end well.

use std::ffi::OsStr;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use super::eventually;

/// Beside the build, not in /tmp, which may be a file system in memory.
pub(crate) const TEMPORARY: &str = env!("CARGO_TARGET_TMPDIR");

/// A running program. When it is dropped it is killed, and when this process ends in any other way the kernel does it.
#[derive(Debug)]
pub(crate) struct Engine {
    child: Child,
}

impl Engine {
    /// Starts `command`, made by [`leashed`].
    pub(crate) fn start(command: Command) -> Self {
        Self {
            child: spawn(command).unwrap(),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal_child(&self.child, signal);
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().unwrap();
    }

    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    #[track_caller]
    pub(crate) fn wait_for_end(&mut self) -> ExitStatus {
        eventually("an engine to end", || self.ended())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Sends a signal to a child that has not been waited for.
pub(crate) fn signal_child(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// A command for `program` that gets `signal` when this process ends.
pub(crate) fn leashed(program: impl AsRef<OsStr>, signal: &str, user: User) -> Command {
    let mut command = Command::new("setpriv");
    if let (User::Unprivileged, Some(name)) = (user, unprivileged()) {
        command.args(["--reuid", name, "--regid", name, "--clear-groups"]);
    }
    command.args(["--pdeathsig", signal, "--"]).arg(program);
    command.stdin(Stdio::null());
    command
}

/// Who a program runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// As the tests do.
    Own,
    /// Not as root.
    Unprivileged,
}

/// The account for programs that refuse to run as root, if these tests do.
fn unprivileged() -> Option<&'static str> {
    static NAME: OnceLock<Option<&'static str>> = OnceLock::new();
    *NAME.get_or_init(|| {
        let known = |name: &&str| {
            let look = Command::new("getent").args(["passwd", name]).output();
            look.is_ok_and(|look| look.status.success())
        };
        // Root may be all that a small machine knows; then the engine says itself what it misses.
        geteuid()
            .is_root()
            .then(|| ["postgres", "nobody"].into_iter().find(known))?
    })
}

/// A directory that an unprivileged engine can use.
pub(crate) fn directory() -> TempDir {
    let Some(name) = unprivileged() else {
        return tempfile::tempdir_in(TEMPORARY).unwrap();
    };
    let run = |program: &str, arguments: &[&OsStr]| {
        let status = Command::new(program).args(arguments).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    // A build below a home directory may be out of reach for others.
    for place in [Path::new(TEMPORARY), Path::new("/var/tmp")] {
        let directory = tempfile::tempdir_in(place).unwrap();
        let path = directory.path().as_os_str();
        assert!(run("chown", &[OsStr::new(name), path]));
        let user = OsStr::new(name);
        let test = [
            OsStr::new("--reuid"),
            user,
            OsStr::new("--clear-groups"),
            OsStr::new("--regid"),
            user,
            OsStr::new("test"),
            OsStr::new("-w"),
            path,
        ];
        if run("setpriv", &test) {
            return directory;
        }
    }
    panic!("no directory that {name} can use");
}

/// Starts a child from a thread that lives as long as this process: the kernel ties a leash to the thread that forked.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, SyncSender<io::Result<Child>>);
    static NURSERY: OnceLock<SyncSender<Order>> = OnceLock::new();
    let nursery = NURSERY.get_or_init(|| {
        let (orders, waiting) = sync_channel::<Order>(0);
        std::thread::spawn(move || {
            for (mut command, reply) in waiting {
                reply.send(command.spawn()).ok();
            }
        });
        orders
    });
    let (reply, child) = sync_channel(1);
    nursery.send((command, reply)).unwrap();
    child.recv().unwrap()
}

/// A port of this machine's own network that stays ours while nobody listens on it: bound, never listening. Connecting
/// is refused meanwhile; listeners with `SO_REUSEADDR`, which every server sets, may come and go.
#[derive(Debug)]
pub(crate) struct Port {
    _keeper: Socket,
    address: SocketAddr,
}

impl Port {
    pub(crate) fn reserve() -> Self {
        let keeper = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        keeper.set_reuse_address(true).unwrap();
        let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        keeper.bind(&any.into()).unwrap();
        let address = keeper.local_addr().unwrap().as_socket().unwrap();
        Self {
            _keeper: keeper,
            address,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn number(&self) -> u16 {
        self.address.port()
    }
}

/// A program of the newest PostgreSQL that is installed: Debian keeps the server's programs out of the path.
pub(crate) fn postgres_program(name: &str) -> PathBuf {
    let mut found: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path().join("bin").join(name))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    found.pop().unwrap_or_else(|| PathBuf::from(name))
}
