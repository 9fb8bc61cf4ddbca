//! [`Verifier`]: a provider's record with a source's secrets.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::request::{RawRequest, RequestHead};
use crate::time::Timestamp;

use super::challenge::{Challenge, Handshake};
use super::coding;
use super::mac::MacKey;
use super::place::Fields;
use super::record::{Kind, Record, Scheme};
use super::secrets::{Key, prepare};
use super::template::{Filling, Missing};
use super::url::{self, PublicUrl};
use super::{ChallengeAnswer, Proof, Reason, Rejection, VerifiedRequest};

pub use self::options::{SourceSecret, Tolerance, VerifierOptions, VerifierProblem};

use self::judge::Judged;
use self::options::{check_options, check_public_url};

pub(super) use self::judge::prehashed;

mod altered;
mod judge;
mod options;
mod token;

/// Most elements of an array whose elements are judged one by one.
pub(super) const MAX_ITEMS: usize = 1000;

/// Most bytes that a compressed body is inflated to where nothing else is said.
const MAX_DECODED: u64 = 25 * 1024 * 1024;

/// What a request turned out to be.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are events, and a box would cost each of them an allocation"
)]
pub enum Verified {
    /// Its signature holds.
    Event(VerifiedRequest),
    /// A hand-shake, with our answer.
    Challenge(ChallengeAnswer),
}

/// A request that was refused, given back so that a hint can be worked out off the hot path.
#[derive(Debug, thiserror::Error)]
#[error("{rejection}")]
pub struct Rejected {
    /// Why.
    pub rejection: Rejection,
    /// The request, still untrusted.
    pub request: Box<RawRequest>,
}

/// Checks requests of one source. Holds keys, so it prints none of itself.
pub struct Verifier {
    record: Arc<Record>,
    secrets: Vec<SourceSecret>,
    /// Per header family and secret, in their orders.
    keys: Vec<Vec<Key>>,
    public_url: Option<PublicUrl>,
    own_hosts: Vec<String>,
    tolerance: Option<Tolerance>,
    params: BTreeMap<String, String>,
    max_decoded: u64,
    takes_secrets: bool,
}

/// Two that are equal judge every request alike.
impl PartialEq for Verifier {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            record,
            secrets,
            // Made of the two.
            keys: _,
            public_url,
            own_hosts,
            tolerance,
            params,
            max_decoded,
            takes_secrets,
        } = self;
        record == &other.record
            && secrets == &other.secrets
            && public_url == &other.public_url
            && own_hosts == &other.own_hosts
            && tolerance == &other.tolerance
            && params == &other.params
            && max_decoded == &other.max_decoded
            && takes_secrets == &other.takes_secrets
    }
}

impl Eq for Verifier {}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("record", &self.record.name)
            .field("secrets", &self.secrets.len())
            .finish_non_exhaustive()
    }
}

impl Verifier {
    /// Prepares the keys.
    ///
    /// # Errors
    /// Every reason why this source must not start: no secret, an empty or undecodable one, a second input or the
    /// public URL missing, an unsigned scheme that was not asked for.
    pub fn new(
        record: Arc<Record>,
        secrets: Vec<SourceSecret>,
        mut options: VerifierOptions,
    ) -> Result<Self, Vec<VerifierProblem>> {
        for (name, usual) in &record.usual_params {
            options.params.entry(name.clone()).or_insert_with(|| usual.clone());
        }
        let mut problems = Vec::new();
        let public_url = check_public_url(&record, &options, &mut problems);
        check_options(&record, &secrets, &options, &mut problems);
        let record = match record.with_params(&options.params) {
            Ok(Some(named)) => Arc::new(named),
            Ok(None) => record,
            Err((param, why)) => {
                problems.push(VerifierProblem {
                    secret_index: None,
                    message: format!("bad parameter `{param}`: {why}"),
                    help: None,
                });
                record
            }
        };
        let mut keys: Vec<Vec<Key>> = record.schemes.iter().map(|_| Vec::new()).collect();
        for (index, secret) in secrets.iter().enumerate() {
            match prepare(&record, &secret.secret) {
                Ok(made) => keys.iter_mut().zip(made).for_each(|(list, key)| list.push(key)),
                Err((message, help)) => problems.push(VerifierProblem {
                    secret_index: Some(index),
                    message,
                    help,
                }),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let verifier = Self {
            record,
            secrets,
            keys,
            public_url,
            own_hosts: options.own_hosts,
            tolerance: options.tolerance,
            params: options.params,
            max_decoded: options.max_decoded.unwrap_or(MAX_DECODED),
            takes_secrets: options.takes_secrets,
        };
        if verifier.secrets.is_empty() && verifier.record.has_key_set() && verifier.key_set_address().is_none() {
            return Err(vec![VerifierProblem {
                secret_index: None,
                message: format!("where {} has its keys is not known", verifier.record.title),
                help: Some("give the parameters that its key set's address needs, or the key as a secret".to_owned()),
            }]);
        }
        Ok(verifier)
    }

    /// A verifier that holds no secret: it answers hand-shakes that need none and refuses everything else.
    pub fn challenges_only(record: Arc<Record>, params: BTreeMap<String, String>) -> Self {
        Self {
            keys: record.schemes.iter().map(|_| Vec::new()).collect(),
            record,
            secrets: Vec::new(),
            public_url: None,
            own_hosts: Vec::new(),
            tolerance: None,
            params,
            max_decoded: MAX_DECODED,
            takes_secrets: true,
        }
    }

    /// The provider's record.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The secrets, in their order.
    pub fn secrets(&self) -> &[SourceSecret] {
        &self.secrets
    }

    /// How old a signature may be: the source's tolerance, else the record's. `None` where age is not judged.
    pub fn tolerance(&self) -> Option<Duration> {
        match self.tolerance {
            Some(Tolerance::Within(tolerance)) if self.record.signs_time() => Some(tolerance),
            Some(Tolerance::Off | Tolerance::Within(_)) => None,
            None => self.record.tolerance(),
        }
    }

    /// Refuses what the head alone shows to be refusable: a signature that is missing or malformed, a time that is
    /// missing, malformed or outside the window, a wrong token.
    ///
    /// # Errors
    /// The refusal. `Ok` says nothing about the signature.
    pub fn refuse_head(&self, head: &RequestHead) -> Result<(), Rejection> {
        let fields = head_fields(head);
        let Some(scheme) = self.record.schemes.get(self.record.scheme_of(&fields)) else {
            return Ok(());
        };
        let mut unsigned = self.challenges().filter(|challenge| !challenge.verify_first);
        if !scheme.signature.is_in_head() || unsigned.any(|challenge| challenge.may_be_asked(&fields)) {
            return Ok(());
        }
        let verdict = match self.record.kind {
            Kind::Hmac | Kind::Digest | Kind::Ed25519 | Kind::Ecdsa | Kind::Rsa => {
                let lines = scheme.signature.lines(&fields).map_err(rejection)?;
                self.claims(scheme, &fields, &lines, head.received_at).map(|_claims| ())
            }
            Kind::Jwt => self.refuse_token(scheme, &fields, head.received_at),
            Kind::Token | Kind::Basic => self.judge_token(scheme, &fields, head.received_at).map(|_index| ()),
            Kind::None => Ok(()),
        };
        verdict.map_err(rejection)
    }

    /// Checks a whole request. Freshness is judged by `head.received_at`.
    ///
    /// # Errors
    /// The refusal, with the request.
    pub fn verify(&self, request: RawRequest) -> Result<Verified, Rejected> {
        match self.judge(&request) {
            Ok((Judged::Challenge(answer), _)) => Ok(Verified::Challenge(*answer)),
            Ok((
                Judged::Event {
                    secret_index,
                    signed_at,
                },
                names,
            )) => {
                let secret = secret_index.and_then(|index| self.secrets.get(index));
                let proof = Proof {
                    secret_index,
                    label: secret.and_then(|secret| secret.label.clone()),
                    scope: secret.and_then(|secret| secret.scope.clone()),
                    signed_at,
                };
                Ok(Verified::Event(VerifiedRequest {
                    request,
                    proof,
                    names,
                    has_content: !self.record.ping,
                    body_digest: OnceLock::new(),
                }))
            }
            Err(reason) => Err(Rejected {
                rejection: Rejection { reason },
                request: Box::new(request),
            }),
        }
    }

    /// The record, shared.
    pub(super) fn shared_record(&self) -> &Arc<Record> {
        &self.record
    }

    /// The public URL.
    pub(super) fn public_url(&self) -> Option<&PublicUrl> {
        self.public_url.as_ref()
    }

    /// Which header family judges the request.
    pub(super) fn scheme_index(&self, request: &RawRequest) -> usize {
        let fields = Fields::of(&request.head, &request.body, &self.record.when_pointers);
        self.record.scheme_of(&fields)
    }

    fn answer(
        &self,
        index: usize,
        fields: &Fields<'_>,
        verified: bool,
        now: Timestamp,
    ) -> Result<Option<Box<ChallengeAnswer>>, Reason> {
        let mut challenges = self.challenges();
        let Some(asked) = challenges.find(|c| c.verify_first == verified && c.is_asked(fields)) else {
            return Ok(None);
        };
        let live = self.secrets.iter().position(|secret| is_live(secret, now));
        let handshake = asked.answer(&Filling {
            fields,
            params: &self.params,
            timestamp: None,
            url: "",
            group: None,
            secret: None,
            mac: live.and_then(|secret| self.mac_key(index, secret)),
        });
        match handshake {
            Handshake::Answered(answer) => Ok(Some(Box::new(answer))),
            Handshake::CheckFailed => Err(Reason::WrongSignature),
            Handshake::NotOne => Ok(None),
        }
    }

    /// The hand-shakes that it answers.
    fn challenges(&self) -> impl Iterator<Item = &Challenge> {
        let all = self.record.challenges.iter();
        all.filter(|challenge| self.takes_secrets || challenge.hands_over_secret.is_none())
    }

    /// Whether a request with this head, whose method is none that the provider delivers with, may be a hand-shake.
    pub fn may_be_challenge(&self, head: &RequestHead) -> bool {
        let fields = head_fields(head);
        self.challenges()
            .any(|challenge| challenge.names_method(&head.method) && challenge.may_be_asked(&fields))
    }

    /// The bytes that were signed, of a body as it came.
    pub(super) fn signed_body<'b>(&self, body: &'b [u8], coding: Option<&[u8]>) -> Result<Cow<'b, [u8]>, Reason> {
        if self.record.signed_over_decoded {
            coding::decoded(body, coding, self.max_decoded)
        } else {
            Ok(Cow::Borrowed(body))
        }
    }

    /// The second inputs.
    pub(super) fn params(&self) -> &BTreeMap<String, String> {
        &self.params
    }

    /// The prepared key of a header family and a secret, where it is one that signs.
    pub(super) fn mac_key(&self, scheme: usize, secret: usize) -> Option<&MacKey> {
        match self.keys.get(scheme)?.get(secret)? {
            Key::Mac(key) => Some(key),
            Key::Public(_) | Key::Token(_) => None,
        }
    }

    /// The spellings of the signed URL; one empty text where the scheme signs none, and nothing where the request asks for a
    /// host that is not ours.
    pub(super) fn urls(&self, scheme: &Scheme, fields: &Fields<'_>) -> Cow<'static, [String]> {
        const NO_URL: &[String] = &[String::new()];
        match &self.public_url {
            Some(public_url) if scheme.uses_url => {
                Cow::Owned(url::spellings(public_url.of(fields.target), &scheme.url_variants))
            }
            None if scheme.uses_url && !self.own_hosts.is_empty() => {
                let host = fields.authority.filter(|host| url::is_one_of(host, &self.own_hosts));
                let asked = host.map(|host| format!("https://{host}{}", fields.target));
                Cow::Owned(asked.map_or_else(Vec::new, |asked| url::spellings(asked, &scheme.url_variants)))
            }
            _ => Cow::Borrowed(NO_URL),
        }
    }
}

/// Whether the secret still vouches.
pub(super) fn is_live(secret: &SourceSecret, now: Timestamp) -> bool {
    secret.not_after.is_none_or(|end| now < end)
}

fn rejection(reason: Reason) -> Rejection {
    Rejection { reason }
}

pub(super) fn missing(missing: Missing) -> Reason {
    match missing {
        Missing::InHead => Reason::MalformedSignature,
        Missing::InBody => Reason::BodyMalformed,
    }
}

pub(super) fn head_fields(head: &RequestHead) -> Fields<'_> {
    Fields::of(head, &[], &[])
}
