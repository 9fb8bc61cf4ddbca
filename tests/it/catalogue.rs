//! The presets as a running server uses them: one source each, signed requests, what is forwarded and what is not.

use std::collections::BTreeMap;
use std::sync::Arc;

use hooksluice::key::Part;
use hooksluice::secret::Secret;
use hooksluice::time::{Clock, Timestamp};
use hooksluice::verify::record::{Kind, Record};
use hooksluice::verify::sample::Sample;
use hooksluice::verify::sign::SignInput;
use hooksluice::verify::{SourceSecret, Verifier, VerifierOptions, presets};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};

use crate::harness::sign::SECRET;
use crate::harness::{Request, Setup, Upstream};

/// Texts of the forms that providers' secrets have. The first one that a preset takes is its source's.
const SECRETS: &[&str] = &[
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
    "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=",
    "user:pass:word",
];

/// A preset whose requests can be made here.
struct Sender {
    name: &'static str,
    verifier: Verifier,
    secret: &'static str,
    target: PathAndQuery,
    /// One for all requests, since some providers write it into the body.
    now: Timestamp,
}

impl Sender {
    fn new(name: &'static str) -> Option<Self> {
        let record = presets::find(name).unwrap();
        let build = |secret: &str| {
            let options = VerifierOptions {
                public_url: Some("https://hooks.example.test".to_owned()),
                params: params(&record),
                ..VerifierOptions::default()
            };
            Verifier::new(
                Arc::clone(&record),
                vec![SourceSecret::new(Secret::new(secret))],
                options,
            )
            .ok()
        };
        let (secret, verifier) = SECRETS.iter().find_map(|secret| Some((*secret, build(secret)?)))?;
        let sender = Self {
            name,
            verifier,
            secret,
            target: format!("/hooks/{name}").parse().unwrap(),
            now: Clock::system().now(),
        };
        sender.signed("an-id", "").map(|_| sender)
    }

    /// A signed request with this id whose body says `more`.
    fn signed(&self, id: &str, more: &str) -> Option<Request> {
        let method = Method::POST;
        let sample = Sample {
            method: &method,
            target: &self.target,
            id,
            event_type: "a-type",
            now: self.now,
        };
        let record = self.verifier.record();
        let mut headers = HeaderMap::new();
        record.add_headers(&sample, &mut headers);
        let body = String::from_utf8(record.sample_body(&sample, &headers)).unwrap();
        let body = match body.strip_suffix('}') {
            Some(object) => format!("{object},\"more\":\"{more}\"}}"),
            None => format!("{body}&more={more}"),
        };
        let input = SignInput {
            method: &method,
            target: &self.target,
            authority: None,
            headers: &headers,
            body: body.as_bytes(),
            now: sample.now,
            secret_index: None,
        };
        let signature = self.verifier.sign(&input).ok()?;
        for (name, value) in signature {
            headers.insert(name, value);
        }
        let request = Request::post(self.target.as_str(), body);
        let lines = headers.iter();
        Some(lines.fold(request, |request, (name, value)| {
            request.header(name.as_str(), value.as_bytes())
        }))
    }
}

fn params(record: &Record) -> BTreeMap<String, String> {
    let names = record.params().iter();
    names.map(|name| (name.clone(), format!("the-{name}"))).collect()
}

// ID-09, ID-11: what is not documented as one per delivery must not decide alone.
#[test]
fn two_events_with_one_id_are_both_forwarded_unless_the_provider_documents_its_id() {
    let senders: Vec<Sender> = presets::names().into_iter().filter_map(Sender::new).collect();
    let signed_by_us = presets::names().into_iter().filter(|name| {
        let kind = presets::find(name).unwrap().kind();
        matches!(kind, Kind::Hmac | Kind::Token | Kind::Basic)
    });
    assert!(senders.len() * 10 > signed_by_us.count() * 9, "only {}", senders.len());
    let upstream = Upstream::start();
    let mut setup = Setup::new(&upstream);
    for sender in &senders {
        let record = sender.verifier.record();
        let mut lines = String::new();
        if record.needs_public_url() {
            lines += "public_url = \"https://hooks.example.test\"\n";
        }
        if record.sync_only() {
            lines += "reply = \"upstream\"\n";
        }
        if record.tolerance().is_some() {
            // All are signed before the first is sent, and Paddle's five seconds are soon over on a busy machine.
            lines += "tolerance = \"1h\"\n";
        }
        let params: Vec<String> = params(record)
            .into_iter()
            .map(|(k, v)| format!("{k} = \"{v}\""))
            .collect();
        if !params.is_empty() {
            lines += &format!("params = {{ {} }}\n", params.join(", "));
        }
        setup = setup.source(sender.name, sender.name, sender.secret, &lines);
    }
    let server = setup.start();
    for sender in &senders {
        for body in ["first", "first", "second"] {
            let answer = server.send(&sender.signed("one-id", body).unwrap());
            assert_eq!(answer.status / 100, 2, "{}: {answer:?}", sender.name);
        }
    }
    // Where an id decides, it is one event; where a request only rings a bell, each of the three is one.
    let forwarded = |sender: &Sender| match sender.verifier.record() {
        record if record.dedupe() == [Part::Id] => 1,
        record if record.ping() => 3,
        _ => 2,
    };
    let expected: usize = senders.iter().map(forwarded).sum();
    let received = upstream.wait_for(expected);
    for sender in &senders {
        let bodies: Vec<String> = received
            .iter()
            .filter(|got| got.target == sender.target.as_str())
            .map(|got| String::from_utf8_lossy(&got.body).into_owned())
            .collect();
        assert_eq!(bodies.len(), forwarded(sender), "{}: {bodies:?}", sender.name);
    }
    server.stop();
    assert_eq!(upstream.received().len(), expected);
}

#[test]
fn a_provider_of_the_configuration_is_explained_and_its_typos_are_known() {
    let setup = Setup::new(&Upstream::start())
        .table_after("[providers.acme]\ntitle = \"Acme\"\nkind = \"hmac\"\nsignature = \"header:X-Acme-Sig\"");
    let config = setup.write_config();
    let asked = |words: &[&str]| {
        let mut command = crate::harness::server::program();
        command.arg("providers").args(words).arg("-c").arg(&config);
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    let (found, text) = asked(&["acme"]);
    assert!(
        found && text.contains("Acme (acme)") && text.contains("x-acme-sig"),
        "{text}"
    );
    let (found, text) = asked(&["acme", "--json"]);
    assert!(found && text.contains("\"name\": \"acme\""), "{text}");
    let (found, text) = asked(&["amce"]);
    assert!(!found && text.contains("did you mean `acme`?"), "{text}");
    let (found, text) = asked(&["stripee"]);
    assert!(!found && text.contains("did you mean `stripe`?"), "{text}");
    let (found, text) = asked(&["stripe"]);
    assert!(found && text.contains("Stripe (stripe)"), "{text}");
}

/// P1: what Vercel sends to see that the endpoint is ours holds no entry; what holds one is no probe.
#[test]
fn an_unsigned_log_entry_is_refused_while_a_vercel_drain_is_set_up() {
    let setup =
        Setup::new(&Upstream::start()).source("drain", "vercel-drains", SECRET, "params = { verify_token = \"v\" }");
    let server = setup.start();
    for probe in [Request::post("/hooks/drain", ""), Request::post("/hooks/drain", "[]")] {
        assert_eq!(server.send(&probe).status, 200);
    }
    assert_eq!(
        server.send(&Request::post("/hooks/drain", "[{\"id\":\"1\"}]")).status,
        401
    );
    assert!(server.events("").is_empty());
}
