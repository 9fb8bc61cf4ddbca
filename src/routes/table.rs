//! Which route serves a path: an exact one first, else the longest that the path lies in.
//!
//! Patterns are compared with the path as it was sent, byte for byte, and that same string goes on to the upstream:
//! there is no second reading of it (SC-06).

use std::collections::HashMap;

/// `[routes.NAME] path`: `/orders`, or `/orders/{*rest}`, which is `/orders` and everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    prefix: String,
    rest: bool,
}

impl Pattern {
    /// Reads a pattern; says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if !text.starts_with('/') {
            return Err("must start with `/`");
        }
        let (prefix, rest) = match text.rsplit_once('/') {
            Some((prefix, last)) if is_rest(last) => (prefix, true),
            _ => (text, false),
        };
        if prefix.contains(['{', '}', '*']) {
            return Err("a pattern has one `{*rest}`, as its last segment, and nothing else that varies");
        }
        if prefix.contains('#') {
            return Err("a fragment is never sent");
        }
        if prefix.contains('?') {
            return Err("a path has no query; requests with any query match");
        }
        if !prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("has characters that a URL must escape");
        }
        if rest && prefix.ends_with('/') {
            return Err("has two slashes in front of `{*rest}`");
        }
        if super::shadow::has_dot_segment(prefix) {
            return Err("clients remove dot segments before they send, and others are refused");
        }
        Ok(Self {
            prefix: prefix.to_owned(),
            rest,
        })
    }

    /// What every path that it matches begins with, without the slash in front of `{*rest}`.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether it matches one path alone.
    pub fn is_exact(&self) -> bool {
        !self.rest
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.prefix)?;
        if self.rest { f.write_str("/{*rest}") } else { Ok(()) }
    }
}

fn is_rest(segment: &str) -> bool {
    let name = segment.strip_prefix("{*").and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
}

/// Routes by their patterns.
#[derive(Debug)]
pub struct Table<T> {
    exact: HashMap<String, T>,
    /// By prefix.
    rest: HashMap<String, T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            exact: HashMap::new(),
            rest: HashMap::new(),
        }
    }
}

impl<T> Table<T> {
    /// Adds a route; gives it back when its pattern is taken.
    pub fn insert(&mut self, pattern: &Pattern, route: T) -> Option<T> {
        let kind = if pattern.rest { &mut self.rest } else { &mut self.exact };
        if kind.contains_key(&pattern.prefix) {
            return Some(route);
        }
        kind.insert(pattern.prefix.clone(), route);
        None
    }

    /// The route that serves `path`.
    pub fn find(&self, path: &str) -> Option<&T> {
        if let Some(found) = self.exact.get(path) {
            return Some(found);
        }
        let mut prefix = path;
        loop {
            if let Some(found) = self.rest.get(prefix) {
                return Some(found);
            }
            prefix = prefix.rsplit_once('/')?.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(patterns: &[&'static str]) -> Table<&'static str> {
        let mut table = Table::default();
        for pattern in patterns {
            assert_eq!(table.insert(&Pattern::parse(pattern).unwrap(), *pattern), None);
        }
        table
    }

    #[test]
    fn the_longest_match_wins_and_rest_may_be_nothing() {
        let table = table(&[
            "/{*rest}",
            "/orders/{*rest}",
            "/orders",
            "/orders/new/{*rest}",
            "/a%20b/{*x}",
        ]);
        for (path, expected) in [
            ("/", "/{*rest}"),
            ("/x/y", "/{*rest}"),
            ("/orders", "/orders"),
            ("/orders/", "/orders/{*rest}"),
            ("/orders/1", "/orders/{*rest}"),
            ("/orders//new", "/orders/{*rest}"),
            ("/orders/new", "/orders/new/{*rest}"),
            ("/orders/new/x/y", "/orders/new/{*rest}"),
            ("/ordersx", "/{*rest}"),
            ("/Orders/1", "/{*rest}"),
            ("/a%20b", "/a%20b/{*x}"),
            ("/a b/c", "/{*rest}"),
        ] {
            assert_eq!(table.find(path), Some(&expected), "{path}");
        }
        assert_eq!(table.find("*"), None, "OPTIONS * is for the server itself");
    }

    #[test]
    fn without_a_catch_all_other_paths_have_no_route() {
        let table = table(&["/orders/{*rest}", "/health"]);
        for path in ["/", "/order", "/health/", "/healthz", "/x/orders"] {
            assert_eq!(table.find(path), None, "{path}");
        }
        assert_eq!(table.find("/orders"), Some(&"/orders/{*rest}"));
    }

    #[test]
    fn two_equal_patterns_are_one_too_many() {
        let mut table = table(&["/orders/{*rest}"]);
        let again = Pattern::parse("/orders/{*other}").unwrap();
        assert_eq!(table.insert(&again, "again"), Some("again"));
        assert_eq!(table.insert(&Pattern::parse("/orders").unwrap(), "exact"), None);
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for bad in [
            "",
            "orders",
            "{*rest}",
            "/orders/{*rest}/x",
            "/orders/{id}",
            "/orders/{*}",
            "/orders/*",
            "/orders{*rest}",
            "/orders//{*rest}",
            "/a?b",
            "/a#b",
            "/a b",
            "/\u{e9}",
            "/a/../b",
            "/a/%2e%2e/b",
            "/a\\..\\b",
        ] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
        for (good, prefix) in [("/", "/"), ("/{*rest}", ""), ("/a/", "/a/"), ("/a/{*rest}", "/a")] {
            assert_eq!(Pattern::parse(good).unwrap().prefix(), prefix);
            assert_eq!(Pattern::parse(good).unwrap().to_string(), good);
        }
    }
}
