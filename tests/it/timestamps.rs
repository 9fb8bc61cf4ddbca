//! Freshness: judged once, at arrival, both ways, in the provider's unit; and what that means for late forwards.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use crate::harness::server::program;
use crate::harness::sign::{self, SECRET, base64, hex, sha256};
use crate::harness::{Answer, Request, Setup, Stage, Upstream, eventually, unix_now};

/// What `hooksluice verify --jsonl -` says about these lines.
fn verdicts(lines: &[serde_json::Value]) -> Vec<serde_json::Value> {
    let mut child = program()
        .args(["verify", "--jsonl", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for line in lines {
        writeln!(input, "{line}").unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

// TS-02
#[test]
fn a_forward_too_late_for_the_app_s_own_check_is_signed_anew() {
    let stage = Stage::new(|setup| {
        setup
            .upstream("retry = { first = \"200ms\", max = \"500ms\" }")
            .source("stripe", "stripe", sign::STRIPE_SECRET, "tolerance = \"4s\"")
            .allow_log("app")
    });
    stage.upstream.stop();
    let body = br#"{"id":"evt_late"}"#;
    let t = unix_now();
    assert_eq!(stage.server.send(&sign::stripe("/hooks/stripe", t, body)).status, 200);
    // Past half of the tolerance.
    std::thread::sleep(Duration::from_millis(3500));
    stage.upstream.start_again();
    let received = stage.upstream.only();
    assert_eq!(received.body, body);
    let signature = received.header("Stripe-Signature").unwrap();
    let new_t: i64 = signature
        .split(',')
        .find_map(|member| member.trim().strip_prefix("t="))
        .unwrap()
        .parse()
        .unwrap();
    assert!(new_t > t, "the time is still the old one: {signature}");
    assert!(
        (unix_now() - new_t).abs() < 10,
        "the time is not the current one: {signature}"
    );
    let digest = sign::stripe_digest(new_t, body);
    assert!(
        signature.contains(&format!("v1={digest}")),
        "the app would refuse {signature}"
    );
}

#[test]
fn an_early_forward_carries_the_original_signature() {
    let stage = Stage::new(|setup| setup.stripe());
    let request = sign::stripe("/hooks/stripe", unix_now() - 60, br#"{"id":"evt_early"}"#);
    let received = stage.accept(&request);
    assert_eq!(received.values("Stripe-Signature"), [request.lines[0].1.as_slice()]);
}

// TS-03
#[test]
fn age_is_judged_at_arrival_and_never_again() {
    let stage = Stage::new(|setup| {
        setup
            .upstream("signature = \"original\"")
            .source("stripe", "stripe", sign::STRIPE_SECRET, "tolerance = \"1s\"")
    });
    let received = stage.accept(&sign::stripe("/hooks/stripe", unix_now(), br#"{"id":"evt_old"}"#));
    std::thread::sleep(Duration::from_millis(2500));
    let path = format!("/api/v1/events/{}/replay", received.event_id());
    assert_eq!(stage.server.admin_post(&path, "{}").status, 200);
    let replayed = stage.upstream.wait_for(2).pop().unwrap();
    assert_eq!(replayed.values("Stripe-Signature"), received.values("Stripe-Signature"));
}

// TS-04
#[test]
fn the_window_is_symmetric_and_its_bounds_belong_to_it() {
    let now = 1_700_000_000;
    let offsets = [-299, -300, -301, 1, 299, 300, 301, 1_000_000_000];
    let line = |offset: i64| {
        let t = now + offset;
        let signature = format!("t={t},v1={}", sign::stripe_digest(t, b"{}"));
        serde_json::json!({
            "provider": "stripe", "secret": sign::STRIPE_SECRET, "now": now, "method": "POST",
            "url": "https://hooks.example.test/s", "headers": {"Stripe-Signature": signature},
            "body_base64": base64(b"{}"),
        })
    };
    let verdicts = verdicts(&offsets.map(line));
    let accepted: Vec<bool> = verdicts.iter().map(|verdict| verdict["verdict"] == "accept").collect();
    assert_eq!(
        accepted,
        [true, true, false, true, true, true, false, false],
        "{verdicts:?}"
    );
    assert_eq!(verdicts[2]["reason"], "stale");
    assert_eq!(verdicts[6]["reason"], "from_the_future");
}

// TS-05: HubSpot's scheme, written by the operator.
#[test]
fn milliseconds_are_milliseconds_and_are_signed_as_written() {
    let scheme = "[providers.hub]\nkind = \"hmac\"\nhash = \"sha256\"\nsignature = [\"header:X-HubSpot-Signature-v3\"]\n\
                  encoding = \"base64\"\npayload = \"{method}{url}{body}{timestamp}\"\n\
                  timestamp = \"header:X-HubSpot-Request-Timestamp\"\ntimestamp_unit = \"ms\"\ntolerance_seconds = 300";
    let stage = Stage::new(|setup| {
        setup
            .table_after(scheme)
            .source("hub", "hub", SECRET, "public_url = \"https://hooks.example.test\"")
    });
    let body = br#"{"a":1}"#;
    let request = |timestamp: String| {
        let url = b"https://hooks.example.test/hooks/hub?x=1";
        let digest = sha256(SECRET.as_bytes(), &[b"POST", url, body, timestamp.as_bytes()]);
        Request::post("/hooks/hub?x=1", &body[..])
            .header("X-HubSpot-Request-Timestamp", timestamp)
            .header("X-HubSpot-Signature-v3", base64(&digest))
    };
    // The published figure shows that the text signed here is the one that HubSpot signs.
    let published = sha256(
        SECRET.as_bytes(),
        &[b"POST", b"https://hooks.example.test/hs?x=1", body, b"1700000000000"],
    );
    assert_eq!(base64(&published), "AJeoquiFI5mwswa5BzF0hpoOfpBXQU4ptojiU26S2q0=");
    let now = unix_now();
    stage.accept(&request(format!("{}000", now)));
    stage.refuse(&request(format!("{}000", now - 310)));
    stage.refuse(&request(now.to_string()));
    stage.refuse(&request(format!("{now}000.0")));
    stage.refuse(&request("99999999999999999999999999".to_owned()));
}

// TS-07
#[test]
fn a_right_signature_from_years_ago_is_refused() {
    let stage = Stage::new(|setup| setup.stripe());
    stage.refuse(&sign::stripe(
        "/hooks/stripe",
        1_665_440_000,
        br#"{"id":"evt_ancient"}"#,
    ));
    let labels = ["source=\"stripe\"", "reason=\"stale\""];
    assert_eq!(stage.server.metric("hooksluice_rejections_total", &labels), 1.0);
}

// TS-08
#[test]
fn switching_freshness_off_is_spelled_out() {
    let setup = |tolerance: &str| {
        Setup::new(&Upstream::start()).source(
            "stripe",
            "stripe",
            sign::STRIPE_SECRET,
            &format!("tolerance = {tolerance}"),
        )
    };
    let check = |tolerance: &str| {
        let setup = setup(tolerance);
        let mut command = program();
        command.args(["check", "-c"]).arg(setup.write_config());
        setup.set_environment(&mut command);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    for (tolerance, fine) in [
        ("\"off\"", true),
        ("\"300s\"", true),
        ("\"0s\"", false),
        ("0", false),
        ("300", false),
    ] {
        let (ok, said) = check(tolerance);
        assert_eq!(ok, fine, "tolerance = {tolerance}:\n{said}");
    }
    let (_, said) = check("\"0s\"");
    assert!(said.contains("off"), "0 does not name the word for off:\n{said}");
}

// TS-09
#[test]
fn an_event_signed_by_a_tool_with_its_own_secret_is_no_special_case() {
    let stage = Stage::new(|setup| setup.stripe());
    let t = unix_now();
    let digest = hex(&sha256(b"whsec_cliSessionSecret", &[t.to_string().as_bytes(), b".{}"]));
    let request = Request::post("/hooks/stripe", "{}").header("Stripe-Signature", format!("t={t},v1={digest}"));
    stage.refuse(&request);
}

#[test]
fn a_retry_waits_for_its_time_and_carries_the_received_at_of_the_event() {
    let upstream = Upstream::scripted(|received| Answer::Status(if received.attempt() == 1 { 500 } else { 200 }));
    let stage = Stage::with(upstream, |setup| {
        setup
            .upstream("retry = { first = \"100ms\", max = \"100ms\" }")
            .plain()
            .allow_log("app")
    });
    assert_eq!(
        stage.server.send(&sign::plain("/hooks/plain", "retry", b"{}")).status,
        200
    );
    let received = stage.upstream.wait_for(2);
    let times: Vec<_> = received
        .iter()
        .map(|received| received.header("Hooksluice-Received-At"))
        .collect();
    assert!(times[0].is_some() && times[0] == times[1], "{times:?}");
    eventually("the event to be delivered", || {
        (stage.server.events("state=delivered").len() == 1).then_some(())
    });
}
