//! What verification costs, as a ratio against one bare HMAC-SHA256 of the same body in the same run: the simple schemes
//! with one secret (bound: 1.5), and with five live ones (bound: 5).
//!
//! Bare is what any receiver must do: key, body, digest, comparison. Verification is everything between a whole request
//! and a verified event: the family of headers, their grammar, the time, the signed text, every secret, and the names (id,
//! type, scope) that the event is stored under.
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
use hooksluice::verify::{SourceSecret, Verified, Verifier, VerifierOptions, presets};
use http::{HeaderMap, HeaderValue, Method};
use sha2::Sha256;

const NOW: i64 = 1_700_000_000;
const BODY: usize = 1024;
/// Few, so that they stay in the processor's cache: a request is verified right after it was read.
const BATCH: usize = 16;
const PRESETS: [&str; 5] = ["hmac", "github", "shopify", "stripe", "slack"];
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

/// A signed request with a body of [`BODY`] bytes, under the last of the verifier's secrets.
fn signed(verifier: &Verifier) -> RawRequest {
    let (method, target) = (Method::POST, "/bench".parse().unwrap());
    let sample = Sample {
        method: &method,
        target: &target,
        id: "evt_1NG8Du2eZvKYlo2CUI79vXWy",
        event_type: "payment_intent.succeeded",
        now: Timestamp::from_secs(NOW),
    };
    let mut headers = HeaderMap::new();
    verifier.record().add_headers(&sample, &mut headers);
    for (name, value) in [
        ("host", "hooks.example.com"),
        ("user-agent", "bench"),
        ("accept", "*/*"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let start = String::from_utf8(verifier.record().sample_body(&sample, &headers)).unwrap();
    let start = start.strip_suffix('}').unwrap();
    let filler = BODY - start.len() - r#","filler":""}"#.len();
    let body = format!(r#"{start},"filler":"{}"}}"#, "x".repeat(filler));
    let now = sample.now;
    let input = SignInput {
        method: &method,
        target: &target,
        authority: None,
        headers: &headers,
        body: body.as_bytes(),
        now,
        secret_index: Some(verifier.secrets().len() - 1),
    };
    for (name, value) in verifier.sign(&input).unwrap() {
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

fn ours(verifier: &Verifier, request: &RawRequest) -> f64 {
    // A request is verified once and moved on; copies of it are made before the clock runs.
    let batch: Vec<RawRequest> = (0..BATCH).map(|_| request.clone()).collect();
    let mut done = Vec::with_capacity(BATCH);
    let time = timed(batch, |request| done.push(verifier.verify(black_box(request))));
    assert!(done.iter().all(|verdict| matches!(verdict, Ok(Verified::Event(_)))));
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
    for (secrets, bound) in [(1, 1.5), (5, 5.0)] {
        for name in PRESETS {
            let verifier = verifier(name, &SECRETS[..secrets]);
            let request = signed(&verifier);
            assert_eq!(request.body.len(), BODY);
            let (mut times, mut ratios) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                let (bare, ours) = (bare(&request.body), ours(&verifier, &request));
                times.push(ours);
                ratios.push(ours / bare);
            }
            rows.push((name, secrets, median(times), median(ratios), bound));
        }
    }
    if arguments.iter().any(|argument| argument == "--json") {
        let rows = rows.iter().map(|(name, secrets, time, ratio, bound)| {
            serde_json::json!({"preset": name, "secrets": secrets, "nanoseconds": time, "ratio": ratio, "bound": bound})
        });
        println!("{}", serde_json::json!({ "verify": rows.collect::<Vec<_>>() }));
        return;
    }
    println!("Verification of {BODY} bytes against one bare HMAC-SHA256 of them (medians of {rounds} rounds)\n");
    println!(
        "{:<12} {:>7} {:>10} {:>7} {:>7}",
        "preset", "secrets", "time", "ratio", "bound"
    );
    for (name, secrets, time, ratio, bound) in rows {
        println!("{name:<12} {secrets:>7} {time:>7.0} ns {ratio:>7.2} {bound:>7.1}");
    }
}
