//! Hand-shakes in which the provider hands over the secret that it will sign with (Asana, Clio, Notion).
//!
//! Nothing vouches for such a request: whoever comes first chooses the secret. So a [`Verifier`] never takes one by itself;
//! it only says what a request hands over and what the answer would be. Whether it is taken is for a person to say, who
//! lets the source learn for a few minutes (`crate::learn`).

use crate::request::{RawRequest, RequestHead};
use crate::secret::Secret;

use super::ChallengeAnswer;
use super::challenge::{Challenge, Handshake};
use super::place::{Fields, Place};
use super::record::Record;
use super::template::Filling;
use super::verifier::{SourceSecret, Verifier, head_fields};

/// Shortest and longest secret that is taken, in bytes. Providers hand over 32 to 64; what is shorter than 16 could be
/// guessed by trying, and no answer echoes more than 256.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=256;

/// Where a record may say that the secret stands.
pub(super) fn place(text: &str) -> Result<Place, String> {
    match Place::parse(text)? {
        place @ (Place::Header(_) | Place::Query(_) | Place::Form(_) | Place::Json(_)) => Ok(place),
        _ => Err("expected `header:NAME`, `query:NAME`, `form:NAME` or `json:/POINTER`".to_owned()),
    }
}

/// Whether a request hands over a secret, as far as its head shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// It does not.
    None,
    /// The body decides.
    Possible,
    /// It does.
    Certain,
}

/// What a request hands over.
#[derive(Debug)]
pub struct HandedOver {
    /// The secret, of a form that is taken.
    pub secret: Secret,
    /// What the sender waits for. It says that the secret is kept: nobody may be given it before that is so.
    pub answer: ChallengeAnswer,
}

/// Why what was handed over is no secret. Holds nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Its length.
    #[error("what was handed over as a secret does not have 16 to 256 characters")]
    Length,
    /// Its characters.
    #[error("what was handed over as a secret has characters that no secret of a provider has")]
    Characters,
    /// The scheme cannot use it, or the answer cannot be made.
    #[error("what was handed over as a secret is none by the provider's record")]
    Record,
}

impl Record {
    /// Whether the provider hands over its secrets in band.
    pub fn is_handed_secrets(&self) -> bool {
        let mut challenges = self.challenges.iter();
        challenges.any(|challenge| challenge.hands_over_secret.is_some())
    }
}

impl Verifier {
    /// Whether a request with this head hands over a secret.
    pub fn may_hand_over(&self, head: &RequestHead) -> Likeness {
        let fields = head_fields(head);
        let mut found = Likeness::None;
        for (challenge, place) in self.handovers() {
            if challenge.may_be_asked(&fields) {
                let certain = place.is_in_head() && challenge.when.iter().all(super::challenge::Condition::is_in_head);
                found = match certain {
                    true => return Likeness::Certain,
                    false => Likeness::Possible,
                };
            }
        }
        found
    }

    /// The secret that the request hands over, if it is such a hand-shake.
    pub fn handed_over(&self, request: &RawRequest) -> Option<Result<HandedOver, Unfit>> {
        let head = &request.head;
        let index = self.scheme_index(request);
        let pointers = &self.record().schemes.get(index)?.pointers;
        let fields = Fields::of(head, &request.body, pointers);
        let (challenge, place) = self.handovers().find(|(challenge, _)| challenge.is_asked(&fields))?;
        let text = fields.get(place).unwrap_or_default();
        Some(self.fit(&text).and_then(|secret| {
            let answer = challenge.answer(&Filling {
                fields: &fields,
                params: self.params(),
                timestamp: None,
                url: "",
                group: None,
                secret: None,
                mac: None,
            });
            match answer {
                Handshake::Answered(answer) => Ok(HandedOver { secret, answer }),
                Handshake::CheckFailed | Handshake::NotOne => Err(Unfit::Record),
            }
        }))
    }

    fn fit(&self, text: &[u8]) -> Result<Secret, Unfit> {
        if !LENGTHS.contains(&text.len()) {
            return Err(Unfit::Length);
        }
        // What a file keeps, a terminal shows and a person can paste.
        if !text
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.:~+/=".contains(b))
        {
            return Err(Unfit::Characters);
        }
        let secret = Secret::new(text);
        match self.with_secret(SourceSecret::new(secret.clone())) {
            Ok(_) => Ok(secret),
            Err(_) => Err(Unfit::Record),
        }
    }

    fn handovers(&self) -> impl Iterator<Item = (&Challenge, &Place)> {
        let all = self.record().challenges.iter();
        all.filter_map(|challenge| Some((challenge, challenge.hands_over_secret.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use bytes::Bytes;
    use http::{HeaderMap, Method};

    use super::*;
    use crate::time::Timestamp;
    use crate::verify::{VerifierOptions, presets};

    const SECRET: &str = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81";

    fn verifier(provider: &str) -> Verifier {
        let options = VerifierOptions {
            learns: true,
            ..VerifierOptions::default()
        };
        Verifier::new(presets::find(provider).unwrap(), Vec::new(), options).unwrap()
    }

    fn request(headers: &[(&'static str, &str)], body: &str) -> RawRequest {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        RawRequest {
            head: RequestHead {
                method: Method::POST,
                target: "/hooks/a".parse().unwrap(),
                authority: None,
                headers,
                client: IpAddr::V4(Ipv4Addr::LOCALHOST),
                received_at: Timestamp::from_secs(1_700_000_000),
            },
            body: Bytes::copy_from_slice(body.as_bytes()),
        }
    }

    #[test]
    fn asana_and_clio_hand_it_over_in_a_header_and_want_it_back() {
        for provider in ["asana", "clio"] {
            let (verifier, request) = (verifier(provider), request(&[("x-hook-secret", SECRET)], "{}"));
            assert_eq!(verifier.may_hand_over(&request.head), Likeness::Certain);
            let handed = verifier.handed_over(&request).unwrap().unwrap();
            assert!(handed.secret.matches(SECRET.as_bytes()));
            assert_eq!(handed.answer.status, 200);
            assert_eq!(handed.answer.headers["x-hook-secret"], SECRET);
            assert!(verifier.verify(request).is_err(), "it is not answered by itself");
        }
    }

    #[test]
    fn notion_hands_it_over_in_the_body_and_gets_it_from_a_person() {
        let verifier = verifier("notion");
        let body = r#"{"verification_token":"secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"}"#;
        let unsigned = request(&[], body);
        assert_eq!(verifier.may_hand_over(&unsigned.head), Likeness::Possible);
        let handed = verifier.handed_over(&unsigned).unwrap().unwrap();
        assert!(
            handed
                .secret
                .matches(b"secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl")
        );
        assert_eq!((handed.answer.status.as_u16(), handed.answer.body.len()), (200, 0));
        assert!(verifier.handed_over(&request(&[], "{}")).is_none());
        // A signed request is an event, whatever it holds.
        let signed = request(&[("x-notion-signature", "sha256=00")], body);
        assert_eq!(verifier.may_hand_over(&signed.head), Likeness::None);
        assert!(verifier.handed_over(&signed).is_none());
    }

    #[test]
    fn what_cannot_be_a_secret_is_not_one() {
        let verifier = verifier("asana");
        let handed = |text: &str| verifier.handed_over(&request(&[("x-hook-secret", text)], "")).unwrap();
        for (text, why) in [
            (String::new(), Unfit::Length),
            ("a".repeat(15), Unfit::Length),
            ("a".repeat(257), Unfit::Length),
            (format!("{SECRET} {SECRET}"), Unfit::Characters),
            ("<script>alert(1)</script>".to_owned(), Unfit::Characters),
        ] {
            assert_eq!(handed(&text).unwrap_err(), why, "{text:?}");
        }
        for text in ["a".repeat(16), "a".repeat(256)] {
            assert!(handed(&text).unwrap().secret.matches(text.as_bytes()));
        }
    }

    #[test]
    fn without_a_secret_no_event_is_taken() {
        let mac = "c97e106858b029422eaa01242d8c186540e647125755ff2318944a1ccdd4ea90";
        assert!(
            verifier("asana")
                .verify(request(&[("x-hook-signature", mac)], "{}"))
                .is_err()
        );
        let github = presets::find("github").unwrap();
        assert!(!github.is_handed_secrets() && verifier("asana").record().is_handed_secrets());
        let refused = Verifier::new(presets::find("asana").unwrap(), Vec::new(), VerifierOptions::default());
        assert!(refused.is_err(), "only a source that learns may lack it");
    }
}
