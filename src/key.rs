//! [`DedupeKey`]: what decides "the same again", made only from a [`VerifiedRequest`](crate::verify::VerifiedRequest).

use std::fmt;

/// What a key was made of, which decides how long it is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// The source's `dedupe` rule: remembered for `dedupe.window`.
    Rule,
    /// No id in the request (`id_missing = "digest"`): a digest of method, target and body, remembered for
    /// `dedupe.digest_window` and no longer.
    Digest,
}

/// A value that a `dedupe` rule puts into the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The delivery id.
    Id,
    /// The event type.
    Type,
    /// SHA-256 of the body.
    Body,
}

impl Part {
    /// The word that configurations and records use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Type => "type",
            Self::Body => "body",
        }
    }
}

/// What to do when the rule asks for an id and the request has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdMissing {
    /// Use a digest of method, target and body, for `dedupe.digest_window`.
    Digest,
    /// Refuse with 400 (`missing_id`).
    Reject,
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
