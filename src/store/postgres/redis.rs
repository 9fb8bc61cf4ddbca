//! What Redis must be told and not forget, as the database has it.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::connect::Failure;
use super::janitor::first_id;
use super::manage::read;
use super::transaction::Step;
use super::{Backend, key_kind};
use crate::id::{EventId, SourceName};
use crate::key::DedupeKey;
use crate::store::StoreError;
use crate::store::model::{Death, Undelivered};

/// Deaths whose count is remembered between a look and its telling; the others are looked up again.
const LOOKED_UP_MAX: usize = 10_000;

impl Backend {
    pub(in crate::store) async fn untold_deaths(&self, limit: usize) -> Result<Vec<Death>, StoreError> {
        let shared = &self.shared;
        shared.is_open()?;
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = shared
            .database
            .read(include_str!("untold_deaths.sql"), &[(&most, Type::INT8)])
            .await?;
        let mut deaths = Vec::with_capacity(rows.len());
        let mut times = Vec::with_capacity(rows.len());
        for row in &rows {
            let event: Uuid = read(row, "event")?;
            let (source, key) = self.source_and_key(row).await?;
            times.push((event, read::<i64>(row, "times")?));
            deaths.push(Death {
                source,
                key,
                event: EventId::from_bytes(*event.as_bytes()),
            });
        }
        let mut looked_up = shared.deaths.lock().await;
        if looked_up.len().saturating_add(times.len()) > LOOKED_UP_MAX {
            looked_up.clear();
        }
        looked_up.extend(times);
        Ok(deaths)
    }

    pub(in crate::store) async fn deaths_told(&self, deaths: Vec<Death>) -> Result<(), StoreError> {
        let shared = &self.shared;
        shared.is_open()?;
        let mut looked_up = shared.deaths.lock().await;
        let told = deaths.iter().map(|death| Uuid::from_bytes(*death.event.as_bytes()));
        let (events, times): (Vec<Uuid>, Vec<i64>) = told
            .filter_map(|event| Some((event, looked_up.remove(&event)?)))
            .unzip();
        drop(looked_up);
        let step = Step::new(
            include_str!("deaths_told.sql"),
            [(&events as _, Type::UUID_ARRAY), (&times as _, Type::INT8_ARRAY)],
        );
        shared.database.write_quietly(&[step]).await?;
        Ok(())
    }

    pub(in crate::store) async fn undelivered_keys(
        &self,
        older_than: Duration,
        after: Option<EventId>,
        limit: usize,
    ) -> Result<Vec<Undelivered>, StoreError> {
        let shared = &self.shared;
        shared.is_open()?;
        let after = after.map_or(Uuid::nil(), |after| Uuid::from_bytes(*after.as_bytes()));
        let before = first_id(shared.database.now().before(older_than).as_millis());
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = shared
            .database
            .read(
                include_str!("undelivered_keys.sql"),
                &[(&after, Type::UUID), (&before, Type::UUID), (&most, Type::INT8)],
            )
            .await?;
        let mut undelivered = Vec::with_capacity(rows.len());
        for row in &rows {
            let event: Uuid = read(row, "id")?;
            let (source, key) = self.source_and_key(row).await?;
            undelivered.push(Undelivered {
                event: EventId::from_bytes(*event.as_bytes()),
                source,
                key,
                body_mark: read::<i64>(row, "body_mark")?.to_be_bytes(),
                dead: read(row, "dead")?,
            });
        }
        Ok(undelivered)
    }

    async fn source_and_key(&self, row: &Row) -> Result<(SourceName, DedupeKey), StoreError> {
        let shared = &self.shared;
        let source: i32 = read(row, "source")?;
        shared.sources.find(&shared.database, [source]).await?;
        let name = shared.sources.name(source).unwrap_or_else(|| format!("#{source}"));
        let digest: Vec<u8> = read(row, "key")?;
        let damaged = |_bytes| Failure::Refused("a stored key is damaged".to_owned());
        let digest = <[u8; 32]>::try_from(digest).map_err(damaged)?;
        let key = DedupeKey::from_parts(digest, key_kind(read(row, "key_kind")?));
        Ok((SourceName::new(name), key))
    }
}
