//! Reading signature headers: as written by the provider, with every freedom that HTTP gives to hops on the way, and
//! none beyond.

use crate::harness::sign::{self, SECRET, base64, hex, sha1, sha256};
use crate::harness::{Request, Setup, Stage, unix_now};

const BODY: &[u8] = br#"{"a":1}"#;
/// HMAC-SHA256 and HMAC-SHA1 of [`BODY`] under [`SECRET`].
const SHA256: &str = "b00ddd6471f62dd7559cdca726498fcf5bb080a89c387943b4105c6278bb2dab";
const SHA1: &str = "ea768b1b342a889032008018c2794903f119399b";

/// A source with a scheme of its own: `lines` beside kind, payload and id.
fn own_scheme(setup: Setup, lines: &str) -> Setup {
    setup
        .table_after(&format!(
            "[providers.own]\nkind = \"hmac\"\npayload = \"{{body}}\"\ndelivery_id = \"header:X-Delivery-Id\"\n{lines}"
        ))
        .source("own", "own", SECRET, "")
}

fn own(id: &str, header: &str, value: &str) -> Request {
    Request::post("/hooks/own", BODY)
        .header("X-Delivery-Id", id)
        .header(header, value)
}

fn github(id: &str) -> Request {
    Request::post("/hooks/github", BODY)
        .header("X-GitHub-Event", "push")
        .header("X-GitHub-Delivery", id)
}

fn stripe(value: &str) -> Request {
    Request::post("/hooks/stripe", BODY).header("Stripe-Signature", value)
}

#[test]
fn the_constants_of_these_tests_are_the_digests_of_the_body() {
    assert_eq!(hex(&sha256(SECRET.as_bytes(), &[BODY])), SHA256);
    assert_eq!(hex(&sha1(SECRET.as_bytes(), &[BODY])), SHA1);
    assert_eq!(
        sign::stripe_digest(1_700_000_000, BODY),
        "63f752f086be6cd270f7984ac297188cf21a40e2f30d0966e58f9d4548125eef"
    );
}

// SH-01
#[test]
fn hex_is_accepted_in_either_case() {
    let stage = Stage::new(|setup| {
        own_scheme(
            setup,
            "hash = \"sha1\"\nsignature = [\"header:X-Hub-Signature\"]\nprefix = \"sha1=\"\nencoding = \"hex\"",
        )
    });
    stage.accept(&own(
        "sh-01",
        "X-Hub-Signature",
        &format!("sha1={}", SHA1.to_uppercase()),
    ));
}

// SH-02
#[test]
fn blanks_around_a_value_do_not_count_and_the_encoding_is_not_guessed() {
    let scheme = |encoding: &str| {
        format!("hash = \"sha256\"\nsignature = [\"header:X-Sig\"]\nprefix = \"sha256=\"\nencoding = \"{encoding}\"",)
    };
    let in_base64 = "sha256=sA3dZHH2LddVnNynJkmPz1uwgKicOHlDtBBcYni7Las=";
    let stage = Stage::new(|setup| own_scheme(setup, &scheme("hex")));
    stage.accept(&own("a", "X-Sig", &format!("sha256= {SHA256}")));
    stage.accept(&own("d", "X-Sig", &format!(" \t sha256={SHA256}\t ")));
    stage.refuse(&own("c", "X-Sig", in_base64));
    let stage = Stage::new(|setup| own_scheme(setup, &scheme("base64")));
    stage.accept(&own("b", "X-Sig", in_base64));
}

// SH-04
#[test]
fn a_required_prefix_is_required_and_half_a_header_is_no_panic() {
    let stage = Stage::new(|setup| setup.plain());
    let plain = |value: &str| {
        Request::post("/hooks/plain", BODY)
            .header("X-Delivery-Id", "sh-04")
            .header("X-Signature", value)
    };
    for value in [SHA256, "sha256=", "=", "", "sha256", "sha256=sha256="] {
        stage.refuse(&plain(value));
    }
    stage.accept(&plain(&format!("sha256={SHA256}")));
}

// SH-04
#[test]
fn a_prefix_that_the_scheme_calls_optional_may_be_missing() {
    let stage = Stage::new(|setup| {
        own_scheme(
            setup,
            "hash = \"sha256\"\nsignature = [\"header:X-Sig\"]\nprefix = \"sha256=\"\nprefix_optional = true\nencoding = \"hex\"",
        )
    });
    stage.accept(&own("without", "X-Sig", SHA256));
    stage.accept(&own("with", "X-Sig", &format!("sha256={SHA256}")));
    for value in ["sha256=", "=", ""] {
        stage.refuse(&own("half", "X-Sig", value));
    }
}

// SH-05
#[test]
fn the_algorithm_is_the_scheme_s_choice_and_not_the_sender_s() {
    let stage = Stage::new(|setup| setup.github());
    for value in [
        format!("bogus={SHA256}"),
        "md5=7d4cde3ff0a4ab06b1d4e0b0ed3e9d0c".to_owned(),
        format!("sha1={SHA1}"),
    ] {
        stage.refuse(&github("sh-05").header("X-Hub-Signature-256", value));
    }
}

// SH-06
#[test]
fn list_members_may_be_spaced_out_or_come_on_lines_of_their_own() {
    let stage = Stage::new(|setup| setup.stripe());
    let t = unix_now();
    let digest = sign::stripe_digest(t, BODY);
    stage.accept(&stripe(&format!("t={t}, v1={digest} ,  v0=00")));
    let t = t - 1;
    let body = br#"{"id":"evt_lines"}"#;
    let digest = sign::stripe_digest(t, body);
    let lines = Request::post("/hooks/stripe", &body[..])
        .header("Stripe-Signature", format!("t={t}"))
        .header("Stripe-Signature", format!("v1={digest}"))
        .header("Stripe-Signature", "v0=00");
    stage.accept(&lines);
}

// SH-08
#[test]
fn the_right_digest_under_the_wrong_scheme_name_is_wrong() {
    let stage = Stage::new(|setup| setup.stripe());
    let t = unix_now();
    let digest = sign::stripe_digest(t, BODY);
    for name in ["v0", "v2", "V1", "v11"] {
        stage.refuse(&stripe(&format!("t={t},{name}={digest}")));
    }
}

// SH-09
#[test]
fn the_order_of_members_is_free_and_unknown_ones_are_ignored() {
    let stage = Stage::new(|setup| setup.stripe());
    let t = unix_now();
    let digest = sign::stripe_digest(t, BODY);
    stage.accept(&stripe(&format!("v0=00,v1={digest},t={t}")));
    let body = br#"{"id":"evt_2"}"#;
    let digest = sign::stripe_digest(t, body);
    let value = format!("t={t},v1={digest},v0=00,x=y");
    stage.accept(&Request::post("/hooks/stripe", &body[..]).header("Stripe-Signature", value));
}

#[test]
fn every_signature_of_a_list_is_tried() {
    let stage = Stage::new(|setup| setup.stripe());
    let t = unix_now();
    let digest = sign::stripe_digest(t, BODY);
    let zeros = "0".repeat(64);
    stage.accept(&stripe(&format!("t={t},v1={zeros},v1={digest},v1={zeros}")));
}

// SH-11
#[test]
fn one_good_entry_among_bad_and_unknown_ones_is_enough() {
    let stage = Stage::new(|setup| setup.standard());
    let t = unix_now();
    let digest = sign::standard_digest("msg_1", t, BODY);
    assert_eq!(
        sign::standard_digest("msg_1", 1_700_000_000, BODY),
        "/+qPlAq2aQuk0ezu+sxJUrMSs8X7in8NiT3fduWIvv8="
    );
    let request = Request::post("/hooks/standard", BODY)
        .header("webhook-id", "msg_1")
        .header("webhook-timestamp", t.to_string())
        .header("webhook-signature", format!("v1,AAAA v1,{digest} v2,BBBB v1a,CCCC"));
    stage.accept(&request);
}

// SH-13
#[test]
fn header_families_are_used_whole_and_never_mixed() {
    let stage = Stage::new(|setup| setup.standard().source("svix", "svix", sign::STANDARD_SECRET, ""));
    let t = unix_now();
    stage.accept(&sign::standard("webhook", "/hooks/standard", "msg_a", t, BODY));
    stage.accept(&sign::standard("svix", "/hooks/svix", "msg_b", t, BODY));
    // The signed id is webhook-id's; svix-id must not become the delivery id.
    let mixture = sign::standard("webhook", "/hooks/standard", "msg_c", t, BODY)
        .header("svix-id", "other")
        .header("svix-timestamp", t.to_string())
        .header("svix-signature", "v1,AAAA");
    let received = stage.accept(&mixture);
    assert_eq!(received.header("Hooksluice-Delivery-Id"), Some("msg_c"));
    // An id of one family and a signature of the other make no request.
    let torn = Request::post("/hooks/standard", BODY)
        .header("webhook-id", "msg_d")
        .header("svix-timestamp", t.to_string())
        .header(
            "svix-signature",
            format!("v1,{}", sign::standard_digest("msg_d", t, BODY)),
        );
    stage.refuse(&torn);
}

// SH-14
#[test]
fn several_digests_in_one_value_are_read_only_where_the_scheme_says_so() {
    let value = format!("sha256={},sha256={SHA256}", "0".repeat(64));
    let scheme = "hash = \"sha256\"\nsignature = [\"header:X-Sig\"]\nprefix = \"sha256=\"\nencoding = \"hex\"";
    let stage = Stage::new(|setup| own_scheme(setup, scheme));
    stage.refuse(&own("sh-14", "X-Sig", &value));
    let stage = Stage::new(|setup| own_scheme(setup, &format!("{scheme}\nparse = \"list\"\nseparator = \",\"")));
    stage.accept(&own("sh-14", "X-Sig", &value));
}

// SH-15
#[test]
fn a_signature_of_any_wrong_length_is_an_ordinary_refusal() {
    let stage = Stage::new(|setup| setup.github());
    stage.refuse(&github("sh-15"));
    for value in [
        String::new(),
        "sha256=".to_owned(),
        "sha256=ab".to_owned(),
        format!("sha256={}", "a".repeat(63)),
        format!("sha256={}", "a".repeat(65)),
        format!("sha256={}", "a".repeat(128)),
        "a".repeat(8 << 10),
        format!("sha256={}", "é".repeat(32)),
    ] {
        stage.refuse(&github("sh-15").header("X-Hub-Signature-256", value));
    }
}

// SH-17
#[test]
fn header_values_outside_ascii_pass_through_with_number_order_and_bytes() {
    let stage = Stage::new(|setup| setup.github());
    let cyrillic = b"\xd1\x82\xd0\xb5\xd1\x81\xd1\x82";
    let request = github("sh-17")
        .header("X-Hub-Signature-256", format!("sha256={SHA256}"))
        .header("X-Note", cyrillic)
        .header("X-Note", b"\xff");
    let received = stage.accept(&request);
    assert_eq!(received.values("X-Note"), [&cyrillic[..], b"\xff"]);
    let shown = stage
        .server
        .admin_get(&format!("/api/v1/events/{}", received.event_id()));
    assert_eq!(shown.status, 200, "{shown:?}");
}

// SH-19
#[test]
fn a_weak_signature_never_rescues_a_strong_one() {
    let stage = Stage::new(|setup| {
        own_scheme(
            setup.github(),
            "hash = \"sha1\"\nsignature = [\"header:X-Hub-Signature\"]\nprefix = \"sha1=\"\nencoding = \"hex\"",
        )
    });
    let weak = format!("sha1={SHA1}");
    let wrong = format!("sha256={}", "0".repeat(64));
    stage.refuse(
        &github("a")
            .header("X-Hub-Signature-256", wrong)
            .header("X-Hub-Signature", &weak),
    );
    stage.refuse(&github("b").header("X-Hub-Signature", &weak));
    stage.accept(&own("c", "X-Hub-Signature", &weak));
    let right = format!("sha256={SHA256}");
    stage.accept(
        &github("d")
            .header("X-Hub-Signature-256", right)
            .header("X-Hub-Signature", "sha1=00"),
    );
}

// SH-21
#[test]
fn a_missing_signature_and_a_wrong_one_are_told_apart_for_the_operator_only() {
    let stage = Stage::new(|setup| setup.github());
    stage.refuse(&github("sh-21"));
    stage.refuse(&github("sh-21").header("X-Hub-Signature-256", format!("sha256={}", "0".repeat(64))));
    let server = &stage.server;
    for reason in ["missing_signature", "wrong_signature"] {
        let labels = ["source=\"github\"".to_owned(), format!("reason=\"{reason}\"")];
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        assert_eq!(server.metric("hooksluice_rejections_total", &labels), 1.0, "{reason}");
    }
}

// SH-21
#[test]
fn a_header_name_that_proxies_drop_is_warned_about() {
    let stage = Stage::new(|setup| {
        own_scheme(
            setup,
            "hash = \"sha256\"\nsignature = [\"header:X_Signature\"]\nencoding = \"hex\"",
        )
        .allow_log("underscore")
    });
    stage.server.wait_for_log(&["WARN", "underscore"]);
    stage.accept(&own("sh-21", "X_Signature", SHA256));
}

// SC-01
#[test]
fn a_refusal_shows_the_expected_digest_nowhere() {
    let stage = Stage::new(|setup| setup.github());
    let wrong = "0123456789abcdef".repeat(4);
    stage.refuse(&github("sc-01").header("X-Hub-Signature-256", format!("sha256={wrong}")));
    let metrics = stage.server.admin_get("/metrics").text();
    let log = stage.server.log_text();
    for digest in [SHA256, &base64(&sha256(SECRET.as_bytes(), &[BODY])), &wrong] {
        assert!(!metrics.contains(digest) && !log.contains(digest), "{digest} is shown");
    }
}
