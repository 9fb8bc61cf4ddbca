//! What a record can say beyond a MAC over the body: each rule of the language on a small record of its own.

use super::*;

fn sign_headers(verifier: &Verifier, request: &mut RawRequest) {
    let signed = verifier
        .sign(&SignInput {
            method: &request.head.method,
            target: &request.head.target,
            authority: None,
            headers: &request.head.headers,
            body: &request.body,
            now: request.head.received_at,
            secret_index: None,
        })
        .unwrap();
    for (name, value) in signed {
        request.head.headers.insert(name, value);
    }
}

/// What `Record::read_text` says about a text that is wrong.
fn complaint(text: &str) -> String {
    let mut problems = Diagnostics::new();
    assert!(Record::read_text("acme", text, &mut problems).is_none(), "{text}");
    problems.render("acme.toml", text, false)
}

const DIGEST: &str = "kind = \"digest\"\nsignature = \"header:x-sig\"\n";

#[test]
fn a_plain_digest_holds_the_secret_and_rotates_like_a_mac() {
    let text = format!("{DIGEST}hash = \"sha1\"\npayload = \"{{secret}}:{{body}}\"\n");
    let verifier = custom(&text, &["new", "old"]);
    let mut made = post(&[], "{\"a\":1}");
    sign_headers(&custom(&text, &["old"]), &mut made);
    let event = verdict(&verifier, made).unwrap();
    assert_eq!(event.proof().secret_index, Some(1));
    let mut forged = post(&[], "{\"a\":1}");
    sign_headers(&custom(&text, &["other"]), &mut forged);
    assert_eq!(verdict(&verifier, forged).unwrap_err(), Reason::WrongSignature);
    assert!(custom(&text, &["s"]).record().body_authenticated());
}

#[test]
fn a_plain_digest_agrees_with_a_figure_made_elsewhere() {
    // printf 'k{"a":1}' | openssl dgst -md5
    let text = format!("{DIGEST}hash = \"md5\"\npayload = \"{{secret}}{{body}}\"\n");
    let request = post(&[("x-sig", "152c57c0025958fa951c07024f603cff")], "{\"a\":1}");
    assert!(verdict(&custom(&text, &["k"]), request).is_ok());
}

#[test]
fn a_digest_without_the_secret_and_a_mac_with_it_are_refused() {
    assert!(complaint(&format!("{DIGEST}payload = \"{{body}}\"\n")).contains("no `{secret}`"));
    let text = "kind = \"hmac\"\nsignature = \"header:x-sig\"\npayload = \"{secret}{body}\"\n";
    assert!(complaint(text).contains("a MAC's key is not part of its text"));
    let text = "kind = \"hmac\"\nsignature = \"header:x-sig\"\nhash = \"keccak256\"\n";
    assert!(complaint(text).contains("only `kind = \"digest\"` hashes with it"));
    let text = format!("{DIGEST}payload = \"{{secret}}{{body}}\"\nalso_require = [\"header:a == {{secret}}\"]\n");
    assert!(complaint(&text).contains("outside of `payload`"));
}

#[test]
fn each_of_the_texts_that_may_have_been_signed_is_tried() {
    let text = "kind = \"hmac\"\nsignature = \"header:x-sig\"\npayload = \"{body}\"\n";
    let variants = format!("{text}payload_variants = [\"{{body}}\\n\", \"v2:{{body}}\"]\n");
    let verifier = custom(&variants, &[SECRET]);
    for signed in ["x", "x\n", "v2:x"] {
        let mut request = post(&[], signed.to_owned());
        sign_headers(&custom(text, &[SECRET]), &mut request);
        request.body = "x".into();
        assert!(verdict(&verifier, request).is_ok(), "{signed:?}");
    }
    let mut request = post(&[], "x\n\n");
    sign_headers(&custom(text, &[SECRET]), &mut request);
    request.body = "x".into();
    assert_eq!(verdict(&verifier, request).unwrap_err(), Reason::WrongSignature);
    let many = format!("{text}payload_variants = [\"a{{body}}\", \"b{{body}}\", \"c{{body}}\", \"d{{body}}\"]\n");
    assert!(complaint(&many).contains("too many"));
}

#[test]
fn secrets_become_keys_as_the_record_says() {
    let plain = "kind = \"hmac\"\nsignature = \"header:x-sig\"\n";
    let same = |rule: &str, shown: &str, key: &str| {
        let mut request = post(&[], "{}");
        sign_headers(&custom(plain, &[key]), &mut request);
        let verifier = custom(&format!("{plain}{rule}\n"), &[shown]);
        assert!(verdict(&verifier, request).is_ok(), "{rule}");
    };
    same("secret_strip_prefix = \"signkey-*-\"", "signkey-prod-abcdef", "abcdef");
    same("secret_strip_prefix = [\"v1,\", \"whsec_\"]", "v1,whsec_abc", "abc");
    same("secret_strip_prefix = [\"v1,\", \"whsec_\"]", "whsec_abc", "abc");
    same("secret_normalise = \"html\"", "a &amp; b", "a & b");
    same("secret_normalise = \"NFKD\"", "s\u{e9}", "se\u{301}");
    same("secret_suffix = \"&\"", "abc", "abc&");
    let hashed = format!("{plain}secret_encoding = \"sha1\"\n");
    // printf abc | sha1sum, as a key in hexadecimal
    let by_hex = format!("{plain}secret_encoding = \"hex\"\n");
    let mut request = post(&[], "{}");
    sign_headers(
        &custom(&by_hex, &["a9993e364706816aba3e25717850c26c9cd0d89d"]),
        &mut request,
    );
    assert!(verdict(&custom(&hashed, &["abc"]), request).is_ok());
}
