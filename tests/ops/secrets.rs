//! Secrets from systemd's credentials and from directories: the same rules as for files (P3, P5).

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::server::program;
use crate::harness::sign::{self, SECRET, hex, sha256};
use crate::harness::{Request, Setup, Stage, Upstream, unix_now};

const OLD: &str = "old-secret-0123456789abcdef";

fn source(secrets: &str) -> String {
    format!("[sources.plain]\npath = \"/hooks/plain\"\nprovider = \"hmac\"\nupstreams = [\"app\"]\nsecrets = {secrets}")
}

/// A place that nobody else may read, with these files.
fn private(setup: &Setup, name: &str, files: &[(&str, &str)]) -> PathBuf {
    let directory = setup.directory().join(name);
    fs::create_dir_all(&directory).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
    for (file, content) in files {
        fs::write(directory.join(file), content).unwrap();
    }
    directory
}

fn command(setup: &Setup, name: &str, credentials: Option<&Path>) -> Command {
    let config = setup.write_config();
    let mut command = program();
    command.args([name, "-c"]).arg(config);
    setup.set_environment(&mut command);
    command.envs(credentials.map(|directory| ("CREDENTIALS_DIRECTORY", directory)));
    command
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Neither `check` nor `serve` takes it; both say `part`, and neither says a secret.
#[track_caller]
fn refused(setup: &Setup, credentials: Option<&Path>, part: &str) {
    for name in ["check", "serve"] {
        let output = command(setup, name, credentials).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{name}:\n{said}");
        assert!(said.contains(part), "{name} does not mention {part:?}:\n{said}");
        assert!(said.contains("help: "), "{name} knows no way out:\n{said}");
        assert!(!said.contains(SECRET), "{name} shows the secret:\n{said}");
    }
}

fn signed(key: &str, id: &str) -> Request {
    let signature = format!("sha256={}", hex(&sha256(key.as_bytes(), &[b"{}"])));
    Request::post("/hooks/plain", "{}")
        .header("X-Delivery-Id", id)
        .header("X-Signature", signature)
}

fn setup(secrets: &str) -> Setup {
    Setup::new(&Upstream::start()).table_after(&source(secrets))
}

// SE-01
#[test]
fn one_line_end_of_a_credential_is_the_editor_s() {
    for end in ["\n", "\r\n", ""] {
        let upstream = Upstream::start();
        let setup = Setup::new(&upstream).table_after(&source("[{ credential = \"plain\" }]"));
        let credentials = private(&setup, "credentials", &[("plain", &format!("{SECRET}{end}"))]);
        let server = setup.start_command(command(&setup, "serve", Some(&credentials)));
        assert_eq!(server.send(&sign::plain("/hooks/plain", "a", b"{}")).status, 200);
        upstream.wait_for(1);
    }
}

// SE-01, SE-05
#[test]
fn a_credential_that_is_no_key_stops_the_start() {
    let setup = setup("[{ credential = \"plain\" }]");
    refused(&setup, None, "`$CREDENTIALS_DIRECTORY` is not set");
    let credentials = private(&setup, "credentials", &[]);
    refused(&setup, Some(&credentials), "No such file or directory");
    for (content, part) in [
        (
            format!("{SECRET}\n\n"),
            "the credential `plain` ends with more than one line end",
        ),
        (String::new(), "the credential `plain` is empty"),
        ("\n".to_owned(), "the credential `plain` is empty"),
        ("${HOOK_SECRET}".to_owned(), "that nobody replaced"),
    ] {
        private(&setup, "credentials", &[("plain", &content)]);
        refused(&setup, Some(&credentials), part);
    }
}

// SE-08
#[test]
fn each_file_of_a_directory_vouches_under_its_own_name() {
    let stage = Stage::new(|setup| {
        // As Kubernetes mounts it.
        let directory = private(&setup, "secrets", &[]);
        private(
            &setup,
            "secrets/..2026",
            &[("2025", &format!("{OLD}\n")), ("2026", SECRET)],
        );
        symlink("..2026", directory.join("..data")).unwrap();
        for name in ["2025", "2026"] {
            symlink(format!("..data/{name}"), directory.join(name)).unwrap();
        }
        setup.table_after(&source(&format!("[{{ directory = \"{}\" }}]", directory.display())))
    });
    stage.accept(&signed(OLD, "a"));
    stage.accept(&signed(SECRET, "b"));
    stage.refuse(&signed("neither-secret-0123456789", "c"));
    for label in ["label=\"2025\"", "label=\"2026\""] {
        let used = stage.server.metric("hooksluice_secret_last_used_seconds", &[label]);
        assert!(used >= (unix_now() - 60) as f64, "{label}: {used}");
    }
}

// SE-01, SE-05
#[test]
fn a_directory_without_a_key_in_each_of_its_files_stops_the_start() {
    let place = |setup: &Setup| setup.directory().join("secrets");
    let setup = Setup::new(&Upstream::start());
    let written = source(&format!("[{{ directory = \"{}\" }}]", place(&setup).display()));
    let setup = setup.table_after(&written);
    refused(&setup, None, "No such file or directory");
    let directory = private(&setup, "secrets", &[(".hidden", SECRET)]);
    refused(&setup, None, "has no file");
    private(
        &setup,
        "secrets",
        &[("good", SECRET), ("twice", &format!("{SECRET}\n\n"))],
    );
    refused(&setup, None, "secrets/twice` ends with more than one line end");
    private(&setup, "secrets", &[("twice", "")]);
    refused(&setup, None, "secrets/twice` is empty");
    fs::remove_file(directory.join("twice")).unwrap();
    assert!(command(&setup, "check", None).status().unwrap().success());
}

// SE-04
#[test]
fn a_file_of_a_directory_that_does_not_decode_is_named() {
    let setup = Setup::new(&Upstream::start());
    let directory = private(
        &setup,
        "secrets",
        &[("good", sign::STANDARD_SECRET), ("tiny", "whsec_AA==")],
    );
    let written = source(&format!("[{{ directory = \"{}\" }}]", directory.display()));
    let setup = setup.table_after(&written.replace("hmac", "standard-webhooks"));
    refused(&setup, None, "the secret `tiny`");
}

#[test]
fn a_secret_that_everybody_may_read_is_a_warning_of_check_alone() {
    let setup = Setup::new(&Upstream::start());
    let directory = private(&setup, "secrets", &[("one", SECRET)]);
    let file = directory.join("one");
    let lists = [
        format!("{{ file = '{}' }}", file.display()),
        format!("{{ directory = '{}' }}", directory.display()),
    ];
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    for list in lists {
        let setup = Setup::new(&Upstream::start()).table_after(&source(&format!("[{list}]")));
        let said = |mode: u32| {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            let output = command(&setup, "check", None).output().unwrap();
            assert!(output.status.success(), "{}", text(&output));
            text(&output)
        };
        // The directory is not open to others, so neither is the file.
        assert!(!said(0o644).contains("everybody"), "{list}");
        fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
        let is_reachable = file
            .canonicalize()
            .unwrap()
            .ancestors()
            .skip(1)
            .all(|above| fs::metadata(above).unwrap().permissions().mode() & 0o001 != 0);
        assert_eq!(said(0o644).contains("can be read by everybody"), is_reachable, "{list}");
        assert!(!said(0o640).contains("everybody"), "{list}");
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
    }
}
