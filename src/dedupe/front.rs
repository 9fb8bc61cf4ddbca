//! [`Front`]: the look before the append. Memory first, then Redis; both know only what is durable.

use std::sync::Arc;

use super::memory::{Found, RecentKeys};
use super::protocol::{About, Input, Protocol, Stage};
use super::redis::Redis;
use super::teller::Teller;
use crate::id::SourceName;
use crate::key::DedupeKey;
use crate::store::model::Receipt;

/// What may answer a duplicate before the store is asked. Cheap to clone.
///
/// What Redis answers is not remembered by the memory: it is told of deaths by our own store only, and a key that dies
/// at another replica would stay.
#[derive(Clone, Debug)]
pub struct Front {
    memory: Arc<RecentKeys>,
    redis: Option<Behind>,
}

/// What stands behind the memory.
#[derive(Clone, Debug)]
pub struct Behind {
    /// Redis.
    pub redis: Redis,
    /// Whoever tells it, which knows what it has not been told yet.
    pub teller: Teller,
    /// How its answers are read.
    pub protocol: Protocol,
}

impl Front {
    /// With Redis behind the memory, or without.
    pub fn new(memory: Arc<RecentKeys>, redis: Option<Behind>) -> Self {
        Self { memory, redis }
    }

    /// Whether the key's event is known to be durable, to whomever. Anything else, also silence, means "go on".
    pub async fn look(&self, source: &SourceName, key: &DedupeKey, about: &About) -> Option<Found> {
        match self.recent(source, key, about) {
            Some(known) => Some(known),
            None => self.redis.as_ref()?.look(source, key, about).await,
        }
    }

    /// Forgets what the memory holds: the store is another one now.
    pub fn clear(&self) {
        self.memory.clear();
    }

    /// Whether the memory knows the key's event to be durable. `None` means "go on".
    pub fn recent(&self, source: &SourceName, key: &DedupeKey, about: &About) -> Option<Found> {
        self.memory.look(source, key, &about.body_mark, about.received_at)
    }

    /// What is to be asked when the memory does not know it.
    pub fn behind(&self) -> Option<&Behind> {
        self.redis.as_ref()
    }
}

impl Behind {
    /// Whether Redis knows the key's event to be durable. Anything else, also silence, means "go on".
    pub async fn look(&self, source: &SourceName, key: &DedupeKey, about: &About) -> Option<Found> {
        let heard = self.redis.look(source, key).await;
        let stage = self.protocol.step(about, Stage::Look, Input::Heard(heard));
        let Stage::Known { event, conflict } = stage else {
            self.redis.looked(heard, false);
            return None;
        };
        // A death that Redis had not been told when it answered: the store may revive it.
        if self.teller.has_death(source, key) {
            self.redis.looked(heard, false);
            return None;
        }
        self.redis.looked(heard, true);
        Some(Found {
            receipt: Receipt::duplicate_of(event),
            conflict,
        })
    }
}
