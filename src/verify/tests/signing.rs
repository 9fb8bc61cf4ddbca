//! What is signed here verifies, for every preset that can be signed.

use super::*;

/// The presets whose requests can be signed here, which is in a header.
fn signable() -> impl Iterator<Item = &'static str> {
    presets::names().into_iter().filter(|name| {
        let record = presets::find(name).unwrap();
        let in_header = |scheme: &Scheme| matches!(scheme.signature.places.first(), Some(Place::Header(_)));
        record.is_signable() && record.kind() != Kind::None && record.schemes.iter().all(in_header)
    })
}

fn what_is_signed_verifies(name: &str, body: &[u8], bit: usize) {
    let verifier = preset(name, &[secret_for(name)]);
    let schemes = &verifier.record().schemes;
    if schemes.iter().any(|scheme| scheme.payload.can_be_extended()) && std::str::from_utf8(body).is_err() {
        assert!(verifier.sign(&sign_input(&unsigned(name, body))).is_err(), "{name}");
        return;
    }
    let request = signed(&verifier, unsigned(name, body));
    assert!(accepts(&verifier, request.clone()), "{name}");

    if matches!(verifier.record().kind(), Kind::Token | Kind::Basic) {
        return;
    }
    let mut changed = request.clone();
    let mut bytes = changed.body.to_vec();
    let at = bit / 8 % bytes.len();
    bytes[at] ^= 1 << (bit % 8);
    // Two spellings of one form are the same to a provider that signs the decoded fields.
    let uses_form = verifier
        .record()
        .schemes
        .iter()
        .any(|scheme| scheme.payload.uses_form());
    let same_form = uses_form && form::sorted(&bytes) == form::sorted(&request.body);
    changed.body = bytes.into();
    let is_open = same_form || !verifier.record().body_authenticated();
    assert!(is_open || !accepts(&verifier, changed), "{name}: body");

    let (header, _) = verifier.sign(&sign_input(&request)).unwrap().pop().unwrap();
    let mut changed = request.clone();
    let mut value = changed.head.headers[&header].as_bytes().to_vec();
    let last = value.len() - 5;
    value[last] = if value[last] == b'1' { b'2' } else { b'1' };
    changed
        .head
        .headers
        .insert(&header, HeaderValue::from_bytes(&value).unwrap());
    assert!(!accepts(&verifier, changed), "{name}: signature");

    if verifier.record().needs_public_url() {
        let mut changed = request.clone();
        changed.head.target = "/elsewhere?x".parse().unwrap();
        assert!(!accepts(&verifier, changed), "{name}: url");
    }
}

#[test]
fn every_preset_accepts_what_it_signs_and_nothing_that_was_changed() {
    for name in signable() {
        what_is_signed_verifies(name, b"{\"a\": 1}", 9);
    }
}

proptest! {
    #[test]
    fn what_is_signed_verifies_and_one_changed_bit_does_not(
        name in prop::sample::select(signable().collect::<Vec<_>>()),
        body in prop::collection::vec(any::<u8>(), 1..200),
        bit in any::<usize>(),
    ) {
        what_is_signed_verifies(name, &body, bit);
    }

    #[test]
    fn no_request_makes_it_panic(
        name in prop::sample::select(signable().collect::<Vec<_>>()),
        values in prop::collection::vec("[ -~]{0,40}|t=[0-9]{1,20},v1=[0-9a-f]{0,64}|v1,[A-Za-z0-9+/]{0,44}=?", 3),
        body in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let secrets: &[&str] = match presets::find(name).unwrap().kind() {
            Kind::None => &[],
            _ => &[secret_for(name)],
        };
        let verifier = preset(name, secrets);
        let mut request = post(&[], body);
        for (header, value) in verifier.record().headers().into_iter().zip(values.iter().cycle()) {
            let value = HeaderValue::from_str(value).unwrap();
            request.head.headers.append(header.parse::<HeaderName>().unwrap(), value);
        }
        let accepted = accepts(&verifier, request);
        prop_assert!(!accepted || verifier.record().kind() == Kind::None, "{name}");
    }
}

#[test]
fn a_fresh_signature_carries_the_new_time_and_replaces_the_old_one() {
    for name in [
        "stripe",
        "slack",
        "standard-webhooks",
        "svix",
        "gitlab-signing",
        "paddle",
    ] {
        let verifier = preset(name, &[secret_for(name)]);
        assert!(verifier.record().signs_fresh(), "{name}");
        let mut late = signed(&verifier, unsigned(name, b"{}"));
        late.head.received_at = Timestamp::from_secs(NOW + 86_400);
        assert_eq!(verdict(&verifier, late.clone()).err(), Some(Reason::Stale), "{name}");
        assert!(accepts(&verifier, signed(&verifier, late)), "{name}");
    }
    assert!(!presets::find("linear").unwrap().signs_fresh());
}

#[test]
fn a_made_up_request_says_what_the_record_looks_for() {
    for name in signable() {
        let verifier = preset(name, &[secret_for(name)]);
        let mut request = unsigned(name, b"");
        let sample = Sample {
            method: &Method::POST,
            target: &"/in".parse().unwrap(),
            id: "id-1",
            event_type: "test",
            now: Timestamp::from_secs(NOW),
        };
        request.body = verifier.record().sample_body(&sample, &request.head.headers).into();
        let event = verdict(&verifier, signed(&verifier, request)).unwrap();
        let scheme = &verifier.record().schemes[0];
        let is_made_up = |place: &Place| !matches!(place, Place::Query(_) | Place::Claim(_));
        let is_there = |places: &[Place]| places.iter().any(is_made_up);
        assert_eq!(
            (event.dedupe_id(), event.event_type()),
            (
                is_there(&scheme.delivery_id).then_some("id-1"),
                is_there(&scheme.event_type).then_some("test")
            ),
            "{name}"
        );
    }
}

#[test]
fn what_cannot_be_signed_says_why() {
    let standard = preset("standard-webhooks", &[STANDARD]);
    let without_id = post(&[], "{}");
    assert!(matches!(
        standard.sign(&sign_input(&without_id)),
        Err(CannotSign::Incomplete(_))
    ));
    let twilio = preset("twilio", &[SECRET]);
    let wrong_digest = request(Method::POST, "/in?bodySHA256=00", &[], "{}");
    assert!(matches!(
        twilio.sign(&sign_input(&wrong_digest)),
        Err(CannotSign::Condition(_))
    ));
    let request = post(&[], "{}");
    let mut input = sign_input(&request);
    input.secret_index = Some(9);
    assert_eq!(preset("github", &[SECRET]).sign(&input), Err(CannotSign::NoSecret));
}
