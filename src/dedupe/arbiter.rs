//! [`arbitrate`]: decides between replicas that have a store each, by asking Redis for every appended event before it is
//! admitted.
//!
//! **Theory of operation.** The store hands out appended events in slices, in append order, and admits none before it has
//! its [`Claim`]. A slice is asked for in one pipeline and asked again, event by event, until Redis has answered; what the
//! answers mean is [`Protocol::step`]'s matter. When Redis has said nothing for `admit_timeout`, `on_down` decides: the
//! own store alone (and Redis is told later), or nobody, and admission waits. Once an outage has lasted that long, no
//! slice after it waits again: patience begins with the first silence and ends with the next answer.
//!
//! **Promises.** P2 over separate stores, as far as Redis keeps what it was told. P1: the events are durable and answered
//! already; nothing here can lose one. P6: one slice at a time, and the store bounds what waits.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::protocol::{About, Input, LATE, OnDown, Protocol, Reply, Stage};
use super::redis::Redis;
use crate::id::EventId;
use crate::store::model::{Claim, Unclaimed};
use crate::store::{Claims, Store};
use crate::time::{Clock, Monotonic};

/// Pause before what got no answer is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// An event that waits for Redis's answer.
struct Waiting {
    unclaimed: Unclaimed,
    stage: Stage,
    /// When the last try that may come late was made.
    tried: Monotonic,
}

/// Runs until the store closes or `stop`.
pub async fn arbitrate(
    mut claims: Claims,
    store: Store,
    redis: Redis,
    protocol: Protocol,
    on_down: OnDown,
    clock: Clock,
    stop: CancellationToken,
) {
    let mut outage = Outage::new(redis.settings().admit_timeout, on_down);
    // Tries of a process before us may be on their way too.
    let started = clock.monotonic();
    loop {
        let slice = tokio::select! {
            () = stop.cancelled() => return,
            slice = claims.next() => slice,
        };
        let Some(slice) = slice else { return };
        let late = clock.monotonic().since(started) < LATE;
        let waiting = slice.into_iter().map(|event| Waiting::new(event, late, started));
        let mut waiting: Vec<Waiting> = waiting.collect();
        while !waiting.is_empty() {
            let now = clock.monotonic();
            for waiting in waiting.iter_mut().filter(|waiting| now.since(waiting.tried) >= LATE) {
                waiting.stage = waiting.step(&protocol, Input::NothingLate);
            }
            let asked: Vec<Unclaimed> = waiting.iter().map(|waiting| waiting.unclaimed.clone()).collect();
            // Also in a known outage, where a try waits a while for a connection: deciding alone a moment before Redis is back
            // would forward twice.
            let replies = tokio::select! {
                () = stop.cancelled() => return,
                replies = redis.claims(&asked) => replies,
            };
            let now = clock.monotonic();
            let over = outage.heard(&replies, now);
            let mut decided = Vec::new();
            for (waiting, reply) in waiting.iter_mut().zip(replies) {
                if reply == Reply::Silent {
                    waiting.tried = now;
                }
                waiting.stage = waiting.step(&protocol, Input::Heard(reply));
                if over && matches!(waiting.stage, Stage::Claim { .. }) {
                    waiting.stage = waiting.step(&protocol, Input::PatienceOver);
                }
                decided.extend(waiting.decided());
            }
            waiting.retain(|waiting| waiting.decided().is_none());
            store.claimed(decided);
            if !waiting.is_empty() {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        }
    }
}

impl Waiting {
    fn new(unclaimed: Unclaimed, late: bool, tried: Monotonic) -> Self {
        let event = unclaimed.event;
        Self {
            stage: Stage::Claim { event, late },
            unclaimed,
            tried,
        }
    }

    fn step(&self, protocol: &Protocol, input: Input) -> Stage {
        let about = About {
            kind: self.unclaimed.key.kind(),
            received_at: self.unclaimed.received_at,
            body_mark: self.unclaimed.body_mark,
        };
        protocol.step(&about, self.stage, input)
    }

    fn decided(&self) -> Option<(EventId, Claim)> {
        match self.stage {
            Stage::Admit { event, claim } => Some((event, claim)),
            Stage::Look | Stage::Known { .. } | Stage::Append | Stage::Claim { .. } | Stage::Tell(_) | Stage::Done => {
                None
            }
        }
    }
}

/// How long Redis has been silent, over all slices.
struct Outage {
    patience: Duration,
    on_down: OnDown,
    silent_since: Option<Monotonic>,
    said: bool,
}

impl Outage {
    fn new(patience: Duration, on_down: OnDown) -> Self {
        Self {
            patience,
            on_down,
            silent_since: None,
            said: false,
        }
    }

    /// Whether patience is over. Said once for each outage, and when it ends.
    fn heard(&mut self, replies: &[Reply], now: Monotonic) -> bool {
        if replies.iter().any(|reply| *reply != Reply::Silent) {
            self.silent_since = None;
            if std::mem::take(&mut self.said) {
                info!("Redis answers admission again");
            }
        }
        if !replies.contains(&Reply::Silent) {
            return false;
        }
        let since = *self.silent_since.get_or_insert(now);
        let over = now.since(since) >= self.patience;
        if over && !self.said {
            self.said = true;
            match self.on_down {
                OnDown::Store => warn!(
                    on_down = "store",
                    "Redis does not answer admission: this store decides alone, and what also reaches another replica may \
                     be forwarded twice"
                ),
                OnDown::Refuse => warn!(
                    on_down = "refuse",
                    "Redis does not answer admission: what is accepted waits for it"
                ),
            }
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Monotonic {
        Monotonic::from_start(Duration::from_secs(secs))
    }

    #[test]
    fn patience_begins_with_the_first_silence_and_ends_with_an_answer() {
        let mut outage = Outage::new(Duration::from_secs(10), OnDown::Store);
        assert!(!outage.heard(&[Reply::Absent], at(0)));
        assert!(!outage.heard(&[Reply::Silent], at(1)));
        assert!(!outage.heard(&[Reply::Silent, Reply::Silent], at(10)));
        assert!(outage.heard(&[Reply::Silent], at(11)), "ten seconds after the first");
        assert!(
            outage.heard(&[Reply::Silent], at(12)),
            "the next slice does not wait again"
        );
        assert!(
            !outage.heard(&[Reply::Silent, Reply::Absent], at(13)),
            "it has answered"
        );
        assert!(!outage.heard(&[Reply::Silent], at(20)));
        assert!(outage.heard(&[Reply::Silent], at(23)));
    }
}
