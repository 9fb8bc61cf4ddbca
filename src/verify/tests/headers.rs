//! Signature headers: spellings, lists and families of them.

use super::*;

#[test]
fn the_bytes_are_verified_whatever_they_spell() {
    // RB-01, RB-04, RB-12, RB-13: escapes, other charsets, form bodies.
    let github = preset("github", &[SECRET]);
    for (body, digest) in [
        (
            "{\"t\":\"\\u001B[0m\"}",
            "eddd9834d86ce4bd9f7f04ef017aa8a1a95cea94465ce48d1b27a3b609ccc22e",
        ),
        (
            "{\"note\":\"₹ 500 😊\"}",
            "593090ac4bfa1998f11aad6aa33bf20cd39ebd918343674322ae3bd4179d9dd5",
        ),
        ("{\"a\":1}", GOOD_HEX),
        (
            "payload=%7B%22zen%22%3A%22a+b%22%7D",
            "9720ed759d5594bed0f40a34953f6959d6ed5b4977272b76006137b08c111ca1",
        ),
    ] {
        for content_type in [
            "application/json",
            "application/json; charset=iso-8859-1",
            "application/x-www-form-urlencoded",
        ] {
            let headers = [
                ("x-hub-signature-256", &*format!("sha256={digest}")),
                ("content-type", content_type),
            ];
            assert!(accepts(&github, post(&headers, body)), "{body}");
        }
    }
}

#[test]
fn final_line_ends_and_marks_are_part_of_the_body() {
    // RB-07, RB-08, RB-10, RB-16.
    let stripe = preset("stripe", &[STRIPE]);
    let header = "t=1700000000,v1=bc1bfda9051cfd598c8366593a9cc0f95456db58fe2a8ce0371dbade916be9b9";
    assert!(accepts(
        &stripe,
        post(&[("stripe-signature", header)], "{\n \"a\": 1\n}")
    ));
    let changed = post(&[("stripe-signature", header)], "{\r\n \"a\": 1\r\n}");
    assert_eq!(verdict(&stripe, changed).err(), Some(Reason::WrongSignature));

    let plain = custom("kind = \"hmac\"\nsignature = \"header:X-Sig\"", &[SECRET]);
    let header = [(
        "x-sig",
        "a84a70a1dec74955375122f2c078291bb4ffbc04910f9e67df93368ef1be0f77",
    )];
    assert!(accepts(&plain, post(&header, "[{\"event\":\"open\"}]\r\n")));
    assert!(!accepts(&plain, post(&header, "[{\"event\":\"open\"}]")));

    let marked = custom(
        "kind = \"hmac\"\nsignature = \"header:X-Sig\"\nprefix = \"sha256=\"\ndelivery_id = \"json:/value\"",
        &[SECRET],
    );
    let header = [(
        "x-sig",
        "sha256=c42ae9da405b9a37e2deb72b5565edfe52cd513b97f6366a039c473514471ef6",
    )];
    let body = data_encoding::HEXLOWER
        .decode(b"efbbbf7b2276616c7565223a5b5d7d")
        .unwrap();
    assert_eq!(verdict(&marked, post(&header, body)).unwrap().delivery_id(), None);

    let wrapped = [("x-hub-signature-256", &*format!("sha256={GOOD_HEX}"))];
    assert!(!accepts(&preset("github", &[SECRET]), post(&wrapped, "eyJhIjoxfQ==")));
}

#[test]
fn a_digest_has_one_spelling_per_record_and_white_space_around_it_is_none_of_it() {
    // SH-01, SH-02, SH-04.
    let sha1 = custom(
        "kind = \"hmac\"\nhash = \"sha1\"\nsignature = \"header:X-Hub-Signature\"\nprefix = \"sha1=\"",
        &[SECRET],
    );
    let header = [("x-hub-signature", "sha1=EA768B1B342A889032008018C2794903F119399B")];
    assert!(accepts(&sha1, post(&header, "{\"a\":1}")));

    let text = "kind = \"hmac\"\nsignature = \"header:X-Sig\"\nprefix = \"sha256=\"\n";
    let hex = custom(text, &[SECRET]);
    let base64 = custom(&format!("{text}encoding = \"base64\""), &[SECRET]);
    let optional = custom(&format!("{text}prefix_optional = true"), &[SECRET]);
    let in_base64 = "sha256=sA3dZHH2LddVnNynJkmPz1uwgKicOHlDtBBcYni7Las=";
    let judge =
        |verifier: &Verifier, value: &str| verdict(verifier, post(&[("x-sig", value)], "{\"a\":1}")).map(|_| ());
    assert_eq!(judge(&hex, &format!("sha256= {GOOD_HEX}")), Ok(()));
    assert_eq!(judge(&base64, in_base64), Ok(()));
    assert_eq!(judge(&hex, in_base64), Err(Reason::MalformedSignature));
    assert_eq!(judge(&hex, &format!(" \tsha256={GOOD_HEX}\t ")), Ok(()));
    assert_eq!(judge(&hex, GOOD_HEX), Err(Reason::MalformedSignature));
    assert_eq!(judge(&optional, GOOD_HEX), Ok(()));
    for (bad, reason) in [
        ("sha256=", Reason::MalformedSignature),
        ("=", Reason::MalformedSignature),
        ("", Reason::MissingSignature),
        ("  ", Reason::MissingSignature),
    ] {
        assert_eq!(judge(&hex, bad), Err(reason), "{bad}");
        assert_eq!(judge(&optional, bad), Err(reason), "{bad}");
    }
}

#[test]
fn the_algorithm_comes_from_the_record_alone() {
    // SH-05, SH-15, SH-19.
    let github = preset("github", &[SECRET]);
    let judge = |value: &str| verdict(&github, post(&[("x-hub-signature-256", value)], "{\"a\":1}")).map(|_| ());
    for bad in [
        format!("bogus={GOOD_HEX}"),
        "sha1=ea768b1b342a889032008018c2794903f119399b".to_owned(),
        "sha256=ab".to_owned(),
        format!("sha256={}", GOOD_HEX.split_at(1).1),
        format!("sha256={GOOD_HEX}0"),
        format!("sha256={GOOD_HEX}{GOOD_HEX}"),
        "a".repeat(8192),
    ] {
        assert_eq!(judge(&bad), Err(Reason::MalformedSignature), "{bad}");
    }
    let (good, sha1) = (
        format!("sha256={GOOD_HEX}"),
        "sha1=ea768b1b342a889032008018c2794903f119399b",
    );
    let wrong = format!("sha256={}", GOOD_HEX.replace('b', "c"));
    let both = |strong: &str, weak: &str| {
        accepts(
            &github,
            post(
                &[("x-hub-signature-256", strong), ("x-hub-signature", weak)],
                "{\"a\":1}",
            ),
        )
    };
    assert!(!both(&wrong, sha1));
    assert!(both(&good, "sha1=00"));
    assert_eq!(
        verdict(&github, post(&[("x-hub-signature", sha1)], "{\"a\":1}")).err(),
        Some(Reason::MissingSignature)
    );
}

#[test]
fn stripe_lists_bear_rotation_spaces_order_and_split_lines() {
    // SH-06, SH-08, SH-09.
    let stripe = preset("stripe", &[STRIPE]);
    let good = "63f752f086be6cd270f7984ac297188cf21a40e2f30d0966e58f9d4548125eef";
    let judge = |lines: &[&str]| {
        let headers: Vec<_> = lines.iter().map(|line| ("stripe-signature", *line)).collect();
        verdict(&stripe, post(&headers, "{\"a\":1}")).map(|_| ())
    };
    for accepted in [
        format!("t=1700000000, v1={good} ,  v0=00"),
        format!("v0=00,v1={good},t=1700000000"),
        format!("t=1700000000,v1={good},v0=00,x=y"),
        format!("t=1700000000,v1={},v1={good}", good.replace('6', "7")),
    ] {
        assert_eq!(judge(&[&accepted]), Ok(()), "{accepted}");
    }
    assert_eq!(judge(&["t=1700000000", &format!("v1={good}"), "v0=00"]), Ok(()));
    for refused in ["v0", "v2", "v11", "V1"] {
        let header = format!("t=1700000000,{refused}={good}");
        assert_eq!(judge(&[&header]), Err(Reason::MalformedSignature), "{refused}");
    }
    assert_eq!(judge(&[&format!("v1={good}")]), Err(Reason::MissingTimestamp));
    assert_eq!(judge(&[&format!("t=x,v1={good}")]), Err(Reason::MalformedTimestamp));
    assert_eq!(
        judge(&[&format!("t=1700000000,t=1700000001,v1={good}")]),
        Err(Reason::MissingTimestamp)
    );
}

#[test]
fn one_whole_header_family_is_taken_never_parts_of_two() {
    // SH-11, SH-13.
    let standard = preset("standard-webhooks", &[STANDARD]);
    let signature = "v1,AAAA v1,/+qPlAq2aQuk0ezu+sxJUrMSs8X7in8NiT3fduWIvv8= v2,BBBB v1a,CCCC";
    let body = find_body(&standard, signature);
    let family = |prefix: &str, id: &str, signature: &str| {
        [
            (format!("{prefix}-id"), id.to_owned()),
            (format!("{prefix}-timestamp"), "1700000000".to_owned()),
            (format!("{prefix}-signature"), signature.to_owned()),
        ]
    };
    let judge = |lines: Vec<(String, String)>| {
        let lines: Vec<_> = lines.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        verdict(&standard, post(&lines, body.clone()))
    };
    for prefix in ["webhook", "svix"] {
        let event = judge(family(prefix, "msg_1", signature).to_vec()).unwrap();
        assert_eq!(event.delivery_id(), Some("msg_1"));
    }
    let mixed = |webhook: [(String, String); 3], svix: [(String, String); 3]| judge([webhook, svix].concat());
    let event = mixed(
        family("webhook", "msg_1", signature),
        family("svix", "other", signature),
    )
    .unwrap();
    assert_eq!(event.delivery_id(), Some("msg_1"));
    // A good svix family does not rescue a bad webhook family.
    let bad = mixed(
        family("webhook", "other", signature),
        family("svix", "msg_1", signature),
    );
    assert_eq!(bad.err(), Some(Reason::WrongSignature));
}

/// The body behind the digest that the case prints.
fn find_body(standard: &Verifier, signature: &str) -> Bytes {
    let headers = [
        ("webhook-id", "msg_1"),
        ("webhook-timestamp", "1700000000"),
        ("webhook-signature", signature),
    ];
    let bodies = ["{\"a\":1}", "{}", "", "{\"type\":\"a\"}"].map(|body| Bytes::from_static(body.as_bytes()));
    bodies
        .into_iter()
        .find(|body| accepts(standard, post(&headers, body.clone())))
        .unwrap()
}

#[test]
fn several_digests_count_only_where_the_record_says_so() {
    // SH-14.
    let text = "kind = \"hmac\"\nsignature = \"header:X-Sig\"\nprefix = \"sha256=\"\n";
    let (single, multi) = (
        custom(text, &[SECRET]),
        custom(&format!("{text}parse = \"list\""), &[SECRET]),
    );
    let zeros = "0".repeat(64);
    let joined = format!("sha256={zeros},sha256={GOOD_HEX}");
    assert!(accepts(&multi, post(&[("x-sig", &joined)], "{\"a\":1}")));
    assert!(!accepts(&single, post(&[("x-sig", &joined)], "{\"a\":1}")));
    // A hop may join two lines into one, so two lines mean the same.
    let (first, second) = (format!("sha256={zeros}"), format!("sha256={GOOD_HEX}"));
    let lines = [("x-sig", first.as_str()), ("x-sig", second.as_str())];
    assert!(accepts(&multi, post(&lines, "{\"a\":1}")));
    assert!(!accepts(&single, post(&lines, "{\"a\":1}")));
}
