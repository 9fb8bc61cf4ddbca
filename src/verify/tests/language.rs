//! What a record can say beyond a MAC over the body: each rule of the language on a small record of its own.

use bytes::Bytes;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::*;

fn sign_headers(verifier: &Verifier, request: &mut RawRequest) {
    let signed = verifier
        .sign(&SignInput {
            method: &request.head.method,
            target: &request.head.target,
            authority: None,
            headers: &request.head.headers,
            body: &request.body,
            now: request.head.received_at,
            secret_index: None,
        })
        .unwrap();
    for (name, value) in signed {
        request.head.headers.insert(name, value);
    }
}

fn with_params(text: &str, secrets: &[&str], params: &[(&str, &str)]) -> Verifier {
    let mut problems = Diagnostics::new();
    let record = Record::read_text("acme", text, &mut problems);
    assert!(problems.is_empty(), "{}", problems.render("acme.toml", text, false));
    let params = params
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let secrets = secrets.iter().map(|text| SourceSecret::new(Secret::new(*text)));
    let options = VerifierOptions {
        public_url: Some("https://hooks.example.test".to_owned()),
        params: params.collect(),
        ..VerifierOptions::default()
    };
    Verifier::new(Arc::new(record.unwrap()), secrets.collect(), options).unwrap()
}

fn handshake(verifier: &Verifier, request: RawRequest) -> Option<ChallengeAnswer> {
    match verifier.verify(request) {
        Ok(Verified::Challenge(answer)) => Some(answer),
        Ok(Verified::Event(event)) => panic!("an event: {event:?}"),
        Err(_) => None,
    }
}

fn get(target: &str) -> RawRequest {
    request(Method::GET, target, &[], "")
}

/// What `Record::read_text` says about a text that is wrong.
fn complaint(text: &str) -> String {
    let mut problems = Diagnostics::new();
    assert!(Record::read_text("acme", text, &mut problems).is_none(), "{text}");
    problems.render("acme.toml", text, false)
}

const DIGEST: &str = "kind = \"digest\"\nsignature = \"header:x-sig\"\n";

#[test]
fn a_plain_digest_holds_the_secret_and_rotates_like_a_mac() {
    let text = format!("{DIGEST}hash = \"sha1\"\npayload = \"{{secret}}:{{body}}\"\n");
    let verifier = custom(&text, &["new", "old"]);
    let mut made = post(&[], "{\"a\":1}");
    sign_headers(&custom(&text, &["old"]), &mut made);
    let event = verdict(&verifier, made).unwrap();
    assert_eq!(event.proof().secret_index, Some(1));
    let mut forged = post(&[], "{\"a\":1}");
    sign_headers(&custom(&text, &["other"]), &mut forged);
    assert_eq!(verdict(&verifier, forged).unwrap_err(), Reason::WrongSignature);
    assert!(custom(&text, &["s"]).record().body_authenticated());
}

#[test]
fn a_plain_digest_agrees_with_a_figure_made_elsewhere() {
    // printf 'k{"a":1}' | openssl dgst -md5
    let text = format!("{DIGEST}hash = \"md5\"\npayload = \"{{secret}}{{body}}\"\n");
    let request = post(&[("x-sig", "152c57c0025958fa951c07024f603cff")], "{\"a\":1}");
    assert!(verdict(&custom(&text, &["k"]), request).is_ok());
}

/// Whoever has `MD(secret ‖ text)` has that of the text, the padding and whatever he likes, without the secret. The right
/// digest of such a body is what he would send.
#[test]
fn a_digest_with_the_secret_in_front_cannot_be_extended() {
    let mut padding = vec![0; 56 - 8];
    padding[0] = 0x80;
    padding.extend_from_slice(&(8 * 8_u64).to_be_bytes());
    let extended = Bytes::from([b"{\"a\":1}", padding.as_slice(), b"{\"a\":2}"].concat());
    for (payload, before, behind, taken) in [
        ("{secret}{body}", "k", "", false),
        ("{header:x-a}{secret}{body}", "1k", "", false),
        ("{sorted_join:secret,header:x-a}{body}", "1k", "", false),
        ("{body}{secret}", "", "k", true),
    ] {
        let verifier = custom(&format!("{DIGEST}payload = \"{payload}\"\n"), &["k"]);
        let digest = Sha256::digest([before.as_bytes(), &extended, behind.as_bytes()].concat());
        let made = post(&[("x-a", "1"), ("x-sig", &HEXLOWER.encode(&digest))], extended.clone());
        let verdict = verdict(&verifier, made).map(drop);
        let expected = if taken { Ok(()) } else { Err(Reason::WrongSignature) };
        assert_eq!(verdict, expected, "{payload}");
    }
}

/// A body that holds `.1700000000.` would be a message of that time, with the start of the body in its id.
#[test]
fn a_message_is_not_cut_elsewhere_to_look_fresh() {
    let record = "kind = \"hmac\"\nsignature = \"header:x-sig\"\npayload = \"{header:x-id}.{timestamp}.{body}\"\n\
                  timestamp = \"header:x-time\"\ntolerance_seconds = 300\n";
    let verifier = custom(record, &["k"]);
    let now = NOW.to_string();
    let with = |id: &str, body: &str| {
        let mut request = post(&[("x-id", id), ("x-time", &now)], body.to_owned());
        sign_headers(&verifier, &mut request);
        verdict(&verifier, request).map(drop)
    };
    for id in ["msg_1", "msg.1", "1.2", "msg_1.5", "msg_1.x.y"] {
        assert_eq!(with(id, "{}"), Ok(()), "{id}");
    }
    for id in ["msg_1.1500000000.{\"a\":1", "m.1.", "a.b.77.c"] {
        assert_eq!(with(id, "{}"), Err(Reason::WrongSignature), "{id}");
    }
}

#[test]
fn a_digest_without_the_secret_and_a_mac_with_it_are_refused() {
    assert!(complaint(&format!("{DIGEST}payload = \"{{body}}\"\n")).contains("no `{secret}`"));
    let text = "kind = \"hmac\"\nsignature = \"header:x-sig\"\npayload = \"{secret}{body}\"\n";
    assert!(complaint(text).contains("a MAC's key is not part of its text"));
    let text = "kind = \"hmac\"\nsignature = \"header:x-sig\"\nhash = \"keccak256\"\n";
    assert!(complaint(text).contains("only `kind = \"digest\"` hashes with it"));
    let text = format!("{DIGEST}payload = \"{{secret}}{{body}}\"\nalso_require = [\"header:a == {{secret}}\"]\n");
    assert!(complaint(&text).contains("outside of `payload`"));
}

#[test]
fn each_of_the_texts_that_may_have_been_signed_is_tried() {
    let text = "kind = \"hmac\"\nsignature = \"header:x-sig\"\npayload = \"{body}\"\n";
    let variants = format!("{text}payload_variants = [\"{{body}}\\n\", \"v2:{{body}}\"]\n");
    let verifier = custom(&variants, &[SECRET]);
    for signed in ["x", "x\n", "v2:x"] {
        let mut request = post(&[], signed.to_owned());
        sign_headers(&custom(text, &[SECRET]), &mut request);
        request.body = "x".into();
        assert!(verdict(&verifier, request).is_ok(), "{signed:?}");
    }
    let mut request = post(&[], "x\n\n");
    sign_headers(&custom(text, &[SECRET]), &mut request);
    request.body = "x".into();
    assert_eq!(verdict(&verifier, request).unwrap_err(), Reason::WrongSignature);
    let many = format!("{text}payload_variants = [\"a{{body}}\", \"b{{body}}\", \"c{{body}}\", \"d{{body}}\"]\n");
    assert!(complaint(&many).contains("too many"));
}

#[test]
fn secrets_become_keys_as_the_record_says() {
    let plain = "kind = \"hmac\"\nsignature = \"header:x-sig\"\n";
    let same = |rule: &str, shown: &str, key: &str| {
        let mut request = post(&[], "{}");
        sign_headers(&custom(plain, &[key]), &mut request);
        let verifier = custom(&format!("{plain}{rule}\n"), &[shown]);
        assert!(verdict(&verifier, request).is_ok(), "{rule}");
    };
    same("secret_strip_prefix = \"signkey-*-\"", "signkey-prod-abcdef", "abcdef");
    same("secret_strip_prefix = [\"v1,\", \"whsec_\"]", "v1,whsec_abc", "abc");
    same("secret_strip_prefix = [\"v1,\", \"whsec_\"]", "whsec_abc", "abc");
    same("secret_normalise = \"html\"", "a &amp; b", "a & b");
    same("secret_normalise = \"NFKD\"", "s\u{e9}", "se\u{301}");
    same("secret_suffix = \"&\"", "abc", "abc&");
    let hashed = format!("{plain}secret_encoding = \"sha1\"\n");
    // printf abc | sha1sum, as a key in hexadecimal
    let by_hex = format!("{plain}secret_encoding = \"hex\"\n");
    let mut request = post(&[], "{}");
    sign_headers(
        &custom(&by_hex, &["a9993e364706816aba3e25717850c26c9cd0d89d"]),
        &mut request,
    );
    assert!(verdict(&custom(&hashed, &["abc"]), request).is_ok());
}

const PLAIN: &str = "kind = \"hmac\"\nsignature = \"header:x-sig\"\n";

#[test]
fn every_element_of_a_list_must_hold_by_itself() {
    let text = "kind = \"token\"\neach = \"/value\"\nsignature = \"item:/state\"\n";
    let verifier = custom(text, &[SECRET]);
    let of = |states: &[&str]| {
        let items: Vec<String> = states
            .iter()
            .map(|state| format!("{{\"state\":\"{state}\"}}"))
            .collect();
        post(&[], format!("{{\"value\":[{}]}}", items.join(",")))
    };
    assert!(verdict(&verifier, of(&[SECRET])).is_ok());
    assert!(verdict(&verifier, of(&[SECRET, SECRET, SECRET])).is_ok());
    for forged in [vec![SECRET, "other"], vec!["other", SECRET], vec![SECRET, "", SECRET]] {
        assert!(verdict(&verifier, of(&forged)).is_err(), "{forged:?}");
    }
    assert_eq!(verdict(&verifier, of(&[])).unwrap_err(), Reason::MissingSignature);
    assert_eq!(verdict(&verifier, post(&[], "{}")).unwrap_err(), Reason::BodyMalformed);
    let many = vec![SECRET; 1001];
    assert_eq!(verdict(&verifier, of(&many)).unwrap_err(), Reason::BodyMalformed);
}

#[test]
fn an_element_is_told_from_the_body_around_it() {
    assert!(complaint("kind = \"token\"\nsignature = \"item:/a\"\n").contains("`item:` without `each`"));
    let text = "kind = \"token\"\neach = \"/v\"\nsignature = \"json:/a\"\n";
    assert!(complaint(text).contains("`each` without an `item:`"));
    let text = "kind = \"hmac\"\neach = \"/v\"\nsignature = \"item:/a\"\npayload = \"{json:/b}{item:/c}\"\n";
    assert!(complaint(text).contains("no `item:`"));
}

#[test]
fn a_name_or_tag_may_be_the_sources_own() {
    let text = "kind = \"token\"\nsignature = \"header:{header}\"\nparams = [\"header\"]\n";
    let verifier = with_params(text, &[SECRET], &[("header", "X-Mine")]);
    assert!(verdict(&verifier, post(&[("x-mine", SECRET)], "{}")).is_ok());
    assert_eq!(
        verdict(&verifier, post(&[("header", SECRET)], "{}")).unwrap_err(),
        Reason::MissingSignature
    );
    let text = "kind = \"token\"\nsignature = \"query:{param}\"\nparams = [\"param=secret\"]\n";
    let usual = with_params(text, &[SECRET], &[]);
    let target = format!("/in?secret={SECRET}");
    assert!(verdict(&usual, request(Method::POST, &target, &[], "{}")).is_ok());
    let named = with_params(text, &[SECRET], &[("param", "key")]);
    assert!(verdict(&named, request(Method::POST, &target, &[], "{}")).is_err());
    assert!(complaint("kind = \"token\"\nsignature = \"header:{header}\"\n").contains("params = [\"header\"]"));
    let text = "kind = \"token\"\nsignature = \"header:{header}\"\nparams = [\"header?\"]\n";
    assert!(complaint(text).contains("no parameter `header` is required"));
}

#[test]
fn a_bad_name_stops_the_start() {
    let text = "kind = \"token\"\nsignature = \"header:{header}\"\nparams = [\"header\"]\n";
    let record = Record::read_text("acme", text, &mut Diagnostics::new()).unwrap();
    let options = VerifierOptions {
        params: [("header".to_owned(), "no header".to_owned())].into(),
        ..VerifierOptions::default()
    };
    let problems = Verifier::new(Arc::new(record), vec![SourceSecret::new(Secret::new(SECRET))], options).unwrap_err();
    assert!(problems[0].message.contains("bad parameter `header`"), "{problems:?}");
}

#[test]
fn what_is_required_besides_the_signature_must_hold() {
    let verifier = custom(
        &format!("{PLAIN}require = 'header:x-v == \"1\" and not header:x-old'\n"),
        &[SECRET],
    );
    let mut good = post(&[("x-v", "1")], "{}");
    sign_headers(&verifier, &mut good);
    assert!(verdict(&verifier, good.clone()).is_ok());
    good.head.headers.insert("x-v", HeaderValue::from_static("2"));
    assert_eq!(verdict(&verifier, good.clone()).unwrap_err(), Reason::WrongSignature);
    good.head.headers.insert("x-v", HeaderValue::from_static("1"));
    good.head.headers.insert("x-old", HeaderValue::from_static(""));
    assert_eq!(verdict(&verifier, good).unwrap_err(), Reason::WrongSignature);
}

#[test]
fn a_comparison_with_what_the_source_leaves_out_is_not_made() {
    let text = format!("{PLAIN}params = [\"key_id?\"]\nalso_require = [\"header:x-key == {{key_id}}\"]\n");
    let mut request = post(&[("x-key", "k1")], "{}");
    sign_headers(&with_params(&text, &[SECRET], &[]), &mut request);
    assert!(verdict(&with_params(&text, &[SECRET], &[]), request.clone()).is_ok());
    assert!(verdict(&with_params(&text, &[SECRET], &[("key_id", "k1")]), request.clone()).is_ok());
    let other = with_params(&text, &[SECRET], &[("key_id", "k2")]);
    assert_eq!(verdict(&other, request).unwrap_err(), Reason::WrongSignature);
}

#[test]
fn fields_of_both_kinds_of_forms_are_signed() {
    let text = "kind = \"hmac\"\nsignature = \"header:x-sig\"\npayload = \"{form:a}{form_json:j:/b}\"\n";
    let verifier = custom(text, &[SECRET]);
    let multipart = "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1 2\r\n--B\r\n\
                     Content-Disposition: form-data; name=\"j\"\r\n\r\n{\"b\":3}\r\n--B--\r\n";
    let forms = [
        ("application/x-www-form-urlencoded", "a=1+2&j=%7B%22b%22%3A3%7D"),
        ("multipart/form-data; boundary=B", multipart),
    ];
    let mut signatures = Vec::new();
    for (media_type, body) in forms {
        let mut request = post(&[("content-type", media_type)], body);
        sign_headers(&verifier, &mut request);
        signatures.push(request.head.headers["x-sig"].clone());
        assert!(verdict(&verifier, request).is_ok(), "{media_type}");
    }
    assert_eq!(signatures[0], signatures[1]);
    let mut request = post(&[("content-type", "application/json"), ("x-sig", "00")], "{}");
    request.head.headers.insert("x-sig", signatures[0].clone());
    assert_eq!(verdict(&verifier, request).unwrap_err(), Reason::BodyMalformed);
}

#[test]
fn a_body_is_inflated_only_to_be_checked() {
    let gzip = |text: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, text).unwrap();
        encoder.finish().unwrap()
    };
    let decoded = custom(
        &format!("{PLAIN}signed_over = \"decoded\"\nevent_type = \"json:/type\"\n"),
        &[SECRET],
    );
    let wire = custom(PLAIN, &[SECRET]);
    let mut plain = post(&[], "{\"type\":\"message.new\"}");
    sign_headers(&wire, &mut plain);
    let mut packed = plain.clone();
    packed.body = gzip(&plain.body).into();
    packed
        .head
        .headers
        .insert("content-encoding", HeaderValue::from_static("gzip"));
    let bytes = packed.body.clone();
    let event = verdict(&decoded, packed.clone()).unwrap();
    assert_eq!(event.request().body, bytes);
    assert_eq!(event.event_type(), Some("message.new"), "read from what is signed");
    assert_eq!(verdict(&wire, packed.clone()).unwrap_err(), Reason::WrongSignature);
    assert!(verdict(&decoded, plain).is_ok());
    for (coding, body, reason) in [
        ("br", bytes.to_vec(), Reason::BodyMalformed),
        ("gzip", b"no gzip".to_vec(), Reason::BodyMalformed),
        ("gzip", gzip(&vec![b' '; 26 * 1024 * 1024]), Reason::TooLarge),
    ] {
        packed.body = body.into();
        packed
            .head
            .headers
            .insert("content-encoding", HeaderValue::from_static(coding));
        assert_eq!(verdict(&decoded, packed.clone()).unwrap_err(), reason, "{coding}");
    }
    // Signed anew, the body goes on as it came.
    packed.body = bytes;
    packed
        .head
        .headers
        .insert("content-encoding", HeaderValue::from_static("gzip"));
    packed.head.headers.remove("x-sig");
    sign_headers(&decoded, &mut packed);
    assert!(verdict(&decoded, packed).is_ok());
}

const CHECKED: &str = "params = [\"verify_token?\"]\n[[challenge]]\nwhen = 'method == GET and query:c'\n\
                       verify_first = false\ncheck = \"query:t == {verify_token}\"\nbody = \"{query:c}\"\n";

#[test]
fn a_handshake_with_a_wrong_token_is_refused_and_without_one_configured_too() {
    let text = format!("{PLAIN}{CHECKED}");
    let verifier = with_params(&text, &[SECRET], &[("verify_token", "tok")]);
    assert_eq!(handshake(&verifier, get("/in?c=abc&t=tok")).unwrap().body, "abc");
    for wrong in ["/in?c=abc&t=to", "/in?c=abc&t=tokk", "/in?c=abc&t=", "/in?c=abc"] {
        assert_eq!(handshake(&verifier, get(wrong)), None, "{wrong}");
    }
    assert_eq!(handshake(&verifier, get("/in?c=%3Cb%3E&t=tok")), None);
    let without = with_params(&text, &[SECRET], &[]);
    assert_eq!(handshake(&without, get("/in?c=abc&t=")), None);
    assert_eq!(handshake(&without, get("/in?c=abc")), None);
}

#[test]
fn a_provider_that_asks_for_its_own_status_of_no_gets_it() {
    let text = format!("{PLAIN}{CHECKED}check_failed_status = 404\n");
    let verifier = with_params(&text, &[SECRET], &[("verify_token", "tok")]);
    let answer = handshake(&verifier, get("/in?c=abc&t=wrong")).unwrap();
    assert_eq!((answer.status.as_u16(), answer.body.len()), (404, 0));
}

#[test]
fn an_answer_is_made_with_the_first_live_secret() {
    let text = format!(
        "{PLAIN}[[challenge]]\nwhen = 'query:c'\nverify_first = false\nvalues = \"token 1..64\"\n\
         body = \"{{hmac_hex:query:c}} {{hmac_base64:query:c}}\"\n"
    );
    let record = Arc::new(Record::read_text("acme", &text, &mut Diagnostics::new()).unwrap());
    let mut old = SourceSecret::new(Secret::new("old"));
    old.not_after = Some(Timestamp::from_secs(NOW));
    let secrets = vec![old, SourceSecret::new(Secret::new("new"))];
    let verifier = Verifier::new(record, secrets, VerifierOptions::default()).unwrap();
    // printf abc | openssl dgst -sha256 -hmac new
    let hex = "54a818bc60e785d356919b452b6aae5260e5b8744ec48ab82034e834ff6def9d";
    let base64 = "VKgYvGDnhdNWkZtFK2quUmDluHROxIq4IDToNP9t750=";
    assert_eq!(
        handshake(&verifier, get("/in?c=abc")).unwrap().body,
        format!("{hex} {base64}")
    );
    let ended = Verifier::challenges_only(verifier.shared_record().clone(), [].into());
    assert_eq!(handshake(&ended, get("/in?c=abc")), None);
}

#[test]
fn a_digest_of_values_and_parameters_is_answered() {
    // Made with the provider's SDK, npm event-notification-nodejs-sdk 1.0.3: SHA-256 of code, token and URL.
    let text = format!(
        "{PLAIN}params = [\"verification_token?\", \"endpoint_url?\"]\n[[challenge]]\nwhen = 'query:c'\n\
         verify_first = false\nbody = \"{{sha256_hex:query:c + verification_token + endpoint_url}}\"\n"
    );
    let params = [("verification_token", "tok"), ("endpoint_url", "https://h.test/in")];
    let verifier = with_params(&text, &[SECRET], &params);
    // printf 'a8628072tokhttps://h.test/in' | sha256sum
    assert_eq!(
        handshake(&verifier, get("/in?c=a8628072")).unwrap().body,
        "7e0dff20a213c3fdc8cdf2d9c0a626a0837a7bd733d36364bd3d74c32b8d665c"
    );
    assert_eq!(
        handshake(&with_params(&text, &[SECRET], &[]), get("/in?c=a8628072")),
        None
    );
}

#[test]
fn a_mac_is_answered_only_over_values_that_the_record_describes() {
    let challenge = "[[challenge]]\nwhen = 'query:c'\nbody = \"{hmac_hex:query:c}\"\n";
    assert!(complaint(&format!("{PLAIN}{challenge}")).contains("without `values` anybody"));
    let text = format!("{DIGEST}payload = \"{{secret}}{{body}}\"\n{challenge}values = \"hex 1..8\"\n");
    assert!(complaint(&text).contains("only `kind = \"hmac\"`"));
    assert!(complaint(&format!("{PLAIN}payload = \"{{hmac_hex:header:a}}\"\n")).contains("a function in the payload"));
}

/// The presets that MAC what the sender of a hand-shake chooses.
fn answering() -> Vec<&'static str> {
    let answers = |name: &&str| !presets::find(name).unwrap().answerable.is_empty();
    presets::names().into_iter().filter(answers).collect()
}

#[test]
fn the_presets_that_answer_with_a_mac_are_these() {
    assert_eq!(answering(), ["braintree", "linkedin", "smartcar", "x", "zoom"]);
}

proptest! {
    /// Whatever an answer MACs for somebody, no request whose signed text it is becomes an event. The asker is given
    /// more than any answer gives: the MAC of any text of the described form.
    #[test]
    fn no_answer_to_a_handshake_vouches_for_an_event(
        name in prop::sample::select(answering()),
        value in "[a-f0-9]{20,32}|[A-Za-z0-9_-]{1,64}|[A-Za-z0-9+/=_-]{1,128}|v0:[0-9]{10}:[a-z]{0,9}|hmacsha256=[a-z]{0,9}",
    ) {
        let record = presets::find(name).unwrap();
        let verifier = with_params_of(&record);
        let values = record.answerable[0];
        let key = verifier.mac_key(0, 0).unwrap();
        let tag = key.compute(&[std::borrow::Cow::Borrowed(value.as_bytes())]);
        let scheme = &record.schemes[0];
        let signature = scheme.signature.write(tag.as_slice(), &[]);
        let signs_it = values.allow_pieces(&[std::borrow::Cow::Borrowed(value.as_bytes())]);
        // Each way to make the record's signed text be exactly the value.
        let body = match name {
            "braintree" => format!(
                "bt_signature={}&bt_payload={}",
                form::encode(&signature),
                form::encode(&value)
            ),
            "linkedin" => value.strip_prefix("hmacsha256=").unwrap_or(&value).to_owned(),
            "zoom" => value.splitn(3, ':').nth(2).unwrap_or(&value).to_owned(),
            _ => value.clone(),
        };
        let time = value.split(':').nth(1).unwrap_or("0").to_owned();
        let form_type = "application/x-www-form-urlencoded";
        let mut headers = vec![("content-type", form_type), ("x-zm-request-timestamp", time.as_str())];
        if let Some(Place::Header(header)) = scheme.signature.places.first() {
            headers.push((header.as_str(), signature.as_str()));
        }
        let mut forged = post(&headers, body);
        if let Ok(seconds) = time.parse() {
            forged.head.received_at = Timestamp::from_secs(seconds);
        }
        let is_event = matches!(verifier.verify(forged), Ok(Verified::Event(_)));
        prop_assert!(!(signs_it && is_event), "{name}: {value}");
    }
}

fn with_params_of(record: &Arc<Record>) -> Verifier {
    let params = record.params().iter().map(|name| (name.clone(), "pub".to_owned()));
    let options = VerifierOptions {
        params: params.collect(),
        public_url: Some("https://hooks.example.test".to_owned()),
        ..VerifierOptions::default()
    };
    Verifier::new(
        Arc::clone(record),
        vec![SourceSecret::new(Secret::new(SECRET))],
        options,
    )
    .unwrap()
}

/// npm @hygraph/utils takes the three parts by their places, and signs the name of the environment.
#[test]
fn a_signature_is_written_in_its_order_and_keeps_what_the_provider_chose() {
    let hygraph = preset("hygraph", &[SECRET]);
    let headers = [("gcms-signature", "sign=AAAA, env=master, t=1600000000000")];
    let signed_anew = signed(&hygraph, post(&[], "{}"));
    assert!(verdict(&hygraph, signed_anew).is_ok());
    let first = signed(&hygraph, post(&headers, "{}"));
    let text = first.head.headers["gcms-signature"].to_str().unwrap().to_owned();
    let names: Vec<_> = text.split(", ").map(|part| part.split('=').next().unwrap()).collect();
    assert_eq!(names, ["sign", "env", "t"]);
    let mut again = first.clone();
    again.head.received_at = Timestamp::from_secs(NOW + 60);
    let again = signed(&hygraph, again);
    let text = again.head.headers["gcms-signature"].to_str().unwrap();
    assert!(
        text.ends_with(&format!(", env={}, t={}000", env_of(&first), NOW + 60)),
        "{text}"
    );
    assert!(verdict(&hygraph, again).is_ok());
}

fn env_of(request: &RawRequest) -> String {
    let text = request.head.headers["gcms-signature"].to_str().unwrap();
    text.split(", ").nth(1).unwrap().replace("env=", "")
}

#[test]
fn a_key_is_chosen_by_the_name_that_the_request_gives() {
    let text = "kind = \"hmac\"\nsignature = \"header:x-sig\"\nkey_id = \"header:x-key\"\n";
    assert!(complaint(text).contains("`key_id` has no meaning with `kind = \"hmac\"`"));
}

#[test]
fn only_a_shared_secret_can_encrypt_a_body() {
    let text = "kind = \"ed25519\"\nsignature = \"header:x-sig\"\nencrypted = \"json:/e\"\n";
    assert!(complaint(text).contains("only a secret that both sides know can encrypt"));
    let text = format!("{PLAIN}encrypted = \"header:x-e\"\n");
    assert!(complaint(&text).contains("expected `json:/POINTER`"));
}

#[test]
fn a_token_without_the_end_of_its_time_is_none_where_the_provider_sends_one() {
    let text = "kind = \"jwt\"\nsignature = \"header:x-token\"\nalgorithms = [\"HS256\"]\n";
    let token = |claims: &str| {
        let key = super::mac::MacKey::new(super::Hash::Sha256, SECRET.as_bytes()).unwrap();
        let encode = |text: &str| data_encoding::BASE64URL_NOPAD.encode(text.as_bytes());
        let signed = format!("{}.{}", encode(r#"{"alg":"HS256"}"#), encode(claims));
        let tag = key.compute(&[signed.as_bytes().into()]);
        format!("{signed}.{}", data_encoding::BASE64URL_NOPAD.encode(tag.as_slice()))
    };
    let judged = |text: &str, claims: &str| {
        let request = post(&[("x-token", &token(claims))], "{}");
        verdict(&custom(text, &[SECRET]), request).map(|_| ())
    };
    assert_eq!(judged(text, "{}"), Ok(()));
    let required = format!("{text}required_claims = [\"exp\", \"jti\"]\n");
    assert_eq!(judged(&required, r#"{"jti":"1"}"#), Err(Reason::MissingTimestamp));
    let exp = NOW + 9;
    assert_eq!(
        judged(&required, &format!(r#"{{"exp":{exp}}}"#)),
        Err(Reason::MalformedSignature)
    );
    assert_eq!(judged(&required, &format!(r#"{{"exp":{exp},"jti":"1"}}"#)), Ok(()));
    let other = "kind = \"hmac\"\nsignature = \"header:x-sig\"\nrequired_claims = [\"exp\"]\n";
    assert!(complaint(other).contains("without `kind = \"jwt\"`"));
}
