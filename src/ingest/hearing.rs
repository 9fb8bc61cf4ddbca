//! [`Hearing`]: what a sender makes of our answer to one of its deliveries, for the count of its [`Patience`].
//!
//! A failure is what the sender sees as one: any status but 2xx, an answer that comes too late for it, or none because it has
//! left. Only a request whose signature held is the sender's for sure. What was refused with a well-formed signature, or failed
//! before it could be judged, may be; anything else is a stranger's.

use std::time::Duration;

use http::StatusCode;
use tracing::{error, warn};

use crate::ingest::Served;
use crate::ingest::body::BodyRefused;
use crate::ingest::respond::Refusal;
use crate::telemetry::metrics::{Patience, Seen, Used};
use crate::time::{Clock, Monotonic};
use crate::verify::Reason;
use crate::verify::record::FactsConfidence;

/// One request, until it is answered.
#[derive(Debug)]
pub(super) struct Hearing<'s> {
    served: &'s Served,
    clock: &'s Clock,
    began: Monotonic,
    /// None where it is not known when the sender gives up, and once it has been counted.
    patience: Option<&'s Patience>,
    is_the_senders: bool,
}

impl<'s> Hearing<'s> {
    pub(super) fn new(served: &'s Served, clock: &'s Clock, began: Monotonic) -> Self {
        Self {
            served,
            clock,
            began,
            patience: served.gives_up.as_deref(),
            is_the_senders: false,
        }
    }

    /// Its signature holds, and it is a delivery.
    pub(super) fn is_the_senders(&mut self) {
        self.is_the_senders = true;
    }

    /// It is answered so. `refusal`: why it was not taken.
    pub(super) fn answered(mut self, status: StatusCode, refusal: Option<&Refusal>) {
        let Some(patience) = self.patience.take() else { return };
        let now = self.clock.monotonic();
        let seen = if self.is_the_senders {
            let deadline = self.served.deadline(patience);
            let late = deadline.is_some_and(|deadline| now.since(self.began) > deadline);
            if status.is_success() && !late {
                Seen::Success
            } else {
                Seen::Failure
            }
        } else if refusal.is_some_and(may_be_the_senders) {
            Seen::Doubtful
        } else {
            return;
        };
        self.count(patience, seen, now);
    }

    fn count(&self, patience: &Patience, seen: Seen, now: Monotonic) {
        let Some(Used { sure, .. }) = patience.saw(seen, now) else {
            return;
        };
        let (source, rule, used_percent) = (&self.served.source.name, patience.rule(), sure / 10);
        match rule.confidence {
            FactsConfidence::Documented => error!(
                %source,
                gives_up_after = %rule.rule,
                used_percent,
                "the sender will stop sending: mend what fails; hooksluice_failures_total and the lines above name it"
            ),
            FactsConfidence::Hint => warn!(
                %source,
                gives_up_after = %rule.rule,
                used_percent,
                "the sender may stop sending (its rule is not confirmed): mend what fails; hooksluice_failures_total and the \
                 lines above name it"
            ),
        }
    }
}

impl Drop for Hearing<'_> {
    /// The sender has left before it was answered.
    fn drop(&mut self) {
        if let Some(patience) = self.patience.take()
            && self.is_the_senders
        {
            self.count(patience, Seen::Failure, self.clock.monotonic());
        }
    }
}

impl Served {
    /// After which an answer counts as none, where that is more than a hint.
    fn deadline(&self, patience: &Patience) -> Option<Duration> {
        let documented = patience.rule().confidence == FactsConfidence::Documented;
        self.source.sender_deadline.filter(|_| documented)
    }
}

/// It had a signature of the right form, or what failed came before there was one to be judged. Strangers can do that too.
fn may_be_the_senders(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Unverified(reason, _) => {
            matches!(reason, Reason::WrongSignature | Reason::Stale | Reason::FromTheFuture)
        }
        Refusal::Body(why) => match why {
            BodyRefused::TooLarge | BodyRefused::TooSlow | BodyRefused::Overloaded => true,
            BodyRefused::Incomplete => false,
        },
        // Nobody can say whether its signature holds, which is of the right form.
        Refusal::NoKey => true,
        Refusal::Method
        | Refusal::Rejected(_)
        | Refusal::Client(_)
        | Refusal::NotLearned(_)
        | Refusal::RateLimited { .. }
        | Refusal::Store(_)
        | Refusal::StoreTooSlow => false,
    }
}
