//! What asks for a reload of the configuration, and what comes of it: the words between whoever asks (a signal, the admin
//! API, a file that has changed) and the app, which does it, one after the other.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use crate::time::Timestamp;

/// Reloads that may wait for the one that runs. Whoever comes on top of that waits for a place, or, where nobody waits
/// for an answer, is content with those that are on their way.
const WAITING_MAX: usize = 16;

/// Why the configuration is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// SIGHUP.
    Signal,
    /// `hooksluice reload`.
    Command,
    /// The file has changed.
    FileChanged,
    /// A file that the running configuration refers to has changed.
    ReferenceChanged,
    /// A secret that arrived in band is kept in such a file.
    SecretLearned,
}

impl Trigger {
    /// The word in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Command => "command",
            Self::FileChanged => "file changed",
            Self::ReferenceChanged => "reference changed",
            Self::SecretLearned => "secret learned",
        }
    }

    /// Whether the configuration's own file is read anew; if not, the running text is built again from what it refers to.
    pub const fn reads_anew(self) -> bool {
        match self {
            Self::Signal | Self::Command | Self::FileChanged => true,
            Self::ReferenceChanged | Self::SecretLearned => false,
        }
    }
}

/// What came of a reload.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It runs; these are the differences, in words.
    Applied {
        /// Never empty.
        changed: Vec<String>,
        /// Warnings only.
        said: Said,
    },
    /// It says what runs already.
    Unchanged(Said),
    /// Nothing was changed, and this is why.
    Refused(Said),
    /// The server is shutting down: nothing was looked at.
    Closing,
}

/// A report, ready to be handed on: as `check` prints it, and for programs.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// For a terminal, without colours; empty when there is nothing to say.
    pub text: String,
    /// Each problem with its place.
    pub problems: Vec<Problem>,
}

/// One problem of a configuration.
#[derive(Clone, Debug)]
pub struct Problem {
    /// `error` or `warning`.
    pub severity: &'static str,
    /// Name of the configuration.
    pub file: String,
    /// From 1; `None` where a problem has no place.
    pub line: Option<usize>,
    /// In characters, from 1; `None` where a problem has no place.
    pub column: Option<usize>,
    /// The short fact.
    pub message: String,
    /// What to say at the place itself.
    pub label: String,
    /// What the operator can do.
    pub help: Option<String>,
}

/// What is known of the running configuration, for people.
#[derive(Clone, Debug)]
pub struct State {
    /// When what runs was last found to be what is configured.
    pub loaded_at: Timestamp,
    /// The latest refusal, while what was refused has not been mended.
    pub refused: Option<Refusal>,
}

/// A configuration that was not taken.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// When.
    pub at: Timestamp,
    /// Its first error.
    pub why: Arc<str>,
}

/// Where reloads are asked for. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reloads {
    asks: mpsc::Sender<Ask>,
    state: watch::Receiver<State>,
}

/// One wish for a reload.
#[derive(Debug)]
pub struct Ask {
    /// Whose.
    pub trigger: Trigger,
    /// Where its outcome is waited for, if it is. Dropped unanswered, it says [`Outcome::Closing`].
    pub answer: Option<oneshot::Sender<Outcome>>,
}

/// The other end: whoever does the reloads.
#[derive(Debug)]
pub struct Desk {
    /// In the order in which they were asked for.
    pub asks: mpsc::Receiver<Ask>,
    /// Shown to people.
    pub state: watch::Sender<State>,
}

impl Reloads {
    /// For a configuration that was loaded at that time.
    pub fn new(loaded_at: Timestamp) -> (Self, Desk) {
        let (asks, waiting) = mpsc::channel(WAITING_MAX);
        let (told, state) = watch::channel(State {
            loaded_at,
            refused: None,
        });
        let desk = Desk {
            asks: waiting,
            state: told,
        };
        (Self { asks, state }, desk)
    }

    /// Asks, and waits for what comes of it.
    pub async fn ask(&self, trigger: Trigger) -> Outcome {
        let (answer, outcome) = oneshot::channel();
        let ask = Ask {
            trigger,
            answer: Some(answer),
        };
        if self.asks.send(ask).await.is_err() {
            return Outcome::Closing;
        }
        outcome.await.unwrap_or(Outcome::Closing)
    }

    /// Asks without waiting. With a full queue nothing is lost: those in it will read what is there by then.
    pub fn tell(&self, trigger: Trigger) {
        self.asks.try_send(Ask { trigger, answer: None }).ok();
    }

    /// What is known now.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_asks_when_nobody_reloads_any_more_hears_of_the_end() {
        let (reloads, mut desk) = Reloads::new(Timestamp::from_secs(1));
        let asking = reloads.ask(Trigger::Command);
        let closing = async {
            let ask = desk.asks.recv().await;
            assert_eq!(ask.as_ref().map(|ask| ask.trigger), Some(Trigger::Command));
            drop(ask);
        };
        let (outcome, ()) = tokio::join!(asking, closing);
        assert!(matches!(outcome, Outcome::Closing));
        drop(desk);
        assert!(matches!(reloads.ask(Trigger::Signal).await, Outcome::Closing));
    }

    #[test]
    fn a_signal_never_waits_for_a_place() {
        let (reloads, mut desk) = Reloads::new(Timestamp::from_secs(1));
        (0..3 * WAITING_MAX).for_each(|_| reloads.tell(Trigger::Signal));
        let waiting = std::iter::from_fn(|| desk.asks.try_recv().ok()).count();
        assert_eq!(waiting, WAITING_MAX);
    }
}
