//! `hooksluice events replay`: one event, or all that match at a capped rate.
//!
//! Many are counted first (a dry run), so that the bar has an end and the person sees what it will be; then they are
//! replayed page by page, and the pause after each page keeps the rate. The upstream's own pace holds besides. The set
//! is fixed at the start: what arrives meanwhile is not part of it. Interrupted, it is safe to run again with
//! `--state`, since what was replayed has left that state.

use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::filter::FilterArgs;
use crate::admin::dto::{EventDetail, Filter, Replay, ReplayMany, Replayed};
use crate::cli::client::{AdminArgs, AdminClient, escaped};
use crate::cli::{output, usage_error};
use crate::reader::{self, Rate};
use crate::time::Clock;

/// Events asked for at once: small, so that a rate is even and an interrupt costs little.
const PAGE: u32 = 100;

#[derive(clap::Args, Debug)]
pub(super) struct ReplayArgs {
    /// The event's id; without it, the options below choose
    #[arg(conflicts_with_all = ["source", "event_type", "delivery_id", "state", "upstream", "from", "until", "all"])]
    id: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Every stored event
    #[arg(long, conflicts_with_all = ["source", "event_type", "delivery_id", "state", "upstream", "from", "until"])]
    all: bool,
    /// To this upstream instead of the original one
    #[arg(long, value_name = "UPSTREAM")]
    to: Option<String>,
    /// Only count what would be replayed
    #[arg(long)]
    dry_run: bool,
    /// Replay no faster than this
    #[arg(long, default_value = "100/s", value_parser = reader::parse_rate)]
    rate: Rate,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// What was done, as JSON.
#[derive(Debug, Serialize)]
struct Report {
    dry_run: bool,
    events: u64,
    dispatches: u64,
    busy: u64,
}

pub(super) async fn run(args: ReplayArgs) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.admin)?;
    let mut filter = args.filter.into_filter();
    let report = match &args.id {
        Some(id) if args.dry_run => {
            let event: EventDetail = client.get(&format!("/api/v1/events/{}", escaped(id))).await?;
            let dispatches = match &args.to {
                Some(_) => 1,
                None => u64::try_from(event.summary.dispatches.len())?,
            };
            Report {
                dry_run: true,
                events: 1,
                dispatches,
                busy: 0,
            }
        }
        Some(id) => {
            let path = format!("/api/v1/events/{}/replay", escaped(id));
            let replayed: Replayed = client.post(&path, &Replay { to: args.to }).await?;
            Report {
                dry_run: false,
                events: 1,
                dispatches: replayed.dispatches,
                busy: replayed.busy,
            }
        }
        None if filter == Filter::default() && !args.all => {
            return Ok(usage_error(
                "name an event, choose some (such as --state dead), or say --all",
            ));
        }
        None => {
            if filter.to.is_none() {
                filter.to = Some(Clock::system().now().to_string());
            }
            filter.limit = Some(PAGE.min(args.rate.count.max(1)));
            let asked = ReplayMany {
                filter,
                to: args.to,
                all: args.all,
                dry_run: args.dry_run,
            };
            many(&client, asked, args.rate).await?
        }
    };
    if args.json {
        output::print_json(&report)?;
    } else if report.dry_run {
        output::print(&format!(
            "{} of {} would be pending again\n",
            output::count(report.dispatches, "dispatch", "dispatches"),
            output::count(report.events, "event", "events"),
        ))?;
    } else {
        output::print(&format!(
            "{} of {} pending again{}\n",
            output::count(report.dispatches, "dispatch", "dispatches"),
            output::count(report.events, "event", "events"),
            match report.busy {
                0 => String::new(),
                busy => format!(", {busy} left alone since an attempt is running"),
            }
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn many(client: &AdminClient, wanted: ReplayMany, rate: Rate) -> anyhow::Result<Report> {
    let dry_run = wanted.dry_run;
    let mut counted = Report {
        dry_run: true,
        events: 0,
        dispatches: 0,
        busy: 0,
    };
    let mut asked = ReplayMany {
        filter: Filter {
            limit: Some(super::PAGE),
            ..wanted.filter.clone()
        },
        to: wanted.to.clone(),
        dry_run: true,
        ..wanted
    };
    let spinner = ProgressBar::new_spinner().with_message("counting");
    loop {
        let page: Replayed = client.post("/api/v1/events/replay", &asked).await?;
        counted.events += page.matched;
        counted.dispatches += page.dispatches;
        spinner.inc(page.matched);
        asked.filter.cursor = page.next_cursor;
        if asked.filter.cursor.is_none() {
            break;
        }
    }
    spinner.finish_and_clear();
    if dry_run || counted.events == 0 {
        return Ok(Report { dry_run, ..counted });
    }

    let mut done = Report {
        dry_run: false,
        events: 0,
        dispatches: 0,
        busy: 0,
    };
    let mut asked = wanted;
    let bar = ProgressBar::new(counted.events);
    if let Ok(style) = ProgressStyle::with_template("replaying {bar:40} {pos}/{len} {per_sec} {eta}") {
        bar.set_style(style);
    }
    loop {
        let page: Replayed = client.post("/api/v1/events/replay", &asked).await?;
        done.events += page.matched;
        done.dispatches += page.dispatches;
        done.busy += page.busy;
        bar.inc(page.matched);
        asked.filter.cursor = page.next_cursor;
        if asked.filter.cursor.is_none() {
            break;
        }
        tokio::time::sleep(pause(page.matched, rate)).await;
    }
    bar.finish_and_clear();
    Ok(done)
}

/// How long to wait after `count` events so that `rate` is kept.
fn pause(count: u64, rate: Rate) -> Duration {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    rate.per.saturating_mul(count) / rate.count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_keeps_the_rate() {
        let rate = reader::parse_rate("50/s").unwrap();
        assert_eq!(pause(50, rate), Duration::from_secs(1));
        assert_eq!(pause(0, rate), Duration::ZERO);
    }
}
