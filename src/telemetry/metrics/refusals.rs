//! The last refusals of a source, for people who ask why.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::time::Timestamp;

/// How many are kept for each source.
const KEPT: usize = 5;

/// One refusal. Holds nothing that the sender sent but its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastRefusal {
    /// When it came.
    pub at: Timestamp,
    /// Who sent it.
    pub client: IpAddr,
    /// The word of the metric.
    pub reason: &'static str,
    /// The likely cause, in words, where it could be shown.
    pub hint: Option<Arc<str>>,
}

/// The last few that were noted; under a flood only some are.
#[derive(Debug, Default)]
pub struct LastRefusals(Mutex<VecDeque<LastRefusal>>);

impl LastRefusals {
    /// Notes one; the oldest goes.
    pub fn note(&self, refusal: LastRefusal) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(refusal);
    }

    /// The newest first.
    pub fn newest_first(&self) -> Vec<LastRefusal> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_are_kept() {
        let last = LastRefusals::default();
        for second in 0..9 {
            last.note(LastRefusal {
                at: Timestamp::from_secs(second),
                client: IpAddr::from([203, 0, 113, 9]),
                reason: "wrong_signature",
                hint: None,
            });
        }
        let seconds: Vec<_> = last.newest_first().iter().map(|refusal| refusal.at.as_secs()).collect();
        assert_eq!(seconds, [8, 7, 6, 5, 4]);
    }
}
