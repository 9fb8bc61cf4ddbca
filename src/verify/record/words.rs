//! The words that a record is made of.

/// How a request proves where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// HMAC over a text made from the request.
    Hmac,
    /// A plain hash over a text that holds the secret.
    Digest,
    /// A signature by an Ed25519 key; the secret is the provider's public key.
    Ed25519,
    /// A signature by an ECDSA key; the secret is the provider's public key.
    Ecdsa,
    /// A signature by an RSA key; the secret is the provider's public key.
    Rsa,
    /// A JWT, or a detached JWS; the secret is shared, or the provider's public key.
    Jwt,
    /// The secret itself stands in the request.
    Token,
    /// `Authorization: Basic`; the secret is `user:password`.
    Basic,
    /// Nothing: the source must say `accept_unsigned = true`.
    None,
}

impl Kind {
    /// The name used in records and shown to people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hmac => "hmac",
            Self::Digest => "digest",
            Self::Ed25519 => "ed25519",
            Self::Ecdsa => "ecdsa",
            Self::Rsa => "rsa",
            Self::Jwt => "jwt",
            Self::Token => "token",
            Self::Basic => "basic",
            Self::None => "none",
        }
    }

    /// Whether what is configured is the provider's public key.
    pub const fn is_public_key(self) -> bool {
        matches!(self, Self::Ed25519 | Self::Ecdsa | Self::Rsa)
    }

    /// Whether the signature is over a text that is made from the request (`payload`).
    pub(super) const fn signs_payload(self) -> bool {
        matches!(self, Self::Hmac | Self::Digest) || self.is_public_key()
    }
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

    /// What decides under a rule of these parts.
    pub fn decide(rule: &[Self]) -> Decide {
        if rule.contains(&Self::Body) {
            Decide::ByContent
        } else if rule.contains(&Self::Id) {
            Decide::ById
        } else {
            Decide::ByNothing
        }
    }
}

/// What a `dedupe` rule decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decide {
    /// The body is in it: what is taken for the same is the same.
    ByContent,
    /// The id, whatever the body: right only where the provider documents it as one per delivery.
    ById,
    /// Neither: events that have nothing to do with each other are the same.
    ByNothing,
}

/// What to do when the rule asks for an id and the request has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdMissing {
    /// Use a digest of method, target and body, for `dedupe.digest_window`.
    Digest,
    /// Refuse with 400 (`missing_id`).
    Reject,
}

/// How sure a record is of its scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// Vectors made by the provider's own SDK, or published by the provider, pass.
    Proven,
    /// Read in the provider's documents.
    Documented,
    /// Neither; a user's own record, or a lead.
    Unverified,
}

impl Confidence {
    /// The name used in records and shown to people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::Documented => "documented",
            Self::Unverified => "unverified",
        }
    }
}
