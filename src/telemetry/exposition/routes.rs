//! Routes.

use std::fmt;

use super::Printer;
use crate::telemetry::metrics::{RouteMetrics, RouteOutcome};

pub(super) fn print(out: &mut Printer<'_, '_>, routes: &[(&str, &RouteMetrics)]) -> fmt::Result {
    out.counters(
        "route_requests",
        "Requests to a route, by how they ended as far as the head of the answer; 2xx to 5xx are the upstream's answers, \
         replayed ones too; broken are also calls with an Idempotency-Key whose outcome is unknown, and refused what is \
         sent again to one",
        routes.iter().flat_map(|(name, route)| {
            RouteOutcome::ALL.map(|outcome| {
                (
                    [("route", *name), ("outcome", outcome.as_str())],
                    route.requests(outcome),
                )
            })
        }),
    )?;
    out.counters(
        "route_answers_cut",
        "Answers that did not reach their end, by who ended them",
        routes.iter().flat_map(|(name, route)| {
            [
                ([("route", *name), ("by", "upstream")], route.cut_by_upstream.get()),
                ([("route", *name), ("by", "client")], route.cut_by_client.get()),
            ]
        }),
    )?;
    out.gauges(
        "route_waiting",
        "Requests that wait for the head of the upstream's answer",
        routes
            .iter()
            .map(|(name, route)| ([("route", *name)], route.waiting.get())),
    )?;
    out.gauges(
        "tunnels",
        "Open WebSockets",
        routes
            .iter()
            .map(|(name, route)| ([("route", *name)], route.tunnels.get())),
    )?;
    out.histograms(
        "route_seconds",
        "From the complete head of a request to the head of its answer",
        routes
            .iter()
            .map(|(name, route)| ([("route", *name)], route.answer_times())),
    )
}
