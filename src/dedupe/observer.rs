//! [`Observer`]: hears what the store has committed, in the order of its commits, and passes on what others must know.

use std::sync::Arc;

use tracing::warn;

use super::memory::RecentKeys;
use super::protocol::{About, Input, Protocol, Stage};
use super::teller::Teller;
use crate::store::model::{Admission, Notice};

/// Told by the store after each commit; never blocks.
#[derive(Clone, Debug)]
pub struct Observer {
    memory: Arc<RecentKeys>,
    redis: Option<(Teller, Protocol)>,
}

impl Observer {
    /// Passes on to the memory, and to Redis where there is one.
    pub fn new(memory: Arc<RecentKeys>, redis: Option<(Teller, Protocol)>) -> Self {
        Self { memory, redis }
    }

    /// Learns of a commit.
    pub fn observe(&self, notice: &Notice) {
        self.memory.observe(notice);
        let Some((teller, protocol)) = &self.redis else {
            return;
        };
        match notice {
            Notice::Died(death) => teller.died(death.clone()),
            Notice::Admitted {
                appended,
                claim,
                source,
                key,
                event,
                body_mark,
                received_at,
                admission,
            } => {
                if let Admission::Elsewhere { of, dead: true } = admission {
                    warn!(
                        %source,
                        event = %appended,
                        %of,
                        "a delivery was sent again whose event died at another replica: only that one can revive it"
                    );
                }
                let stage = match claim {
                    Some(claim) => Stage::Admit {
                        event: *appended,
                        claim: *claim,
                    },
                    None => Stage::Append,
                };
                let about = About {
                    kind: key.kind(),
                    received_at: *received_at,
                    body_mark: *body_mark,
                };
                let input = Input::Admitted {
                    event: *appended,
                    admission: *admission,
                    survivor: *event,
                    body_mark: *body_mark,
                };
                if let Stage::Tell(tell) = protocol.step(&about, stage, input) {
                    teller.tell(source.clone(), *key, tell);
                }
            }
        }
    }
}
