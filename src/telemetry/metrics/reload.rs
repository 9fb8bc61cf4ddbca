//! What is counted of reloads of the configuration.

use super::{Counter, Gauge};

/// What came of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// It runs.
    Applied,
    /// It says what runs already.
    Unchanged,
    /// It was refused, and nothing was changed.
    Refused,
}

impl ReloadOutcome {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Applied, Self::Unchanged, Self::Refused];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
        }
    }
}

/// Loads of the configuration, the one at the start among them.
#[derive(Debug, Default)]
pub struct ReloadMetrics {
    /// 1 while the configuration that runs is the one that is configured; 0 while what was refused has not been mended.
    pub successful: Gauge,
    /// When what runs was last found to be what is configured, in seconds since the Unix epoch.
    pub succeeded_at: Gauge,
    outcomes: [Counter; ReloadOutcome::ALL.len()],
}

impl ReloadMetrics {
    /// A reload ended so.
    pub fn ended(&self, outcome: ReloadOutcome) {
        if let Some(counter) = self.outcomes.get(outcome as usize) {
            counter.add(1);
        }
    }

    /// Reloads that ended so.
    pub fn count(&self, outcome: ReloadOutcome) -> u64 {
        self.outcomes.get(outcome as usize).map_or(0, Counter::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_s_number_is_its_place_in_the_list() {
        for (index, outcome) in ReloadOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
    }
}
