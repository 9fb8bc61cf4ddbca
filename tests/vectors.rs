//! Every vector under `tests/vectors/`, judged by the function behind `hooksluice verify --jsonl`.

use std::fs;
use std::path::Path;

use hooksluice::cli::verify::judge_line;
use hooksluice::time::{Clock, Timestamp};

#[test]
fn every_vector_gets_its_verdict_id_and_type() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    // A line without a time would be judged by this clock and fail loudly.
    let clock = Clock::manual(Timestamp::from_secs(0));
    let (mut total, mut failures) = (0, Vec::new());
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // `make/` has what makes those of our own.
        if path.is_dir() {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for (index, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            total += 1;
            let vector: serde_json::Value = serde_json::from_str(line).unwrap();
            let found = judge_line(line.as_bytes(), &clock);
            let found = serde_json::to_value(&found).unwrap();
            let mut same = found["verdict"] == vector["expect"];
            if vector["expect"] == "accept" {
                same &= found["delivery_id"] == vector["expect_id"];
                same &= found["event_type"] == vector["expect_type"];
            }
            if let Some(expected) = vector["expect_response"].as_object() {
                same &= expected.iter().all(|(key, value)| found["response"][key] == *value);
            }
            if !same {
                failures.push(format!("{name}:{}: {} gave {found}", index + 1, vector["note"]));
            }
        }
    }
    assert!(total >= 1650, "only {total} vectors were found");
    assert!(
        failures.is_empty(),
        "{} of {total} failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}
