//! [`Origin`]: where a configuration is written, and [`Written`]: what was written there when it was last read.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::build;
use super::environment::{self, Environment};
use super::file::{self, File};
use super::secrets::Secrets;
use super::{Config, Loaded, Report, defaults, judge};
use crate::diagnostic::Diagnostics;
use crate::reader::At;

/// Where a configuration is looked for when none is named.
pub const PLACES: [&str; 2] = ["hooksluice.toml", "/etc/hooksluice/hooksluice.toml"];

/// What reports call a configuration that is on the command line.
const COMMAND_LINE: &str = "command line";

/// Larger than any configuration that people write.
const MAX_FILE: u64 = 4 << 20;

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

/// Where a configuration is written. It stays the same for the life of a process.
#[derive(Clone, Debug)]
pub enum Origin {
    /// In this file.
    File(PathBuf),
    /// On the command line.
    Flags(Box<Flags>),
}

/// A configuration as it is written, of which nothing has been judged.
#[derive(Clone)]
pub enum Written {
    /// A text, which may hold secrets, and the name of its file.
    Text {
        /// Name of its file.
        name: String,
        /// The whole of it.
        text: Zeroizing<String>,
    },
    /// The command line.
    Flags(Box<Flags>),
}

/// Not the text: it may hold secrets.
impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Written({})", self.name())
    }
}

impl Origin {
    /// The file at `path`, or the first of [`PLACES`] that exists.
    ///
    /// # Errors
    /// The report that there is none of them. Whether a given path exists is seen when it is read.
    pub fn find(path: Option<&Path>) -> Result<Self, Report> {
        let found = match path {
            Some(path) => Some(path),
            None => PLACES.iter().map(Path::new).find(|place| place.exists()),
        };
        match found {
            Some(path) => Ok(Self::File(path.to_owned())),
            None => {
                let message = format!("no configuration: neither `{}` nor `{}` exists", PLACES[0], PLACES[1]);
                Err(Report::of_error(PLACES[0], message, "name one with `-c FILE`"))
            }
        }
    }

    /// The file, where it is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Flags(_) => None,
        }
    }

    /// What reports call it.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Flags(_) => COMMAND_LINE.to_owned(),
        }
    }

    /// Reads what is written there now.
    ///
    /// # Errors
    /// The report of why it cannot be read.
    pub fn read(&self) -> Result<Written, Report> {
        let path = match self {
            Self::File(path) => path,
            Self::Flags(flags) => return Ok(Written::Flags(flags.clone())),
        };
        let name = self.name();
        let bytes = match environment::read_limited(path, MAX_FILE) {
            Ok(bytes) => bytes,
            Err(error) => {
                let message = format!("cannot read `{name}`: {error}");
                return Err(Report::of_error(&name, message, "name a file with `-c FILE`"));
            }
        };
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Written::Text {
                name,
                text: Zeroizing::new(text),
            }),
            Err(error) => {
                let offset = error.utf8_error().valid_up_to();
                let before = error.as_bytes().iter().take(offset);
                let line = before.filter(|byte| **byte == b'\n').count() + 1;
                let message = format!("`{name}` is not UTF-8 (line {line})");
                Err(Report::of_error(&name, message, "TOML is always UTF-8"))
            }
        }
    }
}

impl Written {
    /// What reports call it.
    pub fn name(&self) -> &str {
        match self {
            Self::Text { name, .. } => name,
            Self::Flags(_) => COMMAND_LINE,
        }
    }

    /// Builds what runs, with what its references say now.
    ///
    /// # Errors
    /// The report of everything that is wrong.
    pub fn load(&self, environment: &Environment) -> Result<Loaded, Report> {
        let (config, report) = self.judge(Secrets::Resolve(environment));
        match config {
            Some(config) => Ok(Loaded { config, report }),
            None => Err(report),
        }
    }

    pub(super) fn judge(&self, secrets: Secrets<'_>) -> (Option<Config>, Report) {
        match self {
            Self::Text { name, text } => judge(name, text, secrets),
            Self::Flags(flags) => {
                let mut problems = Diagnostics::new();
                let config = build::build(&written(flags), secrets, &mut problems);
                (config, Report::without_places(COMMAND_LINE, problems))
            }
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
