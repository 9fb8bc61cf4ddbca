//! Who may know whom. The rooms of the house are the top-level modules of `src/`; a path `crate::room` in code (tests
//! left out) is knowledge, wherever it stands.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::string_slice,
    reason = "a test stops at the first surprise"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Values without behaviour towards the world; every room may know them.
const BASE: [&str; 10] = [
    "diagnostic",
    "finding",
    "headers",
    "id",
    "measure",
    "pace",
    "reader",
    "request",
    "secret",
    "time",
];

/// What a room may know besides [`BASE`]. `app` and `cli` may know everything.
const ROOMS: [(&str, &[&str]); 14] = [
    ("reload", &[]),
    ("learn", &["reload", "verify"]),
    ("verify", &[]),
    ("key", &["verify"]),
    ("store", &["key", "verify"]),
    // The data path's counters are named by what they count.
    ("telemetry", &["store", "verify"]),
    ("dedupe", &["key", "store", "telemetry"]),
    ("net", &["telemetry"]),
    ("forward", &["key", "net", "store", "telemetry", "verify"]),
    (
        "ingest",
        &[
            "dedupe",
            "forward",
            "key",
            "learn",
            "net",
            "store",
            "telemetry",
            "verify",
        ],
    ),
    ("routes", &["dedupe", "ingest", "net", "store", "telemetry"]),
    ("public", &["ingest", "net", "routes", "telemetry"]),
    ("admin", &["forward", "ingest", "learn", "reload", "store", "telemetry"]),
    // Any component's settings; no component knows the configuration.
    (
        "config",
        &[
            "admin",
            "dedupe",
            "forward",
            "ingest",
            "key",
            "net",
            "routes",
            "store",
            "telemetry",
            "verify",
        ],
    ),
];

/// Files that decide and do nothing: no runtime, no dice, no clock, no file, no socket.
const PURE: [&str; 41] = [
    "verify.rs",
    "verify/",
    "key.rs",
    "learn/state.rs",
    "dedupe/protocol.rs",
    "dedupe/redis/address.rs",
    "dedupe/redis/breaker.rs",
    "dedupe/redis/contact.rs",
    "store/model.rs",
    "store/codec.rs",
    "store/secrets.rs",
    "telemetry/metrics/patience.rs",
    "telemetry/metrics/secret.rs",
    "pace.rs",
    "net/egress.rs",
    "forward/lane.rs",
    "forward/orders.rs",
    "forward/breaker.rs",
    "forward/backoff.rs",
    "forward/outcome.rs",
    "routes/idempotency/answer.rs",
    "routes/idempotency/canonical.rs",
    "routes/idempotency/fingerprint.rs",
    "routes/idempotency/finished.rs",
    "routes/idempotency/key.rs",
    "routes/idempotency/outcome.rs",
    "routes/idempotency/problem.rs",
    "routes/idempotency/scope.rs",
    "routes/idempotency/settings.rs",
    "config/file/idempotency.rs",
    "routes/message.rs",
    "routes/problem.rs",
    "routes/shadow.rs",
    "routes/table.rs",
    "config/file.rs",
    "config/reference.rs",
    "config/reference/",
    "config/build.rs",
    "config/reload.rs",
    "diagnostic.rs",
    "finding.rs",
];

/// Words that no pure file contains.
const IMPURE: [&str; 10] = [
    "tokio",
    "rand::",
    "std::fs",
    "std::process",
    "std::thread",
    "std::env",
    "TcpStream",
    "UdpSocket",
    "time::Clock",
    "Instant",
];

/// Every source file: its path below `src/`, and its code without comments and tests.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    let mut waiting = vec![root.clone()];
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test(&path) {
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            files.push((name, code(&fs::read_to_string(&path).unwrap())));
        }
    }
    assert!(files.len() > 30, "where are the sources?");
    files
}

/// A module of tests in a file of its own.
fn is_test(path: &Path) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let below = path.strip_prefix(&root).unwrap();
    below.components().any(|part| {
        let part = part.as_os_str().to_str().unwrap();
        part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs")
    })
}

/// Unit tests stand at the end of a file; comments are no knowledge.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The top-level module that a file belongs to.
fn room(file: &str) -> &str {
    file.split('/').next().unwrap().trim_end_matches(".rs")
}

/// The rooms that a file names.
fn known(code: &str) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    let mut add = |rest: &str| {
        let word: String = rest
            .chars()
            .take_while(|c| c.is_ascii_lowercase() || *c == '_')
            .collect();
        known.insert(word);
    };
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(list) => list
                .split('}')
                .next()
                .unwrap()
                .split(',')
                .for_each(|item| add(item.trim())),
            None => add(rest),
        }
    }
    known
}

#[test]
fn rooms_know_only_the_rooms_below_them() {
    let allowed: BTreeMap<&str, &[&str]> = ROOMS.into_iter().collect();
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        let room = room(&file);
        if ["app", "cli", "lib", "main"].contains(&room) {
            continue;
        }
        let may = allowed.get(room).copied();
        if may.is_none() && !BASE.contains(&room) {
            wrong.push(format!(
                "{file}: `{room}` is a new room; say in tests/architecture.rs what it may know"
            ));
        }
        let may = may.unwrap_or_default();
        for other in known(&code) {
            let fine = other == room || BASE.contains(&other.as_str()) || may.contains(&other.as_str());
            // A macro of the crate's root, or a constant.
            if !fine && !other.is_empty() {
                wrong.push(format!("{file} knows `{other}`"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_rooms_are_acyclic() {
    let mut below: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (room, may) in ROOMS {
        below.insert(room, may.iter().copied().collect());
    }
    let mut done: BTreeSet<&str> = BASE.into_iter().collect();
    while let Some(room) = below
        .iter()
        .find(|(_, may)| may.is_subset(&done))
        .map(|(room, _)| *room)
    {
        below.remove(room);
        done.insert(room);
    }
    assert!(below.is_empty(), "these know each other: {:?}", below.keys());
}

#[test]
fn files_that_decide_touch_nothing() {
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        let pure = PURE
            .iter()
            .any(|pure| file == *pure || (pure.ends_with('/') && file.starts_with(pure)));
        if pure {
            wrong.extend(
                IMPURE
                    .iter()
                    .filter(|word| code.contains(*word))
                    .map(|word| format!("{file} says {word}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn only_the_store_knows_a_database() {
    for (file, code) in sources() {
        assert!(
            file.starts_with("store") || !code.contains("rusqlite"),
            "{file} knows the database"
        );
    }
}

#[test]
fn only_one_file_reads_the_machine_s_clocks() {
    for (file, code) in sources() {
        let reads = ["SystemTime::now", "Instant::now"]
            .iter()
            .any(|word| code.contains(word));
        assert!(file == "time.rs" || !reads, "{file} reads a clock");
    }
}

#[test]
fn nothing_waits_in_an_unbounded_channel() {
    for (file, code) in sources() {
        for word in ["unbounded_channel", "mpsc::channel()"] {
            assert!(!code.contains(word), "{file}: {word}");
        }
    }
}
