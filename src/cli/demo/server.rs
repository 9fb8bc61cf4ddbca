//! The demo's server: this program as a child process, in a temporary folder and on ports that the system chooses.

use std::cell::Cell;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{Method, StatusCode};
use uuid::Uuid;

use crate::cli::client::{AdminArgs, AdminClient};
use crate::telemetry::logging;
use crate::time::Clock;

/// Where the secret is handed over.
const SECRET_VARIABLE: &str = "HOOKSLUICE_DEMO_SECRET";

/// The temporary folder. It is removed when this is dropped, unless it is kept.
pub(super) struct Paths {
    directory: PathBuf,
    keep: Cell<bool>,
}

impl Paths {
    pub(super) fn create() -> anyhow::Result<Self> {
        let directory = std::env::temp_dir().join(format!("hooksluice-demo-{}", Uuid::now_v7()));
        fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Self {
            directory,
            keep: Cell::new(false),
        })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Leaves the folder for the person to look at; returns the log in it.
    pub(super) fn keep(&self) -> PathBuf {
        self.keep.set(true);
        self.log()
    }

    pub(super) fn write_configuration(&self, app: SocketAddr, reports: SocketAddr) -> anyhow::Result<()> {
        let text = format!(
            r#"listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
[store]
min_free = "0B"
[store.sqlite]
path = '{store}'
[upstreams.app]
url = "http://{app}"
retry = {{ first = "100ms", max = "200ms" }}
[upstreams.reports]
url = "http://{reports}"
retry = {{ first = "100ms", max = "200ms", max_attempts = 2 }}
[sources.shop]
path = "/hooks/shop"
provider = "hmac"
secrets = [{{ env = "{SECRET_VARIABLE}" }}]
upstreams = ["app"]
[sources.billing]
path = "/hooks/billing"
provider = "hmac"
secrets = [{{ env = "{SECRET_VARIABLE}" }}]
upstreams = ["reports"]
[routes.jobs]
path = "/jobs"
upstream = "app"
idempotency = {{ scope = "header:authorization" }}
"#,
            store = self.directory.join("store").display(),
        );
        let path = self.configuration();
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn configuration(&self) -> PathBuf {
        self.directory.join("hooksluice.toml")
    }

    fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// The addresses that the log names behind its first `skip` bytes: the public one and the admin's.
    fn listening(&self, skip: usize) -> Option<(SocketAddr, SocketAddr)> {
        let text = fs::read_to_string(self.log()).ok()?;
        let line = text
            .get(skip..)?
            .lines()
            .find(|line| line.contains(r#""message":"listening""#))?;
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let address = |name: &str| line.get(name)?.as_str()?.parse().ok();
        Some((address("listen")?, address("admin")?))
    }

    /// The error line of the log that names `event`.
    pub(super) fn error_about(&self, event: &str) -> anyhow::Result<Option<String>> {
        let text = fs::read_to_string(self.log())?;
        let line = text
            .lines()
            .find(|line| line.contains(r#""level":"ERROR""#) && line.contains(event));
        Ok(line.map(str::to_owned))
    }
}

impl Drop for Paths {
    fn drop(&mut self) {
        if !self.keep.get() {
            // A folder that cannot be removed lies in the system's temporary folder anyway.
            fs::remove_dir_all(&self.directory).ok();
        }
    }
}

/// A running server; killed when dropped.
pub(super) struct Server {
    child: Child,
    address: SocketAddr,
    admin: AdminClient,
}

impl Server {
    /// Starts it and waits until it is ready.
    pub(super) async fn start(paths: &Paths, secret: &str, patience: Duration) -> anyhow::Result<Self> {
        let log = File::options().create(true).append(true).open(paths.log())?;
        let before = usize::try_from(log.metadata()?.len())?;
        let child = Command::new(std::env::current_exe()?)
            .args(["serve", "-c"])
            .arg(paths.configuration())
            .env(SECRET_VARIABLE, secret)
            // The addresses are read in its log.
            .env(logging::VARIABLE, "info")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("cannot start the server")?;
        // Made at once, so that the child is killed whatever happens next.
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self {
            child,
            address: nowhere,
            admin: admin_client(nowhere)?,
        };
        let clock = Clock::system();
        let start = clock.monotonic();
        loop {
            if let Some((address, admin)) = paths.listening(before) {
                server.address = address;
                server.admin = admin_client(admin)?;
                if server.is_ready().await {
                    return Ok(server);
                }
            }
            if server.child.try_wait()?.is_some() || clock.monotonic().since(start) > patience {
                bail!(
                    "the server did not become ready; it said:\n{}",
                    fs::read_to_string(paths.log()).unwrap_or_default()
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn is_ready(&self) -> bool {
        let answer = self.admin.raw(Method::GET, "/readyz", Bytes::new()).await;
        answer.is_ok_and(|(status, _)| status == StatusCode::OK)
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn process_id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn admin(&self) -> &AdminClient {
        &self.admin
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, then the end.
    pub(super) async fn stop(&mut self, patience: Duration) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.context("no process id")?, rustix::process::Signal::TERM)?;
        let clock = Clock::system();
        let start = clock.monotonic();
        loop {
            if let Some(status) = self.child.try_wait()? {
                anyhow::ensure!(status.success(), "the server ended with {status}");
                return Ok(());
            }
            anyhow::ensure!(clock.monotonic().since(start) < patience, "the server did not stop");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The value of one sample, written as it is exposed.
    pub(super) async fn metric(&self, series: &str) -> anyhow::Result<String> {
        let (_, body) = self.admin.raw(Method::GET, "/metrics", Bytes::new()).await?;
        let text = String::from_utf8_lossy(&body);
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned));
        value.with_context(|| format!("{series} is not among the metrics"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn admin_client(address: SocketAddr) -> anyhow::Result<AdminClient> {
    Ok(AdminClient::new(&AdminArgs {
        admin: format!("http://{address}").parse()?,
        token_env: None,
    })?)
}
