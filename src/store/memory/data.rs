//! What is in a place, and what becomes of it by itself: leases, retention, windows being filled.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Backend;
use super::records::Stored;
use crate::id::{EventId, LeaseToken, SourceName, UpstreamName};
use crate::key::DedupeKey;
use crate::store::AttemptRecord;
use crate::store::model::{BodyMark, Death, DispatchState, GiveBack, LaneRecord, LeasedDispatch, StoredEvent};
use crate::store::records::RecordKey;
use crate::store::reply::Reply;
use crate::store::secrets::{SecretMark, SecretRecord};
use crate::store::settings::StoreSettings;
use crate::store::window::{Ready, Window, weight_of};
use crate::time::Timestamp;

/// How long a lease lasts that nobody renews.
const LEASE_TTL: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub(super) struct Data {
    pub(super) events: BTreeMap<i64, Row>,
    pub(super) keys: HashMap<(SourceName, Kind, [u8; 32]), Entry>,
    pub(super) lanes: HashMap<UpstreamName, LaneRecord>,
    /// Untold deaths, and whether somebody has looked at them.
    pub(super) deaths: Vec<(Death, bool)>,
    /// Dispatches made and pruned.
    pub(super) tally: BTreeMap<UpstreamName, (u64, u64)>,
    pub(super) records: HashMap<RecordKey, Stored>,
    /// And when each was last noted.
    pub(super) secrets: BTreeMap<(SourceName, SecretMark), (SecretRecord, Timestamp)>,
    pub(super) next_record: i64,
    pub(super) next_position: i64,
    pub(super) handles: Vec<Handle>,
    pub(super) next_handle: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Rule,
    Digest,
    Content,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) event: EventId,
    pub(super) body_mark: BodyMark,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) event: Arc<StoredEvent>,
    pub(super) key: DedupeKey,
    pub(super) body_mark: BodyMark,
    pub(super) dispatches: BTreeMap<UpstreamName, Dispatch>,
}

#[derive(Debug)]
pub(super) struct Dispatch {
    pub(super) state: DispatchState,
    pub(super) due: Timestamp,
    pub(super) lease: Option<Lease>,
    pub(super) attempts: u32,
    pub(super) attempts_on_clock: u32,
    pub(super) replay: bool,
    pub(super) clock_started_at: Timestamp,
    pub(super) clock_stopped_before: Duration,
    pub(super) finished: Vec<AttemptRecord>,
    pub(super) reply: Option<Reply>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) token: LeaseToken,
    pub(super) handle: u64,
    pub(super) until: Timestamp,
}

/// A handle that has the place open.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) number: u64,
    pub(super) windows: HashMap<UpstreamName, Arc<Window>>,
    /// It renews its leases.
    pub(super) renews: bool,
    pub(super) backend: Weak<Backend>,
}

impl Row {
    /// Something of it is not finished.
    pub(super) fn is_open(&self) -> bool {
        let mut states = self.dispatches.values().map(|dispatch| dispatch.state);
        states.any(|state| !matches!(state, DispatchState::Delivered | DispatchState::Discarded))
    }
}

impl Data {
    pub(super) fn row(&mut self, event: EventId) -> Option<&mut Row> {
        let row = self.events.get_mut(&event.position().get())?;
        (row.event.id == event).then_some(row)
    }

    /// The dispatch that is leased with this token.
    pub(super) fn leased(
        &mut self,
        event: EventId,
        upstream: &UpstreamName,
        token: LeaseToken,
    ) -> Option<&mut Dispatch> {
        let dispatch = self.row(event)?.dispatches.get_mut(upstream)?;
        dispatch
            .lease
            .is_some_and(|lease| lease.token == token)
            .then_some(dispatch)
    }

    pub(super) fn make(
        &mut self,
        position: i64,
        upstream: &UpstreamName,
        due: Timestamp,
        now: Timestamp,
        replay: bool,
    ) {
        let stopped = self
            .lanes
            .get(upstream)
            .map_or(Duration::ZERO, |lane| lane.stopped_total);
        let dispatch = Dispatch {
            state: DispatchState::Pending,
            due,
            lease: None,
            attempts: 0,
            attempts_on_clock: 0,
            replay,
            clock_started_at: now,
            clock_stopped_before: stopped,
            finished: Vec::new(),
            reply: None,
        };
        let row = self.events.get_mut(&position).unwrap();
        if row.dispatches.insert(upstream.clone(), dispatch).is_none() {
            self.tally.entry(upstream.clone()).or_default().0 += 1;
        }
    }

    /// Pending again, due then, with fresh give-up clocks.
    pub(super) fn restart(
        &mut self,
        event: EventId,
        upstream: &UpstreamName,
        due: Timestamp,
        now: Timestamp,
        replay: bool,
    ) {
        let stopped = self
            .lanes
            .get(upstream)
            .map_or(Duration::ZERO, |lane| lane.stopped_total);
        let dispatch = self.row(event).unwrap().dispatches.get_mut(upstream).unwrap();
        dispatch.state = DispatchState::Pending;
        dispatch.due = due;
        dispatch.attempts_on_clock = 0;
        dispatch.replay = replay;
        dispatch.clock_started_at = now;
        dispatch.clock_stopped_before = stopped;
    }

    pub(super) fn revive(&mut self, event: EventId, due: Timestamp, now: Timestamp) -> bool {
        let dispatches = self.row(event).map(|row| &row.dispatches);
        let dead: Vec<UpstreamName> = dispatches
            .into_iter()
            .flatten()
            .filter(|(_upstream, dispatch)| dispatch.state == DispatchState::Dead)
            .map(|(upstream, _dispatch)| upstream.clone())
            .collect();
        for upstream in &dead {
            self.restart(event, upstream, due, now, false);
        }
        !dead.is_empty()
    }

    /// Handles that live have renewed their leases all along; the others' end.
    pub(super) fn renew_and_lapse(&mut self, now: Timestamp) {
        let renewing: Vec<u64> = self
            .handles
            .iter()
            .filter(|handle| handle.renews)
            .map(|handle| handle.number)
            .collect();
        let dispatches = self.events.values_mut().flat_map(|row| row.dispatches.values_mut());
        for dispatch in dispatches {
            if let Some(lease) = &mut dispatch.lease {
                if renewing.contains(&lease.handle) {
                    lease.until = now.after(LEASE_TTL);
                } else if now >= lease.until {
                    dispatch.give_back();
                }
            }
        }
    }

    /// What lies ready there waits again, with its attempts unused; the window's feed ends.
    pub(super) fn empty(&mut self, window: &Window) {
        for Ready { dispatch: lease, .. } in window.close() {
            if let Some(dispatch) = self.leased(lease.event.id, &lease.upstream, lease.token) {
                dispatch.attempts -= 1;
                dispatch.give_back();
            }
            lease.forget();
        }
    }

    pub(super) fn prune(&mut self, settings: &StoreSettings, now: Timestamp) {
        let tally = &mut self.tally;
        self.events.retain(|_position, row| {
            let old = row.dispatches.values().all(|dispatch| {
                let kept = match dispatch.state {
                    DispatchState::Delivered | DispatchState::Discarded => settings.retention,
                    DispatchState::Dead => settings.dead_retention,
                    DispatchState::Pending | DispatchState::Leased | DispatchState::Held => return false,
                };
                now.since(dispatch.clock_started_at) >= kept
            });
            if old {
                for upstream in row.dispatches.keys() {
                    tally.entry(upstream.clone()).or_default().1 += 1;
                }
            }
            !old
        });
        let events = &self.events;
        self.keys.retain(|(_source, kind, _digest), entry| {
            let row = events.get(&entry.event.position().get());
            let open = row.is_some_and(Row::is_open);
            (open && *kind == Kind::Rule) || now.since(entry.event.received_at()) <= settings.window
        });
    }
}

impl Dispatch {
    /// In its old place; the attempt's number stays used.
    pub(super) fn give_back(&mut self) {
        self.lease = None;
        self.state = DispatchState::Pending;
    }
}

/// Leases what is due, in due order, as far as the window has room.
pub(super) fn fill(
    events: &mut BTreeMap<i64, Row>,
    handle: &Handle,
    upstream: &UpstreamName,
    window: &Window,
    now: Timestamp,
) {
    for Ready { dispatch: lease, .. } in window.take_surplus() {
        let row = events.get_mut(&lease.event.id.position().get());
        let dispatch = row.and_then(|row| row.dispatches.get_mut(upstream));
        if let Some(dispatch) = dispatch.filter(|dispatch| dispatch.lease.is_some_and(|own| own.token == lease.token)) {
            dispatch.attempts -= 1;
            dispatch.give_back();
        }
        lease.forget();
    }
    let mut due: Vec<(Timestamp, i64)> = events
        .iter()
        .filter_map(|(position, row)| Some((row.dispatches.get(upstream)?, *position)))
        .filter(|(dispatch, _position)| dispatch.state == DispatchState::Pending && dispatch.due <= now)
        .map(|(dispatch, position)| (dispatch.due, position))
        .collect();
    due.sort_unstable();
    for (_due, position) in due {
        let room = window.room();
        if room.dispatches == 0 || room.bytes == 0 {
            // Its feed asks again when it runs low.
            window.backlog.store(true, Ordering::Release);
            return;
        }
        let Some(row) = events.get_mut(&position) else { continue };
        let dispatch = lease(row, upstream, handle.number, &handle.backend, now);
        let left = window.push(vec![Ready {
            dispatch,
            weight: weight_of(0, row.event.body.len()),
        }]);
        assert!(left.is_empty(), "a handle's windows are open");
    }
}

/// Leases a pending dispatch to a handle.
pub(super) fn lease(
    row: &mut Row,
    upstream: &UpstreamName,
    handle: u64,
    backend: &Weak<Backend>,
    now: Timestamp,
) -> LeasedDispatch {
    let dispatch = row.dispatches.get_mut(upstream).unwrap();
    let token = LeaseToken::new(rand::random());
    dispatch.state = DispatchState::Leased;
    dispatch.attempts += 1;
    dispatch.lease = Some(Lease {
        token,
        handle,
        until: now.after(LEASE_TTL),
    });
    let (backend, event, name) = (Weak::clone(backend), row.event.id, upstream.clone());
    LeasedDispatch {
        event: Arc::clone(&row.event),
        upstream: upstream.clone(),
        attempt: dispatch.attempts,
        replay: dispatch.replay,
        clock_started_at: dispatch.clock_started_at,
        clock_stopped_before: dispatch.clock_stopped_before,
        attempts_on_clock: dispatch.attempts_on_clock + 1,
        token,
        give_back: Some(GiveBack(Box::new(move || {
            if let Some(backend) = backend.upgrade() {
                backend.give_back(event, &name, token);
            }
        }))),
    }
}
