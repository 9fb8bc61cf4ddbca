//! The command line: one module per command, each with `Args` and `run(Args) -> anyhow::Result<ExitCode>`.
//!
//! Exit codes: 0 done and fine, 1 done and not fine (or failed), 2 the command line was wrong.

pub mod check;
pub mod client;
pub mod completions;
pub mod demo;
pub mod events;
pub mod health;
pub mod idempotency;
pub mod init;
pub mod output;
pub mod probe;
pub mod providers;
pub mod reference;
pub mod reload;
pub mod scheme;
pub mod send;
pub mod serve;
pub mod sign;
pub mod sources;
pub mod status;
pub mod store;
pub mod tail;
pub mod upstreams;
pub mod verify;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Webhook receiver reverse proxy: verifies, stores durably, answers 200, forwards at the app's pace.
#[derive(Debug, Parser)]
#[command(name = "hooksluice", version, max_term_width = 100, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server
    Serve(serve::Args),
    /// Write a first configuration, from flags or by asking
    Init(init::Args),
    /// Say everything that is wrong with a configuration
    Check(check::Args),
    /// Play the whole story: a real server, a sample upstream and a sender in this terminal
    Demo(demo::Args),
    /// List the known providers, or explain one
    Providers(providers::Args),
    /// Print every key of the configuration, as Markdown
    Reference(reference::Args),
    /// Check captured requests and say why one fails
    Verify(verify::Args),
    /// Print the headers that make a request a correctly signed one
    Sign(sign::Args),
    /// Send a correctly signed request, as the provider would
    Send(send::Args),
    /// Show sources, upstreams and their backlog, and what needs a person
    Status(status::Args),
    /// Exit 0 if the running server is ready, else 1
    Health(health::Args),
    /// Show sources with their secrets: when each was last used, and which can be removed
    Sources(sources::Args),
    /// Show upstreams with their pace and backlog; pause and resume them
    Upstreams(upstreams::Args),
    /// Find, inspect, replay and discard stored events
    Events(events::Args),
    /// Have the running server take over the configuration that is written now, whole or not at all
    Reload(reload::Args),
    /// Follow events as they arrive
    Tail(tail::Args),
    /// Find calls with an Idempotency-Key, and resolve those of which nobody knows whether they took effect
    Idempotency(idempotency::Args),
    /// Back up the embedded store, and restore it
    Store(store::Args),
    /// Print the script that completes commands and options in a shell
    Completions(completions::Args),
    /// Print the manual page, or write all of them
    Man(completions::ManArgs),

    /// Prove an operator's own set-up
    #[command(hide = true)]
    Selftest(Later),
}

/// A command of a later version: takes anything, does nothing, and says so.
#[derive(Args, Debug)]
pub struct Later {
    /// Whatever was given.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub rest: Vec<OsString>,
}

/// Reads the command line, does what it says, and says what went wrong.
pub fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Does what the command line says.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Init(args) => init::run(args),
        Command::Check(args) => check::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Providers(args) => providers::run(args),
        Command::Reference(args) => reference::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Sign(args) => sign::run(args),
        Command::Send(args) => send::run(args),
        Command::Status(args) => status::run(args),
        Command::Health(args) => health::run(args),
        Command::Sources(args) => sources::run(args),
        Command::Upstreams(args) => upstreams::run(args),
        Command::Events(args) => events::run(args),
        Command::Reload(args) => reload::run(args),
        Command::Tail(args) => tail::run(args),
        Command::Idempotency(args) => idempotency::run(args),
        Command::Store(args) => store::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => completions::man(args),
        Command::Selftest(_) => Ok(not_in_this_version("selftest")),
    }
}

/// Refuses a command that a later version will have.
pub(crate) fn not_in_this_version(command: &str) -> ExitCode {
    usage_error(&format!("`hooksluice {command}` is not in this version"))
}

/// The command line was wrong in a way that its grammar cannot say.
pub(crate) fn usage_error(message: &str) -> ExitCode {
    say(&format!("error: {message}"));
    ExitCode::from(2)
}

/// `hooksluice … | head` closes our output early: the reader has what it wanted.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// Says something to the person on standard error. When it is closed there is nobody to tell.
pub(crate) fn say(message: &str) {
    writeln!(io::stderr().lock(), "{}", output::printable_lines(message)).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_of_later_versions_are_refused_whatever_follows() {
        for line in [
            &["hooksluice", "events", "export", "app"][..],
            &["hooksluice", "selftest", "-c", "x.toml"],
        ] {
            let cli = Cli::try_parse_from(line).unwrap();
            let code = run(cli).unwrap();
            assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(2)), "{line:?}");
        }
    }
}
