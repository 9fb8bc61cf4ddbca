//! What `verify`, `sign` and `send` are told about a provider: a preset with secrets, or a configured source.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::config::{self, Environment, looks_like_path, looks_like_variable};
use crate::secret::Secret;
use crate::time::{Clock, Timestamp};
use crate::verify::record::Kind;
use crate::verify::{SourceSecret, Verifier, VerifierOptions, VerifierProblem, presets};

/// Longest file or standard input that is read, in bytes: above every body limit.
const MAX_INPUT: u64 = 256 << 20;

/// A preset with its secrets, or a source of a configuration.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct SchemeArgs {
    /// A preset; `hooksluice providers` lists them
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// Environment variable that holds the secret; may be given more than once
    #[arg(long, value_name = "NAME", conflicts_with = "source")]
    pub secret_env: Vec<String>,
    /// File that holds the secret (one line end is removed); may be given more than once
    #[arg(long, value_name = "FILE", conflicts_with = "source")]
    pub secret_file: Vec<PathBuf>,
    /// The URL as the provider was given it, for schemes that sign it
    #[arg(long, value_name = "URL", conflicts_with = "source")]
    pub public_url: Option<String>,
    /// A second input of the scheme; may be given more than once
    #[arg(long = "param", value_name = "NAME=VALUE", conflicts_with = "source")]
    pub params: Vec<String>,
    /// A source of the configuration, with its provider and secrets
    #[arg(long, value_name = "NAME", conflicts_with = "provider")]
    pub source: Option<String>,
    /// The configuration. Without it: ./hooksluice.toml, then /etc/hooksluice/hooksluice.toml
    #[arg(short, long, value_name = "FILE", requires = "source")]
    pub config: Option<PathBuf>,
}

impl SchemeArgs {
    /// The verifier. `url` is the public URL where none is given.
    ///
    /// # Errors
    /// What is wrong with the command line, for people.
    pub fn verifier(&self, url: Option<&str>) -> Result<Arc<Verifier>, String> {
        match (&self.provider, &self.source) {
            (Some(provider), _) => self.of_preset(provider, url),
            (None, Some(source)) => self.of_source(source),
            (None, None) => Err("say `--provider NAME` or `--source NAME`".to_owned()),
        }
    }

    fn of_preset(&self, provider: &str, url: Option<&str>) -> Result<Arc<Verifier>, String> {
        let record = presets::find(provider).ok_or_else(|| unknown_provider(provider))?;
        let mut secrets = Vec::new();
        for name in &self.secret_env {
            let value = std::env::var_os(name).ok_or_else(|| not_set(name))?;
            secrets.push(secret(value.into_encoded_bytes()));
        }
        for path in &self.secret_file {
            let bytes = fs::read(path).map_err(|why| match looks_like_path(&path.to_string_lossy()) {
                true => format!("{}: {why}", path.display()),
                false => format!("the file named by `--secret-file`: {why}"),
            })?;
            secrets.push(secret(bytes));
        }
        if secrets.is_empty() && record.kind() != Kind::None {
            return Err("say where the secret is with `--secret-env NAME` or `--secret-file FILE`".to_owned());
        }
        let public_url = self.public_url.as_deref().or(url.filter(|_| record.needs_public_url()));
        let options = VerifierOptions {
            public_url: public_url.map(str::to_owned),
            own_hosts: Vec::new(),
            params: pairs(&self.params)?,
            accept_unsigned: true,
            tolerance: None,
            max_decoded: None,
            takes_secrets: false,
            learns: false,
        };
        let verifier = Verifier::new(record, secrets, options);
        verifier.map(Arc::new).map_err(|problems| say_problems(&problems))
    }

    fn of_source(&self, name: &str) -> Result<Arc<Verifier>, String> {
        let environment = Environment::process(Clock::system());
        let loaded = config::load(self.config.as_deref(), &environment).map_err(|report| report.render(false))?;
        let mut sources = loaded.config.live.sources.into_iter();
        let found = sources.find(|source| source.name.as_str() == name);
        found
            .map(|source| source.verifier)
            .ok_or_else(|| format!("the configuration has no source `{name}`"))
    }
}

/// The message for a variable that is not set. Somebody may have typed the secret in place of its name: only what is
/// clearly a name is repeated.
pub(super) fn not_set(name: &str) -> String {
    match looks_like_variable(name) {
        true => format!("the environment variable {name} is not set"),
        false => "the environment variable named here is not set; give a variable's name, not its value".to_owned(),
    }
}

/// The message for a provider that nobody knows.
pub(super) fn unknown_provider(name: &str) -> String {
    unknown_among(name, std::iter::empty())
}

/// As [`unknown_provider`], where a configuration has providers of its own.
pub(super) fn unknown_among<'n>(name: &str, own: impl Iterator<Item = &'n str>) -> String {
    let own = presets::near(name, own);
    match own.or_else(|| presets::nearest(name)) {
        Some(near) => format!("unknown provider `{name}`; did you mean `{near}`?"),
        None => format!("unknown provider `{name}`; `hooksluice providers` lists them"),
    }
}

/// Why a verifier cannot be made, in one line.
pub(super) fn say_problems(problems: &[VerifierProblem]) -> String {
    let texts: Vec<String> = problems
        .iter()
        .map(|problem| match problem.secret_index {
            Some(index) => format!("secret {index}: {}", problem.message),
            None => problem.message.clone(),
        })
        .collect();
    texts.join("; ")
}

/// Editors and shells add one line end; more is a mistake that the hints of `verify` show.
fn secret(bytes: Vec<u8>) -> SourceSecret {
    let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    SourceSecret::new(Secret::new(text))
}

fn pairs(list: &[String]) -> Result<BTreeMap<String, String>, String> {
    let pair = |text: &String| {
        let (name, value) = text.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    let pairs = list
        .iter()
        .map(|text| pair(text).ok_or_else(|| format!("`{text}` is not NAME=VALUE")));
    pairs.collect()
}

/// `Name: value` lines of the command line.
pub(super) fn headers(lines: &[String]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for line in lines {
        let bad = || format!("`{line}` is not `Name: value`");
        let (name, value) = line.split_once(':').ok_or_else(bad)?;
        let name: HeaderName = name.trim().parse().ok().ok_or_else(bad)?;
        let value = HeaderValue::from_bytes(value.trim().as_bytes()).ok().ok_or_else(bad)?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// Unix seconds or RFC 3339.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Timestamp::from_secs(seconds));
    }
    let time: Result<jiff::Timestamp, _> = text.parse();
    time.map(|time| Timestamp::from_millis(time.as_millisecond()))
        .map_err(|_neither| "expected Unix seconds or a time such as 2026-11-29T20:15:00Z".to_owned())
}

/// A file, or standard input for `-`.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let name = path.display();
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(MAX_INPUT + 1).read_to_end(&mut bytes)
    } else {
        fs::File::open(path).and_then(|file| file.take(MAX_INPUT + 1).read_to_end(&mut bytes))
    };
    read.map_err(|why| format!("{name}: {why}"))?;
    match u64::try_from(bytes.len()) {
        Ok(len) if len <= MAX_INPUT => Ok(bytes),
        _ => Err(format!("{name}: longer than {} MiB", MAX_INPUT >> 20)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_place_of_a_name_is_not_repeated() {
        let why = |env: &[&str], file: &[&str]| {
            let scheme = SchemeArgs {
                provider: Some("stripe".to_owned()),
                secret_env: env.iter().map(|name| (*name).to_owned()).collect(),
                secret_file: file.iter().map(PathBuf::from).collect(),
                ..SchemeArgs::default()
            };
            scheme.verifier(None).unwrap_err()
        };
        let typed = why(&["whsec_hunter2"], &[]);
        assert!(!typed.contains("hunter2") && typed.contains("not its value"), "{typed}");
        let typed = why(&[], &["whsec_hunter2"]);
        assert!(!typed.contains("hunter2"), "{typed}");
        let named = why(&["NO_SUCH_VARIABLE_HERE"], &[]);
        assert_eq!(named, "the environment variable NO_SUCH_VARIABLE_HERE is not set");
    }
}
