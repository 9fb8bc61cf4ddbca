//! `hooksluice reference`: every key of the configuration, as Markdown.

use std::process::ExitCode;

use super::output;
use crate::config;

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Prints it. Exit code 0.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    output::print(&config::reference())?;
    Ok(ExitCode::SUCCESS)
}
