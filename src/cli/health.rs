//! `hooksluice health`: exit 0 or 1 by `/readyz` (or `/healthz`), for supervisors and container health checks.

use std::process::ExitCode;

use bytes::Bytes;
use http::Method;
use serde::Serialize;

use super::client::{AdminArgs, AdminClient, block_on};
use super::output;

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Ask only whether the process answers, not whether it takes events: a supervisor that restarts it because its
    /// database is away, or because it is about to stop, helps nobody
    #[arg(long)]
    live: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// What the server said, as JSON.
#[derive(Debug, Serialize)]
struct Health<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<bool>,
    message: &'a str,
}

/// Asks, says what the server said, and turns it into an exit code.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    block_on(async {
        let client = AdminClient::new(&args.admin)?;
        let path = if args.live { "/healthz" } else { "/readyz" };
        let (status, body) = client.raw(Method::GET, path, Bytes::new()).await?;
        let said = String::from_utf8_lossy(&body);
        let message = said.trim_end();
        if args.json {
            let yes = status.is_success();
            output::print_json(&Health {
                ready: (!args.live).then_some(yes),
                live: args.live.then_some(yes),
                message,
            })?;
        } else {
            output::print(&format!("{}\n", output::printable(message)))?;
        }
        Ok(if status.is_success() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
}
