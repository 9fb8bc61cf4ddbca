//! What the store knows of each upstream that is or was configured since the opening: its window, what is due, its share of
//! the pace, its record.
//!
//! A lane keeps its slot for good, since leases name it. One whose upstream has left the configuration has a closed window
//! and no units, so that nothing is leased for it; what was leased before is settled, renewed or handed back through it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use crate::id::UpstreamName;
use crate::store::model::{LaneRecord, ShareUse};
use crate::store::window::{Ready, Room, Window};
use crate::time::{Monotonic, Timestamp};

/// An upstream that is or was configured.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) name: UpstreamName,
    /// Its number in the database.
    pub(super) number: i32,
    state: Mutex<LaneState>,
}

/// Changes while the store is open.
#[derive(Debug)]
pub(super) struct LaneState {
    /// Ready dispatches; closed while the upstream is not configured.
    window: Arc<Window>,
    configured: bool,
    /// The units of its pace, as our configuration has it.
    pub(super) whole: u32,
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
    pub(super) of: u32,
    pub(super) granted_until: Monotonic,
    /// What the lane says of its share, once it does.
    pub(super) used: ShareUse,
}

impl LaneState {
    /// Units that may be used now.
    pub(super) fn units(&self, now: Monotonic) -> u32 {
        if self.configured && now < self.granted_until {
            self.granted
        } else {
            0
        }
    }

    /// Units in use, of `of`: what may be started now, and what runs.
    pub(super) fn used_units(&self, now: Monotonic) -> u32 {
        let mine = |units: u32| {
            let scaled = (u64::from(units) * u64::from(self.of)).div_ceil(u64::from(self.used.of.max(1)));
            u32::try_from(scaled).unwrap_or(u32::MAX)
        };
        self.units(now).max(mine(self.used.applied)).max(mine(self.used.busy))
    }

    /// Whether a part of the pace is wanted or in use.
    pub(super) fn takes_part(&self) -> bool {
        self.configured || self.used.applied > 0 || self.used.busy > 0
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
            state: Mutex::new(LaneState {
                window: Arc::default(),
                configured: true,
                whole: whole.max(1),
                reserved: 0,
                reserved_bytes: 0,
                next_due: None,
                brought_forward: 0,
                record: LaneRecord::default(),
                granted: 0,
                of: whole.max(1),
                granted_until: Monotonic::default(),
                used: ShareUse::default(),
            }),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn window(&self) -> Arc<Window> {
        Arc::clone(&self.state().window)
    }

    pub(super) fn is_configured(&self) -> bool {
        self.state().configured
    }

    /// The upstream is in the configuration, with a pace of so many units.
    fn configure(&self, whole: u32) {
        let mut state = self.state();
        state.whole = whole.max(1);
        if !state.configured {
            state.configured = true;
            state.window = Arc::default();
        }
    }

    /// The upstream is in the configuration no more: nothing is leased for it. Returns what lies ready.
    fn retire(&self) -> VecDeque<Ready> {
        let mut state = self.state();
        state.configured = false;
        state.window.close()
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
        let room = state.window.room();
        Room {
            dispatches: room.dispatches.saturating_sub(state.reserved),
            bytes: room.bytes.saturating_sub(state.reserved_bytes),
        }
    }

    /// Something is pending and due then.
    pub(super) fn pending_from(&self, due: Timestamp) {
        let mut state = self.state();
        state.pending_from(due);
        state.window.backlog.store(true, Ordering::Release);
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Lanes(ArcSwap<Slots>);

#[derive(Clone, Debug, Default)]
struct Slots {
    lanes: Vec<Arc<Lane>>,
    by_name: HashMap<UpstreamName, usize>,
    by_number: HashMap<i32, usize>,
}

impl Slots {
    fn push(&mut self, lane: Lane) {
        let slot = self.lanes.len();
        self.by_name.insert(lane.name.clone(), slot);
        self.by_number.insert(lane.number, slot);
        self.lanes.push(Arc::new(lane));
    }
}

impl Lanes {
    pub(super) fn new(lanes: impl IntoIterator<Item = Lane>) -> Self {
        let mut slots = Slots::default();
        lanes.into_iter().for_each(|lane| slots.push(lane));
        Self(ArcSwap::from_pointee(slots))
    }

    /// All that have a slot, in the order of slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = Arc<Lane>> + use<> {
        self.0.load().lanes.clone().into_iter()
    }

    pub(super) fn get(&self, slot: usize) -> Option<Arc<Lane>> {
        self.0.load().lanes.get(slot).cloned()
    }

    /// The lane with this name, configured or not.
    pub(super) fn named(&self, name: &UpstreamName) -> Option<(usize, Arc<Lane>)> {
        let slots = self.0.load();
        let slot = *slots.by_name.get(name)?;
        Some((slot, Arc::clone(slots.lanes.get(slot)?)))
    }

    /// The lane with this name, if its upstream is in the configuration.
    pub(super) fn configured(&self, name: &UpstreamName) -> Option<(usize, Arc<Lane>)> {
        self.named(name).filter(|(_slot, lane)| lane.is_configured())
    }

    /// The lane with this number, configured or not.
    pub(super) fn numbered(&self, number: i32) -> Option<(usize, Arc<Lane>)> {
        let slots = self.0.load();
        let slot = *slots.by_number.get(&number)?;
        Some((slot, Arc::clone(slots.lanes.get(slot)?)))
    }

    /// Whether the upstream with this number is in the configuration.
    pub(super) fn is_configured(&self, number: i32) -> bool {
        self.numbered(number).is_some_and(|(_slot, lane)| lane.is_configured())
    }

    pub(super) fn numbers(&self) -> Vec<i32> {
        self.0.load().lanes.iter().map(|lane| lane.number).collect()
    }

    /// From now on these upstreams, with the units of their pace, are the configuration. Returns what lay ready for those that
    /// left it, by slot. One call at a time.
    pub(super) fn reconfigure(&self, wanted: &[(UpstreamName, i32, u32)]) -> Vec<(usize, VecDeque<Ready>)> {
        let mut slots = Slots::clone(&self.0.load());
        let mut left_behind = Vec::new();
        for (slot, lane) in slots.lanes.iter().enumerate() {
            let configured = wanted.iter().find(|(_name, number, _units)| *number == lane.number);
            match configured {
                Some((_name, _number, units)) => lane.configure(*units),
                None if lane.is_configured() => left_behind.push((slot, lane.retire())),
                None => {}
            }
        }
        for (name, number, units) in wanted {
            if !slots.by_number.contains_key(number) {
                slots.push(Lane::new(name.clone(), *number, *units));
            }
        }
        self.0.store(Arc::new(slots));
        left_behind
    }
}
