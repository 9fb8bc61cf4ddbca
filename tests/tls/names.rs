//! Which certificate is shown, and which protocol is spoken.

use std::process::Command;

use crate::ground::{Authority, Leaf, Secure, tls, trusting, write};
use crate::harness::{Request, Stage, sign};

struct Ground {
    stage: Stage,
    authority: Authority,
    first: Leaf,
    second: Leaf,
}

/// Two certificates: `a.test` with `*.a.test`, and `b.test` with `x.a.test`.
fn ground() -> Ground {
    let authority = Authority::new("tests");
    let (first, second) = (
        authority.issue(&["a.test", "*.a.test"]),
        authority.issue(&["b.test", "x.a.test"]),
    );
    let stage = Stage::new(|setup| tls(setup.plain(), &[&first, &second], ""));
    Ground {
        stage,
        authority,
        first,
        second,
    }
}

#[test]
fn the_name_that_a_client_asks_for_chooses_the_certificate() {
    let ground = ground();
    let shown = |name: &str| {
        let client = trusting(&ground.authority);
        Secure::open(ground.stage.server.address(), name, &client).shown()
    };
    assert_eq!(shown("a.test"), ground.first.der);
    assert_eq!(shown("www.a.test"), ground.first.der, "a wildcard");
    assert_eq!(shown("b.test"), ground.second.der);
    assert_eq!(shown("B.TEST"), ground.second.der);
    assert_eq!(shown("x.a.test"), ground.second.der, "a whole name before a wildcard");
    // Not for us, so the client refuses it; that it was shown at all says which is the default.
    for stranger in ["c.test", "y.x.a.test", "127.0.0.1"] {
        let opened = Secure::try_open(ground.stage.server.address(), stranger, &trusting(&ground.authority));
        let error = opened.err().unwrap().to_string();
        assert!(error.contains("a.test"), "{stranger}: {error}");
    }
    let count = |outcome: &str| {
        let labels = [format!("outcome=\"{outcome}\"")];
        ground.stage.server.wait_for_metric(
            "hooksluice_tls_handshakes_total",
            &[&labels[0]],
            match outcome {
                "complete" => 5.0,
                _ => 3.0,
            },
        );
    };
    count("complete");
    count("refused_by_client");
    let expiry = |name: &str| {
        let label = format!("certificate=\"{name}\"");
        ground
            .stage
            .server
            .metric("hooksluice_certificate_expiry_seconds", &[&label])
    };
    assert!(expiry("a.test") > 1e9 && expiry("b.test") > 1e9);
}

#[test]
fn openssl_agrees_on_names_protocols_and_versions() {
    let ground = ground();
    let directory = ground.stage.setup.directory();
    let ca = write(directory, "ca.crt", &ground.authority.pem());
    let address = ground.stage.server.address().to_string();
    let said = |arguments: &[&str]| {
        let output = Command::new("openssl")
            .args(["s_client", "-connect", &address, "-verify_return_error", "-CAfile"])
            .arg(&ca)
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    for (arguments, parts) in [
        (
            &["-servername", "b.test", "-verify_hostname", "b.test"][..],
            &["Verification: OK"][..],
        ),
        (
            &["-servername", "b.test", "-alpn", "h2,http/1.1"],
            &["ALPN protocol: h2"],
        ),
        (
            &["-servername", "b.test", "-alpn", "http/1.1"],
            &["ALPN protocol: http/1.1"],
        ),
        (
            &["-noservername", "-verify_hostname", "a.test"],
            &["Verification: OK", "No ALPN negotiated"],
        ),
        (&["-servername", "a.test", "-tls1_2"], &["Protocol  : TLSv1.2"]),
    ] {
        let (fine, text) = said(arguments);
        assert!(fine, "{arguments:?}: {text}");
        for part in parts {
            assert!(text.contains(part), "{part:?} is missing for {arguments:?} in {text}");
        }
    }
    for refused in [&["-tls1_1"][..], &["-alpn", "acme-tls/1"]] {
        let (fine, text) = said(refused);
        assert!(!fine, "{refused:?}: {text}");
    }
}

#[test]
fn events_are_accepted_over_http_1_and_2_and_the_app_hears_of_https() {
    let ground = ground();
    let ca = write(ground.stage.setup.directory(), "ca.crt", &ground.authority.pem());
    let port = ground.stage.server.address().port();
    for (version, flag) in [("1.1", "--http1.1"), ("2", "--http2")] {
        let id = format!("event-{version}");
        let request = sign::plain("/hooks/plain", &id, b"{}");
        let mut curl = Command::new("curl");
        curl.args([
            "-sS",
            flag,
            "--resolve",
            &format!("b.test:{port}:127.0.0.1"),
            "--cacert",
        ])
        .arg(&ca)
        .args(["-w", "%{http_version} %{http_code}", "--data-binary", "{}"])
        .arg(format!("https://b.test:{port}{}", request.target));
        for (name, value) in &request.lines {
            let value = String::from_utf8(value.clone()).unwrap();
            curl.args(["-H", &format!("{name}: {value}")]);
        }
        // A claim of a stranger that must not be passed on.
        curl.args(["-H", "X-Forwarded-Proto: http"]);
        let output = curl.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            said,
            format!("{version} 200"),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    for received in ground.stage.upstream.wait_for(2) {
        assert_eq!(received.header("X-Forwarded-Proto"), Some("https"));
        assert_eq!(
            received.header("X-Forwarded-Host"),
            Some(format!("b.test:{port}").as_str())
        );
    }
}

/// UR-01, without `public_url`: the listener knows what was spoken, and its certificates say which hosts are ours.
#[test]
fn a_signed_url_is_told_by_the_host_that_was_asked_for() {
    const TOKEN: &str = "twilio-token-0123456789abcdef01";
    let authority = Authority::new("tests");
    let leaf = authority.issue(&["hooks.example.test"]);
    let stage = Stage::new(|setup| tls(setup.source("sms", "twilio", TOKEN, ""), &[&leaf], ""));
    let said = |host: &str, id: &str| {
        let signed = format!("https://hooks.example.test/hooks/smsBodyhiMessageSid{id}");
        let request = Request::post("/hooks/sms", format!("Body=hi&MessageSid={id}"))
            .header("Host", host)
            .header("Content-Type", "application/x-www-form-urlencoded")
            .header(
                "X-Twilio-Signature",
                sign::base64(&sign::sha1(TOKEN.as_bytes(), &[signed.as_bytes()])),
            );
        let client = trusting(&authority);
        let mut connection = Secure::open(stage.server.address(), "hooks.example.test", &client);
        connection.exchange(&request).unwrap().status
    };
    assert_eq!(said("hooks.example.test", "SM1"), 200);
    assert_eq!(said("hooks.example.test:443", "SM2"), 200);
    assert_eq!(said("elsewhere.test", "SM3"), 401);
    stage.upstream.wait_for(2);
}

#[test]
fn a_session_is_resumed() {
    let ground = ground();
    let client = trusting(&ground.authority);
    for _ in 0..2 {
        let mut connection = Secure::open(ground.stage.server.address(), "a.test", &client);
        // The ticket comes behind the handshake.
        assert_eq!(connection.exchange(&Request::new("GET", "/none")).unwrap().status, 404);
    }
    for outcome in ["outcome=\"complete\"", "outcome=\"resumed\""] {
        ground
            .stage
            .server
            .wait_for_metric("hooksluice_tls_handshakes_total", &[outcome], 1.0);
    }
}
