//! Signature headers in every form, and every encoding of a digest.

use super::*;

fn form(parse: Parse) -> Form {
    Form {
        places: vec![Place::parse("header:x-sig").unwrap()],
        parse,
        prefix: String::new(),
        prefix_optional: false,
        encoding: Encoding::Hex,
        order: Vec::new(),
        max_n: 0,
    }
}

fn as_lines<const N: usize>(texts: [&str; N]) -> Few<Cow<'_, [u8]>> {
    let mut lines = Few::default();
    lines.extend(texts.map(|text| Cow::Borrowed(text.as_bytes())));
    lines
}

fn read<'v>(form: &Form, lines: &'v Few<Cow<'_, [u8]>>) -> Result<Vec<Group<'v>>, Reason> {
    form.groups(lines, Candidate::Digest(2))
}

fn tags(groups: &[Group<'_>]) -> Vec<Vec<u8>> {
    groups
        .iter()
        .flat_map(|g| g.tags.iter().map(|t| t.as_slice().to_vec()))
        .collect()
}

#[test]
fn hex_is_read_in_either_case_and_only_in_full() {
    assert_eq!(Encoding::Hex.decode(b"aBcD").unwrap().as_slice(), [0xab, 0xcd]);
    for bad in ["abc", "zz", "ab cd", "0xab"] {
        assert!(Encoding::Hex.decode(bad.as_bytes()).is_none(), "{bad}");
    }
    assert!(Encoding::Hex.decode(&[b'a'; 8192]).is_none());
    for byte in 0..=u8::MAX {
        for text in [[byte, b'0'], [b'0', byte]] {
            let known = data_encoding::HEXLOWER_PERMISSIVE.decode(&text).ok();
            let found = Encoding::Hex.decode(&text).map(|tag| tag.as_slice().to_vec());
            assert_eq!(found, known, "{text:?}");
        }
    }
}

#[test]
fn base64_must_be_canonical_in_the_form_that_the_record_names() {
    assert!(Encoding::Base64.decode(b"AAA=").is_some());
    for bad in ["AAA", "AAB=", "AA-_", "AAA=\n", " AAA="] {
        assert!(Encoding::Base64.decode(bad.as_bytes()).is_none(), "{bad}");
    }
    assert!(Encoding::Base64NoPad.decode(b"AAA").is_some());
    assert!(Encoding::Base64UrlNoPad.decode(b"_-8").is_some());
}

#[test]
fn every_encoding_reads_what_it_writes() {
    for (name, encoding) in Encoding::NAMED {
        let text = encoding.encode(&[0, 1, 0xfe, 0xff, 7]);
        assert_eq!(
            encoding.decode(text.as_bytes()).unwrap().as_slice(),
            [0, 1, 0xfe, 0xff, 7],
            "{name}"
        );
    }
}

#[test]
fn key_value_lists_bear_spaces_order_and_strangers() {
    let form = form(Parse::KeyValue {
        separator: ",".into(),
        keys: vec!["v1".into()],
        group_separator: None,
    });
    for text in ["t=1, v1=abcd ,  v0=00", "v0=00,v1=abcd,t=1", "t=1,v1=abcd,x=y,,noise"] {
        let lines = as_lines([text]);
        let groups = read(&form, &lines).unwrap();
        assert_eq!(tags(&groups), [[0xab, 0xcd]], "{text}");
        assert_eq!(groups[0].get(b"t"), Some(&b"1"[..]), "{text}");
    }
    let split = as_lines(["t=1", "v1=abcd", "v0=00"]);
    assert_eq!(read(&form, &split).unwrap()[0].get(b"t"), Some(&b"1"[..]));
}

#[test]
fn a_space_of_the_separator_is_written_but_not_asked_for() {
    let form = form(Parse::KeyValue {
        separator: ", ".into(),
        keys: vec!["v1".into()],
        group_separator: None,
    });
    assert_eq!(form.write(&[0xab, 0xcd], &[("t", "1")]), "t=1, v1=abcd");
    for text in ["t=1, v1=abcd", "t=1,v1=abcd"] {
        let lines = as_lines([text]);
        assert_eq!(tags(&read(&form, &lines).unwrap()), [[0xab, 0xcd]], "{text}");
    }
}

#[test]
fn a_key_with_two_values_has_none() {
    let form = form(Parse::KeyValue {
        separator: ",".into(),
        keys: vec!["v1".into()],
        group_separator: None,
    });
    let lines = as_lines(["t=1,t=2,v1=abcd"]);
    assert_eq!(read(&form, &lines).unwrap()[0].get(b"t"), None);
}

#[test]
fn groups_keep_their_own_time() {
    let form = form(Parse::KeyValue {
        separator: ",".into(),
        keys: vec!["v1".into()],
        group_separator: Some(" ".into()),
    });
    let lines = as_lines(["t=1,v1=abcd t=2,v1=0102"]);
    let groups = read(&form, &lines).unwrap();
    let times: Vec<_> = groups.iter().map(|g| g.get(b"t").unwrap()).collect();
    assert_eq!(times, [b"1", b"2"]);
}

#[test]
fn only_our_tag_counts() {
    let form = form(Parse::Tagged {
        separator: " ".into(),
        tag_separator: ",".into(),
        tag: "v1".into(),
        public_key_tag: None,
    });
    let lines = as_lines(["v1,zz v1,abcd v2,0102 v1a,0304 0506"]);
    assert_eq!(tags(&read(&form, &lines).unwrap()), [[0xab, 0xcd]]);
    let lines = as_lines(["v2,abcd"]);
    assert_eq!(read(&form, &lines).unwrap_err(), Reason::MalformedSignature);
}

#[test]
fn the_first_position_is_the_time() {
    let form = form(Parse::Positional { separator: ",".into() });
    let lines = as_lines(["1700,abcd,0102"]);
    let groups = read(&form, &lines).unwrap();
    assert_eq!(groups[0].get(b"0"), Some(&b"1700"[..]));
    assert_eq!(tags(&groups), [[0xab, 0xcd], [1, 2]]);
}

#[test]
fn the_number_of_candidates_is_bounded() {
    let form = form(Parse::List { separator: ",".into() });
    let many = vec!["abcd"; MAX_CANDIDATES + 1].join(",");
    let lines = as_lines([&many]);
    assert_eq!(read(&form, &lines).unwrap_err(), Reason::MalformedSignature);
}
