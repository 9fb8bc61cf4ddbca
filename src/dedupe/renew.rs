//! [`renew`]: over separate stores a key lives in Redis not shorter than a dispatch of its event is undelivered.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::redis::Redis;
use crate::store::Store;

/// How many times within its life a key is renewed.
const PARTS: u32 = 8;
const EVERY_MIN: Duration = Duration::from_secs(60);
const EVERY_MAX: Duration = Duration::from_secs(86_400);
/// Events that are read at once.
const PAGE: usize = 1_000;

/// Runs until `stop`: an eighth of [`Redis::window`] after it was written or renewed, a key of an undelivered event gets its whole
/// time again. A round that fails is made up for by the next ones.
pub async fn renew(store: Store, redis: Redis, stop: CancellationToken) {
    loop {
        let every = (redis.window() / PARTS).clamp(EVERY_MIN, EVERY_MAX);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(every) => {}
        }
        let mut after = None;
        loop {
            let page = match store.undelivered_keys(every, after, PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    debug!(%error, "keys of undelivered events are renewed later");
                    break;
                }
            };
            let Some(last) = page.last() else { break };
            after = Some(last.event);
            let keys: Vec<_> = page.into_iter().map(|event| (event.source, event.key)).collect();
            let silent = tokio::select! {
                () = stop.cancelled() => return,
                silent = redis.renew(&keys) => silent,
            };
            if silent > 0 {
                debug!(silent, "keys of undelivered events are renewed later");
                break;
            }
        }
    }
}
