//! Starts and ends real Redis servers, and a fake one for answers that a real one cannot be made to give.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::until;

/// A port that nobody listens at, nor at the one of a Cluster's bus, and that no other test gets, also of another run at
/// the same time: a locked file for each port says whose it is, until the process ends.
pub(super) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    static TAKEN: Mutex<Vec<fs::File>> = Mutex::new(Vec::new());
    let locks = std::env::temp_dir().join("hooksluice-test-ports");
    fs::create_dir_all(&locks).unwrap();
    loop {
        // Below the ports that the system gives to outgoing connections (from 32768), the bus's too.
        let port = 11_000 + NEXT.fetch_add(1, Ordering::Relaxed) % 10_000;
        let lock = fs::File::create(locks.join(port.to_string())).unwrap();
        let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if lock.try_lock().is_ok() && is_free(port) && is_free(port + 10_000) {
            TAKEN.lock().unwrap().push(lock);
            return port;
        }
    }
}

/// A `redis-server` that ends with this value.
pub(super) struct Server {
    child: Child,
    program: &'static str,
    args: Vec<String>,
    pub(super) port: u16,
    pub(super) dir: TempDir,
    /// What `redis-cli` needs besides the port.
    pub(super) cli_args: Vec<String>,
}

impl Server {
    /// Starts one with these further arguments and waits until it answers.
    pub(super) async fn start(args: &[&str]) -> Self {
        let port = free_port();
        let mut all: Vec<String> = ["--port", &port.to_string(), "--save", "", "--appendonly", "no"]
            .map(str::to_owned)
            .into();
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        Self::start_at(port, all, &[]).await
    }

    /// Starts one that is told its port by `args`.
    pub(super) async fn start_at(port: u16, args: Vec<String>, cli_args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut server = Self {
            child: spawn("redis-server", &args, dir.path()),
            program: "redis-server",
            args,
            port,
            dir,
            cli_args: cli_args.iter().map(|arg| (*arg).to_owned()).collect(),
        };
        server.wait().await;
        server
    }

    /// Starts a Sentinel with this configuration.
    pub(super) async fn sentinel(port: u16, config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("sentinel.conf");
        fs::write(&file, format!("port {port}\n{config}")).unwrap();
        let args = vec![file.to_str().unwrap().to_owned(), "--sentinel".to_owned()];
        let mut server = Self {
            child: spawn("redis-server", &args, dir.path()),
            program: "redis-server",
            args,
            port,
            dir,
            cli_args: Vec::new(),
        };
        server.wait().await;
        server
    }

    async fn wait(&mut self) {
        until("the server answers", async || {
            if let Some(status) = self.child.try_wait().unwrap() {
                let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                panic!("redis-server ended: {status}\n{log}");
            }
            let answer = self.cli(&["PING"]);
            answer.0.contains("PONG") || answer.0.contains("NOAUTH")
        })
        .await;
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Asks it with `redis-cli`.
    pub(super) fn cli(&self, args: &[&str]) -> Answer {
        let output = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(&self.cli_args)
            .args(args)
            .output()
            .unwrap();
        Answer::of(&output)
    }

    /// Like a power cut.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again at the same port, with the files that it left.
    pub(super) async fn restart(&mut self) {
        self.child = spawn(self.program, &self.args, self.dir.path());
        self.wait().await;
    }

    /// It goes on listening, but does nothing.
    pub(super) fn pause(&self) {
        self.signal("-STOP");
    }

    pub(super) fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A paused one is killed too.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn spawn(program: &str, args: &[String], dir: &Path) -> Child {
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(dir.join("log"))
        .unwrap();
    Command::new(program)
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}; install Debian's redis-server"))
}

/// What `redis-cli` printed.
#[derive(Debug)]
pub(super) struct Answer(pub(super) String);

impl Answer {
    fn of(output: &Output) -> Self {
        let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
        Self(String::from_utf8(text).unwrap().trim_end().to_owned())
    }

    pub(super) fn assert_ok(&self) {
        assert_eq!(self.0, "OK");
    }

    pub(super) fn number(&self) -> i64 {
        self.0.parse().unwrap_or_else(|_| panic!("{self:?}"))
    }
}

/// A server that says what the test wants.
pub(super) struct Fake {
    pub(super) port: u16,
    _end: DropGuard,
}

/// What a fake says to a command: bytes, or nothing at all.
pub(super) type Say = Box<dyn FnMut(&[String]) -> Option<String> + Send>;

impl Fake {
    /// `make` makes what answers one connection.
    pub(super) async fn start(make: impl Fn() -> Say + Send + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let end = CancellationToken::new();
        let ended = end.clone();
        let connections = tokio_util::task::TaskTracker::new();
        connections.clone().spawn(async move {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted.unwrap().0,
                    () = ended.cancelled() => return,
                };
                let (say, ended) = (make(), ended.clone());
                connections.spawn(async move {
                    tokio::select! {
                        () = converse(accepted, say) => {}
                        () = ended.cancelled() => {}
                    }
                });
            }
        });
        Self {
            port,
            _end: end.drop_guard(),
        }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

/// What a fit server says to everything that is not the test's concern.
pub(super) fn usual(command: &[String]) -> String {
    let word = |n: usize| command.get(n).map(|word| word.to_ascii_uppercase()).unwrap_or_default();
    match (word(0).as_str(), word(1).as_str()) {
        ("INFO", "SERVER") => bulk("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n"),
        ("INFO", "REPLICATION") => bulk("# Replication\r\nrole:master\r\n"),
        ("INFO", "MEMORY") => bulk("# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"),
        ("GET", _) => "$-1\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    }
}

/// A probe of the client, not a look.
pub(super) fn is_probe(command: &[String]) -> bool {
    command.get(1).is_some_and(|key| key.ends_with(":probe"))
}

pub(super) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

async fn converse(mut stream: tokio::net::TcpStream, mut say: Say) {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        while let Some((command, used)) = parse(&read) {
            read.drain(..used);
            if let Some(answer) = say(&command)
                && stream.write_all(answer.as_bytes()).await.is_err()
            {
                return;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => read.extend_from_slice(&buffer[..count]),
        }
    }
}

/// One command of the wire: an array of bulk strings.
fn parse(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    let mut at = 0;
    let line = |at: &mut usize| {
        let end = bytes[*at..].windows(2).position(|pair| pair == b"\r\n")? + *at;
        let text = std::str::from_utf8(&bytes[*at..end]).unwrap();
        *at = end + 2;
        Some(text)
    };
    let count: usize = line(&mut at)?.strip_prefix('*').unwrap().parse().unwrap();
    let mut words = Vec::new();
    for _ in 0..count {
        let length: usize = line(&mut at)?.strip_prefix('$').unwrap().parse().unwrap();
        let word = bytes.get(at..at + length + 2)?;
        words.push(String::from_utf8_lossy(&word[..length]).into_owned());
        at += length + 2;
    }
    Some((words, at))
}

/// A certificate authority and a certificate for `localhost` and 127.0.0.1, made by openssl.
pub(super) struct Certificates {
    dir: TempDir,
}

impl Certificates {
    pub(super) fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let openssl = |args: &[&str]| {
            let output = Command::new("openssl")
                .args(args)
                .current_dir(dir.path())
                .output()
                .unwrap();
            assert!(output.status.success(), "{:?}", Answer::of(&output));
        };
        openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=test authority",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        ]);
        openssl(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            "/CN=localhost",
            "-keyout",
            "server.key",
            "-out",
            "server.csr",
        ]);
        fs::write(
            dir.path().join("server.ext"),
            "basicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n",
        )
        .unwrap();
        openssl(&[
            "x509",
            "-req",
            "-in",
            "server.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "server.ext",
            "-out",
            "server.pem",
        ]);
        Self { dir }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

/// Whether somebody listens there.
pub(super) fn listens(port: u16) -> bool {
    let address = (Ipv4Addr::LOCALHOST, port).into();
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}
