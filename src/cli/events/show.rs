//! `hooksluice events show ID`.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use data_encoding::BASE64;

use crate::admin::dto::EventDetail;
use crate::cli::client::{AdminArgs, AdminClient, escaped};
use crate::cli::output::{self, printable, printable_lines};

#[derive(clap::Args, Debug)]
pub(super) struct ShowArgs {
    /// The event's id
    id: String,
    /// Print JSON
    #[arg(long, conflicts_with = "body")]
    json: bool,
    /// Print the body's exact bytes and nothing else
    #[arg(long)]
    body: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(super) async fn run(args: ShowArgs) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.admin)?;
    let event: EventDetail = client.get(&format!("/api/v1/events/{}", escaped(&args.id))).await?;
    if args.json {
        output::print_json(&event)?;
    } else if args.body {
        let body = BASE64
            .decode(event.body_base64.as_bytes())
            .context("the server's answer holds no readable body")?;
        let mut out = io::stdout().lock();
        out.write_all(&body)?;
        out.flush()?;
        if event.body_masked {
            crate::cli::say("these are not the exact bytes: the provider's token in them is masked");
        }
    } else {
        output::print(&shown(&event))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(event: &EventDetail) -> String {
    let summary = &event.summary;
    let mut out = String::new();
    let mut line = |name: &str, value: &str| out.push_str(&format!("{name:<13}{}\n", printable(value)));
    line("event", &summary.id);
    line("source", &summary.source);
    line("received", &summary.received_at);
    line("delivery id", summary.delivery_id.as_deref().unwrap_or("-"));
    line("type", summary.event_type.as_deref().unwrap_or("-"));
    if let Some(scope) = &event.scope {
        line("scope", scope);
    }
    line(
        "verified",
        match (event.verified, &event.secret_label) {
            (true, Some(label)) => format!("with secret {label}"),
            (true, None) => "yes".to_owned(),
            (false, _) => "NO: its source takes unsigned requests".to_owned(),
        }
        .as_str(),
    );
    line("client", &event.client);
    line("host", event.authority.as_deref().unwrap_or("-"));
    line("request", &format!("{} {}", event.method, event.target));
    out.push_str("\nheaders\n");
    for (name, value) in &event.headers {
        out.push_str(&format!("  {}: {}\n", printable(name), printable(value)));
    }
    out.push_str("\ndispatches\n");
    if let Some(of) = &summary.elsewhere {
        out.push_str(&format!("  the copy of {}, which another replica has\n", printable(of)));
    } else if summary.dispatches.is_empty() {
        out.push_str("  not yet admitted\n");
    }
    for dispatch in &summary.dispatches {
        let due = match &dispatch.due_at {
            Some(due) => format!(", next not before {due}"),
            None => String::new(),
        };
        out.push_str(&printable(&format!(
            "  {}: {} after {}{due}",
            dispatch.upstream,
            dispatch.state,
            output::count(dispatch.attempts.into(), "attempt", "attempts")
        )));
        out.push('\n');
    }
    if !event.attempts.is_empty() {
        out.push_str("\nattempts\n");
        out.push_str(&attempts(event));
    }
    let masked = if event.body_masked {
        ", the provider's token in it masked"
    } else {
        ""
    };
    out.push_str(&format!("\nbody ({}{masked})\n", output::size(summary.body_bytes)));
    match &event.body_text {
        Some(text) if text.is_empty() => {}
        Some(text) => {
            out.push_str(&printable_lines(text));
            out.push('\n');
        }
        None => out.push_str("not UTF-8: use --body or --json\n"),
    }
    out
}

fn attempts(event: &EventDetail) -> String {
    let mut table = output::table(&["UPSTREAM", "NO", "STARTED", "TOOK", "OUTCOME", "ANSWER"]);
    for attempt in &event.attempts {
        let outcome = match attempt.status {
            Some(status) => format!("{} {status}", attempt.outcome),
            None => attempt.outcome.clone(),
        };
        let answer = attempt.cause.as_ref().unwrap_or(&attempt.excerpt);
        table.add_row([
            printable(&attempt.upstream),
            attempt.number.to_string(),
            printable(&attempt.started_at),
            format!("{}ms", attempt.took_ms),
            printable(&outcome),
            printable(answer),
        ]);
    }
    output::lines(&table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::dto::{Attempt, EventSummary};

    #[test]
    fn an_event_is_shown_without_driving_the_terminal() {
        let shown = shown(&EventDetail {
            summary: EventSummary {
                id: "0190".into(),
                delivery_id: Some("\u{9b}31m".into()),
                ..EventSummary::default()
            },
            headers: vec![("x-note".into(), "a\x07".into())],
            body_text: Some("{\n \"a\": \"\x1b\"}".into()),
            attempts: vec![Attempt {
                outcome: "refused".into(),
                status: Some(500),
                excerpt: "oops\x1b[0m".into(),
                ..Attempt::default()
            }],
            ..EventDetail::default()
        });
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
        assert!(shown.contains("refused 500"), "{shown}");
        assert!(shown.contains("NO: its source takes unsigned requests"), "{shown}");
    }
}
