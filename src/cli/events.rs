//! `hooksluice events`: find, inspect, replay and discard what the running server has stored.

mod filter;
mod replay;
mod show;

use std::process::ExitCode;

use clap::Subcommand;

use self::filter::FilterArgs;
pub(super) use self::filter::path as filter_path;
use super::client::{AdminArgs, AdminClient, block_on, escaped};
use super::{Later, not_in_this_version, output};
use crate::admin::dto::{Discard, Discarded, Dispatch, EventDetail, EventPage, EventSummary};

/// The most events a page may have.
const PAGE: u32 = 500;

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: EventsCommand,
}

#[derive(Debug, Subcommand)]
enum EventsCommand {
    /// List events, newest first
    List(ListArgs),
    /// Show one event with its headers, attempts and body
    Show(show::ShowArgs),
    /// Send one event, or all that match, again: past dedupe and freshness
    Replay(replay::ReplayArgs),
    /// Give an event's undelivered dispatches up for good
    Discard(DiscardArgs),
    /// Write events to a file
    #[command(hide = true)]
    Export(Later),
}

#[derive(clap::Args, Debug)]
struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Only events received before this time (the same as --until)
    #[arg(long, value_name = "TIME", value_parser = filter::time, conflicts_with = "until")]
    to: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Go on where an earlier list ended
    #[arg(long)]
    cursor: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(clap::Args, Debug)]
struct DiscardArgs {
    /// The event's id
    id: String,
    /// Only the dispatch for this upstream
    #[arg(long)]
    upstream: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Does what the arguments say.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        EventsCommand::List(args) => block_on(list(args)),
        EventsCommand::Show(args) => block_on(show::run(args)),
        EventsCommand::Replay(args) => block_on(replay::run(args)),
        EventsCommand::Discard(args) => block_on(discard(args)),
        EventsCommand::Export(_) => Ok(not_in_this_version("events export")),
    }
}

async fn list(args: ListArgs) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.admin)?;
    let mut filter = args.filter.into_filter();
    filter.to = filter.to.or(args.to);
    filter.cursor = args.cursor;
    let wanted = usize::try_from(args.limit)?;
    let mut found = EventPage::default();
    // A page may be short although more match, since the server looks at a bounded number of events each time.
    loop {
        filter.limit = u32::try_from(wanted - found.events.len())
            .ok()
            .map(|left| left.min(PAGE));
        let page: EventPage = client.get(&filter::path(&filter)).await?;
        found.events.extend(page.events);
        found.next_cursor = page.next_cursor;
        filter.cursor.clone_from(&found.next_cursor);
        if found.next_cursor.is_none() || found.events.len() >= wanted {
            break;
        }
    }
    if args.json {
        output::print_json(&found)?;
    } else {
        match found.events.as_slice() {
            [] => output::print("no event matches\n")?,
            events => output::print(&listed(events))?,
        }
        if let Some(cursor) = &found.next_cursor {
            output::print(&format!("\nmore: --cursor {}\n", output::printable(cursor)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn listed(events: &[EventSummary]) -> String {
    let mut table = output::table(&["RECEIVED", "ID", "SOURCE", "TYPE", "DELIVERY ID", "SIZE", "DISPATCHES"]);
    for event in events {
        table.add_row(row(event));
    }
    output::lines(&table)
}

/// One event as cells, harmless for a terminal.
pub(super) fn row(event: &EventSummary) -> [String; 7] {
    let dispatches: Vec<String> = event
        .dispatches
        .iter()
        .map(|d| format!("{} {} ({})", d.upstream, d.state, d.attempts))
        .collect();
    let dispatches = match (dispatches.is_empty(), &event.elsewhere) {
        (false, _) => dispatches.join(", "),
        (true, Some(of)) => format!("elsewhere: {of}"),
        (true, None) => "not yet admitted".to_owned(),
    };
    [
        output::printable(&event.received_at),
        output::printable(&event.id),
        output::printable(&event.source),
        output::cut(&output::printable(event.event_type.as_deref().unwrap_or("-"))),
        output::cut(&output::printable(event.delivery_id.as_deref().unwrap_or("-"))),
        output::size(event.body_bytes),
        output::printable(&dispatches),
    ]
}

async fn discard(args: DiscardArgs) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.admin)?;
    let path = format!("/api/v1/events/{}/discard", escaped(&args.id));
    let body = Discard {
        upstream: args.upstream.clone(),
    };
    let discarded: Discarded = client.post(&path, &body).await?;
    if args.json {
        output::print_json(&discarded)?;
    } else {
        let count = output::count(discarded.dispatches, "dispatch", "dispatches");
        let why = match discarded.dispatches {
            0 => {
                let event: EventDetail = client.get(&format!("/api/v1/events/{}", escaped(&args.id))).await?;
                why_none(&event.summary.dispatches, args.upstream.as_deref())
            }
            _ => String::new(),
        };
        output::print(&format!("{count} discarded{}\n", output::printable(&why)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Why nothing was left to be discarded.
fn why_none(dispatches: &[Dispatch], upstream: Option<&str>) -> String {
    let states: Vec<String> = dispatches
        .iter()
        .filter(|dispatch| upstream.is_none_or(|name| name == dispatch.upstream))
        .map(|dispatch| format!("{} is {}", dispatch.upstream, dispatch.state))
        .collect();
    match (states.as_slice(), upstream) {
        ([], Some(upstream)) => format!(": the event has no dispatch for {upstream}"),
        ([], None) => ": the event has no dispatch".to_owned(),
        (states, _) => format!(": {} already", states.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::dto::Dispatch;

    #[test]
    fn a_list_shows_hostile_ids_escaped() {
        let shown = listed(&[EventSummary {
            id: "0190".into(),
            source: "stripe".into(),
            delivery_id: Some("evt\x1b[2J".into()),
            dispatches: vec![Dispatch {
                upstream: "app".into(),
                state: "dead".into(),
                attempts: 3,
                ..Dispatch::default()
            }],
            ..EventSummary::default()
        }]);
        assert!(shown.contains("evt\\u{1b}[2J"), "{shown}");
        assert!(shown.contains("app dead (3)"), "{shown}");
    }

    #[test]
    fn a_long_id_is_cut_in_a_list() {
        let shown = listed(&[EventSummary {
            delivery_id: Some("é".repeat(3_000)),
            event_type: Some("t".repeat(64)),
            ..EventSummary::default()
        }]);
        assert!(shown.contains(&format!("{}…", "é".repeat(63))), "{shown}");
        assert!(shown.contains(&"t".repeat(64)), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() < 300), "{shown}");
    }

    #[test]
    fn a_discard_that_found_nothing_says_why() {
        let dispatches = [Dispatch {
            upstream: "app".into(),
            state: "delivered".into(),
            ..Dispatch::default()
        }];
        assert_eq!(why_none(&dispatches, None), ": app is delivered already");
        assert_eq!(why_none(&dispatches, Some("app")), ": app is delivered already");
        let other = why_none(&dispatches, Some("audit"));
        assert_eq!(other, ": the event has no dispatch for audit");
    }
}
