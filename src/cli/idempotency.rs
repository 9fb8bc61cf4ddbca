//! `hooksluice idempotency`: what became of calls with an `Idempotency-Key`, and a person's word on those of which nobody
//! knows.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{ArgGroup, Subcommand};

use super::client::{AdminArgs, AdminClient, block_on, escaped};
use super::output::{self, printable};
use crate::admin::dto::{GivenAnswer, RecordDetail, RecordPage, RecordSummary, Resolve};

/// The most records a page may have.
const PAGE: u32 = 500;

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: IdempotencyCommand,
}

#[derive(Debug, Subcommand)]
enum IdempotencyCommand {
    /// List records, newest first
    List(ListArgs),
    /// Show one record with the answer that is kept
    Show(ShowArgs),
    /// Say what became of a call of which nobody knows whether it took effect
    Resolve(ResolveArgs),
}

#[derive(clap::Args, Debug)]
struct ListArgs {
    /// Only of this route
    #[arg(long)]
    route: Option<String>,
    /// Only in this state
    #[arg(long, value_parser = ["running", "done", "unstored", "ambiguous"])]
    state: Option<String>,
    /// Only of this client's key
    #[arg(long)]
    key: Option<String>,
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
struct ShowArgs {
    /// The record: ROUTE/DIGEST
    #[arg(value_parser = record)]
    record: Record,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(clap::Args, Debug)]
#[command(group = ArgGroup::new("resolution").required(true).args(["release", "status"]))]
struct ResolveArgs {
    /// The record: ROUTE/DIGEST
    #[arg(value_parser = record)]
    record: Record,
    /// The call had no effect: the key is new again, and its next request is carried out
    #[arg(long)]
    release: bool,
    /// It took effect: its repetitions get this status, and what --content-type and --body say
    #[arg(long, value_parser = clap::value_parser!(u16).range(200..600))]
    status: Option<u16>,
    /// Content-Type of the answer
    #[arg(long, requires = "status", value_name = "TYPE")]
    content_type: Option<String>,
    /// Body of the answer
    #[arg(long, requires = "status", value_name = "TEXT")]
    body: Option<String>,
    /// File that holds the body of the answer
    #[arg(long, requires = "status", value_name = "FILE", conflicts_with = "body")]
    body_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// `ROUTE/DIGEST`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    route: String,
    digest: String,
}

impl Record {
    fn path(&self) -> String {
        format!("/api/v1/idempotency/{}/{}", escaped(&self.route), escaped(&self.digest))
    }
}

fn record(text: &str) -> Result<Record, String> {
    match text.split_once('/') {
        Some((route, digest)) if !route.is_empty() && !digest.is_empty() => Ok(Record {
            route: route.to_owned(),
            digest: digest.to_owned(),
        }),
        _ => Err("expected ROUTE/DIGEST, as `hooksluice idempotency list` shows it".to_owned()),
    }
}

/// Does what the arguments say.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        IdempotencyCommand::List(args) => block_on(list(args)),
        IdempotencyCommand::Show(args) => block_on(show(args)),
        IdempotencyCommand::Resolve(args) => block_on(resolve(args)),
    }
}

async fn list(args: ListArgs) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.admin)?;
    let wanted = usize::try_from(args.limit)?;
    let mut found = RecordPage {
        records: Vec::new(),
        next_cursor: args.cursor.clone(),
    };
    // A page may be short although more match, since the server looks at a bounded number of records each time.
    loop {
        let left = u32::try_from(wanted - found.records.len()).unwrap_or(PAGE).min(PAGE);
        let page: RecordPage = client.get(&path(&args, left, found.next_cursor.as_deref())).await?;
        found.records.extend(page.records);
        found.next_cursor = page.next_cursor;
        if found.next_cursor.is_none() || found.records.len() >= wanted {
            break;
        }
    }
    if args.json {
        output::print_json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    match found.records.as_slice() {
        [] => output::print("no record matches\n")?,
        records => output::print(&table(records))?,
    }
    if let Some(cursor) = &found.next_cursor {
        output::print(&format!("\nmore: --cursor {}\n", printable(cursor)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn path(args: &ListArgs, limit: u32, cursor: Option<&str>) -> String {
    let mut path = format!("/api/v1/idempotency?limit={limit}");
    for (name, value) in [
        ("route", args.route.as_deref()),
        ("state", args.state.as_deref()),
        ("key", args.key.as_deref()),
        ("cursor", cursor),
    ] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", escaped(value)));
        }
    }
    path
}

async fn show(args: ShowArgs) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.admin)?;
    let found: RecordDetail = client.get(&args.record.path()).await?;
    if args.json {
        output::print_json(&found)?;
    } else {
        output::print(&shown(&found))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn resolve(args: ResolveArgs) -> anyhow::Result<ExitCode> {
    let body = match &args.body_file {
        Some(file) => {
            let text = std::fs::read_to_string(file);
            Some(text.with_context(|| format!("could not read {}", file.display()))?)
        }
        None => args.body,
    };
    let asked = Resolve {
        release: args.release,
        answer: args.status.map(|status| GivenAnswer {
            status,
            content_type: args.content_type,
            body,
        }),
    };
    let client = AdminClient::new(&args.admin)?;
    let found: RecordDetail = client.post(&format!("{}/resolve", args.record.path()), &asked).await?;
    if args.json {
        output::print_json(&found)?;
    } else {
        output::print(&resolved(&found))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(records: &[RecordSummary]) -> String {
    let mut table = output::table(&["ACCEPTED", "STATE", "STATUS", "KEY", "UNTIL", "RECORD"]);
    for record in records {
        table.add_row([
            printable(&record.accepted_at),
            printable(&record.state),
            record
                .status
                .map_or_else(|| "-".to_owned(), |status| status.to_string()),
            printable(&output::cut(&record.key)),
            printable(&record.expires_at),
            printable(&record.record),
        ]);
    }
    output::lines(&table)
}

fn shown(found: &RecordDetail) -> String {
    let mut out = format!(
        "record    {}\nkey       {}\nstate     {}\naccepted  {}\nuntil     {}\n",
        printable(&found.record),
        printable(found.key.as_deref().unwrap_or("-")),
        printable(&found.state),
        printable(found.accepted_at.as_deref().unwrap_or("-")),
        printable(found.expires_at.as_deref().unwrap_or("-")),
    );
    if found.state == "ambiguous" {
        out.push_str(&format!("\n{}\n", advice(&found.record)));
    }
    if let Some(answer) = &found.answer {
        out.push_str(&format!("\nanswer    {}\n", answer.status));
        for (name, value) in &answer.headers {
            out.push_str(&format!("  {}: {}\n", printable(name), printable(value)));
        }
        match &answer.body_text {
            Some(text) if text.is_empty() => {}
            Some(text) => out.push_str(&format!("\n{}\n", output::printable_lines(text))),
            None => out.push_str("\nnot UTF-8: use --json\n"),
        }
    }
    out
}

/// What a person does about a call of which nobody knows.
fn advice(record: &str) -> String {
    let record = printable(record);
    format!(
        "Nobody knows whether it took effect. Look in the app; if it did not: hooksluice idempotency resolve {record} \
         --release; if it did, with the answer for its repetitions: hooksluice idempotency resolve {record} --status 201 \
         --content-type application/json --body '{{…}}'"
    )
}

fn resolved(found: &RecordDetail) -> String {
    let record = printable(&found.record);
    match &found.answer {
        Some(answer) => format!("{record} is done: its repetitions get {}\n", answer.status),
        None => format!("{record} is released: the next request with its key is carried out\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_named_as_it_is_listed() {
        assert_eq!(record("orders/ab").unwrap().path(), "/api/v1/idempotency/orders/ab");
        for bad in ["", "orders", "/ab", "orders/"] {
            assert!(record(bad).is_err(), "{bad}");
        }
        let odd = record("a/../b").unwrap();
        assert_eq!(odd.path(), "/api/v1/idempotency/a/..%2Fb");
    }

    #[test]
    fn an_ambiguous_record_comes_with_the_commands_that_resolve_it() {
        let found = RecordDetail {
            record: "orders/ab".to_owned(),
            state: "ambiguous".to_owned(),
            ..RecordDetail::default()
        };
        let shown = shown(&found);
        assert!(
            shown.contains("hooksluice idempotency resolve orders/ab --release"),
            "{shown}"
        );
        assert!(
            shown.contains("hooksluice idempotency resolve orders/ab --status"),
            "{shown}"
        );
    }
}
