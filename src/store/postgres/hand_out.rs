//! Putting leased dispatches into their lanes' windows.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::inbox::GiveBack as Returned;
use super::lanes::Lane;
use super::leases::LeaseRef;
use crate::id::LeaseToken;
use crate::key::DedupeKey;
use crate::store::model::{GiveBack, LeasedDispatch, StoredEvent};
use crate::store::window::Ready;
use crate::time::{Monotonic, Timestamp};

/// A lease that is durable and about to be handed out.
#[derive(Debug)]
pub(super) struct Grant {
    /// Slot of its lane.
    pub(super) lane: usize,
    pub(super) event: Arc<StoredEvent>,
    pub(super) key: DedupeKey,
    /// Memory it stands for.
    pub(super) weight: usize,
    /// A place in the window and its weight were reserved for it alone.
    pub(super) reserved: bool,
    pub(super) token: LeaseToken,
    /// It holds until then, by our clock.
    pub(super) until: Monotonic,
    pub(super) attempt: u32,
    pub(super) attempts_on_clock: u32,
    pub(super) replay: bool,
    /// By the database's clock.
    pub(super) clock_started_at: Timestamp,
    pub(super) clock_stopped_before: Duration,
}

impl Shared {
    pub(super) fn hand_out(self: &Arc<Self>, grants: Vec<Grant>) {
        let lanes: Vec<Arc<Lane>> = self.lanes.iter().collect();
        let mut by_lane: Vec<Vec<(Ready, bool)>> = lanes.iter().map(|_lane| Vec::new()).collect();
        self.remember(&grants);
        for grant in grants {
            let (Some(lane), Some(ready)) = (lanes.get(grant.lane), by_lane.get_mut(grant.lane)) else {
                continue;
            };
            let (weight, reserved) = (grant.weight, grant.reserved);
            let dispatch = self.leased(lane, grant);
            ready.push((Ready { dispatch, weight }, reserved));
        }
        for (slot, (lane, ready)) in lanes.iter().zip(by_lane).enumerate() {
            let reserved = ready.iter().filter(|(_ready, reserved)| *reserved);
            let (count, bytes) = reserved.fold((0, 0_usize), |(count, bytes), (ready, _reserved)| {
                (count + 1, bytes.saturating_add(ready.weight))
            });
            let ready = ready.into_iter().map(|(ready, _reserved)| ready).collect();
            // Its upstream may have left the configuration meanwhile.
            self.give_back_window(slot, lane.window().push(ready));
            lane.release(count, bytes);
        }
    }

    /// Before anybody can ask whether they hold.
    pub(super) fn remember(&self, grants: &[Grant]) {
        self.leases.add(grants.iter().map(|grant| {
            let lease = LeaseRef {
                event: grant.event.id,
                lane: grant.lane,
                token: grant.token,
            };
            (lease, grant.key, grant.until)
        }));
    }

    /// A lease that is durable and [remembered](Self::remember).
    pub(super) fn leased(self: &Arc<Self>, lane: &Lane, grant: Grant) -> LeasedDispatch {
        let lease = LeaseRef {
            event: grant.event.id,
            lane: grant.lane,
            token: grant.token,
        };
        // Weak: what lies in a window must not keep the window's owner alive.
        let shared = Arc::downgrade(self);
        let give_back = move || {
            if let Some(shared) = shared.upgrade() {
                shared.inbox.give_back([Returned { lease, unused: false }]);
            }
        };
        LeasedDispatch {
            event: grant.event,
            upstream: lane.name.clone(),
            attempt: grant.attempt,
            replay: grant.replay,
            clock_started_at: self.database.to_ours(grant.clock_started_at),
            clock_stopped_before: grant.clock_stopped_before,
            attempts_on_clock: grant.attempts_on_clock,
            token: grant.token,
            give_back: Some(GiveBack(Box::new(give_back))),
        }
    }
}
