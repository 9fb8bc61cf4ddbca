//! Signing: the same record, the other way round. Used by `fresh` forwards, `hooksluice sign` and `hooksluice send`.

use std::borrow::Cow;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use zeroize::Zeroizing;

use crate::time::Timestamp;

use super::jwt::TokenRules;
use super::place::{Fields, Place};
use super::record::{Kind, Record, Scheme};
use super::signature::Group;
use super::template::{Filling, Missing};
use super::verifier::{Verifier, is_live, prehashed};

/// What is to be signed.
#[derive(Clone, Copy, Debug)]
pub struct SignInput<'a> {
    /// The method.
    pub method: &'a Method,
    /// Path and query.
    pub target: &'a PathAndQuery,
    /// The host that was asked for, where that is signed and no `public_url` says it.
    pub authority: Option<&'a str>,
    /// The headers; which family of a record signs is told by them, as when verifying.
    pub headers: &'a HeaderMap,
    /// The exact body.
    pub body: &'a [u8],
    /// The time that is signed.
    pub now: Timestamp,
    /// Which of the configured secrets signs; the first live one when there is none.
    pub secret_index: Option<usize>,
}

/// Why a request cannot be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotSign {
    /// The provider signs nothing.
    #[error("{0} signs nothing")]
    Unsigned(String),
    /// What is configured is the provider's public key.
    #[error("{0} signs with a private key: the provider alone can sign")]
    ProviderOnly(String),
    /// There is no live secret, or none with this index.
    #[error("there is no such secret")]
    NoSecret,
    /// The signature or its time does not stand in a header.
    #[error("the signature of {0} does not stand in a header")]
    NotInHeader(String),
    /// Something else that is signed is not in the request.
    #[error("the request lacks what {0} signs")]
    Incomplete(String),
    /// A condition of the scheme does not hold (Twilio: `bodySHA256` in the URL is not the body's digest).
    #[error("the request breaks a condition of the scheme: {0}")]
    Condition(String),
}

impl Record {
    /// Whether a request can be signed anew so that it looks as if it had been sent now: not where the time stands in
    /// the body.
    pub fn signs_fresh(&self) -> bool {
        let in_header = |scheme: &Scheme| {
            let place = scheme.signature.places.first();
            matches!(place, Some(Place::Header(_)))
                && scheme
                    .time
                    .as_ref()
                    .is_none_or(|rule| matches!(rule.place, Place::Header(_) | Place::Signature(_)))
        };
        self.is_signable() && self.kind != Kind::None && self.schemes.iter().all(in_header)
    }

    /// Whether what is configured can also sign: not where it is the provider's public key.
    pub fn is_signable(&self) -> bool {
        let signs = |scheme: &Scheme| scheme.token.as_ref().is_none_or(TokenRules::is_signable);
        !self.kind.is_public_key() && self.schemes.iter().all(signs)
    }
}

impl Verifier {
    /// The headers that make the request a correctly signed one; each replaces all lines of its name.
    ///
    /// # Errors
    /// Why the scheme or the request does not allow it.
    pub fn sign(&self, input: &SignInput<'_>) -> Result<Vec<(HeaderName, HeaderValue)>, CannotSign> {
        let record = self.record();
        let title = || record.title.clone();
        if !record.is_signable() {
            return Err(CannotSign::ProviderOnly(title()));
        }
        let secret = match input.secret_index {
            Some(index) => Some(index),
            None => self.signing_secret(input.now),
        };
        let secret = secret.ok_or(CannotSign::NoSecret)?;
        let head = Fields::new(input.method, input.target, input.headers, &[], &[]);
        let index = record.scheme_of(&head);
        let scheme = record.schemes.get(index).ok_or_else(|| CannotSign::Unsigned(title()))?;
        let Some(Place::Header(name)) = scheme.signature.places.first() else {
            return Err(match record.kind {
                Kind::None => CannotSign::Unsigned(title()),
                _ => CannotSign::NotInHeader(title()),
            });
        };
        match record.kind {
            Kind::None => Err(CannotSign::Unsigned(title())),
            Kind::Jwt => {
                let fields = Fields::new(input.method, input.target, input.headers, input.body, &scheme.pointers)
                    .asked(input.authority);
                let urls = self.urls(scheme, &fields);
                let with = Filling {
                    fields: &fields,
                    params: self.params(),
                    timestamp: None,
                    url: urls.first().ok_or_else(|| CannotSign::Incomplete(title()))?,
                    group: None,
                    secret: None,
                    mac: None,
                };
                let token = self.make_token(index, scheme, secret, &with, input.now)?;
                let value = credential(token.as_bytes()).ok_or_else(|| CannotSign::NotInHeader(title()))?;
                Ok(vec![(name.clone(), value)])
            }
            Kind::Ed25519 | Kind::Ecdsa | Kind::Rsa => Err(CannotSign::ProviderOnly(title())),
            Kind::Hmac | Kind::Digest => self.sign_mac(input, index, scheme, name, secret),
            Kind::Token | Kind::Basic => {
                let secret = self.secrets().get(secret).ok_or(CannotSign::NoSecret)?;
                let shown = secret.secret.expose();
                let text = Zeroizing::new(match record.kind {
                    Kind::Basic => format!("Basic {}", data_encoding::BASE64.encode(shown)).into_bytes(),
                    _ => [scheme.signature.prefix.as_bytes(), shown].concat(),
                });
                Ok(vec![(name.clone(), credential(&text).ok_or(CannotSign::NoSecret)?)])
            }
        }
    }

    /// The first live secret that can sign; the first live one when there is none.
    fn signing_secret(&self, now: Timestamp) -> Option<usize> {
        let live =
            || (0..self.secrets().len()).filter(|index| self.secrets().get(*index).is_some_and(|s| is_live(s, now)));
        let signs = |index: &usize| self.mac_key(0, *index).is_some() || self.signs_tokens(*index);
        live().find(signs).or_else(|| live().next())
    }

    fn sign_mac(
        &self,
        input: &SignInput<'_>,
        index: usize,
        scheme: &Scheme,
        name: &HeaderName,
        secret: usize,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, CannotSign> {
        let title = || self.record().title.clone();
        let incomplete = |_missing: Missing| CannotSign::Incomplete(title());
        let mut headers = Cow::Borrowed(input.headers);
        let mut signed = Vec::new();
        let mut time = String::new();
        if let Some(rule) = &scheme.time {
            time = rule.unit.write(input.now).unwrap_or_default();
            match &rule.place {
                Place::Header(name) => {
                    let value = HeaderValue::from_str(&time)
                        .ok()
                        .ok_or_else(|| CannotSign::NotInHeader(title()))?;
                    headers.to_mut().insert(name, value.clone());
                    signed.push((name.clone(), value));
                }
                Place::Query(_) | Place::NumberedHeaders(..) | Place::HeaderOf(_) | Place::QueryOf(_) => {
                    return Err(CannotSign::NotInHeader(title()));
                }
                Place::Signature(_)
                | Place::Json(_)
                | Place::Form(_)
                | Place::FormJson(..)
                | Place::Item(_)
                | Place::Body
                | Place::Claim(_) => {}
            }
        }
        let coding = input
            .headers
            .get(http::header::CONTENT_ENCODING)
            .map(HeaderValue::as_bytes);
        let body = self
            .signed_body(input.body, coding)
            .map_err(|_why| CannotSign::Incomplete(title()))?;
        let fields = Fields::new(input.method, input.target, &headers, &body, &scheme.pointers).asked(input.authority);
        let key = match &scheme.time {
            Some(rule) => match &rule.place {
                Place::Signature(key) => Some(key.as_str()),
                // A time in the body is what it is.
                place @ (Place::Json(_) | Place::Form(_) | Place::FormJson(..)) => {
                    let found = fields.get(place).ok_or_else(|| CannotSign::Incomplete(title()))?;
                    time = String::from_utf8_lossy(&found).into_owned();
                    None
                }
                _ => None,
            },
            None => None,
        };
        // What else the signature's own text must hold is a nonce (NMI), and no two signings share a time for long.
        let nonce = input.now.as_millis().to_string();
        let lines = scheme.signature.lines(&fields).unwrap_or_default();
        let came = scheme.signature.groups(&lines, self.wanted(scheme)).unwrap_or_default();
        let kept = |name: &str| {
            let value = came
                .first()
                .filter(|_| scheme.signature.keeps(name))?
                .get(name.as_bytes())?;
            std::str::from_utf8(value).ok()
        };
        let mut values: Vec<(&str, &str)> = key.map(|key| (key, time.as_str())).into_iter().collect();
        for place in scheme.payload.places() {
            if let Place::Signature(name) = place
                && !values.iter().any(|(known, _)| *known == name.as_str())
            {
                values.push((name, kept(name).unwrap_or(&nonce)));
            }
        }
        let in_bytes = values.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let group = Group::signing(in_bytes);
        let urls = self.urls(scheme, &fields);
        let url = urls.first().ok_or_else(|| CannotSign::Incomplete(title()))?;
        let key_of_secret = self.mac_key(index, secret);
        let key_of_secret = key_of_secret.ok_or_else(|| match self.secrets().get(secret) {
            Some(_) => CannotSign::ProviderOnly(title()),
            None => CannotSign::NoSecret,
        })?;
        let with = Filling {
            fields: &fields,
            params: self.params(),
            timestamp: Some(time.as_bytes()),
            url,
            group: Some(&group),
            secret: key_of_secret.secret(),
            mac: None,
        };
        if let Some(condition) = scheme.require.iter().find(|condition| !condition.holds(&fields)) {
            return Err(CannotSign::Condition(condition.to_string()));
        }
        for (left, right) in self.required(scheme) {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            left.fill(&with, &mut a).map_err(incomplete)?;
            right.fill(&with, &mut b).map_err(incomplete)?;
            if a.concat() != b.concat() {
                return Err(CannotSign::Condition(format!(
                    "{} == {}",
                    left.as_str(),
                    right.as_str()
                )));
            }
        }
        if scheme.payload.is_extended(&with).map_err(incomplete)? {
            return Err(CannotSign::Condition("what is signed is UTF-8 text".to_owned()));
        }
        let mut payload = Vec::new();
        scheme.payload.fill(&with, &mut payload).map_err(incomplete)?;
        let tag = key_of_secret.compute(&prehashed(scheme, payload));
        let text = scheme.signature.write(tag.as_slice(), &values);
        let value = credential(text.as_bytes()).ok_or_else(|| CannotSign::NotInHeader(title()))?;
        signed.push((name.clone(), value));
        Ok(signed)
    }
}

/// A header value that `Debug` does not show.
fn credential(text: &[u8]) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
