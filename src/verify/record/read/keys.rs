//! What a record says of public keys.

use std::ops::Range;

use crate::diagnostic::Diagnostics;
use crate::verify::mac::Hash;
use crate::verify::public_key::{Algorithm, Padding, SignatureFormat};

use super::{HabitsDraft, Kind, SchemeDraft};

/// What says how a secret's text becomes a key has nothing to say where the key is public.
pub(super) fn check_secret(kind: Kind, habits: &HabitsDraft, problems: &mut Diagnostics) {
    let mut refuse = |key: &str, span: Option<&Range<usize>>, label: &str| {
        if let Some(span) = span {
            let message = format!("`{key}` has no meaning with `kind = \"{}\"`", kind.as_str());
            problems.error(span.clone(), message, label, None);
        }
    };
    if kind.is_public_key() {
        let label = "a public key is read as it is shown: PEM, base64 or hexadecimal";
        refuse(
            "secret_encoding",
            habits.secret_encoding.as_ref().map(|at| &at.span),
            label,
        );
        refuse(
            "secret_strip_prefix",
            habits.secret_strip_prefix.as_ref().map(|at| &at.span),
            label,
        );
        refuse("secret_suffix", habits.secret_suffix.as_ref().map(|at| &at.span), label);
    }
    if kind != Kind::Hmac {
        let label = "it tells public keys from the secrets of an HMAC scheme";
        refuse(
            "public_key_prefix",
            habits.public_key_prefix.as_ref().map(|at| &at.span),
            label,
        );
    }
}

/// What public keys sign with.
pub(super) fn algorithm(
    kind: Kind,
    draft: &SchemeDraft,
    span: &Range<usize>,
    problems: &mut Diagnostics,
) -> Option<Algorithm> {
    let mut refuse = |key: &str, span: Option<&Range<usize>>| {
        if let Some(span) = span {
            let message = format!("`{key}` has no meaning with `kind = \"{}\"`", kind.as_str());
            problems.error(span.clone(), message, "", None);
        }
    };
    if kind != Kind::Rsa {
        refuse("padding", draft.padding.as_ref().map(|at| &at.span));
    }
    if kind != Kind::Ecdsa {
        refuse("signature_format", draft.signature_format.as_ref().map(|at| &at.span));
    }
    if kind != Kind::Hmac && !kind.is_public_key() {
        refuse("prehash", draft.prehash.as_ref().map(|at| &at.span));
    }
    if kind == Kind::Ed25519 {
        refuse("hash", draft.hash.as_ref().map(|at| &at.span));
    }
    let hash = draft.hash.as_ref().map_or(Hash::Sha256, |found| found.value);
    let algorithm = match kind {
        // The public keys among the secrets of an HMAC scheme.
        Kind::Ed25519 | Kind::Hmac => Algorithm::Ed25519,
        Kind::Ecdsa => {
            let format = draft.signature_format.as_ref();
            Algorithm::Ecdsa(hash, format.map_or(SignatureFormat::Der, |found| found.value))
        }
        Kind::Rsa => {
            let padding = draft.padding.as_ref();
            Algorithm::Rsa(hash, padding.map_or(Padding::Pkcs1, |found| found.value))
        }
        Kind::Digest | Kind::Token | Kind::Basic | Kind::None => return None,
    };
    if !algorithm.exists() {
        let at = draft.hash.as_ref().map_or(span, |found| &found.span);
        let label = format!("there is no {algorithm}");
        problems.error(at.clone(), "bad value for `hash`", label, None);
    }
    Some(algorithm)
}
