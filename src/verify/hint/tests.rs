//! Each cause, where the hint is right and where it must be silent.

use std::io::Write as _;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};

use super::super::tests::{NOW, SECRET, STANDARD, STRIPE, custom, post, preset, request, signed};
use super::super::{SourceSecret, Verified, VerifierOptions, presets};
use super::*;
use crate::secret::Secret;
use crate::time::Timestamp;

const PLAIN: &str = "kind = \"hmac\"\nsignature = \"header:X-Sig\"\n";

/// A secret without a label.
fn nth(index: usize) -> WhichSecret {
    WhichSecret { index, label: None }
}

fn hint(verifier: &Verifier, request: RawRequest) -> Option<Hint> {
    match verifier.verify(request) {
        Ok(Verified::Event(_) | Verified::Challenge(_)) => panic!("it was accepted"),
        Err(rejected) => verifier.hint(&rejected.request, rejected.rejection.reason),
    }
}

fn with_body(mut request: RawRequest, body: &'static str) -> RawRequest {
    request.body = Bytes::from_static(body.as_bytes());
    request
}

#[test]
fn a_clock_that_is_off_is_told_in_seconds_and_a_forgery_is_not() {
    let stripe = preset("stripe", &[STRIPE]);
    let mut late = signed(&stripe, post(&[], "{}"));
    late.head.received_at = Timestamp::from_secs(NOW + 312);
    assert_eq!(hint(&stripe, late.clone()), Some(Hint::ClockOff { seconds: 312 }));
    assert_eq!(hint(&stripe, with_body(late.clone(), "{\"forged\":1}")), None);
    late.head.received_at = Timestamp::from_secs(NOW - 400);
    let ahead = hint(&stripe, late).unwrap();
    assert!(ahead.to_string().contains("400 s ahead of our clock"), "{ahead}");
}

#[test]
fn white_space_around_a_secret_is_told_on_either_side() {
    let clean = preset("github", &[SECRET]);
    let padded = preset("github", &["other-secret-012345", "test-secret-0123456789abcdef \n"]);
    let request = signed(&clean, post(&[], "{}"));
    assert_eq!(
        hint(&padded, request.clone()),
        Some(Hint::SecretWhiteSpace { which: nth(1) })
    );
    assert_eq!(hint(&padded, with_body(request, "{\"x\":1}")), None);

    let sender = preset("github", &["test-secret-0123456789abcdef\n"]);
    let request = signed(&sender, post(&[], "{}"));
    assert_eq!(hint(&clean, request), Some(Hint::SenderLineEnd { which: nth(0) }));
}

#[test]
fn a_secret_that_is_decoded_on_one_side_only_is_told() {
    let standard = preset("standard-webhooks", &[STANDARD]);
    let headers = [("webhook-id", "m")];
    let raw = "extends = \"standard-webhooks\"\nsecret_encoding = \"utf8\"\nsecret_strip_prefix = \"\"";
    let sender = custom(raw, &[STANDARD]);
    let found = hint(&standard, signed(&sender, post(&headers, "{}"))).unwrap();
    assert!(
        found
            .to_string()
            .contains("taken as utf8; the record takes it as base64"),
        "{found}"
    );
    let found = hint(&sender, signed(&standard, post(&headers, "{}"))).unwrap();
    assert!(
        found
            .to_string()
            .contains("taken as base64; the record takes it as utf8"),
        "{found}"
    );

    let secret = "ab".repeat(32);
    let (by_text, by_hex) = (
        custom(PLAIN, &[&secret]),
        custom(&format!("{PLAIN}secret_encoding = \"hex\""), &[&secret]),
    );
    let found = hint(&by_text, signed(&by_hex, post(&[], "{}"))).unwrap();
    assert!(found.to_string().contains("taken as hex"), "{found}");
    let stranger = custom(PLAIN, &["who-are-you"]);
    assert_eq!(hint(&by_text, signed(&stranger, post(&[], "{}"))), None);
}

#[test]
fn a_signature_in_another_encoding_or_without_its_prefix_is_told() {
    let hex = custom(PLAIN, &[SECRET]);
    let base64 = custom(&format!("{PLAIN}encoding = \"base64\""), &[SECRET]);
    let (found, expected) = ("hex", "base64");
    let request = signed(&hex, post(&[], "{}"));
    assert_eq!(
        hint(&base64, request.clone()),
        Some(Hint::SignatureEncoding { found, expected })
    );
    assert_eq!(hint(&base64, with_body(request, "{ }x")), None);

    let mut bare = signed(&preset("github", &[SECRET]), post(&[], "{}"));
    let value = bare.head.headers["x-hub-signature-256"]
        .to_str()
        .unwrap()
        .replace("sha256=", "");
    bare.head
        .headers
        .insert("x-hub-signature-256", HeaderValue::from_str(&value).unwrap());
    let prefix = "sha256=".to_owned();
    assert_eq!(
        hint(&preset("github", &[SECRET]), bare),
        Some(Hint::NoPrefix { prefix })
    );
}

#[test]
fn a_body_that_was_changed_on_its_way_is_told_when_the_change_can_be_undone() {
    let github = preset("github", &[SECRET]);
    for (sent, arrived, part) in [
        ("{\n \"a\": 1\n}", "{\r\n \"a\": 1\r\n}", "CRLF"),
        ("[1]\r\n", "[1]", "line end"),
        ("{\"a\": 1, \"b\": [1, 2]}", "{\"a\":1,\"b\":[1,2]}", "JSON"),
        ("{\"a\":\"caf\\u00e9\"}", "{\"a\":\"café\"}", "JSON"),
        ("{\"a\":\"b\\/c\"}", "{\"a\":\"b/c\"}", "JSON"),
        ("{\"a\":1}", "eyJhIjoxfQ==", "base64"),
        ("{\"a\":\"é\"}", "{\"a\":\"Ã©\"}", "UTF-8"),
    ] {
        let request = with_body(signed(&github, post(&[], sent)), arrived);
        let found = hint(&github, request).unwrap().to_string();
        assert!(found.contains(part), "{arrived}: {found}");
    }
    let forged = with_body(signed(&github, post(&[], "{\"a\":1}")), "{\"a\":2}");
    assert_eq!(hint(&github, forged), None);
}

#[test]
fn the_secret_of_another_source_is_told_by_that_sources_name() {
    let (ours, theirs) = (
        preset("github", &[SECRET]),
        preset("stripe", &["their-secret-0123456789"]),
    );
    let sender = preset("github", &["their-secret-0123456789"]);
    let request = signed(&sender, post(&[], "{}"));
    let source = "billing".to_owned();
    let found = ours.hint_among(&request, Reason::WrongSignature, &[("billing", &theirs)]);
    assert_eq!(found, Some(Hint::OtherSource { source }));
    assert_eq!(
        ours.hint_among(&request, Reason::WrongSignature, &[("own", &ours)]),
        None
    );
}

#[test]
fn a_wrong_public_url_is_told_without_its_query() {
    let source = |url: &str| {
        let options = VerifierOptions {
            public_url: Some(url.to_owned()),
            ..VerifierOptions::default()
        };
        let secret = SourceSecret::new(Secret::new(SECRET));
        Verifier::new(presets::find("square").unwrap(), vec![secret], options).unwrap()
    };
    let given = source("https://hooks.example.test/sq");
    for slip in [
        "http://hooks.example.test",
        "https://hooks.example.test/sq/",
        "https://10.0.0.7:8080",
    ] {
        let headers = [("host", "hooks.example.test")];
        let request = signed(&given, request(Method::POST, "/sq?token=s3", &headers, "{}"));
        let found = hint(&source(slip), request).unwrap().to_string();
        assert!(
            found.contains("holds for https://hooks.example.test/sq,"),
            "{slip}: {found}"
        );
        assert!(!found.contains("s3"), "{found}");
    }
    let forged = with_body(signed(&given, request(Method::POST, "/sq", &[], "{}")), "{\"a\":1}");
    assert_eq!(hint(&source("http://hooks.example.test"), forged), None);
}

#[test]
fn a_query_that_twilio_sorted_after_signing_is_told() {
    // UR-05.
    let twilio = preset("twilio", &["twilio-token-0123456789abcdef01"]);
    let headers = [("x-twilio-signature", "aHOcQnac6D6qRGIYBDsau9ysfCw=")];
    let sorted = request(Method::GET, "/in?a=1&b=2", &headers, "");
    assert_eq!(hint(&twilio, sorted), Some(Hint::QueryOrder));
    assert_eq!(hint(&twilio, request(Method::GET, "/in?a=1&b=3", &headers, "")), None);
}

#[test]
fn no_hint_tells_a_secret() {
    let padded = preset("github", &["test-secret-0123456789abcdef\n"]);
    let found = hint(&padded, signed(&preset("github", &[SECRET]), post(&[], "{}"))).unwrap();
    assert!(!format!("{found} {found:?}").contains("0123456789"), "{found}");
}

#[test]
fn a_time_in_another_unit_is_told_and_a_late_one_or_a_forgery_is_not() {
    let record = "payload = \"{timestamp}.{body}\"\ntimestamp = \"header:X-Time\"\ntolerance_seconds = 300\n";
    let in_unit = |unit: &str| custom(&format!("{PLAIN}{record}timestamp_unit = \"{unit}\""), &[SECRET]);
    let (seconds, millis) = (in_unit("s"), in_unit("ms"));
    let request = signed(&millis, post(&[], "{}"));
    let expected = Hint::TimeUnit {
        found: "milliseconds",
        expected: "seconds",
    };
    assert_eq!(hint(&seconds, request.clone()), Some(expected));
    assert_eq!(hint(&seconds, with_body(request, "{ }")), None);
    let found = hint(&millis, signed(&seconds, post(&[], "{}"))).unwrap();
    assert!(
        found
            .to_string()
            .contains("in seconds and the record takes milliseconds"),
        "{found}"
    );
    let found = hint(&in_unit("rfc3339"), signed(&seconds, post(&[], "{}"))).unwrap();
    assert!(found.to_string().contains("the form of RFC 3339"), "{found}");
    let mut late = signed(&seconds, post(&[], "{}"));
    late.head.received_at = Timestamp::from_secs(NOW + 100_000);
    assert_eq!(hint(&seconds, late), Some(Hint::ClockOff { seconds: 100_000 }));
}

#[test]
fn a_secret_that_has_ended_is_told_while_the_sender_uses_it() {
    let with_end = |end: i64| {
        let old = SourceSecret {
            not_after: Some(Timestamp::from_secs(end)),
            ..SourceSecret::new(Secret::new("old-secret-0123456789"))
        };
        let new = SourceSecret::new(Secret::new(SECRET));
        Verifier::new(
            presets::find("github").unwrap(),
            vec![new, old],
            VerifierOptions::default(),
        )
        .unwrap()
    };
    let sender = preset("github", &["old-secret-0123456789"]);
    let request = signed(&sender, post(&[], "{}"));
    let ended = with_end(NOW - 1);
    assert_eq!(hint(&ended, request.clone()), Some(Hint::SecretEnded { which: nth(1) }));
    assert_eq!(hint(&ended, with_body(request.clone(), "{ }x")), None);
    assert!(with_end(NOW + 1).verify(request).is_ok());
}

#[test]
fn quotes_around_a_secret_are_told() {
    for quoted in [
        format!("\"{SECRET}\""),
        format!("'{SECRET}'"),
        format!(" \"{SECRET}\"\n"),
    ] {
        let ours = preset("github", &[&quoted]);
        let request = signed(&preset("github", &[SECRET]), post(&[], "{}"));
        assert_eq!(hint(&ours, request.clone()), Some(Hint::SecretQuoted { which: nth(0) }));
        assert_eq!(hint(&ours, with_body(request, "{ }x")), None);
    }
    // One quote is a character like any other.
    let ours = preset("github", &[&format!("\"{SECRET}")]);
    assert_eq!(hint(&ours, signed(&preset("github", &[SECRET]), post(&[], "{}"))), None);
}

#[test]
fn a_prefix_of_a_secret_that_was_left_out_or_added_is_told() {
    let bare = STRIPE.trim_start_matches("whsec_");
    for (ours, senders, is_missing) in [(bare, STRIPE, true), (STRIPE, bare, false)] {
        let ours = preset("stripe", &[ours]);
        let request = signed(&preset("stripe", &[senders]), post(&[], "{}"));
        let expected = Hint::SecretPrefix {
            which: nth(0),
            prefix: "whsec_",
            is_missing,
        };
        assert_eq!(hint(&ours, request.clone()), Some(expected));
        assert_eq!(hint(&ours, with_body(request, "{ }x")), None);
    }
}

#[test]
fn another_hash_is_told() {
    let by = |hash: &str| custom(&format!("{PLAIN}hash = \"{hash}\""), &[SECRET]);
    let (found, expected) = ("sha512", "sha256");
    let request = signed(&by("sha512"), post(&[], "{}"));
    assert_eq!(
        hint(&by("sha256"), request.clone()),
        Some(Hint::Hash { found, expected })
    );
    assert_eq!(hint(&by("sha256"), with_body(request, "{ }x")), None);
}

#[test]
fn a_credential_of_another_kind_is_told_by_what_all_of_its_kind_share() {
    let request = signed(&preset("stripe", &[STRIPE]), post(&[], "{}"));
    let key = ["sk_live", "_4eC39HqLyjWDarjtT1zdp7dc"].concat();
    let found = hint(&preset("stripe", &[STRIPE, &key]), with_body(request.clone(), "[]")).unwrap();
    let expected = Hint::NotASigningSecret {
        which: nth(1),
        kind: "a secret API key",
        begins: "sk_live_",
    };
    assert_eq!(found, expected);
    assert!(!found.to_string().contains("4eC39"), "{found}");
    // A secret of the right kind, and providers whose key or token does sign or that do not say what signs.
    assert_eq!(hint(&preset("stripe", &[STRIPE]), with_body(request, "[]")), None);
    for provider in ["paystack", "gitlab"] {
        let source = preset(provider, &[&key]);
        let sender = preset(provider, &["another-secret-0123456789"]);
        assert_eq!(hint(&source, signed(&sender, post(&[], "{}"))), None, "{provider}");
    }
}

#[test]
fn a_request_in_another_providers_scheme_is_told_when_it_holds_there() {
    let ours = preset("stripe", &[STANDARD]);
    let request = signed(
        &preset("svix", &[STANDARD]),
        post(&[("svix-id", "m"), ("svix-signature", "-")], "{}"),
    );
    assert_eq!(
        hint(&ours, request.clone()),
        Some(Hint::OtherScheme { provider: "svix" })
    );
    let forged = hint(&ours, with_body(request, "{ }x")).unwrap();
    let Hint::OtherFamily { header, providers } = &forged else {
        panic!("{forged:?}")
    };
    assert_eq!((header.as_str(), providers[0]), ("svix-signature", "svix"));
    assert!(providers.len() <= 4, "{providers:?}");
}

#[test]
fn the_signature_header_of_other_providers_is_told_and_one_that_anybody_sends_is_not() {
    let ours = preset("stripe", &[STRIPE]);
    let request = signed(&preset("github", &[SECRET]), post(&[("x-github-event", "push")], "{}"));
    let found = hint(&ours, request).unwrap();
    assert!(
        found
            .to_string()
            .starts_with("it carries `x-hub-signature-256`, which this source's provider does not send"),
        "{found}"
    );
    for header in ["x-signature", "signature", "authorization", "x-unheard-of"] {
        assert_eq!(hint(&ours, post(&[(header, "abc")], "{}")), None, "{header}");
    }
}

#[test]
fn a_signature_that_was_dropped_is_told_by_the_headers_that_came() {
    let github = preset("github", &[SECRET]);
    let mut request = signed(&github, post(&[("x-github-event", "push")], "{}"));
    request.head.headers.remove("x-hub-signature-256");
    let found = hint(&github, request).unwrap();
    assert!(
        matches!(&found, Hint::HeaderMissing { header, .. } if header == "x-hub-signature-256"),
        "{found:?}"
    );
    assert_eq!(hint(&github, post(&[("x-forwarded-for", "203.0.113.9")], "{}")), None);
}

#[test]
fn a_header_with_an_underscore_is_told_where_a_proxy_is_in_front() {
    let source = |name: &str| custom(&PLAIN.replace("X-Sig", name), &[SECRET]);
    let behind = post(&[("x-forwarded-for", "203.0.113.9")], "{}");
    let header = "x_sig".to_owned();
    assert_eq!(
        hint(&source("X_Sig"), behind.clone()),
        Some(Hint::HeaderUnderscore { header })
    );
    assert_eq!(hint(&source("X-Sig"), behind), None);
    assert_eq!(hint(&source("X_Sig"), post(&[], "{}")), None);
}

#[test]
fn a_body_that_was_inflated_or_compressed_on_its_way_is_told() {
    let github = preset("github", &[SECRET]);
    let plain = "{\"a\":1}";
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain.as_bytes()).unwrap();
    let compressed = encoder.finish().unwrap();
    let mut inflated = signed(&github, post(&[("content-encoding", "gzip")], compressed.clone()));
    inflated.body = Bytes::from_static(plain.as_bytes());
    assert_eq!(hint(&github, inflated.clone()), Some(Hint::Inflated { coding: "gzip" }));
    inflated.head.headers.remove("content-encoding");
    assert_eq!(hint(&github, inflated), None);
    let mut request = signed(&github, post(&[], plain));
    request.body = compressed.into();
    let found = hint(&github, request.clone()).unwrap();
    assert!(found.to_string().contains("compressed after it was signed"), "{found}");
    let mut cut = request.body.to_vec();
    cut.truncate(12);
    request.body = cut.into();
    assert_eq!(hint(&github, request), None);
}

#[test]
fn keys_in_another_order_are_told_when_the_sender_sorts_them() {
    let github = preset("github", &[SECRET]);
    for sent in [
        "{\"a\":1,\"b\":{\"c\":[],\"d\":2}}",
        "{\"a\": 1, \"b\": {\"c\": [], \"d\": 2}}",
    ] {
        let request = with_body(signed(&github, post(&[], sent)), "{\"b\":{\"d\":2,\"c\":[]},\"a\":1}");
        let found = hint(&github, request).unwrap();
        assert!(found.to_string().contains("another order"), "{found}");
    }
    let other = with_body(signed(&github, post(&[], "{\"a\":1}")), "{\"b\":1}");
    assert_eq!(hint(&github, other), None);
}

#[test]
fn a_large_body_is_not_tried_in_other_forms_and_many_secrets_end_the_search() {
    let github = preset("github", &[SECRET]);
    let lines = |bytes: usize, end: &str| Bytes::from(format!("{}{end}", "a".repeat(bytes)));
    let arrives = |source: &Verifier, bytes: usize| {
        let mut request = signed(&github, post(&[], lines(bytes, "\n")));
        request.body = lines(bytes, "\r\n");
        hint(source, request)
    };
    assert!(arrives(&github, MAX_BODY / 2).is_some());
    assert_eq!(arrives(&github, MAX_BODY + 1), None);
    let texts: Vec<String> = (0..400).map(|n| format!("another-secret-{n:09}")).collect();
    let mut many: Vec<&str> = texts.iter().map(String::as_str).collect();
    many.push(SECRET);
    assert_eq!(arrives(&preset("github", &many), MAX_BODY / 2), None);
}

/// Schemes that the engine knows nothing special about must not end it.
#[test]
fn no_record_and_no_reason_makes_it_panic() {
    let mut judged = 0;
    for name in presets::names() {
        let record = presets::find(name).unwrap();
        let mut headers: Vec<(String, &str)> = record
            .headers()
            .into_iter()
            .map(|header| (header.to_owned(), "t=1,v1=00"))
            .collect();
        headers.push(("x-forwarded-for".to_owned(), "203.0.113.9"));
        let options = VerifierOptions {
            public_url: Some("https://hooks.example.test".to_owned()),
            ..VerifierOptions::default()
        };
        let secret = SourceSecret::new(Secret::new(super::super::tests::secret_for(name)));
        let Ok(source) = Verifier::new(record, vec![secret], options) else {
            continue;
        };
        for body in ["{\"a\":1}", ""] {
            let mut request = request(Method::POST, "/in?b=1&a=2", &[], body);
            for (header, value) in &headers {
                let header: HeaderName = header.parse().unwrap();
                request.head.headers.insert(header, HeaderValue::from_static(value));
            }
            for reason in Reason::ALL {
                let hint = source.hint(&request, reason);
                assert!(!format!("{hint:?}").contains("0123456789"), "{name}: {hint:?}");
            }
        }
        judged += 1;
    }
    assert!(judged > 100, "{judged}");
}

#[test]
fn a_secret_is_told_by_its_label_where_it_has_one() {
    let labelled = |label: &str, text: &str| SourceSecret {
        label: Some(label.into()),
        ..SourceSecret::new(Secret::new(text))
    };
    let secrets = vec![
        labelled("next", "other-secret-012345"),
        labelled("june", "test-secret-0123456789abcdef \n"),
    ];
    let record = presets::find("github").unwrap();
    let padded = Verifier::new(record, secrets, VerifierOptions::default()).unwrap();
    let request = signed(&preset("github", &[SECRET]), post(&[], "{}"));
    let told = hint(&padded, request).unwrap().to_string();
    assert!(told.starts_with("secret `june` has white space"), "{told}");
}

#[test]
fn a_hand_shake_that_hands_over_a_secret_is_told() {
    let asana = preset("asana", &[SECRET]);
    let told = hint(
        &asana,
        post(&[("x-hook-secret", "0123456789abcdef0123456789abcdef")], ""),
    );
    assert_eq!(told, Some(Hint::HandsOverSecret));
    assert_ne!(hint(&asana, post(&[], "{}")), Some(Hint::HandsOverSecret));
}
