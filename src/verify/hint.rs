//! Hints: why a signature fails, shown only where a recomputation proves it.
//!
//! Each hint is the answer to "would it hold if …": the source's own verifier is altered in one respect and judges the
//! request again, age aside. Nothing is accepted by this, and nothing is said that was not shown to hold. The work is
//! bounded, yet many times that of a verification: ask off the hot path, and not for every refusal of a flood.

use std::fmt;
use std::sync::Arc;

use http::header;

use crate::request::RawRequest;
use crate::secret::Secret;

use super::Reason;
use super::record::Record;
use super::secrets::SecretEncoding;
use super::signature::Encoding;
use super::url::{self, PublicUrl};
use super::verifier::{SourceSecret, Verifier};

mod reprint;

/// Bodies over this are not tried in other forms, in bytes.
const MAX_BODY: usize = 1 << 20;

/// The likely cause of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The signature holds; the signed time lies this far from our clock (positive: behind it).
    ClockOff {
        /// In whole seconds.
        seconds: i64,
    },
    /// It holds under the secret of another source.
    OtherSource {
        /// That source.
        source: String,
    },
    /// It holds under the configured secret without white space or a line end around it.
    SecretWhiteSpace {
        /// Which secret.
        secret_index: usize,
    },
    /// The sender's secret ends with a line end.
    SenderLineEnd {
        /// Which secret.
        secret_index: usize,
    },
    /// It holds with the secret taken in another encoding.
    SecretEncoding {
        /// Which secret.
        secret_index: usize,
        /// How the sender takes it.
        found: &'static str,
        /// How the record takes it.
        expected: &'static str,
    },
    /// It holds, written in another encoding than the record's.
    SignatureEncoding {
        /// As sent.
        found: &'static str,
        /// By the record.
        expected: &'static str,
    },
    /// It holds without the prefix that the record wants.
    NoPrefix {
        /// The prefix.
        prefix: String,
    },
    /// It holds over another form of the body.
    Body {
        /// What happened to the body on its way.
        change: &'static str,
    },
    /// It holds over another URL.
    Url {
        /// Scheme, host and path; a query may hold credentials and is left out.
        signed: String,
        /// What `public_url` makes of the request, as far.
        ours: String,
    },
    /// It holds over the URL with its query in another order.
    QueryOrder,
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockOff { seconds } => {
                let side = if *seconds < 0 { "ahead of" } else { "behind" };
                write!(
                    f,
                    "the signature holds, but its time is {} s {side} our clock: clock off, or sent late",
                    seconds.unsigned_abs()
                )
            }
            Self::OtherSource { source } => write!(f, "the signature holds under the secret of source `{source}`"),
            Self::SecretWhiteSpace { secret_index } => write!(
                f,
                "secret {secret_index} has white space or a line end around it; the signature holds without"
            ),
            Self::SenderLineEnd { secret_index } => write!(
                f,
                "the sender signs with a line end behind secret {secret_index}: set it there again without"
            ),
            Self::SecretEncoding {
                secret_index,
                found,
                expected,
            } => write!(
                f,
                "the signature holds with secret {secret_index} taken as {found}; the record takes it as {expected}"
            ),
            Self::SignatureEncoding { found, expected } => {
                write!(
                    f,
                    "the signature holds, written in {found}; the record wants {expected}"
                )
            }
            Self::NoPrefix { prefix } => write!(f, "the signature holds, but lacks `{prefix}` in front"),
            Self::Body { change } => write!(f, "the body was changed on its way: {change}"),
            Self::Url { signed, ours } => write!(
                f,
                "the signature holds for {signed}, and `public_url` makes it {ours}: set it as the provider was given it"
            ),
            Self::QueryOrder => f.write_str(
                "the signature holds with the query in another order: sort the query parameters in the provider's URL",
            ),
        }
    }
}

impl Verifier {
    /// The likely cause of a refusal, where a recomputation shows it.
    pub fn hint(&self, request: &RawRequest, reason: Reason) -> Option<Hint> {
        self.hint_among(request, reason, &[])
    }

    /// As [`Verifier::hint`], which can also tell that the secret is another source's.
    pub fn hint_among(&self, request: &RawRequest, reason: Reason, others: &[(&str, &Verifier)]) -> Option<Hint> {
        match reason {
            Reason::Stale | Reason::FromTheFuture => {
                let ageless = self.with(self.shared_record().clone(), self.secrets().to_vec())?;
                let seconds = self.behind(request)?.checked_div(1000)?;
                ageless.holds(request).then_some(Hint::ClockOff { seconds })
            }
            Reason::WrongSignature | Reason::MalformedSignature | Reason::BodyMalformed => {
                let written = self.hint_written(request);
                let keyed = || {
                    self.hint_other_source(request, others)
                        .or_else(|| self.hint_secret(request))
                };
                let sent = || self.hint_body(request).or_else(|| self.hint_url(request));
                written.or_else(keyed).or_else(sent)
            }
            Reason::MissingSignature
            | Reason::MissingTimestamp
            | Reason::MalformedTimestamp
            | Reason::MissingId
            | Reason::AddressNotAllowed
            | Reason::TooLarge
            | Reason::TooSlow => None,
        }
    }

    fn with(&self, record: Arc<Record>, secrets: Vec<SourceSecret>) -> Option<Self> {
        self.altered(record, secrets, self.public_url().cloned())
    }

    /// Whether the request holds under a record that differs in `change`.
    fn holds_by(&self, request: &RawRequest, change: impl FnOnce(&mut Record)) -> bool {
        let mut record = Record::clone(self.shared_record());
        change(&mut record);
        let altered = self.with(Arc::new(record), self.secrets().to_vec());
        altered.is_some_and(|verifier| verifier.holds(request))
    }

    fn hint_written(&self, request: &RawRequest) -> Option<Hint> {
        let form = &self.record().schemes.first()?.signature;
        let (expected, prefix) = (form.encoding, form.prefix.clone());
        if !form.prefix_optional {
            let is_bare = self.holds_by(request, |record| {
                record
                    .schemes
                    .iter_mut()
                    .for_each(|scheme| scheme.signature.prefix_optional = true);
            });
            if is_bare {
                return Some(Hint::NoPrefix { prefix });
            }
        }
        Encoding::NAMED.into_iter().find_map(|(found, encoding)| {
            let holds = encoding != expected
                && self.holds_by(request, |record| {
                    record
                        .schemes
                        .iter_mut()
                        .for_each(|scheme| scheme.signature.encoding = encoding);
                });
            let expected = expected.as_str();
            holds.then_some(Hint::SignatureEncoding { found, expected })
        })
    }

    fn hint_other_source(&self, request: &RawRequest, others: &[(&str, &Verifier)]) -> Option<Hint> {
        others.iter().find_map(|(source, other)| {
            let verifier = self.with(self.shared_record().clone(), other.secrets().to_vec())?;
            let source = (*source).to_owned();
            verifier.holds(request).then_some(Hint::OtherSource { source })
        })
    }

    fn hint_secret(&self, request: &RawRequest) -> Option<Hint> {
        (0..self.secrets().len()).find_map(|index| self.hint_one_secret(request, index))
    }

    fn hint_one_secret(&self, request: &RawRequest, secret_index: usize) -> Option<Hint> {
        let text = self.secrets().get(secret_index)?.secret.expose();
        let holds = |record: Arc<Record>, text: &[u8]| {
            let verifier = self.with(record, vec![SourceSecret::new(Secret::new(text))]);
            verifier.is_some_and(|verifier| verifier.holds(request))
        };
        let record = self.shared_record();
        if text.trim_ascii() != text && holds(record.clone(), text.trim_ascii()) {
            return Some(Hint::SecretWhiteSpace { secret_index });
        }
        for end in [b"\n".as_slice(), b"\r\n"] {
            if holds(record.clone(), &[text, end].concat()) {
                return Some(Hint::SenderLineEnd { secret_index });
            }
        }
        let (expected, _) = *SecretEncoding::NAMED
            .iter()
            .find(|(_, e)| *e == record.secret_encoding)?;
        SecretEncoding::NAMED.into_iter().find_map(|(found, encoding)| {
            let prefixes: &[&str] = if encoding == SecretEncoding::Base64 {
                &["whsec_", ""]
            } else {
                &[""]
            };
            let holds = prefixes.iter().any(|prefix| {
                let mut other = Record::clone(record);
                other.secret_encoding = encoding;
                other.secret_strip_prefix = vec![(*prefix).to_owned()];
                holds(Arc::new(other), text)
            });
            let hint = Hint::SecretEncoding {
                secret_index,
                found,
                expected,
            };
            (encoding != record.secret_encoding && holds).then_some(hint)
        })
    }

    fn hint_body(&self, request: &RawRequest) -> Option<Hint> {
        if request.body.len() > MAX_BODY {
            return None;
        }
        let verifier = self.with(self.shared_record().clone(), self.secrets().to_vec())?;
        let change = reprint::change(&request.body, |body| {
            let mut other = request.clone();
            other.body = body.into();
            verifier.holds(&other)
        });
        change.map(|change| Hint::Body { change })
    }

    fn hint_url(&self, request: &RawRequest) -> Option<Hint> {
        if !self.record().needs_public_url() {
            return None;
        }
        let target = &request.head.target;
        let asked = || PublicUrl::parse(&format!("https://{}", request.head.authority.as_deref()?)).ok();
        let public_url = &self.public_url().cloned().or_else(asked)?;
        let ours = public_url.of(target);
        let holds = |url: &str| {
            let public_url = PublicUrl::parse(url).ok();
            let verifier = self.altered(self.shared_record().clone(), self.secrets().to_vec(), public_url);
            verifier.is_some_and(|verifier| verifier.holds(request))
        };
        let said = |name| request.head.headers.get(name).and_then(|host| host.to_str().ok());
        let hosts = [
            request.head.authority.as_deref(),
            said("x-forwarded-host"),
            said(header::HOST.as_str()),
        ];
        let hosts: Vec<&str> = hosts.into_iter().flatten().collect();
        let slips = url::slips(public_url, target, &hosts);
        if let Some(signed) = slips.into_iter().find(|slip| holds(slip)) {
            let shown = |url: &str| url.split('?').next().unwrap_or_default().to_owned();
            let (signed, ours) = (shown(&signed), shown(&ours));
            return Some(Hint::Url { signed, ours });
        }
        url::other_orders(&ours)
            .iter()
            .any(|url| holds(url))
            .then_some(Hint::QueryOrder)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderValue, Method};

    use super::super::tests::{NOW, SECRET, STANDARD, STRIPE, custom, post, preset, request, signed};
    use super::super::{Verified, VerifierOptions, presets};
    use super::*;
    use crate::time::Timestamp;

    const PLAIN: &str = "kind = \"hmac\"\nsignature = \"header:X-Sig\"\n";

    fn hint(verifier: &Verifier, request: RawRequest) -> Option<Hint> {
        match verifier.verify(request) {
            Ok(Verified::Event(_) | Verified::Challenge(_)) => panic!("it was accepted"),
            Err(rejected) => verifier.hint(&rejected.request, rejected.rejection.reason),
        }
    }

    fn with_body(mut request: RawRequest, body: &'static str) -> RawRequest {
        request.body = Bytes::from_static(body.as_bytes());
        request
    }

    #[test]
    fn a_clock_that_is_off_is_told_in_seconds_and_a_forgery_is_not() {
        let stripe = preset("stripe", &[STRIPE]);
        let mut late = signed(&stripe, post(&[], "{}"));
        late.head.received_at = Timestamp::from_secs(NOW + 312);
        assert_eq!(hint(&stripe, late.clone()), Some(Hint::ClockOff { seconds: 312 }));
        assert_eq!(hint(&stripe, with_body(late.clone(), "{\"forged\":1}")), None);
        late.head.received_at = Timestamp::from_secs(NOW - 400);
        let ahead = hint(&stripe, late).unwrap();
        assert!(ahead.to_string().contains("400 s ahead of our clock"), "{ahead}");
    }

    #[test]
    fn white_space_around_a_secret_is_told_on_either_side() {
        let clean = preset("github", &[SECRET]);
        let padded = preset("github", &["other-secret-012345", "test-secret-0123456789abcdef \n"]);
        let request = signed(&clean, post(&[], "{}"));
        assert_eq!(
            hint(&padded, request.clone()),
            Some(Hint::SecretWhiteSpace { secret_index: 1 })
        );
        assert_eq!(hint(&padded, with_body(request, "{\"x\":1}")), None);

        let sender = preset("github", &["test-secret-0123456789abcdef\n"]);
        let request = signed(&sender, post(&[], "{}"));
        assert_eq!(hint(&clean, request), Some(Hint::SenderLineEnd { secret_index: 0 }));
    }

    #[test]
    fn a_secret_that_is_decoded_on_one_side_only_is_told() {
        let standard = preset("standard-webhooks", &[STANDARD]);
        let headers = [("webhook-id", "m")];
        let raw = "extends = \"standard-webhooks\"\nsecret_encoding = \"utf8\"\nsecret_strip_prefix = \"\"";
        let sender = custom(raw, &[STANDARD]);
        let found = hint(&standard, signed(&sender, post(&headers, "{}"))).unwrap();
        assert!(
            found
                .to_string()
                .contains("taken as utf8; the record takes it as base64"),
            "{found}"
        );
        let found = hint(&sender, signed(&standard, post(&headers, "{}"))).unwrap();
        assert!(
            found
                .to_string()
                .contains("taken as base64; the record takes it as utf8"),
            "{found}"
        );

        let secret = "ab".repeat(32);
        let (by_text, by_hex) = (
            custom(PLAIN, &[&secret]),
            custom(&format!("{PLAIN}secret_encoding = \"hex\""), &[&secret]),
        );
        let found = hint(&by_text, signed(&by_hex, post(&[], "{}"))).unwrap();
        assert!(found.to_string().contains("taken as hex"), "{found}");
        let stranger = custom(PLAIN, &["who-are-you"]);
        assert_eq!(hint(&by_text, signed(&stranger, post(&[], "{}"))), None);
    }

    #[test]
    fn a_signature_in_another_encoding_or_without_its_prefix_is_told() {
        let hex = custom(PLAIN, &[SECRET]);
        let base64 = custom(&format!("{PLAIN}encoding = \"base64\""), &[SECRET]);
        let (found, expected) = ("hex", "base64");
        let request = signed(&hex, post(&[], "{}"));
        assert_eq!(
            hint(&base64, request.clone()),
            Some(Hint::SignatureEncoding { found, expected })
        );
        assert_eq!(hint(&base64, with_body(request, "{ }x")), None);

        let mut bare = signed(&preset("github", &[SECRET]), post(&[], "{}"));
        let value = bare.head.headers["x-hub-signature-256"]
            .to_str()
            .unwrap()
            .replace("sha256=", "");
        bare.head
            .headers
            .insert("x-hub-signature-256", HeaderValue::from_str(&value).unwrap());
        let prefix = "sha256=".to_owned();
        assert_eq!(
            hint(&preset("github", &[SECRET]), bare),
            Some(Hint::NoPrefix { prefix })
        );
    }

    #[test]
    fn a_body_that_was_changed_on_its_way_is_told_when_the_change_can_be_undone() {
        let github = preset("github", &[SECRET]);
        for (sent, arrived, part) in [
            ("{\n \"a\": 1\n}", "{\r\n \"a\": 1\r\n}", "CRLF"),
            ("[1]\r\n", "[1]", "line end"),
            ("{\"a\": 1, \"b\": [1, 2]}", "{\"a\":1,\"b\":[1,2]}", "JSON"),
            ("{\"a\":\"caf\\u00e9\"}", "{\"a\":\"café\"}", "JSON"),
            ("{\"a\":\"b\\/c\"}", "{\"a\":\"b/c\"}", "JSON"),
            ("{\"a\":1}", "eyJhIjoxfQ==", "base64"),
            ("{\"a\":\"é\"}", "{\"a\":\"Ã©\"}", "UTF-8"),
        ] {
            let request = with_body(signed(&github, post(&[], sent)), arrived);
            let found = hint(&github, request).unwrap().to_string();
            assert!(found.contains(part), "{arrived}: {found}");
        }
        let forged = with_body(signed(&github, post(&[], "{\"a\":1}")), "{\"a\":2}");
        assert_eq!(hint(&github, forged), None);
    }

    #[test]
    fn the_secret_of_another_source_is_told_by_that_sources_name() {
        let (ours, theirs) = (
            preset("github", &[SECRET]),
            preset("stripe", &["their-secret-0123456789"]),
        );
        let sender = preset("github", &["their-secret-0123456789"]);
        let request = signed(&sender, post(&[], "{}"));
        let source = "billing".to_owned();
        let found = ours.hint_among(&request, Reason::WrongSignature, &[("billing", &theirs)]);
        assert_eq!(found, Some(Hint::OtherSource { source }));
        assert_eq!(
            ours.hint_among(&request, Reason::WrongSignature, &[("own", &ours)]),
            None
        );
    }

    #[test]
    fn a_wrong_public_url_is_told_without_its_query() {
        let source = |url: &str| {
            let options = VerifierOptions {
                public_url: Some(url.to_owned()),
                ..VerifierOptions::default()
            };
            let secret = SourceSecret::new(Secret::new(SECRET));
            Verifier::new(presets::find("square").unwrap(), vec![secret], options).unwrap()
        };
        let given = source("https://hooks.example.test/sq");
        for slip in [
            "http://hooks.example.test",
            "https://hooks.example.test/sq/",
            "https://10.0.0.7:8080",
        ] {
            let headers = [("host", "hooks.example.test")];
            let request = signed(&given, request(Method::POST, "/sq?token=s3", &headers, "{}"));
            let found = hint(&source(slip), request).unwrap().to_string();
            assert!(
                found.contains("holds for https://hooks.example.test/sq,"),
                "{slip}: {found}"
            );
            assert!(!found.contains("s3"), "{found}");
        }
        let forged = with_body(signed(&given, request(Method::POST, "/sq", &[], "{}")), "{\"a\":1}");
        assert_eq!(hint(&source("http://hooks.example.test"), forged), None);
    }

    #[test]
    fn a_query_that_twilio_sorted_after_signing_is_told() {
        // UR-05.
        let twilio = preset("twilio", &["twilio-token-0123456789abcdef01"]);
        let headers = [("x-twilio-signature", "aHOcQnac6D6qRGIYBDsau9ysfCw=")];
        let sorted = request(Method::GET, "/in?a=1&b=2", &headers, "");
        assert_eq!(hint(&twilio, sorted), Some(Hint::QueryOrder));
        assert_eq!(hint(&twilio, request(Method::GET, "/in?a=1&b=3", &headers, "")), None);
    }

    #[test]
    fn no_hint_tells_a_secret() {
        let padded = preset("github", &["test-secret-0123456789abcdef\n"]);
        let found = hint(&padded, signed(&preset("github", &[SECRET]), post(&[], "{}"))).unwrap();
        assert!(!format!("{found} {found:?}").contains("0123456789"), "{found}");
    }
}
