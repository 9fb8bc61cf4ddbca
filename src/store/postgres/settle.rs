//! Ending leases: recording how attempts ended, and handing back what was not used.
//!
//! One task, one transaction at a time; what comes meanwhile shares the next. An outcome is not lost while the process
//! lives: the task tries until the database has it. Each row names its lease's token, and a row that has another one is
//! left alone (P9).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::append::millis;
use super::connect::Failure;
use super::inbox::{Decline, Endings, Settle};
use super::stored::CALL_SETTLE;
use super::transaction::Step;
use super::{Shared, outcome_number, state_number};
use crate::store::model::{Death, DispatchState, Next, Notice, Outcome, Settled};
use crate::store::reply::Unattempted;
use crate::time::Timestamp;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// The task; ends when the inbox is closed and empty, or when `shared.gave_up`.
pub(super) async fn run(shared: Arc<Shared>, writer: i16) {
    while let Some(endings) = shared.inbox.take_endings().await {
        end(&shared, writer, endings).await;
    }
}

async fn end(shared: &Shared, writer: i16, mut endings: Endings) {
    // After a try of which nobody knows what came.
    let mut unheard = false;
    loop {
        match record(shared, writer, &endings, unheard).await {
            Ok(ended) => {
                shared.succeeded();
                return publish(shared, endings, &ended);
            }
            Err(Failure::Data(why)) => {
                tracing::error!(why, "the database refuses an outcome");
                if endings.settles.len() <= 1 {
                    // Its lease lapses, and the attempt is repeated.
                    return;
                }
                // One at a time, so that the others are recorded.
                let rest = endings.settles.split_off(1);
                for settle in rest {
                    let alone = Endings {
                        settles: vec![settle],
                        declines: Vec::new(),
                        give_backs: Vec::new(),
                    };
                    Box::pin(end(shared, writer, alone)).await;
                }
            }
            Err(failure) => {
                unheard |= matches!(failure, Failure::Lost(_));
                shared.failed(&failure);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = shared.given_up.cancelled() => return,
        }
    }
}

/// What the database recorded.
struct Ended {
    settled: HashSet<(Uuid, i32)>,
    declined: HashSet<(Uuid, i32)>,
    /// Upstreams of which something is pending again.
    returned: Vec<i32>,
}

async fn record(shared: &Shared, writer: i16, endings: &Endings, unheard: bool) -> Result<Ended, Failure> {
    let mut rows = Columns::default();
    for settle in &endings.settles {
        rows.push(shared, settle);
    }
    let upstream_of = |slot: usize| shared.lanes.get(slot).map_or(0, |lane| lane.number);
    let give_backs = &endings.give_backs;
    let events: Vec<Uuid> = give_backs.iter().map(|back| uuid(back.lease.event)).collect();
    let upstreams: Vec<i32> = give_backs.iter().map(|back| upstream_of(back.lease.lane)).collect();
    let tokens: Vec<i64> = give_backs.iter().map(|back| back.lease.token.get()).collect();
    let unused: Vec<i32> = give_backs.iter().map(|back| i32::from(back.unused)).collect();
    let first = rows.events.iter().min().copied().unwrap_or_default();
    let last = rows.events.iter().max().copied().unwrap_or_default();
    let mut steps = vec![Step::new(
        if rows.numbers.iter().all(|number| *number == 1) {
            CALL_SETTLE.as_str()
        } else {
            include_str!("settle_again.sql")
        },
        [
            (&rows.events as _, Type::UUID_ARRAY),
            (&rows.upstreams as _, Type::INT4_ARRAY),
            (&rows.tokens as _, Type::INT8_ARRAY),
            (&rows.states as _, Type::INT2_ARRAY),
            (&rows.due as _, Type::INT8_ARRAY),
            (&rows.numbers as _, Type::INT4_ARRAY),
            (&rows.started_at as _, Type::INT8_ARRAY),
            (&rows.took as _, Type::INT4_ARRAY),
            (&rows.outcomes as _, Type::INT2_ARRAY),
            (&rows.statuses as _, Type::INT2_ARRAY),
            (&rows.causes as _, Type::BYTEA_ARRAY),
            (&rows.excerpts as _, Type::BYTEA_ARRAY),
            (&shared.replica as _, Type::UUID),
            (&writer as _, Type::INT2),
            (&shared.keep_deaths as _, Type::BOOL),
            (&first as _, Type::UUID),
            (&last as _, Type::UUID),
        ],
    )];
    if !give_backs.is_empty() {
        steps.push(Step::new(
            include_str!("give_back.sql"),
            [
                (&events as _, Type::UUID_ARRAY),
                (&upstreams as _, Type::INT4_ARRAY),
                (&tokens as _, Type::INT8_ARRAY),
                (&unused as _, Type::INT4_ARRAY),
                (&shared.replica as _, Type::UUID),
                (&writer as _, Type::INT2),
            ],
        ));
    }
    let declined = Declined::new(shared, &endings.declines);
    let declined_at = steps.len();
    if !endings.declines.is_empty() {
        steps.push(declined.step(shared, &writer));
    }
    let kept = Kept::new(shared, &endings.settles);
    if !kept.events.is_empty() {
        steps.push(kept.step());
    }
    if unheard {
        steps.push(Step::new(
            include_str!("recorded.sql"),
            [
                (&rows.events as _, Type::UUID_ARRAY),
                (&rows.upstreams as _, Type::INT4_ARRAY),
                (&rows.numbers as _, Type::INT4_ARRAY),
                (&rows.started_at as _, Type::INT8_ARRAY),
            ],
        ));
    }
    let committed = shared.database.write(&steps).await?;
    let mut settled = HashSet::with_capacity(endings.settles.len());
    let last = if unheard { committed.rows.last() } else { None };
    for row in committed.step(0).iter().chain(last.into_iter().flatten()) {
        settled.insert((row.try_get(0)?, row.try_get(1)?));
    }
    let mut returned = Vec::new();
    if !give_backs.is_empty() {
        for row in committed.step(1) {
            returned.push(row.try_get(0)?);
        }
    }
    let mut declined = HashSet::with_capacity(endings.declines.len());
    if unheard {
        // What an earlier try recorded is not found again.
        declined.extend(
            endings
                .declines
                .iter()
                .map(|decline| (uuid(decline.lease.event), upstream_of(decline.lease.lane))),
        );
    } else if !endings.declines.is_empty() {
        for row in committed.step(declined_at) {
            declined.insert((row.try_get(0)?, row.try_get(1)?));
        }
    }
    Ok(Ended {
        settled,
        declined,
        returned,
    })
}

/// Declines as arrays.
struct Declined {
    events: Vec<Uuid>,
    upstreams: Vec<i32>,
    tokens: Vec<i64>,
    states: Vec<i16>,
    due: Vec<i64>,
}

impl Declined {
    fn new(shared: &Shared, declines: &[Decline]) -> Self {
        let then = |decline: &Decline| match decline.then {
            Unattempted::Later { due } => (DispatchState::Pending, shared.database.to_theirs(due)),
            Unattempted::Dead => (DispatchState::Dead, Timestamp::from_millis(0)),
        };
        let number = |decline: &Decline| shared.lanes.get(decline.lease.lane).map_or(0, |lane| lane.number);
        Self {
            events: declines.iter().map(|decline| uuid(decline.lease.event)).collect(),
            upstreams: declines.iter().map(number).collect(),
            tokens: declines.iter().map(|decline| decline.lease.token.get()).collect(),
            states: declines.iter().map(|decline| state_number(then(decline).0)).collect(),
            due: declines.iter().map(|decline| then(decline).1.as_millis()).collect(),
        }
    }

    fn step<'a>(&'a self, shared: &'a Shared, writer: &'a i16) -> Step<'a> {
        Step::new(
            include_str!("decline.sql"),
            [
                (&self.events as _, Type::UUID_ARRAY),
                (&self.upstreams as _, Type::INT4_ARRAY),
                (&self.tokens as _, Type::INT8_ARRAY),
                (&self.states as _, Type::INT2_ARRAY),
                (&self.due as _, Type::INT8_ARRAY),
                (&shared.replica as _, Type::UUID),
                (writer as _, Type::INT2),
                (&shared.keep_deaths as _, Type::BOOL),
            ],
        )
    }
}

/// Answers to be kept, as arrays.
#[derive(Default)]
struct Kept<'a> {
    events: Vec<Uuid>,
    upstreams: Vec<i32>,
    numbers: Vec<i32>,
    started_at: Vec<i64>,
    statuses: Vec<i16>,
    headers: Vec<Vec<u8>>,
    bodies: Vec<Option<&'a [u8]>>,
}

impl<'a> Kept<'a> {
    fn new(shared: &Shared, settles: &'a [Settle]) -> Self {
        let mut kept = Self::default();
        for settle in settles.iter().filter(|settle| settle.next == Next::Delivered) {
            let Some(reply) = &settle.reply else { continue };
            let lane = shared.lanes.get(settle.lease.lane);
            kept.events.push(uuid(settle.lease.event));
            kept.upstreams.push(lane.map_or(0, |lane| lane.number));
            kept.numbers.push(i32::try_from(settle.attempt).unwrap_or(i32::MAX));
            kept.started_at.push(settle.started_at.as_millis());
            kept.statuses.push(i16::try_from(reply.status.as_u16()).unwrap_or(200));
            kept.headers.push(reply.encoded_headers());
            kept.bodies.push(reply.body.as_deref());
        }
        kept
    }

    fn step(&self) -> Step<'_> {
        Step::new(
            include_str!("keep_reply.sql"),
            [
                (&self.events as _, Type::UUID_ARRAY),
                (&self.upstreams as _, Type::INT4_ARRAY),
                (&self.numbers as _, Type::INT4_ARRAY),
                (&self.started_at as _, Type::INT8_ARRAY),
                (&self.statuses as _, Type::INT2_ARRAY),
                (&self.headers as _, Type::BYTEA_ARRAY),
                (&self.bodies as _, Type::BYTEA_ARRAY),
            ],
        )
    }
}

fn uuid(event: crate::id::EventId) -> Uuid {
    Uuid::from_bytes(*event.as_bytes())
}

/// Settles as arrays.
#[derive(Default)]
struct Columns<'a> {
    events: Vec<Uuid>,
    upstreams: Vec<i32>,
    tokens: Vec<i64>,
    states: Vec<i16>,
    due: Vec<i64>,
    numbers: Vec<i32>,
    started_at: Vec<i64>,
    took: Vec<i32>,
    outcomes: Vec<i16>,
    statuses: Vec<Option<i16>>,
    causes: Vec<Option<&'a [u8]>>,
    excerpts: Vec<Option<&'a [u8]>>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, shared: &Shared, settle: &'a Settle) {
        let (state, due) = match settle.next {
            Next::Delivered => (DispatchState::Delivered, Timestamp::from_millis(0)),
            Next::Retry { due } => (DispatchState::Pending, shared.database.to_theirs(due)),
            Next::Dead => (DispatchState::Dead, Timestamp::from_millis(0)),
        };
        let (status, cause) = match &settle.outcome {
            Outcome::Delivered { status } | Outcome::Refused { status } => (Some(status.as_u16()), None),
            Outcome::NotSent { cause } | Outcome::Unknown { cause } => (None, Some(cause.as_bytes())),
        };
        self.events.push(uuid(settle.lease.event));
        self.upstreams
            .push(shared.lanes.get(settle.lease.lane).map_or(0, |lane| lane.number));
        self.tokens.push(settle.lease.token.get());
        self.states.push(state_number(state));
        self.due.push(due.as_millis());
        self.numbers.push(i32::try_from(settle.attempt).unwrap_or(i32::MAX));
        self.started_at.push(settle.started_at.as_millis());
        self.took.push(i32::try_from(millis(settle.took)).unwrap_or(i32::MAX));
        self.outcomes.push(outcome_number(&settle.outcome));
        self.statuses.push(status.and_then(|status| i16::try_from(status).ok()));
        self.causes.push(cause);
        self.excerpts
            .push((!settle.excerpt.is_empty()).then_some(&*settle.excerpt));
    }
}

/// Durable: tell everybody. Whoever is told something finds it in the counts.
fn publish(shared: &Shared, endings: Endings, ended: &Ended) {
    let mut others_may_take = false;
    for back in &endings.give_backs {
        shared.leases.end(back.lease.token);
    }
    let now = shared.database.now();
    for upstream in &ended.returned {
        if let Some((_slot, lane)) = shared.lanes.numbered(*upstream) {
            lane.pending_from(now);
            others_may_take = true;
        }
    }
    let mut notices = Vec::new();
    let mut answers = Vec::with_capacity(endings.settles.len());
    for settle in endings.settles {
        shared.leases.end(settle.lease.token);
        let lane = shared.lanes.get(settle.lease.lane);
        let number = lane.as_ref().map_or(0, |lane| lane.number);
        if !ended.settled.contains(&(uuid(settle.lease.event), number)) {
            answers.push((settle.settled, Settled::LeaseLost));
            continue;
        }
        match settle.next {
            Next::Delivered => {}
            Next::Retry { due } => {
                if let Some(lane) = lane {
                    lane.pending_from(shared.database.to_theirs(due));
                }
            }
            Next::Dead => notices.push(Notice::Died(Death {
                source: settle.source,
                key: settle.key,
                event: settle.lease.event,
            })),
        }
        answers.push((settle.settled, Settled::Recorded));
    }
    for decline in endings.declines {
        shared.leases.end(decline.lease.token);
        let lane = shared.lanes.get(decline.lease.lane);
        let number = lane.as_ref().map_or(0, |lane| lane.number);
        if !ended.declined.contains(&(uuid(decline.lease.event), number)) {
            answers.push((decline.settled, Settled::LeaseLost));
            continue;
        }
        match decline.then {
            Unattempted::Later { due } => {
                if let Some(lane) = lane {
                    lane.pending_from(shared.database.to_theirs(due));
                }
            }
            Unattempted::Dead => notices.push(Notice::Died(Death {
                source: decline.source,
                key: decline.key,
                event: decline.lease.event,
            })),
        }
        answers.push((decline.settled, Settled::Recorded));
    }
    shared.tell(notices);
    for (settled, found) in answers {
        // A lane that stopped waiting does not matter.
        let _stopped = settled.send(found);
    }
    shared.claims.notify_one();
    if others_may_take {
        shared.announce.notify_one();
    }
}
