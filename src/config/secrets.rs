//! Turns secret references into bytes. A missing or empty secret is an error, never the empty key (P3), and nothing
//! said about a secret contains it (P5).

use std::io;
use std::ops::Range;

use crate::config::environment::Environment;
use crate::config::file::{SecretEntry, SecretFrom};
use crate::diagnostic::Diagnostics;
use crate::reader::At;
use crate::secret::Secret;

/// Whether references are looked up.
#[derive(Clone, Copy, Debug)]
pub(super) enum Secrets<'e> {
    /// As for a start.
    Resolve(&'e Environment),
    /// `check --without-secrets`: a [`placeholder`] stands for each.
    Skip(&'e Environment),
}

impl Secrets<'_> {
    /// The bytes that `entry` refers to; `None` when they cannot be used, which is reported. `what` names their
    /// purpose, such as "source `stripe`".
    pub(super) fn resolve(&self, entry: &SecretEntry, what: &str, problems: &mut Diagnostics) -> Option<Secret> {
        let from = entry.from.as_ref()?;
        let environment = match self {
            Self::Resolve(environment) => environment,
            Self::Skip(_) if !matches!(from.value, SecretFrom::Plain(_)) => {
                check_written(from, what, problems)?;
                return Some(placeholder());
            }
            Self::Skip(environment) => environment,
        };
        let (origin, bytes) = look_up(from, environment, what, problems)?;
        let bytes = match &from.value {
            SecretFrom::Env(_) | SecretFrom::File(_) => without_one_line_end(bytes),
            SecretFrom::Value(_) | SecretFrom::Plain(_) => bytes,
        };
        judge(&bytes, &origin, from, what, problems).then(|| Secret::new(bytes))
    }

    pub(super) fn environment(&self) -> &Environment {
        match self {
            Self::Resolve(environment) | Self::Skip(environment) => environment,
        }
    }

    pub(super) fn are_skipped(&self) -> bool {
        matches!(self, Self::Skip(_))
    }
}

/// Stands for a secret that is not looked up. Long enough, and valid in every encoding a scheme may decode (hex,
/// base64, base64url). Whoever asked for it must never serve with it.
fn placeholder() -> Secret {
    Secret::new([b'0'; 64])
}

fn look_up(
    from: &At<SecretFrom>,
    environment: &Environment,
    what: &str,
    problems: &mut Diagnostics,
) -> Option<(String, Vec<u8>)> {
    match &from.value {
        SecretFrom::Env(name) => {
            // Somebody may have written the secret where its name belongs: only what is clearly a name is repeated.
            let origin = if looks_like_variable(name) {
                format!("the environment variable `{name}`")
            } else {
                "the environment variable named here".to_owned()
            };
            let value = environment.variable(name);
            if value.is_none() {
                problems.error(
                    from.span.clone(),
                    format!("the secret of {what} is missing"),
                    format!("{origin} is not set"),
                    Some("set it where hooksluice is started; `env` takes a variable's name, not its value".to_owned()),
                );
            }
            Some((origin, value?))
        }
        SecretFrom::File(path) => {
            let origin = if looks_like_path(&path.to_string_lossy()) {
                format!("the file `{}`", path.display())
            } else {
                "the file named here".to_owned()
            };
            match environment.file(path) {
                Ok(bytes) => Some((origin, bytes)),
                Err(error) => {
                    problems.error(
                        from.span.clone(),
                        format!("the secret of {what} cannot be read"),
                        format!("{origin}: {}", reason(&error)),
                        Some("`file` takes a path, relative to the working directory or absolute".to_owned()),
                    );
                    None
                }
            }
        }
        SecretFrom::Value(secret) => {
            check_written(from, what, problems)?;
            problems.warning(
                from.span.clone(),
                format!("the secret of {what} is written in the configuration"),
                "whoever may read this file can sign requests",
                Some("use { env = \"NAME\" } or { file = \"/run/secrets/NAME\" }".to_owned()),
            );
            Some(("the value".to_owned(), secret.expose().to_vec()))
        }
        SecretFrom::Plain(text) => {
            check_written(from, what, problems)?;
            Some(("the value".to_owned(), text.expose().to_vec()))
        }
    }
}

/// As systems say it, since that is what people know and search for.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "No such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "Permission denied".to_owned(),
        kind => kind.to_string(),
    }
}

/// What can be judged of a written value without looking anything up.
fn check_written(from: &At<SecretFrom>, what: &str, problems: &mut Diagnostics) -> Option<()> {
    let (SecretFrom::Value(secret) | SecretFrom::Plain(secret)) = &from.value else {
        return Some(());
    };
    if let Some(variable) = unresolved_variable(secret.expose()) {
        problems.error(
            from.span.clone(),
            format!("the secret of {what} holds an unresolved variable"),
            "nothing is substituted in this file: this very text would be the key",
            Some(format!("write {{ env = \"{variable}\" }}")),
        );
        return None;
    }
    Some(())
}

fn judge(bytes: &[u8], origin: &str, from: &At<SecretFrom>, what: &str, problems: &mut Diagnostics) -> bool {
    let at = |problems: &mut Diagnostics, message: String, label: &str, help: &str| {
        problems.error(from.span.clone(), message, label, Some(help.to_owned()));
    };
    if bytes.trim_ascii().is_empty() {
        let label = format!("{origin} is empty");
        at(
            problems,
            format!("the secret of {what} is empty"),
            &label,
            "with an empty key anybody could sign",
        );
        return false;
    }
    if bytes.ends_with(b"\n") || bytes.ends_with(b"\r") {
        let label = format!("{origin} ends with more than one line end");
        at(
            problems,
            format!("the secret of {what} ends with empty lines"),
            &label,
            "one line end is removed, as editors add it; more is a mistake: remove the empty lines",
        );
        return false;
    }
    if is_one_variable(bytes) {
        let label = format!("{origin} holds a `${{NAME}}` that nobody replaced");
        at(
            problems,
            format!("the secret of {what} holds an unresolved variable"),
            &label,
            "this very text would be the key: mend what was to replace it",
        );
        return false;
    }
    for (label, help) in oddities(bytes) {
        problems.warning(
            from.span.clone(),
            format!("the secret of {what} {label}"),
            format!("{origin} is used as it is"),
            Some(help.to_owned()),
        );
    }
    true
}

/// What a secret may have and hardly ever should.
fn oddities(bytes: &[u8]) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    if bytes.trim_ascii() != bytes {
        found.push(("has outer white space", "remove it, unless it was chosen so"));
    }
    if bytes.trim_ascii().contains(&b'\n') {
        found.push(("has a line end inside", "a secret is one line"));
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        found.push(("starts with a byte order mark", "save the file without one"));
    }
    found
}

/// A terminator that an editor or a here-document added is no part of the secret.
fn without_one_line_end(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.ends_with(b"\n") {
        bytes.pop();
        if bytes.ends_with(b"\r") {
            bytes.pop();
        }
    }
    bytes
}

/// The name in a `${NAME}` anywhere in the text, or in a `$NAME` that is the whole of it.
fn unresolved_variable(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    if let Some(name) = text.strip_prefix('$')
        && is_identifier(name)
    {
        return Some(name.to_owned());
    }
    text.split("${")
        .skip(1)
        .filter_map(|rest| rest.split_once('}'))
        .map(|(inside, _)| inside.split([':', '-']).next().unwrap_or(inside))
        .find(|name| is_identifier(name))
        .map(str::to_owned)
}

fn is_one_variable(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.trim().strip_prefix("${")?.strip_suffix('}'))
        .is_some_and(is_identifier)
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Whether a text is so clearly a variable's name that it may be shown: `STRIPE_SECRET`, not `whsec_…`.
pub(crate) fn looks_like_variable(name: &str) -> bool {
    name.len() <= 64 && is_identifier(name) && !name.bytes().any(|b| b.is_ascii_lowercase())
}

/// Whether a text is so clearly a path that it may be shown.
pub(crate) fn looks_like_path(path: &str) -> bool {
    path.starts_with(['/', '.', '~'])
        || path
            .rsplit_once('.')
            .is_some_and(|(_, end)| (1..=8).contains(&end.len()))
}

/// The secrets' places, for problems that a verifier finds in one of them.
pub(super) fn span_of(entries: &[SecretEntry], index: usize) -> Option<Range<usize>> {
    let entry = entries.get(index)?;
    Some(
        entry
            .from
            .as_ref()
            .map_or_else(|| entry.span.clone(), |from| from.span.clone()),
    )
}
