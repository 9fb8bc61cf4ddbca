//! `hooksluice verify`: checks captured requests and says why one fails.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::time::{Clock, Timestamp};

use super::scheme::{self, SchemeArgs};
use super::{output, usage_error};

mod jsonl;
mod message;

pub use jsonl::{Judgement, Response, judge_line};

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    scheme: SchemeArgs,
    /// Judge by this time: Unix seconds or RFC 3339. Without it: now
    #[arg(long, value_name = "TIME", value_parser = scheme::time)]
    now: Option<Timestamp>,
    /// Print the judgement as JSON
    #[arg(long)]
    json: bool,
    /// Read captured requests as JSON, one object a line, and write one judgement a line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "provider", "source", "now", "json"])]
    jsonl: Option<PathBuf>,
    /// A captured request: a raw HTTP/1.1 message; `-` is standard input
    #[arg(value_name = "FILE", required_unless_present = "jsonl")]
    file: Option<PathBuf>,
}

/// Judges. Exit code 0 when all is accepted (or a hand-shake), 1 when some is rejected, 2 when something could not be
/// judged.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let clock = Clock::system();
    match (&args.jsonl, &args.file) {
        (Some(path), _) => judge_lines(path, &clock),
        (None, Some(path)) => {
            let now = args.now.unwrap_or_else(|| clock.now());
            match judge_message(&args.scheme, path, now) {
                Ok((title, judgement)) => show(&title, &judgement, args.json),
                Err(why) => Ok(usage_error(&why)),
            }
        }
        (None, None) => Ok(usage_error("give a FILE or `--jsonl FILE`")),
    }
}

fn judge_lines(path: &Path, clock: &Clock) -> anyhow::Result<ExitCode> {
    let mut output = BufWriter::new(io::stdout().lock());
    let totals = if path == Path::new("-") {
        jsonl::judge_all(io::stdin().lock(), &mut output, clock)?
    } else {
        match File::open(path) {
            Ok(file) => jsonl::judge_all(BufReader::new(file), &mut output, clock)?,
            Err(why) => return Ok(usage_error(&format!("{}: {why}", path.display()))),
        }
    };
    output.flush()?;
    Ok(match totals {
        jsonl::Totals { errors: 1.., .. } => ExitCode::from(2),
        jsonl::Totals { rejected: 1.., .. } => ExitCode::FAILURE,
        jsonl::Totals { .. } => ExitCode::SUCCESS,
    })
}

fn judge_message(scheme: &SchemeArgs, path: &Path, now: Timestamp) -> Result<(String, Judgement), String> {
    let verifier = scheme.verifier(None)?;
    let request = message::parse(super::scheme::read(path)?, now)?;
    Ok((verifier.record().to_string(), jsonl::judge_with(&verifier, request)))
}

fn show(title: &str, judgement: &Judgement, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        output::print_json(judgement)?;
    } else {
        let mut text = format!("{}: {title}\n", judgement.verdict);
        let facts = [
            ("reason", judgement.reason.clone()),
            (
                "secret",
                judgement
                    .secret_label
                    .clone()
                    .or(judgement.secret_index.map(|index| index.to_string())),
            ),
            ("delivery id", judgement.delivery_id.clone()),
            ("event type", judgement.event_type.clone()),
            (
                "answer",
                judgement.response.as_ref().map(|response| response.body.clone()),
            ),
            ("hint", judgement.hint.clone()),
        ];
        for (name, value) in facts {
            if let Some(value) = value {
                text.push_str(&format!("  {name:<12} {}\n", output::printable(&value)));
            }
        }
        output::print(&text)?;
    }
    Ok(match judgement.verdict {
        "reject" => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}
