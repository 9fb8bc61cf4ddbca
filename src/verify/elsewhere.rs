//! Keys that lie elsewhere: a key set at an address of the record's, or a certificate whose address stands in the request.
//! Here is decided where that is, and made of the document what judges requests; getting it is for others.
//!
//! A request can only ever name an address that the record allows (`certificate_urls`): HTTPS, the provider's own hosts, a
//! path of theirs and no query. What comes from there over TLS is believed, as the providers' own libraries believe it (npm
//! sns-validator 0.3.5): the host is the proof.

use std::sync::Arc;

use http::Uri;

use crate::request::RawRequest;
use crate::secret::Secret;

use super::place::{Fields, Place};
use super::record::Record;
use super::verifier::{SourceSecret, Verifier};

/// What a key that was fetched is called where people look for secrets' labels.
const LABEL: &str = "fetched";

/// Where a record's keys lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeysAt {
    /// A key set, at this address; the names in braces are parameters.
    Set(String),
    /// A certificate, at the address in this place, if it is like one of these.
    Certificate(Place, Vec<UrlPattern>),
}

/// What a verified hand-shake wants visited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VisitRule {
    pub(super) place: Place,
    pub(super) urls: Vec<UrlPattern>,
    /// The parameter without which nobody can say whether the hand-shake is meant for us.
    pub(super) needs: Option<String>,
}

/// What is to be visited once a request has turned out to be a verified hand-shake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visit {
    /// Nothing.
    Nothing,
    /// This address of the provider's.
    Address(Uri),
    /// Nothing, for want of this parameter.
    Lacks(String),
}

/// `https://sns.*.amazonaws.com/*.pem`: one `*` in the host stands for a part of a label, one in the path for anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UrlPattern {
    host: (String, Option<String>),
    path: (String, Option<String>),
    /// `?*` at the end: whatever query.
    has_query: bool,
}

impl UrlPattern {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("https://").ok_or("expected `https://HOST/PATH`")?;
        let (rest, has_query) = match rest.strip_suffix("?*") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let (host, path) = rest.split_once('/').ok_or("expected a path behind the host")?;
        let halves = |part: &str| match part.split_once('*') {
            Some((_, after)) if after.contains('*') => {
                Err("one `*` in the host and one in the path at most".to_owned())
            }
            Some((before, after)) => Ok((before.to_owned(), Some(after.to_owned()))),
            None => Ok((part.to_owned(), None)),
        };
        if host.is_empty() {
            return Err("expected a host".to_owned());
        }
        Ok(Self {
            host: halves(host)?,
            path: halves(&format!("/{path}"))?,
            has_query,
        })
    }

    fn fits(&self, url: &Uri) -> bool {
        let Some(authority) = url.authority().map(|authority| authority.as_str().to_ascii_lowercase()) else {
            return false;
        };
        let in_label = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let in_path = |c: char| c.is_ascii_graphic() && c != '\\';
        let path = url.path();
        url.scheme_str() == Some("https")
            && (self.has_query || url.query().is_none())
            && !path.contains("..")
            && fits(&self.host, &authority, in_label)
            && fits(&self.path, path, in_path)
    }
}

fn fits((before, after): &(String, Option<String>), text: &str, wild: impl Fn(char) -> bool) -> bool {
    match after {
        None => text == before,
        Some(after) => {
            let inner = text
                .strip_prefix(before.as_str())
                .and_then(|rest| rest.strip_suffix(after.as_str()));
            inner.is_some_and(|inner| !inner.is_empty() && inner.chars().all(wild))
        }
    }
}

impl Record {
    /// Whether its keys can be fetched, so that a source may do without a secret.
    pub fn fetches_keys(&self) -> bool {
        self.keys_at.is_some()
    }

    /// Whether a hand-shake of its wants an address visited.
    pub fn visits(&self) -> bool {
        self.visit.is_some()
    }

    /// Whether they are in a key set, whose address the record has.
    pub(super) fn has_key_set(&self) -> bool {
        matches!(self.keys_at, Some(KeysAt::Set(_)))
    }
}

impl Verifier {
    /// What is to be visited if this request is a verified hand-shake.
    pub fn visit(&self, request: &RawRequest) -> Visit {
        let Some(rule) = &self.record().visit else {
            return Visit::Nothing;
        };
        match (self.address_in(request, &rule.place, &rule.urls), &rule.needs) {
            (Some(_), Some(param)) if !self.params().contains_key(param) => Visit::Lacks(param.clone()),
            (Some(address), _) => Visit::Address(address),
            (None, _) => Visit::Nothing,
        }
    }

    /// The address that stands at a place of the request, if it is like one of these.
    fn address_in(&self, request: &RawRequest, place: &Place, patterns: &[UrlPattern]) -> Option<Uri> {
        let head = &request.head;
        let pointers: Vec<_> = match place {
            Place::Json(pointer) => vec![pointer.clone()],
            _ => Vec::new(),
        };
        let fields = Fields::of(head, &request.body, &pointers);
        let url = fields.get(place)?;
        let url: Uri = std::str::from_utf8(&url).ok()?.parse().ok()?;
        patterns.iter().any(|pattern| pattern.fits(&url)).then_some(url)
    }

    /// Where the key that judges this request lies; `None` where keys are given, and where the request names an address
    /// that the record does not allow.
    pub fn key_address(&self, request: &RawRequest) -> Option<Uri> {
        if !self.secrets().is_empty() {
            return None;
        }
        match self.record().keys_at.as_ref()? {
            KeysAt::Set(_) => self.key_set_address(),
            KeysAt::Certificate(place, patterns) => self.address_in(request, place, patterns),
        }
    }

    /// The key set's address, with the source's parameters in it.
    pub(super) fn key_set_address(&self) -> Option<Uri> {
        let KeysAt::Set(text) = self.record().keys_at.as_ref()? else {
            return None;
        };
        let mut url = text.clone();
        for (name, value) in self.params() {
            url = url.replace(&format!("{{{name}}}"), value);
        }
        let url: Uri = url.parse().ok()?;
        (url.scheme_str() == Some("https") && url.authority().is_some()).then_some(url)
    }

    /// The same source with the key of a document that was fetched for it.
    ///
    /// # Errors
    /// It has no key that this source could use.
    pub fn with_document(&self, document: &[u8]) -> Result<Self, String> {
        let document = match self.record().keys_at {
            // The first certificate of a chain is whose key signs.
            Some(KeysAt::Certificate(..)) => first_block(document),
            _ => document,
        };
        let secret = SourceSecret {
            label: Some(Arc::from(LABEL)),
            ..SourceSecret::new(Secret::new(document))
        };
        self.with_secret(secret)
    }
}

/// The text up to the end of its first PEM block.
fn first_block(document: &[u8]) -> &[u8] {
    const END: &[u8] = b"-----END CERTIFICATE-----";
    let end = memchr::memmem::find(document, END).map_or(document.len(), |at| at + END.len());
    document.get(..end).unwrap_or(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(pattern: &str, url: &str) -> bool {
        let pattern = UrlPattern::parse(pattern).unwrap();
        url.parse::<Uri>().is_ok_and(|url| pattern.fits(&url))
    }

    #[test]
    fn a_request_can_name_the_provider_s_own_addresses_only() {
        let sns = "https://sns.*.amazonaws.com/*.pem";
        assert!(is_allowed(
            sns,
            "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0.pem"
        ));
        assert!(is_allowed(sns, "https://SNS.eu-west-1.amazonaws.com/a/b.pem"));
        for bad in [
            "http://sns.eu-west-1.amazonaws.com/a.pem",
            "https://sns.eu-west-1.amazonaws.com/a.txt",
            "https://sns.eu-west-1.amazonaws.com/a.pem?x=.pem",
            "https://sns.eu-west-1.amazonaws.com:8443/a.pem",
            "https://user@sns.eu-west-1.amazonaws.com/a.pem",
            "https://sns.eu-west-1.amazonaws.com/../a.pem",
            "https://sns..amazonaws.com/a.pem",
            "https://sns.a.b.amazonaws.com/a.pem",
            "https://sns.x.amazonaws.com.evil.test/a.pem",
            "https://evil.test/sns.x.amazonaws.com/a.pem",
            "https://evil.test#sns.eu-west-1.amazonaws.com/a.pem",
            "https://s3.eu-west-1.amazonaws.com/sns.x.amazonaws.com/a.pem",
            "file:///etc/a.pem",
            "/a.pem",
        ] {
            assert!(!is_allowed(sns, bad), "{bad}");
        }
    }

    #[test]
    fn a_query_is_allowed_where_the_pattern_has_one() {
        let confirm = "https://sns.*.amazonaws.com/?*";
        assert!(is_allowed(
            confirm,
            "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=2336"
        ));
        assert!(!is_allowed(
            confirm,
            "https://sns.eu-west-1.amazonaws.com/x?Action=ConfirmSubscription"
        ));
        assert!(!is_allowed(
            confirm,
            "https://evil.test/?https://sns.eu-west-1.amazonaws.com/"
        ));
    }

    #[test]
    fn a_pattern_that_could_mean_more_is_refused() {
        for bad in [
            "http://a/b",
            "https://a",
            "https:///a",
            "https://*.*.a/b",
            "https://a/*/*",
        ] {
            assert!(UrlPattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_chain_stands_for_its_first_certificate() {
        let chain = b"-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\nB";
        assert!(first_block(chain).ends_with(b"A\n-----END CERTIFICATE-----"));
    }
}
