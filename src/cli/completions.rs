//! `hooksluice completions` and `hooksluice man`: what shells and `man` want to know of the command line, written from
//! the command line's own grammar.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_mangen::Man;

use super::{Cli, output};

/// The arguments of `completions`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// For which shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Shells whose script the tests have parsed by the shell itself.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Shell {
    Bash,
    Fish,
    Zsh,
}

/// Prints the script that teaches a shell our commands and options.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Fish => clap_complete::Shell::Fish,
        Shell::Zsh => clap_complete::Shell::Zsh,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "hooksluice", &mut script);
    output::print(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}

/// The arguments of `man`.
#[derive(clap::Args, Debug)]
pub struct ManArgs {
    /// Write hooksluice.1 and a page for each command into this directory, instead of printing the first
    #[arg(value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

/// Prints or writes manual pages.
pub fn man(args: ManArgs) -> anyhow::Result<ExitCode> {
    let mut page = Vec::new();
    match args.directory {
        Some(directory) => {
            let could_not = || format!("could not write manual pages to {}", directory.display());
            fs::create_dir_all(&directory).with_context(could_not)?;
            clap_mangen::generate_to(Cli::command(), &directory).with_context(could_not)?;
        }
        None => Man::new(Cli::command()).render(&mut page)?,
    }
    output::print(&String::from_utf8(page)?)?;
    Ok(ExitCode::SUCCESS)
}
