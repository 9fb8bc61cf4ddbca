//! Hints: why a signature fails, shown only where it can be shown.
//!
//! Most hints are the answer to "would it hold if …": the source's own verifier is altered in one respect and judges the
//! request again, age aside ([`search`]). The others read what stands there for everybody to see: which headers came and
//! which did not, and what a secret's first letters say it is ([`shape`]). Nothing is accepted by this, and nothing is said
//! that would help to guess a secret.
//!
//! The work is bounded ([`BUDGET`]), yet many times that of a verification: ask off the hot path, and not for every refusal
//! of a flood.

use std::fmt;
use std::sync::Arc;

use crate::request::RawRequest;

use super::Reason;
use super::verifier::Verifier;

mod reprint;
mod search;
mod shape;
#[cfg(test)]
mod tests;

/// Bodies over this are not tried in other forms, in bytes.
const MAX_BODY: usize = 256 << 10;
/// Bytes that all tries of one hint may hash, each with [`search::OVERHEAD`] for what is not the body.
const BUDGET: usize = 16 << 20;

/// One of a source's secrets, as people know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhichSecret {
    /// Its place in the list.
    pub index: usize,
    /// What it is called, where it is called something.
    pub label: Option<Arc<str>>,
}

impl WhichSecret {
    /// The one at this place of the verifier's list.
    fn of(verifier: &Verifier, index: usize) -> Self {
        Self {
            index,
            label: verifier.secrets().get(index).and_then(|secret| secret.label.clone()),
        }
    }
}

impl fmt::Display for WhichSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.label {
            Some(label) => write!(f, "secret `{label}`"),
            None => write!(f, "secret {}", self.index),
        }
    }
}

/// The likely cause of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The signature holds; the signed time lies this far from our clock (positive: behind it).
    ClockOff {
        /// In whole seconds.
        seconds: i64,
    },
    /// It holds with the signed time read in another unit, in which it is about now.
    TimeUnit {
        /// As sent.
        found: &'static str,
        /// By the record.
        expected: &'static str,
    },
    /// It holds under a secret whose `not_after` is over.
    SecretEnded {
        /// Which secret.
        which: WhichSecret,
    },
    /// It holds under the secret of another source.
    OtherSource {
        /// That source.
        source: String,
    },
    /// It holds under the configured secret without white space or a line end around it.
    SecretWhiteSpace {
        /// Which secret.
        which: WhichSecret,
    },
    /// The sender's secret ends with a line end.
    SenderLineEnd {
        /// Which secret.
        which: WhichSecret,
    },
    /// It holds with the secret inside of the quotes that are part of it.
    SecretQuoted {
        /// Which secret.
        which: WhichSecret,
    },
    /// It holds with a prefix in front of the secret that was left out, or that does not belong to it.
    SecretPrefix {
        /// Which secret.
        which: WhichSecret,
        /// The prefix.
        prefix: &'static str,
        /// Whether the secret lacks it.
        is_missing: bool,
    },
    /// The secret begins like a credential of another kind.
    NotASigningSecret {
        /// Which secret.
        which: WhichSecret,
        /// Its kind, in words.
        kind: &'static str,
        /// The letters that say so, which are the same for all of the kind.
        begins: &'static str,
    },
    /// It holds with the secret taken in another encoding.
    SecretEncoding {
        /// Which secret.
        which: WhichSecret,
        /// How the sender takes it.
        found: &'static str,
        /// How the record takes it.
        expected: &'static str,
    },
    /// It holds, written in another encoding than the record's.
    SignatureEncoding {
        /// As sent.
        found: &'static str,
        /// By the record.
        expected: &'static str,
    },
    /// It holds without the prefix that the record wants.
    NoPrefix {
        /// The prefix.
        prefix: String,
    },
    /// It holds with another hash.
    Hash {
        /// As sent.
        found: &'static str,
        /// By the record.
        expected: &'static str,
    },
    /// It holds in the scheme of another provider.
    OtherScheme {
        /// That preset.
        provider: &'static str,
    },
    /// The signature header of other providers stands in the request, and the record's does not.
    OtherFamily {
        /// The header that came.
        header: String,
        /// Presets that read it, a few of them.
        providers: Vec<&'static str>,
    },
    /// The provider's other headers came without the signature.
    HeaderMissing {
        /// The header that should be there.
        header: String,
        /// One that is.
        present: String,
    },
    /// It is a hand-shake in which the provider hands over its secret.
    HandsOverSecret,
    /// It came through a proxy, and the header's name has an underscore, which many proxies drop.
    HeaderUnderscore {
        /// The header.
        header: String,
    },
    /// The body is not in the encoding that its head says.
    Inflated {
        /// `gzip`.
        coding: &'static str,
    },
    /// It holds over another form of the body.
    Body {
        /// What happened to the body on its way.
        change: &'static str,
    },
    /// It holds over another URL.
    Url {
        /// Scheme, host and path; a query may hold credentials and is left out.
        signed: String,
        /// What `public_url` makes of the request, as far.
        ours: String,
    },
    /// It holds over the URL with its query in another order.
    QueryOrder,
    /// A value that is signed by itself stands in the request twice.
    GivenTwice {
        /// Where, as records say it.
        place: String,
    },
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClockOff { seconds } => {
                let side = if *seconds < 0 { "ahead of" } else { "behind" };
                write!(
                    f,
                    "the signature holds, but its time is {} s {side} our clock: clock off, or sent late",
                    seconds.unsigned_abs()
                )
            }
            Self::TimeUnit { found, expected } => write!(
                f,
                "the signature holds, but its time is in {found} and the record takes {expected} (`timestamp_unit`)"
            ),
            Self::SecretEnded { which } => write!(
                f,
                "the signature holds under {which}, whose `not_after` is over: the sender still uses it"
            ),
            Self::SecretQuoted { which } => {
                write!(f, "{which} has quotes around it; the signature holds without")
            }
            Self::SecretPrefix {
                which,
                prefix,
                is_missing,
            } => {
                let what = if *is_missing { "lacks" } else { "should not have" };
                write!(f, "{which} {what} `{prefix}` in front: the signature holds so")
            }
            Self::NotASigningSecret { which, kind, begins } => write!(
                f,
                "{which} begins with `{begins}`, as {kind} does: requests are signed with another secret"
            ),
            Self::Hash { found, expected } => {
                write!(f, "the signature holds with {found}; the record takes {expected}")
            }
            Self::OtherScheme { provider } => {
                write!(
                    f,
                    "the signature holds in the scheme of provider `{provider}`, with this source's secret"
                )
            }
            Self::OtherFamily { header, providers } => write!(
                f,
                "it carries `{header}`, which this source's provider does not send, but these do: {}",
                providers.join(", ")
            ),
            Self::HeaderMissing { header, present } => write!(
                f,
                "`{present}` came without `{header}`: no secret is set at the provider, or something on the way drops it"
            ),
            Self::HandsOverSecret => f.write_str(
                "it hands over a secret, for which nothing vouches: a source with `learn = \"once\"` takes it while \
                 `hooksluice sources learn NAME` lets it",
            ),
            Self::HeaderUnderscore { header } => write!(
                f,
                "it came through a proxy, and many drop headers with an underscore: allow `{header}` there (nginx: \
                 underscores_in_headers on)"
            ),
            Self::Inflated { coding } => write!(
                f,
                "its Content-Encoding says {coding} and its body is not: something inflated what was signed"
            ),
            Self::OtherSource { source } => write!(f, "the signature holds under the secret of source `{source}`"),
            Self::SecretWhiteSpace { which } => write!(
                f,
                "{which} has white space or a line end around it; the signature holds without"
            ),
            Self::SenderLineEnd { which } => write!(
                f,
                "the sender signs with a line end behind {which}: set it there again without"
            ),
            Self::SecretEncoding { which, found, expected } => write!(
                f,
                "the signature holds with {which} taken as {found}; the record takes it as {expected}"
            ),
            Self::SignatureEncoding { found, expected } => {
                write!(
                    f,
                    "the signature holds, written in {found}; the record wants {expected}"
                )
            }
            Self::NoPrefix { prefix } => write!(f, "the signature holds, but lacks `{prefix}` in front"),
            Self::Body { change } => write!(f, "the body was changed on its way: {change}"),
            Self::Url { signed, ours } => write!(
                f,
                "the signature holds for {signed}, and `public_url` makes it {ours}: set it as the provider was given it"
            ),
            Self::QueryOrder => f.write_str(
                "the signature holds with the query in another order: sort the query parameters in the provider's URL",
            ),
            Self::GivenTwice { place } => write!(
                f,
                "{place} is given twice, and only that value is signed: the app might read the other one"
            ),
        }
    }
}

impl Verifier {
    /// The likely cause of a refusal, where it can be shown.
    pub fn hint(&self, request: &RawRequest, reason: Reason) -> Option<Hint> {
        self.hint_among(request, reason, &[])
    }

    /// As [`Verifier::hint`], which can also tell that the secret is another source's.
    pub fn hint_among(&self, request: &RawRequest, reason: Reason, others: &[(&str, &Verifier)]) -> Option<Hint> {
        let search = search::Search::new(self, request);
        match reason {
            Reason::Stale | Reason::FromTheFuture => search.time_unit().or_else(|| search.clock()),
            Reason::MalformedTimestamp => search.time_unit(),
            Reason::WrongSignature | Reason::MalformedSignature | Reason::BodyMalformed => self
                .given_twice(request)
                .map(|place| Hint::GivenTwice { place })
                .or_else(|| search.written())
                .or_else(|| search.other_source(others))
                .or_else(|| search.secrets())
                .or_else(|| search.body())
                .or_else(|| search.url())
                .or_else(|| search.other_scheme())
                .or_else(|| shape::of_body(request))
                .or_else(|| shape::of_secrets(self)),
            Reason::MissingSignature | Reason::MissingTimestamp | Reason::MissingId => self
                .handed_over(request)
                .map(|_handed| Hint::HandsOverSecret)
                .or_else(|| search.other_scheme())
                .or_else(|| shape::of_headers(self.record(), &request.head)),
            Reason::AddressNotAllowed | Reason::TooLarge | Reason::TooSlow => None,
        }
    }
}
