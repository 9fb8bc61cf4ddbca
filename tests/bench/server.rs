//! The measured processes: starting them, and what the kernel says they used.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hooksluice::time::Clock;

use crate::engines::Engines;
use crate::upstream::Upstream;

/// Clock ticks per second in `/proc/PID/stat`: fixed by the kernel's ABI for user space (`USER_HZ`).
const USER_HZ: u64 = 100;
/// Starting, admitting what is left and delivering what is left must not take longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A child that is killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    address: SocketAddr,
}

/// What a process has used since it started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// User and system time of all its threads.
    pub(crate) cpu: Duration,
    /// Bytes that it caused to be written to the device.
    pub(crate) written: u64,
}

impl Usage {
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            written: self.written.saturating_sub(earlier.written),
        }
    }
}

impl Process {
    /// The bare server.
    pub(crate) fn bare() -> Self {
        Self::ourselves("--bare", None)
    }

    /// The bare proxy in front of `upstream`.
    pub(crate) fn bare_proxy(upstream: SocketAddr) -> Self {
        Self::ourselves("--bare-proxy", Some(upstream))
    }

    fn ourselves(what: &str, upstream: Option<SocketAddr>) -> Self {
        let address = free_address();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([what, &address.to_string()]);
        if let Some(upstream) = upstream {
            command.args(["--upstream", &upstream.to_string()]);
        }
        let child = command.spawn().unwrap();
        let process = Self { child, address };
        wait("the bare server to listen", || TcpStream::connect(address).is_ok());
        process
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            cpu: cpu_of(self.child.id()),
            written: number_after(&self.read("io"), "\nwrite_bytes:"),
        }
    }

    /// The most memory it ever had, in bytes.
    pub(crate) fn peak_rss(&self) -> u64 {
        number_after(&self.read("status"), "VmHWM:") * 1024
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap()
    }
}

/// User and system time of all threads of a process; none when it is gone.
pub(crate) fn cpu_of(pid: u32) -> Duration {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return Duration::ZERO;
    };
    // The second field is the program's name in brackets, which may hold blanks: count from its end.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 1000 / USER_HZ)
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// hooksluice on a store of its own.
#[derive(Debug)]
pub(crate) struct Server {
    process: Process,
    admin: SocketAddr,
    log: PathBuf,
}

impl Server {
    pub(crate) fn start(
        program: &Path,
        directory: &Path,
        engines: &Engines,
        upstream: SocketAddr,
        secret: &str,
        routes: &str,
    ) -> Self {
        fs::create_dir_all(directory).unwrap();
        let tables = engines.tables(directory);
        let (address, admin) = (free_address(), free_address());
        let config = directory.join("hooksluice.toml");
        fs::write(
            &config,
            format!(
                "listen = \"{address}\"\n\
                 [admin]\nlisten = \"{admin}\"\n\
                 {tables}\
                 [upstreams.app]\nurl = \"http://{upstream}\"\ntimeout = \"10m\"\n\
                 [sources.bench]\npath = \"/bench\"\nprovider = \"hmac\"\nupstreams = [\"app\"]\n\
                 secrets = [{{ env = \"BENCH_SECRET\" }}]\n\
                 {routes}"
            ),
        )
        .unwrap();
        let log = directory.join("log");
        let child = Command::new(program)
            .args(["serve", "-c"])
            .arg(&config)
            .env("BENCH_SECRET", secret)
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let process = Process { child, address };
        let server = Self { process, admin, log };
        server.wait("hooksluice to be ready", || {
            get(admin, "/readyz").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
        });
        server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.process.address
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Until nothing appended waits for admission, so that one measurement does not pay for another.
    pub(crate) fn wait_until_admitted(&self) {
        self.wait("everything to be admitted", || {
            get(self.admin, "/metrics").is_some_and(|metrics| number_after(&metrics, "\nhooksluice_unadmitted ") == 0)
        });
    }

    /// Until the upstream has had every event that was accepted.
    pub(crate) fn wait_until_delivered(&self, upstream: &Upstream, events: u64) {
        self.wait("every event to be forwarded", || upstream.count() >= events);
    }

    fn wait(&self, what: &str, done: impl FnMut() -> bool) {
        let done_in_time = within(PATIENCE, done);
        assert!(
            done_in_time,
            "waited {PATIENCE:?} for {what}; hooksluice said:\n{}",
            fs::read_to_string(&self.log).unwrap_or_default()
        );
    }
}

fn wait(what: &str, done: impl FnMut() -> bool) {
    assert!(within(PATIENCE, done), "waited {PATIENCE:?} for {what}");
}

fn within(patience: Duration, mut done: impl FnMut() -> bool) -> bool {
    let clock = Clock::system();
    let start = clock.monotonic();
    while clock.monotonic().since(start) < patience {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// The whole number that follows `label`.
fn number_after(text: &str, label: &str) -> u64 {
    let rest = text
        .split_once(label)
        .unwrap_or_else(|| panic!("no {label:?} in {text}"))
        .1;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}
