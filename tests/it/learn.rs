//! Secrets that arrive in band: taken once, when a person has said so, and never answered before they are kept.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::sign::{hex, sha256};
use crate::harness::{Request, Response, Server, Setup, Upstream};

const SECRET: &str = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81";
const OTHER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const TOKEN: &str = "secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl";
/// Each start without a secret says so.
const NONE_YET: &str = "has no secret yet";

/// A source that learns its secret into a directory of its own, and what of it must never be shown.
fn learning(upstream: &Upstream, provider: &str) -> Setup {
    let setup = Setup::new(upstream);
    fs::create_dir(directory(&setup)).unwrap();
    let mut setup = with_directory(setup, provider);
    for secret in [SECRET, OTHER, TOKEN] {
        setup.environment_variable(secret);
    }
    setup.allow_log(NONE_YET)
}

fn with_directory(setup: Setup, provider: &str) -> Setup {
    let directory = directory(&setup);
    setup.table_after(&format!(
        "[sources.own]\npath = \"/hooks/own\"\nprovider = \"{provider}\"\nupstreams = [\"app\"]\nlearn = \"once\"\n\
         secrets = [{{ directory = \"{}\" }}]",
        directory.display()
    ))
}

fn directory(setup: &Setup) -> PathBuf {
    setup.directory().join("secrets")
}

fn kept(setup: &Setup) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory(setup))
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    files
}

fn hooksluice(server: &Server, arguments: &[&str]) -> Output {
    let mut command: Command = crate::harness::server::program();
    command
        .args(arguments)
        .args(["--admin", &format!("http://{}", server.admin())]);
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8([output.stdout.clone(), output.stderr.clone()].concat()).unwrap()
}

/// `hooksluice sources learn own …` did it.
#[track_caller]
fn arm(server: &Server, arguments: &[&str]) -> String {
    let output = hooksluice(server, &[&["sources", "learn", "own"], arguments].concat());
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    said
}

#[track_caller]
fn not_armed(server: &Server, arguments: &[&str], part: &str) {
    let output = hooksluice(server, &[&["sources", "learn"], arguments].concat());
    let said = said(&output);
    assert!(!output.status.success() && said.contains(part), "{said}");
}

fn sources(server: &Server) -> String {
    said(&hooksluice(server, &["sources"]))
}

fn offer(server: &Server, secret: &str) -> Response {
    server.send(&Request::post("/hooks/own", "{}").header("X-Hook-Secret", secret))
}

fn event(server: &Server, secret: &str, body: &str) -> u16 {
    let mac = hex(&sha256(secret.as_bytes(), &[body.as_bytes()]));
    server
        .send(&Request::post("/hooks/own", body).header("X-Hook-Signature", mac))
        .status
}

#[track_caller]
fn taken(response: &Response, secret: &str) {
    let answer = (response.status, response.header("X-Hook-Secret"), response.text());
    assert_eq!(answer, (200, Some(secret), String::new()));
}

#[track_caller]
fn refused(response: &Response, status: u16) {
    let answer = (response.status, response.header("X-Hook-Secret"), response.text());
    assert_eq!(answer, (status, None, String::new()));
}

/// Nowhere that people or programs look.
#[track_caller]
fn is_nowhere(server: &Server, secret: &str) {
    let targets = ["/metrics", "/api/v1/status", "/api/v1/events"];
    let mut shown: Vec<String> = targets.iter().map(|target| server.admin_get(target).text()).collect();
    shown.extend([sources(server), server.log_text()]);
    assert!(shown.iter().all(|text| !text.contains(secret)), "{shown:?}");
}

#[test]
fn a_secret_is_taken_once_and_vouches_at_once() {
    for provider in ["asana", "clio"] {
        let upstream = Upstream::start();
        let setup = learning(&upstream, provider);
        let server = setup.start();
        assert!(sources(&server).contains("has no secret yet: hooksluice sources learn own"));

        refused(&offer(&server, SECRET), 401);
        server.wait_for_log(&["refused", "hooksluice sources learn own"]);
        assert_eq!(event(&server, SECRET, "{}"), 401);
        server.wait_for_log(&["refused", "the source has no secret yet"]);

        let said = arm(&server, &[]);
        assert!(
            said.contains("armed until") && said.contains(&*directory(&setup).to_string_lossy()),
            "{said}"
        );
        assert!(sources(&server).contains("armed until"));
        taken(&offer(&server, SECRET), SECRET);
        assert_eq!(event(&server, SECRET, r#"{"n":1}"#), 200, "in the same moment");
        upstream.wait_for(1);

        let [file] = &*kept(&setup) else {
            panic!("{:?}", kept(&setup))
        };
        assert_eq!(fs::read_to_string(file).unwrap(), format!("{SECRET}\n"));
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        let label = file.file_name().unwrap().to_string_lossy().into_owned();
        assert!(
            label.starts_with("learned-") && sources(&server).contains(&label),
            "{}",
            sources(&server)
        );

        refused(&offer(&server, OTHER), 401);
        server.wait_for_log(&["refused", "sealed"]);
        assert_eq!(event(&server, OTHER, "{}"), 401);
        taken(&offer(&server, SECRET), SECRET);
        not_armed(&server, &["own"], "--add");
        is_nowhere(&server, SECRET);
        is_nowhere(&server, OTHER);
        assert_eq!(
            server.metric("hooksluice_requests_total", &["outcome=\"challenge\""]),
            2.0
        );
    }
}

/// Each webhook of Asana has a secret of its own.
#[test]
fn a_further_webhook_s_secret_is_taken_beside_the_first() {
    let upstream = Upstream::start();
    let setup = learning(&upstream, "asana");
    let server = setup.start();
    arm(&server, &[]);
    taken(&offer(&server, SECRET), SECRET);
    arm(&server, &["--add"]);
    taken(&offer(&server, OTHER), OTHER);
    for (secret, body) in [(SECRET, r#"{"n":1}"#), (OTHER, r#"{"n":2}"#)] {
        assert_eq!(event(&server, secret, body), 200);
    }
    assert_eq!(kept(&setup).len(), 2);
    refused(&offer(&server, "a-third-one-0123456789"), 401);
    // Moved away, the first is nobody's any more, and with none left the source may be armed as it was at first.
    let files = kept(&setup);
    files
        .iter()
        .for_each(|file| fs::rename(file, setup.directory().join("old")).unwrap());
    assert!(hooksluice(&server, &["reload"]).status.success());
    assert_eq!(event(&server, SECRET, "{}"), 401);
    arm(&server, &[]);
    taken(&offer(&server, SECRET), SECRET);
}

#[test]
fn the_token_of_notion_is_kept_for_a_person_to_paste() {
    let upstream = Upstream::start();
    let setup = learning(&upstream, "notion");
    let server = setup.start();
    let handshake = || Request::post("/hooks/own", format!(r#"{{"verification_token":"{TOKEN}"}}"#));
    refused(&server.send(&handshake()), 401);
    server.wait_for_log(&["refused", "if this hands one over", "hooksluice sources learn own"]);
    arm(&server, &[]);
    // What is no hand-shake uses nothing up.
    refused(
        &server.send(&Request::post("/hooks/own", r#"{"type":"page.created"}"#)),
        401,
    );
    let answer = server.send(&handshake());
    assert_eq!((answer.status, answer.text().as_str()), (200, ""));
    assert_eq!(fs::read_to_string(&kept(&setup)[0]).unwrap().trim_end(), TOKEN);
    let body = r#"{"id":"1","type":"page.created"}"#;
    let mac = hex(&sha256(TOKEN.as_bytes(), &[body.as_bytes()]));
    let signed = Request::post("/hooks/own", body).header("X-Notion-Signature", format!("sha256={mac}"));
    assert_eq!(server.send(&signed).status, 200);
    upstream.wait_for(1);
    is_nowhere(&server, TOKEN);
}

#[test]
fn what_was_answered_is_kept_whatever_happens_next() {
    let upstream = Upstream::start();
    let setup = learning(&upstream, "asana");
    let mut server = setup.start();
    arm(&server, &[]);
    taken(&offer(&server, SECRET), SECRET);
    server.kill();
    drop(server);
    let server = setup.start();
    assert_eq!(event(&server, SECRET, "{}"), 200);
    refused(&offer(&server, OTHER), 401);
    not_armed(&server, &["own"], "sealed");
}

#[test]
fn a_restart_disarms() {
    let upstream = Upstream::start();
    let setup = learning(&upstream, "asana");
    let server = setup.start();
    arm(&server, &[]);
    server.stop();
    let server = setup.start();
    refused(&offer(&server, SECRET), 401);
    assert!(kept(&setup).is_empty());
}

#[test]
fn a_reload_leaves_it_armed() {
    let upstream = Upstream::start();
    let setup = learning(&upstream, "asana").tables("[server]\nwatch = false");
    let server = setup.start();
    arm(&server, &[]);
    let mut text = setup.text();
    text.push_str("\n[routes.rest]\npath = \"/{*rest}\"\nupstream = \"app\"\n");
    fs::write(setup.write_config(), text).unwrap();
    let reload = hooksluice(&server, &["reload"]);
    assert!(said(&reload).contains("route `rest` added"), "{}", said(&reload));
    taken(&offer(&server, SECRET), SECRET);
    assert_eq!(event(&server, SECRET, "{}"), 200);
}

#[test]
fn what_cannot_be_a_secret_is_refused_and_uses_nothing_up() {
    let upstream = Upstream::start();
    let setup = learning(&upstream, "asana");
    let server = setup.start();
    arm(&server, &[]);
    let long = "a".repeat(257);
    for secret in ["", "short", &long, "with a blank 0123456789", "<b>0123456789abcdef</b>"] {
        refused(&offer(&server, secret), 401);
    }
    server.wait_for_log(&["refused", "malformed_signature", "16 to 256 characters"]);
    assert!(kept(&setup).is_empty());
    taken(&offer(&server, SECRET), SECRET);
}

/// P10: what could not be kept is our failure, and the provider's next try finds the source armed.
#[test]
fn what_cannot_be_kept_is_not_answered() {
    let upstream = Upstream::start();
    let setup = learning(&upstream, "asana")
        .tables("[server]\nwatch = false")
        .allow_log("could not be kept");
    let server = setup.start();
    arm(&server, &[]);
    fs::remove_dir(directory(&setup)).unwrap();
    let answer = offer(&server, SECRET);
    refused(&answer, 503);
    assert!(answer.header("Retry-After").is_some());
    assert_eq!(
        server.metric("hooksluice_failures_total", &["cause=\"secret_not_kept\""]),
        1.0
    );
    not_armed(&server, &["own"], "ReadWritePaths=");
    fs::create_dir(directory(&setup)).unwrap();
    assert!(sources(&server).contains("armed until"), "{}", sources(&server));
    taken(&offer(&server, SECRET), SECRET);
    assert_eq!(event(&server, SECRET, "{}"), 200);
}

/// Kept but not in use would be a secret that the provider signs with in vain.
#[test]
fn what_cannot_be_used_is_not_kept() {
    let upstream = Upstream::start();
    let setup = learning(&upstream, "asana");
    let beside = setup.directory().join("beside");
    fs::write(&beside, "another-secret-0123456789").unwrap();
    let setup = setup
        .tables("[server]\nwatch = false")
        .table_after(&source_with_file(&beside))
        .allow_log("could not be kept")
        .allow_log("configuration refused")
        .allow_log("nothing was changed");
    let server = setup.start();
    arm(&server, &[]);
    fs::write(&beside, "").unwrap();
    refused(&offer(&server, SECRET), 503);
    assert!(kept(&setup).is_empty(), "{:?}", kept(&setup));
    fs::write(&beside, "another-secret-0123456789").unwrap();
    taken(&offer(&server, SECRET), SECRET);
}

fn source_with_file(file: &Path) -> String {
    format!(
        "[sources.beside]\npath = \"/hooks/beside\"\nprovider = \"hmac\"\nupstreams = [\"app\"]\nsecret = {{ file = \"{}\" }}",
        file.display()
    )
}

#[test]
fn two_hand_shakes_at_once_leave_one_secret() {
    let upstream = Upstream::start();
    let setup = learning(&upstream, "asana");
    let server = setup.start();
    arm(&server, &[]);
    let offered: Vec<String> = (0..8)
        .map(|number| format!("offered-at-once-{number:02}-0123456789"))
        .collect();
    let answers: Vec<(u16, &String)> = std::thread::scope(|scope| {
        let server = &server;
        let senders: Vec<_> = offered
            .iter()
            .map(|secret| scope.spawn(move || (offer(server, secret).status, secret)))
            .collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).collect()
    });
    let won: Vec<&String> = answers
        .iter()
        .filter(|(status, _)| *status == 200)
        .map(|(_, secret)| *secret)
        .collect();
    assert_eq!(won.len(), 1, "{answers:?}");
    assert!(
        answers.iter().all(|(status, _)| [200, 401, 503].contains(status)),
        "{answers:?}"
    );
    let [file] = &*kept(&setup) else {
        panic!("{:?}", kept(&setup))
    };
    assert_eq!(fs::read_to_string(file).unwrap().trim_end(), won[0]);
    for secret in &offered {
        assert_eq!(event(&server, secret, "{}"), if secret == won[0] { 200 } else { 401 });
    }
}

/// Two processes with one directory, both armed by mistake.
#[test]
fn a_shared_directory_takes_one_secret_and_serves_every_replica() {
    let upstream = Upstream::start();
    let first = learning(&upstream, "asana");
    let second = Setup::new(&upstream).allow_log(NONE_YET);
    std::os::unix::fs::symlink(directory(&first), directory(&second)).unwrap();
    let second = with_directory(second, "asana");
    let (one, two) = (first.start(), second.start());
    arm(&one, &[]);
    arm(&two, &[]);
    taken(&offer(&one, SECRET), SECRET);
    refused(&offer(&two, OTHER), 401);
    assert_eq!(kept(&first).len(), 1);
    crate::harness::eventually("the other replica to take it over", || {
        (event(&two, SECRET, "{}") == 200).then_some(())
    });
}

#[test]
fn only_a_source_that_says_so_learns() {
    let upstream = Upstream::start();
    let setup = Setup::new(&upstream).source("own", "asana", SECRET, "");
    let server = setup.start();
    not_armed(&server, &["own"], "takes no secret in band");
    not_armed(&server, &["owm"], "did you mean `own`?");
    refused(&offer(&server, OTHER), 401);
}
