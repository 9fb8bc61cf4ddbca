//! Judging requests that carry a token (`kind = "jwt"`), and making one.

use std::borrow::Cow;

use data_encoding::BASE64URL_NOPAD;
use subtle::Choice;

use super::super::jws::{Jws, Members, Signer, unsigned};
use super::super::jwt::{self, Age, TokenRules};
use super::super::mac::Tag;
use super::super::place::Fields;
use super::super::record::Scheme;
use super::super::secrets::{Key, TokenKeys};
use super::super::sign::CannotSign;
use super::super::signature::Group;
use super::super::template::Filling;
use super::judge::signed_time;
use super::{Reason, Timestamp, Tolerance, Verifier, is_live, missing};

/// Most tokens of one request that are looked at.
const MAX_TOKENS: usize = 4;

impl Verifier {
    /// Refuses what the head alone shows to be no token of this scheme, or one whose time is over.
    pub(super) fn refuse_token(&self, scheme: &Scheme, fields: &Fields<'_>, now: Timestamp) -> Result<(), Reason> {
        let Some(rules) = &scheme.token else { return Ok(()) };
        let lines = scheme.signature.lines(fields)?;
        let mut refused = Reason::MalformedSignature;
        for line in lines.iter().take(MAX_TOKENS) {
            match self.read_token(scheme, rules, fields, line, now) {
                Ok(_) => return Ok(()),
                Err(reason) => refused = reason,
            }
        }
        Err(refused)
    }

    /// The secret that vouches for the request's token, and when that was issued.
    pub(super) fn judge_jws(
        &self,
        index: usize,
        scheme: &Scheme,
        fields: &Fields<'_>,
        now: Timestamp,
    ) -> Result<(usize, Option<Timestamp>), Reason> {
        scheme.picked.refuse_repeated(fields)?;
        let rules = scheme.token.as_ref().ok_or(Reason::MissingSignature)?;
        let lines = scheme.signature.lines(fields)?;
        let mut refused = Reason::MalformedSignature;
        for line in lines.iter().take(MAX_TOKENS) {
            let judged = self
                .read_token(scheme, rules, fields, line, now)
                .and_then(|token| self.judge_one(index, scheme, fields, &token, now));
            match judged {
                Ok(found) => return Ok(found),
                Err(reason) => refused = reason,
            }
        }
        Err(refused)
    }

    /// Takes a token apart and judges its time.
    fn read_token<'l>(
        &self,
        scheme: &Scheme,
        rules: &TokenRules,
        fields: &Fields<'_>,
        line: &'l [u8],
        now: Timestamp,
    ) -> Result<Token<'l>, Reason> {
        let text = scheme.signature.strip(line).ok_or(Reason::MalformedSignature)?;
        let jws = Jws::read(text, &rules.algorithms, rules.detached)?;
        let mut token = Token {
            jws,
            payload: Vec::new(),
            claims: None,
        };
        if rules.detached {
            let group = Group::default();
            if let Some(rule) = scheme.time.as_ref().filter(|rule| rule.place.is_in_head()) {
                self.judge_time(rule, signed_time(rule, fields, &group).as_ref(), now)?;
            }
        } else {
            token.payload = token.jws.payload()?;
            let claims = Members::read(&token.payload).ok_or(Reason::MalformedSignature)?;
            rules.judge_times(&claims, self.age(), now)?;
            token.claims = Some(claims);
        }
        Ok(token)
    }

    fn age(&self) -> Age {
        match self.tolerance {
            None => Age::Record,
            Some(Tolerance::Off) => Age::Any,
            Some(Tolerance::Within(tolerance)) => Age::Within(tolerance),
        }
    }

    fn judge_one(
        &self,
        index: usize,
        scheme: &Scheme,
        fields: &Fields<'_>,
        token: &Token<'_>,
        now: Timestamp,
    ) -> Result<(usize, Option<Timestamp>), Reason> {
        let rules = scheme.token.as_ref().ok_or(Reason::MissingSignature)?;
        let mut group = Group::default();
        for (name, text) in token.jws.header_texts() {
            group.set(name.as_bytes(), text.as_bytes());
        }
        group.time = scheme.time.as_ref().and_then(|rule| signed_time(rule, fields, &group));
        let urls = self.urls(scheme, fields);
        let mut refused = Reason::WrongSignature;
        for url in urls.iter() {
            let with = Filling {
                fields,
                params: &self.params,
                timestamp: group.timestamp(),
                url,
                group: Some(&group),
                secret: None,
                mac: None,
            };
            let mut payload = Vec::new();
            if rules.detached {
                scheme.payload.fill(&with, &mut payload).map_err(missing)?;
            }
            let input = token.jws.signing_input(rules.detached.then_some(payload));
            let secret = self
                .signer_of(index, token, &input, now)
                .ok_or(Reason::WrongSignature)?;
            let Some(claims) = &token.claims else {
                self.judge_rest(scheme, &with, now)?;
                return Ok((secret, group.signed_at()));
            };
            match rules.judge_claims(claims, &with) {
                Ok(()) => {
                    fields.believe(token.payload.clone());
                    self.judge_rest(scheme, &with, now)?;
                    return Ok((secret, jwt::time(claims, "iat")?));
                }
                Err(reason) => refused = reason,
            }
        }
        Err(refused)
    }

    /// The first live secret whose key made the token's signature.
    fn signer_of(&self, index: usize, token: &Token<'_>, input: &[Cow<'_, [u8]>], now: Timestamp) -> Option<usize> {
        let keys = self.keys.get(index).map(Vec::as_slice).unwrap_or_default();
        let mut first = None;
        let mut message = None;
        for (index, (key, secret)) in keys.iter().zip(&self.secrets).enumerate() {
            let Key::Token(TokenKeys { macs, public }) = key else {
                continue;
            };
            if !is_live(secret, now) {
                continue;
            }
            let matches = match token.jws.algorithm.signer {
                Signer::Secret(hash) => {
                    let claimed = Tag::new(&token.jws.signature);
                    let of_hash = macs.iter().filter(|(known, _)| *known == hash);
                    let compare = |found: Choice, (_, key): &(_, super::MacKey)| match &claimed {
                        Some(claimed) => found | key.compute(input).ct_eq(claimed),
                        None => found,
                    };
                    bool::from(of_hash.fold(Choice::from(0), compare))
                }
                Signer::PrivateKey(algorithm) => public.as_ref().is_some_and(|keys| {
                    let message = message.get_or_insert_with(|| algorithm.message(input));
                    keys.made(&token.jws.signature, algorithm, message, token.jws.key_id())
                }),
            };
            if matches {
                first = first.or(Some(index));
            }
        }
        first
    }

    /// A token for the request, signed with a shared secret. What an old token says besides is kept.
    pub(in crate::verify) fn make_token(
        &self,
        index: usize,
        scheme: &Scheme,
        secret: usize,
        with: &Filling<'_>,
        now: Timestamp,
    ) -> Result<String, CannotSign> {
        let title = || self.record().title.clone();
        let rules = scheme.token.as_ref().ok_or_else(|| CannotSign::Unsigned(title()))?;
        let key = self
            .keys
            .get(index)
            .and_then(|keys| keys.get(secret))
            .ok_or(CannotSign::NoSecret)?;
        let mac = match key {
            Key::Token(TokenKeys { macs, .. }) => macs.first(),
            Key::Mac(_) | Key::Public(_) => None,
        };
        let (hash, mac) = mac.ok_or_else(|| CannotSign::ProviderOnly(title()))?;
        let mut algorithms = rules.algorithms.iter().copied();
        let algorithm = algorithms.find(|algorithm| algorithm.secret() == Some(*hash));
        let algorithm = algorithm.ok_or_else(|| CannotSign::ProviderOnly(title()))?;
        let lines = scheme.signature.lines(with.fields).unwrap_or_default();
        let old = lines.iter().find_map(|line| {
            let jws = Jws::read(scheme.signature.strip(line)?, &rules.algorithms, false).ok()?;
            serde_json::from_slice(&jws.payload().ok()?).ok()
        });
        let claims = rules
            .claims(old, with, now)
            .map_err(|_missing| CannotSign::Incomplete(title()))?;
        let text = unsigned(algorithm, &claims);
        let tag = mac.compute(&[Cow::Borrowed(text.as_bytes())]);
        Ok(format!(
            "{}{text}.{}",
            scheme.signature.prefix,
            BASE64URL_NOPAD.encode(tag.as_slice())
        ))
    }

    /// Whether a configured secret can sign tokens.
    pub(in crate::verify) fn signs_tokens(&self, secret: usize) -> bool {
        let mut families = self.keys.iter().filter_map(|keys| keys.get(secret));
        families.any(|key| matches!(key, Key::Token(TokenKeys { macs, .. }) if !macs.is_empty()))
    }
}

/// A token whose time is right, and nothing else known of it.
struct Token<'l> {
    jws: Jws<'l>,
    payload: Vec<u8>,
    /// None of a detached one.
    claims: Option<Members>,
}
