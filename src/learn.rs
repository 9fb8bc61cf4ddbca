//! Secrets that arrive in band (`learn = "once"`): the provider makes up the secret of a webhook and hands it over in a
//! first request, for which nothing vouches (DESIGN section 6).
//!
//! **Motivation.** Whoever sends such a request first chooses what later requests are signed with. So nothing is taken
//! unless a person has just said so, for ten minutes and for one secret; the source is sealed afterwards.
//!
//! **Theory of operation.** A [`Learner`] is what a source with `learn` has besides its secrets; it outlives a
//! configuration, so that a reload does not disarm it. [`state`] decides, [`keep`] writes. A secret that is handed over to an
//! armed source becomes a new file of the source's directory, durable, and the running configuration is then built anew from
//! what lies there, as it is when any secret file changes. Only then is the provider answered: it takes the answer for "this
//! secret is kept", and may send events from that moment on. What fails on the way takes the file back, is answered 503, and
//! leaves the source armed. A process that dies in between has kept the secret or not; the provider was not answered either
//! way.
//!
//! **Replicas.** Armed is one process: the one whose admin API was asked. The others take the file as they take any secret,
//! if the directory is theirs too. Two that are armed at once keep one secret between them: the directory is locked while
//! it is written, and looked at once more.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::task::TaskTracker;
use tracing::{error, info};

use crate::id::SourceName;
use crate::reload::{Outcome, Reloads, Trigger};
use crate::request::RequestHead;
use crate::secret::Secret;
use crate::time::{Clock, Monotonic, Timestamp};
use crate::verify::{ChallengeAnswer, HandedOver, Likeness, Reason, Unfit, Verifier};

use self::keep::{Kept, NotKept};
use self::state::{State, Taking};

mod keep;
mod state;

pub use self::state::CannotArm;

/// How long a source takes a secret once it is armed: long enough to create a webhook, too short to be forgotten.
pub const ARMED_FOR: Duration = Duration::from_secs(600);

/// Why a secret that was handed over was not taken.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotLearned {
    /// Nobody has armed the source.
    #[error(
        "it hands over a secret, and nobody has said that one is to be taken: run `hooksluice sources learn {0}`, and let \
         the provider send it again"
    )]
    NotArmed(SourceName),
    /// As above, as far as can be told without the body.
    #[error(
        "the source has no secret yet: if this hands one over, run `hooksluice sources learn {0}`, and let the provider \
         send it again"
    )]
    MaybeNotArmed(SourceName),
    /// It has its secret.
    #[error(
        "it hands over a secret, and the source has one and is sealed: `hooksluice sources learn {0} --add` takes another \
         beside it"
    )]
    Sealed(SourceName),
    /// It is no secret.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// It could not be kept (503).
    #[error("it hands over a secret, which could not be kept: see the log")]
    NotKept,
}

impl NotLearned {
    /// The word to count it under: there is no signature, nor anything that stands in for one.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Unfit(_) => Reason::MalformedSignature,
            Self::NotArmed(_) | Self::MaybeNotArmed(_) | Self::Sealed(_) | Self::NotKept => Reason::MissingSignature,
        }
    }
}

/// Why nothing could be armed.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// The source has no `learn`.
    #[error(
        "source `{0}` takes no secret in band: say `learn = \"once\"` in its table, with a `directory` to keep it in, and reload"
    )]
    DoesNotLearn(SourceName),
    /// By its state.
    #[error(transparent)]
    Cannot(#[from] CannotArm),
    /// Its directory cannot be written.
    #[error(
        "nothing can be written into `{}`: {why}. The directory must be there and writable for hooksluice: no read-only \
         mount; under systemd below `StateDirectory=` or named in `ReadWritePaths=`", .directory.display()
    )]
    NotWritable {
        /// The directory.
        directory: PathBuf,
        /// As the system says it.
        why: String,
    },
}

/// A source that takes a secret in band, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learning {
    /// Until when it takes one.
    pub armed_until: Option<Timestamp>,
    /// How long that is from now.
    pub left: Option<Duration>,
    /// Whether it has a secret.
    pub has_secret: bool,
    /// Where secrets are kept.
    pub directory: PathBuf,
}

/// All sources that take secrets in band. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Learners(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    reloads: Reloads,
    tracker: TaskTracker,
    learners: Mutex<BTreeMap<SourceName, Arc<Learner>>>,
}

/// One of them.
#[derive(Debug)]
pub struct Learner {
    source: SourceName,
    directory: PathBuf,
    clock: Clock,
    reloads: Reloads,
    tracker: TaskTracker,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    state: State,
    /// Of the configuration that serves, or is about to.
    verifier: Arc<Verifier>,
}

impl Learners {
    /// None yet. What they do goes on in `tracker`.
    pub fn new(clock: Clock, reloads: Reloads, tracker: TaskTracker) -> Self {
        Self(Arc::new(Inner {
            clock,
            reloads,
            tracker,
            learners: Mutex::default(),
        }))
    }

    /// The learner of a source that is configured so. What was armed stays armed while directory and provider are the same.
    pub fn configured(&self, source: &SourceName, directory: &Path, verifier: &Arc<Verifier>) -> Arc<Learner> {
        let mut learners = self.learners();
        if let Some(known) = learners.get(source)
            && known.goes_on(directory, verifier)
        {
            return Arc::clone(known);
        }
        let learner = Arc::new(Learner {
            source: source.clone(),
            directory: directory.to_owned(),
            clock: self.0.clock.clone(),
            reloads: self.0.reloads.clone(),
            tracker: self.0.tracker.clone(),
            now: Mutex::new(Now {
                state: State::default(),
                verifier: Arc::clone(verifier),
            }),
        });
        learners.insert(source.clone(), Arc::clone(&learner));
        learner
    }

    /// Only these sources take secrets from now on.
    pub fn keep_only(&self, is_configured: impl Fn(&SourceName) -> bool) {
        self.learners().retain(|source, _| is_configured(source));
    }

    /// Lets a source take one secret. With `add` it may have some already.
    ///
    /// # Errors
    /// Why it is not armed.
    pub async fn arm(&self, source: &SourceName, add: bool) -> Result<Learning, ArmError> {
        let learner = self.of(source).ok_or_else(|| ArmError::DoesNotLearn(source.clone()))?;
        learner.arm(add).await?;
        Ok(learner.standing())
    }

    /// Whether a source takes secrets in band, and how that stands.
    pub fn standing(&self, source: &SourceName) -> Option<Learning> {
        self.of(source).map(|learner| learner.standing())
    }

    fn of(&self, source: &SourceName) -> Option<Arc<Learner>> {
        self.learners().get(source).cloned()
    }

    fn learners(&self) -> MutexGuard<'_, BTreeMap<SourceName, Arc<Learner>>> {
        self.0.learners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Learner {
    /// Whether a request with this head, which no signature vouches for, is to be read to its end, since it may hand over a
    /// secret that would be taken. `None`: it hands over nothing, as far as is known.
    pub fn opens(&self, head: &RequestHead) -> Option<Result<(), NotLearned>> {
        let now = self.now();
        let likeness = now.verifier.may_hand_over(head);
        if likeness == Likeness::None {
            return None;
        }
        if now.state.is_open(self.clock.monotonic()) {
            return Some(Ok(()));
        }
        match (likeness, now.has_secret()) {
            (Likeness::Certain, true) => Some(Err(NotLearned::Sealed(self.source.clone()))),
            (Likeness::Certain, false) => Some(Err(NotLearned::NotArmed(self.source.clone()))),
            (Likeness::Possible, false) => Some(Err(NotLearned::MaybeNotArmed(self.source.clone()))),
            (Likeness::Possible, true) | (Likeness::None, _) => None,
        }
    }

    /// Takes what was handed over, if it is the first since a person armed the source. `Ok` is given only once it is durable
    /// and vouches for requests. What has begun goes on when the caller does not.
    ///
    /// # Errors
    /// Why it was not taken.
    pub async fn take(
        self: &Arc<Self>,
        handed: Result<HandedOver, Unfit>,
        client: IpAddr,
        patience: Duration,
    ) -> Result<ChallengeAnswer, NotLearned> {
        let taking = {
            let mut now = self.now();
            let has_secret = now.has_secret();
            let secret = handed.as_ref().ok().map(|handed| &handed.secret);
            match now.state.take(self.clock.monotonic(), has_secret, secret) {
                // A person has taken it back since.
                Taking::Again if !secret.is_some_and(|secret| now.serves(secret)) => Taking::No,
                taking => taking,
            }
        };
        match taking {
            Taking::Keep { alone } => {
                let HandedOver { secret, answer } = handed?;
                let learner = Arc::clone(self);
                let keeping = self
                    .tracker
                    .spawn(async move { learner.keep(secret, alone, client).await });
                match tokio::time::timeout(patience, keeping).await {
                    Ok(Ok(kept)) => kept.map(|()| answer),
                    // It goes on, and a sender that repeats the same secret will hear of it.
                    Ok(Err(_)) | Err(_) => Err(NotLearned::NotKept),
                }
            }
            Taking::Again => handed.map(|handed| handed.answer).map_err(NotLearned::from),
            Taking::Unfit => handed.map_err(NotLearned::from).and(Err(NotLearned::NotKept)),
            Taking::Wait => Err(NotLearned::NotKept),
            Taking::No if self.now().has_secret() => Err(NotLearned::Sealed(self.source.clone())),
            Taking::No => Err(NotLearned::NotArmed(self.source.clone())),
        }
    }

    async fn keep(&self, secret: Secret, alone: bool, client: IpAddr) -> Result<(), NotLearned> {
        let kept = self.keep_and_use(&secret, alone).await;
        let mut now = self.now();
        match kept {
            Ok(kept) => {
                now.state.kept(secret);
                info!(
                    source = %self.source,
                    %client,
                    file = %kept.path.display(),
                    "took a secret in band: the source is sealed"
                );
                Ok(())
            }
            Err(NotKept::Sealed) => {
                now.state.seal();
                Err(NotLearned::Sealed(self.source.clone()))
            }
            Err(why) => {
                now.state.not_kept();
                error!(
                    source = %self.source,
                    directory = %self.directory.display(),
                    cause = %why,
                    "a secret was handed over and could not be kept: the provider was told to come back, and the source stays \
                     armed"
                );
                Err(NotLearned::NotKept)
            }
        }
    }

    /// Durable first, then in use; or neither.
    async fn keep_and_use(&self, secret: &Secret, alone: bool) -> Result<Kept, NotKept> {
        let (directory, content) = (self.directory.clone(), secret.clone());
        let (at, dice) = (self.clock.now(), rand::random());
        let kept = self
            .blocking(move || keep::keep(&directory, &content, alone, at, dice))
            .await?;
        let outcome = self.reloads.ask(Trigger::SecretLearned).await;
        let applied = matches!(outcome, Outcome::Applied { .. } | Outcome::Unchanged(_));
        if applied && self.now().serves(secret) {
            return Ok(kept);
        }
        let path = kept.path;
        self.blocking(move || keep::take_back(&path)).await?;
        Err(match outcome {
            Outcome::Closing => NotKept::Closing,
            Outcome::Applied { .. } | Outcome::Unchanged(_) | Outcome::Refused(_) => NotKept::NotTakenOver,
        })
    }

    async fn arm(&self, add: bool) -> Result<(), ArmError> {
        {
            let now = self.now();
            now.state.may_arm(now.has_secret(), add, &self.source)?;
        }
        let directory = self.directory.clone();
        let probing = self.blocking(move || keep::probe(&directory)).await;
        probing.map_err(|why| ArmError::NotWritable {
            directory: self.directory.clone(),
            why: why.to_string(),
        })?;
        let mut now = self.now();
        let has_secret = now.has_secret();
        let until = self.clock.monotonic().after(ARMED_FOR);
        now.state.arm(until, has_secret, add, &self.source)?;
        info!(
            source = %self.source,
            until = %self.clock.now().after(ARMED_FOR),
            add,
            "armed by a person: the next secret that is handed over is taken"
        );
        Ok(())
    }

    fn standing(&self) -> Learning {
        let now = self.now();
        let moment = self.clock.monotonic();
        let left = now
            .state
            .armed_until(moment)
            .map(|until: Monotonic| until.since(moment));
        Learning {
            armed_until: left.map(|left| self.clock.now().after(left)),
            left,
            has_secret: now.has_secret(),
            directory: self.directory.clone(),
        }
    }

    /// Whether it is still the same by another configuration, whose verifier it then takes over.
    fn goes_on(&self, directory: &Path, verifier: &Arc<Verifier>) -> bool {
        let mut now = self.now();
        let same = self.directory == directory && now.verifier.record() == verifier.record();
        if same {
            now.verifier = Arc::clone(verifier);
        }
        same
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, NotKept> + Send + 'static,
    ) -> Result<T, NotKept> {
        let done = self.tracker.spawn_blocking(work).await;
        done.unwrap_or(Err(NotKept::Closing))
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Now {
    fn has_secret(&self) -> bool {
        !self.verifier.secrets().is_empty()
    }

    fn serves(&self, secret: &Secret) -> bool {
        let mut served = self.verifier.secrets().iter();
        served.any(|served| &served.secret == secret)
    }
}

#[cfg(test)]
mod tests;
