//! What the store knows of each configured upstream: its window, what is due, its share of the pace, its record.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::id::UpstreamName;
use crate::store::model::{LaneRecord, ShareUse};
use crate::store::window::{Room, Window};
use crate::time::{Monotonic, Timestamp};

/// A configured upstream.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) name: UpstreamName,
    /// Its number in the database.
    pub(super) number: i32,
    /// The units of its pace, as our configuration has it.
    pub(super) whole: u32,
    pub(super) window: Arc<Window>,
    state: Mutex<LaneState>,
}

/// Changes while the store is open.
#[derive(Debug)]
pub(super) struct LaneState {
    /// Taken from the window's room by batches that are not committed yet.
    reserved: usize,
    reserved_bytes: usize,
    /// No pending dispatch is due before this; `None` when there is none. Early is harmless, late waits for the next poll.
    next_due: Option<Timestamp>,
    /// Counts the times that `next_due` was brought forward.
    brought_forward: u64,
    /// As the database had it last.
    pub(super) record: LaneRecord,
    /// Units granted, and until when by our clock.
    pub(super) granted: u32,
    pub(super) target: u32,
    pub(super) of: u32,
    pub(super) granted_until: Monotonic,
    /// What the lane says of its share, once it does.
    pub(super) used: ShareUse,
}

impl LaneState {
    /// Units that may be used now.
    pub(super) fn units(&self, now: Monotonic) -> u32 {
        if now < self.granted_until {
            self.granted.min(self.target)
        } else {
            0
        }
    }

    pub(super) fn pending_from(&mut self, due: Timestamp) {
        self.brought_forward += 1;
        self.next_due = Some(self.next_due.map_or(due, |next| next.min(due)));
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.next_due
    }

    /// Remembered before looking, for [`LaneState::looked`].
    pub(super) fn before_look(&self) -> u64 {
        self.brought_forward
    }

    /// What a look at the database found; what came since the look began stands beside it.
    pub(super) fn looked(&mut self, before: u64, found: Option<Timestamp>) {
        self.next_due = match (found, self.next_due) {
            (found, Some(next)) if self.brought_forward != before => Some(found.map_or(next, |found| found.min(next))),
            (found, _) => found,
        };
    }
}

impl Lane {
    pub(super) fn new(name: UpstreamName, number: i32, whole: u32) -> Self {
        Self {
            name,
            number,
            whole: whole.max(1),
            window: Arc::default(),
            state: Mutex::new(LaneState {
                reserved: 0,
                reserved_bytes: 0,
                next_due: None,
                brought_forward: 0,
                record: LaneRecord::default(),
                granted: 0,
                target: 0,
                of: whole.max(1),
                granted_until: Monotonic::default(),
                used: ShareUse::default(),
            }),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for a dispatch that is leased in its own insert: the lane is caught up, runs, and has a share.
    pub(super) fn reserve(&self, weight: usize, now: Timestamp, monotonic: Monotonic) -> bool {
        let mut state = self.state();
        if state.next_due.is_some_and(|due| due <= now) || state.record.paused || state.units(monotonic) == 0 {
            return false;
        }
        let room = self.room(&state);
        if room.dispatches == 0 || room.bytes == 0 {
            return false;
        }
        state.reserved += 1;
        state.reserved_bytes = state.reserved_bytes.saturating_add(weight);
        true
    }

    /// Takes what a claim may bring.
    pub(super) fn reserve_for_claim(&self, most: usize) -> Room {
        let mut state = self.state();
        let room = self.room(&state);
        let room = Room {
            dispatches: room.dispatches.min(most),
            bytes: room.bytes,
        };
        state.reserved += room.dispatches;
        state.reserved_bytes = state.reserved_bytes.saturating_add(room.bytes);
        room
    }

    /// Gives reserved room back: what it was for is in the window, or will never be.
    pub(super) fn release(&self, dispatches: usize, bytes: usize) {
        let mut state = self.state();
        state.reserved = state.reserved.saturating_sub(dispatches);
        state.reserved_bytes = state.reserved_bytes.saturating_sub(bytes);
    }

    fn room(&self, state: &LaneState) -> Room {
        let room = self.window.room();
        Room {
            dispatches: room.dispatches.saturating_sub(state.reserved),
            bytes: room.bytes.saturating_sub(state.reserved_bytes),
        }
    }

    /// Something is pending and due then.
    pub(super) fn pending_from(&self, due: Timestamp) {
        self.state().pending_from(due);
        self.window.backlog.store(true, Ordering::Release);
    }
}

/// All configured upstreams.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    by_name: HashMap<UpstreamName, usize>,
    by_number: HashMap<i32, usize>,
}

impl Lanes {
    pub(super) fn new(lanes: Vec<Lane>) -> Self {
        let slots = |lane: (usize, &Lane)| (lane.1.name.clone(), lane.0);
        Self {
            by_name: lanes.iter().enumerate().map(slots).collect(),
            by_number: lanes
                .iter()
                .enumerate()
                .map(|(slot, lane)| (lane.number, slot))
                .collect(),
            lanes,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter()
    }

    pub(super) fn get(&self, slot: usize) -> Option<&Lane> {
        self.lanes.get(slot)
    }

    pub(super) fn named(&self, name: &UpstreamName) -> Option<(usize, &Lane)> {
        let slot = *self.by_name.get(name)?;
        Some((slot, self.lanes.get(slot)?))
    }

    pub(super) fn numbered(&self, number: i32) -> Option<(usize, &Lane)> {
        let slot = *self.by_number.get(&number)?;
        Some((slot, self.lanes.get(slot)?))
    }

    pub(super) fn numbers(&self) -> Vec<i32> {
        self.lanes.iter().map(|lane| lane.number).collect()
    }
}
