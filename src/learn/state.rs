//! Whether a source takes a secret that is handed over to it: a pure state machine.

use crate::id::SourceName;
use crate::secret::Secret;
use crate::time::Monotonic;

/// Where a source stands. Whether it has a secret is the configuration's to say, and is asked for at each step.
#[derive(Debug, Default)]
pub(super) enum State {
    /// It takes none.
    #[default]
    Resting,
    /// It takes the first one.
    Armed(Armed),
    /// One is being kept; should that fail, it is armed as before.
    Keeping(Armed),
    /// One was taken. Until the end of its time a sender that did not hear the answer may ask for it again.
    Taken { until: Monotonic, secret: Secret },
}

/// What a person has allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Armed {
    until: Monotonic,
    /// Beside those that it has.
    add: bool,
}

/// What becomes of a request that hands over a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taking {
    /// Keep it, then answer; `alone`: only if there is no other.
    Keep { alone: bool },
    /// It was taken: answer.
    Again,
    /// It would be taken if it were a secret.
    Unfit,
    /// Another is being kept, which may fail.
    Wait,
    /// It is not taken.
    No,
}

/// Why a source cannot be armed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotArm {
    /// It has a secret.
    #[error(
        "source `{0}` has a secret and is sealed: say `--add` to take another beside it, or move the file of the old one away \
         first"
    )]
    Sealed(SourceName),
    /// One is being kept at this moment.
    #[error("source `{0}` is taking a secret at this moment")]
    Busy(SourceName),
}

impl State {
    /// Whether it could be armed.
    pub(super) fn may_arm(&self, has_secret: bool, add: bool, source: &SourceName) -> Result<(), CannotArm> {
        if matches!(self, Self::Keeping(_)) {
            return Err(CannotArm::Busy(source.clone()));
        }
        if has_secret && !add {
            return Err(CannotArm::Sealed(source.clone()));
        }
        Ok(())
    }

    /// A person allows one secret.
    pub(super) fn arm(
        &mut self,
        until: Monotonic,
        has_secret: bool,
        add: bool,
        source: &SourceName,
    ) -> Result<(), CannotArm> {
        self.may_arm(has_secret, add, source)?;
        *self = Self::Armed(Armed { until, add });
        Ok(())
    }

    /// Until when it takes one.
    pub(super) fn armed_until(&self, now: Monotonic) -> Option<Monotonic> {
        match self {
            Self::Armed(armed) | Self::Keeping(armed) if now < armed.until => Some(armed.until),
            _ => None,
        }
    }

    /// Whether a request that may hand over a secret is worth reading.
    pub(super) fn is_open(&self, now: Monotonic) -> bool {
        match self {
            Self::Resting => false,
            Self::Armed(armed) => now < armed.until,
            Self::Keeping(_) => true,
            Self::Taken { until, .. } => now < *until,
        }
    }

    /// A request hands over `secret`, or something that is none.
    pub(super) fn take(&mut self, now: Monotonic, has_secret: bool, secret: Option<&Secret>) -> Taking {
        match self {
            Self::Armed(armed) if now < armed.until && (armed.add || !has_secret) => {
                let armed = *armed;
                if secret.is_none() {
                    return Taking::Unfit;
                }
                *self = Self::Keeping(armed);
                Taking::Keep { alone: !armed.add }
            }
            // Somebody else has given it one.
            Self::Armed(_) => {
                *self = Self::Resting;
                Taking::No
            }
            Self::Keeping(_) => Taking::Wait,
            Self::Taken { until, secret: taken } if now < *until && secret == Some(taken) => Taking::Again,
            Self::Taken { .. } | Self::Resting => Taking::No,
        }
    }

    /// What was being kept is.
    pub(super) fn kept(&mut self, secret: Secret) {
        if let Self::Keeping(Armed { until, .. }) = *self {
            *self = Self::Taken { until, secret };
        }
    }

    /// What was being kept is not.
    pub(super) fn not_kept(&mut self) {
        if let Self::Keeping(armed) = *self {
            *self = Self::Armed(armed);
        }
    }

    /// There is one that somebody else has kept.
    pub(super) fn seal(&mut self) {
        *self = Self::Resting;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_start(Duration::from_secs(seconds))
    }

    fn source() -> SourceName {
        SourceName::new("asana")
    }

    fn armed(add: bool) -> State {
        let mut state = State::default();
        state.arm(at(600), add, add, &source()).unwrap();
        state
    }

    fn secret(text: &str) -> Secret {
        Secret::new(text)
    }

    #[test]
    fn nothing_is_taken_that_nobody_asked_for() {
        let mut state = State::default();
        assert!(!state.is_open(at(0)));
        assert_eq!(state.take(at(0), false, Some(&secret("a"))), Taking::No);
        assert_eq!(state.armed_until(at(0)), None);
    }

    #[test]
    fn the_time_ends_by_itself() {
        let mut state = armed(false);
        assert_eq!(state.armed_until(at(599)), Some(at(600)));
        assert!(state.is_open(at(599)) && !state.is_open(at(600)));
        assert_eq!(state.armed_until(at(600)), None);
        assert_eq!(state.take(at(600), false, Some(&secret("a"))), Taking::No);
    }

    #[test]
    fn one_secret_is_taken_and_no_second() {
        let mut state = armed(false);
        let (first, second) = (secret("first"), secret("second"));
        assert_eq!(state.take(at(1), false, Some(&first)), Taking::Keep { alone: true });
        // While it is being kept nobody knows how that ends.
        assert_eq!(state.take(at(1), false, Some(&second)), Taking::Wait);
        assert_eq!(state.may_arm(false, false, &source()), Err(CannotArm::Busy(source())));
        state.kept(first.clone());
        assert_eq!(state.armed_until(at(2)), None);
        assert_eq!(state.take(at(2), true, Some(&second)), Taking::No);
        assert_eq!(state.take(at(2), true, None), Taking::No);
        // The answer may have been lost; whoever knows the secret may have it again for the rest of the time.
        assert_eq!(state.take(at(599), true, Some(&first)), Taking::Again);
        assert_eq!(state.take(at(600), true, Some(&first)), Taking::No);
    }

    #[test]
    fn what_could_not_be_kept_leaves_it_armed_for_the_rest_of_its_time() {
        let mut state = armed(false);
        assert_eq!(
            state.take(at(1), false, Some(&secret("a"))),
            Taking::Keep { alone: true }
        );
        state.not_kept();
        assert_eq!(state.armed_until(at(2)), Some(at(600)));
        assert_eq!(
            state.take(at(2), false, Some(&secret("b"))),
            Taking::Keep { alone: true }
        );
        state.not_kept();
        assert_eq!(state.take(at(600), false, Some(&secret("b"))), Taking::No);
    }

    #[test]
    fn what_is_no_secret_uses_nothing_up() {
        let mut state = armed(false);
        assert_eq!(state.take(at(1), false, None), Taking::Unfit);
        assert_eq!(
            state.take(at(2), false, Some(&secret("a"))),
            Taking::Keep { alone: true }
        );
    }

    #[test]
    fn a_source_with_a_secret_is_armed_only_for_another_beside_it() {
        let mut state = State::default();
        assert_eq!(
            state.arm(at(600), true, false, &source()),
            Err(CannotArm::Sealed(source()))
        );
        state.arm(at(600), true, true, &source()).unwrap();
        assert_eq!(
            state.take(at(1), true, Some(&secret("b"))),
            Taking::Keep { alone: false }
        );
    }

    #[test]
    fn a_secret_that_somebody_else_puts_there_disarms_it() {
        let mut state = armed(false);
        assert_eq!(state.take(at(1), true, Some(&secret("a"))), Taking::No);
        assert_eq!(state.take(at(1), false, Some(&secret("a"))), Taking::No, "for good");
        let mut state = armed(false);
        assert_eq!(
            state.take(at(1), false, Some(&secret("a"))),
            Taking::Keep { alone: true }
        );
        state.seal();
        assert_eq!(state.take(at(2), false, Some(&secret("a"))), Taking::No);
    }
}
