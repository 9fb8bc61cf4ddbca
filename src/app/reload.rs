//! [`Reloader`]: takes over another configuration while requests go on (DESIGN sections 5 and 9).
//!
//! **Theory of operation.** One task owns the running configuration and does one reload after the other. What is written is
//! judged whole, on a thread that may wait, and then taken over whole or not at all. There are two kinds of reload. One
//! reads the file anew: SIGHUP, `hooksluice reload`, the file's own change. The other builds the *running* text anew,
//! because a file that it refers to has changed, or a secret has arrived in band; so a bad or half-edited configuration
//! never keeps a secret or a certificate from rotating.
//!
//! **Order.** The store first: it alone can fail, and then nothing has happened. Lanes next, so that no source sends an
//! event where nobody forwards. Then, in one exchange of a pointer, what serves requests: there is no moment without a
//! source or a secret. A request that began under the old configuration ends under it.
//!
//! **Watching.** About once a second each file is [looked at](super::watch), and judged when two looks agree on something
//! new. A configuration that was refused is judged again also when what *it* refers to changes: the pieces of a rollout may
//! arrive in any order.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::for_forwarding;
use super::judge::{Judged, Start, judge};
use super::serving::Parts;
use super::watch::{Look, Watch};
use crate::config::{Config, Live, Loaded, Origin, Report, Written};
use crate::forward::settings::UpstreamSettings;
use crate::net::systemd::Notify;
use crate::public::Public;
use crate::reload::{Ask, Desk, Outcome, Problem, Refusal, Said, State, Trigger};
use crate::store::settings as store;
use crate::telemetry::logging::Logging;
use crate::telemetry::metrics::ReloadOutcome;
use crate::time::{Monotonic, Timestamp};

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a configuration waits that the store could not take over, before it is tried again.
const STORE_RETRY: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(super) struct Reloader {
    origin: Origin,
    /// The text that runs.
    written: Written,
    /// What it was made into, but for [`Reloader::live`].
    config: Config,
    /// What it refers to.
    referred: Vec<PathBuf>,
    /// Its own file; while that is refused, also what the refused text refers to.
    file: Watch,
    references: Watch,
    /// Before it the file is not judged again by itself.
    hold: Option<Monotonic>,
    refusals: Refusals,
    desk: Desk,
    /// The running configuration, for whoever needs it at the end.
    live: Arc<ArcSwap<Live>>,
    parts: Parts,
    public: Arc<Public>,
    logging: Logging,
    notify: Notify,
}

/// What was refused and has not been mended.
#[derive(Debug, Default)]
struct Refusals {
    file: Option<Refusal>,
    references: Option<Refusal>,
}

/// Why a configuration was not taken over.
enum NotTaken {
    /// It is wrong, or needs a restart.
    Refused(Report),
    /// The store could not; it may later.
    Store(Report),
    /// The server is shutting down.
    Closing,
}

impl Reloader {
    /// `start` runs.
    pub(super) fn new(
        start: Start,
        desk: Desk,
        parts: Parts,
        public: Arc<Public>,
        logging: Logging,
        notify: Notify,
    ) -> Self {
        let Loaded { config, report: _ } = start.loaded;
        let reloads = &parts.metrics.server().reloads;
        reloads.successful.set(1);
        reloads.succeeded_at.set(parts.clock.now().as_secs());
        Self {
            origin: start.origin,
            written: start.written,
            live: Arc::new(ArcSwap::from_pointee(config.live.clone())),
            config,
            referred: start.referred,
            file: Watch::new(start.file),
            references: Watch::new(start.references),
            hold: None,
            refusals: Refusals::default(),
            desk,
            parts,
            public,
            logging,
            notify,
        }
    }

    /// What runs at any time.
    pub(super) fn live(&self) -> Arc<ArcSwap<Live>> {
        Arc::clone(&self.live)
    }

    /// Reloads when asked, and when files change, until `closing`. Whoever still waits then is told so.
    pub(super) async fn run(mut self, closing: CancellationToken) {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = closing.cancelled() => return,
                ask = self.desk.asks.recv() => {
                    let Some(Ask { trigger, answer }) = ask else { return };
                    let outcome = self.reload(trigger, &closing).await;
                    if let Some(answer) = answer {
                        // Whoever asked may have left meanwhile.
                        answer.send(outcome).ok();
                    }
                }
                _ = looks.tick(), if self.config.live.watch => self.look(&closing).await,
            }
        }
    }

    /// Looks at the files, and reloads what has changed.
    async fn look(&mut self, closing: &CancellationToken) {
        let (file, references) = (self.file.judged().clone(), self.references.judged().clone());
        let looking = tokio::task::spawn_blocking(move || (file.again(), references.again()));
        let Ok((file, references)) = looking.await else { return };
        let held = self.hold.is_some_and(|hold| self.parts.clock.monotonic() < hold);
        let (file, references) = (self.file.sees(file), self.references.sees(references));
        if file && !held {
            let outcome = self.reload(Trigger::FileChanged, closing).await;
            if matches!(outcome, Outcome::Applied { .. } | Outcome::Unchanged(_)) {
                return;
            }
        }
        if references {
            self.reload(Trigger::ReferenceChanged, closing).await;
        }
    }

    /// One reload, of which the service manager is told too.
    async fn reload(&mut self, trigger: Trigger, closing: &CancellationToken) -> Outcome {
        self.notify.reloading().await;
        let outcome = self.judge_and_take(trigger, closing).await;
        // Behind `stopping` there is no more `ready`.
        if !closing.is_cancelled() {
            self.notify.ready().await;
        }
        outcome
    }

    async fn judge_and_take(&mut self, trigger: Trigger, closing: &CancellationToken) -> Outcome {
        let anew = trigger.reads_anew();
        let (origin, clock) = (self.origin.clone(), self.parts.clock.clone());
        let written = (!anew).then(|| self.written.clone());
        let judging = tokio::task::spawn_blocking(move || judge(&origin, written.as_ref(), &clock));
        let judged = tokio::select! {
            judged = judging => judged,
            () = closing.cancelled() => return Outcome::Closing,
        };
        let judged = match judged {
            Ok(judged) => judged,
            Err(error) => {
                error!(%error, "the configuration could not be judged");
                let report = Report::of_error(
                    &self.origin.name(),
                    "the configuration could not be judged",
                    "see the log",
                );
                return self.refused(trigger, &report);
            }
        };
        let Judged { written, loaded, .. } = &judged;
        let taken = match loaded {
            Ok(loaded) => self.take_over(loaded, closing).await,
            Err(report) => Err(NotTaken::Refused(report.clone())),
        };
        self.remember(&judged, anew, &taken);
        match taken {
            Ok(changed) => {
                if let Some(written) = written {
                    self.written = written.clone();
                }
                let said = loaded.as_ref().map(|loaded| said(&loaded.report)).unwrap_or_default();
                self.taken(trigger, changed, said)
            }
            Err(NotTaken::Refused(report) | NotTaken::Store(report)) => self.refused(trigger, &report),
            Err(NotTaken::Closing) => Outcome::Closing,
        }
    }

    /// Takes over `loaded`, whole or not at all; says what it changes.
    async fn take_over(&mut self, loaded: &Loaded, closing: &CancellationToken) -> Result<Vec<String>, NotTaken> {
        let new = &loaded.config;
        let restart = self.config.needs_restart(new);
        if !restart.is_empty() {
            let keys: Vec<String> = restart.iter().map(|key| format!("`{key}`")).collect();
            let message = format!("needs a restart: {}", keys.join(", "));
            let help = "restart to apply the whole file, or put these keys back";
            return Err(NotTaken::Refused(Report::of_error(&self.origin.name(), message, help)));
        }
        let changed = self.config.live.changes(&new.live);
        if changed.is_empty() {
            return Ok(changed);
        }
        let for_store = for_store(new);
        if for_store != self::for_store(&self.config) {
            let taking = tokio::select! {
                taking = self.parts.store.reconfigure(for_store) => taking,
                () = closing.cancelled() => return Err(NotTaken::Closing),
            };
            if let Err(error) = taking {
                let message = format!("the store could not take it over: {error}");
                let help = "nothing was changed; reload again once the store is well";
                return Err(NotTaken::Store(Report::of_error(&self.origin.name(), message, help)));
            }
        }
        let live = &new.live;
        if let Some(redis) = &self.parts.redis {
            redis.remember_for(live.window);
        }
        let sources = live
            .sources
            .iter()
            .map(|source| (source.name.clone(), for_forwarding(source)));
        self.parts.forwarder.reconfigure(live.upstreams.clone(), sources);
        self.public.replace(self.parts.next(&self.public.serving(), live));
        // The same certificates are not taken anew: sessions could no longer be resumed.
        if let (Some(certificates), Some(tls)) = (&self.parts.certificates, &live.tls)
            && self.config.live.tls.as_ref() != Some(tls)
        {
            certificates.replace(tls.clone());
        }
        if let Err(error) = self.logging.set(&live.log) {
            warn!(%error, "the log goes on as before");
        }
        self.config = new.clone();
        self.live.store(Arc::new(live.clone()));
        Ok(changed)
    }

    /// What to look at from now on.
    fn remember(&mut self, judged: &Judged, anew: bool, taken: &Result<Vec<String>, NotTaken>) {
        self.hold = None;
        match (anew, taken) {
            (_, Ok(_)) => {
                if anew {
                    self.file = Watch::new(judged.file(&self.origin));
                }
                self.references = Watch::new(judged.references());
                self.referred.clone_from(&judged.referred);
            }
            (true, Err(_)) => self.file = Watch::new(judged.look.clone()),
            (false, Err(_)) => {
                let running = self.referred.iter().map(PathBuf::as_path);
                let all: Vec<&Path> = running.chain(judged.referred.iter().map(PathBuf::as_path)).collect();
                let now = Look::at(all.iter().copied());
                // What was judged is what it was then: a change since is seen at the next look.
                self.references = Watch::new(now.overlaid(&judged.references()));
            }
        }
        if let Err(NotTaken::Store(_)) = taken {
            self.file.forget();
            self.hold = Some(self.parts.clock.monotonic().after(STORE_RETRY));
        }
    }

    fn taken(&mut self, trigger: Trigger, changed: Vec<String>, said: Said) -> Outcome {
        let now = self.parts.clock.now();
        if trigger.reads_anew() {
            self.refusals.file = None;
        }
        self.refusals.references = None;
        let outcome = match changed.is_empty() {
            true => Outcome::Unchanged(said),
            false => Outcome::Applied { changed, said },
        };
        match &outcome {
            Outcome::Applied { changed, said } => {
                said.problems.iter().for_each(warn_of);
                info!(
                    trigger = trigger.as_str(),
                    changed = changed.join(", "),
                    "configuration reloaded"
                );
                self.count(ReloadOutcome::Applied, Some(now));
            }
            Outcome::Unchanged(_) | Outcome::Refused(_) | Outcome::Closing => {
                debug!(trigger = trigger.as_str(), "configuration unchanged");
                self.count(ReloadOutcome::Unchanged, Some(now));
            }
        }
        outcome
    }

    fn refused(&mut self, trigger: Trigger, report: &Report) -> Outcome {
        let said = said(report);
        let errors = said.problems.iter().filter(|problem| problem.severity == "error");
        for problem in errors.clone() {
            error!(
                file = problem.file,
                line = problem.line,
                column = problem.column,
                problem = problem.message,
                label = (!problem.label.is_empty()).then_some(&problem.label),
                help = problem.help,
                "configuration refused"
            );
        }
        let why = errors
            .map(|problem| problem.message.as_str())
            .next()
            .unwrap_or_default();
        let refusal = Refusal {
            at: self.parts.clock.now(),
            why: why.into(),
        };
        error!(trigger = trigger.as_str(), why, "nothing was changed");
        match trigger.reads_anew() {
            true => self.refusals.file = Some(refusal),
            false => self.refusals.references = Some(refusal),
        }
        self.count(ReloadOutcome::Refused, None);
        Outcome::Refused(said)
    }

    /// For metrics and `status`.
    fn count(&self, outcome: ReloadOutcome, succeeded_at: Option<Timestamp>) {
        let reloads = &self.parts.metrics.server().reloads;
        reloads.ended(outcome);
        let Refusals { file, references } = &self.refusals;
        let refused = file.iter().chain(references).max_by_key(|refusal| refusal.at).cloned();
        reloads.successful.set(i64::from(refused.is_none()));
        if let Some(at) = succeeded_at {
            reloads.succeeded_at.set(at.as_secs());
        }
        self.desk.state.send_modify(|state: &mut State| {
            state.refused = refused;
            state.loaded_at = succeeded_at.unwrap_or(state.loaded_at);
        });
    }
}

/// What the store takes over.
fn for_store(config: &Config) -> store::Live {
    let lanes = config.live.upstreams.iter().map(UpstreamSettings::for_store).collect();
    config.store().live(lanes)
}

fn warn_of(problem: &Problem) {
    warn!(
        problem = problem.message,
        label = problem.label,
        help = problem.help,
        "configuration"
    );
}

fn said(report: &Report) -> Said {
    let problems = report.lines().into_iter().map(|line| Problem {
        severity: line.severity,
        file: line.file.to_owned(),
        line: line.line,
        column: line.column,
        message: line.message.to_owned(),
        label: line.label.to_owned(),
        help: line.help.map(str::to_owned),
    });
    Said {
        problems: problems.collect(),
        text: report.render(false),
    }
}
