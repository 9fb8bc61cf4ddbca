//! Configuration in three layers: the text, what is written in it (`file`, with places), and what runs ([`Config`],
//! which cannot be wrong).
//!
//! A file loads whole or not at all and says everything that is wrong with it ([`Report`]). Secrets are references
//! that are looked up, never text substitution; a missing or empty one is an error (P3). Nothing that is said about a
//! file contains a secret: the report holds a masked copy of the text and no other (P5).

mod build;
mod certificates;
mod defaults;
mod environment;
mod file;
mod mask;
mod reference;
mod report;
mod secrets;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;

pub use self::environment::{Environment, MAX_SECRET_FILE};
use self::file::File;
pub use self::reference::reference;
pub use self::report::{Line, Report};
use self::secrets::Secrets;
pub(crate) use self::secrets::{looks_like_path, looks_like_variable};
use crate::admin::AdminSettings;
use crate::dedupe::settings::RedisSettings;
use crate::diagnostic::Diagnostics;
use crate::forward::settings::UpstreamSettings;
use crate::id::SourceName;
use crate::ingest::source::{Limits, Source};
use crate::net::tls::TlsSettings;
use crate::reader::{At, Document};
use crate::routes::settings::RouteSettings;
use crate::store::settings::{Place, StoreSettings};

/// Where a configuration is looked for when none is named.
pub const PLACES: [&str; 2] = ["hooksluice.toml", "/etc/hooksluice/hooksluice.toml"];

/// Where requests come in when no file says it.
pub const LISTEN: SocketAddr = defaults::LISTEN;

/// Larger than any configuration that people write.
const MAX_FILE: u64 = 4 << 20;

/// Everything a server runs with. Whoever adds a key says by its place whether a reload may change it.
#[derive(Clone, Debug)]
pub struct Config {
    /// What a start decides: another value needs a restart.
    pub fixed: Fixed,
    /// What a reload replaces.
    pub live: Live,
}

/// The part of a configuration that holds for the life of a process.
#[derive(Clone, Debug)]
pub struct Fixed {
    /// Where requests come in.
    pub listen: SocketAddr,
    /// Whether there is `[tls]`; without it requests come in as plain HTTP.
    pub speaks_tls: bool,
    /// `[limits]`.
    pub limits: Limits,
    /// `[admin]`.
    pub admin: AdminSettings,
    /// `[store]` and `[dedupe]`, as written: without what sources make of them (see [`Config::store`]).
    pub store: StoreSettings,
    /// `[dedupe.redis]`, likewise (see [`Config::redis`]).
    pub redis: Option<RedisSettings>,
}

/// The part of a configuration that may change while the server runs.
#[derive(Clone, Debug)]
pub struct Live {
    /// `[tls]`, where it is.
    pub tls: Option<TlsSettings>,
    /// From the signal to the end of accepting, while `/readyz` is already 503.
    pub shutdown_delay: Duration,
    /// For attempts that run when accepting has ended.
    pub shutdown_grace: Duration,
    /// Peers whose `X-Forwarded-*` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// A path of the public port that answers 200 while the process accepts.
    pub health_path: Option<String>,
    /// `[upstreams.NAME]`, in the order of the file.
    pub upstreams: Vec<UpstreamSettings>,
    /// `[sources.NAME]`, in the order of the file.
    pub sources: Vec<Source>,
    /// `[routes.NAME]`, in the order of the file; each pattern once.
    pub routes: Vec<RouteSettings>,
    /// How long keys made by a `dedupe` rule are remembered: `dedupe.window`, raised to the longest time that a
    /// configured provider retries for.
    pub window: Duration,
}

impl Live {
    /// The sources whose senders wait for the upstream's answer, and for how long.
    pub fn synchronous(&self) -> BTreeMap<SourceName, Duration> {
        let waiting = self.sources.iter();
        waiting
            .filter_map(|source| Some((source.name.clone(), source.synchronous?.patience)))
            .collect()
    }
}

impl Config {
    /// What the store is opened with.
    pub fn store(&self) -> StoreSettings {
        StoreSettings {
            window: self.live.window,
            synchronous: self.live.synchronous(),
            ..self.fixed.store.clone()
        }
    }

    /// What Redis is asked with, where it is configured.
    pub fn redis(&self) -> Option<RedisSettings> {
        let written = self.fixed.redis.clone()?;
        Some(RedisSettings {
            window: self.live.window,
            ..written
        })
    }
}

/// A configuration that may run, with the warnings that a person should see.
#[derive(Debug)]
pub struct Loaded {
    /// What runs.
    pub config: Config,
    /// Warnings only.
    pub report: Report,
}

/// What the command line of a start without a file says.
#[derive(Clone, Debug)]
pub struct Flags {
    /// Name of the preset, also of the source, and the end of its path `/webhooks/NAME`.
    pub provider: String,
    /// Environment variable that holds the secret.
    pub secret_env: String,
    /// Origin of the upstream, which is named `app`.
    pub upstream: String,
    /// As providers were given it; for schemes that sign the URL.
    pub public_url: Option<String>,
    /// Where requests come in, if not the default.
    pub listen: Option<SocketAddr>,
    /// Where the admin API listens, if not the default.
    pub admin_listen: Option<SocketAddr>,
    /// Directory of the store, if not the default.
    pub store: Option<PathBuf>,
}

/// Loads the file at `path`, or the first of [`PLACES`] that exists, and looks up its secrets.
///
/// # Errors
/// The report of everything that is wrong, the missing file included.
pub fn load(path: Option<&Path>, environment: &Environment) -> Result<Loaded, Report> {
    let (name, text) = read(path)?;
    let (config, report) = load_text(&name, &text, environment);
    match config {
        Some(config) => Ok(Loaded { config, report }),
        None => Err(report),
    }
}

/// Loads a configuration from its text; `name` is what the report calls it.
pub fn load_text(name: &str, text: &str, environment: &Environment) -> (Option<Config>, Report) {
    judge(name, text, Secrets::Resolve(environment))
}

/// The configuration of a start without a file.
///
/// # Errors
/// The report of everything that is wrong with `flags`.
pub fn from_flags(flags: &Flags, environment: &Environment) -> Result<Loaded, Report> {
    let mut problems = Diagnostics::new();
    let config = build::build(&written(flags), Secrets::Resolve(environment), &mut problems);
    let report = Report::without_places("command line", problems);
    match config {
        Some(config) => Ok(Loaded { config, report }),
        None => Err(report),
    }
}

/// What `check` has to say: the report, and what was loaded in words when nothing is wrong.
#[derive(Debug)]
pub struct Review {
    /// Everything found.
    pub report: Report,
    /// What would run, one fact per line; `None` when the report has an error.
    pub summary: Option<String>,
    /// What would run; also `None` where secrets were not looked up.
    pub config: Option<Config>,
}

/// Judges the file at `path`, or the first of [`PLACES`] that exists.
///
/// With `without_secrets` their references are not looked up, for machines that have none; what would then run is
/// described and never handed out.
pub fn review(path: Option<&Path>, environment: &Environment, without_secrets: bool) -> Review {
    let (name, text) = match read(path) {
        Ok(found) => found,
        Err(report) => {
            return Review {
                report,
                summary: None,
                config: None,
            };
        }
    };
    review_text(&name, &text, environment, without_secrets)
}

/// As [`review`], of a text that is in no file; `name` is what the report calls it.
pub fn review_text(name: &str, text: &str, environment: &Environment, without_secrets: bool) -> Review {
    let secrets = if without_secrets {
        Secrets::Skip(environment)
    } else {
        Secrets::Resolve(environment)
    };
    let (config, report) = judge(name, text, secrets);
    Review {
        summary: config.as_ref().map(|config| report::summary(name, config, &report)),
        report,
        config: config.filter(|_config| !without_secrets),
    }
}

/// Where the store of the file at `path` (or the first of [`PLACES`] that exists) is. Secrets are not looked up, so this
/// opens no database.
///
/// # Errors
/// The report of everything that is wrong.
pub fn store_place(path: Option<&Path>, environment: &Environment) -> Result<Place, Report> {
    let (name, text) = read(path)?;
    match judge(&name, &text, Secrets::Skip(environment)) {
        (Some(config), _) => Ok(config.store().place),
        (None, report) => Err(report),
    }
}

fn judge(name: &str, text: &str, secrets: Secrets<'_>) -> (Option<Config>, Report) {
    let mut problems = Diagnostics::new();
    let document = Document::parse(text, &mut problems);
    let broken = problems.has_errors();
    let file = File::read(&document, &mut problems);
    // What could be read of a broken text is no base for judging what is missing from it.
    let config = if broken {
        None
    } else {
        build::build(&file, secrets, &mut problems)
    };
    (config, Report::new(name, text, problems))
}

fn read(path: Option<&Path>) -> Result<(String, String), Report> {
    let fail = |name: &str, message: String, help: &str| {
        let mut problems = Diagnostics::new();
        problems.error(None, message, "", Some(help.to_owned()));
        Err(Report::without_places(name, problems))
    };
    let path = match path {
        Some(path) => path,
        None => match PLACES.iter().map(Path::new).find(|place| place.exists()) {
            Some(place) => place,
            None => {
                let message = format!("no configuration: neither `{}` nor `{}` exists", PLACES[0], PLACES[1]);
                return fail(PLACES[0], message, "name one with `-c FILE`");
            }
        },
    };
    let name = path.display().to_string();
    let bytes = match environment::read_limited(path, MAX_FILE) {
        Ok(bytes) => bytes,
        Err(error) => {
            return fail(
                &name,
                format!("cannot read `{name}`: {error}"),
                "name a file with `-c FILE`",
            );
        }
    };
    match String::from_utf8(bytes) {
        Ok(text) => Ok((name, text)),
        Err(error) => {
            let offset = error.utf8_error().valid_up_to();
            let line = error
                .as_bytes()
                .iter()
                .take(offset)
                .filter(|byte| **byte == b'\n')
                .count()
                + 1;
            fail(
                &name,
                format!("`{name}` is not UTF-8 (line {line})"),
                "TOML is always UTF-8",
            )
        }
    }
}

/// What a file with the same meaning would say.
fn written(flags: &Flags) -> File {
    let name = || at(flags.provider.clone());
    let secret = file::SecretEntry {
        span: 0..0,
        from: Some(at(file::SecretFrom::Env(flags.secret_env.clone()))),
        label: None,
        scope: None,
        not_after: None,
    };
    let upstream = file::Upstream {
        url: Some(at(flags.upstream.clone())),
        ..file::Upstream::default()
    };
    let source = file::Source {
        path: Some(at(format!("{}{}", defaults::NO_FILE_PATH, flags.provider))),
        provider: Some(name()),
        secrets: Some(at(vec![secret])),
        upstreams: Some(at(vec![at(defaults::NO_FILE_UPSTREAM.to_owned())])),
        ..file::Source::default()
    };
    File {
        listen: flags.listen.map(at),
        public_url: flags.public_url.clone().map(at),
        admin: file::Admin {
            listen: flags.admin_listen.map(at),
            ..file::Admin::default()
        },
        store: file::Store {
            sqlite: flags.store.as_ref().map(|path| {
                at(file::Sqlite {
                    path: Some(at(path.to_string_lossy().into_owned())),
                })
            }),
            ..file::Store::default()
        },
        upstreams: vec![(at(defaults::NO_FILE_UPSTREAM.to_owned()), upstream)],
        sources: vec![(name(), source)],
        ..File::default()
    }
}

/// A value of the command line has no place in a text.
fn at<T>(value: T) -> At<T> {
    At { value, span: 0..0 }
}

#[cfg(test)]
mod tests;
