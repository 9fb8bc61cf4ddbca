//! `hooksluice providers`: the catalogue, or one record explained.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use serde::Serialize;

use crate::config;
use crate::verify::presets;
use crate::verify::record::{Confidence, Record};

use super::scheme::{unknown_among, unknown_provider};
use super::{output, usage_error};

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Explain this one
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The configuration whose `[providers.NAME]` are known too. Without it: ./hooksluice.toml, then
    /// /etc/hooksluice/hooksluice.toml
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only those whose name, title or other name contains this
    #[arg(long, value_name = "TEXT", conflicts_with = "name")]
    search: Option<String>,
    /// Only those of this kind
    #[arg(long, value_name = "KIND", conflicts_with = "name")]
    kind: Option<String>,
    /// Only those of this status: proven, documented or unverified
    #[arg(long, value_name = "STATUS", conflicts_with = "name")]
    status: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the record as it is written, to start one of your own from
    #[arg(long, requires = "name", conflicts_with = "json")]
    toml: bool,
    /// Print the list of the presets as Markdown
    #[arg(long, conflicts_with_all = ["json", "toml", "name", "config"])]
    markdown: bool,
}

/// A name with its record, unless that has mistakes.
type OwnRecord = (String, Option<Arc<Record>>);

#[derive(Serialize)]
struct Row<'r> {
    name: &'r str,
    title: &'r str,
    kind: &'r str,
    status: &'r str,
    body_authenticated: bool,
    aliases: &'r [String],
    docs: Option<&'r str>,
    /// No preset: a table of the configuration.
    own: bool,
}

/// Prints the list, or the record.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match &args.name {
        None => list(&args),
        Some(name) => match presets::find(name) {
            None => explain_own(&args, name),
            Some(record) if args.toml => {
                output::print(presets::text(record.name()).unwrap_or_default())?;
                Ok(ExitCode::SUCCESS)
            }
            Some(record) => explain(&record, args.json),
        },
    }
}

/// A record of the configuration in use.
fn explain_own(args: &Args, name: &str) -> anyhow::Result<ExitCode> {
    let own = match config::own_providers(args.config.as_deref()) {
        Ok(own) => own,
        Err(report) if args.config.is_some() => return Ok(usage_error(&report.render(false))),
        // Nobody spoke of a configuration.
        Err(_) => return Ok(usage_error(&unknown_provider(name))),
    };
    match own.records.iter().find(|(known, _)| known == name) {
        Some((_, Some(_))) if args.toml => Ok(usage_error(&format!(
            "`{name}` is no preset: it is written in the configuration"
        ))),
        Some((_, Some(record))) => explain(record, args.json),
        Some((_, None)) => Ok(usage_error(&own.report.render(false))),
        None => Ok(usage_error(&unknown_among(
            name,
            own.records.iter().map(|(known, _)| known.as_str()),
        ))),
    }
}

fn list(args: &Args) -> anyhow::Result<ExitCode> {
    let records: Vec<_> = presets::names().into_iter().filter_map(presets::find).collect();
    let own = match own_of_list(args) {
        Ok(own) => own,
        Err(report) => return Ok(usage_error(&report.render(false))),
    };
    for (name, _) in own.iter().filter(|(_, record)| record.is_none()) {
        super::say(&format!(
            "[providers.{}] cannot be read: hooksluice check says why",
            output::printable(name)
        ));
    }
    let rows = rows(&own, &records, args);
    if args.markdown {
        output::print(&markdown(&rows))?;
    } else if args.json {
        output::print_json(&rows)?;
    } else if rows.is_empty() {
        super::say("no preset is like that; `[providers.NAME]` describes one of your own");
        return Ok(ExitCode::FAILURE);
    } else {
        output::print(&list_of(&rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Those that are asked for, one's own first.
fn rows<'r>(own: &'r [OwnRecord], presets: &'r [Arc<Record>], args: &Args) -> Vec<Row<'r>> {
    let own = own.iter().filter_map(|(_, record)| record.as_ref());
    let own = own.map(|record| Row {
        own: true,
        ..row(record)
    });
    let presets = presets.iter().map(|record| row(record));
    own.chain(presets).filter(|row| is_asked_for(row, args)).collect()
}

fn list_of(rows: &[Row<'_>]) -> String {
    let mut table = output::table(&["NAME", "PROVIDER", "KIND", "STATUS"]);
    for row in rows {
        let whose = if row.own { ", yours" } else { "" };
        let cells = [row.name, row.title, row.kind, &format!("{}{whose}", row.status)];
        table.add_row(cells.map(output::printable));
    }
    output::lines(&table)
}

/// The records of the configuration in use. One that nobody spoke of may be missing or broken.
fn own_of_list(args: &Args) -> Result<Vec<OwnRecord>, config::Report> {
    if args.markdown {
        return Ok(Vec::new());
    }
    match config::own_providers(args.config.as_deref()) {
        Ok(own) => Ok(own.records),
        Err(report) if args.config.is_some() => Err(report),
        Err(_) => Ok(Vec::new()),
    }
}

fn is_asked_for(row: &Row<'_>, args: &Args) -> bool {
    let contains = |text: &str| {
        let text = text.to_lowercase();
        [row.name, row.title]
            .into_iter()
            .chain(row.aliases.iter().map(String::as_str))
            .any(|name| name.to_lowercase().contains(&text))
    };
    args.search.as_deref().is_none_or(contains)
        && args.kind.as_deref().is_none_or(|kind| kind == row.kind)
        && args.status.as_deref().is_none_or(|status| status == row.status)
}

fn row(record: &Record) -> Row<'_> {
    Row {
        name: record.name(),
        title: record.title(),
        kind: record.kind().as_str(),
        status: record.confidence().as_str(),
        body_authenticated: record.body_authenticated(),
        aliases: record.aliases(),
        docs: record.docs(),
        own: false,
    }
}

/// The README's table. A provider's page in its title; a star where the body is not signed as a whole.
fn markdown(rows: &[Row<'_>]) -> String {
    let count = |status: Confidence| rows.iter().filter(|row| row.status == status.as_str()).count();
    let mut out = format!(
        "{} presets: {} proven, {} documented, {} unverified.\n\n| `provider` | | kind | status |\n|---|---|---|---|\n",
        rows.len(),
        count(Confidence::Proven),
        count(Confidence::Documented),
        count(Confidence::Unverified),
    );
    for row in rows {
        let title = row.title.replace('|', "\\|");
        let title = match row.docs {
            Some(docs) if !docs.contains([')', ' ', '|']) => format!("[{title}]({docs})"),
            Some(_) | None => title,
        };
        let star = if row.body_authenticated { "" } else { " *" };
        out.push_str(&format!(
            "| `{}` | {title} | {}{star} | {} |\n",
            row.name, row.kind, row.status
        ));
    }
    out
}

fn explain(record: &Record, json: bool) -> anyhow::Result<ExitCode> {
    let explanation = record.explain();
    if json {
        let map = |facts: &[(&'static str, String)]| {
            let facts = facts
                .iter()
                .map(|(name, text)| ((*name).to_owned(), text.clone().into()));
            facts.collect::<serde_json::Map<_, serde_json::Value>>()
        };
        let mut all = map(&explanation.about);
        all.insert("name".to_owned(), record.name().into());
        all.insert("title".to_owned(), record.title().into());
        let families = explanation
            .families
            .iter()
            .map(|family| serde_json::Value::Object(map(family)));
        all.insert("families".to_owned(), families.collect::<Vec<_>>().into());
        all.extend(map(&explanation.habits));
        all.insert("notes".to_owned(), record.notes().into());
        output::print_json(&all)?;
    } else {
        output::print(&in_words(record))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn in_words(record: &Record) -> String {
    let explanation = record.explain();
    let mut text = format!("{record}\n");
    let families = explanation.families.iter().filter(|family| !family.is_empty());
    let blocks = [&explanation.about].into_iter().chain(families);
    for block in blocks.chain([&explanation.habits]) {
        for (name, value) in block {
            text.push_str(&format!("  {:<22} {value}\n", name.replace('_', " ")));
        }
        text.push('\n');
    }
    for note in record.notes() {
        text.push_str(&format!("  - {note}\n"));
    }
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = include_str!("../../README.md");
    const BEGIN: &str = "<!-- hooksluice providers --markdown -->\n";

    fn all() -> Vec<std::sync::Arc<Record>> {
        presets::names().into_iter().filter_map(presets::find).collect()
    }

    #[test]
    fn the_readme_has_the_table_that_the_program_prints() {
        let records = all();
        let rows: Vec<_> = records.iter().map(|record| row(record)).collect();
        let (_, from) = README.split_once(BEGIN).unwrap();
        let (table, _) = from.split_once("<!-- end -->").unwrap();
        assert!(
            table.trim() == markdown(&rows).trim(),
            "README.md does not have the table that the program prints: run tests/readme/table"
        );
    }

    #[test]
    fn every_record_is_explained_whole() {
        for record in all() {
            let text = in_words(&record);
            let name = record.name();
            let again = text.lines().find(|line| line.trim_start().starts_with("same again "));
            assert_eq!(
                again.unwrap_or_default().contains("never"),
                record.ping(),
                "{name}: {again:?}"
            );
            for part in ["kind ", "status ", "same again ", "methods ", "answered "] {
                assert!(text.contains(part), "{name}: {part} is missing in\n{text}");
            }
            assert_eq!(
                text.contains("NOT signed"),
                !record.body_authenticated() && text.contains("re signed"),
                "{name}\n{text}"
            );
            let is_hint = record.facts_confidence().as_str() == "hint";
            let says_facts =
                text.contains("sender waits") || text.contains("sender repeats") || text.contains("sender gives up");
            assert_eq!(
                text.contains("(a hint, not confirmed)"),
                is_hint && says_facts,
                "{name}\n{text}"
            );
        }
    }

    fn args(words: &[&str]) -> Args {
        use clap::Parser as _;
        let words = ["hooksluice", "providers"].into_iter().chain(words.iter().copied());
        match crate::cli::Cli::parse_from(words).command {
            crate::cli::Command::Providers(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_list_knows_the_providers_of_the_configuration() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "[providers.acme]\nkind = \"hmac\"\nsignature = \"header:X-Acme\"\n[providers.broken]\nkind = 1\n";
        std::fs::write(file.path(), text).unwrap();
        let args = args(&["-c", file.path().to_str().unwrap(), "--search", "ACME"]);
        let own = own_of_list(&args).unwrap();
        let known: Vec<_> = own
            .iter()
            .map(|(name, record)| (name.as_str(), record.is_some()))
            .collect();
        assert_eq!(known, [("acme", true), ("broken", false)]);
        let records = all();
        let rows = rows(&own, &records, &args);
        let found: Vec<_> = rows.iter().filter(|row| row.own).map(|row| row.name).collect();
        assert_eq!(found, ["acme"]);
        assert!(list_of(&rows).contains("yours"), "{}", list_of(&rows));
    }

    #[test]
    fn the_list_can_be_narrowed() {
        let records = all();
        let found = |words: &[&str]| {
            let args = args(words);
            let rows = records.iter().map(|record| row(record));
            let names = rows
                .filter(|row| is_asked_for(row, &args))
                .map(|row| row.name.to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(found(&[]).len(), records.len());
        assert!(found(&["--search", "SHOPIFY"]).contains(&"shopify".to_owned()));
        assert!(
            found(&["--kind", "token"])
                .iter()
                .all(|name| presets::find(name).unwrap().kind().as_str() == "token")
        );
        let proven = found(&["--status", "proven"]);
        assert!(proven.contains(&"stripe".to_owned()) && proven.len() < records.len());
        assert_eq!(found(&["--search", "no such provider"]), Vec::<String>::new());
    }
}
