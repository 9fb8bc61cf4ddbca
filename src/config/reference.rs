//! The reference of all configuration keys, made from what the reader asks a file for.
//!
//! Names, kinds, ranges and required keys are the reader's; defaults and bounds are those that the build uses; one line
//! of meaning for each key stands in [`rows`]. A key without a row, a row without a key, and a row whose default or
//! bounds are not what a file meets are failures of the tests.

mod language;
mod rows;

use std::fmt::Write as _;

use self::language::Word;
use self::rows::{Row, Usual};
use super::file::File;
use crate::diagnostic::Diagnostics;
use crate::reader::{Document, Key, Kind};

/// Stands for a name that the user chooses.
const NAME: &str = "NAME";

/// Where the keys of every secret reference are explained.
const SECRET: &str = "secret reference";

const INTRODUCTION: &str = "\
# Configuration reference

Every key of `hooksluice.toml`, printed by the program itself: `hooksluice reference > config/REFERENCE.md`.
[`hooksluice.toml`](hooksluice.toml) shows the same keys in place; `hooksluice check -c FILE` judges a file.

Durations are `\"100ms\"`, `\"30s\"`, `\"5m\"`, `\"24h\"`, `\"7d\"`; sizes `\"512B\"`, `\"32KiB\"`, `\"5MiB\"`, `\"20GiB\"`; rates
`\"50/s\"`, `\"600/m\"`, `\"1000/h\"`. `NAME` is yours to choose: 1 to 64 of `a-z A-Z 0-9 - _ .`. A dash in the column
\"default\" means that nothing is set unless you set it. An unknown key is an error.

A reload (`hooksluice reload`, SIGHUP, or a change of the file) takes every change up unless it says otherwise here.
";

/// Every key that a file may have, in the order in which they are read. A table is looked into only where it is there,
/// so an empty file grows by the tables that its reader asked for, until there is none left.
fn keys() -> Vec<Key> {
    let mut tables = Vec::new();
    loop {
        let text = tables.join("\n");
        let mut ignored = Diagnostics::new();
        let document = Document::watched(&text, &mut ignored);
        File::read(&document, &mut ignored);
        let keys = document.keys();
        let wanted: Vec<String> = keys.iter().filter_map(header).collect();
        if wanted == tables {
            return keys;
        }
        tables = wanted;
    }
}

/// The line that opens the table which `key` names.
fn header(key: &Key) -> Option<String> {
    let path = match key.table.as_str() {
        "" => key.name.to_owned(),
        table => format!("{table}.{}", key.name),
    };
    match key.kind {
        Kind::Table | Kind::Secret => Some(format!("[{path}]")),
        Kind::Tables => Some(format!("[[{path}]]")),
        Kind::Named => Some(format!("[{path}.{NAME}]")),
        Kind::Any
        | Kind::Text
        | Kind::Boolean
        | Kind::Integer(_)
        | Kind::Duration
        | Kind::Size
        | Kind::Rate
        | Kind::Choice(_)
        | Kind::Texts
        | Kind::Form(_) => None,
    }
}

/// A table of the reference: the tables of all secret references are one, and lists have no numbers.
fn table_of(key: &Key, keys: &[Key]) -> String {
    let is_secret = |other: &Key| other.kind == Kind::Secret && format!("{}.{}", other.table, other.name) == key.table;
    match keys.iter().any(is_secret) {
        true => SECRET.to_owned(),
        false => key.table.replace("[0]", ""),
    }
}

/// All tables in the order of reading, each with its keys; one that holds nothing but tables has none.
fn tables(keys: &[Key]) -> Vec<(String, Vec<Key>)> {
    let mut tables: Vec<(String, Vec<Key>)> = Vec::new();
    for key in keys {
        let name = table_of(key, keys);
        let index = tables.iter().position(|(table, _)| *table == name);
        let index = index.unwrap_or_else(|| {
            tables.push((name, Vec::new()));
            tables.len() - 1
        });
        if let Some((_, known)) = tables.get_mut(index)
            && !known.iter().any(|known| known.name == key.name)
        {
            known.push(key.clone());
        }
    }
    // Explained last, since it belongs to no place of its own.
    tables.sort_by_key(|(name, _)| name == SECRET);
    tables
}

/// The reference as Markdown.
pub fn reference() -> String {
    let mut out = String::from(INTRODUCTION);
    let all = keys();
    for (table, keys) in tables(&all) {
        // Tables within it have sections of their own.
        let keys: Vec<Key> = keys
            .into_iter()
            .filter(|key| header(key).is_none() || key.kind == Kind::Secret)
            .collect();
        let said = rows::table(&table);
        if keys.is_empty() && said.is_none() {
            continue;
        }
        let title = match table.as_str() {
            "" => "Top level".to_owned(),
            SECRET => "Secret references".to_owned(),
            list if is_list(list, &all) => format!("`[[{list}]]`"),
            table => format!("`[{table}]`"),
        };
        write_line(&mut out, format_args!("\n## {title}\n"));
        let rows = said.map_or(&[][..], |said| said.rows);
        if let Some(said) = said.filter(|said| !said.about.is_empty()) {
            let restart = if said.restart { " A change needs a restart." } else { "" };
            write_line(&mut out, format_args!("{}{restart}\n", said.about));
        }
        if rows.is_empty() {
            let names: Vec<String> = keys.iter().map(|key| format!("`{}`", key.name)).collect();
            write_line(&mut out, format_args!("{}.", names.join(", ")));
            continue;
        }
        write_line(
            &mut out,
            format_args!("| key | takes | default | meaning |\n|---|---|---|---|"),
        );
        for key in keys {
            write_line(
                &mut out,
                format_args!("{}", row(&key, rows.iter().find(|row| row.key == key.name))),
            );
        }
    }
    write_language(&mut out);
    out
}

fn write_language(out: &mut String) {
    write_line(
        out,
        format_args!("\n## The language of records\n\n{}", language::ABOUT.trim_end()),
    );
    for (title, words) in [
        ("place", &language::PLACES[..]),
        ("condition", &language::CONDITIONS),
        ("in a text", &language::TOKENS),
    ] {
        write_line(out, format_args!("\n| {title} | meaning |\n|---|---|"));
        for Word { example, meaning } in words {
            write_line(out, format_args!("| `{example}` | {meaning} |"));
        }
    }
}

fn row(key: &Key, said: Option<&Row>) -> String {
    let usual = said.map_or(Usual::Unset, |row| row.usual);
    let takes = match usual.bounds() {
        Some((min, max)) => format!("{}, {min} to {max}", key.kind),
        None => key.kind.to_string(),
    };
    let default = match key.required {
        true => "required".to_owned(),
        false => usual.default(),
    };
    let meaning = said.map_or("", |row| row.meaning);
    format!("| `{}` | {takes} | {default} | {meaning} |", key.name)
}

fn is_list(table: &str, keys: &[Key]) -> bool {
    keys.iter()
        .any(|key| key.kind == Kind::Tables && format!("{}.{}", key.table, key.name) == table)
}

/// Writing to a string cannot fail.
fn write_line(out: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(out, "{line}").ok();
}

#[cfg(test)]
mod tests;
