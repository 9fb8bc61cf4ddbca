//! Hides every text of a configuration that could be a secret, before any of it is shown (P5).
//!
//! What is shown is decided by what is known to be harmless, not by what is known to be secret: a misspelt `vlaue =`,
//! a secret written where its reference belongs, or a file that is not even TOML must not print one. So this works on
//! the text alone, with no help from the parser: a value is shown when the key in front of it is one of
//! [`SHOWN`], and comments are left out, since old secrets live there.

use std::ops::Range;

use crate::config::secrets::{looks_like_path, looks_like_variable};

/// Keys whose values are never secret.
const SHOWN: &[&str] = &[
    "accept_unsigned",
    "ack_body",
    "ack_status",
    "admin",
    "admit_timeout",
    "alert_after",
    "allow",
    "body",
    "body_timeout",
    "burst",
    "cert",
    "certificates",
    "client_ca",
    "client_certificates",
    "concurrency",
    "connections",
    "dead_retention",
    "dedupe",
    "deny",
    "digest_window",
    "fingerprint",
    "first",
    "forward_path",
    "give_up_after",
    "give_up_refused",
    "head",
    "head_timeout",
    "health_path",
    "hosts",
    "id_missing",
    "idempotency",
    "idle_timeout",
    "in_flight",
    "label",
    "late",
    "learn",
    "level",
    "limits",
    "listen",
    "log",
    "max",
    "max_attempts",
    "max_body",
    "max_bytes",
    "max_stored",
    "methods",
    "min_free",
    "namespace",
    "not_after",
    "on_ambiguous",
    "on_down",
    "order",
    "order_key",
    "path",
    "pause_after",
    "preserve_host",
    "protocol",
    "provider",
    "public_url",
    "rate",
    "replay_cache",
    "replay_headers",
    "replicas",
    "reply",
    "required",
    "retention",
    "retry",
    "same_content",
    "scope",
    "secret_unused_after",
    "server",
    "server_name",
    "shutdown_delay",
    "shutdown_grace",
    "signature",
    "timeout",
    "tolerance",
    "trusted_proxies",
    "ttl",
    "unadmitted",
    "upstream",
    "upstreams",
    "url",
    "wait",
    "watch",
    "window",
];

/// Tables of the top level, with those of the contract that are not built yet.
const HEADERS: &[&str] = &[
    "admin",
    "alerts",
    "dedupe",
    "egress",
    "limits",
    "log",
    "providers",
    "routes",
    "server",
    "sources",
    "store",
    "tls",
    "upstreams",
];

/// Keys of a provider's record, which holds no secrets.
const SHOWN_IN_RECORDS: &[&str] = &[
    "absent",
    "ack_body",
    "ack_status",
    "algorithms",
    "aliases",
    "also_require",
    "at_least",
    "audience",
    "body",
    "body_authenticated",
    "body_claim",
    "body_varies",
    "certificate",
    "certificate_urls",
    "challenge",
    "check",
    "check_failed_status",
    "clock_tolerance_seconds",
    "confidence",
    "content_type",
    "dashboard",
    "dedupe",
    "dedupe_id",
    "dedupe_source",
    "delivery_id",
    "detached",
    "disable_after",
    "docs",
    "each",
    "encoding",
    "encrypted",
    "event_type",
    "extends",
    "failing_for",
    "failures",
    "get_probe",
    "group_separator",
    "hash",
    "hands_over_secret",
    "headers",
    "id_missing",
    "issuer",
    "jwks",
    "key_id",
    "kind",
    "max_age_seconds",
    "max_body",
    "max_n",
    "methods",
    "name",
    "notes",
    "padding",
    "params",
    "parse",
    "payload",
    "payload_variants",
    "percent",
    "ping",
    "prefix",
    "prefix_optional",
    "prehash",
    "public_key_prefix",
    "public_key_tag",
    "require",
    "required_claims",
    "retry_horizon",
    "scope",
    "secret_encoding",
    "secret_env",
    "secret_normalise",
    "secret_strip_prefix",
    "secret_suffix",
    "secret_title",
    "sender_deadline",
    "sender_facts_confidence",
    "sender_facts_source",
    "separator",
    "signature",
    "signature_format",
    "signature_key",
    "signature_order",
    "signed_over",
    "source",
    "status",
    "sync_only",
    "tag",
    "tag_separator",
    "timestamp",
    "timestamp_unit",
    "title",
    "tolerance_future_seconds",
    "tolerance_seconds",
    "url_claim",
    "url_variants",
    "value",
    "values",
    "variant",
    "verify_first",
    "visit",
    "visit_needs",
    "visit_urls",
    "when",
    "within",
];

/// `text` with every byte of a possible secret replaced; length, lines and columns stay the same, so places in it
/// still hold.
pub(super) fn mask(text: &str) -> String {
    let mut scan = Scan {
        text,
        at: 0,
        key: String::new(),
        key_may_follow: true,
        value_may_follow: false,
        list: false,
        in_record: false,
        hide: Vec::new(),
    };
    scan.run();
    replace(text, &scan.hide)
}

struct Scan<'t> {
    text: &'t str,
    at: usize,
    /// The last key that was followed by `=`. It governs one value, or those of one list: in a text that is not
    /// well formed, what follows may belong to any other key.
    key: String,
    /// A key may stand here: at the start of a line, after `{` or `,`, and after the dot of a dotted key.
    key_may_follow: bool,
    /// A value may stand here: after `=`, and in a list after `[` or `,`.
    value_may_follow: bool,
    /// The key's value is a list that is still open.
    list: bool,
    in_record: bool,
    hide: Vec<Range<usize>>,
}

impl Scan<'_> {
    fn run(&mut self) {
        let mut line_start = true;
        while let Some(c) = self.rest().chars().next() {
            if line_start && c == '[' && self.header() {
                line_start = false;
                continue;
            }
            if line_start && is_word(c) {
                self.forget_key(true);
            }
            match c {
                '#' => {
                    let end = self.end_of_line();
                    self.hide.push(self.at..end);
                    self.at = end;
                }
                '"' | '\'' => self.string(c),
                c if is_word(c) => self.word(),
                c => {
                    self.at += c.len_utf8();
                    self.punctuation(c);
                }
            }
            line_start = c == '\n' || (line_start && c.is_whitespace());
        }
    }

    fn punctuation(&mut self, c: char) {
        match c {
            '=' => {
                self.key_may_follow = false;
                self.value_may_follow = true;
            }
            '[' if self.value_may_follow => {
                self.key_may_follow = false;
                self.list = true;
            }
            ',' | '\n' if self.list => {
                self.key_may_follow = true;
                self.value_may_follow |= c == ',';
            }
            '{' | ',' | '\n' => self.forget_key(true),
            '[' | ']' | '}' => self.forget_key(false),
            _ => {}
        }
    }

    fn forget_key(&mut self, key_may_follow: bool) {
        self.key.clear();
        self.list = false;
        self.key_may_follow = key_may_follow;
        self.value_may_follow = false;
    }

    /// `[sources.stripe]`: shown as it is where it is plainly one of ours; any other bracket opens a list.
    fn header(&mut self) -> bool {
        let start = self.at;
        let line = self.text.get(start..self.end_of_line()).unwrap_or("");
        let inside = line.trim_start_matches('[');
        let name = inside.split(']').next().unwrap_or("");
        let top = name.split('.').next().unwrap_or("").trim();
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_. ".contains(&b));
        let ours = plain && HEADERS.contains(&top);
        if ours {
            self.at = start + (line.len() - inside.len()) + name.len();
            self.forget_key(false);
            self.in_record = top == "providers";
        }
        ours
    }

    /// A quoted text: a key when `=` or `.` follows, else a value. One that does not end takes the rest of its line,
    /// or of the file where it may span lines; it is hidden, as is every one that spans lines.
    fn string(&mut self, quote: char) {
        let long: String = [quote; 3].iter().collect();
        let multi = self.rest().starts_with(&long);
        let open = if multi { 3 } else { 1 };
        let start = self.at + open;
        let mut end = start;
        let mut closed = false;
        let mut escaped = false;
        for (offset, c) in self.text.get(start..).unwrap_or("").char_indices() {
            end = start + offset;
            let here = self.text.get(end..).unwrap_or("");
            let ends = if multi { here.starts_with(&long) } else { c == quote };
            if !escaped && ends {
                closed = true;
                break;
            }
            if !multi && c == '\n' {
                break;
            }
            escaped = !escaped && quote == '"' && c == '\\';
            end += c.len_utf8();
        }
        self.at = if closed { end + open } else { end };
        let content = start..end;
        if closed && !multi && self.is_key() && !SHOWN.contains(&self.text.get(content.clone()).unwrap_or("")) {
            // Keys need no quotes: a quoted one may be a value that slipped.
            self.hide.push(content.clone());
        }
        self.token(content, closed && !multi);
    }

    fn word(&mut self) {
        let start = self.at;
        self.at += self.rest().find(|c| !is_word(c)).unwrap_or(self.rest().len());
        self.token(start..self.at, true);
    }

    /// A key when `=` or `.` follows, else a value or a slip.
    fn token(&mut self, content: Range<usize>, whole: bool) {
        let text = self.text.get(content.clone()).unwrap_or("");
        if whole && self.is_key() {
            self.key = text.to_owned();
            self.list = false;
        } else if whole && self.value_may_follow && self.may_show(text) {
            self.hide_credentials(content);
            if self.list {
                self.value_may_follow = false;
            } else {
                self.forget_key(false);
            }
        } else {
            self.forget_key(false);
            self.hide.push(content);
        }
    }

    /// Whether what was just read is (a part of) a key: more parts and then `=` follow.
    fn is_key(&self) -> bool {
        let mut rest = self.rest();
        loop {
            rest = rest.trim_start_matches([' ', '\t']);
            if rest.starts_with('=') {
                return self.key_may_follow;
            }
            let Some(part) = rest.strip_prefix('.') else {
                return false;
            };
            let part = part.trim_start_matches([' ', '\t']);
            rest = match part.chars().next() {
                Some(quote @ ('"' | '\'')) => match part.split(quote).nth(1) {
                    Some(inside) => part.get(inside.len() + 2..).unwrap_or(""),
                    None => return false,
                },
                _ => part.trim_start_matches(is_word),
            };
        }
    }

    fn may_show(&self, value: &str) -> bool {
        // With these inside, a quote may be missing somewhere and the text belong to more than one key.
        let before_query = value.split('?').next().unwrap_or("");
        if value.contains(['"', '\'']) || before_query.contains('=') {
            return false;
        }
        match self.key.as_str() {
            "env" => looks_like_variable(value),
            "ca" | "cert" | "directory" | "file" => looks_like_path(value),
            key if self.in_record => SHOWN_IN_RECORDS.contains(&key),
            key => SHOWN.contains(&key),
        }
    }

    /// User, password and query of a URL, and the query of a path, are credentials as often as not.
    fn hide_credentials(&mut self, content: Range<usize>) {
        let text = self.text.get(content.clone()).unwrap_or("");
        let start = content.start + text.find("://").map_or(0, |scheme| scheme + 3);
        let rest = self.text.get(start..content.end).unwrap_or("");
        if let Some(user) = rest.rfind('@') {
            self.hide.push(start..start + user);
        }
        if let Some(query) = rest.find(['?', '#']) {
            self.hide.push(start + query..content.end);
        }
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn end_of_line(&self) -> usize {
        self.rest()
            .find('\n')
            .map_or(self.text.len(), |offset| self.at + offset)
    }
}

/// Everything but white space, quotes and the punctuation that ends a value.
fn is_word(c: char) -> bool {
    !c.is_whitespace() && !matches!(c, '"' | '\'' | '=' | '.' | ',' | '[' | ']' | '{' | '}' | '#')
}

fn replace(text: &str, hide: &[Range<usize>]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut hide = hide.iter().peekable();
    for (offset, c) in text.char_indices() {
        while hide.next_if(|range| range.end <= offset).is_some() {}
        let hidden = hide.peek().is_some_and(|range| range.contains(&offset));
        // Control characters would drive the terminal that shows them.
        let shown = matches!(c, '\n' | '\r' | '\t') || !(hidden || c.is_control());
        if shown {
            out.push(c);
        } else {
            // As many bytes and columns as before.
            out.push_str(match c.len_utf8() {
                1 => "*",
                2 => "\u{d7}",
                3 => "\u{2022}",
                _ => "\u{1f512}",
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONFIG: &str = r#"listen = "0.0.0.0:8080" # hunter2
[admin]
hosts = ["a", "b"]
token = { value = "hunter2" }
[sources.a]
path = "/a"
secrets = [
  { env = "A", label = "x", value = "hunter2" },
  { file = "/a/b", value = 'hunter2', scope = "y" },
]
upstreams = [
  "app",
]
label = "x"
value = "hunter2"
ack_body = """
a"""
secret.value = "hunter2"
sources.b = { path = "/b", upstreams = ["app"], secret = { label = "z", value = "hunter2" }, rate = "1/s" }
params = { token = "hunter2", id = "hunter2" }
[providers.p]
encoding = "hex"
secret = "hunter2"
"#;

    proptest! {
        /// Whatever slip of the keyboard makes the file unreadable, the report on it shows no secret.
        #[test]
        fn slips_do_not_uncover_a_secret(
            slips in prop::collection::vec((any::<prop::sample::Index>(), "[\"'\\[\\]{}=,.# \n\\\\a_-]?"), 1..4)
        ) {
            let mut text = CONFIG.to_owned();
            for (place, insert) in slips {
                let mut place = place.index(text.len());
                // Not inside the secret, where the test would look for what is no longer there.
                if let Some(start) = text.match_indices("hunter2").map(|(at, _)| at).find(|at| (*at..at + 7).contains(&place)) {
                    place = start - 1;
                }
                let end = if insert.is_empty() { place + 1 } else { place };
                text.replace_range(place..end, &insert);
            }
            let masked = mask(&text);
            prop_assert!(!masked.contains("hunter2"), "{text}\n=>\n{masked}");
            prop_assert_eq!(masked.len(), text.len());
        }
    }

    #[test]
    fn only_values_of_harmless_keys_are_shown() {
        let text = r##"listen = "0.0.0.0:8080" # old: hunter2
[sources.a]
path = "/a"
secret = { value = "hunter2", label = "2026" }
"secret" = 'hunter2'
secrets = ["hunter2", { env = "A_SECRET" }, { env = "hunter2" }, { file = "/run/hooks" }, {file="hunter2"}]
vlaue = "hunter2"
token = hunter2
a.value = """
hunter2
"hunter2" hunter2"""
sources.b.path = "/b"
"##;
        let masked = mask(text);
        assert!(!masked.contains("hunter2"), "{masked}");
        for shown in [
            "0.0.0.0:8080",
            "\"/a\"",
            "A_SECRET",
            "/run/hooks",
            "\"2026\"",
            "\"/b\"",
            "[sources.a]",
        ] {
            assert!(masked.contains(shown), "{shown} is hidden in\n{masked}");
        }
    }

    /// A new key that is not on the list would be hidden where nothing is to hide.
    #[test]
    fn harmless_keys_are_all_known() {
        let keys = |text: &str| -> Vec<String> {
            let lines = text.lines().map(|line| line.trim_start_matches("# "));
            let keys = lines
                .filter_map(|line| line.split_once(" = "))
                .map(|(key, _)| key.to_owned());
            keys.filter(|key| key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
                .collect()
        };
        for name in crate::verify::presets::names() {
            for key in keys(crate::verify::presets::text(name).unwrap()) {
                assert!(SHOWN_IN_RECORDS.contains(&key.as_str()), "{key} of {name}");
            }
        }
        let example = include_str!("../../config/hooksluice.toml");
        let (settings, _) = example.split_once("[providers.").unwrap();
        for key in keys(settings) {
            let may_be_secret = ["token", "secret", "secrets", "params"].contains(&key.as_str());
            assert!(may_be_secret != SHOWN.contains(&key.as_str()), "{key}");
        }
    }

    #[test]
    fn credentials_in_urls_are_hidden() {
        let masked = mask("url = \"http://user:hunter2@127.0.0.1:9000/x?k=hunter2\"\n");
        assert!(!masked.contains("hunter2") && !masked.contains("user"), "{masked}");
        assert!(masked.contains("127.0.0.1:9000/x"), "{masked}");
    }

    #[test]
    fn a_text_that_is_not_toml_shows_no_secret() {
        for text in [
            "value = \"hunter2",
            "value = 'hunter2\nlisten = \"x\"",
            "value = \"\"\"hunter2",
            "value = hun\"ter2",
            "value == \"hunter2\"",
            "value : hunter2",
            "value \"hunter2\"",
            "\"hunter2\"",
            "hunter2",
            "secret = { value = \"a\\\"hunter2\" }",
            "value = hunter2.hunter2",
            "[hunter2\nvalue = hunter2",
            "secrets = [\n  [\"hunter2\"],\n  hunter2.hunter2,\n]",
            "value = aa.hunter2=",
            "value = aa.hunter2.hunter2=",
        ] {
            let masked = mask(text);
            assert!(!masked.contains("hunter2"), "{masked}");
        }
    }

    #[test]
    fn places_stay_the_same() {
        let text = "value = \"aü€😀\" # ü\npath = \"/ü\"\n";
        let masked = mask(text);
        assert_eq!(masked.len(), text.len());
        assert_eq!(masked.find("path"), text.find("path"));
        assert_eq!(masked.lines().count(), text.lines().count());
        assert!(masked.contains("/ü"));
    }
}
