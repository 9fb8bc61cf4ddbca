//! Appending, which on a shared store is admitting: one transaction takes the keys, stores the events that got theirs and
//! makes their dispatches, leased to this replica where their lane has room (P2).
//!
//! Two batches are under way at a time, so that one is gathered while another's commit is synced. A batch that fails is
//! tried again with the same ids and tokens: where the outcome was unknown and it had been committed, its events find
//! their own keys. What found its key taken is a duplicate; a second transaction finds its survivor and brings the
//! survivor's dead dispatches back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::connect::Failure;
use super::hand_out::Grant;
use super::inbox::Waiting;
use super::stored::CALL_APPEND;
use super::transaction::{Committed, Step};
use super::{Shared, state_from};
use crate::id::{EventId, LeaseToken};
use crate::key::KeyKind;
use crate::store::model::{Admission, AppendError, DispatchState, Notice, Receipt};
use crate::time::{Monotonic, Timestamp};

/// How long an append may take, with all its repetitions.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);
/// The first pause between two tries; it doubles.
const PAUSE: Duration = Duration::from_millis(20);
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
fn is_final(failure: &Failure) -> bool {
    matches!(failure, Failure::Data(_) | Failure::Refused(_))
}

async fn wait(pause: Duration) -> Duration {
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
    let digest_window = millis(shared.settings.digest_window);
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
            self.due.push(event.received_at.min(now).as_millis());
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

/// Finds who has the keys of duplicates, in a transaction whose commit is synced: the answer rests on what it saw.
async fn find_survivors(shared: &Arc<Shared>, writer: i16, mut entries: Vec<Entry>) {
    let mut pause = PAUSE;
    loop {
        match look_up(shared, writer, &entries).await {
            Ok(decided) => return settle_duplicates(shared, entries, decided),
            Err(failure) => {
                shared.failed(&failure);
                entries = keep_waiting(shared, entries, &failure);
                if entries.is_empty() {
                    return;
                }
            }
        }
        pause = wait(pause).await;
    }
}

/// By entry: who it is a duplicate of, or how it was stored by an earlier try; `None` where the key was let go meanwhile.
async fn look_up(shared: &Shared, writer: i16, entries: &[Entry]) -> Result<Vec<Option<Decided>>, Failure> {
    let sources: Vec<i32> = entries.iter().map(|entry| entry.source).collect();
    let kinds: Vec<i16> = entries.iter().map(Entry::kind).collect();
    let keys: Vec<&[u8]> = entries
        .iter()
        .map(|entry| entry.waiting.append.key.digest().as_slice())
        .collect();
    let own: Vec<Uuid> = entries.iter().map(|entry| entry.uuid).collect();
    let now = shared.database.now().as_millis();
    let steps = [
        Step::new(
            include_str!("survivors.sql"),
            [
                (&sources as _, Type::INT4_ARRAY),
                (&kinds as _, Type::INT2_ARRAY),
                (&keys as _, Type::BYTEA_ARRAY),
                (&now as _, Type::INT8),
                (&shared.replica as _, Type::UUID),
                (&writer as _, Type::INT2),
            ],
        ),
        Step::new(include_str!("own_dispatches.sql"), [(&own as _, Type::UUID_ARRAY)]),
        Step::new(include_str!("witness.sql"), []),
    ];
    let committed = shared.database.write(&steps).await?;
    let mut stored: HashMap<Uuid, Vec<(i32, DispatchState, Option<i64>)>> = HashMap::new();
    for row in committed.step(1) {
        let state: i16 = row.try_get("state")?;
        stored.entry(row.try_get("event")?).or_default().push((
            row.try_get("upstream")?,
            state_from(state),
            row.try_get("token")?,
        ));
    }
    let mut decided: Vec<Option<Decided>> = entries.iter().map(|_entry| None).collect();
    for row in committed.step(0) {
        let place: i64 = row.try_get("place")?;
        let at = usize::try_from(place.saturating_sub(1)).unwrap_or(usize::MAX);
        let (Some(entry), Some(found)) = (entries.get(at), decided.get_mut(at)) else {
            continue;
        };
        let event: Uuid = row.try_get("event")?;
        *found = Some(if event == entry.uuid {
            Decided::New(stored_states(
                entry,
                stored.get(&event).map(Vec::as_slice).unwrap_or_default(),
            ))
        } else {
            Decided::Duplicate(Survivor {
                event: EventId::from_bytes(*event.as_bytes()),
                body_mark: row.try_get::<_, i64>("body_mark")?.to_be_bytes(),
                received_at: Timestamp::from_millis(row.try_get("received_at")?),
                revived: row.try_get("revived")?,
            })
        });
    }
    Ok(decided)
}

/// As [`in_plan`] for an event that an earlier try stored: a lease counts only while it is the one that try wrote.
fn stored_states(entry: &Entry, stored: &[(i32, DispatchState, Option<i64>)]) -> Vec<DispatchState> {
    let of = |planned: &Planned| {
        let found = stored.iter().find(|(upstream, ..)| *upstream == planned.upstream);
        match found {
            Some((_upstream, DispatchState::Leased, token)) if *token != planned.token.map(LeaseToken::get) => {
                DispatchState::Pending
            }
            Some((_upstream, state, _token)) => *state,
            None => DispatchState::Pending,
        }
    };
    entry.dispatches.iter().map(of).collect()
}

fn settle_duplicates(shared: &Arc<Shared>, entries: Vec<Entry>, decided: Vec<Option<Decided>>) {
    let (mut known, mut again) = (Vec::new(), Vec::new());
    for (entry, decided) in entries.into_iter().zip(decided) {
        match decided {
            Some(decided) => known.push((entry, decided)),
            None => {
                entry.release(shared);
                again.push(entry.waiting);
                again.extend(entry.followers);
            }
        }
    }
    publish(shared, known);
    shared.inbox.again(again);
}

/// Tells everybody; senders come first.
fn publish(shared: &Arc<Shared>, decided: Vec<(Entry, Decided)>) {
    let (mut notices, mut grants, mut again) = (Vec::new(), Vec::new(), Vec::new());
    let now = shared.database.now();
    let mut others_may_take = false;
    for (entry, decided) in decided {
        let id = entry.id();
        let until = shared.lease_until(entry.sent.unwrap_or_default());
        match decided {
            Decided::New(states) => {
                let event = Arc::clone(&entry.waiting.append.event);
                let held = states.contains(&DispatchState::Held);
                for (planned, state) in entry.dispatches.iter().zip(&states) {
                    let Some((slot, lane)) = planned.lane.and_then(|slot| Some((slot, shared.lanes.get(slot)?))) else {
                        others_may_take |= *state == DispatchState::Pending;
                        continue;
                    };
                    match (state, planned.token) {
                        (DispatchState::Leased, Some(token)) => grants.push(Grant {
                            lane: slot,
                            event: Arc::clone(&event),
                            key: entry.waiting.append.key,
                            weight: entry.weight,
                            reserved: true,
                            token,
                            until,
                            attempt: 1,
                            attempts_on_clock: 1,
                            replay: false,
                            clock_started_at: now,
                            clock_stopped_before: lane.state().record.stopped_total,
                        }),
                        (state, token) => {
                            if token.is_some() {
                                lane.release(1, entry.weight);
                            }
                            if *state == DispatchState::Pending {
                                lane.pending_from(event.received_at.min(now));
                                others_may_take = true;
                            }
                        }
                    }
                }
                let survivor = Survivor {
                    event: id,
                    body_mark: entry.waiting.append.body_mark,
                    received_at: event.received_at,
                    revived: Vec::new(),
                };
                let admission = if held { Admission::Held } else { Admission::New };
                notices.push(admitted(&entry.waiting, &survivor, admission));
                answer(entry.waiting, Receipt::stored(id));
                follow(shared, &survivor, entry.followers, &mut notices, &mut again);
            }
            Decided::Duplicate(survivor) => {
                entry.release(shared);
                for upstream in &survivor.revived {
                    match shared.lanes.numbered(*upstream) {
                        Some((_slot, lane)) => lane.pending_from(now),
                        None => others_may_take = true,
                    }
                }
                let admission = if survivor.revived.is_empty() {
                    Admission::Duplicate {
                        of: survivor.event,
                        conflict: survivor.body_mark != entry.waiting.append.body_mark,
                    }
                } else {
                    Admission::Revived { of: survivor.event }
                };
                notices.push(admitted(&entry.waiting, &survivor, admission));
                answer(entry.waiting, Receipt::duplicate_of(survivor.event));
                follow(shared, &survivor, entry.followers, &mut notices, &mut again);
            }
        }
    }
    shared.tell(notices);
    shared.hand_out(grants);
    shared.inbox.again(again);
    shared.claims.notify_one();
    if others_may_take {
        shared.announce.notify_one();
    }
}

/// Those with the same key in the same batch are duplicates of whoever has it now.
fn follow(
    shared: &Shared,
    survivor: &Survivor,
    followers: Vec<Waiting>,
    notices: &mut Vec<Notice>,
    again: &mut Vec<Waiting>,
) {
    for waiting in followers {
        let received_at = waiting.append.event.received_at;
        let apart = received_at
            .since(survivor.received_at)
            .max(survivor.received_at.since(received_at));
        if waiting.append.key.kind() == KeyKind::Digest && apart > shared.settings.digest_window {
            again.push(waiting);
            continue;
        }
        let admission = Admission::Duplicate {
            of: survivor.event,
            conflict: survivor.body_mark != waiting.append.body_mark,
        };
        notices.push(admitted(&waiting, survivor, admission));
        answer(waiting, Receipt::duplicate_of(survivor.event));
    }
}

fn answer(waiting: Waiting, receipt: Receipt) {
    // A sender that hung up does not matter: the event is stored.
    let _hung_up = waiting.append.receipt.send(Ok(receipt));
}

fn admitted(waiting: &Waiting, survivor: &Survivor, admission: Admission) -> Notice {
    let append = &waiting.append;
    Notice::Admitted {
        appended: append.event.id,
        claim: None,
        source: append.event.source.clone(),
        key: append.key,
        event: survivor.event,
        body_mark: survivor.body_mark,
        received_at: survivor.received_at,
        admission,
    }
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
