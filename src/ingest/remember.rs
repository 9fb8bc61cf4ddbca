//! Keeps in the store when each secret was last used, so that neither a restart nor another replica has to guess whether a
//! secret can be removed. Beside the answer's path: a process that is killed forgets the last [`EVERY`] at most.

use std::collections::HashMap;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::store::Store;
use crate::store::secrets::SecretRecord;
use crate::telemetry::metrics::Metrics;
use crate::time::{Clock, Timestamp};

/// How often what is new is written.
const EVERY: Duration = Duration::from_secs(10);
/// How often secrets are noted that are not used, so that the store does not forget them.
const REFRESH: Duration = Duration::from_secs(86_400);
/// How long the last note may take when the server ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Notes until `stop`, and once more.
pub async fn remember(metrics: Metrics, store: Store, clock: Clock, stop: CancellationToken) {
    let mut refreshed = Timestamp::from_millis(0);
    loop {
        note(&metrics, &store, &clock, &mut refreshed).await;
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
    let last = note(&metrics, &store, &clock, &mut refreshed);
    if tokio::time::timeout(LAST_WORDS, last).await.is_err() {
        debug!("when secrets were last used could not be noted in time");
    }
}

async fn note(metrics: &Metrics, store: &Store, clock: &Clock, refreshed: &mut Timestamp) {
    let now = clock.now();
    let all_of_them = now.since(*refreshed) >= REFRESH;
    let (mut notes, mut noted) = (Vec::new(), Vec::new());
    for (name, source) in metrics.sources() {
        let vouched = source.vouched();
        for secret in source.secrets().iter() {
            let (note, at, is_news) = secret.note(&name, vouched);
            if is_news || all_of_them {
                notes.push(note);
                noted.push((secret.clone(), at));
            }
        }
    }
    if !notes.is_empty() {
        if let Err(error) = store.note_secrets(notes).await {
            // It is not lost yet: the next time has it all.
            debug!(%error, "when secrets were last used could not be noted");
            return;
        }
        for (secret, at) in noted {
            secret.noted(at);
        }
    }
    if all_of_them {
        *refreshed = now;
    }
    let records = match store.secrets().await {
        Ok(records) => records,
        Err(error) => {
            debug!(%error, "when secrets were last used could not be looked up");
            return;
        }
    };
    let known: HashMap<_, &SecretRecord> = records
        .iter()
        .map(|record| ((&record.source, record.mark), record))
        .collect();
    for (name, source) in metrics.sources() {
        for secret in source.secrets().iter() {
            if let Some(record) = known.get(&(&name, secret.mark())) {
                secret.learn(record);
            }
        }
        source.judge_secrets(clock.now());
    }
}
