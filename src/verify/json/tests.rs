//! Looking values up: what is found, and what is no JSON.

use super::scanner::plain_len;
use super::*;
use proptest::prelude::*;

fn look(body: &str, pointer: &str) -> Option<String> {
    value(body.as_bytes(), &Pointer::parse(pointer).unwrap()).map(Cow::into_owned)
}

#[test]
fn several_pointers_are_answered_in_one_pass() {
    let pointers = ["/id", "/event/type", "/a/1/b", "/event", "/none"].map(|p| Pointer::parse(p).unwrap());
    let body = br#" { "event" : {"x":[1,{}],"type":"push"}, "a":[0,{"b":1.50}], "id":"\u0041b" } "#;
    let found = find(body, &pointers);
    let values = [0, 1, 2, 3, 4].map(|index| found.value(body, index));
    assert_eq!(
        values,
        [Some("Ab".into()), Some("push".into()), Some("1.50".into()), None, None]
    );
}

#[test]
fn a_number_gives_its_literal_text_and_null_gives_nothing() {
    assert_eq!(
        look("{\"v\":12345678901234567890.0}", "/v").as_deref(),
        Some("12345678901234567890.0")
    );
    assert_eq!(look("{\"v\":7}", "/v").as_deref(), Some("7"));
    assert_eq!(look("{\"v\":true}", "/v").as_deref(), Some("true"));
    for none in ["{\"v\":null}", "{\"v\":{}}", "{\"v\":[]}", "{}", "[]", "7", ""] {
        assert_eq!(look(none, "/v"), None, "{none}");
    }
}

#[test]
fn pointers_may_be_more_than_one_pass_looks_for() {
    let pointers: Vec<_> = (0..200).map(|n| Pointer::parse(&format!("/m{n}")).unwrap()).collect();
    let members: Vec<_> = (0..200).map(|n| format!("\"m{n}\":{n}")).collect();
    let body = format!("{{{}}}", members.join(","));
    let found = find(body.as_bytes(), &pointers);
    for n in 0..200 {
        assert_eq!(found.value(body.as_bytes(), n), Some(n.to_string().into()), "{n}");
    }
    assert_eq!(find(b"{", &pointers).value(b"{", 199), None);
}

#[test]
fn a_byte_order_mark_is_skipped() {
    assert_eq!(look("\u{feff}{\"id\":\"x\"}", "/id").as_deref(), Some("x"));
}

#[test]
fn the_last_of_repeated_names_counts_even_when_it_holds_nothing() {
    assert_eq!(look(r#"{"id":"a","id":"b"}"#, "/id").as_deref(), Some("b"));
    assert_eq!(look(r#"{"e":{"t":"a"},"e":{}}"#, "/e/t"), None);
    assert_eq!(look(r#"{"id":"a","id":null}"#, "/id"), None);
}

#[test]
fn a_name_that_is_given_twice_is_noticed_where_a_pointer_leads_over_it() {
    let repeated = |body: &str, pointers: &[&str]| {
        let pointers: Vec<_> = pointers.iter().map(|p| Pointer::parse(p).unwrap()).collect();
        is_repeated(body.as_bytes(), &pointers)
    };
    assert!(repeated(r#"{"id":"a","x":1,"id":"a"}"#, &["/id"]));
    assert!(repeated(r#"{"i\u0064":"a","id":"b"}"#, &["/id"]));
    assert!(repeated(r#"{"e":{"t":"a"},"e":1}"#, &["/e/t"]));
    assert!(repeated(r#"{"e":[{"t":1,"t":2}]}"#, &["/x", "/e/0/t"]));
    assert!(!repeated(
        r#"{"e":{"t":"a","x":1,"x":2},"x":1,"x":2}"#,
        &["/e/t", "/e/y"]
    ));
    assert!(!repeated(r#"{"e":{"t":1,"u":2}}"#, &["/e/t", "/e/u", "/e"]));
    assert!(!repeated(r#"{"id":1,"id":2"#, &["/id"]));
}

#[test]
fn a_body_that_is_not_json_to_its_end_has_no_values() {
    for bad in [
        r#"{"id":"a""#,
        r#"{"id":"a",}"#,
        r#"{"id":"a"}x"#,
        r#"{"id":"a" "b":1}"#,
        r#"{"id":"a","x":01}"#,
        r#"{"id":"a","x":"\q"}"#,
        r#"{"id":"a","x":[1 2]}"#,
        r#"{"id":"a","x":{]}}"#,
        "{\"id\":\"a\",\"x\":\"\n\"}",
        r#"{"id":"a","x":tru}"#,
        r#"{"id":"a","x":-}"#,
        r#"{"id":"a","x":1.}"#,
        r#"{"id":"a","x":"\u12g4"}"#,
    ] {
        assert_eq!(look(bad, "/id"), None, "{bad}");
    }
}

#[test]
fn a_name_with_escapes_is_found_by_its_meaning() {
    assert_eq!(look(r#"{"i\u0064":"a"}"#, "/id").as_deref(), Some("a"));
    assert_eq!(look(r#"{"a/b":{"~":"x"}}"#, "/a~1b/~0").as_deref(), Some("x"));
}

#[test]
fn deep_nesting_neither_overflows_nor_counts_as_json() {
    let deep = format!(
        "{{\"x\":{}{},\"id\":\"a\"}}",
        "[".repeat(1_000_000),
        "]".repeat(1_000_000)
    );
    assert_eq!(look(&deep, "/id"), None);
    let fine = format!("{{\"x\":{}{},\"id\":\"a\"}}", "[".repeat(128), "]".repeat(128));
    assert_eq!(look(&fine, "/id").as_deref(), Some("a"));
}

#[test]
fn text_that_is_not_utf_8_gives_nothing_and_harms_no_other_value() {
    let pointers = ["/a", "/b"].map(|p| Pointer::parse(p).unwrap());
    let body = b"{\"a\":\"\xff\",\"b\":\"x\"}";
    let found = find(body, &pointers);
    assert_eq!([0, 1].map(|index| found.value(body, index)), [None, Some("x".into())]);
}

proptest! {
    #[test]
    fn eight_bytes_at_a_time_find_the_same_end(text in prop::collection::vec(prop::sample::select(&b"\"\\\x1f\x00\x20\x21\x5b\x7f\x80\xff\xa2\xdcaaaaaaaaaaaa"[..]), 0..40), before in 0usize..300) {
        let text = ["b".repeat(before).as_bytes(), &text].concat();
        let slow = text.iter().position(|b| matches!(b, b'"' | b'\\' | 0..=0x1f)).unwrap_or(text.len());
        prop_assert_eq!(plain_len(&text), slow);
    }

    #[test]
    fn agrees_with_serde_json_on_damaged_documents(
        at in 0usize..80, byte in prop::sample::select(&b"\"\\{}[]:,0e.-tn \x01x"[..]),
    ) {
        let mut body = br#"{"a":{"b":[1,-2.5e+3,"x\"y"],"id":"q"},"t":true,"n":null,"e":{},"l":[]}"#.to_vec();
        let at = at % body.len();
        body[at] = byte;
        let pointer = [Pointer::parse("/a/id").unwrap()];
        let ours = scan(&body, &pointer);
        let theirs: Result<serde_json::Value, _> = serde_json::from_slice(&body);
        prop_assert_eq!(ours.is_some(), theirs.is_ok(), "{}", String::from_utf8_lossy(&body));
        if let Ok(document) = theirs {
            let expected = document.pointer("/a/id").and_then(|v| match v {
                serde_json::Value::String(s) => Some(s.clone()),
                serde_json::Value::Number(n) => Some(n.to_string()),
                serde_json::Value::Bool(b) => Some(b.to_string()),
                _ => None,
            });
            prop_assert_eq!(value(&body, &pointer[0]).map(Cow::into_owned), expected);
        }
    }
}
