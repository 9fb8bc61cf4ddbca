//! What can be seen without a recomputation: which headers came, and what a secret's first letters say it is.

use http::header::{CONTENT_ENCODING, FORWARDED, HeaderName, VIA};

use crate::request::{RawRequest, RequestHead};

use super::super::place::Place;
use super::super::presets;
use super::super::record::Record;
use super::super::verifier::Verifier;
use super::search::signature_header;
use super::{Hint, WhichSecret};

/// Providers that are named at most.
const FEW: usize = 4;

/// Beginnings that all credentials of a kind share, so that they say nothing of the one that is configured.
const CREDENTIALS: [(&str, &str); 22] = [
    ("sk_live_", "a secret API key"),
    ("sk_test_", "a secret API key (test mode)"),
    ("rk_live_", "a restricted API key"),
    ("rk_test_", "a restricted API key (test mode)"),
    ("pk_live_", "a publishable key"),
    ("pk_test_", "a publishable key (test mode)"),
    ("ghp_", "a GitHub token"),
    ("gho_", "a GitHub token"),
    ("ghu_", "a GitHub token"),
    ("ghs_", "a GitHub token"),
    ("github_pat_", "a GitHub token"),
    ("glpat-", "a GitLab token"),
    ("xoxb-", "a Slack token"),
    ("xoxp-", "a Slack token"),
    ("xapp-", "a Slack token"),
    ("shpat_", "a Shopify access token"),
    ("SG.", "a SendGrid API key"),
    ("lin_api_", "a Linear API key"),
    ("pdl_live_apikey_", "a Paddle API key"),
    ("pdl_sdbx_apikey_", "a Paddle API key (sandbox)"),
    ("ntn_", "a Notion token"),
    ("-----BEGIN", "a key in PEM"),
];

/// A credential of another kind in a signing secret's place. Only where the record says what its secret is called, and
/// that it is not such a key or token: with some providers the API key does sign.
pub(super) fn of_secrets(verifier: &Verifier) -> Option<Hint> {
    let title = verifier.record().secret_title()?.to_ascii_lowercase();
    if title.contains("key") || title.contains("token") || title.contains("pem") {
        return None;
    }
    let mut secrets = verifier.secrets().iter().enumerate();
    secrets.find_map(|(index, secret)| {
        let text = secret.secret.expose().trim_ascii();
        let (begins, kind) = *CREDENTIALS
            .iter()
            .find(|(begins, _)| text.starts_with(begins.as_bytes()) && text.len() > begins.len())?;
        Some(Hint::NotASigningSecret {
            which: WhichSecret::of(verifier, index),
            kind,
            begins,
        })
    })
}

/// A head that speaks of an encoding which the body is not in.
pub(super) fn of_body(request: &RawRequest) -> Option<Hint> {
    let coding = request.head.headers.get(CONTENT_ENCODING)?;
    let is_gzip = ["gzip", "x-gzip"]
        .iter()
        .any(|name| coding.as_bytes().eq_ignore_ascii_case(name.as_bytes()));
    let is_inflated = is_gzip && !request.body.is_empty() && !request.body.starts_with(b"\x1f\x8b");
    is_inflated.then_some(Hint::Inflated { coding: "gzip" })
}

/// Why a signature header is not there.
pub(super) fn of_headers(record: &Record, head: &RequestHead) -> Option<Hint> {
    let is_here = |name: &HeaderName| head.headers.contains_key(name);
    let expected: Vec<&HeaderName> = record
        .schemes
        .iter()
        .filter_map(|scheme| header_of(scheme.signature.places.first()?))
        .collect();
    if expected.is_empty() || expected.iter().any(|name| is_here(name)) {
        return None;
    }
    let missing = (*expected.first()?).clone();
    if let Some(hint) = other_family(record, head) {
        return Some(hint);
    }
    let header = missing.to_string();
    let named = record.schemes.iter().flat_map(|scheme| {
        let time = scheme.time.as_ref().map(|rule| &rule.place);
        scheme.delivery_id.iter().chain(&scheme.event_type).chain(time)
    });
    let present = named
        .filter_map(header_of)
        .find(|name| is_distinctive(name) && is_here(name));
    if let Some(present) = present {
        let present = present.to_string();
        return Some(Hint::HeaderMissing { header, present });
    }
    let through_proxy = [VIA, FORWARDED, HeaderName::from_static("x-forwarded-for")];
    let is_dropped = header.contains('_') && through_proxy.iter().any(is_here);
    is_dropped.then_some(Hint::HeaderUnderscore { header })
}

/// The signature header of other providers, with a few of these; first those that it is named after.
fn other_family(record: &Record, head: &RequestHead) -> Option<Hint> {
    let ours = record.headers();
    let mut found: Option<(HeaderName, Vec<&'static str>)> = None;
    for provider in presets::names() {
        let Some(other) = presets::find(provider) else { continue };
        let Some(name) = signature_header(&other, head) else {
            continue;
        };
        if !is_distinctive(name) || ours.contains(name.as_str()) {
            continue;
        }
        let (header, providers) = found.get_or_insert_with(|| (name.clone(), Vec::new()));
        if header == name {
            providers.push(provider);
        }
    }
    let (header, mut providers) = found?;
    providers.sort_by_key(|provider| !header.as_str().contains(provider));
    providers.truncate(FEW);
    Some(Hint::OtherFamily {
        header: header.to_string(),
        providers,
    })
}

fn header_of(place: &Place) -> Option<&HeaderName> {
    match place {
        Place::Header(name) => Some(name),
        _ => None,
    }
}

/// Names that anybody may send say nothing of a provider.
fn is_distinctive(name: &HeaderName) -> bool {
    const COMMON: [&str; 9] = [
        "authorization",
        "signature",
        "x-signature",
        "x-hub-signature",
        "x-hmac-signature",
        "x-request-id",
        "x-webhook-signature",
        "user-agent",
        "content-type",
    ];
    !COMMON.contains(&name.as_str())
}
