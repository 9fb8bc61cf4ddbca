//! [`Sample`]: a request as a provider would send it, but for its signature; for `send`, `sign` and tests.

use std::collections::BTreeMap;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, header};

use crate::time::Timestamp;

use super::challenge::Condition;
use super::form;
use super::place::{Fields, Place};
use super::record::{Record, Scheme};

/// What a made-up request says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The method.
    pub method: &'a Method,
    /// Path and query.
    pub target: &'a PathAndQuery,
    /// The delivery id.
    pub id: &'a str,
    /// The event type.
    pub event_type: &'a str,
    /// When it happened.
    pub now: Timestamp,
}

/// Stands where a scheme signs a value of the request that is neither id, type nor time: a nonce, a name, an amount.
const FILLER: &str = "1";

impl Record {
    /// Adds the headers that the provider sends besides the signature, where they are not there yet: delivery id,
    /// event type, media type, and others that are signed.
    pub fn add_headers(&self, sample: &Sample<'_>, headers: &mut HeaderMap) {
        let Some(scheme) = self.scheme_for(sample, headers) else {
            return;
        };
        for (place, text) in values(scheme, sample) {
            if let (Place::Header(name), Ok(value)) = (place, HeaderValue::from_str(&text)) {
                headers.entry(name).or_insert(value);
            }
        }
        let media_type = match scheme.sample_is_form() {
            true => HeaderValue::from_static("application/x-www-form-urlencoded"),
            false => HeaderValue::from_static("application/json"),
        };
        headers.entry(header::CONTENT_TYPE).or_insert(media_type);
    }

    /// A small body with id, event type, time and whatever else is signed where the record looks for them.
    pub fn sample_body(&self, sample: &Sample<'_>, headers: &HeaderMap) -> Vec<u8> {
        let Some(scheme) = self.scheme_for(sample, headers) else {
            return Vec::new();
        };
        let values = values(scheme, sample);
        if scheme.sample_is_form() {
            let mut documents: BTreeMap<&str, serde_json::Value> = BTreeMap::new();
            let mut pairs = Vec::new();
            for (place, text) in &values {
                match place {
                    Place::Form(name) => pairs.push(format!("{name}={}", form::encode(text))),
                    Place::FormJson(name, pointer) => {
                        pointer.set(documents.entry(name).or_default(), text.as_str().into());
                    }
                    _ => {}
                }
            }
            let documents = documents.into_iter();
            pairs.extend(documents.map(|(name, json)| format!("{name}={}", form::encode(&json.to_string()))));
            return pairs.join("&").into_bytes();
        }
        let mut body = serde_json::Value::Null;
        for (place, text) in values {
            if let Place::Json(pointer) = place {
                let is_time = scheme.time.as_ref().is_some_and(|rule| rule.place == *place);
                let number = text.parse::<i64>().ok().filter(|_| is_time);
                pointer.set(&mut body, number.map_or_else(|| text.into(), Into::into));
            }
        }
        if body.is_null() {
            body = serde_json::json!({});
        }
        if let Some(object) = body.as_object_mut() {
            object.entry("test").or_insert(true.into());
        }
        body.to_string().into_bytes()
    }

    fn scheme_for(&self, sample: &Sample<'_>, headers: &HeaderMap) -> Option<&Scheme> {
        let head = Fields::new(sample.method, sample.target, headers, &[], &[]);
        self.schemes.get(self.scheme_of(&head))
    }
}

impl Scheme {
    fn sample_is_form(&self) -> bool {
        let mut places = self
            .delivery_id
            .iter()
            .chain(&self.event_type)
            .chain(self.payload.places());
        self.payload.uses_form() || places.any(|place| matches!(place, Place::Form(_) | Place::FormJson(..)))
    }
}

/// What stands where, each place once: of two that overlap the more telling one.
fn values<'s>(scheme: &'s Scheme, sample: &Sample<'_>) -> Vec<(&'s Place, String)> {
    let time = scheme.time.as_ref();
    let time = time.and_then(|rule| Some((&rule.place, rule.unit.write(sample.now)?)));
    let ids = scheme.delivery_id.iter().chain(&scheme.dedupe_id);
    let ids = ids.map(|place| (place, sample.id.to_owned()));
    let types = scheme
        .event_type
        .iter()
        .map(|place| (place, sample.event_type.to_owned()));
    let signed = scheme.payload.places().map(|place| (place, FILLER.to_owned()));
    let required = scheme.require.iter().filter_map(Condition::equality);
    let required = required.map(|(place, text)| (place, text.to_owned()));
    // Such a list has at least its own name and that of the time in it.
    let list = scheme.payload.header_list().map(|list| {
        let time = scheme.time.iter().map(|rule| &rule.place);
        let names = std::iter::once(list).chain(time).filter_map(|place| match place {
            Place::Header(name) => Some(name.as_str()),
            _ => None,
        });
        (list, names.collect::<Vec<_>>().join(","))
    });
    let mut out: Vec<(&Place, String)> = Vec::new();
    for (place, text) in required.chain(list).chain(time).chain(ids).chain(types).chain(signed) {
        if !out.iter().any(|(known, _)| *known == place) {
            out.push((place, text));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::presets;
    use super::*;

    fn body_of(provider: &str) -> serde_json::Value {
        let sample = Sample {
            method: &Method::POST,
            target: &PathAndQuery::from_static("/in"),
            id: "evt_1",
            event_type: "test",
            now: Timestamp::from_secs(1_700_000_000),
        };
        let record = presets::find(provider).unwrap();
        serde_json::from_slice(&record.sample_body(&sample, &HeaderMap::new())).unwrap()
    }

    #[test]
    fn where_a_provider_sends_a_list_the_sample_has_one() {
        let asana = body_of("asana");
        assert!(asana["events"][0]["action"].is_string(), "{asana}");
        assert_eq!(asana["test"], true);
        let sendgrid = body_of("sendgrid");
        assert!(sendgrid[0]["sg_event_id"].is_string(), "{sendgrid}");
        assert_eq!(body_of("github"), serde_json::json!({ "test": true }));
    }
}
