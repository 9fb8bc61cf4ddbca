//! Why a request was refused is told to the operator, in the log and on the admin API, and never to the sender.

use serde_json::Value;

use crate::harness::sign::{self, SECRET};
use crate::harness::{Request, Stage, eventually};

/// The last refusals of the source, once `count` of them are noted.
fn last_refusals(stage: &Stage, source: &str, count: usize) -> Vec<Value> {
    eventually(&format!("{count} refusals of {source}"), || {
        let status = stage.server.admin_get("/api/v1/status").json();
        let sources = status["sources"].as_array().unwrap().clone();
        let found = sources.iter().find(|found| found["name"] == source).unwrap();
        let refusals = found["last_refusals"].as_array().unwrap();
        (refusals.len() == count).then(|| refusals.clone())
    })
}

#[test]
fn the_cause_of_a_refusal_is_told_to_the_operator_and_not_to_the_sender() {
    let stage = Stage::new(|setup| setup.plain().source("billing", "hmac", "another-secret-0123456789", ""));
    // Sent to the wrong source: its secret is the other one's.
    let wrong = sign::plain("/hooks/billing", "d-1", b"{\"a\":1}");
    let forged = Request::post("/hooks/billing", b"{\"a\":1}")
        .header("X-Delivery-Id", "d-2")
        .header("X-Signature", format!("sha256={}", "0".repeat(64)));
    let answers = [stage.server.send(&wrong), stage.server.send(&forged)];
    for answer in &answers {
        assert_eq!((answer.status, answer.body.as_slice()), (401, b"".as_slice()));
    }
    let names = |lines: &[(String, Vec<u8>)]| lines.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&answers[0].lines), names(&answers[1].lines));

    let refusals = last_refusals(&stage, "billing", 2);
    let hints: Vec<&Value> = refusals.iter().map(|refusal| &refusal["hint"]).collect();
    let hint = "the signature holds under the secret of source `plain`";
    assert!(hints.iter().any(|found| *found == hint), "{refusals:?}");
    assert!(hints.iter().any(|found| found.is_null()), "{refusals:?}");
    for refusal in &refusals {
        assert_eq!(refusal["reason"], "wrong_signature");
        assert_eq!(refusal["client"], "127.0.0.1");
        assert!(!refusal.to_string().contains(SECRET));
    }
    stage
        .server
        .wait_for_log(&["refused", "billing", "secret of source `plain`"]);
    assert!(last_refusals(&stage, "plain", 0).is_empty());
}
