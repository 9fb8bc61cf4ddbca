//! Why requests of some schemes can only be forwarded as they were signed.

use std::fmt;

use super::place::Place;
use super::record::{Kind, Record};

/// What keeps a scheme's requests from being signed anew, so that they look as if they had been sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// Nothing is signed.
    Unsigned,
    /// The provider signs with a key that only it has.
    ProvidersKey,
    /// The signature stands in the body, which is never changed.
    InBody,
    /// The signature stands in the query, which is never changed.
    InQuery,
    /// The signatures stand in as many headers as the provider has secrets.
    InSeveralHeaders,
    /// The signed time stands in the body.
    TimeInBody,
    /// The signed time stands in the query.
    TimeInQuery,
}

impl fmt::Display for Hindrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsigned => "nothing is signed",
            Self::ProvidersKey => "only the provider has the key that signs",
            Self::InBody => "the signature stands in the body",
            Self::InQuery => "the signature stands in the query",
            Self::InSeveralHeaders => "the signatures stand in counted headers",
            Self::TimeInBody => "the signed time stands in the body",
            Self::TimeInQuery => "the signed time stands in the query",
        })
    }
}

impl Record {
    /// Why its requests cannot be signed anew; `None` where they can ([`Record::signs_fresh`]).
    pub fn hindrance(&self) -> Option<Hindrance> {
        if self.signs_fresh() {
            return None;
        }
        if self.kind == Kind::None {
            return Some(Hindrance::Unsigned);
        }
        if !self.is_signable() {
            return Some(Hindrance::ProvidersKey);
        }
        let signatures = self.schemes.iter().filter_map(|scheme| scheme.signature.places.first());
        for place in signatures {
            match place {
                Place::Header(_) => {}
                Place::Query(_) => return Some(Hindrance::InQuery),
                Place::NumberedHeaders(..) => return Some(Hindrance::InSeveralHeaders),
                _ => return Some(Hindrance::InBody),
            }
        }
        let mut times = self.schemes.iter().filter_map(|scheme| scheme.time.as_ref());
        match times.any(|rule| matches!(rule.place, Place::Query(_))) {
            true => Some(Hindrance::TimeInQuery),
            false => Some(Hindrance::TimeInBody),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOW, preset, secret_for, signed, unsigned};
    use super::super::{Reason, presets};
    use super::*;
    use crate::time::Timestamp;

    const TWO_DAYS: i64 = 2 * 86_400;

    #[test]
    fn what_every_preset_signs_anew_two_days_later_is_accepted_then() {
        let (mut judged, mut stale) = (0, 0);
        for name in presets::names() {
            if presets::find(name).unwrap().hindrance().is_some() {
                continue;
            }
            let verifier = preset(name, &[secret_for(name)]);
            let received = signed(&verifier, unsigned(name, b"{\"a\":1}"));
            assert!(verifier.verify(received.clone()).is_ok(), "{name}: as received");
            let mut late = received;
            late.head.received_at = Timestamp::from_secs(NOW + TWO_DAYS);
            if let Err(rejected) = verifier.verify(late.clone()) {
                assert_eq!(rejected.rejection.reason, Reason::Stale, "{name}");
                stale += 1;
            }
            assert!(verifier.verify(signed(&verifier, late)).is_ok(), "{name}: signed anew");
            judged += 1;
        }
        assert!(judged > 150 && stale > 40, "{judged} {stale}");
    }

    #[test]
    fn what_cannot_be_signed_anew_says_where_it_is_held_up() {
        for (name, hindrance) in [
            ("linear", Hindrance::TimeInBody),
            ("mailgun", Hindrance::InBody),
            ("discord", Hindrance::ProvidersKey),
            ("docusign", Hindrance::InSeveralHeaders),
        ] {
            assert_eq!(presets::find(name).unwrap().hindrance(), Some(hindrance), "{name}");
        }
        for name in presets::names() {
            let record = presets::find(name).unwrap();
            let Some(hindrance) = record.hindrance() else { continue };
            assert_eq!(hindrance == Hindrance::ProvidersKey, !record.is_signable(), "{name}");
            assert_eq!(hindrance == Hindrance::Unsigned, record.kind() == Kind::None, "{name}");
            if matches!(hindrance, Hindrance::TimeInBody | Hindrance::TimeInQuery) {
                assert!(record.signs_time(), "{name}");
            }
        }
    }
}
