//! Values with a form of their own: secret references, instants, switches, networks, methods.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use http::Method;
use ipnet::IpNet;
use toml::de::DeValue;

use super::{SecretEntry, SecretFrom};
use crate::diagnostic::Diagnostics;
use crate::key::Part;
use crate::reader::{At, Kind, Section, article, parse_duration};
use crate::secret::Secret;
use crate::time::Timestamp;
use crate::verify::Tolerance;

/// Keys of a secret reference on a source.
const SECRET_KEYS: &[&str] = &["env", "file", "credential", "value", "label", "scope", "not_after"];
/// The same in a list, which a directory may fill.
const LISTED_KEYS: &[&str] = &[
    "env",
    "file",
    "credential",
    "directory",
    "value",
    "label",
    "scope",
    "not_after",
];
/// Keys of a secret reference that stands alone.
pub(super) const TOKEN_KEYS: &[&str] = &["env", "file", "credential", "value"];
/// The same in a list, which a directory may fill.
const LISTED_TOKEN_KEYS: &[&str] = &["env", "file", "credential", "directory", "value"];
const SECRET_HELP: &str =
    "refer to it: { env = \"NAME\" }, { file = \"/run/secrets/NAME\" } or { credential = \"NAME\" }";

/// What a source's requests are checked with.
pub(super) fn secrets(section: &mut Section<'_>, problems: &mut Diagnostics) -> Option<At<Vec<SecretEntry>>> {
    let keys = OneOrMany {
        one: "secret",
        many: "secrets",
        keys: SECRET_KEYS,
        listed: LISTED_KEYS,
        use_of_all: "all secrets of `secrets` are tried",
        without: "a source without a secret would accept what anybody sends",
    };
    keys.read(section, problems)
}

/// What forwards to an upstream are signed with.
pub(super) fn signing_secrets(section: &mut Section<'_>, problems: &mut Diagnostics) -> Option<At<Vec<SecretEntry>>> {
    let keys = OneOrMany {
        one: "signing_secret",
        many: "signing_secrets",
        keys: TOKEN_KEYS,
        listed: LISTED_TOKEN_KEYS,
        use_of_all: "each forward carries a signature of every secret of `signing_secrets`",
        without: "without a secret nothing can be signed",
    };
    keys.read(section, problems)
}

/// A key for one secret beside a key for a list of them.
struct OneOrMany {
    one: &'static str,
    many: &'static str,
    /// What a reference may say, and what it may say in the list.
    keys: &'static [&'static str],
    listed: &'static [&'static str],
    use_of_all: &'static str,
    /// What an empty list would mean.
    without: &'static str,
}

impl OneOrMany {
    fn read(&self, section: &mut Section<'_>, problems: &mut Diagnostics) -> Option<At<Vec<SecretEntry>>> {
        let Self { one, many, .. } = *self;
        section.describe(one, Kind::Secret);
        section.describe(many, Kind::Form("list of secret references"));
        let (single, list) = (section.value(one), section.value(many));
        if single.is_some() && list.is_some() {
            problems.error(
                section.key_span(one),
                format!("`{}` has both `{one}` and `{many}`", section.path()),
                "one of them must go",
                Some(format!("move it into the list: {}", self.use_of_all)),
            );
        }
        if let Some(span) = section.key_span(one) {
            let value = secret(section, one, self.keys, problems).into_iter().collect();
            return Some(At { value, span });
        }
        let span = section.key_span(many)?;
        let items = section.items(many, "a list of secret references", problems);
        if items.as_ref().is_some_and(|items| items.value.is_empty()) {
            problems.error(
                span.clone(),
                format!("`{}` is empty", section.full(many)),
                self.without,
                Some(SECRET_HELP.to_owned()),
            );
        }
        let mut value = Vec::new();
        for item in items.map(|items| items.value).unwrap_or_default() {
            match item.section() {
                Some(entry) => value.push(secret_entry(entry, self.listed, problems)),
                None => not_a_reference(&item.path, item.span, problems),
            }
        }
        Some(At { value, span })
    }
}

pub(super) fn secret(
    section: &mut Section<'_>,
    key: &'static str,
    keys: &[&'static str],
    problems: &mut Diagnostics,
) -> Option<SecretEntry> {
    section.describe(key, Kind::Secret);
    let found = section.value(key)?;
    if found.value.as_table().is_none() {
        not_a_reference(&section.full(key), found.span, problems);
        return None;
    }
    let entry = section.section(key, problems)?;
    Some(secret_entry(entry, keys, problems))
}

/// A URL, which may hold a password: written out, or a reference.
pub(super) fn text_or_secret(
    section: &mut Section<'_>,
    key: &'static str,
    problems: &mut Diagnostics,
) -> Option<SecretEntry> {
    section.describe(key, Kind::Form("URL, or secret reference"));
    let found = section.value(key)?;
    match found.value.as_str() {
        Some(text) => Some(plain(text, found.span)),
        None => secret(section, key, TOKEN_KEYS, problems),
    }
}

/// A value that is no secret by itself.
fn plain(text: &str, span: Range<usize>) -> SecretEntry {
    SecretEntry {
        span: span.clone(),
        from: Some(At {
            value: SecretFrom::Plain(Secret::new(text)),
            span,
        }),
        label: None,
        scope: None,
        not_after: None,
    }
}

/// Says nothing of what was found: it is probably the secret.
fn not_a_reference(key: &str, span: Range<usize>, problems: &mut Diagnostics) {
    problems.error(
        span,
        format!("bad value for `{key}`"),
        "expected a secret reference",
        Some(SECRET_HELP.to_owned()),
    );
}

fn secret_entry(mut section: Section<'_>, keys: &[&'static str], problems: &mut Diagnostics) -> SecretEntry {
    let span = section.span();
    let path = section.path().to_owned();
    let before = problems.iter().count();
    let mut found = Vec::new();
    if let Some(At { value, span }) = section.string("env", problems) {
        let value = SecretFrom::Env(value);
        found.push(At { value, span });
    }
    if let Some(At { value, span }) = section.string("file", problems) {
        let value = SecretFrom::File(PathBuf::from(value));
        found.push(At { value, span });
    }
    if let Some(At { value, span }) = section.string("credential", problems) {
        let value = SecretFrom::Credential(value);
        found.push(At { value, span });
    }
    if let Some(At { value, span }) = section.string("directory", problems) {
        if !keys.contains(&"directory") {
            problems.error(
                span,
                format!("`{path}` takes one secret, and a directory may hold many"),
                "`directory` belongs into a list: `secrets` of a source, `signing_secrets` of an upstream",
                Some(
                    "write it as [{ directory = \"/run/secrets/NAME\" }] there, or name one `file` of it here"
                        .to_owned(),
                ),
            );
        } else {
            let value = SecretFrom::Directory(PathBuf::from(value));
            found.push(At { value, span });
        }
    }
    if let Some(At { value, span }) = section.string("value", problems) {
        let value = SecretFrom::Value(Secret::new(value));
        found.push(At { value, span });
    }
    let mut entry = SecretEntry {
        span: span.clone(),
        from: None,
        label: None,
        scope: None,
        not_after: None,
    };
    if keys.contains(&"label") {
        entry.label = section.string("label", problems);
        entry.scope = section.string("scope", problems);
        entry.not_after = instant(&mut section, "not_after", problems);
    }
    section.finish(problems);
    if let (
        Some(label),
        [
            At {
                value: SecretFrom::Directory(_),
                ..
            },
        ],
    ) = (&entry.label, found.as_slice())
    {
        problems.error(
            label.span.clone(),
            format!("`label` has no meaning in `{path}`"),
            "the secrets of a directory are labelled with their files' names",
            Some("remove it, and name the files as you want to see them".to_owned()),
        );
    }
    let reported = problems.iter().count() > before;
    match found.len() {
        1 => entry.from = found.pop(),
        // With a misspelt or mistyped key the first report is the one to mend.
        0 if reported => {}
        _ => problems.error(
            span,
            format!("`{path}` must name one place to take the secret from"),
            format!("{} of {} are given", found.len(), places(keys)),
            Some(SECRET_HELP.to_owned()),
        ),
    }
    entry
}

/// The keys that say where a secret is.
fn places(keys: &[&str]) -> String {
    let places = keys.iter().filter(|key| !["label", "scope", "not_after"].contains(key));
    places.map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ")
}

/// An RFC 3339 time, as a string or as TOML's own date-time.
fn instant(section: &mut Section<'_>, key: &'static str, problems: &mut Diagnostics) -> Option<At<Timestamp>> {
    section.describe(key, Kind::Form("time (RFC 3339)"));
    let found = section.value(key)?;
    let text = match found.value {
        DeValue::String(text) => text.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        _ => String::new(),
    };
    match text.parse::<jiff::Timestamp>() {
        Ok(time) => Some(At {
            value: Timestamp::from_millis(time.as_millisecond()),
            span: found.span,
        }),
        Err(_) => {
            problems.error(
                found.span,
                format!("bad value for `{}`", section.full(key)),
                "expected a time with its offset, such as \"2026-12-31T00:00:00Z\"",
                None,
            );
            None
        }
    }
}

pub(super) fn params(section: &mut Section<'_>, problems: &mut Diagnostics) -> BTreeMap<String, At<SecretEntry>> {
    let mut params = BTreeMap::new();
    section.describe("params", Kind::Form("table of strings or secret references"));
    for (name, item) in section.entries("params", "a table of names and values", problems) {
        let entry = match (item.value.as_str(), item.section()) {
            (Some(text), _) => plain(text, item.span),
            (None, Some(section)) => secret_entry(section, TOKEN_KEYS, problems),
            (None, None) => {
                problems.error(
                    item.span,
                    format!("bad value for `{}`", item.path),
                    "expected a string or a secret reference",
                    Some(SECRET_HELP.to_owned()),
                );
                continue;
            }
        };
        params.insert(
            name.value,
            At {
                value: entry,
                span: name.span,
            },
        );
    }
    params
}

pub(super) fn tolerance(section: &mut Section<'_>, problems: &mut Diagnostics) -> Option<At<Tolerance>> {
    const HELP: &str = "write a time such as \"300s\", or \"off\" to accept any age";
    section.describe("tolerance", Kind::Form("duration from 1s, or \"off\""));
    let found = section.value("tolerance")?;
    let label = match found.value.as_str() {
        Some("off") => {
            return Some(At {
                value: Tolerance::Off,
                span: found.span,
            });
        }
        Some(text) => match parse_duration(text) {
            // Zero means "off" in some libraries and "nothing passes" to a reader: a switch of security is not
            // reached by a plausible number.
            Ok(Duration::ZERO) => "zero is neither a tolerance nor a way to say \"off\"".to_owned(),
            Ok(value) if value < Duration::from_secs(1) => "shorter than any delivery takes".to_owned(),
            Ok(value) => {
                return Some(At {
                    value: Tolerance::Within(value),
                    span: found.span,
                });
            }
            Err(label) => label,
        },
        None => format!("expected a string, found {}", article(found.value.type_str())),
    };
    problems.error(
        found.span,
        format!("bad value for `{}`", section.full("tolerance")),
        label,
        Some(HELP.to_owned()),
    );
    None
}

pub(super) fn dedupe_rule(section: &mut Section<'_>, problems: &mut Diagnostics) -> Option<At<Vec<Part>>> {
    section.describe("dedupe", Kind::Form("list of \"id\", \"type\", \"body\""));
    let found = section.strings("dedupe", problems)?;
    let mut parts = Vec::new();
    for part in &found.value {
        let known = match part.value.as_str() {
            "id" => Part::Id,
            "type" => Part::Type,
            "body" => Part::Body,
            _ => {
                problems.error(
                    part.span.clone(),
                    format!("bad value in `{}`", section.full("dedupe")),
                    "expected \"id\", \"type\" or \"body\"",
                    None,
                );
                continue;
            }
        };
        if parts.contains(&known) {
            twice(&section.full("dedupe"), part.span.clone(), problems);
        } else {
            parts.push(known);
        }
    }
    if found.value.is_empty() {
        problems.error(
            found.span.clone(),
            format!("`{}` is empty", section.full("dedupe")),
            "with no part every request would be the same again",
            Some("remove the key to use the provider's own rule".to_owned()),
        );
    }
    let usable = !parts.is_empty() && parts.len() == found.value.len();
    usable.then_some(At {
        value: parts,
        span: found.span,
    })
}

/// What a list of methods may hold.
pub(super) struct Methods {
    /// These, written so.
    pub known: &'static [&'static str],
    /// What an empty list would mean, and what to do about it.
    pub empty: (&'static str, &'static str),
    /// What is wrong with another word, and what to do about it.
    pub other: fn(&str) -> (&'static str, &'static str),
}

/// Of a source: what providers deliver with.
pub(super) const DELIVERING: Methods = Methods {
    known: &["GET", "POST", "PUT", "PATCH", "DELETE"],
    empty: (
        "nothing could be delivered",
        "remove the key to use the provider's own methods",
    ),
    other: |word| match word {
        "HEAD" | "OPTIONS" => ("answered for every source", "remove it"),
        _ => ("no provider delivers with it", "known: GET, POST, PUT, PATCH, DELETE"),
    },
};

pub(super) fn methods(
    section: &mut Section<'_>,
    allowed: &Methods,
    problems: &mut Diagnostics,
) -> Option<At<Vec<At<Method>>>> {
    section.describe("methods", Kind::Form("list of methods"));
    let found = section.strings("methods", problems)?;
    let name = section.full("methods");
    if found.value.is_empty() {
        let (label, help) = allowed.empty;
        problems.error(
            found.span.clone(),
            format!("`{name}` is empty"),
            label,
            Some(help.to_owned()),
        );
    }
    let mut methods: Vec<At<Method>> = Vec::new();
    for text in found.value {
        let upper = text.value.to_ascii_uppercase();
        let known = allowed.known.contains(&text.value.as_str());
        let (label, help) = match text.value.parse::<Method>() {
            Ok(method) if known => {
                if methods.iter().any(|given| given.value == method) {
                    twice(&name, text.span, problems);
                } else {
                    methods.push(At {
                        value: method,
                        span: text.span,
                    });
                }
                continue;
            }
            _ if upper != text.value && allowed.known.contains(&upper.as_str()) => {
                ("methods are case-sensitive", format!("did you mean `{upper}`?"))
            }
            _ => {
                let (label, help) = (allowed.other)(&text.value);
                (label, help.to_owned())
            }
        };
        problems.error(text.span, format!("bad value in `{name}`"), label, Some(help));
    }
    (!methods.is_empty()).then_some(At {
        value: methods,
        span: found.span,
    })
}

pub(super) fn networks(
    section: &mut Section<'_>,
    key: &'static str,
    problems: &mut Diagnostics,
) -> Option<At<Vec<At<IpNet>>>> {
    section.describe(key, Kind::Form("list of addresses and networks"));
    let found = section.strings(key, problems)?;
    let mut networks: Vec<At<IpNet>> = Vec::new();
    for text in found.value {
        let parsed = text.value.parse::<IpNet>().ok().or_else(|| {
            text.value
                .parse()
                .ok()
                .map(|address| IpNet::new_assert(address, if address.is_ipv4() { 32 } else { 128 }))
        });
        let Some(network) = parsed else {
            problems.error(
                text.span,
                format!("bad value in `{}`", section.full(key)),
                "expected an address or a network, such as \"192.0.2.7\" or \"10.0.0.0/8\"",
                None,
            );
            continue;
        };
        if network.trunc() != network {
            problems.error(
                text.span,
                format!("bad value in `{}`", section.full(key)),
                "the address has bits that its prefix leaves out",
                Some(format!("for the whole network write \"{}\"", network.trunc())),
            );
        } else if networks.iter().any(|n| n.value == network) {
            twice(&section.full(key), text.span, problems);
        } else {
            networks.push(At {
                value: network,
                span: text.span,
            });
        }
    }
    Some(At {
        value: networks,
        span: found.span,
    })
}

pub(super) fn address(
    section: &mut Section<'_>,
    key: &'static str,
    problems: &mut Diagnostics,
) -> Option<At<SocketAddr>> {
    section.describe(key, Kind::Form("address and port"));
    section.parsed(key, problems, |text| {
        text.parse().map_err(|_not_an_address| {
            "expected an address and a port, such as \"0.0.0.0:8080\" or \"[::1]:8080\"".to_owned()
        })
    })
}

fn twice(key: &str, span: Range<usize>, problems: &mut Diagnostics) {
    problems.error(
        span,
        format!("bad value in `{key}`"),
        "given twice",
        Some("remove one".to_owned()),
    );
}
