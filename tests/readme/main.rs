//! Every command and every configuration of README.md, as it is written there: shell blocks are played in order in a
//! machine of their own (own network, own processes, an empty directory), with real servers and signed requests; `text`
//! blocks are what the block before must print; configurations are judged by `check`. What cannot be played here is
//! named in [`NOT_PLAYED`] with its reason.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::string_slice,
    reason = "a test stops at the first surprise"
)]

#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test binary uses its part of it"
)]
#[path = "../harness/harness.rs"]
mod harness;

mod blocks;
mod init;
mod machine;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::LazyLock;

use blocks::{Block, Scene};
use machine::Machine;
use tempfile::TempDir;

/// Read when the test runs, so that a change of the text needs no build.
static README: LazyLock<String> =
    LazyLock::new(|| fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap());

/// Blocks that are not played, by their first line, and why.
const NOT_PLAYED: &[(&str, &str)] = &[
    (
        "cargo run --release -- demo    # the whole story in one terminal, on the embedded store",
        "a release build; tests/it/demo.rs plays the demo, and tests/run is what runs this test",
    ),
    (
        "cargo install --path .         # or: cargo build --release, which makes target/release/hooksluice",
        "a release build; everything below it is played with the program that was built",
    ),
    (
        "hooksluice idempotency list --state ambiguous        # each with its record: ROUTE/DIGEST, given whole below",
        "needs calls of which nobody knows; tests/idempotency/admin.rs makes them and resolves them",
    ),
    (
        "import { createServer } from \"node:http\";",
        "needs an npm package; tests/sdk/signing.mjs runs it behind hooksluice",
    ),
    (
        "import os",
        "needs a PyPI package; tests/sdk/signing.mjs runs it behind hooksluice",
    ),
];

fn reason(block: &Block) -> Option<&'static str> {
    let line = block.text.lines().next().unwrap_or_default();
    NOT_PLAYED
        .iter()
        .find(|(first, _)| *first == line)
        .map(|(_, reason)| *reason)
}

#[test]
fn every_block_is_played_judged_or_excused() {
    let scenes = blocks::scenes(&README);
    let mut unknown = Vec::new();
    let mut excused = 0;
    for block in scenes.iter().flat_map(|scene| &scene.blocks) {
        let word = block.info.split(' ').next().unwrap_or_default();
        let known = matches!(word, "sh" | "toml" | "python" | "text");
        match reason(block) {
            Some(_) => excused += 1,
            None if known => {}
            None => unknown.push(format!("README.md:{}: a block of `{}`", block.line, block.info)),
        }
    }
    assert!(
        unknown.is_empty(),
        "nothing judges {unknown:#?}: see tests/readme/main.rs"
    );
    assert_eq!(
        excused,
        NOT_PLAYED.len(),
        "a block that is excused is not there any more"
    );
}

/// What a scene needs that its own blocks do not make, by its title.
const GROUNDS: &[(&str, &str)] = &[
    ("Operating it: Pausing an upstream", RUNNING),
    ("Operating it: Backup and restore", RUNNING),
    ("Operating it: Reload and rotation", RUNNING_FILE),
];

/// A server with one source.
const RUNNING: &str = "export SECRET=0123456789abcdef0123456789abcdef\n\
                       hooksluice serve --provider github --secret-env SECRET --upstream http://127.0.0.1:3000\n";

/// The same from a file.
const RUNNING_FILE: &str = "export SECRET=0123456789abcdef0123456789abcdef\n\
                            hooksluice init --provider github --secret-env SECRET --upstream http://127.0.0.1:3000\n\
                            hooksluice serve\n";

#[test]
fn every_command_of_the_readme_does_what_it_says() {
    for scene in blocks::scenes(&README) {
        if scene
            .blocks
            .iter()
            .any(|block| block.is("sh") && reason(block).is_none())
        {
            play(&scene);
        }
    }
}

fn play(scene: &Scene) {
    let mut machine = Machine::start(&scene.title);
    if let Some((_, ground)) = GROUNDS.iter().find(|(title, _)| *title == scene.title) {
        machine.run(ground, 0);
    }
    for block in &scene.blocks {
        if reason(block).is_some() {
            continue;
        }
        match block.info.split(' ').next().unwrap_or_default() {
            "sh" => machine.run(&block.text, block.line),
            "text" => machine.expect(block),
            _ => {
                if let Some(name) = block.file_name() {
                    fs::write(machine.directory().join(name), &block.text).unwrap();
                }
            }
        }
    }
}

/// What cannot be played still has to be a command of this program, with options that it knows.
#[test]
fn commands_that_are_not_played_exist() {
    let scenes = blocks::scenes(&README);
    let excused = scenes
        .iter()
        .flat_map(|scene| &scene.blocks)
        .filter(|block| reason(block).is_some());
    for block in excused {
        let commands = machine::commands(&block.text);
        let set = commands
            .iter()
            .filter_map(|line| line.split_once('=').filter(|(name, _)| !name.contains(' ')));
        let set: Vec<(&str, &str)> = set.collect();
        for line in commands.iter().filter_map(|line| line.strip_prefix("hooksluice ")) {
            let mut words = line.split("  #").next().unwrap().replace('\'', "");
            for (name, value) in &set {
                words = words.replace(&format!("${name}"), value);
            }
            let output = harness::server::program()
                .args(words.split_whitespace())
                .arg("--help")
                .output()
                .unwrap();
            assert!(output.status.success(), "README.md:{}: {line}: {output:?}", block.line);
        }
    }
}

/// A part of a file gets what it leaves out; the rest is judged as it stands.
#[test]
fn every_configuration_of_the_readme_passes_its_check() {
    let certificates = Certificates::make();
    let mut judged = 0;
    for block in blocks::scenes(&README).iter().flat_map(|scene| &scene.blocks) {
        if !block.is("toml") || reason(block).is_some() {
            continue;
        }
        judged += 1;
        let said = check(&certificates, &whole(&block.text));
        assert!(said.is_ok(), "README.md:{}:\n{}", block.line, said.unwrap_err());
    }
    assert!(judged > 3, "{judged}");
}

/// The files that configurations name below this directory.
const CERTIFICATES: &str = "/etc/hooksluice/";

struct Certificates {
    directory: TempDir,
}

impl Certificates {
    /// One certificate stands for all, and its key.
    fn make() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let names = ["hooks.example.com", "app.internal", "billing.internal"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        for name in ["fullchain.pem", "clients.pem", "client.pem", "ca.pem", "tls.crt"] {
            fs::write(directory.path().join(name), made.cert.pem()).unwrap();
        }
        for name in ["privkey.pem", "client.key", "tls.key"] {
            let path = directory.path().join(name);
            fs::write(&path, made.signing_key.serialize_pem()).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        Self { directory }
    }
}

fn whole(text: &str) -> String {
    let mut out = text.to_owned();
    if !text.contains("[upstreams.") {
        out.push_str("\n[upstreams.app]\nurl = \"http://127.0.0.1:3000\"\n");
    }
    if !text.contains("[sources.") {
        out.push_str(
            "\n[sources.github]\npath = \"/webhooks/github\"\nprovider = \"github\"\nsecret = { env = \"S\" }\nupstreams = [\"app\"]\n",
        );
    }
    out
}

/// `check --without-secrets`, without a warning either.
fn check(certificates: &Certificates, text: &str) -> Result<(), String> {
    let own = format!("{}/", certificates.directory.path().display());
    let text = &text.replace(CERTIFICATES, &own);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("hooksluice.toml");
    fs::write(&path, text).unwrap();
    let output = harness::server::program()
        .args(["check", "--without-secrets", "-c"])
        .arg(&path)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    match output.status.success() && !said.contains("warning") {
        true => Ok(()),
        false => Err(format!("{said}\n{text}")),
    }
}

/// Files of the repository that the README points to are there.
#[test]
fn every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let headings: Vec<String> = README
        .lines()
        .filter_map(|line| {
            line.trim_start_matches('#')
                .strip_prefix(' ')
                .filter(|_| line.starts_with('#'))
        })
        .map(anchor)
        .collect();
    let mut broken = Vec::new();
    for (at, _) in README.match_indices("](") {
        let target = README[at + 2..].split(')').next().unwrap();
        let fine = match target.strip_prefix('#') {
            Some(heading) => headings.iter().any(|known| known == heading),
            None => target.starts_with("https://") || root.join(target.split('#').next().unwrap()).exists(),
        };
        if !fine {
            broken.push(target);
        }
    }
    assert!(broken.is_empty(), "{broken:?}");
}

/// As GitHub makes it from a heading.
fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}
