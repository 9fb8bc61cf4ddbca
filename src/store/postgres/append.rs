//! Appending, which on a shared store is admitting: one transaction takes the keys, stores the events that got theirs and
//! makes their dispatches, leased to this replica where their lane has room (P2).
//!
//! Two batches are under way at a time, so that one is gathered while another's commit is synced. A batch that fails is
//! tried again with the same ids and tokens: where the outcome was unknown and it had been committed, its events find
//! their own keys. What found its key taken is a duplicate; a second transaction finds its survivor and brings the
//! survivor's dead dispatches back.

mod publish;
mod survivors;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Type;
use uuid::Uuid;

use self::publish::publish;
use self::survivors::find_survivors;
use super::connect::Failure;
use super::inbox::Waiting;
use super::stored::CALL_APPEND;
use super::transaction::{Committed, Step};
use super::{Shared, state_from};
use crate::id::{EventId, LeaseToken};
use crate::key::KeyKind;
use crate::store::model::{AppendError, DispatchState};
use crate::time::{Monotonic, Timestamp};

/// How long an append may take, with all its repetitions.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);
/// The first pause between two tries; it doubles.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
/// And the longest.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// One append in a batch.
struct Entry {
    waiting: Waiting,
    uuid: Uuid,
    source: i32,
    weight: usize,
    dispatches: Vec<Planned>,
    /// Others with the same key, which this one decides for.
    followers: Vec<Waiting>,
    /// When it was first on its way: a lease that an earlier try wrote runs from then.
    sent: Option<Monotonic>,
}

/// A dispatch that the event gets if it is new.
struct Planned {
    upstream: i32,
    lane: Option<usize>,
    /// There is room for it: it is leased with this token.
    token: Option<LeaseToken>,
}

impl Entry {
    fn id(&self) -> EventId {
        self.waiting.append.event.id
    }

    fn kind(&self) -> i16 {
        kind_number(self.waiting.append.key.kind())
    }

    /// Gives the room back that was reserved for it.
    fn release(&self, shared: &Shared) {
        for planned in &self.dispatches {
            if let (Some(lane), Some(_)) = (planned.lane.and_then(|slot| shared.lanes.get(slot)), planned.token) {
                lane.release(1, self.weight);
            }
        }
    }

    fn fail(self, shared: &Shared, why: &str) {
        self.release(shared);
        if self.sent.is_some() {
            // It may be stored all the same.
            let tokens = self.dispatches.iter().filter_map(|planned| planned.token);
            shared.orphans.add(tokens.map(LeaseToken::get));
        }
        let all = std::iter::once(self.waiting).chain(self.followers);
        for waiting in all {
            // A sender that hung up does not matter.
            let _hung_up = waiting.append.receipt.send(Err(AppendError::Failed(why.to_owned())));
        }
    }
}

/// What became of an entry.
enum Decided {
    /// Its event is stored: by dispatch what it was made as.
    New(Vec<DispatchState>),
    Duplicate(Survivor),
}

/// The event that has a key.
#[derive(Clone, Debug)]
struct Survivor {
    event: EventId,
    body_mark: [u8; 8],
    received_at: Timestamp,
    revived: Vec<i32>,
}

/// A task that appends batches until the inbox closes. `writer`: no two that run at once have the same.
pub(super) async fn run(shared: Arc<Shared>, writer: i16) {
    while let Some((batch, _under_way)) = shared.inbox.take_appends().await {
        append(&shared, writer, batch).await;
    }
}

async fn append(shared: &Arc<Shared>, writer: i16, batch: Vec<Waiting>) {
    let batch = match learn_names(shared, batch).await {
        Some(batch) => batch,
        None => return,
    };
    let (entries, deferred) = plan(shared, batch);
    shared.inbox.again(deferred);
    // Halves of a batch that the database refuses for its values, until the one that it refuses stands alone.
    let mut parts = vec![entries];
    while let Some(part) = parts.pop() {
        let Some(mut part) = write(shared, writer, part).await else {
            continue;
        };
        if part.len() > 1 {
            let half = part.split_off(part.len() / 2);
            parts.push(half);
            parts.push(part);
        } else {
            for entry in part {
                entry.fail(shared, "the database refuses this event");
            }
        }
    }
}

/// Makes sure that the sources and upstreams of a batch have numbers; `None` when that failed and all are answered.
async fn learn_names(shared: &Shared, mut batch: Vec<Waiting>) -> Option<Vec<Waiting>> {
    let mut pause = PAUSE;
    loop {
        let sources = batch.iter().map(|waiting| waiting.append.event.source.as_str());
        let mut learnt = shared.sources.learn(&shared.database, sources).await;
        if learnt.is_ok() {
            let upstreams = batch.iter().flat_map(|waiting| waiting.append.upstreams.iter());
            learnt = shared
                .upstreams
                .learn(&shared.database, upstreams.map(|upstream| upstream.as_str()))
                .await;
        }
        let Err(failure) = learnt else { return Some(batch) };
        shared.failed(&failure);
        let now = shared.leases_now();
        let (expired, kept) = batch
            .into_iter()
            .partition(|waiting| is_final(&failure) || now.since(waiting.since) >= PATIENCE);
        refuse(expired, &failure.to_string());
        batch = kept;
        if batch.is_empty() {
            return None;
        }
        pause = wait(pause).await;
    }
}

fn refuse(batch: Vec<Waiting>, why: &str) {
    for waiting in batch {
        let _hung_up = waiting.append.receipt.send(Err(AppendError::Failed(why.to_owned())));
    }
}

/// Whether trying again is of no use.
pub(super) fn is_final(failure: &Failure) -> bool {
    matches!(failure, Failure::Data(_) | Failure::Refused(_))
}

pub(super) async fn wait(pause: Duration) -> Duration {
    tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
    (pause * 2).min(PAUSE_MAX)
}

/// One entry for each key, and what has to wait for the next batch.
fn plan(shared: &Shared, batch: Vec<Waiting>) -> (Vec<Entry>, Vec<Waiting>) {
    let now = shared.database.now();
    let monotonic = shared.leases_now();
    let mut entries: Vec<Entry> = Vec::with_capacity(batch.len());
    let mut by_key: HashMap<(i32, [u8; 32], i16), usize> = HashMap::new();
    let mut contents: HashMap<(i32, [u8; 32]), ()> = HashMap::new();
    let mut deferred = Vec::new();
    for waiting in batch {
        let append = &waiting.append;
        let Some(source) = shared.sources.id(append.event.source.as_str()) else {
            refuse(vec![waiting], "its source has no number");
            continue;
        };
        let key = (source, *append.key.digest(), kind_number(append.key.kind()));
        if let Some(leader) = by_key.get(&key).and_then(|at| entries.get_mut(*at)) {
            leader.followers.push(waiting);
            continue;
        }
        if let Some(content) = append.content
            && contents.insert((source, content), ()).is_some()
        {
            // Whether its content was seen depends on what becomes of the other one.
            deferred.push(waiting);
            continue;
        }
        let weight = append.bytes();
        let mut dispatches: Vec<Planned> = Vec::with_capacity(append.upstreams.len());
        for name in append.upstreams.iter() {
            let Some(upstream) = shared.upstreams.id(name.as_str()) else {
                continue;
            };
            if dispatches.iter().any(|planned| planned.upstream == upstream) {
                continue;
            }
            let lane = shared.lanes.named(name);
            let token = lane
                .as_ref()
                // What somebody waits for is not for the lane.
                .filter(|_lane| !shared.settings().synchronous.contains_key(&append.event.source))
                .filter(|(_slot, lane)| lane.reserve(weight, now, monotonic))
                .map(|_room| LeaseToken::new(rand::random()));
            dispatches.push(Planned {
                upstream,
                lane: lane.map(|(slot, _lane)| slot),
                token,
            });
        }
        by_key.insert(key, entries.len());
        entries.push(Entry {
            uuid: Uuid::from_bytes(*append.event.id.as_bytes()),
            source,
            weight,
            dispatches,
            followers: Vec::new(),
            sent: None,
            waiting,
        });
    }
    (entries, deferred)
}

/// Writes a batch until it is committed or its time is over. Returns what the database refuses for its values.
async fn write(shared: &Arc<Shared>, writer: i16, mut entries: Vec<Entry>) -> Option<Vec<Entry>> {
    let mut pause = PAUSE;
    loop {
        let began = shared.leases_now();
        for entry in &mut entries {
            entry.sent.get_or_insert(began);
        }
        let done = store(shared, writer, &entries).await;
        let failure = match done {
            Ok(committed) => {
                shared.commit_times.observe(shared.leases_now().since(began));
                shared.succeeded();
                decide(shared, writer, entries, &committed).await;
                return None;
            }
            Err(Failure::Data(why)) => {
                tracing::error!(why, events = entries.len(), "the database refuses an event");
                return Some(entries);
            }
            Err(failure) => failure,
        };
        shared.failed(&failure);
        entries = keep_waiting(shared, entries, &failure);
        if entries.is_empty() {
            return None;
        }
        pause = wait(pause).await;
    }
}

/// Answers those whose time is over; the others are returned.
fn keep_waiting(shared: &Shared, entries: Vec<Entry>, failure: &Failure) -> Vec<Entry> {
    let now = shared.leases_now();
    let mut kept = Vec::with_capacity(entries.len());
    for entry in entries {
        if is_final(failure) || now.since(entry.waiting.since) >= PATIENCE {
            entry.fail(shared, &failure.to_string());
        } else {
            kept.push(entry);
        }
    }
    kept
}

/// The transaction.
async fn store(shared: &Shared, writer: i16, entries: &[Entry]) -> Result<Committed, Failure> {
    let now = shared.database.now();
    let mut rows = Columns::default();
    for entry in entries {
        rows.push(shared, entry, now);
    }
    let usual = |entry: &Entry| entry.kind() == 0 && entry.waiting.append.content.is_none();
    let sql = if entries.iter().all(usual) {
        CALL_APPEND.as_str()
    } else {
        include_str!("append_any.sql")
    };
    let digest_window = millis(shared.settings().digest_window);
    let ttl = millis(shared.tuning.lease_ttl);
    let started_at = now.as_millis();
    let step = Step::new(
        sql,
        [
            (&rows.events as _, Type::UUID_ARRAY),
            (&rows.sources as _, Type::INT4_ARRAY),
            (&rows.kinds as _, Type::INT2_ARRAY),
            (&rows.keys as _, Type::BYTEA_ARRAY),
            (&rows.body_marks as _, Type::INT8_ARRAY),
            (&rows.received_at as _, Type::INT8_ARRAY),
            (&rows.contents as _, Type::BYTEA_ARRAY),
            (&rows.delivery_ids as _, Type::BYTEA_ARRAY),
            (&rows.event_types as _, Type::BYTEA_ARRAY),
            (&rows.heads as _, Type::BYTEA_ARRAY),
            (&rows.bodies as _, Type::BYTEA_ARRAY),
            (&rows.of as _, Type::UUID_ARRAY),
            (&rows.upstreams as _, Type::INT4_ARRAY),
            (&rows.due as _, Type::INT8_ARRAY),
            (&rows.tokens as _, Type::INT8_ARRAY),
            (&rows.stopped_before as _, Type::INT8_ARRAY),
            (&rows.weights as _, Type::INT4_ARRAY),
            (&started_at as _, Type::INT8),
            (&digest_window as _, Type::INT8),
            (&ttl as _, Type::INT8),
            (&rows.have_content as _, Type::BOOL_ARRAY),
            (&shared.replica as _, Type::UUID),
            (&writer as _, Type::INT2),
        ],
    );
    shared.database.write(&[step]).await
}

/// A batch as arrays: an event each, and a dispatch each.
#[derive(Default)]
struct Columns<'a> {
    events: Vec<Uuid>,
    sources: Vec<i32>,
    kinds: Vec<i16>,
    keys: Vec<&'a [u8]>,
    body_marks: Vec<i64>,
    received_at: Vec<i64>,
    contents: Vec<Option<&'a [u8]>>,
    delivery_ids: Vec<Option<&'a [u8]>>,
    event_types: Vec<Option<&'a [u8]>>,
    heads: Vec<&'a [u8]>,
    bodies: Vec<&'a [u8]>,
    of: Vec<Uuid>,
    upstreams: Vec<i32>,
    due: Vec<i64>,
    tokens: Vec<Option<i64>>,
    stopped_before: Vec<i64>,
    weights: Vec<i32>,
    have_content: Vec<bool>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, shared: &Shared, entry: &'a Entry, now: Timestamp) {
        let append = &entry.waiting.append;
        let event = &append.event;
        self.events.push(entry.uuid);
        self.sources.push(entry.source);
        self.kinds.push(entry.kind());
        self.keys.push(append.key.digest());
        self.body_marks.push(i64::from_be_bytes(append.body_mark));
        self.received_at.push(event.received_at.as_millis());
        self.contents.push(append.content.as_ref().map(<[u8; 32]>::as_slice));
        self.delivery_ids.push(event.delivery_id.as_deref().map(str::as_bytes));
        self.event_types.push(event.event_type.as_deref().map(str::as_bytes));
        self.heads.push(&append.head);
        self.bodies.push(&event.body);
        for planned in &entry.dispatches {
            let lane = planned.lane.and_then(|slot| shared.lanes.get(slot));
            let stopped = lane.map_or(Duration::ZERO, |lane| lane.state().record.stopped_total);
            self.of.push(entry.uuid);
            self.upstreams.push(planned.upstream);
            // In the order of arrival; a received-at time ahead of the database's clock must not delay it.
            let due = shared.settings().due(&event.source, event.received_at.min(now));
            self.due.push(due.as_millis());
            self.tokens.push(planned.token.map(LeaseToken::get));
            self.stopped_before.push(millis(stopped));
            self.weights.push(i32::try_from(entry.weight).unwrap_or(i32::MAX));
            self.have_content.push(append.content.is_some());
        }
    }
}

/// The batch is durable: who is new, and who is whose duplicate.
async fn decide(shared: &Arc<Shared>, writer: i16, entries: Vec<Entry>, committed: &Committed) {
    let mut made: HashMap<Uuid, Vec<(i32, DispatchState)>> = HashMap::with_capacity(entries.len());
    for row in committed.step(0) {
        if let (Ok(event), Ok(upstream), Ok(state)) = (row.try_get(0), row.try_get(1), row.try_get(2)) {
            made.entry(event).or_default().push((upstream, state_from(state)));
        }
    }
    let (mut decided, mut duplicates) = (Vec::with_capacity(entries.len()), Vec::new());
    for entry in entries {
        match made.remove(&entry.uuid) {
            Some(states) => {
                let states = in_plan(&entry, &states);
                decided.push((entry, Decided::New(states)));
            }
            None => duplicates.push(entry),
        }
    }
    publish(shared, decided);
    if !duplicates.is_empty() {
        find_survivors(shared, writer, duplicates).await;
    }
}

/// The states of an entry's dispatches in the order of its plan.
fn in_plan(entry: &Entry, states: &[(i32, DispatchState)]) -> Vec<DispatchState> {
    let of = |planned: &Planned| {
        let found = states.iter().find(|(upstream, _state)| *upstream == planned.upstream);
        // None of ours, so nothing to hand out.
        found.map_or(DispatchState::Pending, |(_upstream, state)| *state)
    };
    entry.dispatches.iter().map(of).collect()
}

/// The number that a kind of key has in the database.
pub(super) fn kind_number(kind: KeyKind) -> i16 {
    match kind {
        KeyKind::Rule => 0,
        KeyKind::Digest => 1,
    }
}

/// A duration as the database takes it.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
