//! The types against the OpenAPI document.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;

fn some() -> Option<String> {
    Some("x".to_owned())
}

/// One of each, with everything that may be absent present.
fn samples() -> Vec<(&'static str, Value)> {
    let dispatch = Dispatch {
        due_at: some(),
        ..Dispatch::default()
    };
    let summary = EventSummary {
        delivery_id: some(),
        event_type: some(),
        dispatches: vec![dispatch.clone()],
        elsewhere: some(),
        ..EventSummary::default()
    };
    let attempt = Attempt {
        status: Some(200),
        cause: some(),
        excerpt: "x".to_owned(),
        ..Attempt::default()
    };
    let filter = Filter {
        source: some(),
        event_type: some(),
        delivery_id: some(),
        state: some(),
        upstream: some(),
        from: some(),
        to: some(),
        limit: Some(1),
        cursor: some(),
    };
    vec![
        ("Dispatch", json!(dispatch)),
        ("EventSummary", json!(summary)),
        ("Attempt", json!(attempt)),
        ("Filter", json!(filter)),
        (
            "EventPage",
            json!(EventPage {
                events: vec![],
                next_cursor: some(),
            }),
        ),
        (
            "EventDetail",
            json!(EventDetail {
                scope: some(),
                secret_label: some(),
                authority: some(),
                body_text: some(),
                ..EventDetail::default()
            }),
        ),
        ("Replay", json!(Replay { to: some() })),
        (
            "ReplayMany",
            json!(ReplayMany {
                to: some(),
                ..ReplayMany::default()
            }),
        ),
        (
            "Replayed",
            json!(Replayed {
                next_cursor: some(),
                ..Replayed::default()
            }),
        ),
        ("Discard", json!(Discard { upstream: some() })),
        ("Discarded", json!(Discarded::default())),
        (
            "Status",
            json!(Status {
                not_ready: some(),
                redis: Some(RedisStatus::default()),
                idempotency: Some(IdempotencyStatus::default()),
                ..Status::default()
            }),
        ),
        (
            "StoreStatus",
            json!(StoreStatus {
                problem: some(),
                free_bytes: Some(1),
                ..StoreStatus::default()
            }),
        ),
        ("RedisStatus", json!(RedisStatus::default())),
        (
            "IdempotencyStatus",
            json!(IdempotencyStatus {
                oldest_ambiguous_seconds: Some(1),
                ..IdempotencyStatus::default()
            }),
        ),
        (
            "RecordPage",
            json!(RecordPage {
                next_cursor: some(),
                ..RecordPage::default()
            }),
        ),
        (
            "RecordSummary",
            json!(RecordSummary {
                status: Some(1),
                ..RecordSummary::default()
            }),
        ),
        (
            "RecordDetail",
            json!(RecordDetail {
                key: some(),
                accepted_at: some(),
                expires_at: some(),
                answer: Some(KeptAnswer::default()),
                ..RecordDetail::default()
            }),
        ),
        (
            "KeptAnswer",
            json!(KeptAnswer {
                body_text: some(),
                ..KeptAnswer::default()
            }),
        ),
        (
            "Resolve",
            json!(Resolve {
                release: true,
                answer: Some(GivenAnswer::default()),
            }),
        ),
        (
            "GivenAnswer",
            json!(GivenAnswer {
                content_type: some(),
                body: some(),
                ..GivenAnswer::default()
            }),
        ),
        (
            "SourceStatus",
            json!(SourceStatus {
                sender: Some(SenderStatus::default()),
                learn: Some(LearnStatus::default()),
                ..SourceStatus::default()
            }),
        ),
        ("SenderStatus", json!(SenderStatus::default())),
        (
            "RefusalStatus",
            json!(RefusalStatus {
                hint: some(),
                ..RefusalStatus::default()
            }),
        ),
        (
            "SecretStatus",
            json!(SecretStatus {
                known_since: some(),
                last_used_at: some(),
                not_after: some(),
                ends_in_seconds: Some(1),
                unused_seconds: Some(1),
                ..SecretStatus::default()
            }),
        ),
        (
            "UpstreamStatus",
            json!(UpstreamStatus {
                oldest_pending_seconds: Some(1),
                held_for_seconds: Some(1),
                last_progress_at: some(),
                ..UpstreamStatus::default()
            }),
        ),
        ("Upstreams", json!(Upstreams::default())),
        (
            "Upstream",
            json!(Upstream {
                held_for_seconds: Some(1),
                rate: some(),
                share: Some(ShareStatus::default()),
                oldest_pending_seconds: Some(1),
                ..Upstream::default()
            }),
        ),
        ("ShareStatus", json!(ShareStatus::default())),
        ("Reloaded", json!(Reloaded::default())),
        ("ReloadRefused", json!(ReloadRefused::default())),
        ("Problem", json!(Problem::default())),
        (
            "ConfigurationStatus",
            json!(ConfigurationStatus {
                refused: Some(RefusedStatus::default()),
                ..ConfigurationStatus::default()
            }),
        ),
        ("RefusedStatus", json!(RefusedStatus::default())),
        ("RouteStatus", json!(RouteStatus::default())),
        ("Learn", json!(Learn::default())),
        (
            "LearnStatus",
            json!(LearnStatus {
                armed_until: some(),
                armed_for_seconds: Some(1),
                ..LearnStatus::default()
            }),
        ),
        ("Nothing", json!(Nothing::default())),
        ("ErrorBody", json!(ErrorBody::default())),
        ("ErrorDetail", json!(ErrorDetail::default())),
    ]
}

fn keys(value: &Value) -> BTreeSet<String> {
    value
        .as_object()
        .into_iter()
        .flat_map(|object| object.keys().cloned())
        .collect()
}

#[test]
fn the_openapi_document_describes_every_field_and_no_other() {
    let document: Value = serde_json::from_str(include_str!("../openapi.json")).unwrap();
    let schemas = &document["components"]["schemas"];
    let samples = samples();
    let named: BTreeSet<String> = samples.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(keys(schemas), named);
    for (name, sample) in samples {
        assert_eq!(keys(&schemas[name]["properties"]), keys(&sample), "{name}");
    }
    let parameters = document["paths"]["/api/v1/events"]["get"]["parameters"]
        .as_array()
        .unwrap();
    let parameters: BTreeSet<String> = parameters
        .iter()
        .map(|p| p["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(parameters, keys(&schemas["Filter"]["properties"]));
}

#[test]
fn what_the_openapi_document_requires_is_always_there() {
    let document: Value = serde_json::from_str(include_str!("../openapi.json")).unwrap();
    for (name, least) in [
        ("EventPage", json!(EventPage::default())),
        ("EventSummary", json!(EventSummary::default())),
        ("EventDetail", json!(EventDetail::default())),
        ("Dispatch", json!(Dispatch::default())),
        ("Attempt", json!(Attempt::default())),
        ("Replayed", json!(Replayed::default())),
        ("Status", json!(Status::default())),
        ("StoreStatus", json!(StoreStatus::default())),
        ("SourceStatus", json!(SourceStatus::default())),
        ("SenderStatus", json!(SenderStatus::default())),
        ("RefusalStatus", json!(RefusalStatus::default())),
        ("SecretStatus", json!(SecretStatus::default())),
        ("LearnStatus", json!(LearnStatus::default())),
        ("RouteStatus", json!(RouteStatus::default())),
        ("IdempotencyStatus", json!(IdempotencyStatus::default())),
        ("RecordPage", json!(RecordPage::default())),
        ("RecordSummary", json!(RecordSummary::default())),
        ("RecordDetail", json!(RecordDetail::default())),
        ("KeptAnswer", json!(KeptAnswer::default())),
        ("UpstreamStatus", json!(UpstreamStatus::default())),
        ("Upstreams", json!(Upstreams::default())),
        ("Upstream", json!(Upstream::default())),
        ("ShareStatus", json!(ShareStatus::default())),
        ("Reloaded", json!(Reloaded::default())),
        ("ReloadRefused", json!(ReloadRefused::default())),
        ("Problem", json!(Problem::default())),
        ("ConfigurationStatus", json!(ConfigurationStatus::default())),
        ("RefusedStatus", json!(RefusedStatus::default())),
    ] {
        let required = &document["components"]["schemas"][name]["required"];
        let required: BTreeSet<String> = serde_json::from_value(required.clone()).unwrap();
        assert_eq!(required, keys(&least), "{name}");
    }
}
