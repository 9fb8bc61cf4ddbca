//! `hooksluice serve`: runs the server until SIGTERM or SIGINT.

use std::io::{self, IsTerminal, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::app::{App, Start};
use crate::config::{Flags, Loaded, Origin, Report};
use crate::reload::{Reloads, Trigger};
use crate::telemetry::logging;
use crate::time::Clock;

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Configuration file. Without it: ./hooksluice.toml, then /etc/hooksluice/hooksluice.toml
    #[arg(short, long, value_name = "FILE", conflicts_with = "provider")]
    config: Option<PathBuf>,
    /// Run without a file: one source for this provider, at /webhooks/PROVIDER
    #[arg(long, value_name = "PROVIDER", requires_all = ["secret_env", "upstream"])]
    provider: Option<String>,
    /// Environment variable that holds the provider's secret
    #[arg(long, value_name = "VARIABLE", requires = "provider")]
    secret_env: Option<String>,
    /// Origin of the app that events are forwarded to, such as http://127.0.0.1:3000
    #[arg(long, value_name = "URL", requires = "provider")]
    upstream: Option<String>,
    /// Scheme and host as the provider was given them, for schemes that sign the URL
    #[arg(long, value_name = "URL", requires = "provider")]
    public_url: Option<String>,
    /// Where requests come in [default: 0.0.0.0:8080]
    #[arg(long, value_name = "ADDRESS", requires = "provider")]
    listen: Option<SocketAddr>,
    /// Where the admin API listens [default: 127.0.0.1:9180]
    #[arg(long, value_name = "ADDRESS", requires = "provider")]
    admin_listen: Option<SocketAddr>,
    /// Directory of the store [default: hooksluice-data]
    #[arg(long, value_name = "DIRECTORY", requires = "provider")]
    store: Option<PathBuf>,
}

/// Runs the server. Exit code 0 after an orderly end, 1 when the configuration is refused or a part cannot start.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let clock = Clock::system();
    let start = match origin(args).and_then(|origin| Start::load(origin, &clock)) {
        Ok(start) => start,
        Err(report) => {
            // Rendered by us, colours and all; a closed standard error leaves nobody to tell.
            write!(io::stderr().lock(), "{}", report.render(io::stderr().is_terminal())).ok();
            return Ok(ExitCode::FAILURE);
        }
    };
    let Loaded { config, report } = start.loaded();
    let logging = logging::init(&config.live.log)?;
    for problem in report.problems().iter() {
        warn!(
            problem = problem.message,
            label = problem.label,
            help = problem.help,
            "configuration"
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("hooksluice")
        .build()
        .context("could not start the runtime")?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let signals = TaskTracker::new();
        let app = App::new(start, logging, clock);
        signals.spawn(watch_signals(stop.clone(), app.reloads())?);
        // Large: it holds everything that is built.
        Box::pin(app.run(stop)).await
    })?;
    Ok(ExitCode::SUCCESS)
}

fn origin(args: Args) -> Result<Origin, Report> {
    match (args.provider, args.secret_env, args.upstream) {
        (Some(provider), Some(secret_env), Some(upstream)) => Ok(Origin::Flags(Box::new(Flags {
            provider,
            secret_env,
            upstream,
            public_url: args.public_url,
            listen: args.listen,
            admin_listen: args.admin_listen,
            store: args.store,
        }))),
        _ => Origin::find(args.config.as_deref()),
    }
}

/// Cancels `stop` at the first SIGTERM or SIGINT; asks for a reload at each SIGHUP.
fn watch_signals(stop: CancellationToken, reloads: Reloads) -> anyhow::Result<impl Future<Output = ()>> {
    const COULD_NOT: &str = "could not listen for signals";
    let mut terminate = signal(SignalKind::terminate()).context(COULD_NOT)?;
    let mut interrupt = signal(SignalKind::interrupt()).context(COULD_NOT)?;
    let mut hangup = signal(SignalKind::hangup()).context(COULD_NOT)?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => break info!(signal = "SIGTERM", "asked to stop"),
                _ = interrupt.recv() => break info!(signal = "SIGINT", "asked to stop"),
                _ = hangup.recv() => reloads.tell(Trigger::Signal),
            }
        }
        stop.cancel();
    })
}
