//! The log: text on a terminal, one JSON object a line otherwise, always on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::{EnvFilter, ParseError};

/// The environment variable that says what is logged, in the language of [`EnvFilter`].
pub const VARIABLE: &str = "HOOKSLUICE_LOG";

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The operator's filter cannot be read.
    #[error("{VARIABLE} is not a log filter such as `info` or `hooksluice=debug`")]
    Filter(#[source] ParseError),
    /// This process already logs elsewhere.
    #[error("logging is already set up")]
    Taken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Starts logging for this process, at `default` unless [`VARIABLE`] says otherwise.
pub fn init(default: &str) -> Result<(), LoggingError> {
    let written = std::env::var(VARIABLE).unwrap_or_default();
    let filter = if written.is_empty() { default } else { &written };
    let filter = EnvFilter::builder().parse(filter).map_err(LoggingError::Filter)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    let taken = if io::stderr().is_terminal() {
        builder.with_target(false).try_init()
    } else {
        builder.json().flatten_event(true).with_current_span(false).try_init()
    };
    taken.map_err(LoggingError::Taken)
}
