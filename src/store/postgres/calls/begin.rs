//! Beginning calls: one transaction takes the keys of a batch.
//!
//! A batch that fails is tried again with the same tokens: where the outcome was unknown and it had been committed, its
//! calls find their own. Whoever gives up has its key released, which its token fences; where even that is not heard, the
//! lease lapses and the record is ambiguous. So no key is free that a call was handed out for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio_postgres::types::Type;

use super::{Shared, Waiting};
use crate::id::LeaseToken;
use crate::store::calls::{Begin, Taking};
use crate::store::model::AppendError;
use crate::store::postgres::append::{PATIENCE, PAUSE, is_final, millis, wait};
use crate::store::postgres::connect::Failure;
use crate::store::postgres::stored::CALL_TAKE;
use crate::store::postgres::transaction::Step;
use crate::store::records::RecordKey;
use crate::time::Monotonic;

/// The first of a batch that wants a key, and the others.
struct Entry {
    waiting: Waiting,
    followers: Vec<Begin>,
    /// It may be stored.
    sent: bool,
}

impl Entry {
    fn fail(self, shared: &Shared, why: &str) {
        let Begin { call, token, reply, .. } = self.waiting.begin;
        if self.sent {
            shared.calls.release(call.key, token);
        }
        let all = std::iter::once(reply).chain(self.followers.into_iter().map(|begin| begin.reply));
        for reply in all {
            let _hung_up = reply.send(Err(AppendError::Failed(why.to_owned())));
        }
    }
}

/// A task that begins batches of calls until the queue closes. `writer`: no two that run at once have the same.
pub(in crate::store::postgres) async fn run(shared: Arc<Shared>, writer: i16) {
    while let Some(batch) = shared.calls.take_begins().await {
        // Halves of a batch that the database refuses for its values, until the one that it refuses stands alone.
        let mut parts = vec![plan(batch)];
        while let Some(part) = parts.pop() {
            let Some(mut part) = write(&shared, writer, part).await else {
                continue;
            };
            if part.len() > 1 {
                let half = part.split_off(part.len() / 2);
                parts.push(half);
                parts.push(part);
            } else {
                for entry in part {
                    entry.fail(&shared, "the database refuses this call");
                }
            }
        }
    }
}

/// One entry for each key.
fn plan(batch: Vec<Waiting>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::with_capacity(batch.len());
    let mut by_key: HashMap<RecordKey, usize> = HashMap::new();
    for waiting in batch {
        let key = waiting.begin.call.key.clone();
        if let Some(first) = by_key.get(&key).and_then(|at| entries.get_mut(*at)) {
            first.followers.push(waiting.begin);
            continue;
        }
        by_key.insert(key, entries.len());
        entries.push(Entry {
            waiting,
            followers: Vec::new(),
            sent: false,
        });
    }
    entries
}

/// Writes a batch until it is committed or its time is over. Returns what the database refuses for its values.
async fn write(shared: &Arc<Shared>, writer: i16, mut entries: Vec<Entry>) -> Option<Vec<Entry>> {
    let mut pause = PAUSE;
    loop {
        let failure = match take(shared, writer, &mut entries).await {
            Ok((sent, tokens)) => {
                shared.succeeded();
                answer(shared, entries, sent, &tokens);
                return None;
            }
            Err(Failure::Data(why)) => {
                tracing::error!(why, calls = entries.len(), "the database refuses a call");
                return Some(entries);
            }
            Err(failure) => failure,
        };
        shared.failed(&failure);
        let now = shared.leases_now();
        let over = |entry: &Entry| is_final(&failure) || now.since(entry.waiting.since) >= PATIENCE;
        let (expired, kept): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(over);
        for entry in expired {
            entry.fail(shared, &failure.to_string());
        }
        entries = kept;
        if entries.is_empty() {
            return None;
        }
        pause = wait(pause).await;
    }
}

/// The transaction; returns when it was sent and the tokens that got their keys: a lease that an earlier try wrote is written
/// again.
async fn take(
    shared: &Shared,
    writer: i16,
    entries: &mut [Entry],
) -> Result<(Monotonic, HashSet<LeaseToken>), Failure> {
    let routes = entries.iter().map(|entry| entry.waiting.begin.call.key.route.as_str());
    shared.routes.learn(&shared.database, routes).await?;
    let sent = shared.leases_now();
    for entry in entries.iter_mut() {
        entry.sent = true;
    }
    let now = shared.expiry_now().map(crate::time::Timestamp::as_millis);
    let mut rows = Columns::default();
    for entry in entries.iter() {
        rows.push(shared, &entry.waiting.begin);
    }
    let ttl = millis(shared.tuning.call_ttl);
    let mut steps = Vec::with_capacity(2);
    if entries.iter().any(|entry| entry.waiting.begin.again) && now.is_some() {
        steps.push(Step::new(
            include_str!("../drop_expired.sql"),
            [
                (&rows.digests as _, Type::BYTEA_ARRAY),
                (&rows.routes as _, Type::INT4_ARRAY),
                (&now as _, Type::INT8),
                (&shared.replica as _, Type::UUID),
                (&writer as _, Type::INT2),
            ],
        ));
    }
    steps.push(Step::new(
        CALL_TAKE.as_str(),
        [
            (&rows.digests as _, Type::BYTEA_ARRAY),
            (&rows.routes as _, Type::INT4_ARRAY),
            (&rows.fingerprints as _, Type::BYTEA_ARRAY),
            (&rows.client_keys as _, Type::BYTEA_ARRAY),
            (&rows.accepted_at as _, Type::INT8_ARRAY),
            (&rows.expires_at as _, Type::INT8_ARRAY),
            (&rows.tokens as _, Type::INT8_ARRAY),
            (&rows.after_ambiguous as _, Type::INT8_ARRAY),
            (&ttl as _, Type::INT8),
        ],
    ));
    let committed = shared.database.write(&steps).await?;
    let mut tokens = HashSet::with_capacity(entries.len());
    for row in committed.rows.last().into_iter().flatten() {
        tokens.insert(LeaseToken::new(row.try_get(0)?));
    }
    Ok((sent, tokens))
}

/// A batch as arrays.
#[derive(Default)]
struct Columns<'a> {
    digests: Vec<&'a [u8]>,
    routes: Vec<i32>,
    fingerprints: Vec<&'a [u8]>,
    client_keys: Vec<&'a [u8]>,
    accepted_at: Vec<i64>,
    expires_at: Vec<i64>,
    tokens: Vec<i64>,
    /// Tokens that may follow an ambiguous call.
    after_ambiguous: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, shared: &Shared, begin: &'a Begin) {
        let call = &begin.call;
        let accepted_at = shared.database.to_theirs(call.accepted_at);
        self.digests.push(&call.key.digest);
        self.routes.push(shared.routes.id(call.key.route.as_str()).unwrap_or(0));
        self.fingerprints.push(&call.fingerprint.0);
        self.client_keys.push(call.client_key.as_bytes());
        self.accepted_at.push(accepted_at.as_millis());
        self.expires_at.push(accepted_at.after(call.ttl).as_millis());
        self.tokens.push(begin.token.get());
        if call.after_ambiguous {
            self.after_ambiguous.push(begin.token.get());
        }
    }
}

/// The batch is durable: who makes its call, and who found its key taken.
fn answer(shared: &Arc<Shared>, entries: Vec<Entry>, sent: Monotonic, tokens: &HashSet<LeaseToken>) {
    for entry in entries {
        let begin = entry.waiting.begin;
        let taking = if tokens.contains(&begin.token) {
            Taking::Started(shared.hand_call_out(&begin, sent))
        } else {
            Taking::Taken
        };
        if let Err(Ok(Taking::Started(call))) = begin.reply.send(Ok(taking)) {
            // Whoever asked has gone, and nobody else can have the call.
            let (key, token) = call.forget();
            shared.calls.release(key, token);
        }
        for follower in entry.followers {
            let _hung_up = follower.reply.send(Ok(Taking::Taken));
        }
    }
}
