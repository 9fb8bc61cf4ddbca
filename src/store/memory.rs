//! The reference: a store in plain maps under one lock, the simplest thing that keeps the contract.
//!
//! Any number of handles may have a [`Place`] open at once, as replicas have a database. It does everything at once and in
//! full: each operation looks at all events, and nothing is bounded but the windows. Only tests use it: what it answers
//! is what the others must answer.

mod data;
mod query;
mod records;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use self::data::{Data, Entry, Handle, Kind, Row, fill};

use crate::id::{EventId, LeaseToken, Position, UpstreamName};
use crate::key::KeyKind;
use crate::measure::Histogram;
use crate::store::append::Append;
use crate::store::model::{
    Admission, AppendError, Claim, Death, Decision, DispatchState, Finished, LaneRecord, LaneSave, LeasedDispatch,
    Next, Notice, Receipt, Settled, Share, ShareUse, Undelivered, decide,
};
use crate::store::reply::{Found, Unattempted, Want};
use crate::store::secrets::{FORGET_SECRETS_AFTER, SecretNote, SecretRecord};
use crate::store::settings::{LaneSettings, Live, StoreSettings};
use crate::store::window::{Feed, Window};
use crate::store::{
    AttemptRecord, Counts, Discarded, DispatchSummary, EventDetail, EventFilter, EventPage, EventSummary, Replayed,
    StoreError, UpstreamCounts,
};
use crate::time::Clock;

/// Where the data is.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct Place(Arc<Mutex<Data>>);

impl Place {
    /// Time has passed.
    pub(in crate::store) fn tick(&self) {
        let handles: Vec<Arc<Backend>> = {
            let data = self.0.lock().unwrap();
            data.handles
                .iter()
                .filter_map(|handle| handle.backend.upgrade())
                .collect()
        };
        handles.iter().for_each(|handle| handle.tick());
    }
}

/// One handle's side.
pub(in crate::store) struct Backend {
    place: Place,
    number: u64,
    settings: Mutex<StoreSettings>,
    clock: Clock,
    /// None for those that have left the configuration.
    windows: Mutex<HashMap<UpstreamName, Option<Arc<Window>>>>,
    notices: Mutex<Box<dyn FnMut(Notice) + Send>>,
    shares: Mutex<HashMap<UpstreamName, Share>>,
    used: Mutex<HashMap<UpstreamName, ShareUse>>,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backend").finish_non_exhaustive()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.close();
    }
}

impl Backend {
    pub(in crate::store) fn open(
        place: &Place,
        settings: StoreSettings,
        lanes: Vec<LaneSettings>,
        clock: Clock,
        notices: Box<dyn FnMut(Notice) + Send>,
    ) -> Arc<Self> {
        let mut data = place.0.lock().unwrap();
        data.next_handle += 1;
        let number = data.next_handle;
        let windows: HashMap<UpstreamName, Arc<Window>> =
            lanes.into_iter().map(|lane| (lane.upstream, Arc::default())).collect();
        let backend = Arc::new(Self {
            place: place.clone(),
            number,
            settings: Mutex::new(settings),
            clock,
            windows: Mutex::new(
                windows
                    .iter()
                    .map(|(name, window)| (name.clone(), Some(Arc::clone(window))))
                    .collect(),
            ),
            notices: Mutex::new(notices),
            shares: Mutex::default(),
            used: Mutex::default(),
        });
        data.handles.push(Handle {
            number,
            windows,
            renews: true,
            backend: Arc::downgrade(&backend),
        });
        drop(data);
        backend.tick();
        backend
    }

    pub(in crate::store) fn reconfigure(&self, live: &Live) -> Result<(), StoreError> {
        if !self.is_open() {
            return Err(StoreError::Closing);
        }
        let mut data = self.lock();
        self.settings.lock().unwrap().take_over(live);
        let mut windows = self.windows.lock().unwrap();
        for (name, window) in windows.iter_mut() {
            if !live.lanes.iter().any(|lane| lane.upstream == *name)
                && let Some(window) = window.take()
            {
                data.empty(&window);
            }
        }
        for lane in &live.lanes {
            let window = windows.entry(lane.upstream.clone()).or_default();
            window.get_or_insert_with(Arc::default);
        }
        let own = data.handles.iter_mut().find(|handle| handle.number == self.number);
        own.unwrap().windows = windows
            .iter()
            .filter_map(|(name, window)| Some((name.clone(), Arc::clone(window.as_ref()?))))
            .collect();
        drop((windows, data));
        self.tick();
        Ok(())
    }

    fn settings(&self) -> StoreSettings {
        self.settings.lock().unwrap().clone()
    }

    /// Those of the configured upstreams.
    fn windows(&self) -> Vec<(UpstreamName, Arc<Window>)> {
        let windows = self.windows.lock().unwrap();
        let configured = windows.iter();
        configured
            .filter_map(|(name, window)| Some((name.clone(), Arc::clone(window.as_ref()?))))
            .collect()
    }

    fn window(&self, upstream: &UpstreamName) -> Option<Arc<Window>> {
        self.windows.lock().unwrap().get(upstream)?.clone()
    }

    pub(in crate::store) fn append(&self, append: Append) -> Result<(), AppendError> {
        if !self.is_open() {
            return Err(AppendError::Closing);
        }
        let mut data = self.lock();
        let position = Position::new(data.next_position).unwrap();
        data.next_position += 1;
        let mut event = append.event;
        let id = EventId::embedded(event.received_at, position, append.random);
        Arc::get_mut(&mut event).unwrap().id = id;
        let now = self.clock.now();

        let source = event.source.clone();
        let kind = match append.key.kind() {
            KeyKind::Rule => Kind::Rule,
            KeyKind::Digest => Kind::Digest,
        };
        let near = |other: EventId| {
            let apart = other.received_at().since(event.received_at);
            apart.max(event.received_at.since(other.received_at())) <= self.settings().digest_window
        };
        let key = (source.clone(), kind, *append.key.digest());
        let own = data.keys.get(&key).copied();
        let own = own.filter(|entry| kind == Kind::Rule || near(entry.event));
        let this = Entry {
            event: id,
            body_mark: append.body_mark,
        };
        let (admission, survivor) = match decide(own.map(|entry| entry.event), id, Claim::Unheard, false) {
            Decision::DuplicateHere { of } => {
                let entry = own.unwrap();
                let conflict = entry.body_mark != append.body_mark;
                let due = self.settings().due(&source, now);
                let admission = if data.revive(of, due, now) {
                    Admission::Revived { of }
                } else {
                    Admission::Duplicate { of, conflict }
                };
                (admission, entry)
            }
            Decision::New => {
                data.keys.insert(key, this);
                let content = append.content.map(|content| (source.clone(), Kind::Content, content));
                let seen = content.as_ref().and_then(|content| data.keys.get(content));
                let held = seen.is_some_and(|entry| near(entry.event));
                if let Some(content) = content.filter(|_content| !held) {
                    data.keys.insert(content, this);
                }
                data.events.insert(
                    position.get(),
                    Row {
                        event: Arc::clone(&event),
                        key: append.key,
                        body_mark: append.body_mark,
                        dispatches: BTreeMap::new(),
                    },
                );
                for upstream in append.upstreams.iter() {
                    let due = self.settings().due(&source, event.received_at.min(now));
                    data.make(position.get(), upstream, due, now, false);
                }
                if held {
                    let row = data.events.get_mut(&position.get()).unwrap();
                    for dispatch in row.dispatches.values_mut() {
                        dispatch.state = DispatchState::Held;
                    }
                }
                (if held { Admission::Held } else { Admission::New }, this)
            }
            Decision::Elsewhere { .. } => unreachable!("no claim was made"),
        };
        let _hung_up = append.receipt.send(Ok(Receipt::stored(id)));
        self.tell(Notice::Admitted {
            appended: id,
            claim: None,
            source,
            key: append.key,
            event: survivor.event,
            body_mark: survivor.body_mark,
            received_at: survivor.event.received_at(),
            admission,
        });
        drop(data);
        self.tick();
        Ok(())
    }

    pub(in crate::store) fn upstreams(&self) -> Vec<UpstreamName> {
        self.windows().into_iter().map(|(name, _window)| name).collect()
    }

    pub(in crate::store) fn feed(self: &Arc<Self>, upstream: &UpstreamName) -> Option<Feed> {
        let backend = Arc::downgrade(self);
        Some(Feed {
            window: self.window(upstream)?,
            nudge: Box::new(move || {
                if let Some(backend) = backend.upgrade() {
                    backend.tick();
                }
            }),
        })
    }

    pub(in crate::store) fn holds(&self, lease: &LeasedDispatch) -> bool {
        let mut data = self.lock();
        data.leased(lease.event.id, &lease.upstream, lease.token).is_some()
    }

    pub(in crate::store) fn settle(
        &self,
        mut finished: Finished,
        next: Next,
        settled: oneshot::Sender<Settled>,
    ) -> Result<(), StoreError> {
        finished.lease.give_back = None;
        if !self.is_open() {
            return Err(StoreError::Closing);
        }
        let mut data = self.lock();
        let lease = &finished.lease;
        let mut found = Settled::LeaseLost;
        if let Some(dispatch) = data.leased(lease.event.id, &lease.upstream, lease.token) {
            found = Settled::Recorded;
            dispatch.lease = None;
            dispatch.attempts_on_clock += 1;
            dispatch.finished.push(AttemptRecord {
                number: lease.attempt,
                started_at: finished.started_at,
                took: finished.took,
                outcome: finished.outcome,
                excerpt: finished.excerpt,
            });
            dispatch.state = match next {
                Next::Delivered => {
                    dispatch.reply = finished.reply.or(dispatch.reply.take());
                    DispatchState::Delivered
                }
                Next::Retry { due } => {
                    dispatch.due = due;
                    DispatchState::Pending
                }
                Next::Dead => DispatchState::Dead,
            };
            if next == Next::Dead {
                self.died(&mut data, lease.event.id);
            }
        }
        drop(data);
        let _stopped = settled.send(found);
        self.tick();
        Ok(())
    }

    fn died(&self, data: &mut Data, event: EventId) {
        let row = data.row(event).unwrap();
        let death = Death {
            source: row.event.source.clone(),
            key: row.key,
            event: row.event.id,
        };
        self.tell(Notice::Died(death.clone()));
        if self.settings().keep_deaths {
            data.deaths.push((death, false));
        }
    }

    pub(in crate::store) fn take_ready(&self, upstream: &UpstreamName, event: EventId) -> Option<LeasedDispatch> {
        self.window(upstream)?.take(event)
    }

    pub(in crate::store) fn decline(
        &self,
        mut lease: LeasedDispatch,
        then: Unattempted,
        settled: oneshot::Sender<Settled>,
    ) -> Result<(), StoreError> {
        lease.give_back = None;
        if !self.is_open() {
            return Err(StoreError::Closing);
        }
        let mut data = self.lock();
        let mut found = Settled::LeaseLost;
        if let Some(dispatch) = data.leased(lease.event.id, &lease.upstream, lease.token) {
            found = Settled::Recorded;
            dispatch.attempts -= 1;
            dispatch.give_back();
            match then {
                Unattempted::Later { due } => dispatch.due = due,
                Unattempted::Dead => {
                    dispatch.state = DispatchState::Dead;
                    self.died(&mut data, lease.event.id);
                }
            }
        }
        drop(data);
        let _stopped = settled.send(found);
        self.tick();
        Ok(())
    }

    pub(in crate::store) fn lease_now(self: &Arc<Self>, want: &Want) -> Result<Found, StoreError> {
        if !self.is_open() {
            return Err(StoreError::Closing);
        }
        if self.window(&want.upstream).is_none() {
            return Err(StoreError::UnknownUpstream(want.upstream.clone()));
        }
        self.tick();
        let now = self.clock.now();
        let mut data = self.lock();
        let event = match data.row(want.event) {
            Some(row) => row.event.id,
            None => {
                let kind = match want.key.kind() {
                    KeyKind::Rule => Kind::Rule,
                    KeyKind::Digest => Kind::Digest,
                };
                match data.keys.get(&(want.source.clone(), kind, *want.key.digest())) {
                    Some(entry) => entry.event,
                    None => return Ok(Found::Over(None)),
                }
            }
        };
        let Some(row) = data.row(event) else {
            return Ok(Found::Over(None));
        };
        let Some(dispatch) = row.dispatches.get(&want.upstream) else {
            return Ok(Found::Elsewhere);
        };
        if let Some(reply) = &dispatch.reply {
            return Ok(Found::Replied(reply.clone()));
        }
        match dispatch.state {
            DispatchState::Leased => Ok(Found::Running { event }),
            state @ (DispatchState::Delivered | DispatchState::Held | DispatchState::Discarded) => {
                Ok(Found::Over(Some(state)))
            }
            DispatchState::Dead | DispatchState::Pending if !want.take => Ok(Found::Waiting),
            DispatchState::Dead | DispatchState::Pending => {
                if dispatch.state == DispatchState::Dead {
                    data.restart(
                        event,
                        &want.upstream,
                        self.settings().due(&want.source, now),
                        now,
                        false,
                    );
                }
                let row = data.row(event).unwrap();
                Ok(Found::Leased(data::lease(
                    row,
                    &want.upstream,
                    self.number,
                    &Arc::downgrade(self),
                    now,
                )))
            }
        }
    }

    pub(in crate::store) fn untold_deaths(&self, limit: usize) -> Vec<Death> {
        let mut data = self.lock();
        let mut untold: Vec<Death> = Vec::new();
        for (death, looked_at) in &mut data.deaths {
            if untold.contains(death) || untold.len() < limit {
                *looked_at = true;
                if !untold.contains(death) {
                    untold.push(death.clone());
                }
            }
        }
        untold
    }

    pub(in crate::store) fn deaths_told(&self, told: &[Death]) {
        let mut data = self.lock();
        data.deaths
            .retain(|(death, looked_at)| !(*looked_at && told.contains(death)));
    }

    pub(in crate::store) fn note_secrets(&self, notes: Vec<SecretNote>) {
        let now = self.clock.now();
        let mut data = self.lock();
        for note in notes {
            let known = data.secrets.entry((note.source.clone(), note.mark));
            let fresh = SecretRecord {
                source: note.source,
                mark: note.mark,
                since: now,
                last_used: None,
                others: 0,
            };
            let (known, seen_at) = known.or_insert((fresh, now));
            *seen_at = now;
            if note.used.is_some() && note.used >= known.last_used {
                known.others = 0;
            }
            known.others += note.others;
            known.last_used = known.last_used.max(note.used);
        }
        data.secrets
            .retain(|_secret, (_record, seen_at)| *seen_at >= now.before(FORGET_SECRETS_AFTER));
    }

    pub(in crate::store) fn secrets(&self) -> Vec<SecretRecord> {
        self.lock()
            .secrets
            .values()
            .map(|(record, _seen_at)| record.clone())
            .collect()
    }

    pub(in crate::store) fn commit_times(&self) -> Arc<Histogram> {
        Arc::default()
    }

    pub(in crate::store) fn is_writable(&self) -> Result<(), AppendError> {
        self.is_open().then_some(()).ok_or(AppendError::Closing)
    }

    pub(in crate::store) fn lane_record(&self, upstream: &UpstreamName) -> LaneRecord {
        self.lock().lanes.get(upstream).copied().unwrap_or_default()
    }

    pub(in crate::store) fn save_lane_record(
        &self,
        upstream: UpstreamName,
        save: LaneSave,
    ) -> Result<LaneRecord, StoreError> {
        if !self.windows.lock().unwrap().contains_key(&upstream) {
            return Err(StoreError::UnknownUpstream(upstream));
        }
        let mut data = self.lock();
        let record = data.lanes.entry(upstream).or_default();
        if let Some(paused) = save.order {
            record.paused = paused;
            record.orders += 1;
        }
        record.stopped_total = record.stopped_total.max(save.stopped_total);
        Ok(*record)
    }

    /// Nobody divides a pace here: tests say what each handle has.
    pub(in crate::store) fn share(&self, upstream: &UpstreamName) -> Option<Share> {
        self.shares.lock().unwrap().get(upstream).copied()
    }

    pub(in crate::store) fn grant(&self, upstream: UpstreamName, share: Share) {
        self.shares.lock().unwrap().insert(upstream, share);
    }

    /// What was reported last.
    pub(in crate::store) fn share_use(&self, upstream: &UpstreamName) -> Option<ShareUse> {
        self.used.lock().unwrap().get(upstream).copied()
    }

    pub(in crate::store) fn report_share_use(&self, upstream: &UpstreamName, used: ShareUse) {
        self.used.lock().unwrap().insert(upstream.clone(), used);
    }

    /// Hands unused leases back; their attempts have not begun.
    pub(in crate::store) fn close(&self) {
        let mut data = self.lock();
        data.abandon_calls(self.number);
        data.handles.retain(|handle| handle.number != self.number);
        for (_name, window) in self.windows() {
            data.empty(&window);
        }
        drop(data);
        self.tick();
    }

    /// Its process is stopped: it renews nothing any more.
    pub(in crate::store) fn freeze(&self) {
        let mut data = self.lock();
        let own = data.handles.iter_mut().find(|handle| handle.number == self.number);
        own.unwrap().renews = false;
    }

    /// Its process is dead: nothing is handed back.
    pub(in crate::store) fn crash(&self) {
        let mut data = self.lock();
        data.handles.retain(|handle| handle.number != self.number);
        for (_name, window) in self.windows() {
            window.close().into_iter().for_each(|ready| ready.dispatch.forget());
        }
    }

    /// Does what time and other handles' work have made due: leases end, what is old goes, windows are filled, this
    /// handle's first.
    pub(in crate::store) fn tick(&self) {
        let now = self.clock.now();
        let mut data = self.lock();
        let data = &mut *data;
        data.renew_and_lapse(now);
        data.prune(&self.settings(), now);
        data.settle_records(now);
        let (own, others): (Vec<&Handle>, Vec<&Handle>) =
            data.handles.iter().partition(|handle| handle.number == self.number);
        for handle in own.into_iter().chain(others).filter(|handle| handle.renews) {
            for (upstream, window) in &handle.windows {
                fill(&mut data.events, handle, upstream, window, now);
            }
        }
    }

    fn give_back(&self, event: EventId, upstream: &UpstreamName, token: LeaseToken) {
        if self.is_open() {
            let mut data = self.lock();
            if let Some(dispatch) = data.leased(event, upstream, token) {
                dispatch.give_back();
            }
            drop(data);
            self.tick();
        }
    }

    fn tell(&self, notice: Notice) {
        (self.notices.lock().unwrap())(notice);
    }

    fn is_open(&self) -> bool {
        let data = self.lock();
        data.handles.iter().any(|handle| handle.number == self.number)
    }

    fn lock(&self) -> MutexGuard<'_, Data> {
        self.place.0.lock().unwrap()
    }
}
