//! What a token's claims must say (RFC 7519 section 4), by the record; judged once its signature holds, but for its times.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::time::Timestamp;

use super::Reason;
use super::json::Pointer;
use super::jws::{JwsAlgorithm, Members};
use super::mac::Hash;
use super::place::Place;
use super::signature::Encoding;
use super::template::{Filling, Missing, Template};

/// How long a token that we sign holds.
const LIFETIME: Duration = Duration::from_secs(300);

/// What a record says about its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenRules {
    /// Pinned: a token with another one is none of this scheme.
    pub(super) algorithms: Vec<JwsAlgorithm>,
    /// The payload is not in the token: it is the record's `payload`.
    pub(super) detached: bool,
    pub(super) issuer: Option<Template>,
    pub(super) audience: Option<Template>,
    /// Claims that bind the token to the request.
    pub(super) bound: Vec<BoundClaim>,
    /// Claims without which a token is none, such as the end of its time.
    pub(super) required: Vec<String>,
    /// Longest time since `iat`.
    pub(super) max_age: Option<Duration>,
    /// How far clocks may differ.
    pub(super) clock_tolerance: Duration,
}

/// A claim that says what the request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BoundClaim {
    pub(super) name: String,
    pub(super) value: Template,
    /// The claim is the value's digest; without one, the value itself.
    pub(super) hash: Option<Hash>,
    pub(super) encoding: Encoding,
    pub(super) absent: Absent,
}

/// When a claim may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// Never.
    Never,
    /// When there is no body (MessageBird).
    EmptyBody,
}

impl Absent {
    pub(super) const NAMED: [(&'static str, Self); 2] = [("never", Self::Never), ("empty_body", Self::EmptyBody)];
}

/// How old a token may be, where the source says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// No time is judged.
    Any,
    /// By the record.
    Record,
    /// The source's tolerance stands in for the record's `max_age_seconds`.
    Within(Duration),
}

impl TokenRules {
    fn templates(&self) -> impl Iterator<Item = &Template> {
        let bound = self.bound.iter().map(|claim| &claim.value);
        self.issuer.iter().chain(&self.audience).chain(bound)
    }

    /// The places that claims are compared with.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.templates().flat_map(Template::places)
    }

    /// The JSON pointers among them.
    pub(super) fn pointers(&self) -> impl Iterator<Item = &Pointer> {
        self.templates().flat_map(Template::pointers)
    }

    /// Whether the public URL is compared with a claim.
    pub(super) fn uses_url(&self) -> bool {
        self.templates().any(Template::uses_url)
    }

    /// Whether the secret that is configured can also sign: it is shared, and the token whole.
    pub(super) fn is_signable(&self) -> bool {
        !self.detached && self.algorithms.iter().all(|algorithm| algorithm.secret().is_some())
    }

    /// Judges `exp`, `nbf` and `iat`, in whole seconds as tokens have them, and whether all claims are there that must be:
    /// a token that lacks the end of its time would be good for ever.
    pub(super) fn judge_times(&self, claims: &Members, age: Age, now: Timestamp) -> Result<(), Reason> {
        if let Some(absent) = self.required.iter().find(|name| claims.get(name).is_none()) {
            return Err(match absent.as_str() {
                "exp" | "nbf" | "iat" => Reason::MissingTimestamp,
                _ => Reason::MalformedSignature,
            });
        }
        if age == Age::Any {
            return Ok(());
        }
        let now = Timestamp::from_secs(now.as_secs());
        let (expires, begins, issued) = (time(claims, "exp")?, time(claims, "nbf")?, time(claims, "iat")?);
        // The moment that `exp` names is already too late; `nbf`'s is not too early.
        if expires.is_some_and(|at| now >= at && now.since(at) >= self.clock_tolerance) {
            return Err(Reason::Stale);
        }
        if begins.is_some_and(|at| at.since(now) > self.clock_tolerance) {
            return Err(Reason::FromTheFuture);
        }
        let longest = match (age, self.max_age) {
            (Age::Within(tolerance), Some(_)) => Some(tolerance),
            (_, longest) => longest,
        };
        let Some(longest) = longest else { return Ok(()) };
        let issued = issued.ok_or(Reason::MissingTimestamp)?;
        if now.since(issued) > longest.saturating_add(self.clock_tolerance) {
            Err(Reason::Stale)
        } else if issued.since(now) > longest.saturating_add(self.clock_tolerance) {
            Err(Reason::FromTheFuture)
        } else {
            Ok(())
        }
    }

    /// Judges who issued the token, for whom, and for which request. Nothing but time and text of the request is compared
    /// with what the signature covers, so no comparison here tells a forger anything.
    pub(super) fn judge_claims(&self, claims: &Members, with: &Filling<'_>) -> Result<(), Reason> {
        if let Some(issuer) = &self.issuer {
            let wanted = filled(issuer, with)?;
            if claims.text("iss").map(str::as_bytes) != Some(&wanted) {
                return Err(Reason::WrongSignature);
            }
        }
        if let Some(audience) = &self.audience {
            let wanted = filled(audience, with)?;
            let is_wanted = |value: &Value| value.as_str().map(str::as_bytes) == Some(&wanted);
            let is_ours = match claims.get("aud") {
                Some(Value::Array(several)) => several.iter().any(is_wanted),
                Some(one) => is_wanted(one),
                None => false,
            };
            if !is_ours {
                return Err(Reason::WrongSignature);
            }
        }
        let mut bound = self.bound.iter();
        match bound.try_fold(true, |holds, claim| claim.holds(claims, with).map(|held| holds && held))? {
            true => Ok(()),
            false => Err(Reason::WrongSignature),
        }
    }

    /// The claims of a token that we sign for the request: those of `base`, where there are any, with fresh times.
    pub(super) fn claims(
        &self,
        base: Option<Map<String, Value>>,
        with: &Filling<'_>,
        now: Timestamp,
    ) -> Result<Map<String, Value>, Missing> {
        let mut claims = base.unwrap_or_default();
        let seconds = now.as_secs();
        let until = now
            .as_secs()
            .saturating_add(i64::try_from(LIFETIME.as_secs()).unwrap_or_default());
        claims.insert("iat".to_owned(), json!(seconds));
        claims.insert("nbf".to_owned(), json!(seconds));
        claims.insert("exp".to_owned(), json!(until));
        for (name, template) in [("iss", &self.issuer), ("aud", &self.audience)] {
            if let Some(template) = template {
                claims.insert(name.to_owned(), json!(text(template, with)?));
            }
        }
        for claim in &self.bound {
            claims.insert(claim.name.clone(), json!(claim.write(with)?));
        }
        Ok(claims)
    }
}

impl BoundClaim {
    fn holds(&self, claims: &Members, with: &Filling<'_>) -> Result<bool, Reason> {
        let Some(claimed) = claims.get(&self.name) else {
            return Ok(self.absent == Absent::EmptyBody && with.fields.body.is_empty());
        };
        let Some(claimed) = claimed.as_str() else {
            return Ok(false);
        };
        let mut pieces = Vec::new();
        self.value.fill(with, &mut pieces).map_err(super::verifier::missing)?;
        Ok(match self.hash {
            None => pieces.concat() == claimed.as_bytes(),
            Some(hash) => {
                self.encoding.decode_unpadded(claimed.as_bytes()).as_deref() == Some(hash.digest(&pieces).as_slice())
            }
        })
    }

    fn write(&self, with: &Filling<'_>) -> Result<String, Missing> {
        match self.hash {
            None => text(&self.value, with),
            Some(hash) => {
                let mut pieces = Vec::new();
                self.value.fill(with, &mut pieces)?;
                Ok(self.encoding.encode(hash.digest(&pieces).as_slice()))
            }
        }
    }
}

fn filled(template: &Template, with: &Filling<'_>) -> Result<Vec<u8>, Reason> {
    let mut pieces = Vec::new();
    template.fill(with, &mut pieces).map_err(super::verifier::missing)?;
    Ok(pieces.concat())
}

fn text(template: &Template, with: &Filling<'_>) -> Result<String, Missing> {
    let mut pieces = Vec::new();
    template.fill(with, &mut pieces)?;
    Ok(String::from_utf8_lossy(&pieces.concat()).into_owned())
}

/// A NumericDate, whole or with a fraction, which is dropped.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` saturates, and a time that far away is judged all the same"
)]
pub(super) fn time(claims: &Members, name: &str) -> Result<Option<Timestamp>, Reason> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = match (value.as_i64(), value.as_f64()) {
        (Some(seconds), _) => seconds,
        (None, Some(seconds)) => seconds as i64,
        (None, None) => return Err(Reason::MalformedTimestamp),
    };
    // Times beyond any calendar would not be judged as what they are.
    match (-MAX_SECONDS..=MAX_SECONDS).contains(&seconds) {
        true => Ok(Some(Timestamp::from_secs(seconds))),
        false => Err(Reason::MalformedTimestamp),
    }
}

/// The year 9999.
const MAX_SECONDS: i64 = 253_402_300_799;
