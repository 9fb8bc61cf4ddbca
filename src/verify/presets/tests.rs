//! Every preset, as a whole.

use std::collections::BTreeSet;

use super::*;
use crate::key::Part;
use crate::verify::record::Kind;

#[test]
fn every_preset_compiles_without_a_problem() {
    for Preset { name, text, .. } in &PRESETS {
        let mut problems = Diagnostics::new();
        let record = Record::read_text(name, text, &mut problems);
        assert!(problems.is_empty(), "{name}:\n{}", problems.render(name, text, false));
        assert_eq!(record.unwrap().name(), *name);
    }
}

#[test]
fn every_file_is_a_preset_and_is_found_in_order() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("config/providers");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    assert_eq!(names(), files);
}

#[test]
fn no_alias_hides_a_preset_or_another_alias() {
    let mut taken: BTreeSet<String> = names().into_iter().map(str::to_owned).collect();
    for name in names() {
        let record = find(name).unwrap();
        assert_eq!(record.name(), name);
        for alias in record.aliases() {
            assert!(taken.insert(alias.clone()), "{name}: {alias} is taken");
            assert_eq!(find(alias).unwrap().name(), name);
        }
    }
}

#[test]
fn every_preset_says_where_it_was_read() {
    for name in names() {
        let record = find(name).unwrap();
        let docs = record.docs().unwrap_or_default();
        assert!(record.source().is_some() && docs.starts_with("https://"), "{name}");
    }
}

/// Where a delivery id alone decides, an event whose id repeats another's is dropped: each such record is named here
/// with the provider's own page that says so.
const DECIDED_BY_ID: &[(&str, &str)] = &[
    ("box", "https://developer.box.com/guides/webhooks/v2/"),
    (
        "btcpay",
        "https://docs.btcpayserver.org/API/Greenfield/v1/#tag/Webhooks",
    ),
    (
        "chargebee",
        "https://apidocs.chargebee.com/docs/api/events/event-object",
    ),
    (
        "circleci",
        "https://circleci.com/docs/reference/outbound-webhooks-reference/",
    ),
    ("clerk", "https://clerk.com/docs/guides/development/webhooks/overview"),
    (
        "dodopayments",
        "https://docs.dodopayments.com/developer-resources/webhooks#idempotency",
    ),
    (
        "github",
        "https://docs.github.com/en/webhooks/webhook-events-and-payloads#delivery-headers",
    ),
    (
        "gitlab",
        "https://docs.gitlab.com/user/project/integrations/webhooks/#delivery-headers",
    ),
    (
        "gitlab-signing",
        "https://docs.gitlab.com/user/project/integrations/webhooks/#delivery-headers",
    ),
    (
        "make",
        "https://developers.make.com/event-subscription/implementation/retries-duplicates-and-ordering",
    ),
    (
        "pagerduty",
        "https://github.com/PagerDuty/developer-docs/blob/main/docs/webhooks/02-Behavior.md",
    ),
    ("pandadoc", "https://developers.pandadoc.com/docs/webhook-deduplication"),
    ("razorpay", "https://razorpay.com/docs/webhooks/best-practices"),
    (
        "revenuecat",
        "https://www.revenuecat.com/docs/integrations/webhooks/event-types-and-fields",
    ),
    (
        "revenuecat-header",
        "https://www.revenuecat.com/docs/integrations/webhooks/event-types-and-fields",
    ),
    (
        "signatureapi",
        "https://signatureapi.com/docs/api/guides/best-practices/idempotent-webhooks",
    ),
    ("slack", "https://docs.slack.dev/apis/events-api#callback-field"),
    (
        "sns",
        "https://docs.aws.amazon.com/sns/latest/dg/http-notification-json.html",
    ),
    ("square", "https://developer.squareup.com/docs/webhooks/step4manage"),
    (
        "standard-webhooks",
        "https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md",
    ),
    ("stripe", "https://docs.stripe.com/webhooks#handle-duplicate-events"),
    ("svix", "https://docs.svix.com/receiving/verifying-payloads/how-manual"),
];

#[test]
fn an_id_decides_alone_only_where_the_provider_says_so() {
    let records: Vec<_> = names().into_iter().filter_map(find).collect();
    let by_id = records.iter().filter(|record| record.dedupe() == [Part::Id]);
    let found: Vec<_> = by_id
        .map(|record| {
            let source = record.dedupe_source().unwrap_or_default();
            let page = source.split(": ").next().unwrap_or_default();
            (record.name(), page)
        })
        .collect();
    assert_eq!(found, DECIDED_BY_ID);
    for record in records.iter().filter(|record| record.dedupe() != [Part::Id]) {
        assert_eq!(record.dedupe(), [Part::Id, Part::Type, Part::Body], "{record}");
    }
}

/// Schemes that sign less than the body: a forged body passes, and people are told so.
const BODY_NOT_SIGNED: &[&str] = &[
    "adyen",
    "braintree",
    "dropbox-sign",
    "exact-online",
    "favro",
    "jira-connect",
    "lever",
    "mailgun",
    "mercadopago",
    "monday",
    "paymob",
    "paypal",
    "plivo-v2",
    "praxis",
    "quoter",
    "sns",
    "wechat-mp",
];

#[test]
fn a_signature_covers_the_body_but_where_it_is_known_not_to() {
    let records = names().into_iter().filter_map(find);
    let not_signed: Vec<String> = records
        .filter(|record| !matches!(record.kind(), Kind::Token | Kind::Basic | Kind::None))
        .filter(|record| !record.body_authenticated())
        .map(|record| record.name().to_owned())
        .collect();
    assert_eq!(not_signed, BODY_NOT_SIGNED);
}

#[test]
fn a_near_miss_is_proposed() {
    assert_eq!(nearest("githb"), Some("github"));
    assert_eq!(nearest("zzzzzz"), None);
}
