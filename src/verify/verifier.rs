//! [`Verifier`]: a provider's record with a source's secrets.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use subtle::Choice;
use zeroize::Zeroizing;

use crate::request::{RawRequest, RequestHead};
use crate::secret::Secret;
use crate::time::Timestamp;

use super::challenge::{Challenge, Handshake};
use super::coding;
use super::few::Few;
use super::json;
use super::mac::{self, MacKey, Tag};
use super::place::{Fields, Place};
use super::public_key::Message;
use super::record::{Kind, Record, Scheme, TimeRule};
use super::secrets::{Key, prepare};
use super::signature::{Candidate, Group, SignedTime};
use super::template::{Filling, Missing, Template};
use super::url::{self, PublicUrl};
use super::window::Window;
use super::{ChallengeAnswer, Names, Proof, Reason, Rejection, VerifiedRequest};

/// Most elements of an array whose elements are judged one by one.
pub(super) const MAX_ITEMS: usize = 1000;

/// Most bytes that a compressed body is inflated to where nothing else is said.
const MAX_DECODED: u64 = 25 * 1024 * 1024;

/// As many slices of the request as a signed text is usually made of.
const TEXT_PIECES: usize = 4;

/// One configured secret of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSecret {
    /// As the provider shows it.
    pub secret: Secret,
    /// For people; never part of a key.
    pub label: Option<Arc<str>>,
    /// Separates endpoints that share a path; part of the dedupe key.
    pub scope: Option<Arc<str>>,
    /// From this time on it vouches for nothing.
    pub not_after: Option<Timestamp>,
}

impl SourceSecret {
    /// A secret without label, scope or end.
    pub fn new(secret: Secret) -> Self {
        Self {
            secret,
            label: None,
            scope: None,
            not_after: None,
        }
    }
}

/// `tolerance` of a source, which stands in for the record's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// `"off"`: age is not judged.
    Off,
    /// As far from now as this, on either side.
    Within(Duration),
}

/// What a source says besides its secrets.
#[derive(Clone, Debug, Default)]
pub struct VerifierOptions {
    /// The URL as the provider was given it, for schemes that sign it; see [`PublicUrl::parse`].
    pub public_url: Option<String>,
    /// Where nothing is written: hosts of ours, any of which the provider may have been given as `https://HOST`. One may be
    /// a wildcard, `*.example.com`. Which one it was, the request says.
    pub own_hosts: Vec<String>,
    /// Instead of the record's tolerance.
    pub tolerance: Option<Tolerance>,
    /// Second inputs by the names that the record declares.
    pub params: BTreeMap<String, String>,
    /// `kind = "none"` is meant.
    pub accept_unsigned: bool,
    /// Most bytes that a compressed body is inflated to, where the provider signs what comes out (`max_body`).
    pub max_decoded: Option<u64>,
    /// Also answer hand-shakes in which a stranger hands over the secret (Asana), for who judges captured requests. A
    /// source must not: whoever comes first would choose its secret.
    pub takes_secrets: bool,
    /// The source takes its secret in band ([`Verifier::handed_over`]), and without one refuses every event.
    pub learns: bool,
}

/// Why a source cannot be verified: it must not start (P3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierProblem {
    /// Which secret, by its place in the list; `None` for the source as a whole.
    pub secret_index: Option<usize>,
    /// What is wrong. Never holds key material.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

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

enum Judged {
    Event {
        secret_index: Option<usize>,
        signed_at: Option<Timestamp>,
    },
    /// Few requests are one, and all would pay for its size.
    Challenge(Box<ChallengeAnswer>),
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

    /// Whether the request would be an event of this source at any time; for hints.
    pub(super) fn holds(&self, request: &RawRequest) -> bool {
        matches!(
            self.judge(request),
            Ok((
                Judged::Event {
                    secret_index: Some(_),
                    ..
                },
                _
            ))
        )
    }

    /// The same source but for what is given, without judging age; `None` if it cannot be. For hints.
    pub(super) fn altered(
        &self,
        record: Arc<Record>,
        secrets: Vec<SourceSecret>,
        public_url: Option<PublicUrl>,
    ) -> Option<Self> {
        let mut keys: Vec<Vec<Key>> = record.schemes.iter().map(|_| Vec::new()).collect();
        for secret in &secrets {
            let made = prepare(&record, &secret.secret).ok()?;
            keys.iter_mut().zip(made).for_each(|(list, key)| list.push(key));
        }
        Some(Self {
            record,
            secrets,
            keys,
            public_url,
            own_hosts: self.own_hosts.clone(),
            tolerance: Some(Tolerance::Off),
            params: self.params.clone(),
            max_decoded: self.max_decoded,
            takes_secrets: self.takes_secrets,
        })
    }

    /// The same source with this secret alone.
    pub(super) fn with_secret(&self, secret: SourceSecret) -> Result<Self, String> {
        prepare(&self.record, &secret.secret).map_err(|(why, _help)| why)?;
        let made = self.altered(Arc::clone(&self.record), vec![secret], self.public_url.clone());
        let mut verifier = made.ok_or_else(|| "the key cannot be used".to_owned())?;
        verifier.tolerance = self.tolerance;
        Ok(verifier)
    }

    /// The record, shared.
    pub(super) fn shared_record(&self) -> &Arc<Record> {
        &self.record
    }

    /// The public URL.
    pub(super) fn public_url(&self) -> Option<&PublicUrl> {
        self.public_url.as_ref()
    }

    /// How far the time that the request's signature covers lies behind now (negative: ahead), in milliseconds.
    pub(super) fn behind(&self, request: &RawRequest) -> Option<i64> {
        let head = &request.head;
        let scheme = self.record.schemes.get(self.scheme_index(request))?;
        let fields = Fields::new(
            &head.method,
            &head.target,
            &head.headers,
            &request.body,
            &scheme.pointers,
        );
        let rule = scheme.time.as_ref()?;
        let lines = scheme.signature.lines(&fields).ok()?;
        let groups = scheme.signature.groups(&lines, self.wanted(scheme)).ok()?;
        let signed = signed_time(rule, &fields, groups.first()?)?.at?;
        Some(head.received_at.as_millis().saturating_sub(signed.as_millis()))
    }

    /// Where a value that is signed by itself stands twice in the request.
    pub(super) fn given_twice(&self, request: &RawRequest) -> Option<String> {
        let head = &request.head;
        let scheme = self.record.schemes.get(self.scheme_index(request))?;
        let fields = Fields::new(&head.method, &head.target, &head.headers, &request.body, &[]);
        scheme.picked.repeated(&fields).map(|place| place.to_string())
    }

    /// Which header family judges the request.
    pub(super) fn scheme_index(&self, request: &RawRequest) -> usize {
        let RequestHead {
            method,
            target,
            headers,
            ..
        } = &request.head;
        let pointers = &self.record.when_pointers;
        self.record
            .scheme_of(&Fields::new(method, target, headers, &request.body, pointers))
    }

    fn judge(&self, request: &RawRequest) -> Result<(Judged, Names), Reason> {
        let head = &request.head;
        let index = self.scheme_index(request);
        let scheme = self.record.schemes.get(index).ok_or(Reason::MissingSignature)?;
        let fields = Fields::new(
            &head.method,
            &head.target,
            &head.headers,
            &request.body,
            &scheme.pointers,
        )
        .asked(head.authority.as_deref());
        let now = head.received_at;
        if let Some(answer) = self.answer(index, &fields, false, now)? {
            return Ok((Judged::Challenge(answer), Names::default()));
        }
        // From here on the body is what was signed: names are read from what the signature covers.
        let body = self.signed_body(&request.body, fields.header(&http::header::CONTENT_ENCODING))?;
        let fields = match &body {
            Cow::Borrowed(_) => fields,
            Cow::Owned(decoded) => {
                let Fields {
                    method,
                    target,
                    headers,
                    ..
                } = fields;
                Fields::new(method, target, headers, decoded, &scheme.pointers).asked(head.authority.as_deref())
            }
        };
        let (secret_index, signed_at) = match self.record.kind {
            Kind::Hmac | Kind::Digest | Kind::Ed25519 | Kind::Ecdsa | Kind::Rsa => {
                let (secret, signed_at) = match &scheme.each {
                    None => self.judge_signature(index, scheme, &fields, now)?,
                    Some(_) => {
                        self.judge_each(scheme, &fields, |item| self.judge_signature(index, scheme, item, now))?
                    }
                };
                (Some(secret), signed_at)
            }
            Kind::Jwt => {
                let (secret, signed_at) = self.judge_jws(index, scheme, &fields, now)?;
                (Some(secret), signed_at)
            }
            Kind::Token | Kind::Basic => {
                let secret = match &scheme.each {
                    None => self.judge_token(scheme, &fields, now)?,
                    Some(_) => self.judge_each(scheme, &fields, |item| self.judge_token(scheme, item, now))?,
                };
                (Some(secret), None)
            }
            Kind::None => (None, None),
        };
        if !scheme.require.iter().all(|condition| condition.holds(&fields)) {
            return Err(Reason::WrongSignature);
        }
        if let Some(answer) = self.answer(index, &fields, true, now)? {
            return Ok((Judged::Challenge(answer), Names::default()));
        }
        let names = Names {
            delivery_id: fields.text(&scheme.delivery_id),
            dedupe_id: fields.text(&scheme.dedupe_id),
            names_dedupe_id: !scheme.dedupe_id.is_empty(),
            event_type: fields.text(&scheme.event_type),
            record_scope: self
                .record
                .scope
                .as_ref()
                .and_then(|place| fields.text(std::slice::from_ref(place))),
        };
        Ok((
            Judged::Event {
                secret_index,
                signed_at,
            },
            names,
        ))
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

    /// Judges every element of the array by itself; one that does not hold refuses the request. What the first one gives
    /// stands for all.
    fn judge_each<T>(
        &self,
        scheme: &Scheme,
        fields: &Fields<'_>,
        judge: impl Fn(&Fields<'_>) -> Result<T, Reason>,
    ) -> Result<T, Reason> {
        let array = scheme.each.as_ref().ok_or(Reason::MissingSignature)?;
        if json::is_repeated(fields.body, std::slice::from_ref(array)) {
            return Err(Reason::BodyMalformed);
        }
        let items = json::elements(fields.body, array, MAX_ITEMS).ok_or(Reason::BodyMalformed)?;
        let mut first = None;
        for item in items {
            let mut element = Fields::new(
                fields.method,
                fields.target,
                fields.headers,
                fields.body,
                &scheme.pointers,
            )
            .asked(fields.authority);
            element.item = Some(item);
            let judged = judge(&element)?;
            first = first.or(Some(judged));
        }
        first.ok_or(Reason::MissingSignature)
    }

    /// The candidates whose time is in the window, as far as the head shows it.
    fn claims<'v>(
        &self,
        scheme: &'v Scheme,
        fields: &'v Fields<'_>,
        lines: &'v Few<Cow<'_, [u8]>>,
        now: Timestamp,
    ) -> Result<Vec<Group<'v>>, Reason> {
        let mut groups = scheme.signature.groups(lines, self.wanted(scheme))?;
        let Some(rule) = &scheme.time else {
            return Ok(groups);
        };
        let mut refused = Reason::MalformedSignature;
        groups.retain_mut(|group| {
            group.time = signed_time(rule, fields, group);
            let fresh = match rule.place.is_in_head() {
                true => self.judge_time(rule, group.time.as_ref(), now),
                false => Ok(()),
            };
            fresh.map_err(|reason| refused = reason).is_ok()
        });
        if groups.is_empty() { Err(refused) } else { Ok(groups) }
    }

    fn judge_time(&self, rule: &TimeRule, time: Option<&SignedTime<'_>>, now: Timestamp) -> Result<(), Reason> {
        let time = time
            .filter(|time| !time.text.is_empty())
            .ok_or(Reason::MissingTimestamp)?;
        let window = match self.tolerance {
            Some(Tolerance::Off) => None,
            Some(Tolerance::Within(tolerance)) => Some(Window {
                past: tolerance,
                future: tolerance,
            }),
            None => rule.window,
        };
        // Also where age is not judged: with nothing between time and body, bytes of one could be moved to the other.
        let signed = time.at.ok_or(Reason::MalformedTimestamp)?;
        window.map_or(Ok(()), |window| window.judge(rule.unit, signed, now))
    }

    /// The secret that vouches, and the time that the signature covers, where the scheme has one.
    fn judge_signature(
        &self,
        index: usize,
        scheme: &Scheme,
        fields: &Fields<'_>,
        now: Timestamp,
    ) -> Result<(usize, Option<Timestamp>), Reason> {
        scheme.picked.refuse_repeated(fields)?;
        let lines = scheme.signature.lines(fields)?;
        let claims = self.claims(scheme, fields, &lines, now)?;
        let urls = self.urls(scheme, fields);
        let mut refused = Reason::WrongSignature;
        for claim in &claims {
            // Which spelling of the URL fits is no secret, so the first one ends the search.
            for url in urls.iter() {
                match self.judge_claim(index, scheme, fields, claim, url, now) {
                    Ok(secret) => return Ok((secret, claim.signed_at())),
                    Err(Reason::WrongSignature) => {}
                    Err(reason) => refused = reason,
                }
            }
        }
        Err(refused)
    }

    fn judge_claim(
        &self,
        index: usize,
        scheme: &Scheme,
        fields: &Fields<'_>,
        claim: &Group<'_>,
        url: &str,
        now: Timestamp,
    ) -> Result<usize, Reason> {
        let with = Filling {
            fields,
            params: &self.params,
            timestamp: claim.timestamp(),
            url,
            group: Some(claim),
            secret: None,
            mac: None,
        };
        let keys = self.keys.get(index).map(Vec::as_slice).unwrap_or_default();
        let mut refused = Reason::WrongSignature;
        // Which of the texts was signed is no secret either.
        for text in scheme.texts() {
            match self.vouching(scheme, keys, text, &with, claim, now) {
                Ok(Some(secret)) => {
                    self.judge_rest(scheme, &with, now)?;
                    return Ok(secret);
                }
                Ok(None) => {}
                Err(absent) => refused = missing(absent),
            }
        }
        Err(refused)
    }

    /// The first live secret that made one of the candidates. Every candidate is compared with every live secret, in a
    /// time that tells neither which nor how nearly (SC-04); of public keys nothing is secret.
    fn vouching<'a>(
        &'a self,
        scheme: &Scheme,
        keys: &'a [Key],
        text: &'a Template,
        with: &Filling<'a>,
        group: &Group<'_>,
        now: Timestamp,
    ) -> Result<Option<usize>, Missing> {
        let live = || {
            let keys = keys.iter().zip(&self.secrets).enumerate();
            keys.filter_map(|(index, (key, secret))| is_live(secret, now).then_some((index, key)))
        };
        let macs = || {
            live().filter_map(|(index, key)| match key {
                Key::Mac(key) => Some((index, key)),
                Key::Public(_) | Key::Token(_) => None,
            })
        };
        // A text that an answer to a hand-shake could MAC for anybody proves nothing (see `Challenge::macs`).
        let is_answerable = |payload: &[Cow<'_, [u8]>]| {
            let mut answerable = self.record.answerable.iter();
            answerable.any(|values| values.allow_pieces(payload))
        };
        let mut first = None;
        let mut judge = |index: usize, tag: &Tag| {
            let fold = |found, claimed: &Tag| found | tag.ct_eq(claimed);
            if bool::from(group.tags.iter().fold(Choice::from(0), fold)) {
                first = Some(first.map_or(index, |first: usize| first.min(index)));
            }
        };
        let mut payload = Vec::with_capacity(TEXT_PIECES);
        if text.uses_secret() {
            for (index, key) in macs() {
                payload.clear();
                let secret = key.secret();
                text.fill(&Filling { secret, ..*with }, &mut payload)?;
                if !is_answerable(&payload) {
                    judge(index, &key.compute(&payload));
                }
            }
            return Ok(first);
        }
        text.fill(with, &mut payload)?;
        let payload = prehashed(scheme, payload);
        if !is_answerable(&payload) {
            mac::under_each(macs(), &payload, judge);
        }
        let mut message = None;
        let named = scheme.key_id.as_ref().and_then(|place| with.fields.get(place));
        let named = named.as_deref().and_then(|name| std::str::from_utf8(name).ok());
        for (index, key) in live() {
            if let (Key::Public(keys), Some(algorithm)) = (key, scheme.algorithm) {
                let message: &Message = message.get_or_insert_with(|| algorithm.message(&payload));
                let mut claimed = group.signatures.iter();
                if claimed.any(|signature| keys.made(signature, algorithm, message, named)) {
                    first = Some(first.map_or(index, |first| first.min(index)));
                }
            }
        }
        Ok(first)
    }

    /// What candidates of a header family must be.
    pub(super) fn wanted(&self, scheme: &Scheme) -> Candidate {
        match self.record.kind.is_public_key() {
            true => Candidate::Signature,
            false => Candidate::Digest(scheme.hash.digest_len()),
        }
    }

    /// The texts that must be equal; not those with a parameter that the source leaves out.
    pub(super) fn required<'s>(&'s self, scheme: &'s Scheme) -> impl Iterator<Item = &'s (Template, Template)> {
        let given = |text: &Template| text.params().all(|name| self.params.contains_key(name));
        let required = scheme.also_require.iter();
        required.filter(move |(left, right)| given(left) && given(right))
    }

    /// What else a signature that holds must come with.
    fn judge_rest(&self, scheme: &Scheme, with: &Filling<'_>, now: Timestamp) -> Result<(), Reason> {
        for (left, right) in self.required(scheme) {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            left.fill(with, &mut a).map_err(missing)?;
            right.fill(with, &mut b).map_err(missing)?;
            if a.concat() != b.concat() {
                return Err(Reason::WrongSignature);
            }
        }
        match &scheme.time {
            Some(rule) if !rule.place.is_in_head() => {
                let time = with.group.and_then(|group| group.time.as_ref());
                self.judge_time(rule, time, now)
            }
            _ => Ok(()),
        }
    }

    fn judge_token(&self, scheme: &Scheme, fields: &Fields<'_>, now: Timestamp) -> Result<usize, Reason> {
        let lines = scheme.signature.lines(fields)?;
        let mut first = None;
        let mut is_readable = false;
        for line in lines.iter() {
            let Some(claimed) = self.token(scheme, line) else {
                continue;
            };
            is_readable = true;
            for (index, secret) in self.secrets.iter().enumerate() {
                if is_live(secret, now) && secret.secret.matches(&claimed) {
                    first = first.or(Some(index));
                }
            }
        }
        match first {
            Some(index) => Ok(index),
            None if is_readable => Err(Reason::WrongSignature),
            None => Err(Reason::MalformedSignature),
        }
    }

    /// The secret that the request shows.
    fn token(&self, scheme: &Scheme, line: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        if self.record.kind != Kind::Basic {
            // White space is part of a token; what HTTP allows around a field's value is gone by now.
            let token = line.strip_prefix(scheme.signature.prefix.as_bytes());
            let token = token.or_else(|| scheme.signature.prefix_optional.then_some(line));
            return Some(Zeroizing::new(token?.to_vec()));
        }
        let (name, encoded) = line.trim_ascii().split_at_checked(6)?;
        if !name.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        data_encoding::BASE64
            .decode(encoded.trim_ascii())
            .ok()
            .map(Zeroizing::new)
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

mod token;

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
    Fields::new(&head.method, &head.target, &head.headers, &[], &[])
}

fn signed_time<'v>(rule: &TimeRule, fields: &'v Fields<'_>, group: &Group<'v>) -> Option<SignedTime<'v>> {
    let text = match &rule.place {
        Place::Signature(key) => group.get(key.as_bytes()).map(Cow::Borrowed),
        Place::Header(name) => fields.only_header(name).map(Cow::Borrowed),
        place => fields.get(place),
    }?;
    let at = rule.unit.parse(&text);
    Some(SignedTime { text, at })
}

fn check_public_url(
    record: &Record,
    options: &VerifierOptions,
    problems: &mut Vec<VerifierProblem>,
) -> Option<PublicUrl> {
    let mut problem = |message: String, help: &str| {
        problems.push(VerifierProblem {
            secret_index: None,
            message,
            help: Some(help.to_owned()),
        });
        None
    };
    match options.public_url.as_deref().map(PublicUrl::parse) {
        Some(Ok(url)) => Some(url),
        Some(Err(why)) => problem(
            format!("bad `public_url`: {why}"),
            "write it as the provider was given it",
        ),
        None if record.needs_public_url() && options.own_hosts.is_empty() => problem(
            format!("{} signs its URL, and `public_url` is not set", record.title),
            "set `public_url` to the URL that the provider was given, such as \"https://hooks.example.com\"",
        ),
        None => None,
    }
}

fn check_options(
    record: &Record,
    secrets: &[SourceSecret],
    options: &VerifierOptions,
    problems: &mut Vec<VerifierProblem>,
) {
    let mut problem = |message: String, help: &str| {
        problems.push(VerifierProblem {
            secret_index: None,
            message,
            help: Some(help.to_owned()),
        });
    };
    if record.kind == Kind::None {
        if !options.accept_unsigned {
            problem(
                format!("{} signs nothing: anybody could send events", record.title),
                "say `accept_unsigned = true` if that is meant",
            );
        }
        if !secrets.is_empty() {
            problem(format!("{} has no use for secrets", record.title), "remove them");
        }
    } else if secrets.is_empty() && !record.fetches_keys() && !options.learns {
        problem(
            "no secret is given".to_owned(),
            "give the secret that the provider shows",
        );
    }
    for name in record.params.iter().filter(|name| !options.params.contains_key(*name)) {
        problem(
            format!("{} needs the parameter `{name}`", record.title),
            "give it under `params`",
        );
    }
    for name in options.params.keys().filter(|name| !record.has_param(name)) {
        problem(format!("{} has no parameter `{name}`", record.title), "remove it");
    }
    let is_off = matches!(options.tolerance, Some(Tolerance::Within(tolerance)) if tolerance.is_zero());
    if is_off {
        problem(
            "a tolerance of zero refuses everything".to_owned(),
            "say `\"off\"` to judge no age",
        );
    }
}

/// What is signed: the payload, or its digest where the provider hashes twice.
pub(super) fn prehashed<'p>(scheme: &Scheme, payload: Vec<Cow<'p, [u8]>>) -> Vec<Cow<'p, [u8]>> {
    match scheme.prehash {
        Some(hash) => vec![Cow::Owned(hash.digest(&payload).as_slice().to_vec())],
        None => payload,
    }
}
