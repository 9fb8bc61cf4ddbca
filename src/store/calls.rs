//! Idempotent calls on their way to whoever writes, and the store's face for them ([`records`](super::records)).
//!
//! A backend decides one thing only: whether the key was free. What took a key is read afterwards, by whoever asked, so
//! that no writer ever reads an answer's body; if it is gone by then, the key is asked for again.

use tokio::sync::oneshot;

use super::model::AppendError;
use super::records::{
    Begun, CLIENT_KEY_MAX, Call, CallEnd, Completed, NewCall, Record, RecordCounts, RecordFilter, RecordKey,
    RecordPage, RecordPlace, Resolution, Resolved,
};
use super::{Backend, Store, StoreError};
use crate::id::LeaseToken;

/// How often a key is asked for whose record is gone each time one looks.
const TRIES: u32 = 16;

/// A call that wants to begin.
#[derive(Debug)]
pub(super) struct Begin {
    pub(super) call: NewCall,
    /// The fence it will have, however often it is tried.
    pub(super) token: LeaseToken,
    /// It found its key taken before, and then nothing there: the record may have expired.
    pub(super) again: bool,
    pub(super) reply: oneshot::Sender<Result<Taking, AppendError>>,
}

/// Whether it got its key.
#[derive(Debug)]
pub(super) enum Taking {
    /// Durable.
    Started(Call),
    /// It is taken, as far as is visible to others now.
    Taken,
}

/// A call that ended.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) key: RecordKey,
    pub(super) token: LeaseToken,
    pub(super) end: CallEnd,
    /// `None` where nobody asked: it was dropped.
    pub(super) reply: Option<oneshot::Sender<Completed>>,
}

impl Ending {
    /// Of a call that was dropped without being completed.
    pub(super) fn abandoned(key: RecordKey, token: LeaseToken) -> Self {
        Self {
            key,
            token,
            end: CallEnd::Ambiguous,
            reply: None,
        }
    }

    /// Of a call that nobody was given: it had no effect.
    pub(super) fn unheard(key: RecordKey, token: LeaseToken) -> Self {
        Self {
            end: CallEnd::Released,
            ..Self::abandoned(key, token)
        }
    }

    /// Memory that it stands for.
    pub(super) fn bytes(&self) -> usize {
        self.end
            .answer()
            .map_or(0, |answer| answer.body.len())
            .saturating_add(512)
    }

    /// Tells whoever waits.
    pub(super) fn answer(self, found: Completed) {
        if let Some(reply) = self.reply {
            // One that stopped waiting does not matter: the record is as it is.
            let _stopped = reply.send(found);
        }
    }
}

impl Store {
    /// Takes a key if it is free: its record is absent, has expired, or is ambiguous with the same fingerprint where the
    /// call says so. The record is committed and synced when this returns [`Begun::Started`]; it is durable that the
    /// call may run from then on, and that nobody else's may. A taken key costs no sync.
    ///
    /// # Errors
    /// Our failure; nothing may be forwarded. Whatever this process may have written all the same is released, or
    /// becomes ambiguous with its lease's end.
    pub fn begin(&self, call: NewCall) -> impl Future<Output = Result<Begun, AppendError>> + Send + use<> {
        let store = self.clone();
        async move {
            if call.client_key.len() > CLIENT_KEY_MAX {
                return Err(AppendError::Failed("the client's key is too long".to_owned()));
            }
            for round in 0..TRIES {
                match store.take(&call, round > 0).await? {
                    Taking::Started(call) => return Ok(Begun::Started(call)),
                    Taking::Taken => {}
                }
                let found = store.record(&call.key).await;
                if let Some(record) = found.map_err(|error| AppendError::Failed(error.to_string()))? {
                    return Ok(Begun::Found(record));
                }
            }
            Err(AppendError::Failed("the key changes hands too fast".to_owned()))
        }
    }

    async fn take(&self, call: &NewCall, again: bool) -> Result<Taking, AppendError> {
        let (reply, taking) = oneshot::channel();
        let begin = Begin {
            call: call.clone(),
            token: LeaseToken::new(rand::random()),
            again,
            reply,
        };
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.begin(begin)?,
            Backend::Postgres(postgres) => postgres.begin(begin)?,
            #[cfg(test)]
            Backend::Memory(memory) => memory.begin(begin)?,
        }
        taking
            .await
            .unwrap_or_else(|_gone| Err(AppendError::Failed("the store's writer has ended".to_owned())))
    }

    /// Whether a call's key is still its own, as far as this process knows. Cheap; for the moment before the first byte:
    /// a process that was stopped wakes up knowing that its lease is over.
    pub fn holds_call(&self, call: &Call) -> bool {
        match &self.backend {
            Backend::Sqlite(_) => true,
            Backend::Postgres(postgres) => postgres.holds_call(call),
            #[cfg(test)]
            Backend::Memory(memory) => memory.holds_call(call),
        }
    }

    /// Records how a call ended. Waits while the store cannot write, so that the end is not lost while the process
    /// lives. Under way when this returns.
    ///
    /// # Errors
    /// The store is closing; the record becomes ambiguous.
    pub fn complete(
        &self,
        call: Call,
        end: CallEnd,
    ) -> impl Future<Output = Result<Completed, StoreError>> + Send + use<> {
        let (completed, answer) = oneshot::channel();
        // From here on the ending stands for the call.
        let (key, token) = call.forget();
        let ending = Ending {
            key,
            token,
            end,
            reply: Some(completed),
        };
        let refused = match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.complete(ending),
            Backend::Postgres(postgres) => postgres.complete(ending),
            #[cfg(test)]
            Backend::Memory(memory) => memory.complete(ending),
        }
        .err();
        async move {
            match refused {
                Some(error) => Err(error),
                None => answer.await.map_err(|_gone| StoreError::Closing),
            }
        }
    }

    /// What is known of a key; `None` when its record is absent or has expired. Never waits for whoever writes.
    pub async fn record(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.record(key).await,
            Backend::Postgres(postgres) => postgres.record(key).await,
            #[cfg(test)]
            Backend::Memory(memory) => Ok(memory.record(key)),
        }
    }

    /// A page of at most `limit` (and 500) records after `after`, newest first. Looks at a bounded number of records, so
    /// a page may be short while there is more.
    pub async fn records(
        &self,
        filter: RecordFilter,
        after: Option<RecordPlace>,
        limit: usize,
    ) -> Result<RecordPage, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.records(filter, after, limit).await,
            Backend::Postgres(postgres) => postgres.records(filter, after, limit).await,
            #[cfg(test)]
            Backend::Memory(memory) => Ok(memory.records(&filter, after, limit)),
        }
    }

    /// Carries out what a person says of an ambiguous record. Durable when it says done.
    pub async fn resolve(&self, key: RecordKey, resolution: Resolution) -> Result<Resolved, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.resolve(key, resolution).await,
            Backend::Postgres(postgres) => postgres.resolve(key, resolution).await,
            #[cfg(test)]
            Backend::Memory(memory) => memory.resolve(&key, &resolution),
        }
    }

    /// How many records there are. Cheap enough for every look at the metrics.
    pub async fn record_counts(&self) -> Result<RecordCounts, StoreError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.record_counts().await,
            Backend::Postgres(postgres) => postgres.record_counts().await,
            #[cfg(test)]
            Backend::Memory(memory) => Ok(memory.record_counts()),
        }
    }
}
