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
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let Some(directory) = args.directory else {
        output::print(&page(&command)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    let could_not = || format!("could not write manual pages to {}", directory.display());
    fs::create_dir_all(&directory).with_context(could_not)?;
    let mut waiting = vec![command];
    while let Some(command) = waiting.pop() {
        fs::write(directory.join(format!("{}.1", name(&command))), page(&command)?).with_context(could_not)?;
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        waiting.extend(shown.cloned());
    }
    Ok(ExitCode::SUCCESS)
}

/// `hooksluice-events-list`, as `man` finds it.
fn name(command: &clap::Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &clap::Command) -> anyhow::Result<String> {
    let mut body = Vec::new();
    Man::new(command.clone()).render(&mut body)?;
    let body = String::from_utf8(body)?;
    // Theirs leaves the date out without a mark, so that the version would stand in its place. There is no date: a page
    // is what its version says, whenever it is written.
    let title = format!(
        ".TH {} 1 \"\" \"hooksluice {}\" \"hooksluice\"",
        name(command).to_uppercase(),
        env!("CARGO_PKG_VERSION")
    );
    let lines = body
        .lines()
        .map(|line| if line.starts_with(".TH ") { &title } else { line });
    Ok(lines.map(|line| format!("{line}\n")).collect())
}
