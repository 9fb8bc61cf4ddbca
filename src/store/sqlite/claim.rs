//! A separate store's claims: laying out what was appended, taking in what was answered (DESIGN section 3, step 6).
//!
//! The tail is admitted in position order, so its first event without a claim holds up all behind it. What is laid out
//! is the part of the tail that is in memory: at most [`Tuning::tail_events`](super::Tuning), the rest is read back when
//! that part has been admitted. A claim is noted in memory only: after a crash, an event that was not admitted is laid
//! out again, and Redis then answers with the event's own id if it had been taken already.

use super::writer::Writer;
use crate::id::EventId;
use crate::store::model::{Claim, Unclaimed};

impl Writer {
    /// Whether something can be admitted: the first of the tail, or what is to be read back to know.
    pub(super) fn may_admit(&self) -> bool {
        let first = self.tail.events.front();
        self.tail.count > 0 && (!self.separate || first.is_none_or(|first| first.claim.is_some()))
    }

    /// No append fits until a claim comes.
    pub(super) fn is_stalled(&self) -> bool {
        self.tail.count >= self.settings.unadmitted && !self.may_admit()
    }

    /// Notes what Redis said. The first answer counts; one for an event that is not waiting is about an earlier opening.
    pub(super) fn note_claims(&mut self, claims: Vec<(EventId, Claim)>) {
        for (event, claim) in claims {
            let position = event.position().get();
            let found = self
                .tail
                .events
                .binary_search_by_key(&position, |appended| appended.id.position().get());
            let Some(appended) = found.ok().and_then(|at| self.tail.events.get_mut(at)) else {
                continue;
            };
            if appended.id == event && appended.claim.is_none() {
                appended.claim = Some(claim);
            }
        }
    }

    /// Lays out what is durable and was not laid out yet.
    pub(super) fn lay_out(&mut self) {
        if !self.separate {
            return;
        }
        let laid_out = self.laid_out_end;
        let first = self
            .tail
            .events
            .partition_point(|appended| appended.id.position().get() < laid_out);
        let Some(last) = self.tail.events.back().filter(|_last| first < self.tail.events.len()) else {
            return;
        };
        self.laid_out_end = last.id.position().get() + 1;
        let fresh = self.tail.events.range(first..).map(|appended| Unclaimed {
            event: appended.id,
            source: appended.source_name.clone(),
            key: appended.key,
            body_mark: appended.body_mark,
            received_at: appended.received_at,
        });
        self.shared.desk.lay_out(fresh);
    }
}
