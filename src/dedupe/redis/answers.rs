//! Answers of idempotent calls in Redis: a cache in front of the durable records, of calls that have ended for good.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use super::{Redis, TRY, commands};
use crate::id::RouteName;
use crate::telemetry::metrics::{LookResult, RedisOperation};

/// What Redis says of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// These bytes.
    Bytes(Bytes),
    /// Nothing.
    Nothing,
    /// No answer.
    Silent,
}

impl Redis {
    /// What is kept of this record, within `timeout`, past the same breaker as a look. Never waits for a connection.
    pub async fn kept(&self, route: &RouteName, digest: &[u8; 32]) -> Held {
        let answer = self
            .ask(|namespace| commands::answer_name(namespace, route, digest))
            .await;
        match answer {
            Some(Value::BulkString(bytes)) => {
                self.0.metrics.looked(LookResult::Hit);
                Held::Bytes(bytes.into())
            }
            Some(Value::Nil) => {
                self.0.metrics.looked(LookResult::Miss);
                Held::Nothing
            }
            // Nobody answers a GET so.
            Some(_) => {
                self.count_silent();
                Held::Silent
            }
            None => Held::Silent,
        }
    }

    /// Keeps `bytes` for `ttl`, once, if there is a connection now: Redis is a cache, and the record is durable. Not for
    /// the way of an answer: it may take [`TRY`].
    pub async fn keep(&self, route: &RouteName, digest: &[u8; 32], bytes: &[u8], ttl: Duration) {
        let shared = &self.0;
        let (Some(namespace), Some(link)) = (shared.namespace(), shared.link.borrow().clone()) else {
            return;
        };
        let name = commands::answer_name(&namespace, route, digest);
        if link.ask(commands::keep(&name, bytes, ttl), TRY).await.is_err() {
            shared.metrics.failed(RedisOperation::Keep);
        }
    }
}
