//! Renewing the leases of calls. A renewal that hangs (a connection that is lost without a word) must not cost the lease,
//! so the next one does not wait for it.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_postgres::types::Type;

use super::Shared;
use crate::id::LeaseToken;
use crate::store::postgres::append::millis;
use crate::store::postgres::connect::Failure;
use crate::store::postgres::transaction::Step;
use crate::store::records::RecordKey;

/// Leases renewed per transaction, at most.
const RENEW_MAX: usize = 1_000;
/// Renewals under way, at most.
const RENEWALS_MAX: usize = 3;

/// The task; ends when leases are not looked after any more.
pub(in crate::store::postgres) async fn run(shared: Arc<Shared>) {
    let ttl = shared.tuning.call_ttl;
    // After three tenths of its time a lease is renewed, and again with each step until the answer is here.
    let step = ttl / 20;
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            () = shared.kept.cancelled() => return,
            () = tokio::time::sleep(step) => {}
        }
        while under_way.try_join_next().is_some() {}
        if under_way.len() < RENEWALS_MAX {
            let due = shared.calls.due(shared.leases_now().after(ttl * 6 / 10));
            if !due.is_empty() {
                let shared = Arc::clone(&shared);
                under_way.spawn(async move {
                    if let Err(failure) = renew(&shared, &due).await {
                        shared.failed(&failure);
                    }
                });
            }
        }
    }
}

async fn renew(shared: &Shared, due: &[(LeaseToken, RecordKey)]) -> Result<(), Failure> {
    for part in due.chunks(RENEW_MAX) {
        let sent = shared.leases_now();
        let digests: Vec<&[u8]> = part.iter().map(|(_token, key)| key.digest.as_slice()).collect();
        let route = |key: &RecordKey| shared.routes.id(key.route.as_str()).unwrap_or(0);
        let routes: Vec<i32> = part.iter().map(|(_token, key)| route(key)).collect();
        let tokens: Vec<i64> = part.iter().map(|(token, _key)| token.get()).collect();
        let ttl = millis(shared.tuning.call_ttl);
        let step = Step::new(
            include_str!("../renew_calls.sql"),
            [
                (&digests as _, Type::BYTEA_ARRAY),
                (&routes as _, Type::INT4_ARRAY),
                (&tokens as _, Type::INT8_ARRAY),
                (&ttl as _, Type::INT8),
            ],
        );
        let committed = shared.database.write(&[step]).await?;
        let mut kept = HashSet::with_capacity(part.len());
        for row in committed.step(0) {
            kept.insert(LeaseToken::new(row.try_get(0)?));
        }
        let lost = shared.calls.renewed(part, &kept, shared.call_until(sent));
        if lost > 0 {
            tracing::warn!(
                lost,
                "leases of calls were lost: their records are ambiguous, or somebody else's"
            );
        }
    }
    Ok(())
}
