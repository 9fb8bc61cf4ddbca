//! `hooksluice health`: exit 0 or 1 by `/readyz`, for supervisors and container health checks.

use std::process::ExitCode;

use bytes::Bytes;
use http::Method;

use super::client::{AdminArgs, AdminClient, block_on};
use super::output;

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    admin: AdminArgs,
}

/// Asks, says what the server said, and turns it into an exit code.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    block_on(async {
        let client = AdminClient::new(&args.admin)?;
        let (status, body) = client.raw(Method::GET, "/readyz", Bytes::new()).await?;
        let said = String::from_utf8_lossy(&body);
        output::print(&format!("{}\n", output::printable(said.trim_end())))?;
        Ok(if status.is_success() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
}
