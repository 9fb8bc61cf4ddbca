//! [`DedupeKey`]: what decides "the same again", made only from a [`VerifiedRequest`].

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use crate::verify::{Reason, Rejection, VerifiedRequest};

// Records say them, so they are told where records are; what they mean is told here.
pub use crate::verify::record::{Decide, IdMissing, Part};

/// What a key was made of, which decides how long it is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// The source's `dedupe` rule: remembered for `dedupe.window`.
    Rule,
    /// No id in the request (`id_missing = "digest"`): a digest of method, target and body, remembered for
    /// `dedupe.digest_window` and no longer.
    Digest,
}

/// How a source makes its dedupe keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedupeRule {
    /// The parts, in order; never empty.
    pub parts: Vec<Part>,
    /// When the rule has [`Part::Id`] and the request has none.
    pub id_missing: IdMissing,
    /// `same_content = "hold"`: also remember the content's digest, and hold a same-content event under another id.
    pub hold_same_content: bool,
    /// The provider's record says that retries of one delivery may differ in their bytes: a conflict is not a warning.
    pub body_varies: bool,
}

/// SHA-256 over scope, rule name and each part, each with its length in front. The store's unique key and Redis use
/// the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DedupeKey {
    digest: [u8; 32],
    kind: KeyKind,
}

impl DedupeKey {
    /// A key read back from the store.
    pub(crate) const fn from_parts(digest: [u8; 32], kind: KeyKind) -> Self {
        Self { digest, kind }
    }

    /// The 32 bytes.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// What it was made of.
    pub const fn kind(&self) -> KeyKind {
        self.kind
    }
}

impl fmt::Debug for DedupeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DedupeKey({:?}, {})",
            self.kind,
            data_encoding::HEXLOWER.encode(&self.digest)
        )
    }
}

/// The key of a verified request under its source's rule.
///
/// # Errors
/// [`Reason::MissingId`] when the rule needs an id, the request has none, and the source says `id_missing = "reject"`.
pub fn dedupe_key(request: &VerifiedRequest, rule: &DedupeRule) -> Result<DedupeKey, Rejection> {
    // The body is asked where the id names less than one delivery, an object say. A provider that only rings a bell
    // sends the same id and the same body when the object changes again, so there neither can tell.
    if request.rings_only() && rule.parts.contains(&Part::Body) {
        return Ok(digest_key(request));
    }
    if !rule.parts.contains(&Part::Id) || id(request, &rule.parts).is_some() {
        return Ok(rule_key(request, &rule.parts));
    }
    match rule.id_missing {
        IdMissing::Reject => Err(Rejection {
            reason: Reason::MissingId,
        }),
        IdMissing::Digest => Ok(digest_key(request)),
    }
}

/// What `same_content = "hold"` remembers: scope, method, target and body, never the signature or a time. `None` where
/// the bytes say nothing of their own.
pub fn content_digest(request: &VerifiedRequest) -> Option<[u8; 32]> {
    request.has_content().then(|| {
        let mut hash = start(request, "content");
        content(request, &mut hash);
        hash.finalize().into()
    })
}

/// The first 8 bytes of the body's SHA-256: tells a duplicate with other bytes.
pub fn body_mark(request: &VerifiedRequest) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = *request.body_digest();
    [a, b, c, d, e, f, g, h]
}

/// An id that decides alone is the one that the record names for it and no other; beside the body any will do.
fn id<'r>(request: &'r VerifiedRequest, parts: &[Part]) -> Option<&'r str> {
    match parts {
        [Part::Id] => request.deciding_id(),
        _ => request.dedupe_id(),
    }
}

fn rule_key(request: &VerifiedRequest, parts: &[Part]) -> DedupeKey {
    // The rule's name is part of the key: a source whose rule changes must not take an old key for a new one.
    let mut hash = start(request, "rule");
    field(&mut hash, &[u8::try_from(parts.len()).unwrap_or(u8::MAX)]);
    for part in parts {
        let (name, value) = match part {
            Part::Id => ("id", id(request, parts).unwrap_or_default().as_bytes()),
            Part::Type => ("type", request.event_type().unwrap_or_default().as_bytes()),
            Part::Body => ("body", request.body_digest().as_slice()),
        };
        field(&mut hash, name.as_bytes());
        field(&mut hash, value);
    }
    DedupeKey::from_parts(hash.finalize().into(), KeyKind::Rule)
}

/// A retry without an id repeats its bytes. Requests without content are told apart by a counter instead: two of them
/// are never "the same again".
fn digest_key(request: &VerifiedRequest) -> DedupeKey {
    static UNNAMED: AtomicU64 = AtomicU64::new(0);
    let mut hash = start(request, "digest");
    content(request, &mut hash);
    if !request.has_content() {
        field(&mut hash, &request.request().head.received_at.as_millis().to_be_bytes());
        field(&mut hash, &UNNAMED.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    }
    DedupeKey::from_parts(hash.finalize().into(), KeyKind::Digest)
}

fn content(request: &VerifiedRequest, hash: &mut Sha256) {
    let head = &request.request().head;
    field(hash, head.method.as_str().as_bytes());
    field(hash, head.target.as_str().as_bytes());
    field(hash, request.body_digest());
}

/// Every key begins with the scope, of the secret and of the record, and the name of what it is made of.
fn start(request: &VerifiedRequest, name: &str) -> Sha256 {
    let mut hash = Sha256::new();
    field(
        &mut hash,
        request.proof().scope.as_deref().unwrap_or_default().as_bytes(),
    );
    field(&mut hash, request.record_scope().unwrap_or_default().as_bytes());
    field(&mut hash, name.as_bytes());
    hash
}

/// A value with its length in front, so that no two lists of values spell the same bytes.
fn field(hash: &mut Sha256, value: &[u8]) {
    let len = u64::try_from(value.len()).unwrap_or(u64::MAX);
    hash.update(len.to_be_bytes());
    hash.update(value);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::{IpAddr, Ipv4Addr};

    use http::{HeaderMap, HeaderName, Method};

    use super::*;
    use crate::diagnostic::Diagnostics;
    use crate::request::{RawRequest, RequestHead};
    use crate::secret::Secret;
    use crate::time::Timestamp;
    use crate::verify::record::Record;
    use crate::verify::{SourceSecret, Verified, Verifier, VerifierOptions, presets};

    const RULE: DedupeRule = DedupeRule {
        parts: Vec::new(),
        id_missing: IdMissing::Digest,
        hold_same_content: false,
        body_varies: false,
    };

    fn rule(parts: &[Part]) -> DedupeRule {
        DedupeRule {
            parts: parts.to_vec(),
            ..RULE
        }
    }

    fn request(target: &str, headers: &[(&str, &str)], body: &str) -> RawRequest {
        let header = |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        RawRequest {
            head: RequestHead {
                method: Method::POST,
                target: target.parse().unwrap(),
                authority: None,
                headers: headers.iter().map(header).collect::<HeaderMap>(),
                client: IpAddr::V4(Ipv4Addr::LOCALHOST),
                received_at: Timestamp::from_secs(1),
            },
            body: body.to_owned().into(),
        }
    }

    /// Verified by a token, so that no signature differs when a header does.
    fn verified(text: &str, scope: Option<&str>, request: RawRequest) -> VerifiedRequest {
        let text = format!("kind = \"token\"\nsignature = \"header:X-Token\"\n{text}");
        let record = Record::read_text("acme", &text, &mut Diagnostics::new()).unwrap();
        let mut secret = SourceSecret::new(Secret::new("token"));
        secret.scope = scope.map(Into::into);
        secret.label = scope.map(|scope| format!("label of {scope}").into());
        let mut request = request;
        request.head.headers.insert("x-token", "token".parse().unwrap());
        let verifier = Verifier::new(record.into(), vec![secret], VerifierOptions::default()).unwrap();
        match verifier.verify(request) {
            Ok(Verified::Event(event)) => event,
            other => panic!("{other:?}"),
        }
    }

    const BY_HEADER: &str = "delivery_id = \"header:X-Id\"\nevent_type = \"header:X-Type\"\nscope = \"header:X-Hook\"";

    fn named(id: &str, kind: &str, hook: &str, scope: Option<&str>, body: &str) -> VerifiedRequest {
        verified(
            BY_HEADER,
            scope,
            request("/in", &[("x-id", id), ("x-type", kind), ("x-hook", hook)], body),
        )
    }

    #[test]
    fn a_repeat_has_the_same_key_whatever_its_time_target_and_other_headers() {
        let first = named("a", "t", "h", None, "{}");
        let mut later = request(
            "/in?retry=1",
            &[("x-id", "a"), ("x-type", "t"), ("x-hook", "h"), ("x-try", "2")],
            "{}",
        );
        later.head.received_at = Timestamp::from_secs(9);
        let later = verified(BY_HEADER, None, later);
        for parts in [&[Part::Id][..], &[Part::Id, Part::Type, Part::Body]] {
            assert_eq!(dedupe_key(&first, &rule(parts)), dedupe_key(&later, &rule(parts)));
        }
    }

    #[test]
    fn every_part_scope_and_rule_makes_another_key() {
        let all = rule(&[Part::Id, Part::Type, Part::Body]);
        let keys = [
            dedupe_key(&named("a", "t", "h", None, "{}"), &all),
            dedupe_key(&named("b", "t", "h", None, "{}"), &all),
            dedupe_key(&named("a", "u", "h", None, "{}"), &all),
            dedupe_key(&named("a", "t", "i", None, "{}"), &all),
            dedupe_key(&named("a", "t", "h", Some("connect"), "{}"), &all),
            dedupe_key(&named("a", "t", "h", None, "{ }"), &all),
            dedupe_key(&named("a", "t", "h", None, "{}"), &rule(&[Part::Id])),
            dedupe_key(&named("a", "t", "h", None, "{}"), &rule(&[Part::Id, Part::Type])),
        ];
        let distinct: HashSet<_> = keys.iter().map(|key| *key.as_ref().unwrap().digest()).collect();
        assert_eq!(distinct.len(), keys.len());
    }

    #[test]
    fn neighbouring_values_do_not_run_into_each_other() {
        let parts = rule(&[Part::Id, Part::Type]);
        assert_ne!(
            dedupe_key(&named("ab", "c", "h", None, ""), &parts),
            dedupe_key(&named("a", "bc", "h", None, ""), &parts)
        );
        assert_ne!(
            dedupe_key(&named("a", "t", "x", Some("h"), ""), &parts),
            dedupe_key(&named("a", "t", "hx", None, ""), &parts)
        );
    }

    #[test]
    fn a_label_is_no_part_of_a_key() {
        let relabelled = |label: &str| {
            let record = presets::find("gitlab").unwrap();
            let mut secret = SourceSecret::new(Secret::new("token"));
            secret.label = Some(label.into());
            let verifier = Verifier::new(record, vec![secret], VerifierOptions::default()).unwrap();
            let request = request("/in", &[("x-gitlab-token", "token"), ("idempotency-key", "a")], "{}");
            match verifier.verify(request) {
                Ok(Verified::Event(event)) => dedupe_key(&event, &rule(&[Part::Id])).unwrap(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(relabelled("2025"), relabelled("2026"));
    }

    #[test]
    fn an_id_over_any_length_is_hashed_and_never_cut() {
        let long = "x".repeat(5_000);
        let other = format!("{long}y");
        let parts = rule(&[Part::Id]);
        assert_ne!(
            dedupe_key(&named(&long, "t", "h", None, ""), &parts),
            dedupe_key(&named(&other, "t", "h", None, ""), &parts)
        );
    }

    #[test]
    fn without_an_id_the_content_decides_or_the_request_is_refused() {
        let parts = rule(&[Part::Id]);
        let send = |target: &str, body: &str| verified(BY_HEADER, None, request(target, &[], body));
        let key = dedupe_key(&send("/in", "{}"), &parts).unwrap();
        assert_eq!(key.kind(), KeyKind::Digest);
        assert_eq!(dedupe_key(&send("/in", "{}"), &parts), Ok(key));
        assert_ne!(dedupe_key(&send("/in?x", "{}"), &parts), Ok(key));
        assert_ne!(dedupe_key(&send("/in", "{ }"), &parts), Ok(key));
        let reject = DedupeRule {
            id_missing: IdMissing::Reject,
            ..parts.clone()
        };
        let reason = Reason::MissingId;
        assert_eq!(dedupe_key(&send("/in", "{}"), &reject), Err(Rejection { reason }));
        assert!(dedupe_key(&named("a", "t", "h", None, ""), &reject).is_ok());
        // A rule without the id needs none.
        assert_eq!(
            dedupe_key(&send("/in", "{}"), &rule(&[Part::Body])).unwrap().kind(),
            KeyKind::Rule
        );
    }

    #[test]
    fn an_id_that_the_record_does_not_name_for_it_decides_never_alone() {
        let text = "delivery_id = \"json:/document\"\ndedupe_id = \"header:X-Delivery\"";
        let send = |headers: &[(&str, &str)], body| verified(text, None, request("/in", headers, body));
        let alone = rule(&[Part::Id]);
        let key = |request: &VerifiedRequest| dedupe_key(request, &alone).unwrap();
        let (sent, completed) = ("{\"document\":1,\"s\":0}", "{\"document\":1,\"s\":1}");
        assert_eq!(
            key(&send(&[("x-delivery", "a")], sent)),
            key(&send(&[("x-delivery", "a")], completed))
        );
        assert_ne!(key(&send(&[], sent)), key(&send(&[], completed)));
        assert_eq!(key(&send(&[], sent)).kind(), KeyKind::Digest);
        let with_body = rule(&[Part::Id, Part::Body]);
        assert_eq!(dedupe_key(&send(&[], sent), &with_body).unwrap().kind(), KeyKind::Rule);
    }

    #[test]
    fn requests_without_content_of_their_own_are_never_the_same_again() {
        let parts = rule(&[Part::Id]);
        let empty = || verified("", None, request("/in", &[], ""));
        let ping = || verified("ping = true", None, request("/in", &[], "{\"changed\":true}"));
        assert_ne!(dedupe_key(&empty(), &parts), dedupe_key(&empty(), &parts));
        assert_ne!(dedupe_key(&ping(), &parts), dedupe_key(&ping(), &parts));
        assert_eq!((content_digest(&empty()), content_digest(&ping())), (None, None));
        let of_an_object = || {
            let text = "ping = true\ndelivery_id = \"json:/id\"";
            verified(text, None, request("/in", &[], "{\"id\":\"tr_1\"}"))
        };
        let with_body = rule(&[Part::Id, Part::Type, Part::Body]);
        assert_ne!(
            dedupe_key(&of_an_object(), &with_body),
            dedupe_key(&of_an_object(), &with_body)
        );
        assert_eq!(dedupe_key(&of_an_object(), &parts), dedupe_key(&of_an_object(), &parts));
        assert!(content_digest(&verified("", None, request("/in", &[], "{}"))).is_some());
    }

    #[test]
    fn the_content_digest_is_blind_to_the_id() {
        let digest = |id: &str, body: &str| content_digest(&named(id, "t", "h", None, body));
        assert_eq!(digest("a", "{}"), digest("b", "{}"));
        assert_ne!(digest("a", "{}"), digest("a", "{ }"));
    }

    #[test]
    fn the_body_mark_is_the_start_of_the_bodys_sha_256() {
        let mark = body_mark(&named("a", "t", "h", None, "abc"));
        assert_eq!(data_encoding::HEXLOWER.encode(&mark), "ba7816bf8f01cfea");
    }
}
