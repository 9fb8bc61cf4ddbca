//! Reads TOML tables key by key and collects every problem with its place.
//!
//! `serde` stops at the first mistake and loses places; an operator wants all of them at once. So a file is parsed into
//! spanned values and walked with a [`Section`] per table: each key is taken by name and type, and what nobody took
//! is an unknown key, reported with the nearest known one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::Diagnostics;

mod keys;
mod quantity;

use self::keys::Keys;
pub use self::keys::{Key, Kind};
pub use self::quantity::{Rate, parse_duration, parse_rate, parse_size, show_duration, show_size};

/// A value with its byte range in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub span: Range<usize>,
}

impl<T> At<T> {
    /// Keeps the place, changes the value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> At<U> {
        At {
            value: f(self.value),
            span: self.span,
        }
    }
}

/// A parsed TOML document.
#[derive(Debug)]
pub struct Document<'t> {
    root: Spanned<DeTable<'t>>,
    /// Where keys are noted, if somebody wants to know them.
    keys: Option<Keys>,
}

impl<'t> Document<'t> {
    /// Parses `text`; syntax errors are added to `problems`, all of them, and what could be read is still walked.
    pub fn parse(text: &'t str, problems: &mut Diagnostics) -> Self {
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            problems.error(error.span(), "not valid TOML", error.message().trim(), None);
        }
        Self { root, keys: None }
    }

    /// As [`Document::parse`], and notes every key that is asked for.
    pub fn watched(text: &'t str, problems: &mut Diagnostics) -> Self {
        Self {
            keys: Some(Keys::default()),
            ..Self::parse(text, problems)
        }
    }

    /// The keys that were asked for, if they were noted.
    pub fn keys(&self) -> Vec<Key> {
        self.keys.as_ref().map(Keys::all).unwrap_or_default()
    }

    /// The top-level table.
    pub fn root(&self) -> Section<'_> {
        Section {
            table: self.root.get_ref(),
            span: self.root.span(),
            path: String::new(),
            known: BTreeMap::new(),
            keys: self.keys.as_ref(),
        }
    }
}

/// One table being read. Dropping it without [`Section::finish`] would let unknown keys pass.
#[must_use = "call finish(), or unknown keys go unnoticed"]
#[derive(Debug)]
pub struct Section<'t> {
    table: &'t DeTable<'t>,
    span: Range<usize>,
    path: String,
    known: BTreeMap<&'static str, Known>,
    keys: Option<&'t Keys>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Here,
    NotInThisVersion,
}

impl<'t> Section<'t> {
    /// Where the table stands.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The dotted path of the table, empty at the top.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether the table has `key`, without taking it.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Where the name of `key` stands.
    pub fn key_span(&self, key: &str) -> Option<Range<usize>> {
        self.table.get_key_value(key).map(|(name, _)| name.span())
    }

    /// Says what `key` takes, for the reference of all keys. Needed only where [`Section::value`] takes it.
    pub fn describe(&mut self, key: &'static str, kind: Kind) {
        self.known.insert(key, Known::Here);
        if let Some(keys) = self.keys {
            keys.note(&self.path, key, kind);
        }
    }

    /// Whether the table has `key`, which it needs.
    pub fn has_required(&mut self, key: &'static str) -> bool {
        self.describe(key, Kind::Any);
        if let Some(keys) = self.keys {
            keys.note_required(&self.path, key);
        }
        self.has(key)
    }

    /// Takes any value.
    pub fn value(&mut self, key: &'static str) -> Option<At<&'t DeValue<'t>>> {
        self.describe(key, Kind::Any);
        self.table.get(key).map(|value| At {
            value: value.get_ref(),
            span: value.span(),
        })
    }

    /// Every string in the table, in lists and tables inside of it too; takes none of them.
    pub fn all_strings(&self) -> Vec<At<&'t str>> {
        let mut out = Vec::new();
        for value in self.table.values() {
            collect_strings(value, &mut out);
        }
        out
    }

    /// Declares keys of the contract that this version does not build: each is refused, never ignored.
    pub fn not_in_this_version(&mut self, keys: &[&'static str]) {
        for key in keys {
            self.known.insert(key, Known::NotInThisVersion);
        }
    }

    /// Takes a string.
    pub fn string(&mut self, key: &'static str, problems: &mut Diagnostics) -> Option<At<String>> {
        self.describe(key, Kind::Text);
        let found = self.value(key)?;
        match found.value.as_str() {
            Some(text) => Some(At {
                value: text.to_owned(),
                span: found.span,
            }),
            None => self.wrong_type(key, &found, "a string", problems),
        }
    }

    /// Takes a boolean.
    pub fn boolean(&mut self, key: &'static str, problems: &mut Diagnostics) -> Option<At<bool>> {
        self.describe(key, Kind::Boolean);
        let found = self.value(key)?;
        match found.value.as_bool() {
            Some(value) => Some(At {
                value,
                span: found.span,
            }),
            None => self.wrong_type(key, &found, "`true` or `false`", problems),
        }
    }

    /// Takes a whole number in `range`.
    pub fn integer(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<i64>,
        problems: &mut Diagnostics,
    ) -> Option<At<i64>> {
        self.describe(key, Kind::Integer(range.clone()));
        let found = self.value(key)?;
        let number = found
            .value
            .as_integer()
            .and_then(|int| i64::from_str_radix(int.as_str(), int.radix()).ok());
        match number {
            Some(value) if range.contains(&value) => Some(At {
                value,
                span: found.span,
            }),
            _ => {
                let what = match number {
                    Some(value) => value.to_string(),
                    None => article(found.value.type_str()),
                };
                problems.error(
                    found.span,
                    format!("bad value for `{}`", self.full(key)),
                    format!(
                        "expected a whole number from {} to {}, found {what}",
                        range.start(),
                        range.end()
                    ),
                    None,
                );
                None
            }
        }
    }

    /// Takes a duration such as `"100ms"`, `"30s"`, `"5m"`, `"24h"`, `"7d"`.
    pub fn duration(&mut self, key: &'static str, problems: &mut Diagnostics) -> Option<At<Duration>> {
        self.describe(key, Kind::Duration);
        self.parsed(key, problems, parse_duration)
    }

    /// Takes a size such as `"512B"`, `"32KiB"`, `"5MiB"`, `"20GiB"`, in bytes.
    pub fn size(&mut self, key: &'static str, problems: &mut Diagnostics) -> Option<At<u64>> {
        self.describe(key, Kind::Size);
        self.parsed(key, problems, parse_size)
    }

    /// Takes a rate such as `"50/s"`, `"600/m"`, `"1000/h"`.
    pub fn rate(&mut self, key: &'static str, problems: &mut Diagnostics) -> Option<At<Rate>> {
        self.describe(key, Kind::Rate);
        self.parsed(key, problems, parse_rate)
    }

    /// Takes one of these words, each with what it means.
    pub fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&'static str, T)],
        problems: &mut Diagnostics,
    ) -> Option<At<T>> {
        let names: Vec<&'static str> = words.iter().map(|(name, _)| *name).collect();
        self.describe(key, Kind::Choice(names.clone()));
        self.parsed(key, problems, |text| {
            let found = words.iter().find(|(name, _)| *name == text);
            found
                .map(|(_, value)| *value)
                .ok_or_else(|| format!("expected {}", keys::one_of(&names)))
        })
    }

    /// Takes a string and parses it; `parse` says what is wrong and what would be right.
    pub fn parsed<T>(
        &mut self,
        key: &'static str,
        problems: &mut Diagnostics,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<At<T>> {
        let text = self.string(key, problems)?;
        match parse(&text.value) {
            Ok(value) => Some(At { value, span: text.span }),
            Err(label) => {
                problems.error(text.span, format!("bad value for `{}`", self.full(key)), label, None);
                None
            }
        }
    }

    /// Takes a list of strings.
    pub fn strings(&mut self, key: &'static str, problems: &mut Diagnostics) -> Option<At<Vec<At<String>>>> {
        self.describe(key, Kind::Texts);
        let found = self.value(key)?;
        let Some(array) = found.value.as_array() else {
            return self.wrong_type(key, &found, "a list of strings", problems);
        };
        let mut out = Vec::new();
        for item in array.iter() {
            match item.get_ref().as_str() {
                Some(text) => out.push(At {
                    value: text.to_owned(),
                    span: item.span(),
                }),
                None => {
                    problems.error(
                        item.span(),
                        format!("bad value in `{}`", self.full(key)),
                        format!("expected a string, found {}", article(item.get_ref().type_str())),
                        None,
                    );
                }
            }
        }
        Some(At {
            value: out,
            span: found.span,
        })
    }

    /// Takes a sub-table.
    pub fn section(&mut self, key: &'static str, problems: &mut Diagnostics) -> Option<Section<'t>> {
        self.describe(key, Kind::Table);
        let found = self.value(key)?;
        match found.value.as_table() {
            Some(table) => Some(Section {
                table,
                span: found.span,
                path: self.full(key),
                known: BTreeMap::new(),
                keys: self.keys,
            }),
            None => self.wrong_type(key, &found, "a table", problems),
        }
    }

    /// Takes a list of tables.
    pub fn sections(&mut self, key: &'static str, problems: &mut Diagnostics) -> Option<Vec<Section<'t>>> {
        self.describe(key, Kind::Tables);
        let items = self.items(key, "a list of tables", problems)?;
        Some(sections(items.value, problems))
    }

    /// Takes a list of values of any type; `want` says what the list should be.
    pub fn items(&mut self, key: &'static str, want: &str, problems: &mut Diagnostics) -> Option<At<Vec<Item<'t>>>> {
        let found = self.value(key)?;
        let Some(array) = found.value.as_array() else {
            return self.wrong_type(key, &found, want, problems);
        };
        let items = array.iter().enumerate().map(|(index, item)| Item {
            path: format!("{}[{index}]", self.full(key)),
            value: item.get_ref(),
            span: item.span(),
            keys: self.keys,
        });
        Some(At {
            value: items.collect(),
            span: found.span,
        })
    }

    /// Takes a table whose keys are names given by the user, such as `[sources.NAME]`: each name with its table.
    pub fn named(&mut self, key: &'static str, problems: &mut Diagnostics) -> Vec<(At<String>, Section<'t>)> {
        self.describe(key, Kind::Named);
        let mut out = Vec::new();
        for (name, item) in self.entries(key, "a table of tables", problems) {
            match item.section() {
                Some(section) => out.push((name, section)),
                None => problems.error(
                    item.span,
                    format!("`{}` must be a table", item.path),
                    format!("found {}", article(item.value.type_str())),
                    None,
                ),
            }
        }
        out
    }

    /// Takes a table whose keys are names given by the user and whose values may have any type, in the order of the
    /// file; `want` says what the table should be.
    pub fn entries(
        &mut self,
        key: &'static str,
        want: &str,
        problems: &mut Diagnostics,
    ) -> Vec<(At<String>, Item<'t>)> {
        let Some(found) = self.value(key) else {
            return Vec::new();
        };
        let Some(table) = found.value.as_table() else {
            self.wrong_type::<()>(key, &found, want, problems);
            return Vec::new();
        };
        let mut out: Vec<_> = table
            .iter()
            .map(|(name, value)| {
                let item = Item {
                    path: format!("{}.{}", self.full(key), name.get_ref()),
                    value: value.get_ref(),
                    span: value.span(),
                    keys: self.keys,
                };
                let name = At {
                    value: name.get_ref().to_string(),
                    span: name.span(),
                };
                (name, item)
            })
            .collect();
        // A map of names has no order of its own; the file's order is what people expect to see.
        out.sort_by_key(|(name, _)| name.span.start);
        out
    }

    /// Every key of the table that nobody took is an error, with the nearest known key or the reason.
    pub fn finish(self, problems: &mut Diagnostics) {
        for (key, _) in self.table.iter() {
            let name: &str = key.get_ref();
            match self.known.get(name) {
                Some(Known::Here) => {}
                Some(Known::NotInThisVersion) => problems.error(
                    key.span(),
                    format!("`{}` is not in this version", self.full(name)),
                    "known, but not built yet; it is refused rather than ignored",
                    Some("remove it, or use a version that has it".to_owned()),
                ),
                None => {
                    let place = if self.path.is_empty() {
                        "the top level".to_owned()
                    } else {
                        format!("[{}]", self.path)
                    };
                    problems.error(
                        key.span(),
                        match shown_name(name) {
                            Some(name) => format!("unknown key `{name}`"),
                            None => "unknown key".to_owned(),
                        },
                        format!("not a key of {place}"),
                        self.nearest(name),
                    );
                }
            }
        }
    }

    fn nearest(&self, name: &str) -> Option<String> {
        let here = self.known.iter().filter(|(_, known)| **known == Known::Here);
        let best = here
            .map(|(key, _)| (strsim::damerau_levenshtein(name, key), *key))
            .min()?;
        if best.0 <= 2.max(name.len() / 3) {
            return Some(format!("did you mean `{}`?", best.1));
        }
        let all: Vec<_> = self
            .known
            .iter()
            .filter(|(_, known)| **known == Known::Here)
            .map(|(key, _)| format!("`{key}`"))
            .collect();
        Some(format!("known keys: {}", all.join(", ")))
    }

    /// The dotted path of `key` in this table.
    pub fn full(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn wrong_type<T>(&self, key: &str, found: &At<&DeValue<'_>>, want: &str, problems: &mut Diagnostics) -> Option<T> {
        problems.error(
            found.span.clone(),
            format!("bad value for `{}`", self.full(key)),
            format!("expected {want}, found {}", article(found.value.type_str())),
            None,
        );
        None
    }
}

/// One value of a list, or of a table whose keys are the user's.
#[derive(Debug)]
pub struct Item<'t> {
    /// Its dotted path.
    pub path: String,
    /// The value.
    pub value: &'t DeValue<'t>,
    /// Where it stands.
    pub span: Range<usize>,
    keys: Option<&'t Keys>,
}

impl<'t> Item<'t> {
    /// The value as a table to be read, if it is one.
    pub fn section(&self) -> Option<Section<'t>> {
        Some(Section {
            table: self.value.as_table()?,
            span: self.span.clone(),
            path: self.path.clone(),
            known: BTreeMap::new(),
            keys: self.keys,
        })
    }
}

/// The parser limits how deep values may lie in each other.
fn collect_strings<'t>(value: &'t Spanned<DeValue<'t>>, out: &mut Vec<At<&'t str>>) {
    let inner = value.get_ref();
    if let Some(text) = inner.as_str() {
        out.push(At {
            value: text,
            span: value.span(),
        });
    }
    for item in inner.as_array().into_iter().flat_map(|array| array.iter()) {
        collect_strings(item, out);
    }
    for item in inner.as_table().into_iter().flat_map(|table| table.values()) {
        collect_strings(item, out);
    }
}

fn sections<'t>(items: Vec<Item<'t>>, problems: &mut Diagnostics) -> Vec<Section<'t>> {
    let mut out = Vec::new();
    for item in items {
        match item.section() {
            Some(section) => out.push(section),
            None => problems.error(
                item.span,
                format!("bad value for `{}`", item.path),
                format!("expected a table, found {}", article(item.value.type_str())),
                None,
            ),
        }
    }
    out
}

/// A name as messages may repeat it. A stray quote can turn the rest of a line, with a secret in it, into a "key"; what
/// does not look like a name is not repeated (P5).
fn shown_name(name: &str) -> Option<&str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (name.len() <= 64 && name.bytes().all(is_plain)).then_some(name)
}

/// A type's name as it stands in a sentence.
pub(crate) fn article(type_name: &str) -> String {
    match type_name {
        "integer" | "array" | "inline table" => format!("an {type_name}"),
        other => format!("a {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mistakes_of_a_table_are_reported_at_once() {
        let text = "a = 1\nb = \"x\"\nwindw = \"7d\"\nc = \"5 parsecs\"\nlater = 1\n";
        let mut problems = Diagnostics::new();
        let document = Document::parse(text, &mut problems);
        let mut root = document.root();
        assert_eq!(root.string("a", &mut problems), None);
        assert_eq!(root.integer("b", 0..=9, &mut problems), None);
        assert_eq!(root.duration("window", &mut problems), None);
        assert_eq!(root.duration("c", &mut problems), None);
        root.not_in_this_version(&["later"]);
        root.finish(&mut problems);
        let shown = problems.render("f.toml", text, false);
        for part in [
            "expected a string, found an integer",
            "a whole number from 0 to 9",
            "did you mean `window`?",
            "expected a number with a unit",
            "`later` is not in this version",
            "f.toml:5:1",
        ] {
            assert!(shown.contains(part), "{part} is missing in\n{shown}");
        }
    }

    #[test]
    fn a_number_out_of_range_is_shown() {
        let text = "a = 404\nb = 0x1F4\nc = 99999999999999999999\n";
        let mut problems = Diagnostics::new();
        let document = Document::parse(text, &mut problems);
        let mut root = document.root();
        for key in ["a", "b", "c"] {
            assert_eq!(root.integer(key, 200..=299, &mut problems), None);
        }
        root.finish(&mut problems);
        let shown = problems.to_string();
        for part in ["from 200 to 299, found 404", "found 500", "found an integer"] {
            assert!(shown.contains(part), "{part} is missing in\n{shown}");
        }
    }

    #[test]
    fn what_does_not_look_like_a_name_is_not_repeated() {
        let text = "' value = \"hunter2\"' = 1\n";
        let mut problems = Diagnostics::new();
        let document = Document::parse(text, &mut problems);
        document.root().finish(&mut problems);
        assert!(problems.has_errors());
        assert!(!problems.to_string().contains("hunter2"), "{problems}");
    }

    #[test]
    fn syntax_errors_are_problems_with_a_place() {
        let mut problems = Diagnostics::new();
        let _document = Document::parse("a = \n[b\n", &mut problems);
        assert!(problems.has_errors());
        assert!(problems.iter().all(|p| p.span.is_some()));
    }

    #[test]
    fn named_tables_come_in_the_order_of_the_file() {
        let text = "[s.b]\nx = 1\n[s.a]\n";
        let mut problems = Diagnostics::new();
        let document = Document::parse(text, &mut problems);
        let mut root = document.root();
        let names: Vec<_> = root
            .named("s", &mut problems)
            .into_iter()
            .map(|(n, _)| n.value)
            .collect();
        assert_eq!(names, ["b", "a"]);
    }
}
