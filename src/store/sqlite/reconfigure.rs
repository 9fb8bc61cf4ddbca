//! Taking over another configuration while the store is open ([`Store::reconfigure`](crate::store::Store::reconfigure)).
//!
//! Names get their numbers in the turn's transaction; what follows from the configuration changes once that is committed, at
//! the end of the turn, when all that the turn granted is in its window. What a removed upstream's window then holds is
//! handed back in the next turn.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::inbox::{LeaseRef, Order};
use super::writer::{Lane, Returned, Turn, Writer};
use super::{DispatchId, Outlet, recover};
use crate::id::UpstreamName;
use crate::store::StoreError;
use crate::store::settings::Live;
use crate::store::window::{Ready, Window};
use crate::time::Timestamp;

/// What a turn will take over once it is committed.
#[derive(Debug)]
pub(super) struct Reconfigure {
    live: Live,
    /// The configured upstreams with their numbers.
    wanted: HashMap<UpstreamName, u32>,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

impl Reconfigure {
    /// The turn is gone: nothing has changed.
    pub(super) fn refuse(self, why: &str) {
        let _stopped_waiting = self.reply.send(Err(StoreError::Failed(why.to_owned())));
    }
}

impl Writer {
    /// Numbers for the upstreams of another configuration. Nothing remembers them before the commit.
    pub(super) fn prepare_reconfigure(
        &self,
        turn: &mut Turn,
        live: Live,
        reply: oneshot::Sender<Result<(), StoreError>>,
    ) -> rusqlite::Result<Reconfigure> {
        let mut wanted = HashMap::new();
        for lane in &live.lanes {
            let name = &lane.upstream;
            let known = self.lanes.iter().find(|lane| lane.name == *name);
            let number = match known {
                Some(known) => known.upstream,
                None => {
                    turn.dirty = true;
                    recover::learn_upstream(&self.conn, name)?
                }
            };
            wanted.insert(name.clone(), number);
        }
        Ok(Reconfigure { live, wanted, reply })
    }

    /// The turn is durable.
    pub(super) fn take_over(&mut self, reconfigure: Reconfigure) {
        let Reconfigure { live, wanted, reply } = reconfigure;
        self.settings.take_over(&live);
        for lane in &mut self.lanes {
            if wanted.contains_key(&lane.name) {
                if lane.window.is_none() {
                    lane.window = Some(Arc::new(Window::default()));
                    lane.full_turns = 0;
                    // All due dates are looked up at the next claim.
                    lane.pending_from(Timestamp::from_millis(i64::MIN));
                }
            } else if let Some(window) = lane.window.take() {
                for Ready { dispatch, .. } in window.close() {
                    let lease = LeaseRef {
                        dispatch: DispatchId::new(dispatch.event.id.position().get(), lane.upstream),
                        token: dispatch.token,
                    };
                    dispatch.forget();
                    self.give_backs.push(Returned { lease, unused: true });
                }
            }
        }
        for (name, upstream) in wanted {
            if !self.lane_of.contains_key(&upstream) {
                self.lane_of.insert(upstream, self.lanes.len());
                self.lanes
                    .push(Lane::new(upstream, name, Some(Arc::new(Window::default()))));
            }
        }
        let mut outlets = HashMap::clone(&self.shared.outlets.load());
        for lane in &self.lanes {
            let outlet = Outlet {
                upstream: lane.upstream,
                window: lane.window.clone(),
            };
            // Those that never were configured have no leases here.
            if outlet.window.is_some() || outlets.contains_key(&lane.name) {
                outlets.insert(lane.name.clone(), outlet);
            }
        }
        self.shared.outlets.store(Arc::new(outlets));
        self.publish_status(0);
        // Answered behind what was handed back.
        self.orders.push_front(Order::Reconfigured { reply });
    }
}
