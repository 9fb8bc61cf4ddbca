//! The heartbeat: this replica is alive, its shares of the upstreams' pace (P7), the lanes' shared records, and which store
//! it is.
//!
//! **Shares.** The units of an upstream's pace are divided over the live replicas under a lock on its lane's row. A replica
//! that is to give units up first stops starting attempts with them, and only the next heartbeat, when those that ran have
//! ended, writes that they are free. What was granted holds for [`Tuning::share_ttl`](super::Tuning) by the database's
//! clock; we stop earlier, since our clock counts from when the request was sent. So the sum in use is never above the whole.
//!
//! Replicas may have different configurations for a while, and so different numbers of units: then the smallest is divided. A
//! row says its units in its own configuration's number, rounded up, so that whoever has another one sees the part of the pace
//! that they stand for. So the parts are never more than one, and no attempt is above the largest pace.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_postgres::types::Type;

use super::Shared;
use super::append::millis;
use super::connect::Failure;
use super::lanes::Lane;
use super::transaction::Step;
use crate::time::Monotonic;

/// The task; ends when the store closes.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        let pause = shared.tuning.tick.mul_f64(0.8 + rand::random::<f64>() * 0.4);
        tokio::select! {
            () = shared.frozen.cancelled() => return,
            () = shared.ticks.notified() => {}
            () = shared.database.doubted.notified() => {
                // Whatever happened, once: not as fast as connections can fail.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            () = tokio::time::sleep(pause) => {}
        }
        match tick(&shared).await {
            Ok(()) => shared.succeeded(),
            Err(failure) => {
                shared.failed(&failure);
                tokio::select! {
                    () = shared.frozen.cancelled() => return,
                    () = tokio::time::sleep(Duration::from_millis(300)) => {}
                }
            }
        }
    }
}

/// What a heartbeat says of lanes, a column each.
#[derive(Debug, Default)]
struct Shares {
    numbers: Vec<i32>,
    wholes: Vec<i32>,
    used: Vec<i32>,
    used_of: Vec<i32>,
}

impl Shares {
    /// What may be started until the answer is here, and what runs. An upstream that has left the configuration keeps its
    /// part until its attempts have ended; then the part lapses.
    fn push(&mut self, lane: &Lane, sent: Monotonic) {
        let state = lane.state();
        if !state.takes_part() {
            return;
        }
        let used = state.used_units(sent);
        let number = |units: u32| i32::try_from(units).unwrap_or(i32::MAX);
        self.numbers.push(lane.number);
        self.wholes.push(number(state.whole));
        self.used.push(number(used));
        self.used_of.push(number(state.of));
    }
}

/// One heartbeat.
pub(super) async fn tick(shared: &Shared) -> Result<(), Failure> {
    let all = shared.lanes.numbers();
    let sent = shared.leases_now();
    let mut shares = Shares::default();
    for lane in shared.lanes.iter() {
        shares.push(&lane, sent);
    }
    let Shares {
        numbers,
        wholes,
        used,
        used_of,
    } = &shares;
    let share_ttl = millis(shared.tuning.share_ttl);
    let mut steps = vec![
        Step::new(
            include_str!("heartbeat.sql"),
            [(&shared.replica as _, Type::UUID), (&share_ttl as _, Type::INT8)],
        ),
        Step::new(include_str!("lock_lanes.sql"), [(numbers as _, Type::INT4_ARRAY)]),
        Step::new(
            include_str!("grant.sql"),
            [
                (numbers as _, Type::INT4_ARRAY),
                (wholes as _, Type::INT4_ARRAY),
                (used as _, Type::INT4_ARRAY),
                (&shared.replica as _, Type::UUID),
                (&share_ttl as _, Type::INT8),
                (used_of as _, Type::INT4_ARRAY),
            ],
        ),
        Step::new(include_str!("lanes.sql"), [(&all as _, Type::INT4_ARRAY)]),
    ];
    let doubts = shared.database.doubts();
    if shared.database.is_doubted() {
        steps.push(Step::new(include_str!("new_era.sql"), []));
    }
    steps.push(Step::new(include_str!("identity.sql"), []));
    let committed = shared.database.write(&steps).await?;
    let until = sent.after(shared.tuning.share_ttl - shared.tuning.share_ttl / 10);
    for row in committed.step(2) {
        let number: i32 = row.try_get("upstream")?;
        let (units, whole): (i32, i32) = (row.try_get("units")?, row.try_get("whole")?);
        if let Some((_slot, lane)) = shared.lanes.numbered(number) {
            let mut state = lane.state();
            state.granted = u32::try_from(units).unwrap_or(0);
            state.of = u32::try_from(whole).unwrap_or(1).max(1);
            state.granted_until = until;
        }
        let replicas: i32 = row.try_get("replicas")?;
        shared
            .replicas
            .store(usize::try_from(replicas).unwrap_or(1), Ordering::Relaxed);
    }
    for row in committed.step(3) {
        shared.read_lane(row)?;
    }
    if let Some(row) = committed.step(0).first() {
        shared.keeps_house.store(row.try_get("first")?, Ordering::Relaxed);
    }
    match committed.rows.last().and_then(|rows| rows.first()) {
        Some(row) => shared.database.identify(row, doubts)?,
        None => return Err(Failure::Refused("hooksluice.meta is empty".to_owned())),
    }
    shared.keep_time();
    shared.claims.notify_one();
    Ok(())
}
