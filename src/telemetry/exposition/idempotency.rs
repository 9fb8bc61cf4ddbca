//! Idempotent calls: outcomes by route, records by state, memory in use.

use std::fmt;
use std::sync::Arc;

use super::{Printer, seconds};
use crate::id::RouteName;
use crate::store::records::RecordKind;
use crate::telemetry::metrics::{KeyMetrics, KeyOutcome, KnownBy, RecordMetrics};

pub(super) fn print(
    out: &mut Printer<'_, '_>,
    records: &RecordMetrics,
    routes: &[(RouteName, Arc<KeyMetrics>)],
) -> fmt::Result {
    out.counters(
        "idempotency",
        "Requests with an Idempotency-Key (or without a required one), by how they ended",
        routes.iter().flat_map(|(name, route)| {
            KeyOutcome::ALL.map(|outcome| {
                (
                    [("route", name.as_str()), ("outcome", outcome.as_str())],
                    route.outcomes(outcome),
                )
            })
        }),
    )?;
    out.counters(
        "idempotency_known",
        "Used keys, by who knew them",
        routes.iter().flat_map(|(name, route)| {
            KnownBy::ALL.map(|by| ([("route", name.as_str()), ("by", by.as_str())], route.known_by(by)))
        }),
    )?;
    out.gauges(
        "idempotency_records",
        "Records in the store, by state",
        RecordKind::ALL.map(|kind| ([("state", kind.as_str())], records.records(kind))),
    )?;
    out.gauges(
        "idempotency_running",
        "Idempotent calls that run in this process",
        [([], records.running.get())],
    )?;
    out.gauges(
        "replay_cache_bytes",
        "Bytes of kept answers in memory",
        [([], records.cache_bytes.get())],
    )?;
    out.gauges(
        "oldest_ambiguous_seconds",
        "Age of the oldest call of which nobody knows whether it took effect",
        [([], seconds(records.oldest_ambiguous.get()))],
    )
}
