//! The bytes are the bytes (P4): what was signed is what is verified, stored and forwarded.

use std::time::Duration;

use crate::harness::client::http2;
use crate::harness::sign::{self, SECRET, base64, hex, sha256};
use crate::harness::{Request, Stage, eventually, unix_now};

fn github_with(digest: &str, id: &str, body: &[u8]) -> Request {
    Request::post("/hooks/github", body)
        .header("X-GitHub-Event", "push")
        .header("X-GitHub-Delivery", id)
        .header("X-Hub-Signature-256", format!("sha256={digest}"))
}

// RB-01
#[test]
fn an_escape_in_upper_case_hex_is_not_reprinted() {
    let stage = Stage::new(|setup| setup.github());
    let body = br#"{"t":"\u001B[0m"}"#;
    assert_eq!(body.len(), 17);
    stage.accept(&github_with(
        "eddd9834d86ce4bd9f7f04ef017aa8a1a95cea94465ce48d1b27a3b609ccc22e",
        "rb-01",
        body,
    ));
}

// RB-03
#[test]
fn layout_number_forms_and_double_keys_survive_forward_admin_and_replay() {
    let stage = Stage::new(|setup| setup.stripe());
    let body =
        b"{\n  \"id\": \"evt_1\",\n  \"amount\": 1.0,\n  \"big\": 12345678901234567890,\n  \"a\": 1,\n  \"a\": 2\n}";
    assert_eq!(body.len(), 87);
    // The published digest shows that the sender of these tests signs as Stripe does.
    assert_eq!(
        sign::stripe_digest(1_700_000_000, body),
        "ddf390302ee2cb65f480a5037269f94b315fb848c3321d267f2ff084458572c3"
    );
    let received = stage.accept(&sign::stripe("/hooks/stripe", unix_now(), body));
    let event = received.event_id();
    // A dispatch whose attempt still runs is not replayed.
    let shown = eventually("the delivery to be settled", || {
        let shown = stage.server.admin_get(&format!("/api/v1/events/{event}")).json();
        (shown["summary"]["dispatches"][0]["state"] == "delivered").then_some(shown)
    });
    assert_eq!(shown["body_base64"], base64(body));
    let answer = stage.server.admin_post(&format!("/api/v1/events/{event}/replay"), "{}");
    assert_eq!(answer.status, 200, "{answer:?}");
    let replayed = stage.upstream.wait_for(2).pop().unwrap();
    assert_eq!(replayed.body, body);
    assert_eq!(replayed.header("Hooksluice-Replay"), Some("true"));
    assert_eq!(replayed.event_id(), event);
}

// RB-04
#[test]
fn the_declared_charset_is_irrelevant() {
    let stage = Stage::new(|setup| setup.github());
    let body = "{\"note\":\"₹ 500 😊\"}".as_bytes();
    assert_eq!(body.len(), 23);
    let digest = "593090ac4bfa1998f11aad6aa33bf20cd39ebd918343674322ae3bd4179d9dd5";
    for (id, content_type) in [
        ("a", Some("application/json")),
        ("b", Some("application/json; charset=iso-8859-1")),
        ("c", None),
    ] {
        let mut request = github_with(digest, id, body);
        if let Some(content_type) = content_type {
            request = request.header("Content-Type", content_type);
        }
        let received = stage.accept(&request);
        assert_eq!(received.header("Content-Type"), content_type);
    }
}

// RB-06
#[test]
fn a_character_split_over_reads_chunks_and_frames_is_one_character() {
    let stage = Stage::new(|setup| setup.source("shopify", "shopify", SECRET, ""));
    let body = "{\"v\":\"mânecă\"}".as_bytes();
    let cut = body.iter().position(|byte| *byte == 0xc3).unwrap() + 1;
    let request = |id: &str| {
        Request::post("/hooks/shopify", body)
            .header("X-Shopify-Topic", "products/update")
            .header("X-Shopify-Webhook-Id", id)
            .header("X-Shopify-Hmac-Sha256", "1p+j/bE3+K6vJHNQ/+kDElcWNVbJFgKgaBYLyhIXlTI=")
    };
    // Two writes with a pause.
    let bytes = request("one").bytes();
    let (first, second) = bytes.split_at(bytes.len() - (body.len() - cut));
    let mut connection = stage.server.connect();
    connection.send(first);
    std::thread::sleep(Duration::from_millis(100));
    connection.send(second);
    assert_eq!(connection.read().status, 200);
    // Two chunks.
    let bytes = request("two").chunked(&[&body[..cut], &body[cut..]]);
    assert_eq!(stage.server.send_bytes(&bytes).status, 200);
    // Two DATA frames.
    let frames = vec![body[..cut].to_vec(), body[cut..].to_vec()];
    assert_eq!(http2(stage.server.address(), &request("three"), frames), 200);
    for received in stage.upstream.wait_for(3) {
        assert_eq!(received.body, body);
    }
}

// RB-07
#[test]
fn line_ends_changed_on_the_way_are_a_changed_body() {
    let stage = Stage::new(|setup| setup.stripe());
    let body = b"{\n \"a\": 1\n}";
    assert_eq!(
        sign::stripe_digest(1_700_000_000, body),
        "bc1bfda9051cfd598c8366593a9cc0f95456db58fe2a8ce0371dbade916be9b9"
    );
    let request = sign::stripe("/hooks/stripe", unix_now(), body);
    stage.accept(&request);
    let mut changed = request;
    changed.body = b"{\r\n \"a\": 1\r\n}".to_vec();
    stage.refuse(&changed);
}

// RB-08
#[test]
fn a_trailing_line_end_belongs_to_the_body() {
    let stage = Stage::new(|setup| setup.plain());
    let body = b"[{\"event\":\"open\"}]\r\n";
    let digest = "a84a70a1dec74955375122f2c078291bb4ffbc04910f9e67df93368ef1be0f77";
    let request = Request::post("/hooks/plain", &body[..])
        .header("X-Delivery-Id", "rb-08")
        .header("X-Signature", format!("sha256={digest}"));
    stage.accept(&request);
    let mut cut = request;
    cut.body.truncate(18);
    stage.refuse(&cut);
}

// RB-10
#[test]
fn a_byte_order_mark_is_kept_and_does_not_disturb_looking_up_the_id() {
    let stage = Stage::new(|setup| {
        setup
            .table_after(
                "[providers.marked]\nkind = \"hmac\"\nhash = \"sha256\"\nsignature = [\"header:X-Hub-Signature-256\"]\n\
                 prefix = \"sha256=\"\nencoding = \"hex\"\npayload = \"{body}\"\ndelivery_id = \"json:/id\"",
            )
            .source("marked", "marked", SECRET, "id_missing = \"digest\"")
    });
    let request = |body: &[u8]| {
        Request::post("/hooks/marked", body).header(
            "X-Hub-Signature-256",
            format!("sha256={}", hex(&sha256(SECRET.as_bytes(), &[body]))),
        )
    };
    let without_id = b"\xef\xbb\xbf{\"value\":[]}";
    assert_eq!(
        hex(&sha256(SECRET.as_bytes(), &[without_id])),
        "c42ae9da405b9a37e2deb72b5565edfe52cd513b97f6366a039c473514471ef6"
    );
    stage.accept(&request(without_id));
    let received = stage.accept(&request(b"\xef\xbb\xbf{\"id\":\"rb-10\"}"));
    assert_eq!(received.header("Hooksluice-Delivery-Id"), Some("rb-10"));
}

// RB-11: the bytes on the wire are what counts, unless a provider's record says otherwise.
#[test]
fn a_content_encoding_is_neither_undone_nor_removed() {
    let stage = Stage::new(|setup| setup.github());
    let wire = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03not quite gzip";
    let request = sign::github("/hooks/github", "rb-11", wire).header("Content-Encoding", "gzip");
    let received = stage.accept(&request);
    assert_eq!(received.header("Content-Encoding"), Some("gzip"));
    let plain_digest = "bd69ec304d8fb9d3a6b617095b11f8fdb722b78ca19747d9fcdc67b02d68210d";
    stage.refuse(&github_with(plain_digest, "rb-11-b", wire).header("Content-Encoding", "gzip"));
}

// RB-12
#[test]
fn a_body_without_content_length_is_a_body() {
    let stage = Stage::new(|setup| setup.github());
    let body = br#"{"a":1}"#;
    let digest = "b00ddd6471f62dd7559cdca726498fcf5bb080a89c387943b4105c6278bb2dab";
    let bytes = github_with(digest, "chunked", body).chunked(&[&body[..3], &body[3..]]);
    assert_eq!(stage.server.send_bytes(&bytes).status, 200);
    assert_eq!(
        http2(
            stage.server.address(),
            &github_with(digest, "h2", body),
            vec![body.to_vec()]
        ),
        200
    );
    for received in stage.upstream.wait_for(2) {
        assert_eq!(received.body, body);
        assert_eq!(received.header("Content-Length"), Some("7"));
        assert_eq!(received.header("Transfer-Encoding"), None);
    }
}

// RB-13
#[test]
fn a_form_is_verified_and_forwarded_as_the_text_that_it_is() {
    let stage = Stage::new(|setup| setup.github());
    let request = github_with(
        "9720ed759d5594bed0f40a34953f6959d6ed5b4977272b76006137b08c111ca1",
        "rb-13",
        b"payload=%7B%22zen%22%3A%22a+b%22%7D",
    )
    .header("Content-Type", "application/x-www-form-urlencoded");
    let received = stage.accept(&request);
    assert_eq!(
        received.header("Content-Type"),
        Some("application/x-www-form-urlencoded")
    );
}

// RB-15
#[test]
fn a_truncated_body_is_never_accepted_even_if_its_prefix_verifies() {
    let stage = Stage::new(|setup| setup.tables("[limits]\nbody_timeout = \"1s\"").github());
    let body = vec![b'x'; 2684];
    let mut request = sign::github("/hooks/github", "rb-15", &body).head();
    request.extend(b"Content-Length: 2689\r\n\r\n");
    request.extend(&body);
    stage.leaves_nothing(|| {
        let mut closing = stage.server.connect();
        closing.send(&request);
        closing.finish_sending();
        let answer = closing.try_read(false).unwrap();
        assert!(answer.is_none_or(|answer| answer.status == 400));

        let mut silent = stage.server.connect();
        silent.send(&request);
        assert_eq!(silent.read().status, 408);
        assert!(silent.closes_within(Duration::from_secs(5)));
    });
}

// RB-16
#[test]
fn base64_text_is_not_decoded_on_a_guess() {
    let stage = Stage::new(|setup| setup.github());
    let digest = "b00ddd6471f62dd7559cdca726498fcf5bb080a89c387943b4105c6278bb2dab";
    stage.refuse(&github_with(digest, "rb-16", b"eyJhIjoxfQ=="));
}

#[test]
fn an_empty_body_is_signed_stored_and_forwarded_like_any_other() {
    let stage = Stage::new(|setup| setup.github());
    let received = stage.accept(&sign::github("/hooks/github", "empty", b""));
    assert_eq!(received.header("Content-Length"), Some("0"));
}

#[test]
fn every_byte_value_passes_through_unchanged() {
    let stage = Stage::new(|setup| setup.plain());
    let body: Vec<u8> = (0..=255).collect();
    stage.accept(&sign::plain("/hooks/plain", "bytes", &body));
}
