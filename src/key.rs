//! [`DedupeKey`]: what decides "the same again", made only from a [`VerifiedRequest`](crate::verify::VerifiedRequest).

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use crate::verify::{Reason, Rejection, VerifiedRequest};

// Records say them, so they are told where records are; what they mean is told here.
pub use crate::verify::record::{IdMissing, Part};

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
    if !rule.parts.contains(&Part::Id) || request.dedupe_id().is_some() {
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

fn rule_key(request: &VerifiedRequest, parts: &[Part]) -> DedupeKey {
    // The rule's name is part of the key: a source whose rule changes must not take an old key for a new one.
    let mut hash = start(request, "rule");
    field(&mut hash, &[u8::try_from(parts.len()).unwrap_or(u8::MAX)]);
    for part in parts {
        let (name, value) = match part {
            Part::Id => ("id", request.dedupe_id().unwrap_or_default().as_bytes()),
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
