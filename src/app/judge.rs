//! [`judge`]: one configuration, read and built from files that stood still meanwhile.

use std::path::PathBuf;
use std::time::Duration;

use super::watch::Look;
use crate::config::{Environment, Loaded, Origin, Report, Written};
use crate::time::Clock;

/// How often files that change while they are read are read again.
const TRIES: usize = 10;
/// How long to leave them alone in between.
const PAUSE: Duration = Duration::from_millis(20);

/// What was found.
#[derive(Debug)]
pub(super) struct Judged {
    /// What was judged; `None` when it could not be read.
    pub(super) written: Option<Written>,
    /// What would run, or everything that is wrong.
    pub(super) loaded: Result<Loaded, Report>,
    /// What it refers to.
    pub(super) referred: Vec<PathBuf>,
    /// What that was, and the configuration's own file, when it was judged.
    pub(super) look: Look,
}

/// Reads what is written at `origin` (or takes `written`, which was), and builds it. Reads files, so it belongs on a thread
/// that may wait.
pub(super) fn judge(origin: &Origin, written: Option<&Written>, clock: &Clock) -> Judged {
    let mut before = look(origin, &[]);
    let mut tries = 1;
    loop {
        let (written, loaded, referred) = once(origin, written, clock);
        let after = look(origin, &referred);
        // What is looked at for the first time may have changed since it was read.
        if before == after {
            return Judged {
                written,
                loaded,
                referred,
                look: after,
            };
        }
        if tries == TRIES {
            let message = "files change while they are read";
            return Judged {
                written,
                loaded: Err(Report::of_error(
                    &origin.name(),
                    message,
                    "reload once they stand still",
                )),
                referred,
                look: after,
            };
        }
        if before.contradicts(&after) {
            std::thread::sleep(PAUSE);
        }
        before = after;
        tries += 1;
    }
}

fn once(
    origin: &Origin,
    written: Option<&Written>,
    clock: &Clock,
) -> (Option<Written>, Result<Loaded, Report>, Vec<PathBuf>) {
    let written = match written {
        Some(written) => written.clone(),
        None => match origin.read() {
            Ok(written) => written,
            Err(report) => return (None, Err(report), Vec::new()),
        },
    };
    let environment = Environment::process(clock.clone());
    let loaded = written.load(&environment);
    (Some(written), loaded, environment.referred())
}

fn look(origin: &Origin, referred: &[PathBuf]) -> Look {
    let referred = referred.iter().map(PathBuf::as_path);
    Look::at(origin.path().into_iter().chain(referred))
}

impl Judged {
    /// The part of the look that is about what it refers to.
    pub(super) fn references(&self) -> Look {
        self.look.only(self.referred.iter().map(PathBuf::as_path))
    }

    /// The part of the look that is about the configuration's own file.
    pub(super) fn file(&self, origin: &Origin) -> Look {
        self.look.only(origin.path())
    }
}

/// A configuration to start with, and where it is written.
#[derive(Debug)]
pub struct Start {
    pub(super) origin: Origin,
    pub(super) written: Written,
    pub(super) loaded: Loaded,
    pub(super) referred: Vec<PathBuf>,
    pub(super) file: Look,
    pub(super) references: Look,
}

impl Start {
    /// Loads what is written at `origin`.
    ///
    /// # Errors
    /// The report of everything that is wrong.
    pub fn load(origin: Origin, clock: &Clock) -> Result<Self, Report> {
        let judged = judge(&origin, None, clock);
        let (file, references) = (judged.file(&origin), judged.references());
        let loaded = judged.loaded?;
        let Some(written) = judged.written else {
            return Err(Report::of_error(
                &origin.name(),
                "nothing was read",
                "name a file with `-c FILE`",
            ));
        };
        Ok(Self {
            origin,
            written,
            loaded,
            referred: judged.referred,
            file,
            references,
        })
    }

    /// What will run, and the warnings about it.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }
}
