//! Taking over another configuration while the store is open ([`Store::reconfigure`](crate::store::Store::reconfigure)).
//!
//! What the database must know is written first, and means nothing to anybody by itself: numbers of names, and rows to lock.
//! Only then does anything change here, in memory, where nothing can fail.

use tokio_postgres::types::Type;

use super::Backend;
use super::transaction::Step;
use crate::id::UpstreamName;
use crate::store::StoreError;
use crate::store::settings::Live;

impl Backend {
    pub(in crate::store) async fn reconfigure(&self, live: Live) -> Result<(), StoreError> {
        let shared = &self.shared;
        shared.is_open()?;
        let _one_at_a_time = shared.reconfiguring.lock().await;
        let names = live.lanes.iter().map(|lane| lane.upstream.as_str());
        shared.upstreams.learn(&shared.database, names).await?;
        let wanted: Vec<(UpstreamName, i32, u32)> = live
            .lanes
            .iter()
            .filter_map(|lane| {
                let number = shared.upstreams.id(lane.upstream.as_str())?;
                Some((lane.upstream.clone(), number, lane.units))
            })
            .collect();
        let numbers: Vec<i32> = wanted.iter().map(|(_name, number, _units)| *number).collect();
        let steps = [
            Step::new(include_str!("make_lanes.sql"), [(&numbers as _, Type::INT4_ARRAY)]),
            Step::new(include_str!("lanes.sql"), [(&numbers as _, Type::INT4_ARRAY)]),
        ];
        let committed = shared.database.write(&steps).await?;
        shared.is_open()?;

        let mut settings = (*shared.settings()).clone();
        settings.take_over(&live);
        shared.settings.store(settings.into());
        for (slot, ready) in shared.lanes.reconfigure(&wanted) {
            shared.give_back_window(slot, ready);
        }
        // Whether a new lane is paused is known before it has a share to start anything with.
        for row in committed.step(1) {
            if let Err(failure) = shared.read_lane(row) {
                tracing::error!(%failure, "a lane's record cannot be read");
            }
        }
        shared.ticks.notify_one();
        shared.poll_now();
        Ok(())
    }
}
