//! The built program as a child process, with its configuration, its store and its log.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::client::{self, Connection, Request, Response};
use super::engine::{self, User, leashed, signal_child};
use super::{Upstream, eventually, sign};

/// What a server is started with. Its directory outlives the server, so that it can be started again on its store.
#[derive(Debug)]
pub(crate) struct Setup {
    directory: TempDir,
    store: PathBuf,
    /// Its table in place of `[store.sqlite]`.
    postgres: Option<String>,
    /// Lines of `[admin]`.
    admin: String,
    /// Tables before `[upstreams.app]`.
    before: String,
    upstream: String,
    /// `[sources.…]` and `[providers.…]`.
    after: String,
    environment: Vec<(String, String)>,
    /// Parts of secrets that the log must not show either.
    hidden: Vec<String>,
    allowed: Vec<String>,
}

impl Setup {
    /// One upstream `app`, no sources yet.
    pub(crate) fn new(upstream: &Upstream) -> Self {
        Self::for_address(upstream.address())
    }

    pub(crate) fn for_address(upstream: SocketAddr) -> Self {
        Self::for_url(&format!("http://{upstream}"))
    }

    /// The upstream `app` is at this URL.
    pub(crate) fn for_url(url: &str) -> Self {
        // Beside the build, not in /tmp, which may be a file system in memory.
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self {
            store: directory.path().join("store"),
            directory,
            postgres: None,
            admin: String::new(),
            before: String::new(),
            upstream: format!("[upstreams.app]\nurl = \"{url}\"\n"),
            after: String::new(),
            environment: Vec::new(),
            hidden: Vec::new(),
            // Where the tests keep temporary files is the machine's matter.
            allowed: vec!["the store lies on".to_owned()],
        }
    }

    /// Lines for `[upstreams.app]`.
    pub(crate) fn upstream(mut self, lines: &str) -> Self {
        writeln!(self.upstream, "{lines}").unwrap();
        self
    }

    /// Further lines for `[admin]`.
    pub(crate) fn admin(mut self, lines: &str) -> Self {
        writeln!(self.admin, "{lines}").unwrap();
        self
    }

    /// Whole tables other than `[admin]`, `[store.sqlite]` and `[upstreams.app]`.
    pub(crate) fn tables(mut self, toml: &str) -> Self {
        writeln!(self.before, "{toml}").unwrap();
        self
    }

    /// `[sources.NAME]` at `/hooks/NAME` with this secret, handed over in the environment, and further `lines`.
    pub(crate) fn source(mut self, name: &str, provider: &str, secret: &str, lines: &str) -> Self {
        let variable = self.environment_variable(secret);
        write!(
            self.after,
            "[sources.{name}]\npath = \"/hooks/{name}\"\nprovider = \"{provider}\"\nupstreams = [\"app\"]\n\
             secrets = [{{ env = \"{variable}\" }}]\n{lines}\n",
        )
        .unwrap();
        self
    }

    /// A source of the plain `hmac` preset for another upstream than `app`.
    pub(crate) fn source_to(mut self, name: &str, upstream: &str) -> Self {
        let variable = self.environment_variable(sign::SECRET);
        self.table_after(&format!(
            "[sources.{name}]\npath = \"/hooks/{name}\"\nprovider = \"hmac\"\nupstreams = [\"{upstream}\"]\n\
             secrets = [{{ env = \"{variable}\" }}]",
        ))
    }

    /// A source of the plain `hmac` preset, called `plain`.
    pub(crate) fn plain(self) -> Self {
        self.source("plain", "hmac", sign::SECRET, "")
    }

    pub(crate) fn github(self) -> Self {
        self.source("github", "github", sign::SECRET, "")
    }

    pub(crate) fn stripe(self) -> Self {
        self.source("stripe", "stripe", sign::STRIPE_SECRET, "")
    }

    pub(crate) fn standard(self) -> Self {
        self.source("standard", "standard-webhooks", sign::STANDARD_SECRET, "")
    }

    /// Any table after `[upstreams.app]`.
    pub(crate) fn table_after(mut self, toml: &str) -> Self {
        writeln!(self.after, "{toml}").unwrap();
        self
    }

    /// Puts `secret` into a new environment variable and returns its name.
    pub(crate) fn environment_variable(&mut self, secret: &str) -> String {
        let name = format!("TEST_SECRET_{}", self.environment.len());
        self.environment.push((name.clone(), secret.to_owned()));
        name
    }

    /// A WARN or ERROR line of the log that contains `part` is expected; any other fails the test.
    pub(crate) fn allow_log(mut self, part: &str) -> Self {
        self.allowed.push(part.to_owned());
        self
    }

    /// On a database that other servers may share.
    pub(crate) fn postgres(mut self, url: &str) -> Self {
        let variable = self.environment_variable(url);
        self.hidden.push(super::postgres::PASSWORD.to_owned());
        self.postgres = Some(format!("[store.postgres]\nurl = {{ env = \"{variable}\" }}\n"));
        self
    }

    /// `[dedupe.redis]` with this URL and further `lines`.
    pub(crate) fn redis(mut self, url: &str, lines: &str) -> Self {
        let variable = self.environment_variable(url);
        self.hidden.push(super::redis::PASSWORD.to_owned());
        self.tables(&format!("[dedupe.redis]\nurl = {{ env = \"{variable}\" }}\n{lines}\n"))
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Puts the store on another file system.
    pub(crate) fn store_on(mut self, directory: &Path) -> Self {
        self.store = directory.join("store");
        self
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.store.clone()
    }

    pub(crate) fn text(&self) -> String {
        // Port 0: the system chooses, and the log says what it chose. A port picked beforehand may be taken meanwhile.
        let store = match &self.postgres {
            Some(table) => table.clone(),
            None => format!("[store.sqlite]\npath = \"{}\"\n", self.store().display()),
        };
        format!(
            "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{}{store}{}\n{}\n{}",
            self.admin, self.before, self.upstream, self.after
        )
    }

    /// The command that starts the server, for tests that wrap it.
    pub(crate) fn command(&self) -> Command {
        let config = self.write_config();
        let mut command = program();
        command.args(["serve", "-c"]).arg(config);
        self.set_environment(&mut command);
        command
    }

    pub(crate) fn write_config(&self) -> PathBuf {
        let path = self.directory().join("hooksluice.toml");
        fs::write(&path, self.text()).unwrap();
        path
    }

    pub(crate) fn set_environment(&self, command: &mut Command) {
        for (name, value) in &self.environment {
            command.env(name, value);
        }
    }

    /// Starts it and waits until it is ready.
    pub(crate) fn start(&self) -> Server {
        self.start_command(self.command())
    }

    /// Starts `command`, which becomes or runs the server, and waits until it is ready.
    pub(crate) fn start_command(&self, command: Command) -> Server {
        let mut starting = self.launch_command(command);
        let server = eventually("the server to listen", || match starting.look() {
            Launch::Waiting => None,
            Launch::Listening(server) => Some(server),
            Launch::Ended(status, said) => panic!("the server ended with {status}:\n{said}"),
        });
        eventually("the server to be ready", || server.is_ready().then_some(()));
        server
    }

    /// Starts it without waiting. It ends with this process, however that ends.
    pub(crate) fn launch(&self) -> Starting {
        let config = self.write_config();
        let mut command = leashed(env!("CARGO_BIN_EXE_hooksluice"), "KILL", User::Own);
        clear_environment(&mut command);
        command.args(["serve", "-c"]).arg(config);
        self.set_environment(&mut command);
        self.launch_command(command)
    }

    fn launch_command(&self, mut command: Command) -> Starting {
        let log = self.directory().join("log");
        let file = fs::File::options().create(true).append(true).open(&log).unwrap();
        let before = usize::try_from(file.metadata().unwrap().len()).unwrap();
        command.stdout(Stdio::null()).stderr(file);
        let child = engine::spawn(command).unwrap();
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let secrets = self.environment.iter().map(|(_, secret)| secret);
        let server = Server {
            child,
            address: any,
            admin: any,
            log,
            allowed: self.allowed.clone(),
            secrets: secrets.chain(&self.hidden).cloned().collect(),
        };
        Starting {
            server: Some(server),
            before,
        }
    }
}

/// A server that does not listen yet.
#[derive(Debug)]
pub(crate) struct Starting {
    /// Taken when it listens.
    server: Option<Server>,
    /// Length of the log before this start.
    before: usize,
}

/// How far a start has come.
#[derive(Debug)]
pub(crate) enum Launch {
    Waiting,
    Listening(Server),
    /// With what it logged.
    Ended(ExitStatus, String),
}

impl Starting {
    /// Not to be asked again once it listens.
    pub(crate) fn look(&mut self) -> Launch {
        let server = self.server.as_mut().unwrap();
        let ended = server.child.try_wait().unwrap();
        let text = server.log_text();
        if let Some(status) = ended {
            return Launch::Ended(status, text);
        }
        match text.get(self.before..).and_then(listening) {
            None => Launch::Waiting,
            Some((address, admin)) => {
                (server.address, server.admin) = (address, admin);
                Launch::Listening(self.server.take().unwrap())
            }
        }
    }
}

/// The addresses that a log names: the public one and the admin's.
fn listening(log: &str) -> Option<(SocketAddr, SocketAddr)> {
    let line = log.lines().find(|line| line.contains("\"message\":\"listening\""))?;
    let entry: serde_json::Value = serde_json::from_str(line).ok()?;
    let address = |name: &str| entry[name].as_str()?.parse().ok();
    Some((address("listen")?, address("admin")?))
}

/// The program under test, with an empty environment but for what it needs to be found.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hooksluice"));
    clear_environment(&mut command);
    command
}

fn clear_environment(command: &mut Command) {
    command.env_clear();
    // Coverage and sanitizers hand their settings over in the environment.
    for name in ["PATH", "LLVM_PROFILE_FILE"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
}

/// An address that nobody listens on.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A running server. When it is dropped it is killed and its log is read: a WARN or ERROR line that the test did not
/// allow fails the test, and so does a secret, a panic or anything else that is not a log line.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    admin: SocketAddr,
    log: PathBuf,
    allowed: Vec<String>,
    secrets: Vec<String>,
}

impl Server {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// One request on a connection of its own.
    #[track_caller]
    pub(crate) fn send(&self, request: &Request) -> Response {
        client::try_exchange(self.address, request)
            .unwrap()
            .unwrap_or_else(|| panic!("closed without an answer; the log:\n{}", self.log_text()))
    }

    /// Bytes on a connection of their own, then the answer.
    #[track_caller]
    pub(crate) fn send_bytes(&self, bytes: &[u8]) -> Response {
        let mut connection = self.connect();
        connection.send(bytes);
        connection.read()
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    pub(crate) fn admin_get(&self, target: &str) -> Response {
        let request = Request::new("GET", target).header("Host", "localhost");
        client::try_exchange(self.admin, &request).unwrap().expect("an answer")
    }

    pub(crate) fn admin_post(&self, target: &str, json: &str) -> Response {
        let request = Request::post(target, json)
            .header("Host", "localhost")
            .header("Content-Type", "application/json");
        client::try_exchange(self.admin, &request).unwrap().expect("an answer")
    }

    /// The sum over all samples of `name` whose labels contain each of `labels` (written `name="value"`).
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let answer = self.admin_get("/metrics");
        assert_eq!(answer.status, 200);
        let text = answer.text();
        let samples = text.lines().filter(|line| !line.starts_with('#')).filter(|line| {
            let series = line.rsplit_once(' ').map_or("", |(series, _)| series);
            let given = series.split('{').next().unwrap_or_default();
            given == name && labels.iter().all(|label| series.contains(label))
        });
        samples
            .filter_map(|line| line.rsplit_once(' '))
            .map(|(_, value)| value.parse::<f64>().unwrap())
            .sum()
    }

    /// Waits until the metric has this value.
    #[track_caller]
    pub(crate) fn wait_for_metric(&self, name: &str, labels: &[&str], value: f64) {
        eventually(&format!("{name}{labels:?} to be {value}"), || {
            (self.metric(name, labels) == value).then_some(())
        });
    }

    /// The events that the admin API lists, newest first, with `query` (`source=…&state=…`).
    pub(crate) fn events(&self, query: &str) -> Vec<serde_json::Value> {
        let answer = self.admin_get(&format!("/api/v1/events?limit=500&{query}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["events"]
            .as_array()
            .cloned()
            .unwrap_or_else(|| panic!("no events in {answer:?}"))
    }

    /// No more chance to do anything.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, without waiting.
    pub(crate) fn ask_to_stop(&self) {
        signal_child(&self.child, Signal::TERM);
    }

    /// SIGSTOP: it holds what it holds and does nothing.
    pub(crate) fn freeze(&self) {
        signal_child(&self.child, Signal::STOP);
    }

    pub(crate) fn thaw(&self) {
        signal_child(&self.child, Signal::CONT);
    }

    pub(crate) fn is_ready(&self) -> bool {
        let request = Request::new("GET", "/readyz").header("Host", "localhost");
        let ready = client::exchange_within(self.admin, &request, Duration::from_secs(2));
        matches!(ready, Ok(Some(Response { status: 200, .. })))
    }

    /// Waits until the process has ended by itself.
    #[track_caller]
    pub(crate) fn wait_for_end(&mut self) -> ExitStatus {
        eventually("the process to end", || self.child.try_wait().unwrap())
    }

    /// SIGTERM, then the end, which must be a success.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        self.ask_to_stop();
        let status = self.wait_for_end();
        assert!(status.success(), "{status}:\n{}", self.log_text());
    }

    /// As [`Server::stop`], for a server that is the only child of the process that was started.
    #[track_caller]
    pub(crate) fn stop_traced(mut self) {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.child.id())).unwrap();
        let server: i32 = children
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("one child expected: {children:?}"));
        kill_process(Pid::from_raw(server).unwrap(), Signal::TERM).unwrap();
        assert!(self.wait_for_end().success(), "{}", self.log_text());
    }

    /// Waits until the store takes no more events.
    #[track_caller]
    pub(crate) fn wait_until_refusing(&self) {
        eventually("the store to refuse", || {
            (self.admin_get("/readyz").status == 503).then_some(())
        });
    }

    /// Waits until the store takes events again.
    #[track_caller]
    pub(crate) fn wait_until_writable(&self) {
        eventually("the store to be writable", || {
            (self.admin_get("/readyz").status == 200).then_some(())
        });
    }

    pub(crate) fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until the log has a line with all of `parts`.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, parts: &[&str]) -> String {
        eventually(&format!("{parts:?} in the log"), || {
            let text = self.log_text();
            let line = text.lines().find(|line| parts.iter().all(|part| line.contains(part)));
            line.map(str::to_owned)
        })
    }

    fn check_log(&self) {
        let text = self.log_text();
        for secret in self.secrets.iter().filter(|secret| secret.len() >= 8) {
            assert!(!text.contains(secret.trim()), "a secret is in the log:\n{text}");
        }
        for line in text.lines() {
            let allowed = self.allowed.iter().any(|part| line.contains(part));
            let Ok(entry) = serde_json::from_str::<serde_json::Value>(line) else {
                // A start that failed says so in plain words.
                assert!(
                    allowed && line.starts_with("error: "),
                    "not a log line: {line}\nin\n{text}"
                );
                continue;
            };
            let loud = matches!(entry["level"].as_str(), Some("WARN" | "ERROR"));
            assert!(!loud || allowed, "the test did not allow {line}\nin\n{text}");
        }
    }
}

impl Drop for Server {
    #[allow(
        clippy::print_stdout,
        reason = "a test that fails shows what the server said; not every test binary allows itself to print"
    )]
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            let text = self.log_text();
            let lines: Vec<_> = text.lines().collect();
            let last = &lines[lines.len().saturating_sub(30)..];
            println!("the end of the log of {}:\n{}", self.address, last.join("\n"));
        } else {
            self.check_log();
        }
    }
}

/// Whether nothing listens on `address` any more.
pub(crate) fn is_closed(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err()
}
