//! [`Scheme`]: one header family, what it signs and where it has its names.

use std::collections::BTreeSet;

use crate::verify::challenge::{Challenge, Condition};
use crate::verify::json::Pointer;
use crate::verify::jwt::{BoundClaim, TokenRules};
use crate::verify::mac::Hash;
use crate::verify::picked::Picked;
use crate::verify::place::Place;
use crate::verify::public_key::Algorithm;
use crate::verify::signature;
use crate::verify::template::Template;
use crate::verify::url::UrlVariant;
use crate::verify::window::{TimeUnit, Window};

/// One header family of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::verify) struct Scheme {
    /// The family is used when all hold; the head alone decides.
    pub(in crate::verify) when: Vec<Condition>,
    pub(in crate::verify) hash: Hash,
    pub(in crate::verify) signature: signature::Form,
    /// What public keys sign with; the secret of an HMAC scheme may be one too, behind `public_key_prefix`.
    pub(in crate::verify) algorithm: Option<Algorithm>,
    /// Where the request says which of several public keys it is signed with.
    pub(in crate::verify) key_id: Option<Place>,
    /// The payload is hashed with this first, and the digest is what is signed.
    pub(in crate::verify) prehash: Option<Hash>,
    /// What tokens must be and say (`kind = "jwt"`).
    pub(in crate::verify) token: Option<TokenRules>,
    pub(in crate::verify) payload: Template,
    /// Other texts that the provider may have signed in its place.
    pub(in crate::verify) payload_variants: Vec<Template>,
    pub(in crate::verify) url_variants: Vec<UrlVariant>,
    pub(in crate::verify) time: Option<TimeRule>,
    /// Pairs of texts that must be equal.
    pub(in crate::verify) also_require: Vec<(Template, Template)>,
    /// What must hold of a request whose signature does.
    pub(in crate::verify) require: Vec<Condition>,
    /// The array whose elements are each signed by themselves.
    pub(in crate::verify) each: Option<Pointer>,
    pub(in crate::verify) delivery_id: Vec<Place>,
    /// The id that decides "the same again", where it is not the one that is shown.
    pub(in crate::verify) dedupe_id: Vec<Place>,
    pub(in crate::verify) event_type: Vec<Place>,
    /// What is signed by itself, of a request that is not signed as a whole.
    pub(in crate::verify) picked: Picked,
    /// All JSON pointers that judging and naming a request may ask for.
    pub(in crate::verify) pointers: Vec<Pointer>,
    /// Whether the public URL is part of what is signed.
    pub(in crate::verify) uses_url: bool,
}

/// Where the signed time stands and how old it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::verify) struct TimeRule {
    pub(in crate::verify) place: Place,
    pub(in crate::verify) unit: TimeUnit,
    /// `None`: the time is signed, its age is not judged.
    pub(in crate::verify) window: Option<Window>,
}

impl Scheme {
    /// The texts that may have been signed, in the order in which they are tried.
    pub(in crate::verify) fn texts(&self) -> impl Iterator<Item = &Template> {
        std::iter::once(&self.payload).chain(&self.payload_variants)
    }

    /// Whether the signature covers the whole body.
    pub(in crate::verify) fn covers_body(&self) -> bool {
        if let Some(rules) = self.token.as_ref().filter(|rules| !rules.detached) {
            let holds_body = |claim: &BoundClaim| claim.value.covers_body();
            return self.signature.places == [Place::Body] || rules.bound.iter().any(holds_body);
        }
        let mut required = self.also_require.iter().flat_map(|(left, right)| [left, right]);
        self.texts().all(Template::covers_body) || required.any(Template::covers_body)
    }

    /// Whether the signature covers the value at `place`.
    pub(super) fn covers(&self, place: &Place) -> bool {
        match &self.token {
            Some(rules) if !rules.detached => match place {
                Place::Claim(_) => true,
                Place::Json(_) | Place::Form(_) | Place::Body => self.covers_body(),
                _ => false,
            },
            _ => self.texts().all(|text| text.covers(place)),
        }
    }

    /// Whether the signature covers the time that `rule` reads.
    pub(super) fn signs(&self, rule: &TimeRule) -> bool {
        let lists_headers = |text: &Template| text.header_list().is_some();
        self.texts()
            .all(|text| text.uses_timestamp() || lists_headers(text) || text.covers(&rule.place))
    }

    pub(super) fn collect_pointers(&mut self, scope: Option<&Place>, challenges: &[Challenge]) {
        let places = self.delivery_id.iter().chain(&self.dedupe_id).chain(&self.event_type);
        let places = places.chain(&self.signature.places).chain(&self.key_id).chain(scope);
        let of_places = places
            .chain(self.time.as_ref().map(|time| &time.place))
            .filter_map(|place| match place {
                Place::Json(pointer) => Some(pointer),
                _ => None,
            });
        let required = self
            .also_require
            .iter()
            .flat_map(|(left, right)| left.pointers().chain(right.pointers()));
        let of_texts = self.texts().flat_map(Template::pointers).chain(required);
        let of_claims = self.token.iter().flat_map(TokenRules::pointers);
        let of_conditions = self.require.iter().filter_map(Condition::pointer);
        let of_challenges = challenges.iter().flat_map(Challenge::pointers);
        let of_when = self.when.iter().filter_map(Condition::pointer);
        let mut seen = BTreeSet::new();
        let all = of_places.chain(of_texts).chain(of_conditions);
        let all = all.chain(of_challenges).chain(of_when).chain(of_claims);
        let distinct = all.filter(|pointer| seen.insert(pointer.as_str().to_owned())).cloned();
        self.pointers = distinct.collect();
    }
}
