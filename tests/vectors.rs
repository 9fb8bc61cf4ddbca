//! Every vector under `tests/vectors/`, judged by the function behind `hooksluice verify --jsonl`.
//!
//! `NAME.jsonl` comes from others: the provider's SDK, its documents, or an independent reading of them.
//! `NAME.own.jsonl` and `NAME.derived.jsonl` are made by the programs in `tests/vectors/make/`; their `source` says "own
//! reading".
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use hooksluice::cli::verify::judge_line;
use hooksluice::time::{Clock, Timestamp};
use hooksluice::verify::presets;
use serde_json::Value;

/// Each vector with the file and line where it stands.
fn vectors() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for (index, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            all.push((format!("{name}:{}", index + 1), serde_json::from_str(line).unwrap()));
        }
    }
    all
}

/// Its maker does not inflate the body, and so says nothing of the type in it.
const TYPE_LEFT_OPEN: &str = "stream.jsonl:11";

#[test]
fn every_vector_gets_its_verdict_id_and_type() {
    // A line without a time would be judged by this clock and fail loudly.
    let clock = Clock::manual(Timestamp::from_secs(0));
    let mut failures = Vec::new();
    let vectors = vectors();
    for (place, vector) in &vectors {
        let found = judge_line(vector.to_string().as_bytes(), &clock);
        let found = serde_json::to_value(&found).unwrap();
        let mut same = found["verdict"] == vector["expect"];
        if vector["expect"] == "accept" {
            same &= found["delivery_id"] == vector["expect_id"];
            let left_open = place == TYPE_LEFT_OPEN && found["event_type"] == "message.new";
            same &= left_open || found["event_type"] == vector["expect_type"];
        }
        if let Some(expected) = vector["expect_response"].as_object() {
            same &= expected.iter().all(|(key, value)| found["response"][key] == *value);
        }
        if !same {
            failures.push(format!("{place}: {} gave {found}", vector["note"]));
        }
    }
    assert!(vectors.len() >= 2000, "only {} vectors were found", vectors.len());
    assert!(
        failures.is_empty(),
        "{} of {} failed:\n{}",
        failures.len(),
        vectors.len(),
        failures.join("\n")
    );
}

/// Presets that nobody has a vector for, with the reason.
const WITHOUT: &[(&str, &str)] = &[
    (
        "hmac",
        "the plain form of a scheme; its users are tested as [providers.NAME]",
    ),
    ("mollie-classic", "nothing in its requests proves where they come from"),
];

#[test]
fn every_preset_has_vectors_that_pass_and_that_fail() {
    let mut verdicts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (place, vector) in vectors() {
        let provider = vector["provider"].as_str().unwrap();
        let record = presets::find(provider).unwrap_or_else(|| panic!("{place}: no preset {provider}"));
        let counts = verdicts.entry(record.name().to_owned()).or_default();
        match vector["expect"].as_str() {
            Some("accept") => counts.0 += 1,
            Some("reject") => counts.1 += 1,
            _ => {}
        }
    }
    let lacking: Vec<&str> = presets::names()
        .into_iter()
        .filter(|name| verdicts.get(*name).is_none_or(|(good, bad)| *good == 0 || *bad == 0))
        .collect();
    let expected: Vec<&str> = WITHOUT.iter().map(|(name, _)| *name).collect();
    assert_eq!(lacking, expected);
}
