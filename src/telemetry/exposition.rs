//! Prints [`Metrics`] in the Prometheus text format (version 0.0.4), which every scraper reads.

mod idempotency;
mod routes;

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::metrics::{
    BUCKETS_MICROS, Failure, HandshakeOutcome, Histogram, KeyFetch, LookResult, Metrics, RedisMetrics, RedisOperation,
    ReloadMetrics, ReloadOutcome, RequestOutcome, RouteMetrics, SenderAnswer, ServerMetrics, SourceMetrics,
    StoreMetrics, TellDropped, TlsMetrics, UpstreamMetrics,
};
use crate::store::model::DispatchState;
use crate::time::Timestamp;

/// The `Content-Type` of [`text`].
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// A registry that exposes `metrics` under `hooksluice_…`.
pub fn registry(metrics: Metrics) -> Registry {
    let mut registry = Registry::with_prefix("hooksluice");
    registry.register_collector(Box::new(metrics));
    registry
}

/// Everything in `registry` as text.
pub fn text(registry: &Registry) -> Result<String, fmt::Error> {
    let mut out = String::new();
    prometheus_text::encode(&mut out, registry)?;
    Ok(out)
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Printer(&mut encoder);
        let sources = self.sources();
        let sources: Vec<(&str, &SourceMetrics)> = sources.iter().map(|(n, m)| (n.as_str(), m.as_ref())).collect();
        let upstreams = self.upstreams();
        let upstreams: Vec<(&str, &UpstreamMetrics)> =
            upstreams.iter().map(|(n, m)| (n.as_str(), m.as_ref())).collect();
        print_sources(&mut out, &sources)?;
        print_upstreams(&mut out, &upstreams)?;
        let routes = self.routes();
        let routes: Vec<(&str, &RouteMetrics)> = routes.iter().map(|(n, m)| (n.as_str(), m.as_ref())).collect();
        if !routes.is_empty() {
            routes::print(&mut out, &routes)?;
        }
        print_store(&mut out, self.store())?;
        if let Some(redis) = self.redis_if_any() {
            print_redis(&mut out, redis)?;
        }
        if let Some(records) = self.records_if_any() {
            idempotency::print(&mut out, records, &self.routes_with_keys())?;
        }
        if let Some(tls) = self.tls_if_any() {
            print_tls(&mut out, tls)?;
        }
        print_server(&mut out, self.server())
    }
}

fn print_sources(out: &mut Printer<'_, '_>, sources: &[(&str, &SourceMetrics)]) -> fmt::Result {
    out.counters(
        "requests",
        "Requests to a source, by how they ended; accepted includes duplicates that are found only at admission",
        sources.iter().flat_map(|(name, source)| {
            RequestOutcome::ALL.map(|outcome| {
                (
                    [("source", *name), ("outcome", outcome.as_str())],
                    source.requests(outcome),
                )
            })
        }),
    )?;
    out.counters(
        "rejections",
        "Refused requests, by reason; a wrong method (405) is rejected without one",
        sources.iter().flat_map(|(name, source)| {
            source
                .rejections_by_word()
                .map(|(reason, count)| ([("source", *name), ("reason", reason)], count))
        }),
    )?;
    out.counters(
        "failures",
        "Requests that a bound, a failure of ours or the client's leaving ended, by cause",
        sources.iter().flat_map(|(name, source)| {
            Failure::ALL.map(|cause| ([("source", *name), ("cause", cause.as_str())], source.failures(cause)))
        }),
    )?;
    out.counters(
        "key_fetches",
        "Providers' keys that were asked for, by what came of it",
        sources.iter().flat_map(|(name, source)| {
            KeyFetch::ALL.map(|outcome| {
                (
                    [("source", *name), ("outcome", outcome.as_str())],
                    source.key_fetches(outcome),
                )
            })
        }),
    )?;
    let per_source =
        |value: fn(&SourceMetrics) -> u64| sources.iter().map(move |(name, s)| ([("source", *name)], value(s)));
    out.counters(
        "events_stored",
        "Events admitted as new",
        per_source(SourceMetrics::events_stored),
    )?;
    out.counters(
        "duplicates",
        "Verified requests whose dedupe key belongs to a durable event",
        per_source(SourceMetrics::duplicates),
    )?;
    out.counters(
        "conflicts",
        "Duplicates with other bytes than the event they repeat",
        per_source(SourceMetrics::conflicts),
    )?;
    out.counters(
        "answers",
        "How senders that wait for the upstream's answer were answered",
        sources.iter().flat_map(|(name, source)| {
            SenderAnswer::ALL
                .into_iter()
                .map(|answer| ([("source", *name), ("answer", answer.as_str())], source.answers(answer)))
                .filter(|(_labels, count)| *count > 0)
        }),
    )?;
    out.gauges(
        "answers_waiting",
        "Senders that wait for the upstream's answer",
        sources
            .iter()
            .map(|(name, source)| ([("source", *name)], source.waiting().get())),
    )?;
    out.counters(
        "revived",
        "Duplicates that brought a dead dispatch back",
        per_source(SourceMetrics::revived),
    )?;
    let secrets: Vec<_> = sources.iter().map(|(name, source)| (*name, source.secrets())).collect();
    out.gauges(
        "secret_last_used_seconds",
        "Unix time at which a secret last vouched for a request, also before the start; 0 if never",
        secrets.iter().flat_map(|(name, secrets)| {
            secrets.iter().map(|secret| {
                let used_at = secret.last_used().map_or(0, Timestamp::as_secs);
                ([("source", *name), ("label", secret.label.as_str())], used_at)
            })
        }),
    )?;
    out.gauges(
        "secret_not_after_seconds",
        "Unix time at which a secret ends; only those that do",
        secrets.iter().flat_map(|(name, secrets)| {
            secrets.iter().filter_map(|secret| {
                let labels = [("source", *name), ("label", secret.label.as_str())];
                Some((labels, secret.not_after?.as_secs()))
            })
        }),
    )?;
    out.gauges(
        "secret_safe_to_remove",
        "1 if a secret was unused for secret_unused_after while others of its source were used",
        secrets.iter().flat_map(|(name, secrets)| {
            secrets.iter().map(|secret| {
                let labels = [("source", *name), ("label", secret.label.as_str())];
                (labels, i64::from(secret.is_removable()))
            })
        }),
    )?;
    out.gauges(
        "sender_patience_used_ratio",
        "Share of what a sender takes before it gives up that is used, by requests that were the sender's; at 1 it has; only where that is known",
        sources
            .iter()
            .filter_map(|(name, source)| Some(([("source", *name)], seconds(source.patience_used()?)))),
    )?;
    out.gauges(
        "signature_age_seconds",
        "Age of the latest signature when it arrived; negative when it came from the future, 0 where no time is signed",
        sources
            .iter()
            .map(|(name, source)| ([("source", *name)], seconds(source.latest_signature_age()))),
    )?;
    out.histograms(
        "accept_seconds",
        "From the complete head to the answer, for accepted requests and duplicates",
        sources
            .iter()
            .map(|(name, source)| ([("source", *name)], source.accept_times())),
    )
}

fn print_upstreams(out: &mut Printer<'_, '_>, upstreams: &[(&str, &UpstreamMetrics)]) -> fmt::Result {
    out.counters(
        "attempts",
        "Outbound tries of a dispatch, by outcome",
        upstreams.iter().flat_map(|(name, upstream)| {
            upstream
                .attempts()
                .map(|(word, count)| ([("upstream", *name), ("outcome", word)], count))
        }),
    )?;
    out.counters(
        "dead",
        "Dispatches given up: kept, and replayable",
        upstreams.iter().map(|(name, u)| ([("upstream", *name)], u.dead.get())),
    )?;
    let tally = |value: i64| u64::try_from(value).unwrap_or(0);
    out.counters(
        "dispatches_made",
        "Dispatches ever made, as the store counts them",
        upstreams
            .iter()
            .map(|(name, u)| ([("upstream", *name)], tally(u.made.get()))),
    )?;
    out.counters(
        "dispatches_pruned",
        "Dispatches removed by retention, as the store counts them",
        upstreams
            .iter()
            .map(|(name, u)| ([("upstream", *name)], tally(u.pruned.get()))),
    )?;
    out.gauges(
        "dispatches",
        "Dispatches in the store, by state",
        upstreams.iter().flat_map(|(name, upstream)| {
            DispatchState::ALL.map(|state| {
                (
                    [("upstream", *name), ("state", state.as_str())],
                    upstream.dispatches(state),
                )
            })
        }),
    )?;
    let per_upstream =
        |value: fn(&UpstreamMetrics) -> i64| upstreams.iter().map(move |(name, u)| ([("upstream", *name)], value(u)));
    out.gauges(
        "oldest_pending_seconds",
        "Age of the oldest undelivered dispatch",
        upstreams
            .iter()
            .map(|(name, u)| ([("upstream", *name)], seconds(u.oldest_pending.get()))),
    )?;
    out.gauges(
        "last_progress_seconds",
        "Unix time of the last settled attempt; 0 before the first",
        per_upstream(|u| u.last_progress.get()),
    )?;
    out.gauges(
        "attempts_in_flight",
        "Attempts that run now",
        per_upstream(|u| u.in_flight.get()),
    )?;
    out.gauges(
        "paused",
        "1 while a person has paused the upstream",
        per_upstream(|u| u.paused.get()),
    )?;
    out.gauges(
        "breaker_open",
        "1 while the upstream's breaker is open",
        per_upstream(|u| u.breaker_open.get()),
    )?;
    out.gauges(
        "lane_held",
        "1 while the upstream's lane is held because the upstream asked for it (Retry-After)",
        per_upstream(|u| i64::from(u.held_seconds.get() > 0)),
    )?;
    out.histograms(
        "attempt_seconds",
        "How long attempts took",
        upstreams
            .iter()
            .map(|(name, u)| ([("upstream", *name)], u.attempt_times())),
    )
}

fn print_store(out: &mut Printer<'_, '_>, store: &StoreMetrics) -> fmt::Result {
    out.histograms(
        "store_commit_seconds",
        "How long the commits of appended events took, with their sync",
        store.commit.get().map(|commit| ([], commit.as_ref())),
    )?;
    for (name, help, gauge) in [
        (
            "unadmitted",
            "Appended events that wait for admission",
            &store.unadmitted,
        ),
        (
            "store_bytes",
            "Bytes that the store's live data takes on disk",
            &store.bytes,
        ),
        (
            "store_wal_bytes",
            "Bytes of the store's write-ahead log",
            &store.wal_bytes,
        ),
        (
            "store_free_bytes",
            "Bytes free on the store's file system",
            &store.free_bytes,
        ),
        ("store_writable", "1 while the store takes events", &store.writable),
        (
            "store_clock_trusted",
            "0 for an hour after the wall clock was found to jump: expiry, pruning and giving up stand still",
            &store.clock_trusted,
        ),
    ] {
        if name == "store_free_bytes" && store.has_disk.get() == 0 {
            continue;
        }
        out.gauges(name, help, [([], gauge.get())])?;
    }
    Ok(())
}

fn print_redis(out: &mut Printer<'_, '_>, redis: &RedisMetrics) -> fmt::Result {
    out.counters(
        "dedupe_backend_errors",
        "Operations that Redis did not answer in time, or with an error",
        RedisOperation::ALL.map(|operation| ([("operation", operation.as_str())], redis.errors(operation))),
    )?;
    out.counters(
        "dedupe_looks",
        "Looks at Redis before an append, by how they ended",
        LookResult::ALL.map(|result| ([("result", result.as_str())], redis.looks(result))),
    )?;
    out.counters(
        "dedupe_tells_dropped",
        "What Redis was not told, by cause; a duplicate of it then costs the store a look",
        TellDropped::ALL.map(|cause| ([("cause", cause.as_str())], redis.tells_dropped(cause))),
    )?;
    for (name, help, gauge) in [
        (
            "dedupe_redis_up",
            "1 while there is a connection to Redis that has passed its checks",
            &redis.up,
        ),
        (
            "dedupe_redis_breaker_open",
            "1 while looks are not asked because Redis did not answer them in time",
            &redis.breaker_open,
        ),
        (
            "dedupe_tells_queued",
            "What waits for being told to Redis",
            &redis.tells_queued,
        ),
    ] {
        out.gauges(name, help, [([], gauge.get())])?;
    }
    Ok(())
}

fn print_tls(out: &mut Printer<'_, '_>, tls: &TlsMetrics) -> fmt::Result {
    out.counters(
        "tls_handshakes",
        "Inbound TLS handshakes, by how they ended",
        HandshakeOutcome::ALL.map(|outcome| ([("outcome", outcome.as_str())], tls.handshakes(outcome))),
    )?;
    let expiries = tls.expiries();
    out.gauges(
        "certificate_expiry_seconds",
        "Unix time at which a certificate of the public listener ends",
        expiries
            .iter()
            .map(|(name, end)| ([("certificate", name.as_str())], end.as_secs())),
    )
}

fn print_server(out: &mut Printer<'_, '_>, server: &ServerMetrics) -> fmt::Result {
    for (name, help, gauge) in [
        ("connections", "Open inbound connections", &server.connections),
        (
            "in_flight_bytes",
            "Body bytes held for requests to sources",
            &server.in_flight_bytes,
        ),
        (
            "calls_in_flight_bytes",
            "Body bytes held for requests with an Idempotency-Key and their answers",
            &server.calls_in_flight_bytes,
        ),
        ("recent_keys", "Keys in the memory of recent keys", &server.recent_keys),
    ] {
        out.gauges(name, help, [([], gauge.get())])?;
    }
    out.counters(
        "connections_accepted",
        "Inbound connections",
        [([], server.connections_accepted.get())],
    )?;
    out.counters(
        "connections_refused",
        "Times that accepting waited because the connection limit was reached",
        [([], server.connections_refused.get())],
    )?;
    out.counters(
        "heads_refused",
        "Request heads that were too large, too slow or malformed",
        [
            ([("cause", "too_large")], server.heads_too_large.get()),
            ([("cause", "too_slow")], server.heads_too_slow.get()),
            ([("cause", "malformed")], server.heads_malformed.get()),
        ],
    )?;
    out.counters(
        "idle_closed",
        "Connections closed because no request came",
        [([], server.idle_closed.get())],
    )?;
    out.counters(
        "stalled_closed",
        "Connections closed because the client did not take its answers",
        [([], server.stalled_closed.get())],
    )?;
    out.counters(
        "not_found",
        "Requests for a path that neither a source nor a route has",
        [([], server.not_found.get())],
    )?;
    out.counters(
        "shadowed",
        "Requests refused because their path could be taken for a source's",
        [([], server.shadowed.get())],
    )?;
    print_reloads(out, &server.reloads)?;
    let limits = server.limits.get().map_or(&[][..], Vec::as_slice);
    out.gauges(
        "limit",
        "The configured bounds; durations in seconds",
        limits
            .iter()
            .map(|(name, value)| ([("name", *name)], i64::try_from(*value).unwrap_or(i64::MAX))),
    )?;
    out.gauges(
        "build_info",
        "1, with the version as a label",
        [([("version", env!("CARGO_PKG_VERSION"))], 1_i64)],
    )
}

fn print_reloads(out: &mut Printer<'_, '_>, reloads: &ReloadMetrics) -> fmt::Result {
    out.gauges(
        "config_last_reload_successful",
        "1 while what runs is what is configured, 0 while what was refused has not been mended",
        [([], reloads.successful.get())],
    )?;
    out.gauges(
        "config_last_reload_success_timestamp_seconds",
        "Unix time at which what runs was last found to be what is configured",
        [([], reloads.succeeded_at.get())],
    )?;
    out.counters(
        "config_reloads",
        "Reloads of the configuration, by what came of them",
        ReloadOutcome::ALL.map(|outcome| ([("outcome", outcome.as_str())], reloads.count(outcome))),
    )
}

/// Prints families; knows how the metric crate wants to be asked.
struct Printer<'a, 'e>(&'a mut DescriptorEncoder<'e>);

impl Printer<'_, '_> {
    fn counters<'v, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([(&'static str, &'v str); N], u64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            with_labels(&mut family, &labels, |metric| {
                metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
            })?;
        }
        Ok(())
    }

    fn gauges<'v, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([(&'static str, &'v str); N], impl EncodeGaugeValue)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            with_labels(&mut family, &labels, |metric| metric.encode_gauge(&value))?;
        }
        Ok(())
    }

    fn histograms<'v, 'h, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = ([(&'static str, &'v str); N], &'h Histogram)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, histogram) in values {
            let counts = histogram.buckets();
            // The last bucket, without a bound, is printed as `+Inf` from the total.
            let bounds = BUCKETS_MICROS
                .iter()
                .map(|micros| Duration::from_micros(*micros).as_secs_f64());
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            let sum = Duration::from_micros(histogram.sum_micros()).as_secs_f64();
            with_labels(&mut family, &labels, |metric| {
                metric.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
            })?;
        }
        Ok(())
    }
}

fn with_labels(
    family: &mut MetricEncoder<'_>,
    labels: &[(&'static str, &str)],
    print: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    if labels.is_empty() {
        return print(family);
    }
    print(&mut family.encode_family(&labels)?)
}

/// Milliseconds as the seconds that Prometheus wants.
#[expect(
    clippy::cast_precision_loss,
    reason = "exact up to 2^53 ms, and a metric is a float by definition"
)]
fn seconds(millis: i64) -> f64 {
    millis as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::id::{SourceName, UpstreamName};
    use crate::secret::Secret;
    use crate::store::model::Outcome;
    use crate::store::secrets::SecretMark;
    use crate::telemetry::metrics::SecretUse;
    use crate::verify::Reason;

    fn sample() -> String {
        let metrics = Metrics::new();
        let source = metrics.source(&SourceName::new("stripe"));
        let mark = SecretMark::of(&SourceName::new("stripe"), &Secret::new("whsec_1"));
        source.configured([SecretUse::new(Some("say \"new\"\n"), 0, mark, 0)]);
        source.secrets()[0].used(Timestamp::from_secs(1_700_000_000));
        source.accepted(Duration::from_millis(2));
        source.rejected(Reason::Stale);
        let upstream = metrics.upstream(&UpstreamName::new("app"));
        upstream.attempt(
            &Outcome::Delivered {
                status: http::StatusCode::OK,
            },
            Duration::from_secs(60),
        );
        let commits = metrics.store().commit.get_or_init(Arc::default);
        commits.observe(Duration::from_millis(1));
        upstream.set_dispatches(DispatchState::Dead, 3);
        upstream.oldest_pending.set(1_500);
        upstream.held_for(Duration::from_millis(11_200));
        metrics.redis().failed(RedisOperation::Claim);
        metrics.redis().looked(LookResult::Hit);
        text(&registry(metrics)).unwrap()
    }

    #[test]
    fn names_and_labels_are_those_of_the_contract() {
        let shown = sample();
        for line in [
            r#"hooksluice_requests_total{source="stripe",outcome="accepted"} 1"#,
            r#"hooksluice_rejections_total{source="stripe",reason="stale"} 1"#,
            r#"hooksluice_events_stored_total{source="stripe"} 0"#,
            r#"hooksluice_duplicates_total{source="stripe"} 0"#,
            r#"hooksluice_attempts_total{upstream="app",outcome="delivered"} 1"#,
            r#"hooksluice_dispatches{upstream="app",state="dead"} 3"#,
            r#"hooksluice_dead_total{upstream="app"} 0"#,
            r#"hooksluice_oldest_pending_seconds{upstream="app"} 1.5"#,
            r#"hooksluice_lane_held{upstream="app"} 1"#,
            "hooksluice_unadmitted 0",
            r#"hooksluice_accept_seconds_bucket{source="stripe",le="0.0025"} 1"#,
            r#"hooksluice_attempt_seconds_bucket{upstream="app",le="+Inf"} 1"#,
            r#"hooksluice_attempt_seconds_bucket{upstream="app",le="30"} 0"#,
            "hooksluice_store_commit_seconds_count 1",
            r#"hooksluice_dedupe_backend_errors_total{operation="claim"} 1"#,
            r#"hooksluice_dedupe_looks_total{result="hit"} 1"#,
            "hooksluice_dedupe_redis_up 0",
        ] {
            assert!(shown.lines().any(|l| l == line), "{line} is missing in:\n{shown}");
        }
    }

    #[test]
    fn a_label_of_the_operator_is_escaped() {
        let shown = sample();
        assert!(
            shown.contains(r#"hooksluice_secret_last_used_seconds{source="stripe",label="say \"new\"\n"} 1700000000"#),
            "{shown}"
        );
    }
}
