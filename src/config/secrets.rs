//! Turns secret references into bytes. A missing or empty secret is an error, never the empty key (P3), and nothing
//! said about a secret contains it (P5).

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::config::environment::{Environment, MAX_SECRET_FILES, NOT_A_FILE};
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
    /// Every secret that `entry` refers to: one, or those of a directory, which has some unless it `may_be_empty`; `None`
    /// when one cannot be used, which is reported.
    pub(super) fn resolve_all(
        &self,
        entry: &SecretEntry,
        may_be_empty: bool,
        what: &str,
        problems: &mut Diagnostics,
    ) -> Option<Vec<Resolved>> {
        if let (Self::Resolve(environment), Some(from)) = (self, entry.from.as_ref())
            && let SecretFrom::Directory(directory) = &from.value
        {
            return each_file(directory, may_be_empty, from, environment, what, problems);
        }
        let secret = self.resolve(entry, what, problems)?;
        Some(vec![Resolved { secret, file: None }])
    }

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
            SecretFrom::Env(_) | SecretFrom::File(_) | SecretFrom::Credential(_) | SecretFrom::Directory(_) => {
                without_one_line_end(bytes)
            }
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

/// One secret of an entry.
pub(super) struct Resolved {
    pub(super) secret: Secret,
    /// The name of its file, where a directory is given.
    pub(super) file: Option<String>,
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
                Ok(bytes) => {
                    warn_of_readers(path, &origin, from, environment, what, problems);
                    Some((origin, bytes))
                }
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
        SecretFrom::Credential(name) => credential(name, from, environment, what, problems),
        // Its reader refuses it where one secret is wanted.
        SecretFrom::Directory(_) => None,
        SecretFrom::Value(secret) => {
            check_written(from, what, problems)?;
            problems.warning(
                from.span.clone(),
                format!("the secret of {what} is written in the configuration"),
                "whoever may read this file can sign requests",
                Some(
                    "use { env = \"NAME\" }, { file = \"/run/secrets/NAME\" } or { credential = \"NAME\" }".to_owned(),
                ),
            );
            Some(("the value".to_owned(), secret.expose().to_vec()))
        }
        SecretFrom::Plain(text) => {
            check_written(from, what, problems)?;
            Some(("the value".to_owned(), text.expose().to_vec()))
        }
    }
}

/// A file that systemd put into the service's own directory (systemd.exec(5), "Credentials").
///
/// The name is shown only once a file of that name is found: somebody may have written the secret in its place, and a
/// credential's name can look like anything.
fn credential(
    name: &str,
    from: &At<SecretFrom>,
    environment: &Environment,
    what: &str,
    problems: &mut Diagnostics,
) -> Option<(String, Vec<u8>)> {
    let cannot = |problems: &mut Diagnostics, label: String, help: &str| {
        let message = format!("the secret of {what} cannot be read");
        problems.error(from.span.clone(), message, label, Some(help.to_owned()));
        None
    };
    let plain = (1..=255).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':');
    if !plain || name.starts_with('.') {
        return cannot(
            problems,
            "expected the name of a credential, which is no path".to_owned(),
            "write the name that stands after `LoadCredential=`, in front of its `:`",
        );
    }
    let directory = environment
        .variable("CREDENTIALS_DIRECTORY")
        .filter(|path| !path.is_empty());
    let Some(directory) = directory else {
        return cannot(
            problems,
            "`$CREDENTIALS_DIRECTORY` is not set".to_owned(),
            "systemd sets it: start hooksluice as a service with `LoadCredential=NAME:/path/of/the/secret`",
        );
    };
    let directory = Path::new(OsStr::from_bytes(&directory));
    match environment.file(&directory.join(name)) {
        Ok(bytes) => Some((format!("the credential `{name}`"), bytes)),
        Err(error) => cannot(
            problems,
            format!(
                "the credential named here, in `{}`: {}",
                directory.display(),
                reason(&error)
            ),
            "add `LoadCredential=NAME:/path/of/the/secret` to the service, with this name",
        ),
    }
}

/// The secrets of a directory, in the order of their names, which are their labels.
fn each_file(
    directory: &Path,
    may_be_empty: bool,
    from: &At<SecretFrom>,
    environment: &Environment,
    what: &str,
    problems: &mut Diagnostics,
) -> Option<Vec<Resolved>> {
    let origin = if looks_like_path(&directory.to_string_lossy()) {
        format!("the directory `{}`", directory.display())
    } else {
        "the directory named here".to_owned()
    };
    let mut fail = |message: &str, label: String, help: &str| {
        let message = format!("the secrets of {what} {message}");
        problems.error(from.span.clone(), message, label, Some(help.to_owned()));
    };
    let files = match environment.directory(directory) {
        Ok(files) => files,
        Err(error) => {
            fail(
                "cannot be read",
                format!("{origin}: {}", reason(&error)),
                "`directory` takes the path of a directory in which each file holds one secret",
            );
            return None;
        }
    };
    if files.is_empty() && !may_be_empty {
        fail(
            "are missing",
            format!("{origin} has no file"),
            "put each secret into a file of its own there; hidden files and directories do not count",
        );
        return None;
    }
    if files.len() > MAX_SECRET_FILES {
        fail(
            "are too many",
            format!("{origin} has more than {MAX_SECRET_FILES} files"),
            "each request may be tried with every one: keep the secrets of one source in a directory of their own",
        );
        return None;
    }
    let mut open = None;
    let resolved = files.into_iter().map(|file| {
        let name = file.file_name()?.to_str().filter(|name| is_label(name));
        let Some(name) = name else {
            problems.error(
                from.span.clone(),
                format!("a file of the secrets of {what} has no good name"),
                format!("{origin} has {:?}", file.file_name().unwrap_or_default()),
                Some("its name is the secret's label: 1 to 64 printable ASCII characters".to_owned()),
            );
            return None;
        };
        let origin = format!("the file `{}`", file.display());
        let bytes = match environment.file(&file) {
            Ok(bytes) => without_one_line_end(bytes),
            Err(error) => {
                problems.error(
                    from.span.clone(),
                    format!("a secret of {what} cannot be read"),
                    format!("{origin}: {}", reason(&error)),
                    Some("each file of the directory is taken for a secret".to_owned()),
                );
                return None;
            }
        };
        if open.is_none() && environment.is_open_to_all(&file) {
            open = Some(file.clone());
        }
        judge(&bytes, &origin, from, what, problems).then(|| Resolved {
            secret: Secret::new(bytes),
            file: Some(name.to_owned()),
        })
    });
    let resolved: Vec<_> = resolved.collect();
    if let Some(file) = open {
        let origin = format!("the file `{}`", file.display());
        warn_of_readers(&file, &origin, from, environment, what, problems);
    }
    resolved.into_iter().collect()
}

/// What metrics and tables can show of a label.
pub(super) fn is_label(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| (b' '..=b'~').contains(&b)) && text.trim() == text
}

fn warn_of_readers(
    path: &Path,
    origin: &str,
    from: &At<SecretFrom>,
    environment: &Environment,
    what: &str,
    problems: &mut Diagnostics,
) {
    if environment.is_open_to_all(path) {
        problems.warning(
            from.span.clone(),
            format!("the secret of {what} can be read by everybody on this machine"),
            format!("{origin} and the directories above it are open to other users"),
            Some("take the right away: `chmod o-rwx`, and let its group be that of hooksluice".to_owned()),
        );
    }
}

/// As systems say it, since that is what people know and search for.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "No such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "Permission denied".to_owned(),
        io::ErrorKind::NotADirectory => "Not a directory".to_owned(),
        io::ErrorKind::InvalidInput => NOT_A_FILE.to_owned(),
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
    // A key in PEM is lines, and what stands around it is not read.
    let is_pem = memchr::memmem::find(bytes, b"-----BEGIN ").is_some();
    if !is_pem && (bytes.ends_with(b"\n") || bytes.ends_with(b"\r")) {
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
    for (label, help) in oddities(bytes).into_iter().filter(|_| !is_pem) {
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
