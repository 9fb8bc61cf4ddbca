//! `hooksluice reload`: has the running server take over the configuration that is written now.

use std::process::ExitCode;

use bytes::Bytes;
use http::{Method, StatusCode};

use super::client::{AdminArgs, AdminClient, block_on};
use super::output;
use crate::admin::dto::{ReloadRefused, Reloaded};

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print the answer as JSON: what changed, and each problem with its place
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Exit code 0 when the running server has what is written, changed or not; 1 when that was refused, which changes
/// nothing.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    block_on(async {
        let client = AdminClient::new(&args.admin)?;
        let nothing = Bytes::from_static(b"{}");
        let (status, body) = client.raw(Method::POST, "/api/v1/reload", nothing).await?;
        if status == StatusCode::UNPROCESSABLE_ENTITY {
            let refused: ReloadRefused = client.parsed(&body)?;
            match args.json {
                true => output::print_json(&refused)?,
                false => output::print(&refusal(&refused))?,
            }
            return Ok(ExitCode::FAILURE);
        }
        let reloaded: Reloaded = client.understood(status, &body)?;
        match args.json {
            true => output::print_json(&reloaded)?,
            false => output::print(&success(&reloaded))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn success(reloaded: &Reloaded) -> String {
    let mut out = output::printable_lines(&reloaded.report);
    if reloaded.changed.is_empty() {
        out.push_str("nothing has changed\n");
    }
    for change in &reloaded.changed {
        out.push_str(&output::printable(change));
        out.push('\n');
    }
    out
}

fn refusal(refused: &ReloadRefused) -> String {
    format!(
        "{}the configuration was refused, and nothing was changed\n",
        output::printable_lines(&refused.report)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_says_whether_anything_has_changed() {
        let reloaded = |changed: &[&str]| {
            success(&Reloaded {
                changed: changed.iter().map(|change| (*change).to_owned()).collect(),
                report: "warning: w\n\n".to_owned(),
                ..Reloaded::default()
            })
        };
        assert_eq!(reloaded(&[]), "warning: w\n\nnothing has changed\n");
        assert_eq!(
            reloaded(&["source `a` added", "source `b` removed"]),
            "warning: w\n\nsource `a` added\nsource `b` removed\n"
        );
        let refused = refusal(&ReloadRefused {
            report: "error: \u{9b}\n".to_owned(),
            ..ReloadRefused::default()
        });
        assert_eq!(
            refused,
            "error: \\u{9b}\nthe configuration was refused, and nothing was changed\n"
        );
    }
}
