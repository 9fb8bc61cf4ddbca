//! The engine as a whole: presets, both directions, the cases of the field.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use proptest::prelude::*;

use super::challenge::Condition;
use super::place::Place;
use super::record::{Kind, Record, Scheme};
use super::sample::Sample;
use super::secrets::SecretEncoding;
use super::sign::{CannotSign, SignInput};
use super::*;
use crate::diagnostic::Diagnostics;
use crate::request::RequestHead;
use crate::secret::Secret;
use crate::time::Timestamp;

mod headers;
mod language;
mod picked;
mod signing;
mod urls;

pub(super) const NOW: i64 = 1_700_000_000;
pub(super) const SECRET: &str = "test-secret-0123456789abcdef";
pub(super) const STRIPE: &str = "whsec_stripeTestSecret0123456789";
pub(super) const STANDARD: &str = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcY";

pub(super) fn request(method: Method, target: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> RawRequest {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(
            name.parse::<HeaderName>().unwrap(),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    RawRequest {
        head: RequestHead {
            method,
            target: target.parse().unwrap(),
            authority: None,
            headers: map,
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            received_at: Timestamp::from_secs(NOW),
        },
        body: body.into(),
    }
}

pub(super) fn post(headers: &[(&str, &str)], body: impl Into<Bytes>) -> RawRequest {
    request(Method::POST, "/in", headers, body)
}

pub(super) fn source(record: Arc<Record>, secrets: &[&str]) -> Verifier {
    let secrets = secrets
        .iter()
        .map(|text| SourceSecret::new(Secret::new(*text)))
        .collect();
    let params = record.params().iter().map(|name| (name.clone(), format!("the-{name}")));
    let options = VerifierOptions {
        public_url: Some("https://hooks.example.test".to_owned()),
        params: params.collect(),
        accept_unsigned: record.kind() == Kind::None,
        ..VerifierOptions::default()
    };
    Verifier::new(record, secrets, options).unwrap()
}

pub(super) fn preset(name: &str, secrets: &[&str]) -> Verifier {
    source(presets::find(name).unwrap(), secrets)
}

/// A secret of the form that the preset's are of.
pub(super) fn secret_for(name: &str) -> &'static str {
    let record = presets::find(name).unwrap();
    match (record.kind(), record.secret_encoding) {
        (Kind::Basic, _) => "user:pass:word",
        (_, SecretEncoding::Base64) => STANDARD.trim_start_matches("whsec_"),
        (_, SecretEncoding::Hex) => "000102030405060708090a0b0c0d0e0f",
        (_, SecretEncoding::Utf8 | SecretEncoding::Sha1) => SECRET,
    }
}

/// A user's own record.
pub(super) fn custom(text: &str, secrets: &[&str]) -> Verifier {
    let mut problems = Diagnostics::new();
    let record = Record::read_text("acme", text, &mut problems);
    assert!(problems.is_empty(), "{}", problems.render("acme.toml", text, false));
    source(Arc::new(record.unwrap()), secrets)
}

pub(super) fn verdict(verifier: &Verifier, request: RawRequest) -> Result<VerifiedRequest, Reason> {
    let from_head = verifier.refuse_head(&request.head);
    match verifier.verify(request) {
        Ok(Verified::Event(event)) => {
            assert_eq!(from_head, Ok(()), "the head was refused and the request accepted");
            Ok(event)
        }
        Ok(Verified::Challenge(answer)) => panic!("a challenge: {answer:?}"),
        Err(rejected) => Err(rejected.rejection.reason),
    }
}

fn accepts(verifier: &Verifier, request: RawRequest) -> bool {
    verdict(verifier, request).is_ok()
}

const GOOD_HEX: &str = "b00ddd6471f62dd7559cdca726498fcf5bb080a89c387943b4105c6278bb2dab";

#[test]
fn a_secret_that_opens_the_door_stops_the_start() {
    // SE-04, SE-05.
    let standard = presets::find("standard-webhooks").unwrap();
    let github = presets::find("github").unwrap();
    let problem = |record: &Arc<Record>, secrets: &[&str]| {
        let secrets = secrets
            .iter()
            .map(|text| SourceSecret::new(Secret::new(*text)))
            .collect();
        let problems = Verifier::new(Arc::clone(record), secrets, VerifierOptions::default()).unwrap_err();
        (problems[0].secret_index, problems[0].message.clone())
    };
    for bad in [
        "whsec_",
        "whsec_!!!!",
        "whsec_AA==",
        "whsec_AAAA=",
        "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhc",
        "whsec_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_",
        "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcY\n",
    ] {
        let (index, message) = problem(&standard, &[STANDARD, bad]);
        assert_eq!(index, Some(1), "{bad}");
        assert!(!message.contains(bad), "the message tells the secret: {message}");
    }
    for bad in ["", " ", "\n"] {
        assert_eq!(problem(&github, &[SECRET, bad]).0, Some(1));
    }
    assert_eq!(problem(&github, &[]), (None, "no secret is given".to_owned()));
}

#[test]
fn the_key_is_the_text_unless_the_record_decodes_it() {
    // SE-07.
    let secret = "ab".repeat(32);
    let text = "kind = \"hmac\"\nsignature = \"header:X-Sig\"\n";
    let by_text = custom(text, &[&secret]);
    let by_bytes = custom(&format!("{text}secret_encoding = \"hex\""), &[&secret]);
    let sign = |verifier: &Verifier| signed(verifier, post(&[], "{}"));
    assert!(accepts(&by_text, sign(&by_text)) && accepts(&by_bytes, sign(&by_bytes)));
    assert!(!accepts(&by_text, sign(&by_bytes)) && !accepts(&by_bytes, sign(&by_text)));
}

#[test]
fn rotation_takes_any_live_secret_and_none_after_its_end() {
    // SE-08.
    let both = preset("github", &["old-secret-0123456789", "new-secret-0123456789"]);
    let old = signed(&preset("github", &["old-secret-0123456789"]), post(&[], "{}"));
    let new = signed(&preset("github", &["new-secret-0123456789"]), post(&[], "{}"));
    let neither = signed(&preset("github", &["who-secret-0123456789"]), post(&[], "{}"));
    assert_eq!(verdict(&both, old.clone()).unwrap().proof().secret_index, Some(0));
    assert_eq!(verdict(&both, new).unwrap().proof().secret_index, Some(1));
    assert_eq!(verdict(&both, neither).err(), Some(Reason::WrongSignature));

    for (end, live) in [(NOW + 1, true), (NOW, false)] {
        let mut secret = SourceSecret::new(Secret::new("old-secret-0123456789"));
        secret.not_after = Some(Timestamp::from_secs(end));
        let record = presets::find("github").unwrap();
        let verifier = Verifier::new(record, vec![secret], VerifierOptions::default()).unwrap();
        assert_eq!(accepts(&verifier, old.clone()), live, "{end}");
    }
}

#[test]
fn the_window_has_two_sides_and_can_be_set_or_switched_off() {
    // TS-04, TS-07.
    let at = |offset: i64| {
        let mut request = post(&[], "{}");
        request.head.received_at = Timestamp::from_secs(NOW + offset);
        let mut request = signed(&preset("stripe", &[STRIPE]), request);
        request.head.received_at = Timestamp::from_secs(NOW);
        request
    };
    let stripe = preset("stripe", &[STRIPE]);
    for (offset, expected) in [
        (-301, Err(Reason::Stale)),
        (-300, Ok(())),
        (1, Ok(())),
        (300, Ok(())),
        (301, Err(Reason::FromTheFuture)),
        (1_000_000_000, Err(Reason::FromTheFuture)),
        (-34_560_000, Err(Reason::Stale)),
    ] {
        assert_eq!(verdict(&stripe, at(offset)).map(|_| ()), expected, "{offset}");
        let from_head = stripe
            .refuse_head(&at(offset).head)
            .map_err(|rejection| rejection.reason);
        assert_eq!(from_head, expected, "{offset}");
    }
    let with = |tolerance| {
        let options = VerifierOptions {
            tolerance: Some(tolerance),
            ..VerifierOptions::default()
        };
        let secret = SourceSecret::new(Secret::new(STRIPE));
        Verifier::new(presets::find("stripe").unwrap(), vec![secret], options)
    };
    let short = with(Tolerance::Within(std::time::Duration::from_secs(10))).unwrap();
    assert!(accepts(&short, at(-10)) && !accepts(&short, at(-11)) && !accepts(&short, at(11)));
    assert!(accepts(&with(Tolerance::Off).unwrap(), at(-34_560_000)));
    assert!(with(Tolerance::Within(std::time::Duration::ZERO)).is_err());
}

#[test]
fn a_signed_time_is_told_where_there_is_one() {
    let stripe = preset("stripe", &[STRIPE]);
    let signed_at = Timestamp::from_secs(NOW - 7);
    let mut late = post(&[], "{}");
    let signature = stripe
        .sign(&SignInput {
            method: &late.head.method,
            target: &late.head.target,
            authority: late.head.authority.as_deref(),
            headers: &late.head.headers,
            body: &late.body,
            now: signed_at,
            secret_index: None,
        })
        .unwrap();
    late.head.headers.extend(signature);
    assert_eq!(verdict(&stripe, late).unwrap().proof().signed_at, Some(signed_at));
    let github = preset("github", &[SECRET]);
    let signature = format!("sha256={GOOD_HEX}");
    let untimed = post(
        &[("x-hub-signature-256", &signature), ("x-github-delivery", "1")],
        "{\"a\":1}",
    );
    assert_eq!(verdict(&github, untimed).unwrap().proof().signed_at, None);
}

#[test]
fn the_id_comes_from_where_the_record_says_and_must_say_something() {
    // ID-09, ID-13.
    let verifier = custom(
        "kind = \"hmac\"\nsignature = \"header:X-Sig\"\ndelivery_id = \"json:/checkout_sha\"",
        &[SECRET],
    );
    let long = "x".repeat(1 << 20);
    for (body, id) in [
        ("{\"checkout_sha\":null}".to_owned(), None),
        ("{}".to_owned(), None),
        ("{\"checkout_sha\":{}}".to_owned(), None),
        ("{\"checkout_sha\":\"\"}".to_owned(), None),
        ("not json".to_owned(), None),
        ("{\"checkout_sha\":7}".to_owned(), Some("7")),
        (format!("{{\"checkout_sha\":\"{long}\"}}"), Some(long.as_str())),
    ] {
        let event = verdict(&verifier, signed(&verifier, post(&[], body))).unwrap();
        assert_eq!(event.delivery_id(), id);
    }
}

#[test]
fn what_shopify_shows_is_not_what_decides_the_same_again() {
    // ID-11.
    let shopify = preset("shopify", &[SECRET]);
    let headers = [
        ("x-shopify-event-id", "event"),
        ("x-shopify-webhook-id", "webhook"),
        ("x-shopify-topic", "t"),
    ];
    let request = post(&[&headers[..], &[("x-shopify-hmac-sha256", "x")]].concat(), "{}");
    let event = verdict(&shopify, signed(&shopify, request)).unwrap();
    assert_eq!(
        (event.delivery_id(), event.dedupe_id()),
        (Some("event"), Some("webhook"))
    );
}

#[test]
fn slack_gets_its_challenge_back_only_when_it_signed_it() {
    // RS-09.
    let slack = preset("slack", &[SECRET]);
    let ask = |challenge: &str| {
        post(
            &[],
            format!("{{\"type\":\"url_verification\",\"challenge\":\"{challenge}\"}}"),
        )
    };
    let Ok(Verified::Challenge(answer)) = slack.verify(signed(&slack, ask("abc"))) else {
        panic!("no answer");
    };
    assert_eq!(
        (answer.status, answer.body),
        (StatusCode::OK, Bytes::from_static(b"abc"))
    );
    for unsigned in ["abc", "<script>"] {
        assert_eq!(verdict(&slack, ask(unsigned)).err(), Some(Reason::MissingSignature));
    }
    // Too long to be echoed: an event like any other.
    assert!(accepts(&slack, signed(&slack, ask(&"a".repeat(1 << 20)))));
}

#[test]
fn a_token_is_compared_whole_and_refused_from_the_head() {
    let gitlab = preset("gitlab", &["tok-1", "tok-2"]);
    let shown = |token: &str| post(&[("x-gitlab-token", token)], "{}");
    assert_eq!(verdict(&gitlab, shown("tok-2")).unwrap().proof().secret_index, Some(1));
    for bad in ["tok-", "tok-1x", "TOK-1"] {
        assert_eq!(
            verdict(&gitlab, shown(bad)).err(),
            Some(Reason::WrongSignature),
            "{bad}"
        );
        assert!(gitlab.refuse_head(&shown(bad).head).is_err(), "{bad}");
    }
    assert_eq!(verdict(&gitlab, post(&[], "{}")).err(), Some(Reason::MissingSignature));
}

#[test]
fn a_password_may_hold_a_colon() {
    let basic = custom("kind = \"basic\"", &["user:pass:word"]);
    let with = |text: &str| post(&[("authorization", text)], "");
    let good = data_encoding::BASE64.encode(b"user:pass:word");
    assert!(accepts(&basic, with(&format!("Basic {good}"))));
    assert!(accepts(&basic, with(&format!("basic  {good}"))));
    assert!(accepts(&basic, signed(&basic, post(&[], ""))));
    for bad in ["Basic", "Basic !", "Bearer x", "é"] {
        assert_eq!(
            verdict(&basic, with(bad)).err(),
            Some(Reason::MalformedSignature),
            "{bad}"
        );
    }
}

#[test]
fn an_unsigned_scheme_must_be_meant() {
    let mut problems = Diagnostics::new();
    let record = Arc::new(Record::read_text("open", "kind = \"none\"", &mut problems).unwrap());
    assert!(Verifier::new(Arc::clone(&record), Vec::new(), VerifierOptions::default()).is_err());
    let options = VerifierOptions {
        accept_unsigned: true,
        ..VerifierOptions::default()
    };
    let open = Verifier::new(record, Vec::new(), options).unwrap();
    let event = verdict(&open, post(&[], "x")).unwrap();
    assert_eq!(event.proof().secret_index, None);
}

#[test]
fn nothing_prints_key_material() {
    let verifier = preset("github", &[SECRET]);
    let shown = format!("{verifier:?} {:?} {:?}", verifier.secrets(), verifier.mac_key(0, 0));
    assert!(!shown.contains(SECRET), "{shown}");
    let signed = signed(&preset("gitlab", &["tok-1"]), post(&[], ""));
    assert!(!format!("{:?}", signed.head.headers).contains("tok-1"));
}

/// A request with whatever the preset needs besides a signature. Where nothing but the body as a whole is looked at, it
/// is `body`.
pub(super) fn unsigned(name: &str, body: &[u8]) -> RawRequest {
    let mut request = post(&[], body.to_vec());
    let record = presets::find(name).unwrap();
    let RequestHead { method, target, .. } = request.head.clone();
    let sample = Sample {
        method: &method,
        target: &target,
        id: "id-1",
        event_type: "test",
        now: Timestamp::from_secs(NOW),
    };
    record.add_headers(&sample, &mut request.head.headers);
    let looks_inside = |scheme: &Scheme| {
        let mut places = scheme
            .payload
            .places()
            .chain(scheme.time.as_ref().map(|rule| &rule.place));
        places.any(|place| !place.is_in_head())
    };
    let needs_text = |scheme: &Scheme| {
        let in_body = |condition: &Condition| !condition.is_in_head();
        scheme.payload.as_str().contains("{body_json_") || scheme.require.iter().any(in_body)
    };
    let is_free = record.answerable.is_empty() && !record.schemes.iter().any(|s| looks_inside(s) || needs_text(s));
    if !is_free {
        request.body = record.sample_body(&sample, &request.head.headers).into();
    }
    request
}

pub(super) fn sign_input<'a>(request: &'a RawRequest) -> SignInput<'a> {
    SignInput {
        method: &request.head.method,
        target: &request.head.target,
        authority: request.head.authority.as_deref(),
        headers: &request.head.headers,
        body: &request.body,
        now: request.head.received_at,
        secret_index: None,
    }
}

pub(super) fn signed(verifier: &Verifier, mut request: RawRequest) -> RawRequest {
    for (name, value) in verifier.sign(&sign_input(&request)).unwrap() {
        request.head.headers.insert(name, value);
    }
    request
}
