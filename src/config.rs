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
mod origin;
mod reference;
mod reload;
mod report;
mod secrets;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use zeroize::Zeroizing;

pub use self::environment::{Environment, MAX_SECRET_FILE};
use self::file::File;
pub use self::origin::{Flags, Origin, PLACES, Written};
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
use crate::reader::Document;
use crate::routes::settings::RouteSettings;
use crate::store::settings::{Place, StoreSettings};
use crate::telemetry::logging::Level;
use crate::verify::record::Record;

/// Where requests come in when no file says it.
pub const LISTEN: SocketAddr = defaults::LISTEN;

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
    /// Look at the file and at what it refers to about once a second, and load what has changed.
    pub watch: bool,
    /// What is logged, where the environment does not say so.
    pub log: Level,
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

/// Loads the file at `path`, or the first of [`PLACES`] that exists, and looks up its secrets.
///
/// # Errors
/// The report of everything that is wrong, the missing file included.
pub fn load(path: Option<&Path>, environment: &Environment) -> Result<Loaded, Report> {
    Origin::find(path)?.read()?.load(environment)
}

/// Loads a configuration from its text; `name` is what the report calls it.
pub fn load_text(name: &str, text: &str, environment: &Environment) -> (Option<Config>, Report) {
    judge(name, text, Secrets::Resolve(environment))
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
    match Origin::find(path).and_then(|origin| origin.read()) {
        Ok(written) => reviewed(&written, environment, without_secrets),
        Err(report) => Review {
            report,
            summary: None,
            config: None,
        },
    }
}

/// As [`review`], of a text that is in no file; `name` is what the report calls it.
pub fn review_text(name: &str, text: &str, environment: &Environment, without_secrets: bool) -> Review {
    let written = Written::Text {
        name: name.to_owned(),
        text: Zeroizing::new(text.to_owned()),
    };
    reviewed(&written, environment, without_secrets)
}

fn reviewed(written: &Written, environment: &Environment, without_secrets: bool) -> Review {
    let secrets = if without_secrets {
        Secrets::Skip(environment)
    } else {
        Secrets::Resolve(environment)
    };
    let (config, report) = written.judge(secrets);
    Review {
        summary: config
            .as_ref()
            .map(|config| report::summary(written.name(), config, &report)),
        report,
        config: config.filter(|_config| !without_secrets),
    }
}

/// The `[providers.NAME]` of a configuration, and what is wrong with it.
#[derive(Debug)]
pub struct OwnProviders {
    /// Each with its record, unless that has mistakes.
    pub records: Vec<(String, Option<Arc<Record>>)>,
    /// Everything found in the file, of which the rest is not judged.
    pub report: Report,
}

/// The own providers of the file at `path`, or of the first of [`PLACES`] that exists.
///
/// # Errors
/// The report of why there is none to read.
pub fn own_providers(path: Option<&Path>) -> Result<OwnProviders, Report> {
    match Origin::find(path)?.read()? {
        Written::Flags(_) => Ok(OwnProviders {
            records: Vec::new(),
            report: Report::new("", "", Diagnostics::new()),
        }),
        Written::Text { name, text } => {
            let mut problems = Diagnostics::new();
            let document = Document::parse(&text, &mut problems);
            let file = File::read(&document, &mut problems);
            let records = file.providers.into_iter();
            Ok(OwnProviders {
                records: records.map(|(name, record)| (name.value, record)).collect(),
                report: Report::new(&name, &text, problems),
            })
        }
    }
}

/// Where the store of the file at `path` (or the first of [`PLACES`] that exists) is. Secrets are not looked up, so this
/// opens no database.
///
/// # Errors
/// The report of everything that is wrong.
pub fn store_place(path: Option<&Path>, environment: &Environment) -> Result<Place, Report> {
    let written = Origin::find(path)?.read()?;
    match written.judge(Secrets::Skip(environment)) {
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

#[cfg(test)]
mod tests;
