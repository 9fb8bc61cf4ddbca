//! `hooksluice store`: backups of the embedded store, and stores from backups.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use serde::Serialize;

use super::client::{AdminArgs, AdminClient, block_on};
use super::output;
use crate::config::{self, Environment};
use crate::store::backup::{self, Contents, Restored, SHARED_HELP};
use crate::store::settings::Place;
use crate::time::{Clock, Timestamp};

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Copy the embedded store into one file, while the server runs (or, with --store, while none does)
    Backup(BackupArgs),
    /// Make a store of a backup, for a server that does not run
    Restore(RestoreArgs),
}

#[derive(clap::Args, Debug)]
struct BackupArgs {
    /// The file to write; it holds bodies and headers as they were received (mode 0600)
    file: PathBuf,
    /// Copy the store in this directory, which no server has open, instead of asking a server
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["admin", "token_env"])]
    store: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(clap::Args, Debug)]
struct RestoreArgs {
    /// The backup
    file: PathBuf,
    /// Directory of the store; without it, the configuration's
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "config")]
    store: Option<PathBuf>,
    /// Configuration file that names the store. Without it: ./hooksluice.toml, then /etc/hooksluice/hooksluice.toml
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Move a store that lies there aside, into a directory of its own in there
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Does what the arguments say. Exit code 1 when there is no backup or no store from it, and then nothing has changed.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        StoreCommand::Backup(args) => take(args),
        StoreCommand::Restore(args) => restore(args),
    }
}

/// What a backup holds, for programs.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    file: &'a Path,
    bytes: u64,
    schema: i32,
    taken_at: Option<String>,
    newest_event: Option<String>,
    waiting_dispatches: u64,
    dead_dispatches: u64,
    running_calls: u64,
    retired_namespaces: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<&'a Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<&'a Path>,
}

impl<'a> Summary<'a> {
    fn new(file: &'a Path, contents: &'a Contents) -> Self {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        Self {
            file,
            bytes: contents.bytes,
            schema: contents.schema,
            taken_at: time(contents.taken_at),
            newest_event: time(contents.newest_event),
            waiting_dispatches: contents.waiting,
            dead_dispatches: contents.dead,
            running_calls: contents.running_calls,
            retired_namespaces: &contents.retired,
            directory: None,
            replaced: None,
        }
    }
}

fn take(args: BackupArgs) -> anyhow::Result<ExitCode> {
    let target = Target::new(&args.file, args.force)?;
    match &args.store {
        Some(directory) => backup::copy_closed(directory, &target.partial, Clock::system().now())?,
        None => block_on(download(&args.admin, &target.partial))?,
    }
    let contents = backup::inspect(&target.partial, true).context("what was written is not usable")?;
    target.put()?;
    if args.json {
        output::print_json(&Summary::new(&args.file, &contents))?;
    } else {
        output::print(&backed_up(&args.file, &contents))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks the server for a copy, and writes it down as it comes.
async fn download(admin: &AdminArgs, partial: &Path) -> anyhow::Result<()> {
    let client = AdminClient::new(admin)?;
    let mut copy = client.download("/api/v1/store/backup").await?;
    let cannot = || format!("could not write {}", partial.display());
    let mut file = create_new(partial).with_context(cannot)?;
    while let Some(part) = copy.next().await? {
        file.write_all(&part).with_context(cannot)?;
    }
    Ok(())
}

fn create_new(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// The file that is to be, and the one beside it that is written first: whoever finds a backup finds a whole one.
struct Target<'a> {
    file: &'a Path,
    partial: PathBuf,
    force: bool,
}

impl<'a> Target<'a> {
    fn new(file: &'a Path, force: bool) -> anyhow::Result<Self> {
        let name = file.file_name().context("a file to write must be named")?;
        if !force && file.symlink_metadata().is_ok() {
            bail!("{} is there already; `--force` replaces it", file.display());
        }
        let mut partial = name.to_owned();
        partial.push(format!(".partial-{}", std::process::id()));
        Ok(Self {
            file,
            partial: file.with_file_name(partial),
            force,
        })
    }

    /// Gives the written file its name, for good.
    fn put(self) -> anyhow::Result<()> {
        use rustix::fs::{CWD, RenameFlags};
        let cannot = || format!("could not write {}", self.file.display());
        File::open(&self.partial)
            .and_then(|file| file.sync_all())
            .with_context(cannot)?;
        let flags = if self.force {
            RenameFlags::empty()
        } else {
            RenameFlags::NOREPLACE
        };
        match rustix::fs::renameat_with(CWD, &self.partial, CWD, self.file, flags) {
            Ok(()) => {}
            // A file system that cannot promise it; whether the file is there was asked at the start.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                std::fs::rename(&self.partial, self.file).with_context(cannot)?;
            }
            Err(error) => return Err(std::io::Error::from(error)).with_context(cannot),
        }
        let directory = match self.file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .with_context(cannot)
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        // Gone already where it got its name.
        drop(std::fs::remove_file(&self.partial));
    }
}

fn restore(args: RestoreArgs) -> anyhow::Result<ExitCode> {
    let clock = Clock::system();
    let directory = match args.store {
        Some(directory) => directory,
        None => match config::store_place(args.config.as_deref(), &Environment::process(clock.clone())) {
            Ok(Place::Sqlite(sqlite)) => sqlite.path,
            Ok(Place::Postgres(_)) => bail!("{SHARED_HELP}"),
            Err(report) => {
                super::say(&report.render(false));
                bail!("the configuration does not say where the store is; name its directory with `--store DIRECTORY`");
            }
        },
    };
    let Restored { contents, replaced } = backup::restore(&args.file, &directory, args.force, clock.now())?;
    if args.json {
        output::print_json(&Summary {
            directory: Some(&directory),
            replaced: replaced.as_deref(),
            ..Summary::new(&args.file, &contents)
        })?;
    } else {
        output::print(&restored(&args.file, &directory, &contents, replaced.as_deref()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn backed_up(file: &Path, contents: &Contents) -> String {
    format!(
        "backed up into {} ({})\n{}It holds bodies and headers as they were received: keep it as private as the store.\n",
        output::printable(&file.display().to_string()),
        output::size(contents.bytes),
        held(contents)
    )
}

/// What is in it, a fact per line.
fn held(contents: &Contents) -> String {
    let mut lines = String::new();
    if let Some(taken) = contents.taken_at {
        lines.push_str(&format!("taken at         {taken}\n"));
    }
    if let Some(newest) = contents.newest_event {
        lines.push_str(&format!("newest event     {newest}\n"));
    }
    lines.push_str(&format!("to be forwarded  {}\n", contents.waiting));
    lines.push_str(&format!("dead             {}\n", contents.dead));
    if contents.running_calls > 0 {
        lines.push_str(&format!("running calls    {}\n", contents.running_calls));
    }
    lines
}

fn restored(file: &Path, directory: &Path, contents: &Contents, replaced: Option<&Path>) -> String {
    let mut said = format!(
        "restored {} into {}\n{}",
        output::printable(&file.display().to_string()),
        output::printable(&directory.display().to_string()),
        held(contents)
    );
    if let Some(replaced) = replaced {
        let replaced = output::printable(&replaced.display().to_string());
        said.push_str(&format!(
            "The store that lay there is in {replaced}; remove it when nobody needs it.\n"
        ));
    }
    said.push_str(
        "Events that arrived after the backup are not in it: have their providers send them again.\n\
         What was delivered after the backup is forwarded again (at least once): an app that remembers Hooksluice-Event-Id\n\
         takes each event once.\n",
    );
    if contents.running_calls > 0 {
        said.push_str(
            "Calls with an Idempotency-Key that ran at the time are ambiguous at the start: \
             hooksluice idempotency list --state ambiguous\n",
        );
    }
    match contents.retired.as_slice() {
        [] => said.push_str(
            "With `[dedupe.redis]`, choose a `namespace` that was never used before, at every replica: under one that was used\n\
             since this backup, Redis knows keys of lost events and has them dropped when they are sent again.\n",
        ),
        names => {
            let names: Vec<_> = names
                .iter()
                .map(|name| format!("\"{}\"", output::printable(name)))
                .collect();
            said.push_str(&format!(
                "Choose a `[dedupe.redis] namespace` that was never used before, the same at every replica. Under {}, and \
                 under any\nthat was used since, Redis knows keys of events that came after the backup and has them dropped \
                 when they are sent again.\nA start with a name that this backup knows is refused; later names it cannot know.\n",
                names.join(", ")
            ));
        }
    }
    said
}
