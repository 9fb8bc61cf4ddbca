//! Templates: what they are filled with, and what is none.

use super::*;
use http::{HeaderMap, Method};

fn fill(template: &str, headers: &[(&'static str, &str)], body: &str) -> Result<String, Missing> {
    let params = ["app_key".to_owned()];
    let template = Template::parse(template, &params).unwrap();
    let pointers: Vec<Pointer> = template.pointers().cloned().collect();
    let map: HeaderMap = headers
        .iter()
        .map(|(k, v)| (http::HeaderName::from_static(k), v.parse().unwrap()))
        .collect();
    let target = "/p?q=1".parse().unwrap();
    let fields = Fields::new(&Method::POST, &target, &map, body.as_bytes(), &pointers);
    let params = BTreeMap::from([("app_key".to_owned(), "K".to_owned())]);
    let with = Filling {
        fields: &fields,
        params: &params,
        timestamp: Some(b"17"),
        url: "https://h.test/p?q=1",
        group: None,
        secret: None,
        mac: None,
    };
    let mut out = Vec::new();
    template.fill(&with, &mut out)?;
    Ok(String::from_utf8(out.concat()).unwrap())
}

#[test]
fn tokens_take_their_values_from_the_request() {
    assert_eq!(fill("v0:{timestamp}:{body}", &[], "B").as_deref(), Ok("v0:17:B"));
    assert_eq!(
        fill("{method}{path}|{path_query}", &[], "").as_deref(),
        Ok("POST/p|/p?q=1")
    );
    assert_eq!(
        fill("{url}|{url_no_query}|{app_key}", &[], "").as_deref(),
        Ok("https://h.test/p?q=1|https://h.test/p|K")
    );
    assert_eq!(fill("{header:x-a}{query:q}", &[("x-a", "")], "").as_deref(), Ok("1"));
    assert_eq!(fill("{json:/a}{json?:/b}", &[], "{\"a\":1}").as_deref(), Ok("1"));
}

#[test]
fn an_absent_value_is_told_by_where_it_should_stand() {
    assert_eq!(fill("{header:x-a}", &[], ""), Err(Missing::InHead));
    assert_eq!(fill("{json:/a}", &[], "{}"), Err(Missing::InBody));
    assert_eq!(
        fill("{form_sorted}", &[("content-type", "application/json")], "{}"),
        Err(Missing::InBody)
    );
}

#[test]
fn an_optional_segment_is_left_out_whole() {
    let template = "[[id:{query:q};]][[rid:{header:x-r};]]ts:{timestamp};";
    assert_eq!(fill(template, &[], "").as_deref(), Ok("id:1;ts:17;"));
    assert_eq!(fill(template, &[("x-r", "r")], "").as_deref(), Ok("id:1;rid:r;ts:17;"));
}

#[test]
fn a_repeated_signed_header_is_not_guessed_at() {
    let (name, map) = (http::HeaderName::from_static("x-a"), HeaderMap::new());
    let mut map = map;
    map.append(&name, "1".parse().unwrap());
    map.append(&name, "2".parse().unwrap());
    let template = Template::parse("{header:x-a}", &[]).unwrap();
    let target = "/".parse().unwrap();
    let fields = Fields::new(&Method::POST, &target, &map, b"", &[]);
    let params = BTreeMap::new();
    let with = Filling {
        fields: &fields,
        params: &params,
        timestamp: None,
        url: "",
        group: None,
        secret: None,
        mac: None,
    };
    assert_eq!(template.fill(&with, &mut Vec::new()), Err(Missing::InHead));
}

#[test]
fn json_braces_are_ordinary_characters() {
    assert_eq!(
        fill("{\"challenge\":\"{json:/c}\",\"t\":{}}", &[], "{\"c\":\"x\"}").as_deref(),
        Ok("{\"challenge\":\"x\",\"t\":{}}")
    );
}

#[test]
fn unknown_tokens_are_refused_with_a_proposal() {
    let error = Template::parse("{boddy}", &[]).unwrap_err();
    assert!(error.contains("did you mean `{body}`?"), "{error}");
    assert!(Template::parse("{body", &[]).is_err());
    assert!(Template::parse("[[{body}", &[]).is_err());
}
