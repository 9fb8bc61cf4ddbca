//! Schemes that sign the URL.

use super::*;

#[test]
fn the_public_url_is_signed_as_configured_and_requested() {
    // UR-01, UR-02, UR-04, UR-07, UR-09.
    let twilio = preset("twilio", &["twilio-token-0123456789abcdef01"]);
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let sms = |signature| {
        let headers = [&form[..], &[("x-twilio-signature", signature)]].concat();
        request(Method::POST, "/sms", &headers, "Body=hi&From=%2B15005550006")
    };
    assert!(accepts(&twilio, sms("4hnTlSnmdtZ6Q5uEtnviWLlOvac=")));
    assert!(accepts(&twilio, sms("zv9n7pqUvGoai49BvXMPOS+N57E=")));
    let get = |target: &str, signature| request(Method::GET, target, &[("x-twilio-signature", signature)], "");
    let query = "/in?Digits=1&Retry=1&RetryMessage=Couldn%27t+find&AccountSid=AC1";
    assert!(accepts(&twilio, get(query, "OZCdtgjHepbJWBwOWztwpOYhO9o=")));
    assert!(accepts(
        &twilio,
        get("/in?Caller=sip%3A1001%40192.0.2.7", "apkSJWNTaZHCGKd8RWU5Ar9Iaxg=")
    ));
    // UR-05: the order that was signed cannot be recovered.
    assert!(!accepts(&twilio, get("/in?a=1&b=2", "aHOcQnac6D6qRGIYBDsau9ysfCw=")));

    let square = preset("square", &[SECRET]);
    let headers = [
        (
            "x-square-hmacsha256-signature",
            "xxzeaST9u+iUXXpVOV5U93D8CKz2DAEqg9BeY8zPX1Y=",
        ),
        ("x-square-signature", "wrong"),
    ];
    assert!(accepts(&square, request(Method::POST, "/sq", &headers, "{\"a\":1}")));
    assert!(!accepts(&square, request(Method::POST, "/sq/", &headers, "{\"a\":1}")));
}

#[test]
fn without_a_public_url_the_host_that_was_asked_for_is_signed_if_it_is_ours() {
    let secret = || vec![SourceSecret::new(Secret::new("twilio-token-0123456789abcdef01"))];
    let own = |hosts: &[&str]| {
        let options = VerifierOptions {
            own_hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..VerifierOptions::default()
        };
        Verifier::new(presets::find("twilio").unwrap(), secret(), options)
    };
    let asked = |host: Option<&str>| {
        let headers = [
            ("content-type", "application/x-www-form-urlencoded"),
            ("x-twilio-signature", "4hnTlSnmdtZ6Q5uEtnviWLlOvac="),
        ];
        let mut request = request(Method::POST, "/sms", &headers, "Body=hi&From=%2B15005550006");
        request.head.authority = host.map(str::to_owned);
        request
    };
    assert!(own(&[]).is_err(), "nothing says what was signed");
    for hosts in [&["a.test", "hooks.example.test"][..], &["*.example.test"]] {
        let twilio = own(hosts).unwrap();
        for host in ["hooks.example.test", "hooks.example.test:443"] {
            assert!(accepts(&twilio, asked(Some(host))), "{host}");
        }
        for host in [
            None,
            Some("other.example.test"),
            Some("a.test"),
            Some("hooks.example.test.evil"),
        ] {
            assert!(!accepts(&twilio, asked(host)), "{host:?}");
        }
        let mut again = asked(Some("hooks.example.test"));
        again.head.headers.remove("x-twilio-signature");
        assert!(accepts(&twilio, signed(&twilio, again)));
    }
    // Signed for that host, which is not ours: whoever runs it must not be able to pass it on.
    assert!(!accepts(&own(&["a.test"]).unwrap(), asked(Some("hooks.example.test"))));
    assert!(
        own(&["a.test"])
            .unwrap()
            .sign(&sign_input(&asked(Some("b.test"))))
            .is_err()
    );
}

#[test]
fn a_fixed_public_url_stands_in_for_the_received_one() {
    // UR-05.
    let options = VerifierOptions {
        public_url: Some("https://hooks.example.test/in?b=2&a=1".to_owned()),
        ..VerifierOptions::default()
    };
    let secret = SourceSecret::new(Secret::new("twilio-token-0123456789abcdef01"));
    let twilio = Verifier::new(presets::find("twilio").unwrap(), vec![secret], options).unwrap();
    let headers = [("x-twilio-signature", "aHOcQnac6D6qRGIYBDsau9ysfCw=")];
    assert!(accepts(&twilio, request(Method::GET, "/in?a=1&b=2", &headers, "")));
}

#[test]
fn a_body_that_twilio_does_not_sign_is_refused() {
    let twilio = preset("twilio", &[SECRET]);
    let get = request(Method::GET, "/in", &[], "");
    let signature = signed(&twilio, get).head.headers["x-twilio-signature"]
        .to_str()
        .unwrap()
        .to_owned();
    let headers = [
        ("x-twilio-signature", signature.as_str()),
        ("content-type", "application/json"),
    ];
    let smuggled = request(Method::POST, "/in", &headers, "{\"forged\":true}");
    assert_eq!(verdict(&twilio, smuggled).err(), Some(Reason::BodyMalformed));
}

#[test]
fn twilio_shared_keys_sign_with_the_announced_hash() {
    let twilio = preset("twilio", &[SECRET]);
    let settings = (
        "x-twilio-webhooks-signature-settings",
        "key=webhooks_sharedkey_1,algorithm=HMAC_SHA256",
    );
    let shared = signed(&twilio, post(&[settings], ""));
    assert_eq!(shared.head.headers["x-twilio-signature"].len(), 44);
    assert!(accepts(&twilio, shared.clone()));
    let mut plain = shared;
    plain.head.headers.remove(settings.0);
    assert!(!accepts(&twilio, plain));
}
