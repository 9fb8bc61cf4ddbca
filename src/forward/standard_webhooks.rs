//! `signature = "standard-webhooks"`: forwards of every provider signed in one scheme, that of Standard Webhooks, with
//! secrets that only we and the app know.
//!
//! The scheme is the preset's own record, read the other way round, so what is signed here is what a source of that
//! provider accepts.

use std::sync::Arc;

use data_encoding::BASE64;
use http::{HeaderMap, HeaderName, HeaderValue};
use zeroize::Zeroizing;

use crate::headers::plain_value;
use crate::secret::Secret;
use crate::store::model::StoredEvent;
use crate::time::Timestamp;
use crate::verify::sign::{CannotSign, SignInput};
use crate::verify::{SourceSecret, Verifier, VerifierOptions, VerifierProblem, presets};

const ID: HeaderName = HeaderName::from_static("webhook-id");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// What the specification asks of a secret, in bytes behind its encoding.
const MIN_KEY: usize = 24;
const MAX_KEY: usize = 64;
/// Secrets of one upstream: each adds its signature to every forward.
pub const MAX_SECRETS: usize = 8;

/// The secrets that forwards to an upstream are signed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandardWebhooks(Arc<Verifier>);

impl StandardWebhooks {
    /// A command for people.
    pub const HOW_TO_MAKE_ONE: &str = "make one: echo \"whsec_$(openssl rand -base64 32)\"";

    /// Every forward will carry a signature of each of `secrets`, so that the app can change from one to the next.
    ///
    /// # Errors
    /// What is wrong with which secret.
    pub fn new(secrets: Vec<Secret>) -> Result<Self, Vec<VerifierProblem>> {
        let judged = secrets.iter().enumerate();
        let problems: Vec<_> = judged
            .filter_map(|(index, secret)| {
                judge(secret).map(|message| VerifierProblem {
                    secret_index: Some(index),
                    message,
                    help: Some(Self::HOW_TO_MAKE_ONE.to_owned()),
                })
            })
            .collect();
        if !problems.is_empty() {
            return Err(problems);
        }
        let of_all = |message: &str| VerifierProblem {
            secret_index: None,
            message: message.to_owned(),
            help: None,
        };
        if secrets.len() > MAX_SECRETS {
            return Err(vec![of_all(&format!("more than {MAX_SECRETS} secrets"))]);
        }
        let record = presets::find("standard-webhooks").ok_or_else(|| vec![of_all("its scheme is missing")])?;
        let secrets = secrets.into_iter().map(SourceSecret::new).collect();
        Verifier::new(record, secrets, VerifierOptions::default()).map(|verifier| Self(Arc::new(verifier)))
    }

    /// The headers of an attempt at `now`. The id is the event's own: the same at each attempt and at each replay, as
    /// the specification wants it.
    ///
    /// # Errors
    /// None that is known of; the scheme asks nothing of a request that is not given here.
    pub fn sign(&self, event: &StoredEvent, now: Timestamp) -> Result<Vec<(HeaderName, HeaderValue)>, CannotSign> {
        let id = plain_value(&event.id.to_string());
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert(ID, id.clone());
        // Which of the scheme's two families of names is meant is told by this one.
        headers.insert(SIGNATURE, HeaderValue::from_static(""));
        let mut signed = vec![(ID, id)];
        let mut signatures = Zeroizing::new(Vec::new());
        for index in 0..self.0.secrets().len() {
            let by_one = self.0.sign(&SignInput {
                method: &event.method,
                target: &event.target,
                authority: None,
                headers: &headers,
                body: &event.body,
                now,
                secret_index: Some(index),
            })?;
            for (name, value) in by_one {
                if name == SIGNATURE {
                    if index > 0 {
                        signatures.push(b' ');
                    }
                    signatures.extend_from_slice(value.as_bytes());
                } else if index == 0 {
                    signed.push((name, value));
                }
            }
        }
        let unusable = || CannotSign::NotInHeader(self.0.record().title().to_owned());
        let mut value = HeaderValue::from_bytes(&signatures).ok().ok_or_else(unusable)?;
        value.set_sensitive(true);
        signed.push((SIGNATURE, value));
        Ok(signed)
    }

    /// How many secrets sign.
    pub fn count(&self) -> usize {
        self.0.secrets().len()
    }

    /// Whether forwards are signed with `secret`.
    pub fn uses(&self, secret: &Secret) -> bool {
        self.0.secrets().iter().any(|own| own.secret == *secret)
    }
}

/// What is wrong with a secret, without saying anything of it.
fn judge(secret: &Secret) -> Option<String> {
    let text = secret.expose();
    if text.starts_with(b"whsk_") || text.starts_with(b"whpk_") {
        return Some("the secret is a key for Ed25519, and forwards are signed with HMAC".to_owned());
    }
    let text = text.strip_prefix(b"whsec_").unwrap_or(text);
    match BASE64.decode(text).map(Zeroizing::new) {
        Err(_) => Some("the secret is not `whsec_` and base64".to_owned()),
        Ok(key) if key.len() < MIN_KEY => Some(format!("the decoded secret is shorter than {MIN_KEY} bytes")),
        Ok(key) if key.len() > MAX_KEY => Some(format!("the decoded secret is longer than {MAX_KEY} bytes")),
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Method;

    use super::*;
    use crate::id::{EventId, Position, SourceName};
    use crate::request::{RawRequest, RequestHead};

    const NOW: Timestamp = Timestamp::from_secs(1_795_000_000);
    const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const NEW: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

    fn signer(secrets: &[&str]) -> StandardWebhooks {
        StandardWebhooks::new(secrets.iter().map(|secret| Secret::new(*secret)).collect()).unwrap()
    }

    fn event() -> StoredEvent {
        let received_at = Timestamp::from_secs(1_794_000_000);
        let mut headers = HeaderMap::new();
        for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            headers.append(name, HeaderValue::from_static("the provider's"));
            headers.append(name, HeaderValue::from_static("twice"));
        }
        StoredEvent {
            id: EventId::embedded(received_at, Position::new(7).unwrap(), 1),
            source: SourceName::new("gitlab"),
            scope: None,
            secret_label: None,
            delivery_id: None,
            event_type: None,
            verified: true,
            awaited: false,
            received_at,
            method: Method::POST,
            target: "/webhooks/gitlab".parse().unwrap(),
            authority: None,
            client: "203.0.113.9".parse().unwrap(),
            headers,
            body: Bytes::from_static(b"{\"test\": \xff 1}"),
        }
    }

    /// What an app that knows `secret` says at `now`.
    fn app_accepts(secret: &str, headers: &[(HeaderName, HeaderValue)], now: Timestamp) -> bool {
        let event = event();
        let mut lines = event.headers;
        for (name, value) in headers {
            lines.insert(name, value.clone());
        }
        let app = presets::find("standard-webhooks").unwrap();
        let secret = SourceSecret::new(Secret::new(secret));
        let app = Verifier::new(app, vec![secret], VerifierOptions::default()).unwrap();
        let head = RequestHead {
            method: event.method,
            target: event.target,
            authority: None,
            headers: lines,
            client: event.client,
            received_at: now,
        };
        let body = event.body;
        app.verify(RawRequest { head, body }).is_ok()
    }

    #[test]
    fn a_forward_is_signed_over_the_events_id_the_attempts_time_and_the_body() {
        let headers = signer(&[OLD]).sign(&event(), NOW).unwrap();
        let shown: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        // By another implementation: hmac.new(b64decode(SECRET), ID + b"." + TIME + b"." + BODY, "sha256") in Python.
        assert_eq!(
            shown,
            [
                ("webhook-id", "01a1b2bb-9400-7000-8001-000000000007"),
                ("webhook-timestamp", "1795000000"),
                ("webhook-signature", "v1,GWqzYV5w0IfUyCEvsOrY05vd4ImD1ZfGW8GF5Je+O5Y="),
            ]
        );
        assert!(headers.last().unwrap().1.is_sensitive());
    }

    #[test]
    fn each_secret_adds_its_signature_and_an_app_may_know_either() {
        let both = signer(&[NEW, OLD]).sign(&event(), NOW).unwrap();
        assert_eq!(both.len(), 3, "{both:?}");
        let days_later = Timestamp::from_secs(1_795_200_000);
        let later = signer(&[NEW, OLD]).sign(&event(), days_later).unwrap();
        for secret in [NEW, OLD] {
            assert!(app_accepts(secret, &both, NOW));
            assert!(!app_accepts(secret, &both, days_later));
            assert!(app_accepts(secret, &later, days_later));
        }
        assert!(!app_accepts("whsec_wSaLaL2oIZPLI8DPUjwTrqYKG8r9QKfM", &both, NOW));
        assert!(!app_accepts(OLD, &signer(&[NEW]).sign(&event(), NOW).unwrap(), NOW));
    }

    #[test]
    fn a_secret_is_what_the_specification_says() {
        let of = |bytes: usize| format!("whsec_{}", BASE64.encode(&vec![7; bytes]));
        for good in [of(24), of(32), of(64), of(32).replace("whsec_", "")] {
            assert!(
                StandardWebhooks::new(vec![Secret::new(good.as_str())]).is_ok(),
                "{good}"
            );
        }
        for (bad, part) in [
            (of(23), "shorter than 24 bytes"),
            (of(65), "longer than 64 bytes"),
            ("whsec_".to_owned(), "shorter than 24 bytes"),
            ("a sentence that is no base64".to_owned(), "not `whsec_` and base64"),
            (of(32).replace("whsec_", "whsk_"), "Ed25519"),
        ] {
            let found = StandardWebhooks::new(vec![Secret::new(OLD), Secret::new(bad.as_str())]).unwrap_err();
            let [problem] = found.as_slice() else {
                panic!("{bad}: {found:?}")
            };
            assert_eq!(problem.secret_index, Some(1));
            assert!(problem.message.contains(part), "{bad}: {}", problem.message);
        }
        let many = vec![Secret::new(OLD); MAX_SECRETS + 1];
        assert!(StandardWebhooks::new(many).is_err());
    }
}
