//! `hooksluice demo` comes out right, and is readable.

use std::process::Command;

use crate::harness::server::program;

#[test]
fn the_demo_comes_out_right() {
    let output = program().arg("demo").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let complained = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}\n{complained}");
    for part in [
        "normal",
        "repeated",
        "tampered",
        "killed",
        "down, then up",
        "down for good",
        "Idempotency-Key",
        "401",
        "All of it",
    ] {
        assert!(said.contains(part), "{part:?} is missing:\n{said}");
    }
    assert!(!said.contains("WRONG"), "{said}");
    assert!(!said.contains("demo-secret"), "the secret is shown:\n{said}");
}

/// Scenes of the demo in which the sender is told 200.
const ACKNOWLEDGED: usize = 5;

// P1
#[test]
fn the_demo_s_acknowledged_scenes_are_synced_to_disk() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let trace = directory.path().join("trace");
    let demo = program();
    let output = Command::new("strace")
        .args(["-f", "-y", "-e", "trace=fdatasync,fsync", "-o"])
        .arg(&trace)
        .arg(demo.get_program())
        .arg("demo")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let trace = std::fs::read_to_string(trace).unwrap();
    let syncs = trace
        .lines()
        .filter(|line| line.contains("sync(") && line.contains("-wal"))
        .count();
    assert!(syncs >= ACKNOWLEDGED, "{syncs} syncs:\n{trace}");
}
