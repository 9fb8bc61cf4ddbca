//! What a reader asks a text for: every key with the table that it stands in and the kind of its value, in the order in
//! which they are read. The reference of all keys is made from this, so that it cannot name a key that nobody reads, nor
//! leave one out.

use std::cell::RefCell;
use std::fmt;
use std::ops::RangeInclusive;

/// One key that was asked for, whether it was there or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Dotted path of its table as it stands in the text, empty at the top.
    pub table: String,
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Whether its table is wrong without it.
    pub required: bool,
}

/// What a key takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Not said by whoever reads it.
    Any,
    /// A string.
    Text,
    /// `true` or `false`.
    Boolean,
    /// A whole number in this range.
    Integer(RangeInclusive<i64>),
    /// `"30s"`.
    Duration,
    /// `"5MiB"`.
    Size,
    /// `"50/s"`.
    Rate,
    /// One of these words.
    Choice(Vec<&'static str>),
    /// A list of strings.
    Texts,
    /// Something else, in words.
    Form(&'static str),
    /// A secret reference: a table, but everywhere with the same keys.
    Secret,
    /// A table.
    Table,
    /// A list of tables.
    Tables,
    /// A table of tables whose names are the user's.
    Named,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("anything"),
            Self::Text => f.write_str("string"),
            Self::Boolean => f.write_str("boolean"),
            Self::Integer(range) => write!(f, "number, {} to {}", range.start(), range.end()),
            Self::Duration => f.write_str("duration"),
            Self::Size => f.write_str("size"),
            Self::Rate => f.write_str("rate"),
            Self::Choice(words) => f.write_str(&one_of(words)),
            Self::Texts => f.write_str("list of strings"),
            Self::Form(words) => f.write_str(words),
            Self::Secret => f.write_str("secret reference"),
            Self::Table => f.write_str("table"),
            Self::Tables => f.write_str("list of tables"),
            Self::Named => f.write_str("tables by name"),
        }
    }
}

/// `"a"`, `"a" or "b"`, `"a", "b" or "c"`.
pub(super) fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Where the keys of one document are noted.
#[derive(Debug, Default)]
pub(super) struct Keys(RefCell<Vec<Key>>);

impl Keys {
    /// Notes that `name` was asked for. What was said first about its kind stands: a reader of durations asks for a string.
    pub(super) fn note(&self, table: &str, name: &'static str, kind: Kind) {
        self.change(table, name, |key| {
            if key.kind == Kind::Any {
                key.kind = kind;
            }
        });
    }

    pub(super) fn note_required(&self, table: &str, name: &'static str) {
        self.change(table, name, |key| key.required = true);
    }

    fn change(&self, table: &str, name: &'static str, change: impl FnOnce(&mut Key)) {
        let mut keys = self.0.borrow_mut();
        let known = keys.iter().position(|key| key.table == table && key.name == name);
        let index = known.unwrap_or_else(|| {
            keys.push(Key {
                table: table.to_owned(),
                name,
                kind: Kind::Any,
                required: false,
            });
            keys.len() - 1
        });
        if let Some(key) = keys.get_mut(index) {
            change(key);
        }
    }

    pub(super) fn all(&self) -> Vec<Key> {
        self.0.borrow().clone()
    }
}
