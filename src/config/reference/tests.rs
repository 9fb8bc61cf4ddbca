//! The reference against the reader, the build and the file that people read.

use std::collections::BTreeSet;

use super::rows::Row;
use super::*;
use crate::config::defaults::Quantity;
use crate::config::{Environment, load_text};
use crate::time::Timestamp;

const FILE: &str = include_str!("../../../config/REFERENCE.md");

/// Adding a key to the reader is not enough: people read what it means.
#[test]
fn every_key_has_its_line_and_every_line_its_key() {
    let all = keys();
    let of_variants = |table: &str| table == "providers.NAME.variant";
    let mut read = BTreeSet::new();
    for (table, keys) in tables(&all) {
        for key in keys {
            assert_ne!(
                key.kind,
                Kind::Any,
                "`{table}`: `{}` is taken as any value: say what it takes with `Section::describe`",
                key.name
            );
            if !of_variants(&table) && (header(&key).is_none() || key.kind == Kind::Secret) {
                read.insert((table.clone(), key.name));
            }
        }
    }
    let mut said = BTreeSet::new();
    for table in rows::all() {
        for row in table.rows {
            let once = said.insert((table.name.to_owned(), row.key));
            assert!(once, "`{}` is explained twice in `{}`", row.key, table.name);
            let is_line = !row.meaning.contains(['\n', '|']) && !row.meaning.ends_with('.') && row.meaning.len() > 5;
            assert!(is_line, "`{}`: {:?} is not one line of meaning", row.key, row.meaning);
        }
    }
    let missing: Vec<_> = read.difference(&said).collect();
    assert!(
        missing.is_empty(),
        "keys without a meaning: add rows to src/config/reference/rows.rs for {missing:?}"
    );
    let unread: Vec<_> = said.difference(&read).collect();
    assert!(unread.is_empty(), "nobody reads {unread:?}: remove their rows");
}

#[test]
fn every_table_says_what_it_is_for() {
    for (table, keys) in tables(&keys()) {
        let has_own = keys.iter().any(|key| header(key).is_none());
        let about = rows::table(&table).map_or("", |table| table.about);
        assert!(
            table.is_empty() || !has_own || !about.is_empty(),
            "say what `{table}` is for"
        );
    }
}

#[test]
fn the_file_is_what_the_program_says() {
    assert!(
        FILE == reference(),
        "config/REFERENCE.md is not what the program says: cargo run -- reference > config/REFERENCE.md"
    );
}

/// What gives `late` a meaning.
const REPLY: &str = "reply = \"upstream\"\n";

/// A file in which `line` stands in `table`, and which is good without it.
fn file(table: &str, line: &str) -> String {
    let app = "[upstreams.app]\nurl = \"http://127.0.0.1:3000\"\n";
    let source =
        "[sources.a]\npath = \"/a\"\nprovider = \"github\"\nupstreams = [\"app\"]\nsecret = { env = \"SECRET\" }\n";
    let route = "[routes.r]\npath = \"/r\"\nupstream = \"app\"\n";
    let keyed = "[routes.r.idempotency]\nscope = \"public\"\n";
    let postgres = "[store.postgres]\nurl = \"postgres://a@b\"\n";
    let redis = "[dedupe.redis]\nurl = \"redis://a\"\nnamespace = \"shop\"\n";
    let own = "[sources.b]\npath = \"/b\"\nprovider = \"own\"\nupstreams = [\"app\"]\nsecret = { env = \"SECRET\" }\n\
               [providers.own]\nkind = \"hmac\"\nsignature = \"header:X-S\"\n";
    let challenge = "[[providers.own.challenge]]\nwhen = \"header:X-C\"\nbody = \"x\"\n";
    let reply = if line.starts_with("late") {
        "reply = \"upstream\"\n"
    } else {
        ""
    };
    match table {
        "" => format!("{line}\n{app}{source}"),
        "upstreams.NAME" => format!("{app}{line}\n{source}"),
        "upstreams.NAME.retry" => format!("{app}[upstreams.app.retry]\n{line}\n{source}"),
        "sources.NAME" => format!("{app}{source}{reply}{line}\n"),
        "routes.NAME" => format!("{app}{source}{route}{line}\n"),
        "routes.NAME.idempotency" => format!("{app}{source}{route}{keyed}{line}\n"),
        "store.postgres" => format!("{app}{source}{postgres}{line}\n"),
        "dedupe.redis" => format!("{app}{source}{redis}{line}\n"),
        "providers.NAME" => format!("{app}{source}{own}{line}\n"),
        "providers.NAME.disable_after" => {
            format!("{app}{source}{own}[providers.own.disable_after]\npercent = 95\nwithin = \"1h\"\n{line}\n")
        }
        "providers.NAME.challenge" => format!("{app}{source}{own}{challenge}{line}\n"),
        other => format!("{app}{source}[{other}]\n{line}\n"),
    }
}

fn environment() -> Environment {
    Environment::fixed(Timestamp::from_secs(1_795_000_000)).with_variable("SECRET", "s".repeat(32))
}

/// What a file makes run, and what is said about it.
fn loaded(text: &str) -> (Option<String>, String) {
    let (config, report) = load_text("f.toml", text, &environment());
    (config.map(|config| format!("{config:?}")), report.render(false))
}

fn each_row() -> impl Iterator<Item = (&'static str, &'static Row)> {
    rows::all().flat_map(|table| table.rows.iter().map(|row| (table.name, row)))
}

/// What the reference calls the default is what a file gets that does not have the key.
#[test]
fn a_default_that_is_written_out_changes_nothing() {
    let mut judged = 0;
    for (table, row) in each_row() {
        let Some(value) = row.usual.toml() else { continue };
        let (without, said) = loaded(&file(table, if row.key == "late" { REPLY } else { "" }));
        assert!(without.is_some(), "{table}: {said}");
        let (with, said) = loaded(&file(table, &format!("{} = {value}", row.key)));
        assert_eq!(with, without, "`{}` of `{table}`\n{said}", row.key);
        judged += 1;
    }
    assert!(judged > 60, "{judged}");
}

/// What the reference calls the bounds is what a file meets that leaves them.
#[test]
fn a_value_beyond_its_bounds_is_refused_with_these_bounds() {
    let mut judged = 0;
    for (table, row) in each_row() {
        let Some((min, max)) = row.usual.bounds() else { continue };
        let too_much = match row.usual {
            Usual::Time(setting) => format!("{}ms", setting.max.as_millis() + 1),
            Usual::Bytes(setting) | Usual::Within(_, setting) => format!("{}B", setting.max + 1),
            other => panic!("{other:?} has no bounds"),
        };
        let (config, said) = loaded(&file(table, &format!("{} = \"{too_much}\"", row.key)));
        assert!(config.is_none(), "`{}` of `{table}` takes {too_much}", row.key);
        let words = format!("must be from {min} to {max}");
        assert!(said.contains(&words), "`{}` of `{table}`: {words}\n{said}", row.key);
        judged += 1;
    }
    assert!(judged > 20, "{judged}");
}

/// What the reference says to need a restart is what a reload refuses to change, and no more.
#[test]
fn what_needs_a_restart_is_what_a_start_decides() {
    let fixed = |text: &str| {
        let environment = environment();
        let (config, _) = load_text("f.toml", text, &environment);
        config.map(|config| format!("{:?}", config.fixed))
    };
    let mut judged = 0;
    for (table, row) in each_row() {
        let others = match row.usual {
            Usual::Time(setting) => [setting.min, setting.max]
                .map(|other| format!("\"{}\"", other.show()))
                .to_vec(),
            Usual::Bytes(setting) => [setting.min, setting.max]
                .map(|other| format!("\"{}\"", other.show()))
                .to_vec(),
            Usual::Number(number) => [number + 1, number - 1].map(|other| other.to_string()).to_vec(),
            Usual::Address(_) => vec!["\"127.0.0.1:9999\"".to_owned()],
            Usual::Text(_) | Usual::Is(_) | Usual::Unset | Usual::Words(_) | Usual::Within(..) => continue,
        };
        let before = fixed(&file(table, ""));
        let after = others
            .iter()
            .filter_map(|other| fixed(&file(table, &format!("{} = {other}", row.key))));
        let after: Vec<_> = after.collect();
        assert!(
            !after.is_empty(),
            "`{}` of `{table}`: neither of {others:?} loads",
            row.key
        );
        let needs_restart = after.into_iter().any(|after| Some(after) != before);
        let said = rows::table(table).unwrap().restart || row.meaning.contains("needs a restart");
        assert_eq!(needs_restart, said, "`{}` of `{table}`", row.key);
        judged += 1;
    }
    assert!(judged > 30, "{judged}");
}
