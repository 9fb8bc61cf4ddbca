//! Secrets: nothing that is missing, empty or broken becomes a key (P3), and rotation is a routine act.

use std::process::{Command, Output};

use crate::harness::sign::{self, SECRET, STRIPE_SECRET, hex, sha256};
use crate::harness::{Request, Setup, Stage, Upstream, unix_now};

/// `hooksluice check` on what `setup` would be started with.
fn check(setup: &Setup) -> Output {
    command(setup, "check")
}

fn command(setup: &Setup, name: &str) -> Output {
    let config = setup.write_config();
    let mut command: Command = crate::harness::server::program();
    command.args([name, "-c"]).arg(config);
    setup.set_environment(&mut command);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A source of the `hmac` preset with `secrets` written in TOML.
fn with_secrets(secrets: &str) -> Setup {
    Setup::new(&Upstream::start()).table_after(&source("plain", "hmac", secrets))
}

fn source(name: &str, provider: &str, secrets: &str) -> String {
    format!(
        "[sources.{name}]\npath = \"/hooks/{name}\"\nprovider = \"{provider}\"\nupstreams = [\"app\"]\nsecrets = {secrets}"
    )
}

/// Neither `check` nor `serve` takes it, and the reason contains `part` but not `secret`.
#[track_caller]
fn refused(setup: &Setup, part: &str, secret: &str) {
    for name in ["check", "serve"] {
        let output = command(setup, name);
        let said = text(&output);
        assert!(!output.status.success(), "{name} took it:\n{said}");
        assert!(said.contains(part), "{name} does not mention {part:?}:\n{said}");
        assert!(
            secret.is_empty() || !said.contains(secret),
            "{name} shows the secret:\n{said}"
        );
    }
}

// SE-01
#[test]
fn one_line_end_of_a_secret_file_is_the_editor_s_and_two_are_a_mistake() {
    for end in ["\n", "\r\n", ""] {
        let stage = Stage::new(|setup| {
            let file = setup.directory().join("secret");
            std::fs::write(&file, format!("{SECRET}{end}")).unwrap();
            setup.table_after(&source(
                "plain",
                "hmac",
                &format!("[{{ file = '{}' }}]", file.display()),
            ))
        });
        stage.accept(&sign::plain("/hooks/plain", "se-01", b"{}"));
    }
    let setup = with_secrets("[{ file = 'twice' }]");
    let file = setup.directory().join("twice");
    std::fs::write(&file, format!("{SECRET}\n\n")).unwrap();
    let setup = with_secrets(&format!("[{{ file = '{}' }}]", file.display()));
    let said = text(&check(&setup));
    assert!(said.contains("twice"), "the file is not named:\n{said}");
    assert!(!said.contains(SECRET), "the secret is shown:\n{said}");
}

// SE-02
#[test]
fn blanks_around_a_secret_are_used_as_they_are_and_warned_about() {
    let padded = format!("{SECRET} ");
    let stage = Stage::new(|setup| {
        setup
            .source("plain", "hmac", &format!("{padded}\n"), "")
            .allow_log("white space")
    });
    let body = b"{}";
    let signature = format!("sha256={}", hex(&sha256(padded.as_bytes(), &[body])));
    stage.accept(
        &Request::post("/hooks/plain", &body[..])
            .header("X-Delivery-Id", "se-02")
            .header("X-Signature", signature),
    );
    stage.refuse(&sign::plain("/hooks/plain", "se-02", body));
    let said = text(&check(&stage.setup));
    assert!(said.contains("white space"), "no warning:\n{said}");
    assert!(!said.contains(SECRET), "the secret is shown:\n{said}");
}

// SE-04
#[test]
fn a_secret_that_does_not_decode_to_a_real_key_stops_the_start() {
    for secret in [
        "whsec_",
        "whsec_!!!!",
        "whsec_AA==",
        "whsec_AAAA=",
        "whsec_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_",
    ] {
        let setup = Setup::new(&Upstream::start()).source("standard", "standard-webhooks", secret, "");
        refused(&setup, "secret", if secret == "whsec_" { "" } else { secret });
    }
}

// SE-05
#[test]
fn no_secret_is_not_the_empty_secret() {
    let mut empty = Setup::new(&Upstream::start());
    let variable = empty.environment_variable("");
    let empty = empty.table_after(&source("plain", "hmac", &format!("[{{ env = \"{variable}\" }}]")));
    refused(&empty, &variable, "");
    refused(&with_secrets("[{ value = \"\" }]"), "secret", "");
    refused(&with_secrets("[]"), "secret", "");
    refused(
        &with_secrets("[{ env = \"NOT_SET_ANYWHERE\" }]"),
        "NOT_SET_ANYWHERE",
        "",
    );
    refused(&with_secrets("[{ file = \"/nowhere/secret\" }]"), "/nowhere/secret", "");
    let absent = "[sources.plain]\npath = \"/hooks/plain\"\nprovider = \"hmac\"\nupstreams = [\"app\"]";
    refused(&Setup::new(&Upstream::start()).table_after(absent), "secret", "");
    // Whoever signs with the empty key is refused by a source with a real one.
    let stage = Stage::new(|setup| setup.github());
    let body = br#"{"a":1}"#;
    let digest = hex(&sha256(b"", &[body]));
    stage.refuse(
        &Request::post("/hooks/github", &body[..])
            .header("X-GitHub-Delivery", "se-05")
            .header("X-Hub-Signature-256", format!("sha256={digest}")),
    );
}

// SE-07
#[test]
fn a_secret_that_looks_like_hex_is_text_unless_the_scheme_says_otherwise() {
    let secret = "ab".repeat(32);
    let scheme = "[providers.decoded]\nkind = \"hmac\"\nhash = \"sha256\"\nsignature = [\"header:X-Signature\"]\n\
                  prefix = \"sha256=\"\nencoding = \"hex\"\npayload = \"{body}\"\nsecret_encoding = \"hex\"\n\
                  delivery_id = \"header:X-Delivery-Id\"";
    let stage = Stage::new(|setup| {
        setup
            .table_after(scheme)
            .source("text", "hmac", &secret, "")
            .source("decoded", "decoded", &secret, "")
    });
    let request = |source: &str, key: &[u8]| {
        Request::post(&format!("/hooks/{source}"), "{}")
            .header("X-Delivery-Id", "se-07")
            .header("X-Signature", format!("sha256={}", hex(&sha256(key, &[b"{}"]))))
    };
    let bytes = [0xab; 32];
    stage.accept(&request("text", secret.as_bytes()));
    stage.refuse(&request("text", &bytes));
    stage.accept(&request("decoded", &bytes));
    stage.refuse(&request("decoded", secret.as_bytes()));
}

// SE-08
#[test]
fn old_and_new_secrets_live_side_by_side_and_their_use_is_seen() {
    let old = "old-secret-0123456789abcdef";
    let stage = Stage::new(|mut setup| {
        let (old, new) = (setup.environment_variable(old), setup.environment_variable(SECRET));
        setup.table_after(&source(
            "plain",
            "hmac",
            &format!("[{{ env = \"{old}\", label = \"2025\" }}, {{ env = \"{new}\", label = \"2026\" }}]"),
        ))
    });
    let signed = |key: &str, id: &str| {
        Request::post("/hooks/plain", "{}").header("X-Delivery-Id", id).header(
            "X-Signature",
            format!("sha256={}", hex(&sha256(key.as_bytes(), &[b"{}"]))),
        )
    };
    stage.accept(&signed(old, "a"));
    stage.accept(&signed(SECRET, "b"));
    stage.refuse(&signed("neither-secret-0123456789", "c"));
    for label in ["label=\"2025\"", "label=\"2026\""] {
        let used = stage.server.metric("hooksluice_secret_last_used_seconds", &[label]);
        assert!(used >= (unix_now() - 60) as f64, "{label}: {used}");
    }
    // Whichever secret vouched: the key of an event does not depend on it, so rotation makes no retry new.
    assert_eq!(stage.server.send(&signed(SECRET, "a")).status, 200);
    stage.server.wait_for_metric("hooksluice_duplicates_total", &[], 1.0);
}

#[test]
fn a_secret_past_its_date_vouches_for_nothing() {
    let stage = Stage::new(|mut setup| {
        let (old, new) = (
            setup.environment_variable("old-secret-0123456789abcdef"),
            setup.environment_variable(SECRET),
        );
        setup
            .table_after(&source(
                "plain",
                "hmac",
                &format!("[{{ env = \"{new}\" }}, {{ env = \"{old}\", not_after = \"2020-01-01T00:00:00Z\" }}]"),
            ))
            .allow_log("has ended")
    });
    let digest = hex(&sha256(b"old-secret-0123456789abcdef", &[b"{}"]));
    stage.refuse(
        &Request::post("/hooks/plain", "{}")
            .header("X-Delivery-Id", "late")
            .header("X-Signature", format!("sha256={digest}")),
    );
}

// SE-09
#[test]
fn two_endpoints_on_one_path_keep_their_events_apart() {
    let connect = "whsec_connectTestSecret0123456789";
    let stage = Stage::new(|mut setup| {
        let (account, other) = (
            setup.environment_variable(STRIPE_SECRET),
            setup.environment_variable(connect),
        );
        setup.table_after(&source(
            "stripe",
            "stripe",
            &format!("[{{ env = \"{account}\", scope = \"account\" }}, {{ env = \"{other}\", scope = \"connect\" }}]"),
        ))
    });
    let body = br#"{"id":"evt_same"}"#;
    let t = unix_now();
    let by_connect = hex(&sha256(connect.as_bytes(), &[t.to_string().as_bytes(), b".", body]));
    let first = stage.accept(&sign::stripe("/hooks/stripe", t, body));
    let second = stage.accept(
        &Request::post("/hooks/stripe", &body[..]).header("Stripe-Signature", format!("t={t},v1={by_connect}")),
    );
    assert_eq!(first.header("Hooksluice-Scope"), Some("account"));
    assert_eq!(second.header("Hooksluice-Scope"), Some("connect"));
    assert_ne!(first.event_id(), second.event_id());
}

// SE-11
#[test]
fn a_reference_that_nobody_resolved_is_not_a_key() {
    refused(&with_secrets("[{ value = \"${HOOK_SECRET}\" }]"), "env", "");
}

// SC-02
#[test]
fn no_secret_is_shown_at_the_most_talkative_log_level() {
    let upstream = Upstream::start();
    let setup = Setup::new(&upstream)
        .plain()
        .source("gitlab", "gitlab", "shared-token-0123456789abcdef", "");
    let mut command = setup.command();
    command.env("HOOKSLUICE_LOG", "trace");
    // What the log holds is checked when the server is dropped.
    let server = setup.start_command(command);
    assert_eq!(server.send(&sign::plain("/hooks/plain", "a", b"{}")).status, 200);
    let wrong = Request::post("/hooks/plain", "{}").header("X-Signature", format!("sha256={}", "0".repeat(64)));
    assert_eq!(server.send(&wrong).status, 401);
    let token = Request::post("/hooks/gitlab", "{}")
        .header("X-Gitlab-Event", "Push Hook")
        .header("X-Gitlab-Token", "shared-token-0123456789abcdef");
    assert_eq!(server.send(&token).status, 200);
    upstream.wait_for(2);
    for target in ["/metrics", "/api/v1/status", "/api/v1/events"] {
        let answer = server.admin_get(target).text();
        assert!(
            !answer.contains("shared-token") && !answer.contains(SECRET),
            "{target}: {answer}"
        );
    }
    for event in server.events("") {
        let id = event["id"].as_str().unwrap();
        let detail = server.admin_get(&format!("/api/v1/events/{id}")).text();
        assert!(!detail.contains("shared-token"), "{detail}");
    }
}

/// Asana's first request hands over the secret of its webhook. A source that answered would take one from anybody.
#[test]
fn a_secret_that_a_stranger_hands_over_is_not_taken() {
    for provider in ["asana", "clio"] {
        let stage = Stage::new(|setup| setup.source("own", provider, SECRET, ""));
        let offered = Request::post("/hooks/own", "{}").header("X-Hook-Secret", "chosen-by-a-stranger");
        let answer = stage.server.send(&offered);
        assert_eq!(
            (answer.status, answer.header("X-Hook-Secret")),
            (401, None),
            "{answer:?}"
        );
        let signed = |secret: &str| {
            let mac = hex(&sha256(secret.as_bytes(), &[b"{}"]));
            stage
                .server
                .send(&Request::post("/hooks/own", "{}").header("X-Hook-Signature", mac))
        };
        assert_eq!(signed("chosen-by-a-stranger").status, 401);
        assert_eq!(signed(SECRET).status, 200);
    }
}

/// A token is the secret itself, and its place is called what the provider likes.
#[test]
fn a_token_is_masked_wherever_its_provider_puts_it() {
    let own = "[providers.own]\nkind = \"token\"\nsignature = \"header:X-Acme-Pass\"";
    let stage = Stage::new(|setup| {
        setup
            .table_after(own)
            .source("own", "own", SECRET, "")
            .source("flutterwave", "flutterwave", SECRET, "")
            .source("mailchimp", "mailchimp", SECRET, "params = { param = \"k\" }")
    });
    for request in [
        Request::post("/hooks/own", "{}").header("X-Acme-Pass", SECRET),
        Request::post("/hooks/flutterwave", "{}").header("verif-hash", SECRET),
        Request::post(&format!("/hooks/mailchimp?k={SECRET}&x=1"), "type=a"),
    ] {
        assert_eq!(stage.server.send(&request).status, 200, "{}", request.target);
    }
    for event in stage.server.events("") {
        let target = format!("/api/v1/events/{}", event["id"].as_str().unwrap());
        let shown = stage.server.admin_get(&target).text();
        assert!(!shown.contains(SECRET) && shown.contains("(masked)"), "{shown}");
    }
}

/// P5: the app has the body as it came, and nobody else sees the token in it.
#[test]
fn a_token_that_its_provider_writes_into_the_body_is_masked() {
    let stage = Stage::new(|setup| {
        setup
            .source("meraki", "meraki", SECRET, "")
            .source("graph", "microsoft-graph", SECRET, "")
    });
    let bodies = [
        (
            "meraki",
            format!("{{\"sharedSecret\":\"{SECRET}\",\"alertId\":\"a1\"}}"),
        ),
        (
            "graph",
            format!(
                "{{\"value\":[{{\"clientState\":\"{SECRET}\",\"n\":1}},{{\"n\":2,\"clientState\":\"{SECRET}\"}}]}}"
            ),
        ),
    ];
    for (at, (path, body)) in bodies.into_iter().enumerate() {
        let request = Request::post(&format!("/hooks/{path}"), body.clone());
        let status = stage.server.send(&request).status;
        assert!((200..=299).contains(&status), "{path}: {status}");
        let forwarded = stage.upstream.wait_for(at + 1);
        assert!(
            forwarded.iter().any(|received| received.body == body.as_bytes()),
            "{path}"
        );
        let event = stage.server.events(&format!("source={path}")).remove(0);
        let target = format!("/api/v1/events/{}", event["id"].as_str().unwrap());
        let shown = stage.server.admin_get(&target).json();
        let masked = body.replace(SECRET, "(masked)");
        assert_eq!(shown["body_text"], masked);
        assert_eq!(shown["body_base64"], data_encoding::BASE64.encode(masked.as_bytes()));
        assert_eq!(shown["body_masked"], true);
    }
}
