//! `hooksluice providers`: the catalogue, or one record explained.

use std::process::ExitCode;

use serde::Serialize;

use crate::verify::presets;
use crate::verify::record::Record;

use super::scheme::unknown_provider;
use super::{output, usage_error};

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Explain this one
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the record as it is written, to start one of your own from
    #[arg(long, requires = "name", conflicts_with = "json")]
    toml: bool,
}

#[derive(Serialize)]
struct Row<'r> {
    name: &'r str,
    title: &'r str,
    kind: &'r str,
    confidence: &'r str,
    docs: Option<&'r str>,
}

/// Prints the list, or the record.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match &args.name {
        None => list(args.json),
        Some(name) => match presets::find(name) {
            None => Ok(usage_error(&unknown_provider(name))),
            Some(record) if args.toml => {
                output::print(presets::text(record.name()).unwrap_or_default())?;
                Ok(ExitCode::SUCCESS)
            }
            Some(record) => explain(&record, args.json),
        },
    }
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let records: Vec<_> = presets::names().into_iter().filter_map(presets::find).collect();
    let rows: Vec<Row<'_>> = records.iter().map(|record| row(record)).collect();
    if json {
        output::print_json(&rows)?;
    } else {
        let mut table = output::table(&["NAME", "PROVIDER", "KIND", "CONFIDENCE"]);
        for row in rows {
            table.add_row([row.name, row.title, row.kind, row.confidence]);
        }
        output::print(&output::lines(&table))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row(record: &Record) -> Row<'_> {
    Row {
        name: record.name(),
        title: record.title(),
        kind: record.kind().as_str(),
        confidence: record.confidence().as_str(),
        docs: record.docs(),
    }
}

fn explain(record: &Record, json: bool) -> anyhow::Result<ExitCode> {
    let facts = record.explain();
    if json {
        let map: serde_json::Map<_, _> = facts
            .into_iter()
            .map(|(name, text)| (name.to_owned(), text.into()))
            .collect();
        output::print_json(&map)?;
    } else {
        let mut text = format!("{record}\n");
        for (name, value) in facts {
            text.push_str(&format!("  {name:<15} {value}\n"));
        }
        for note in record.notes() {
            text.push_str(&format!("  - {note}\n"));
        }
        output::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}
