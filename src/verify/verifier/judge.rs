//! Judging a request: which secret vouches for it, and what it calls itself.

use std::borrow::Cow;

use subtle::Choice;
use zeroize::Zeroizing;

use crate::request::RawRequest;
use crate::time::Timestamp;
use crate::verify::encrypted;
use crate::verify::few::Few;
use crate::verify::json::{self, Pointer};
use crate::verify::mac::{self, Tag};
use crate::verify::place::{Fields, Place};
use crate::verify::public_key::Message;
use crate::verify::record::{Kind, Scheme, TimeRule};
use crate::verify::secrets::Key;
use crate::verify::signature::{Candidate, Group, SignedTime};
use crate::verify::template::{Filling, Missing, Template};
use crate::verify::window::Window;
use crate::verify::{ChallengeAnswer, Names, Reason};

use super::{MAX_ITEMS, Tolerance, Verifier, is_live, missing};

/// As many slices of the request as a signed text is usually made of.
const TEXT_PIECES: usize = 4;

/// What a request is, before it is given away.
pub(super) enum Judged {
    Event {
        secret_index: Option<usize>,
        signed_at: Option<Timestamp>,
    },
    /// Few requests are one, and all would pay for its size.
    Challenge(Box<ChallengeAnswer>),
}

impl Verifier {
    pub(super) fn judge(&self, request: &RawRequest) -> Result<(Judged, Names), Reason> {
        let head = &request.head;
        let index = self.scheme_index(request);
        let scheme = self.record.schemes.get(index).ok_or(Reason::MissingSignature)?;
        let fields = Fields::of(head, &request.body, &scheme.pointers).asked(head.authority.as_deref());
        let now = head.received_at;
        let text = self.decrypted(&request.body, now);
        let opened = text
            .as_deref()
            .map(|text| Fields::of(head, text, &scheme.pointers).asked(head.authority.as_deref()));
        if let Some(answer) = self.answer(index, opened.as_ref().unwrap_or(&fields), false, now)? {
            return Ok((Judged::Challenge(answer), Names::default()));
        }
        // From here on the body is what was signed: names are read from what the signature covers.
        let body = self.signed_body(&request.body, fields.header(&http::header::CONTENT_ENCODING))?;
        let fields = match &body {
            Cow::Borrowed(_) => fields,
            Cow::Owned(decoded) => Fields::of(head, decoded, &scheme.pointers).asked(head.authority.as_deref()),
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
        let fields = opened.as_ref().unwrap_or(&fields);
        if !scheme.require.iter().all(|condition| condition.holds(fields)) {
            return Err(Reason::WrongSignature);
        }
        if let Some(answer) = self.answer(index, fields, true, now)? {
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

    /// The text of a body that holds it encrypted under a live secret.
    fn decrypted(&self, body: &[u8], now: Timestamp) -> Option<Vec<u8>> {
        let pointer = self.record.encrypted.as_ref()?;
        let encrypted = json::value(body, pointer)?;
        let live = self.secrets.iter().filter(|secret| is_live(secret, now));
        // Another secret's text has a good padding once in a few hundred times, and is no JSON then.
        let mut texts = live.filter_map(|secret| encrypted::open(secret.secret.expose(), encrypted.as_bytes()));
        texts.find(|text| json::raw(text, &Pointer::whole()).is_some())
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
    pub(super) fn claims<'v>(
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

    pub(super) fn judge_time(
        &self,
        rule: &TimeRule,
        time: Option<&SignedTime<'_>>,
        now: Timestamp,
    ) -> Result<(), Reason> {
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
        if text.can_be_cut_elsewhere(with) {
            return Ok(None);
        }
        let mut payload = Vec::with_capacity(TEXT_PIECES);
        if text.uses_secret() {
            if text.is_extended(with)? {
                return Ok(None);
            }
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
    pub(in crate::verify) fn wanted(&self, scheme: &Scheme) -> Candidate {
        match self.record.kind.is_public_key() {
            true => Candidate::Signature,
            false => Candidate::Digest(scheme.hash.digest_len()),
        }
    }

    /// The texts that must be equal; not those with a parameter that the source leaves out.
    pub(in crate::verify) fn required<'s>(
        &'s self,
        scheme: &'s Scheme,
    ) -> impl Iterator<Item = &'s (Template, Template)> {
        let given = |text: &Template| text.params().all(|name| self.params.contains_key(name));
        let required = scheme.also_require.iter();
        required.filter(move |(left, right)| given(left) && given(right))
    }

    /// What else a signature that holds must come with.
    pub(super) fn judge_rest(&self, scheme: &Scheme, with: &Filling<'_>, now: Timestamp) -> Result<(), Reason> {
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

    pub(super) fn judge_token(&self, scheme: &Scheme, fields: &Fields<'_>, now: Timestamp) -> Result<usize, Reason> {
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
}

pub(super) fn signed_time<'v>(rule: &TimeRule, fields: &'v Fields<'_>, group: &Group<'v>) -> Option<SignedTime<'v>> {
    let text = match &rule.place {
        Place::Signature(key) => group.get(key.as_bytes()).map(Cow::Borrowed),
        Place::Header(name) => fields.only_header(name).map(Cow::Borrowed),
        place => fields.get(place),
    }?;
    let at = rule.unit.parse(&text);
    Some(SignedTime { text, at })
}

/// What is signed: the payload, or its digest where the provider hashes twice.
pub(in crate::verify) fn prehashed<'p>(scheme: &Scheme, payload: Vec<Cow<'p, [u8]>>) -> Vec<Cow<'p, [u8]>> {
    match scheme.prehash {
        Some(hash) => vec![Cow::Owned(hash.digest(&payload).as_slice().to_vec())],
        None => payload,
    }
}
