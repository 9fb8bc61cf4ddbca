//! `hooksluice upstreams`: where events are forwarded, and a person's orders to stop and to go on.

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;

use super::client::{AdminArgs, AdminClient, block_on, escaped};
use super::output;
use crate::admin::dto::{Nothing, Upstream, Upstreams};

/// The command's arguments.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<UpstreamsCommand>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, Subcommand)]
enum UpstreamsCommand {
    /// Stop forwarding to an upstream until it is resumed, over restarts too: its events are stored and wait
    Pause(OrderArgs),
    /// Go on forwarding to an upstream at once, also if its breaker is open
    Resume(OrderArgs),
}

#[derive(clap::Args, Debug)]
struct OrderArgs {
    /// The upstream's name
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Does what the arguments say.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        None => block_on(list(args.json, args.admin)),
        Some(UpstreamsCommand::Pause(order)) => block_on(give(order, "pause", paused)),
        Some(UpstreamsCommand::Resume(order)) => block_on(give(order, "resume", resumed)),
    }
}

async fn list(json: bool, admin: AdminArgs) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&admin)?;
    let upstreams: Upstreams = client.get("/api/v1/upstreams").await?;
    if json {
        output::print_json(&upstreams)?;
    } else {
        output::print(&table(&upstreams.upstreams))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn give(order: OrderArgs, verb: &str, done: fn(&Upstream) -> String) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&order.admin)?;
    let path = format!("/api/v1/upstreams/{}/{verb}", escaped(&order.name));
    let upstream: Upstream = client.post(&path, &Nothing {}).await?;
    if order.json {
        output::print_json(&upstream)?;
    } else {
        output::print(&done(&upstream))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn paused(upstream: &Upstream) -> String {
    let name = output::printable(&upstream.name);
    let running = match upstream.running {
        0 => String::new(),
        1 => "1 attempt still runs. ".to_owned(),
        running => format!("{running} attempts still run. "),
    };
    format!("{name} is paused: events are stored and wait. {running}Go on: hooksluice upstreams resume {name}\n")
}

fn resumed(upstream: &Upstream) -> String {
    let name = output::printable(&upstream.name);
    match upstream.backlog {
        0 => format!("{name} goes on: nothing waits\n"),
        backlog => format!(
            "{name} goes on with {}\n",
            output::count(backlog, "dispatch", "dispatches")
        ),
    }
}

fn table(upstreams: &[Upstream]) -> String {
    let mut table = output::table(&[
        "UPSTREAM", "URL", "STATE", "BREAKER", "RUNNING", "SHARE", "BACKLOG", "OLDEST",
    ]);
    for upstream in upstreams {
        table.add_row([
            output::printable(&upstream.name),
            output::printable(&upstream.url),
            state(upstream),
            output::printable(&upstream.breaker),
            format!("{} of {}", upstream.running, upstream.concurrency),
            match &upstream.share {
                Some(share) => format!("{}/{}", share.units, share.of),
                None => "all".to_owned(),
            },
            upstream.backlog.to_string(),
            match upstream.oldest_pending_seconds {
                Some(seconds) => output::age(Duration::from_secs(seconds)),
                None => "-".to_owned(),
            },
        ]);
    }
    output::lines(&table)
}

fn state(upstream: &Upstream) -> String {
    let state = match (upstream.paused, upstream.held_for_seconds) {
        (true, _) => "paused".to_owned(),
        (false, Some(left)) => format!("held {}", output::age(Duration::from_secs(left))),
        (false, None) => "going".to_owned(),
    };
    match upstream.order_saved {
        true => state,
        false => format!("{state}, only until a restart"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream() -> Upstream {
        Upstream {
            name: "app".into(),
            order_saved: true,
            ..Upstream::default()
        }
    }

    #[test]
    fn a_pause_says_what_becomes_of_events_and_how_to_go_on() {
        let text = paused(&Upstream {
            running: 1,
            ..upstream()
        });
        assert_eq!(
            text,
            "app is paused: events are stored and wait. 1 attempt still runs. Go on: hooksluice upstreams resume app\n"
        );
    }

    #[test]
    fn an_order_that_the_store_does_not_have_is_shown_as_such() {
        let text = table(&[Upstream {
            paused: true,
            order_saved: false,
            ..upstream()
        }]);
        assert!(text.contains("paused, only until a restart"), "{text}");
    }
}
