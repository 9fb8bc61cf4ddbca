//! `hooksluice init` as a person and as a script run it.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::harness::server::program;

fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn init(directory: &TempDir, line: &[&str]) -> (Option<i32>, String, String) {
    let output = program()
        .current_dir(directory)
        .arg("init")
        .args(line)
        .output()
        .unwrap();
    said(output)
}

fn said(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

const STRIPE: [&str; 4] = ["--provider", "stripe", "--upstream", "http://127.0.0.1:3000"];

#[test]
fn what_is_written_passes_and_the_last_lines_say_what_to_do() {
    let directory = directory();
    let (code, out, complained) = init(&directory, &STRIPE);
    assert_eq!((code, complained.as_str()), (Some(0), ""), "{out}");
    let checked = program()
        .current_dir(&directory)
        .args(["check", "--without-secrets"])
        .output()
        .unwrap();
    assert_eq!(said(checked).0, Some(0));
    for part in [
        "wrote hooksluice.toml",
        "export STRIPE_WEBHOOK_SECRET=",
        "hooksluice check",
        "hooksluice serve",
        "https://YOUR-HOST/webhooks/stripe",
        "hooksluice send --source stripe http://127.0.0.1:8080/webhooks/stripe",
    ] {
        assert!(out.contains(part), "{part:?} is missing in\n{out}");
    }
}

#[test]
fn a_file_that_is_there_is_left_alone_unless_forced() {
    let directory = directory();
    let file = directory.path().join("hooksluice.toml");
    fs::write(&file, "mine").unwrap();
    let (code, _, complained) = init(&directory, &STRIPE);
    assert_eq!(code, Some(1));
    assert!(
        complained.contains("--force") && complained.contains("left alone"),
        "{complained}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(init(&directory, &[&STRIPE[..], &["--force"]].concat()).0, Some(0));
    assert!(fs::read_to_string(&file).unwrap().contains("[sources.stripe]"));
}

#[test]
fn standard_output_gets_the_file_and_nothing_else() {
    let directory = directory();
    let (code, out, next) = init(&directory, &[&STRIPE[..], &["--output", "-"]].concat());
    assert_eq!(code, Some(0));
    assert!(
        out.starts_with("# ") && out.ends_with("upstreams = [\"app\"]\n"),
        "{out}"
    );
    assert!(next.contains("hooksluice serve"), "{next}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_script_that_says_too_little_is_told_what_is_missing() {
    let directory = directory();
    let (code, out, complained) = init(&directory, &["--provider", "twilio"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(
        complained.contains("--upstream") && complained.contains("--public-url"),
        "{complained}"
    );
    let (code, _, complained) = init(&directory, &["--provider", "stripe", "--upstream", "localhost:3000"]);
    assert_eq!(code, Some(2));
    assert!(complained.contains("upstreams.app.url"), "{complained}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is written");
}

#[test]
fn a_person_at_a_terminal_is_asked() {
    let directory = directory();
    // `script` gives it a terminal.
    let line = format!("{} init", env!("CARGO_BIN_EXE_hooksluice"));
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .current_dir(&directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"github\n\n\n\n\n\n").unwrap();
    let (code, out, _) = said(child.wait_with_output().unwrap());
    assert_eq!(code, Some(0), "{out}");
    assert!(
        out.contains("Who sends webhooks to you?") && out.contains("[GITHUB_WEBHOOK_SECRET]"),
        "{out}"
    );
    let text = fs::read_to_string(directory.path().join("hooksluice.toml")).unwrap();
    assert!(text.contains("[sources.github]"), "{text}");
}
