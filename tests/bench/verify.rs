//! What verification costs, as a ratio against one bare HMAC-SHA256 of the same body in the same run: with one secret
//! (bound for the simple schemes, whose ids stand in headers: 1.5), and with five live ones (bound: 5).
//!
//! Bare is what any receiver must do: key, body, digest, comparison. Verification is everything between a whole request
//! and a verified event: the family of headers, their grammar, the time, the signed text, every secret, and the names (id,
//! type, scope) that the event is stored under.
//!
//! With five secrets all are compared, whichever signed, so the last one's requests cost what the first one's do; what is
//! signed by none is a row of its own. Stripe and Slack name their events in the JSON body, which is read to its end: once
//! a body that is one long text, once one of many small members, which is the most work for its length.
//!
//! `--json` prints one line of JSON; `--rounds N` is the number of alternating batches of each.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::as_conversions,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark measures, prints, and stops at the first surprise"
)]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use hooksluice::request::{RawRequest, RequestHead};
use hooksluice::secret::Secret;
use hooksluice::time::Timestamp;
use hooksluice::verify::sample::Sample;
use hooksluice::verify::sign::SignInput;
use hooksluice::verify::{Reason, Rejected, SourceSecret, Verified, Verifier, VerifierOptions, presets};
use http::{HeaderMap, HeaderValue, Method};
use sha2::Sha256;

const NOW: i64 = 1_700_000_000;
const BODY: usize = 1024;
/// Few, so that they stay in the processor's cache: a request is verified right after it was read.
const BATCH: usize = 16;
/// With the bound for one secret.
const CASES: [(&str, Filler, Option<f64>); 7] = [
    ("hmac", Filler::Text, Some(1.5)),
    ("github", Filler::Text, Some(1.5)),
    ("shopify", Filler::Text, Some(1.5)),
    ("stripe", Filler::Text, None),
    ("slack", Filler::Text, None),
    ("stripe", Filler::Members, None),
    ("slack", Filler::Members, None),
];
const SECRETS: [&str; 5] = [
    "benchmark-secret-1",
    "benchmark-secret-2",
    "benchmark-secret-3",
    "benchmark-secret-4",
    "benchmark-secret-5",
];

fn verifier(name: &str, secrets: &[&str]) -> Verifier {
    let secrets = secrets.iter().map(|secret| SourceSecret::new(Secret::new(*secret)));
    Verifier::new(
        presets::find(name).unwrap(),
        secrets.collect(),
        VerifierOptions::default(),
    )
    .unwrap()
}

/// What the body is filled up with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filler {
    Text,
    Members,
}

impl Filler {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Members => "members",
        }
    }

    fn write(self, len: usize) -> String {
        const AROUND: &str = r#","filler":"""#;
        let mut members = String::new();
        if self == Self::Members {
            for n in 10.. {
                let member = format!(r#","item_{n}":{{"amount":10{n},"currency":"usd","paid":true,"note":null}}"#);
                if members.len() + member.len() + AROUND.len() > len {
                    break;
                }
                members.push_str(&member);
            }
        }
        let rest = len - members.len() - AROUND.len();
        format!(r#"{members},"filler":"{}""#, "x".repeat(rest))
    }
}

/// A signed request with a body of [`BODY`] bytes, under the last of the signer's secrets.
fn signed(signer: &Verifier, filler: Filler) -> RawRequest {
    let (method, target) = (Method::POST, "/bench".parse().unwrap());
    let sample = Sample {
        method: &method,
        target: &target,
        id: "evt_1NG8Du2eZvKYlo2CUI79vXWy",
        event_type: "payment_intent.succeeded",
        now: Timestamp::from_secs(NOW),
    };
    let mut headers = HeaderMap::new();
    signer.record().add_headers(&sample, &mut headers);
    for (name, value) in [
        ("host", "hooks.example.com"),
        ("user-agent", "bench"),
        ("accept", "*/*"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let start = String::from_utf8(signer.record().sample_body(&sample, &headers)).unwrap();
    let start = start.strip_suffix('}').unwrap();
    let body = format!("{start}{}}}", filler.write(BODY - start.len() - 1));
    let now = sample.now;
    let input = SignInput {
        method: &method,
        target: &target,
        authority: None,
        headers: &headers,
        body: body.as_bytes(),
        now,
        secret_index: Some(signer.secrets().len() - 1),
    };
    for (name, value) in signer.sign(&input).unwrap() {
        headers.insert(name, value);
    }
    RawRequest {
        head: RequestHead {
            method: method.clone(),
            target: target.clone(),
            authority: None,
            headers,
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            received_at: now,
        },
        body: Bytes::from(body),
    }
}

/// Nanoseconds for one of a batch.
fn timed<T>(batch: Vec<T>, mut work: impl FnMut(T)) -> f64 {
    let count = batch.len() as f64;
    let start = Instant::now();
    for item in batch {
        work(item);
    }
    start.elapsed().as_nanos() as f64 / count
}

fn bare(body: &Bytes) -> f64 {
    let right = {
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRETS[0].as_bytes()).unwrap();
        mac.update(body);
        mac.finalize().into_bytes()
    };
    timed(vec![body; BATCH], |body| {
        let mut mac = Hmac::<Sha256>::new_from_slice(black_box(SECRETS[0].as_bytes())).unwrap();
        mac.update(black_box(body));
        assert!(mac.verify_slice(&right).is_ok());
    })
}

fn ours(verifier: &Verifier, request: &RawRequest, is_forged: bool) -> f64 {
    // A request is verified once and moved on; copies of it are made before the clock runs.
    let batch: Vec<RawRequest> = (0..BATCH).map(|_| request.clone()).collect();
    let mut done = Vec::with_capacity(BATCH);
    let time = timed(batch, |request| done.push(verifier.verify(black_box(request))));
    let is_right = |verdict: &Result<_, Rejected>| match verdict {
        Ok(Verified::Event(_)) => !is_forged,
        Ok(Verified::Challenge(_)) => false,
        Err(rejected) => is_forged && rejected.rejection.reason == Reason::WrongSignature,
    };
    assert!(done.iter().all(is_right));
    time
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let rounds = arguments.iter().position(|argument| argument == "--rounds");
    let rounds = rounds
        .and_then(|at| arguments.get(at + 1)?.parse().ok())
        .unwrap_or(5000);
    let mut rows = Vec::new();
    for secrets in [1, 5] {
        for (name, filler, bound) in CASES {
            let bound = if secrets == 1 { bound } else { Some(5.0) };
            let verifier = verifier(name, &SECRETS[..secrets]);
            for is_forged in [false, true] {
                let request = match is_forged {
                    false => signed(&verifier, filler),
                    true => signed(&self::verifier(name, &["another"]), filler),
                };
                assert_eq!(request.body.len(), BODY);
                let (mut times, mut ratios) = (Vec::new(), Vec::new());
                for _ in 0..rounds {
                    let (bare, ours) = (bare(&request.body), ours(&verifier, &request, is_forged));
                    times.push(ours);
                    ratios.push(ours / bare);
                }
                rows.push(Row {
                    case: (name, filler, secrets),
                    is_forged,
                    time: median(times),
                    ratio: median(ratios),
                    bound,
                });
            }
        }
    }
    if arguments.iter().any(|argument| argument == "--json") {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        println!("{}", serde_json::json!({ "verify": rows }));
        return;
    }
    println!("Verification of {BODY} bytes against one bare HMAC-SHA256 of them (medians of {rounds} rounds)\n");
    println!(
        "{:<8} {:<8} {:>7}  {:<7} {:>10} {:>7} {:>7}",
        "preset", "body", "secrets", "signed", "time", "ratio", "bound"
    );
    for row in &rows {
        let Row {
            case: (name, filler, secrets),
            time,
            ratio,
            ..
        } = row;
        let bound = row.bound.map_or_else(|| "-".to_owned(), |bound| format!("{bound:.1}"));
        let (body, by) = (filler.as_str(), row.signed_by());
        println!("{name:<8} {body:<8} {secrets:>7}  {by:<7} {time:>7.0} ns {ratio:>7.2} {bound:>7}");
    }
}

struct Row {
    case: (&'static str, Filler, usize),
    is_forged: bool,
    time: f64,
    ratio: f64,
    bound: Option<f64>,
}

impl Row {
    const fn signed_by(&self) -> &'static str {
        if self.is_forged { "by none" } else { "by last" }
    }

    fn json(&self) -> serde_json::Value {
        let (preset, filler, secrets) = self.case;
        serde_json::json!({
            "preset": preset,
            "body": filler.as_str(),
            "secrets": secrets,
            "signed": self.signed_by(),
            "nanoseconds": self.time,
            "ratio": self.ratio,
            "bound": self.bound,
        })
    }
}
