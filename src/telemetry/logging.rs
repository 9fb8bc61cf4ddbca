//! The log: text on a terminal, one JSON object a line otherwise, always on standard error.

use std::fmt;
use std::io::{self, IsTerminal};

use tracing_subscriber::filter::{EnvFilter, ParseError};
use tracing_subscriber::reload;

/// The environment variable that says what is logged, in the language of [`EnvFilter`]. It wins over the configuration.
pub const VARIABLE: &str = "HOOKSLUICE_LOG";

/// The words for how much is logged.
const WORDS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// What is logged: a word such as `info`, or several parts such as `warn,hooksluice::forward=debug`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level(String);

impl Default for Level {
    fn default() -> Self {
        Self("info".to_owned())
    }
}

impl Level {
    /// Reads a level.
    ///
    /// # Errors
    /// What is wrong with it. A bare word must be one of the levels: the filter's own language would take a slip for the
    /// name of a module, and log next to nothing.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected one of {}, or parts such as \"hooksluice=debug\"",
                WORDS.join(", ")
            )
        };
        let bare = |part: &&str| !part.contains(['=', '[']);
        let is_word = |part: &str| WORDS.iter().any(|word| part.trim().eq_ignore_ascii_case(word));
        if text.trim().is_empty() || !text.split(',').filter(bare).all(is_word) {
            return Err(expected());
        }
        match EnvFilter::builder().parse(text) {
            Ok(_filter) => Ok(Self(text.to_owned())),
            Err(_not_a_filter) => Err(expected()),
        }
    }

    fn filter(&self) -> Result<EnvFilter, ParseError> {
        EnvFilter::builder().parse(&self.0)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why logging could not be set up, or changed.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The operator's filter cannot be read.
    #[error("{VARIABLE} is not a log filter such as `info` or `hooksluice=debug`")]
    Filter(#[source] ParseError),
    /// This process already logs elsewhere.
    #[error("logging is already set up")]
    Taken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It is gone.
    #[error("the log level could not be changed")]
    Change(#[source] reload::Error),
}

type Change = Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>;

/// This process's log, whose level may change.
pub struct Logging {
    /// `None` where [`VARIABLE`] says what is logged.
    change: Option<Change>,
}

impl fmt::Debug for Logging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logging").finish_non_exhaustive()
    }
}

impl Logging {
    /// Logs at another level from now on, unless [`VARIABLE`] says otherwise.
    pub fn set(&self, level: &Level) -> Result<(), LoggingError> {
        let Some(change) = &self.change else { return Ok(()) };
        let filter = level.filter().map_err(LoggingError::Filter)?;
        change(filter).map_err(LoggingError::Change)
    }
}

/// Starts logging for this process, at `level` unless [`VARIABLE`] says otherwise.
pub fn init(level: &Level) -> Result<Logging, LoggingError> {
    let written = std::env::var(VARIABLE).unwrap_or_default();
    let filter = match written.is_empty() {
        true => level.filter(),
        false => EnvFilter::builder().parse(&written),
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter.map_err(LoggingError::Filter)?)
        .with_writer(io::stderr);
    let change: Change;
    let taken = if io::stderr().is_terminal() {
        let builder = builder.with_target(false).with_filter_reloading();
        let handle = builder.reload_handle();
        change = Box::new(move |filter| handle.reload(filter));
        builder.try_init()
    } else {
        let builder = builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_filter_reloading();
        let handle = builder.reload_handle();
        change = Box::new(move |filter| handle.reload(filter));
        builder.try_init()
    };
    taken.map_err(LoggingError::Taken)?;
    Ok(Logging {
        change: written.is_empty().then_some(change),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_in_a_level_is_no_module() {
        for good in [
            "info",
            "WARN",
            "off",
            "warn,hooksluice::forward=debug",
            "hooksluice[request]=trace",
        ] {
            assert!(Level::parse(good).is_ok(), "{good}");
        }
        for bad in ["", " ", "inof", "hooksluice", "info,", "hooksluice=loud", "verbose"] {
            assert!(Level::parse(bad).is_err(), "{bad}");
        }
    }
}
