//! What is picked from a request and signed by itself is given once, or the request has two readings.

use super::*;

const PICKS: &str = "kind = \"hmac\"\nsignature = \"header:x-sig\"\n";
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// The body as signed, and with more in front: the same values count, and others can be read.
#[track_caller]
fn refused(record: &str, headers: &[(&str, &str)], signed_body: &str, body: &str, reason: Reason) {
    let verifier = custom(&format!("{PICKS}{record}"), &[SECRET]);
    let mut request = signed(&verifier, post(headers, signed_body.to_owned()));
    assert!(verdict(&verifier, request.clone()).is_ok(), "{record}");
    request.body = body.to_owned().into();
    assert_eq!(verdict(&verifier, request.clone()).unwrap_err(), reason, "{record}");
    let hint = verifier.hint(&request, reason).unwrap().to_string();
    assert!(hint.contains("is given twice"), "{hint}");
}

#[test]
fn a_signed_member_of_the_body_that_is_given_twice_is_refused() {
    let once = r#"{"id":"7","amount":{"sum":1}}"#;
    let payload = "payload = \"{json:/id}{json:/amount/sum}\"";
    for twice in [
        r#"{"amount":{"sum":99},"id":"7","amount":{"sum":1}}"#,
        r#"{"id":"7","amount":{"sum":99,"s\u0075m":1}}"#,
        r#"{"id":"8","id":"7","amount":{"sum":1}}"#,
    ] {
        refused(payload, &[], once, twice, Reason::BodyMalformed);
    }
    let once = r#"{"Content":{"a":1}}"#;
    let twice = r#"{"Content":{"a":2},"Content":{"a":1}}"#;
    refused(
        "payload = \"{json_raw:/Content}\"",
        &[],
        once,
        twice,
        Reason::BodyMalformed,
    );
    let once = r#"{"at":1790000000,"id":1}"#;
    let twice = r#"{"at":1,"at":1790000000,"id":1}"#;
    let timed = "payload = \"{timestamp}{json:/id}\"\ntimestamp = \"json:/at\"";
    refused(timed, &[], once, twice, Reason::BodyMalformed);
    let required = "payload = \"{header:x-sig-id}\"\nalso_require = [\"json:/id == header:x-sig-id\"]";
    let twice = r#"{"id":"b","id":"a"}"#;
    refused(
        required,
        &[("x-sig-id", "a")],
        r#"{"id":"a"}"#,
        twice,
        Reason::BodyMalformed,
    );
}

#[test]
fn a_signed_field_of_a_form_that_is_given_twice_is_refused() {
    refused(
        "payload = \"{form:a}\"",
        &[FORM],
        "a=1",
        "a=1&a=2",
        Reason::BodyMalformed,
    );
    let of_json = "payload = \"{form_json:j:/b}\"";
    let once = "j=%7B%22b%22%3A1%7D";
    refused(
        of_json,
        &[FORM],
        once,
        &format!("{once}&j=%7B%7D"),
        Reason::BodyMalformed,
    );
    let twice = "j=%7B%22b%22%3A2,%22b%22%3A1%7D";
    refused(of_json, &[FORM], once, twice, Reason::BodyMalformed);
    let part = |value: &str| format!("--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{value}\r\n");
    let (once, twice) = (
        format!("{}--B--\r\n", part("1")),
        format!("{}{}--B--\r\n", part("1"), part("2")),
    );
    let media_type = ("content-type", "multipart/form-data; boundary=B");
    refused(
        "payload = \"{form:a}\"",
        &[media_type],
        &once,
        &twice,
        Reason::BodyMalformed,
    );
}

#[test]
fn a_signed_parameter_or_header_that_is_given_twice_is_refused() {
    let verifier = custom(
        &format!("{PICKS}payload = \"{{query:id}}{{header:x-sig-id}}{{body}}\""),
        &[SECRET],
    );
    let once = signed(&verifier, request(Method::POST, "/in?id=1", &[("x-sig-id", "a")], "{}"));
    let mut other = once.clone();
    other.head.target = "/in?id=1&id=2".parse().unwrap();
    assert_eq!(
        verdict(&verifier, other.clone()).unwrap_err(),
        Reason::MalformedSignature
    );
    assert!(
        verifier
            .hint(&other, Reason::MalformedSignature)
            .unwrap()
            .to_string()
            .contains("query:id")
    );
    let mut other = once.clone();
    other.head.headers.append("x-sig-id", HeaderValue::from_static("a"));
    assert_eq!(verdict(&verifier, other).unwrap_err(), Reason::MalformedSignature);
    assert!(verdict(&verifier, once).is_ok());
}

#[test]
fn what_is_signed_as_it_stands_may_name_a_member_twice() {
    // Whoever has the key wrote it so; the last value counts, as in nearly every parser.
    let whole = custom(
        &format!("{PICKS}payload = \"{{json:/id}}{{body}}\"\ndelivery_id = \"json:/id\""),
        &[SECRET],
    );
    let request = signed(&whole, post(&[], r#"{"id":"a","id":"b"}"#));
    assert_eq!(verdict(&whole, request).unwrap().delivery_id(), Some("b"));
    let part = custom(
        &format!("{PICKS}payload = \"{{json_raw:/c}}\"\ndelivery_id = \"json:/c/id\""),
        &[SECRET],
    );
    let request = signed(&part, post(&[], r#"{"x":1,"x":2,"c":{"id":"a","id":"b"}}"#));
    assert_eq!(verdict(&part, request).unwrap().delivery_id(), Some("b"));
}

/// Adyen's notifications are signed one by one: a second array would not be looked at.
#[test]
fn an_array_that_is_given_twice_is_refused() {
    let key = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";
    let adyen = preset("adyen", &[key]);
    let body = r#"{"notificationItems":[{}],"notificationItems":[{"NotificationRequestItem":{}}]}"#;
    assert_eq!(verdict(&adyen, post(&[], body)).unwrap_err(), Reason::BodyMalformed);
}

#[test]
fn presets_that_pick_values_are_known() {
    let picking = presets::names().into_iter().filter(|name| {
        let record = presets::find(name).unwrap();
        let is_in_body = |place: &String| !["header:", "query:"].iter().any(|head| place.starts_with(head));
        record
            .schemes
            .iter()
            .any(|scheme| scheme.picked.names().iter().any(is_in_body))
    });
    let known = [
        "adyen",
        "braintree",
        "dropbox-sign",
        "exact-online",
        "favro",
        "lever",
        "mailgun",
        "paymob",
        "praxis",
        "quoter",
        "sns",
    ];
    assert_eq!(picking.collect::<Vec<_>>(), known);
}
