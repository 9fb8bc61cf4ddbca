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

mod language;
mod picked;

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
fn the_bytes_are_verified_whatever_they_spell() {
    // RB-01, RB-04, RB-12, RB-13: escapes, other charsets, form bodies.
    let github = preset("github", &[SECRET]);
    for (body, digest) in [
        (
            "{\"t\":\"\\u001B[0m\"}",
            "eddd9834d86ce4bd9f7f04ef017aa8a1a95cea94465ce48d1b27a3b609ccc22e",
        ),
        (
            "{\"note\":\"₹ 500 😊\"}",
            "593090ac4bfa1998f11aad6aa33bf20cd39ebd918343674322ae3bd4179d9dd5",
        ),
        ("{\"a\":1}", GOOD_HEX),
        (
            "payload=%7B%22zen%22%3A%22a+b%22%7D",
            "9720ed759d5594bed0f40a34953f6959d6ed5b4977272b76006137b08c111ca1",
        ),
    ] {
        for content_type in [
            "application/json",
            "application/json; charset=iso-8859-1",
            "application/x-www-form-urlencoded",
        ] {
            let headers = [
                ("x-hub-signature-256", &*format!("sha256={digest}")),
                ("content-type", content_type),
            ];
            assert!(accepts(&github, post(&headers, body)), "{body}");
        }
    }
}

#[test]
fn final_line_ends_and_marks_are_part_of_the_body() {
    // RB-07, RB-08, RB-10, RB-16.
    let stripe = preset("stripe", &[STRIPE]);
    let header = "t=1700000000,v1=bc1bfda9051cfd598c8366593a9cc0f95456db58fe2a8ce0371dbade916be9b9";
    assert!(accepts(
        &stripe,
        post(&[("stripe-signature", header)], "{\n \"a\": 1\n}")
    ));
    let changed = post(&[("stripe-signature", header)], "{\r\n \"a\": 1\r\n}");
    assert_eq!(verdict(&stripe, changed).err(), Some(Reason::WrongSignature));

    let plain = custom("kind = \"hmac\"\nsignature = \"header:X-Sig\"", &[SECRET]);
    let header = [(
        "x-sig",
        "a84a70a1dec74955375122f2c078291bb4ffbc04910f9e67df93368ef1be0f77",
    )];
    assert!(accepts(&plain, post(&header, "[{\"event\":\"open\"}]\r\n")));
    assert!(!accepts(&plain, post(&header, "[{\"event\":\"open\"}]")));

    let marked = custom(
        "kind = \"hmac\"\nsignature = \"header:X-Sig\"\nprefix = \"sha256=\"\ndelivery_id = \"json:/value\"",
        &[SECRET],
    );
    let header = [(
        "x-sig",
        "sha256=c42ae9da405b9a37e2deb72b5565edfe52cd513b97f6366a039c473514471ef6",
    )];
    let body = data_encoding::HEXLOWER
        .decode(b"efbbbf7b2276616c7565223a5b5d7d")
        .unwrap();
    assert_eq!(verdict(&marked, post(&header, body)).unwrap().delivery_id(), None);

    let wrapped = [("x-hub-signature-256", &*format!("sha256={GOOD_HEX}"))];
    assert!(!accepts(&preset("github", &[SECRET]), post(&wrapped, "eyJhIjoxfQ==")));
}

#[test]
fn a_digest_has_one_spelling_per_record_and_white_space_around_it_is_none_of_it() {
    // SH-01, SH-02, SH-04.
    let sha1 = custom(
        "kind = \"hmac\"\nhash = \"sha1\"\nsignature = \"header:X-Hub-Signature\"\nprefix = \"sha1=\"",
        &[SECRET],
    );
    let header = [("x-hub-signature", "sha1=EA768B1B342A889032008018C2794903F119399B")];
    assert!(accepts(&sha1, post(&header, "{\"a\":1}")));

    let text = "kind = \"hmac\"\nsignature = \"header:X-Sig\"\nprefix = \"sha256=\"\n";
    let hex = custom(text, &[SECRET]);
    let base64 = custom(&format!("{text}encoding = \"base64\""), &[SECRET]);
    let optional = custom(&format!("{text}prefix_optional = true"), &[SECRET]);
    let in_base64 = "sha256=sA3dZHH2LddVnNynJkmPz1uwgKicOHlDtBBcYni7Las=";
    let judge =
        |verifier: &Verifier, value: &str| verdict(verifier, post(&[("x-sig", value)], "{\"a\":1}")).map(|_| ());
    assert_eq!(judge(&hex, &format!("sha256= {GOOD_HEX}")), Ok(()));
    assert_eq!(judge(&base64, in_base64), Ok(()));
    assert_eq!(judge(&hex, in_base64), Err(Reason::MalformedSignature));
    assert_eq!(judge(&hex, &format!(" \tsha256={GOOD_HEX}\t ")), Ok(()));
    assert_eq!(judge(&hex, GOOD_HEX), Err(Reason::MalformedSignature));
    assert_eq!(judge(&optional, GOOD_HEX), Ok(()));
    for (bad, reason) in [
        ("sha256=", Reason::MalformedSignature),
        ("=", Reason::MalformedSignature),
        ("", Reason::MissingSignature),
        ("  ", Reason::MissingSignature),
    ] {
        assert_eq!(judge(&hex, bad), Err(reason), "{bad}");
        assert_eq!(judge(&optional, bad), Err(reason), "{bad}");
    }
}

#[test]
fn the_algorithm_comes_from_the_record_alone() {
    // SH-05, SH-15, SH-19.
    let github = preset("github", &[SECRET]);
    let judge = |value: &str| verdict(&github, post(&[("x-hub-signature-256", value)], "{\"a\":1}")).map(|_| ());
    for bad in [
        format!("bogus={GOOD_HEX}"),
        "sha1=ea768b1b342a889032008018c2794903f119399b".to_owned(),
        "sha256=ab".to_owned(),
        format!("sha256={}", GOOD_HEX.split_at(1).1),
        format!("sha256={GOOD_HEX}0"),
        format!("sha256={GOOD_HEX}{GOOD_HEX}"),
        "a".repeat(8192),
    ] {
        assert_eq!(judge(&bad), Err(Reason::MalformedSignature), "{bad}");
    }
    let (good, sha1) = (
        format!("sha256={GOOD_HEX}"),
        "sha1=ea768b1b342a889032008018c2794903f119399b",
    );
    let wrong = format!("sha256={}", GOOD_HEX.replace('b', "c"));
    let both = |strong: &str, weak: &str| {
        accepts(
            &github,
            post(
                &[("x-hub-signature-256", strong), ("x-hub-signature", weak)],
                "{\"a\":1}",
            ),
        )
    };
    assert!(!both(&wrong, sha1));
    assert!(both(&good, "sha1=00"));
    assert_eq!(
        verdict(&github, post(&[("x-hub-signature", sha1)], "{\"a\":1}")).err(),
        Some(Reason::MissingSignature)
    );
}

#[test]
fn stripe_lists_bear_rotation_spaces_order_and_split_lines() {
    // SH-06, SH-08, SH-09.
    let stripe = preset("stripe", &[STRIPE]);
    let good = "63f752f086be6cd270f7984ac297188cf21a40e2f30d0966e58f9d4548125eef";
    let judge = |lines: &[&str]| {
        let headers: Vec<_> = lines.iter().map(|line| ("stripe-signature", *line)).collect();
        verdict(&stripe, post(&headers, "{\"a\":1}")).map(|_| ())
    };
    for accepted in [
        format!("t=1700000000, v1={good} ,  v0=00"),
        format!("v0=00,v1={good},t=1700000000"),
        format!("t=1700000000,v1={good},v0=00,x=y"),
        format!("t=1700000000,v1={},v1={good}", good.replace('6', "7")),
    ] {
        assert_eq!(judge(&[&accepted]), Ok(()), "{accepted}");
    }
    assert_eq!(judge(&["t=1700000000", &format!("v1={good}"), "v0=00"]), Ok(()));
    for refused in ["v0", "v2", "v11", "V1"] {
        let header = format!("t=1700000000,{refused}={good}");
        assert_eq!(judge(&[&header]), Err(Reason::MalformedSignature), "{refused}");
    }
    assert_eq!(judge(&[&format!("v1={good}")]), Err(Reason::MissingTimestamp));
    assert_eq!(judge(&[&format!("t=x,v1={good}")]), Err(Reason::MalformedTimestamp));
    assert_eq!(
        judge(&[&format!("t=1700000000,t=1700000001,v1={good}")]),
        Err(Reason::MissingTimestamp)
    );
}

#[test]
fn one_whole_header_family_is_taken_never_parts_of_two() {
    // SH-11, SH-13.
    let standard = preset("standard-webhooks", &[STANDARD]);
    let signature = "v1,AAAA v1,/+qPlAq2aQuk0ezu+sxJUrMSs8X7in8NiT3fduWIvv8= v2,BBBB v1a,CCCC";
    let body = find_body(&standard, signature);
    let family = |prefix: &str, id: &str, signature: &str| {
        [
            (format!("{prefix}-id"), id.to_owned()),
            (format!("{prefix}-timestamp"), "1700000000".to_owned()),
            (format!("{prefix}-signature"), signature.to_owned()),
        ]
    };
    let judge = |lines: Vec<(String, String)>| {
        let lines: Vec<_> = lines.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        verdict(&standard, post(&lines, body.clone()))
    };
    for prefix in ["webhook", "svix"] {
        let event = judge(family(prefix, "msg_1", signature).to_vec()).unwrap();
        assert_eq!(event.delivery_id(), Some("msg_1"));
    }
    let mixed = |webhook: [(String, String); 3], svix: [(String, String); 3]| judge([webhook, svix].concat());
    let event = mixed(
        family("webhook", "msg_1", signature),
        family("svix", "other", signature),
    )
    .unwrap();
    assert_eq!(event.delivery_id(), Some("msg_1"));
    // A good svix family does not rescue a bad webhook family.
    let bad = mixed(
        family("webhook", "other", signature),
        family("svix", "msg_1", signature),
    );
    assert_eq!(bad.err(), Some(Reason::WrongSignature));
}

/// The body behind the digest that the case prints.
fn find_body(standard: &Verifier, signature: &str) -> Bytes {
    let headers = [
        ("webhook-id", "msg_1"),
        ("webhook-timestamp", "1700000000"),
        ("webhook-signature", signature),
    ];
    let bodies = ["{\"a\":1}", "{}", "", "{\"type\":\"a\"}"].map(|body| Bytes::from_static(body.as_bytes()));
    bodies
        .into_iter()
        .find(|body| accepts(standard, post(&headers, body.clone())))
        .unwrap()
}

#[test]
fn several_digests_count_only_where_the_record_says_so() {
    // SH-14.
    let text = "kind = \"hmac\"\nsignature = \"header:X-Sig\"\nprefix = \"sha256=\"\n";
    let (single, multi) = (
        custom(text, &[SECRET]),
        custom(&format!("{text}parse = \"list\""), &[SECRET]),
    );
    let zeros = "0".repeat(64);
    let joined = format!("sha256={zeros},sha256={GOOD_HEX}");
    assert!(accepts(&multi, post(&[("x-sig", &joined)], "{\"a\":1}")));
    assert!(!accepts(&single, post(&[("x-sig", &joined)], "{\"a\":1}")));
    // A hop may join two lines into one, so two lines mean the same.
    let (first, second) = (format!("sha256={zeros}"), format!("sha256={GOOD_HEX}"));
    let lines = [("x-sig", first.as_str()), ("x-sig", second.as_str())];
    assert!(accepts(&multi, post(&lines, "{\"a\":1}")));
    assert!(!accepts(&single, post(&lines, "{\"a\":1}")));
}

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
fn the_public_url_is_signed_as_configured_and_requested() {
    // UR-01, UR-02, UR-04, UR-07, UR-09.
    let twilio = preset("twilio", &["twilio-token-0123456789abcdef01"]);
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let sms = |signature| {
        let headers = [&form[..], &[("x-twilio-signature", signature)]].concat();
        request(Method::POST, "/sms", &headers, "Body=hi&From=%2B15005550006")
    };
    assert!(accepts(&twilio, sms("4hnTlSnmdtZ6Q5uEtnviWLlOvac=")));
    assert!(accepts(&twilio, sms("zv9n7pqUvGoai49BvXMPOS+N57E=")));
    let get = |target: &str, signature| request(Method::GET, target, &[("x-twilio-signature", signature)], "");
    let query = "/in?Digits=1&Retry=1&RetryMessage=Couldn%27t+find&AccountSid=AC1";
    assert!(accepts(&twilio, get(query, "OZCdtgjHepbJWBwOWztwpOYhO9o=")));
    assert!(accepts(
        &twilio,
        get("/in?Caller=sip%3A1001%40192.0.2.7", "apkSJWNTaZHCGKd8RWU5Ar9Iaxg=")
    ));
    // UR-05: the order that was signed cannot be recovered.
    assert!(!accepts(&twilio, get("/in?a=1&b=2", "aHOcQnac6D6qRGIYBDsau9ysfCw=")));

    let square = preset("square", &[SECRET]);
    let headers = [
        (
            "x-square-hmacsha256-signature",
            "xxzeaST9u+iUXXpVOV5U93D8CKz2DAEqg9BeY8zPX1Y=",
        ),
        ("x-square-signature", "wrong"),
    ];
    assert!(accepts(&square, request(Method::POST, "/sq", &headers, "{\"a\":1}")));
    assert!(!accepts(&square, request(Method::POST, "/sq/", &headers, "{\"a\":1}")));
}

#[test]
fn without_a_public_url_the_host_that_was_asked_for_is_signed_if_it_is_ours() {
    let secret = || vec![SourceSecret::new(Secret::new("twilio-token-0123456789abcdef01"))];
    let own = |hosts: &[&str]| {
        let options = VerifierOptions {
            own_hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..VerifierOptions::default()
        };
        Verifier::new(presets::find("twilio").unwrap(), secret(), options)
    };
    let asked = |host: Option<&str>| {
        let headers = [
            ("content-type", "application/x-www-form-urlencoded"),
            ("x-twilio-signature", "4hnTlSnmdtZ6Q5uEtnviWLlOvac="),
        ];
        let mut request = request(Method::POST, "/sms", &headers, "Body=hi&From=%2B15005550006");
        request.head.authority = host.map(str::to_owned);
        request
    };
    assert!(own(&[]).is_err(), "nothing says what was signed");
    for hosts in [&["a.test", "hooks.example.test"][..], &["*.example.test"]] {
        let twilio = own(hosts).unwrap();
        for host in ["hooks.example.test", "hooks.example.test:443"] {
            assert!(accepts(&twilio, asked(Some(host))), "{host}");
        }
        for host in [
            None,
            Some("other.example.test"),
            Some("a.test"),
            Some("hooks.example.test.evil"),
        ] {
            assert!(!accepts(&twilio, asked(host)), "{host:?}");
        }
        let mut again = asked(Some("hooks.example.test"));
        again.head.headers.remove("x-twilio-signature");
        assert!(accepts(&twilio, signed(&twilio, again)));
    }
    // Signed for that host, which is not ours: whoever runs it must not be able to pass it on.
    assert!(!accepts(&own(&["a.test"]).unwrap(), asked(Some("hooks.example.test"))));
    assert!(
        own(&["a.test"])
            .unwrap()
            .sign(&sign_input(&asked(Some("b.test"))))
            .is_err()
    );
}

#[test]
fn a_fixed_public_url_stands_in_for_the_received_one() {
    // UR-05.
    let options = VerifierOptions {
        public_url: Some("https://hooks.example.test/in?b=2&a=1".to_owned()),
        ..VerifierOptions::default()
    };
    let secret = SourceSecret::new(Secret::new("twilio-token-0123456789abcdef01"));
    let twilio = Verifier::new(presets::find("twilio").unwrap(), vec![secret], options).unwrap();
    let headers = [("x-twilio-signature", "aHOcQnac6D6qRGIYBDsau9ysfCw=")];
    assert!(accepts(&twilio, request(Method::GET, "/in?a=1&b=2", &headers, "")));
}

#[test]
fn a_body_that_twilio_does_not_sign_is_refused() {
    let twilio = preset("twilio", &[SECRET]);
    let get = request(Method::GET, "/in", &[], "");
    let signature = signed(&twilio, get).head.headers["x-twilio-signature"]
        .to_str()
        .unwrap()
        .to_owned();
    let headers = [
        ("x-twilio-signature", signature.as_str()),
        ("content-type", "application/json"),
    ];
    let smuggled = request(Method::POST, "/in", &headers, "{\"forged\":true}");
    assert_eq!(verdict(&twilio, smuggled).err(), Some(Reason::BodyMalformed));
}

#[test]
fn twilio_shared_keys_sign_with_the_announced_hash() {
    let twilio = preset("twilio", &[SECRET]);
    let settings = (
        "x-twilio-webhooks-signature-settings",
        "key=webhooks_sharedkey_1,algorithm=HMAC_SHA256",
    );
    let shared = signed(&twilio, post(&[settings], ""));
    assert_eq!(shared.head.headers["x-twilio-signature"].len(), 44);
    assert!(accepts(&twilio, shared.clone()));
    let mut plain = shared;
    plain.head.headers.remove(settings.0);
    assert!(!accepts(&twilio, plain));
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

/// The presets whose requests can be signed here, which is in a header.
fn signable() -> impl Iterator<Item = &'static str> {
    presets::names().into_iter().filter(|name| {
        let record = presets::find(name).unwrap();
        let in_header = |scheme: &Scheme| matches!(scheme.signature.places.first(), Some(Place::Header(_)));
        record.is_signable() && record.kind() != Kind::None && record.schemes.iter().all(in_header)
    })
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

fn what_is_signed_verifies(name: &str, body: &[u8], bit: usize) {
    let verifier = preset(name, &[secret_for(name)]);
    let request = signed(&verifier, unsigned(name, body));
    assert!(accepts(&verifier, request.clone()), "{name}");

    if matches!(verifier.record().kind(), Kind::Token | Kind::Basic) {
        return;
    }
    let mut changed = request.clone();
    let mut bytes = changed.body.to_vec();
    let at = bit / 8 % bytes.len();
    bytes[at] ^= 1 << (bit % 8);
    // Two spellings of one form are the same to a provider that signs the decoded fields.
    let uses_form = verifier
        .record()
        .schemes
        .iter()
        .any(|scheme| scheme.payload.uses_form());
    let same_form = uses_form && form::sorted(&bytes) == form::sorted(&request.body);
    changed.body = bytes.into();
    let is_open = same_form || !verifier.record().body_authenticated();
    assert!(is_open || !accepts(&verifier, changed), "{name}: body");

    let (header, _) = verifier.sign(&sign_input(&request)).unwrap().pop().unwrap();
    let mut changed = request.clone();
    let mut value = changed.head.headers[&header].as_bytes().to_vec();
    let last = value.len() - 5;
    value[last] = if value[last] == b'1' { b'2' } else { b'1' };
    changed
        .head
        .headers
        .insert(&header, HeaderValue::from_bytes(&value).unwrap());
    assert!(!accepts(&verifier, changed), "{name}: signature");

    if verifier.record().needs_public_url() {
        let mut changed = request.clone();
        changed.head.target = "/elsewhere?x".parse().unwrap();
        assert!(!accepts(&verifier, changed), "{name}: url");
    }
}

#[test]
fn every_preset_accepts_what_it_signs_and_nothing_that_was_changed() {
    for name in signable() {
        what_is_signed_verifies(name, b"{\"a\": 1}", 9);
    }
}

proptest! {
    #[test]
    fn what_is_signed_verifies_and_one_changed_bit_does_not(
        name in prop::sample::select(signable().collect::<Vec<_>>()),
        body in prop::collection::vec(any::<u8>(), 1..200),
        bit in any::<usize>(),
    ) {
        what_is_signed_verifies(name, &body, bit);
    }

    #[test]
    fn no_request_makes_it_panic(
        name in prop::sample::select(signable().collect::<Vec<_>>()),
        values in prop::collection::vec("[ -~]{0,40}|t=[0-9]{1,20},v1=[0-9a-f]{0,64}|v1,[A-Za-z0-9+/]{0,44}=?", 3),
        body in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let secrets: &[&str] = match presets::find(name).unwrap().kind() {
            Kind::None => &[],
            _ => &[secret_for(name)],
        };
        let verifier = preset(name, secrets);
        let mut request = post(&[], body);
        for (header, value) in verifier.record().headers().into_iter().zip(values.iter().cycle()) {
            let value = HeaderValue::from_str(value).unwrap();
            request.head.headers.append(header.parse::<HeaderName>().unwrap(), value);
        }
        let accepted = accepts(&verifier, request);
        prop_assert!(!accepted || verifier.record().kind() == Kind::None, "{name}");
    }
}

#[test]
fn a_fresh_signature_carries_the_new_time_and_replaces_the_old_one() {
    for name in [
        "stripe",
        "slack",
        "standard-webhooks",
        "svix",
        "gitlab-signing",
        "paddle",
    ] {
        let verifier = preset(name, &[secret_for(name)]);
        assert!(verifier.record().signs_fresh(), "{name}");
        let mut late = signed(&verifier, unsigned(name, b"{}"));
        late.head.received_at = Timestamp::from_secs(NOW + 86_400);
        assert_eq!(verdict(&verifier, late.clone()).err(), Some(Reason::Stale), "{name}");
        assert!(accepts(&verifier, signed(&verifier, late)), "{name}");
    }
    assert!(!presets::find("linear").unwrap().signs_fresh());
}

#[test]
fn a_made_up_request_says_what_the_record_looks_for() {
    for name in signable() {
        let verifier = preset(name, &[secret_for(name)]);
        let mut request = unsigned(name, b"");
        let sample = Sample {
            method: &Method::POST,
            target: &"/in".parse().unwrap(),
            id: "id-1",
            event_type: "test",
            now: Timestamp::from_secs(NOW),
        };
        request.body = verifier.record().sample_body(&sample, &request.head.headers).into();
        let event = verdict(&verifier, signed(&verifier, request)).unwrap();
        let scheme = &verifier.record().schemes[0];
        let is_made_up = |place: &Place| !matches!(place, Place::Query(_) | Place::Claim(_));
        let is_there = |places: &[Place]| places.iter().any(is_made_up);
        assert_eq!(
            (event.dedupe_id(), event.event_type()),
            (
                is_there(&scheme.delivery_id).then_some("id-1"),
                is_there(&scheme.event_type).then_some("test")
            ),
            "{name}"
        );
    }
}

#[test]
fn what_cannot_be_signed_says_why() {
    let standard = preset("standard-webhooks", &[STANDARD]);
    let without_id = post(&[], "{}");
    assert!(matches!(
        standard.sign(&sign_input(&without_id)),
        Err(CannotSign::Incomplete(_))
    ));
    let twilio = preset("twilio", &[SECRET]);
    let wrong_digest = request(Method::POST, "/in?bodySHA256=00", &[], "{}");
    assert!(matches!(
        twilio.sign(&sign_input(&wrong_digest)),
        Err(CannotSign::Condition(_))
    ));
    let request = post(&[], "{}");
    let mut input = sign_input(&request);
    input.secret_index = Some(9);
    assert_eq!(preset("github", &[SECRET]).sign(&input), Err(CannotSign::NoSecret));
}
