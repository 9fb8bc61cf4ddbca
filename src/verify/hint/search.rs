//! "Would it hold if …": the verifier is altered in one respect and judges the request again.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use http::header::{self, HeaderName};

use crate::request::{RawRequest, RequestHead};
use crate::secret::Secret;

use super::super::Hash;
use super::super::coding;
use super::super::place::Place;
use super::super::presets;
use super::super::record::{Record, Scheme};
use super::super::secrets::SecretEncoding;
use super::super::signature::Encoding;
use super::super::url::{self, PublicUrl};
use super::super::verifier::{SourceSecret, Verifier, is_live};
use super::super::window::TimeUnit;
use super::{BUDGET, Hint, MAX_BODY, WhichSecret, reprint};

/// What a try costs besides the body, in bytes hashed.
pub(super) const OVERHEAD: usize = 4 << 10;
/// In another unit a signed time counts as about now when it is no further away, in milliseconds.
const ABOUT_NOW_MS: u64 = 86_400_000;
/// Prefixes that secrets carry for people to know them by.
const PREFIXES: [&str; 2] = ["whsec_", "v1,whsec_"];

pub(super) struct Search<'a> {
    verifier: &'a Verifier,
    request: &'a RawRequest,
    /// Bytes that may still be hashed.
    left: Cell<usize>,
}

impl<'a> Search<'a> {
    pub(super) fn new(verifier: &'a Verifier, request: &'a RawRequest) -> Self {
        Self {
            verifier,
            request,
            left: Cell::new(BUDGET),
        }
    }

    fn record(&self) -> &Arc<Record> {
        self.verifier.shared_record()
    }

    /// Whether the request is one of `verifier`'s at any time; no, once the budget is spent.
    fn judges(&self, verifier: &Verifier, request: &RawRequest) -> bool {
        let each = request.body.len().saturating_add(OVERHEAD);
        let cost = each.saturating_mul(verifier.secrets().len().max(1));
        let Some(left) = self.left.get().checked_sub(cost) else {
            self.left.set(0);
            return false;
        };
        self.left.set(left);
        verifier.holds(request)
    }

    fn with(&self, record: Arc<Record>, secrets: Vec<SourceSecret>) -> Option<Verifier> {
        let public_url = self.verifier.public_url().cloned();
        self.verifier.altered(record, secrets, public_url)
    }

    /// Under the same secrets and another record.
    fn by_record(&self, record: Arc<Record>) -> bool {
        let altered = self.with(record, self.verifier.secrets().to_vec());
        altered.is_some_and(|verifier| self.judges(&verifier, self.request))
    }

    /// Under a record whose schemes differ in `change`.
    fn by_scheme(&self, change: impl Fn(&mut Scheme)) -> bool {
        self.by_record(Arc::new(self.changed(change)))
    }

    fn changed(&self, change: impl Fn(&mut Scheme)) -> Record {
        let mut record = Record::clone(self.record());
        record.schemes.iter_mut().for_each(change);
        record
    }

    /// Under the one secret that `text` is.
    fn by_secret(&self, record: Arc<Record>, text: &[u8]) -> bool {
        let verifier = self.with(record, vec![SourceSecret::new(Secret::new(text))]);
        verifier.is_some_and(|verifier| self.judges(&verifier, self.request))
    }

    pub(super) fn clock(&self) -> Option<Hint> {
        let seconds = self.verifier.behind(self.request)?.checked_div(1000)?;
        self.by_record(Arc::clone(self.record()))
            .then_some(Hint::ClockOff { seconds })
    }

    /// Milliseconds for seconds, and the like: the number itself is what is signed.
    pub(super) fn time_unit(&self) -> Option<Hint> {
        let rule = self.record().schemes.iter().find_map(|scheme| scheme.time.as_ref())?;
        let expected = rule.unit;
        // The units that read several forms would find the expected one too.
        let plain = [
            TimeUnit::Seconds,
            TimeUnit::Millis,
            TimeUnit::Rfc3339,
            TimeUnit::HttpDate,
        ];
        for unit in plain.into_iter().filter(|unit| *unit != expected) {
            let record = self.changed(|scheme| {
                if let Some(rule) = &mut scheme.time {
                    rule.unit = unit;
                }
            });
            let Some(verifier) = self.with(Arc::new(record), self.verifier.secrets().to_vec()) else {
                continue;
            };
            let behind = verifier.behind(self.request);
            if behind.is_some_and(|ms| ms.unsigned_abs() <= ABOUT_NOW_MS) && self.judges(&verifier, self.request) {
                return Some(Hint::TimeUnit {
                    found: unit_in_words(unit),
                    expected: unit_in_words(expected),
                });
            }
        }
        None
    }

    /// The signature as it is written: without its prefix, in another encoding, made with another hash.
    pub(super) fn written(&self) -> Option<Hint> {
        let scheme = self.record().schemes.first()?;
        let form = &scheme.signature;
        let (expected, prefix) = (form.encoding, form.prefix.clone());
        if !form.prefix_optional && self.by_scheme(|scheme| scheme.signature.prefix_optional = true) {
            return Some(Hint::NoPrefix { prefix });
        }
        let encoding = Encoding::NAMED.into_iter().find_map(|(found, encoding)| {
            let holds = encoding != expected && self.by_scheme(|scheme| scheme.signature.encoding = encoding);
            let expected = expected.as_str();
            holds.then_some(Hint::SignatureEncoding { found, expected })
        });
        encoding.or_else(|| {
            let expected = scheme.hash;
            Hash::NAMED.into_iter().find_map(|(found, hash)| {
                let holds = hash != expected && self.by_scheme(|scheme| scheme.hash = hash);
                let expected = expected.as_str();
                holds.then_some(Hint::Hash { found, expected })
            })
        })
    }

    pub(super) fn other_source(&self, others: &[(&str, &Verifier)]) -> Option<Hint> {
        others.iter().find_map(|(source, other)| {
            let verifier = self.with(Arc::clone(self.record()), other.secrets().to_vec())?;
            let source = (*source).to_owned();
            self.judges(&verifier, self.request)
                .then_some(Hint::OtherSource { source })
        })
    }

    pub(super) fn secrets(&self) -> Option<Hint> {
        (0..self.verifier.secrets().len()).find_map(|index| self.secret(index))
    }

    fn secret(&self, index: usize) -> Option<Hint> {
        let secret = self.verifier.secrets().get(index)?;
        let which = WhichSecret::of(self.verifier, index);
        let text = secret.secret.expose();
        let record = self.record();
        let holds = |text: &[u8]| self.by_secret(Arc::clone(record), text);
        if !is_live(secret, self.request.head.received_at) && holds(text) {
            return Some(Hint::SecretEnded { which });
        }
        let trimmed = text.trim_ascii();
        if trimmed != text && holds(trimmed) {
            return Some(Hint::SecretWhiteSpace { which });
        }
        let quoted = [b'"', b'\''].into_iter().find_map(|quote| {
            let inner = trimmed.strip_prefix(&[quote])?;
            inner.strip_suffix(&[quote])
        });
        if quoted.is_some_and(holds) {
            return Some(Hint::SecretQuoted { which });
        }
        for end in [b"\n".as_slice(), b"\r\n"] {
            if holds(&[text, end].concat()) {
                return Some(Hint::SenderLineEnd { which });
            }
        }
        let prefixed = PREFIXES.into_iter().find_map(|prefix| {
            let (is_missing, other) = match text.strip_prefix(prefix.as_bytes()) {
                Some(rest) => (false, rest.to_vec()),
                None => (true, [prefix.as_bytes(), text].concat()),
            };
            holds(&other).then_some(Hint::SecretPrefix {
                which: which.clone(),
                prefix,
                is_missing,
            })
        });
        prefixed.or_else(|| self.secret_encoding(&which, text))
    }

    fn secret_encoding(&self, which: &WhichSecret, text: &[u8]) -> Option<Hint> {
        let record = self.record();
        let (expected, _) = *SecretEncoding::NAMED
            .iter()
            .find(|(_, encoding)| *encoding == record.secret_encoding)?;
        SecretEncoding::NAMED.into_iter().find_map(|(found, encoding)| {
            let prefixes: &[&str] = if encoding == SecretEncoding::Base64 {
                &["whsec_", ""]
            } else {
                &[""]
            };
            let holds = prefixes.iter().any(|prefix| {
                let mut other = Record::clone(record);
                other.secret_encoding = encoding;
                other.secret_strip_prefix = vec![(*prefix).to_owned()];
                self.by_secret(Arc::new(other), text)
            });
            let hint = Hint::SecretEncoding {
                which: which.clone(),
                found,
                expected,
            };
            (encoding != record.secret_encoding && holds).then_some(hint)
        })
    }

    pub(super) fn body(&self) -> Option<Hint> {
        if self.request.body.len() > MAX_BODY {
            return None;
        }
        let verifier = self.with(Arc::clone(self.record()), self.verifier.secrets().to_vec())?;
        let holds = |body: Vec<u8>| {
            let mut other = self.request.clone();
            other.body = body.into();
            self.judges(&verifier, &other)
        };
        if let Some(inflated) = inflated(&self.request.body)
            && holds(inflated)
        {
            let change = "it was compressed after it was signed, or was to be inflated before the check";
            return Some(Hint::Body { change });
        }
        reprint::change(&self.request.body, holds).map(|change| Hint::Body { change })
    }

    pub(super) fn url(&self) -> Option<Hint> {
        if !self.record().needs_public_url() {
            return None;
        }
        let head = &self.request.head;
        let target = &head.target;
        let asked = || PublicUrl::parse(&format!("https://{}", head.authority.as_deref()?)).ok();
        let public_url = &self.verifier.public_url().cloned().or_else(asked)?;
        let ours = public_url.of(target);
        let holds = |url: &str| {
            let public_url = PublicUrl::parse(url).ok();
            let secrets = self.verifier.secrets().to_vec();
            let verifier = self.verifier.altered(Arc::clone(self.record()), secrets, public_url);
            verifier.is_some_and(|verifier| self.judges(&verifier, self.request))
        };
        let said = |name| head.headers.get(name).and_then(|host| host.to_str().ok());
        let hosts = [
            head.authority.as_deref(),
            said("x-forwarded-host"),
            said(header::HOST.as_str()),
        ];
        let hosts: Vec<&str> = hosts.into_iter().flatten().collect();
        let slips = url::slips(public_url, target, &hosts);
        if let Some(signed) = slips.into_iter().find(|slip| holds(slip)) {
            let shown = |url: &str| url.split('?').next().unwrap_or_default().to_owned();
            let (signed, ours) = (shown(&signed), shown(&ours));
            return Some(Hint::Url { signed, ours });
        }
        url::other_orders(&ours)
            .iter()
            .any(|url| holds(url))
            .then_some(Hint::QueryOrder)
    }

    /// A preset whose signature header is in the request, and in whose scheme the request holds with our secrets. Of
    /// several that share a scheme, one that the header is named after.
    pub(super) fn other_scheme(&self) -> Option<Hint> {
        let ours = self.record().name();
        let mut first = None;
        for provider in presets::names() {
            let Some(record) = presets::find(provider).filter(|record| record.name() != ours) else {
                continue;
            };
            let Some(header) = signature_header(&record, &self.request.head) else {
                continue;
            };
            let is_namesake = header.as_str().contains(provider);
            if (first.is_none() || is_namesake) && self.by_record(Arc::clone(&record)) {
                first = Some(provider);
                if is_namesake {
                    break;
                }
            }
        }
        first.map(|provider| Hint::OtherScheme { provider })
    }
}

/// The record's signature header that is in the request. `Authorization` may be anybody's.
pub(super) fn signature_header<'r>(record: &'r Record, head: &RequestHead) -> Option<&'r HeaderName> {
    let places = record.schemes.iter().flat_map(|scheme| &scheme.signature.places);
    let mut names = places.filter_map(|place| match place {
        Place::Header(name) => Some(name),
        _ => None,
    });
    names.find(|name| **name != header::AUTHORIZATION && head.headers.contains_key(*name))
}

fn unit_in_words(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Seconds => "seconds",
        TimeUnit::Millis => "milliseconds",
        TimeUnit::SecondsOrMillis => "seconds or milliseconds",
        TimeUnit::Rfc3339 | TimeUnit::Datetime => "the form of RFC 3339",
        TimeUnit::HttpDate | TimeUnit::DateOrSeconds => "the form of an HTTP date",
    }
}

/// What a gzip body holds, if that is no more than is tried.
fn inflated(body: &[u8]) -> Option<Vec<u8>> {
    if !body.starts_with(b"\x1f\x8b") {
        return None;
    }
    let most = u64::try_from(MAX_BODY).ok()?;
    coding::decoded(body, Some(b"gzip"), most).ok().map(Cow::into_owned)
}
