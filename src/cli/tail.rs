//! `hooksluice tail`: follows events as they arrive.
//!
//! It asks once a second for the newest page and prints what it has not printed. A burst of more than [`BURST`] events
//! within that second is cut, and says so: a terminal could not be read at that speed, and `events list` has them all.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use super::client::{AdminArgs, AdminClient, ClientError, block_on};
use super::events::{filter_path, row};
use super::output;
use crate::admin::dto::{EventPage, EventSummary, Filter};

/// Events asked for at once.
const PAGE: u32 = 100;

/// Events shown for one interval at most.
const BURST: usize = 500;

/// Pages read for one interval at most.
const PAGES: usize = 20;

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Only events of this source
    #[arg(long)]
    source: Option<String>,
    /// Only events of this type, as the provider names it
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only events with a dispatch for this upstream
    #[arg(long)]
    upstream: Option<String>,
    /// Show so many earlier events first
    #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=500))]
    lines: u32,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Follows until it is interrupted.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    block_on(async {
        let client = AdminClient::new(&args.admin)?;
        let filter = Filter {
            source: args.source,
            event_type: args.event_type,
            upstream: args.upstream,
            limit: Some(PAGE),
            ..Filter::default()
        };
        let mut seen = Seen::default();
        let mut first: Vec<EventSummary> = newest(&client, &filter, &seen).await?.events;
        seen.remember(&first);
        first.truncate(usize::try_from(args.lines)?);
        show(&first, args.json)?;
        let mut away = false;
        loop {
            tokio::select! {
                interrupted = tokio::signal::ctrl_c() => {
                    interrupted?;
                    return Ok(ExitCode::SUCCESS);
                }
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
            match newest(&client, &filter, &seen).await {
                Ok(news) => {
                    away = false;
                    seen.remember(&news.events);
                    show(&news.events, args.json)?;
                    if news.cut {
                        super::say("… more arrived than can be shown: see `hooksluice events list`");
                    }
                }
                // A restart of the server is no reason to stop following.
                Err(error @ (ClientError::Connect { .. } | ClientError::Timeout(_))) => {
                    if !away {
                        super::say(&format!("{error}; still trying"));
                    }
                    away = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
    })
}

/// What was printed already: the ids of the newest page or two.
#[derive(Debug, Default)]
struct Seen {
    ids: BTreeSet<String>,
    any: bool,
}

impl Seen {
    /// Ids are UUIDv7, so the set is in the order of time and the oldest are forgotten first.
    fn remember(&mut self, events: &[EventSummary]) {
        self.any = true;
        self.ids.extend(events.iter().map(|event| event.id.clone()));
        while self.ids.len() > 4 * BURST {
            self.ids.pop_first();
        }
    }
}

/// Unprinted events, newest first.
struct News {
    events: Vec<EventSummary>,
    cut: bool,
}

/// Reads pages until one holds something that was printed before.
async fn newest(client: &AdminClient, filter: &Filter, seen: &Seen) -> Result<News, ClientError> {
    let mut filter = filter.clone();
    let mut events = Vec::new();
    for _ in 0..PAGES {
        let page: EventPage = client.get(&filter_path(&filter)).await?;
        let count = page.events.len();
        let fresh: Vec<EventSummary> = page
            .events
            .into_iter()
            .filter(|event| !seen.ids.contains(&event.id))
            .collect();
        let met = fresh.len() < count;
        events.extend(fresh);
        // The first time nothing is known yet: one page is enough.
        if met || !seen.any || page.next_cursor.is_none() {
            return Ok(News { events, cut: false });
        }
        if events.len() >= BURST {
            events.truncate(BURST);
            return Ok(News { events, cut: true });
        }
        filter.cursor = page.next_cursor;
    }
    Ok(News { events, cut: false })
}

/// Prints oldest first.
fn show(newest_first: &[EventSummary], json: bool) -> anyhow::Result<()> {
    for event in newest_first.iter().rev() {
        if json {
            output::print_json_line(event)?;
        } else {
            output::print(&format!("{}\n", row(event).join("  ")))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_printed_is_remembered_and_bounded() {
        let mut seen = Seen::default();
        for block in 0..10 {
            let events: Vec<EventSummary> = (0..BURST)
                .map(|n| EventSummary {
                    id: format!("{block}{n:05}"),
                    ..EventSummary::default()
                })
                .collect();
            seen.remember(&events);
        }
        assert_eq!(seen.ids.len(), 4 * BURST);
        assert!(seen.ids.contains("900499"), "the newest stay");
    }
}
