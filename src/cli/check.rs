//! `hooksluice check`: everything that is wrong with a configuration, at once.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::{output, probe};
use crate::config::{self, Environment, Line};
use crate::time::Clock;

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Configuration file. Without it: ./hooksluice.toml, then /etc/hooksluice/hooksluice.toml
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print a JSON list of problems: severity, file, line, column, message, label, help
    #[arg(long)]
    json: bool,
    /// Do not look up secrets, on machines that have none (CI)
    #[arg(long)]
    without_secrets: bool,
    /// Try what it names too: store, Redis, upstreams, addresses. Changes nothing, also beside a running server
    #[arg(long, conflicts_with = "without_secrets")]
    probe: bool,
}

/// What `--probe --json` prints.
#[derive(Debug, Serialize)]
struct Probed<'a> {
    problems: Vec<Line<'a>>,
    probes: Vec<probe::Line<'a>>,
}

/// Judges the file. Exit code 0 when it would start, warnings or not; 1 when it would not, or something that it names does
/// not answer as it must.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let environment = Environment::process(Clock::system()).judging_modes();
    let review = config::review(args.config.as_deref(), &environment, args.without_secrets);
    if args.probe
        && let Some(config) = review.config
    {
        let found = probe::look(config)?;
        if args.json {
            output::print_json(&Probed {
                problems: review.report.lines(),
                probes: probe::lines(&found),
            })?;
        } else {
            output::print(&review.report.render(io::stdout().is_terminal()))?;
            output::print(review.summary.as_deref().unwrap_or_default())?;
            output::print(&probe::text(&found))?;
        }
        return Ok(match probe::fails(&found) {
            false => ExitCode::SUCCESS,
            true => ExitCode::FAILURE,
        });
    }
    if args.json {
        output::print_json(&review.report.lines())?;
    } else {
        output::print(&review.report.render(io::stdout().is_terminal()))?;
        output::print(review.summary.as_deref().unwrap_or_default())?;
    }
    Ok(match review.summary {
        Some(_) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}
