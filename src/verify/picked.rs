//! Values that are signed by themselves, picked from a request of which the rest is not signed.
//!
//! A request that gives such a value twice can be read in two ways: one of them was signed, and the app may take the other.
//! Where what holds the value is signed as it stands (the raw body, the URL), whoever signed it gave it twice, and the last
//! or first one counts as everywhere.

use super::Reason;
use super::json::{self, Pointer};
use super::place::{Fields, Place};
use super::record::Scheme;
use super::template::Template;

/// The values that must be given once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Picked {
    /// Those in a JSON body, found in one pass.
    pointers: Vec<Pointer>,
    others: Vec<Place>,
}

impl Picked {
    /// Those of a scheme that signs something.
    pub(super) fn of(scheme: &Scheme) -> Self {
        let claims = scheme.token.as_ref().filter(|rules| !rules.detached);
        let texts: Vec<&Template> = match claims {
            Some(_) => Vec::new(),
            None => scheme.texts().collect(),
        };
        let required = scheme.also_require.iter().flat_map(|(left, right)| [left, right]);
        let covers_body = scheme.covers_body();
        let is_whole = |place: &Place| match place {
            Place::Json(_) | Place::Form(_) | Place::FormJson(..) | Place::Item(_) | Place::Body if covers_body => true,
            Place::Query(_) if claims.is_some_and(|rules| rules.uses_url()) => true,
            place => !texts.is_empty() && texts.iter().all(|text| text.covers_all_around(place)),
        };
        let compared = required.chain(texts.iter().copied()).flat_map(Template::places);
        let places = compared.chain(claims.iter().flat_map(|rules| rules.places()));
        let places = places.chain(scheme.time.iter().map(|rule| &rule.place));
        let mut picked = Self::default();
        for place in places.filter(|place| !is_whole(place)) {
            match place {
                Place::Json(pointer) => picked.add_pointer(pointer),
                // What a header holds is taken apart once; of two values under one key it has none.
                Place::Signature(_) => {}
                place if !picked.others.contains(place) => picked.others.push(place.clone()),
                _ => {}
            }
        }
        let raw = texts.iter().flat_map(|text| text.raw_pointers());
        raw.filter(|_| !covers_body)
            .for_each(|pointer| picked.add_pointer(pointer));
        picked
    }

    /// Their places, as records say them.
    #[cfg(test)]
    pub(super) fn names(&self) -> Vec<String> {
        let in_body = self.pointers.iter().cloned().map(Place::Json);
        let all = in_body.chain(self.others.iter().cloned());
        all.map(|place| place.to_string()).collect()
    }

    fn add_pointer(&mut self, pointer: &Pointer) {
        if !self.pointers.contains(pointer) {
            self.pointers.push(pointer.clone());
        }
    }

    /// One that the request gives twice, for people.
    pub(super) fn repeated(&self, fields: &Fields<'_>) -> Option<Place> {
        let in_body = self.pointers.iter().cloned().map(Place::Json);
        in_body
            .chain(self.others.iter().cloned())
            .find(|place| fields.is_ambiguous(place))
    }

    /// Refuses a request that gives one of them twice.
    pub(super) fn refuse_repeated(&self, fields: &Fields<'_>) -> Result<(), Reason> {
        if !self.pointers.is_empty() && json::is_repeated(fields.body, &self.pointers) {
            return Err(Reason::BodyMalformed);
        }
        match self.others.iter().find(|place| fields.is_ambiguous(place)) {
            None => Ok(()),
            Some(place) if place.is_in_head() => Err(Reason::MalformedSignature),
            Some(_) => Err(Reason::BodyMalformed),
        }
    }
}
