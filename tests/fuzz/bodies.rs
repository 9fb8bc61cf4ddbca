//! What is true of every request and every record, whatever bytes it is made of. Used by the fuzz targets and by the
//! property tests of `tests/fuzzing.rs`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use hooksluice::diagnostic::Diagnostics;
use hooksluice::request::{RawRequest, RequestHead};
use hooksluice::secret::Secret;
use hooksluice::time::Timestamp;
use hooksluice::verify::record::{Kind, Record};
use hooksluice::verify::sample::Sample;
use hooksluice::verify::sign::SignInput;
use hooksluice::verify::{SourceSecret, Verified, Verifier, VerifierOptions, presets};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

const NOW: i64 = 1_700_000_000;

/// Longest answer to a hand-shake, in bytes: a signed echo of 1 KiB whose every byte is escaped, and its frame.
const MAX_CHALLENGE_ANSWER: usize = 8 << 10;

/// Texts of the forms that providers' secrets have.
const SECRETS: [&str; 3] = [
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
    "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=",
    "user:pass:word",
];

/// Each preset that takes one of the secrets.
static VERIFIERS: LazyLock<Vec<Verifier>> = LazyLock::new(|| {
    let records = presets::names().into_iter().filter_map(presets::find);
    records.filter_map(|record| verifier(&record)).collect()
});

fn verifier(record: &Arc<Record>) -> Option<Verifier> {
    let params = record.params().iter().map(|name| (name.clone(), format!("the-{name}")));
    let options = VerifierOptions {
        public_url: Some("https://hooks.example.test".to_owned()),
        params: params.collect::<BTreeMap<_, _>>(),
        accept_unsigned: true,
        ..VerifierOptions::default()
    };
    SECRETS.iter().find_map(|secret| {
        let secrets = match record.kind() {
            Kind::None => Vec::new(),
            _ => vec![SourceSecret::new(Secret::new(*secret))],
        };
        Verifier::new(Arc::clone(record), secrets, options.clone()).ok()
    })
}

/// Takes the input apart, so that a mutation of it changes one thing of the request.
struct Pieces<'d>(&'d [u8]);

impl<'d> Pieces<'d> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// Up to the next line end.
    fn line(&mut self) -> &'d [u8] {
        let end = self.0.iter().position(|byte| *byte == b'\n').unwrap_or(self.0.len());
        let (line, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        line
    }

    fn rest(self) -> &'d [u8] {
        self.0
    }
}

fn request(method: Method, target: PathAndQuery, headers: HeaderMap, body: &[u8]) -> RawRequest {
    RawRequest {
        head: RequestHead {
            method,
            target,
            authority: Some("hooks.example.test".to_owned()),
            headers,
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            received_at: Timestamp::from_secs(NOW),
        },
        body: Bytes::copy_from_slice(body),
    }
}

/// Any values in the headers that a preset looks at: nothing is accepted that was not signed, and what the head alone
/// refuses, the whole request does not pass.
pub(crate) fn signature_headers(data: &[u8]) {
    let mut pieces = Pieces(data);
    let number = usize::from(pieces.byte()) + usize::from(pieces.byte()) * 256;
    let Some(verifier) = VERIFIERS.get(number % VERIFIERS.len()) else {
        return;
    };
    let mut headers = HeaderMap::new();
    for name in verifier.record().headers() {
        let line = pieces.line();
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(line))
            && !line.is_empty()
        {
            headers.append(name, value);
        }
    }
    let request = request(
        Method::POST,
        PathAndQuery::from_static("/in?a=1"),
        headers,
        pieces.rest(),
    );
    let refused = verifier.refuse_head(&request.head).is_err();
    match verifier.verify(request) {
        Ok(Verified::Event(_)) => assert_eq!(verifier.record().kind(), Kind::None, "{}", verifier.record()),
        Ok(Verified::Challenge(_)) => {}
        Err(_) => return,
    }
    assert!(!refused, "{}: the head was refused", verifier.record());
}

/// Any text as a template: it is refused with a reason, or what is signed by it verifies.
pub(crate) fn templates(data: &[u8]) {
    let mut pieces = Pieces(data);
    let Ok(payload) = std::str::from_utf8(pieces.line()) else {
        return;
    };
    let Ok(body) = std::str::from_utf8(pieces.rest()) else {
        return;
    };
    let payload = payload.replace('\\', "\\\\").replace('"', "\\\"");
    if payload.chars().any(char::is_control) {
        return;
    }
    let text = format!(
        "kind = \"hmac\"\nhash = \"sha256\"\nsignature = \"header:X-Sig\"\nencoding = \"hex\"\npayload = \"{payload}\"\n\
         params = [\"key\"]\n"
    );
    let mut problems = Diagnostics::new();
    let Some(record) = Record::read_text("fuzzed", &text, &mut problems) else {
        assert!(problems.has_errors(), "{text}");
        return;
    };
    let Some(verifier) = verifier(&Arc::new(record)) else {
        return;
    };
    accepts_what_it_signs(&verifier, body.as_bytes());
}

/// Any bytes as a form: what is signed verifies, and one field more does not.
pub(crate) fn forms(data: &[u8]) {
    let verifier = VERIFIERS.iter().find(|verifier| verifier.record().name() == "twilio");
    let Some(signed) = verifier.and_then(|verifier| accepts_what_it_signs(verifier, data)) else {
        return;
    };
    let Some(verifier) = verifier else { return };
    let mut more = signed.clone();
    more.body = [data, b"&more-than-was-signed=1"].concat().into();
    assert!(verifier.verify(more).is_err(), "a field more is accepted");
}

/// Any body, query and header of a hand-shake: the answer is short, is of the type that it says, and is nothing that a
/// browser would run.
pub(crate) fn challenges(data: &[u8]) {
    let mut pieces = Pieces(data);
    let number = usize::from(pieces.byte()) + usize::from(pieces.byte()) * 256;
    let mut shaken = VERIFIERS
        .iter()
        .filter(|verifier| verifier.record().challenges().next().is_some());
    let count = shaken.clone().count();
    let Some(verifier) = (count > 0).then(|| shaken.nth(number % count)).flatten() else {
        return;
    };
    let method = if pieces.byte() % 2 == 0 {
        Method::GET
    } else {
        Method::POST
    };
    let query = String::from_utf8_lossy(pieces.line()).into_owned();
    let Ok(target) = format!("/in?{query}").parse::<PathAndQuery>() else {
        return;
    };
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    for name in verifier.record().headers() {
        let line = pieces.line();
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(line))
            && !line.is_empty()
        {
            headers.append(name, value);
        }
    }
    let body = pieces.rest();
    let plain = request(method.clone(), target.clone(), headers.clone(), body);
    let mut requests = vec![plain];
    if let Some(signed) = sign(verifier, &requests[0]) {
        requests.push(signed);
    }
    for request in requests {
        if let Some(Ok(handed)) = verifier.handed_over(&request) {
            let secret = handed.secret.expose();
            assert!((16..=256).contains(&secret.len()), "{} bytes", secret.len());
            assert!(secret.iter().all(u8::is_ascii_graphic), "it cannot be pasted");
            assert_eq!(handed.answer.headers["x-content-type-options"], "nosniff");
        }
        if let Ok(Verified::Challenge(answer)) = verifier.verify(request) {
            assert!(answer.body.len() <= MAX_CHALLENGE_ANSWER, "{} bytes", answer.body.len());
            if answer.body.is_empty() {
                continue;
            }
            assert_eq!(answer.headers["x-content-type-options"], "nosniff");
            let content_type = answer.headers["content-type"].as_bytes();
            if content_type.starts_with(b"application/json") {
                serde_json::from_slice::<serde_json::Value>(&answer.body).expect("JSON");
            }
        }
    }
}

fn sign(verifier: &Verifier, request: &RawRequest) -> Option<RawRequest> {
    let mut signed = request.clone();
    let head = &request.head;
    let input = SignInput {
        method: &head.method,
        target: &head.target,
        authority: head.authority.as_deref(),
        headers: &head.headers,
        body: &request.body,
        now: head.received_at,
        secret_index: None,
    };
    for (name, value) in verifier.sign(&input).ok()? {
        signed.head.headers.insert(name, value);
    }
    Some(signed)
}

/// The signed request, if the scheme can sign this one.
fn accepts_what_it_signs(verifier: &Verifier, body: &[u8]) -> Option<RawRequest> {
    let target = PathAndQuery::from_static("/in?a=1");
    let mut headers = HeaderMap::new();
    let sample = Sample {
        method: &Method::POST,
        target: &target,
        id: "an-id",
        event_type: "a-type",
        now: Timestamp::from_secs(NOW),
    };
    verifier.record().add_headers(&sample, &mut headers);
    let signed = sign(verifier, &request(Method::POST, target.clone(), headers, body))?;
    let verdict = verifier.verify(signed.clone());
    assert!(matches!(verdict, Ok(Verified::Event(_))), "{verdict:?}");
    Some(signed)
}
