//! What people and lanes ask of stored dispatches: replay, discard, remember a lane's state; and joining and leaving.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::append::millis;
use super::connect::Failure;
use super::transaction::Step;
use super::{Backend, MANAGER, Shared, listen};
use crate::id::{EventId, LeaseToken, UpstreamName};
use crate::store::model::{LaneRecord, LaneSave};
use crate::store::{Discarded, Replayed, StoreError};

/// How long leaving waits for the database.
const LEAVE_PATIENCE: Duration = Duration::from_secs(2);

impl Backend {
    pub(in crate::store) async fn replay(
        &self,
        event: EventId,
        upstreams: Option<Vec<UpstreamName>>,
    ) -> Result<Replayed, StoreError> {
        let shared = &self.shared;
        shared.is_open()?;
        let mut wanted = None;
        if let Some(names) = upstreams {
            let mut numbers = Vec::with_capacity(names.len());
            for name in names {
                match shared.lanes.configured(&name) {
                    Some((_slot, lane)) => numbers.push(lane.number),
                    None => return Err(StoreError::UnknownUpstream(name)),
                }
            }
            numbers.sort_unstable();
            numbers.dedup();
            wanted = Some(numbers);
        }
        let id = Uuid::from_bytes(*event.as_bytes());
        let _one_at_a_time = shared.orders.lock().await;
        let now = shared.database.now();
        let millis = now.as_millis();
        let step = Step::new(
            include_str!("replay.sql"),
            [
                (&id as _, Type::UUID),
                (&wanted as _, Type::INT4_ARRAY),
                (&millis as _, Type::INT8),
                (&shared.replica as _, Type::UUID),
                (&MANAGER as _, Type::INT2),
            ],
        );
        let committed = shared.database.write_quietly(&[step]).await?;
        let (mut known, mut pending, mut busy) = (false, Vec::new(), Vec::new());
        for row in committed.step(0) {
            let (number, is_busy): (Option<i32>, bool) = (read(row, "upstream")?, read(row, "busy")?);
            let Some(number) = number else {
                known = true;
                continue;
            };
            let name = shared.upstream_name(number).await?;
            if is_busy {
                busy.push(name);
            } else {
                if let Some((_slot, lane)) = shared.lanes.numbered(number) {
                    lane.pending_from(now);
                }
                pending.push(name);
            }
        }
        if !known {
            return Ok(Replayed::NotFound);
        }
        shared.claims.notify_one();
        shared.announce.notify_one();
        Ok(Replayed::Pending {
            upstreams: pending,
            busy,
        })
    }

    pub(in crate::store) async fn discard(
        &self,
        event: EventId,
        upstream: Option<UpstreamName>,
    ) -> Result<Discarded, StoreError> {
        let shared = &self.shared;
        shared.is_open()?;
        let id = Uuid::from_bytes(*event.as_bytes());
        let mut number = None;
        if let Some(name) = upstream {
            shared.upstreams.look_up(&shared.database, [name.as_str()]).await?;
            // One that nobody knows has no dispatches.
            number = Some(shared.upstreams.id(name.as_str()).unwrap_or(-1));
        }
        let _one_at_a_time = shared.orders.lock().await;
        let step = Step::new(
            include_str!("discard.sql"),
            [
                (&id as _, Type::UUID),
                (&number as _, Type::INT4),
                (&shared.replica as _, Type::UUID),
                (&MANAGER as _, Type::INT2),
            ],
        );
        let committed = shared.database.write_quietly(&[step]).await?;
        let (mut known, mut upstreams) = (false, Vec::new());
        for row in committed.step(0) {
            let (number, token): (Option<i32>, Option<i64>) = (read(row, "upstream")?, read(row, "token")?);
            // If it is ours, the lane is told before it sends, if it has not yet.
            if let Some(token) = token {
                shared.leases.revoke(LeaseToken::new(token));
            }
            match number {
                Some(number) => upstreams.push(shared.upstream_name(number).await?),
                None => known = true,
            }
        }
        if known {
            Ok(Discarded::Discarded { upstreams })
        } else {
            Ok(Discarded::NotFound)
        }
    }

    /// Saves what a lane must remember; an order holds for all replicas.
    pub(in crate::store) async fn save_lane_record(
        &self,
        upstream: UpstreamName,
        save: LaneSave,
    ) -> Result<LaneRecord, StoreError> {
        let shared = Arc::clone(&self.shared);
        shared.is_open()?;
        // A task of its own: it is carried out even if nobody waits for it any more.
        let saved = self.tasks.spawn(async move { shared.save_lane(&upstream, save).await });
        saved.await.map_err(|ended| StoreError::Failed(ended.to_string()))?
    }
}

impl Shared {
    pub(super) fn is_open(&self) -> Result<(), StoreError> {
        if self.closing.is_cancelled() {
            return Err(StoreError::Closing);
        }
        Ok(())
    }

    pub(super) async fn upstream_name(&self, number: i32) -> Result<UpstreamName, StoreError> {
        self.upstreams.find(&self.database, [number]).await?;
        let name = self.upstreams.name(number);
        Ok(UpstreamName::new(name.unwrap_or_else(|| format!("#{number}"))))
    }
}

impl Shared {
    async fn save_lane(&self, upstream: &UpstreamName, save: LaneSave) -> Result<LaneRecord, StoreError> {
        let Some((_slot, lane)) = self.lanes.named(upstream) else {
            return Err(StoreError::UnknownUpstream(upstream.clone()));
        };
        let stopped = millis(save.stopped_total);
        let step = Step::new(
            include_str!("save_lane.sql"),
            [
                (&lane.number as _, Type::INT4),
                (&save.order as _, Type::BOOL),
                (&stopped as _, Type::INT8),
            ],
        );
        let committed = self.database.write_quietly(&[step]).await?;
        let Some(row) = committed.step(0).first() else {
            return Err(StoreError::Failed("the lane's row is gone".to_owned()));
        };
        self.read_lane(row)?;
        if save.order.is_some() {
            self.claims.notify_one();
            listen::tell(self, "hooksluice_lanes").await;
        }
        Ok(lane.state().record)
    }

    /// A row of `lane` as it is now.
    pub(super) fn read_lane(&self, row: &tokio_postgres::Row) -> Result<(), Failure> {
        let number: i32 = row.try_get("upstream")?;
        let orders: i64 = row.try_get("orders")?;
        let stopped: i64 = row.try_get("stopped_total")?;
        let record = LaneRecord {
            paused: row.try_get("paused")?,
            orders: u64::try_from(orders).unwrap_or(0),
            stopped_total: Duration::from_millis(u64::try_from(stopped).unwrap_or(0)),
        };
        if let Some((_slot, lane)) = self.lanes.numbered(number) {
            let mut state = lane.state();
            // Two answers may come in another order than they were made.
            if record.orders >= state.record.orders {
                state.record.paused = record.paused;
                state.record.orders = record.orders;
            }
            state.record.stopped_total = record.stopped_total.max(state.record.stopped_total);
        }
        Ok(())
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.to_string())
    }
}

/// A column, or the store failed.
pub(super) fn read<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a tokio_postgres::Row,
    column: &str,
) -> Result<T, StoreError> {
    row.try_get(column)
        .map_err(|error| StoreError::Failed(error.to_string()))
}

/// Makes sure that every lane has a row to lock.
pub(super) async fn make_lanes(shared: &Shared) -> Result<(), Failure> {
    let numbers = shared.lanes.numbers();
    let step = Step::new(include_str!("make_lanes.sql"), [(&numbers as _, Type::INT4_ARRAY)]);
    shared.database.write(&[step]).await.map(|_committed| ())
}

/// Lets go of everything that would last for a while, so that others need not wait for it.
pub(super) async fn leave(shared: &Shared) {
    let me = [(&shared.replica as _, Type::UUID)];
    let steps = [
        Step::new(include_str!("leave_shares.sql"), me.clone()),
        Step::new(include_str!("leave.sql"), me),
    ];
    match tokio::time::timeout(LEAVE_PATIENCE, shared.database.write(&steps)).await {
        Ok(Ok(_committed)) => {}
        Ok(Err(failure)) => tracing::debug!(%failure, "shares were not handed back: they lapse"),
        Err(_elapsed) => tracing::debug!("shares were not handed back in time: they lapse"),
    }
}
