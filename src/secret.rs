//! [`Secret`]: key material that cannot be printed, is compared in constant time and is zeroed when dropped (P5).

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Bytes that must never reach a log, metric, error, answer or page.
///
/// Deliberately neither `Serialize` nor `Display`, and its `Debug` is opaque.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes over the bytes; they are zeroed on drop.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }

    /// The bytes themselves, for the one computation that needs them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Whether there are no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares with `other` in a time that depends on neither value: digests are compared, so that not even the
    /// length is told.
    pub fn matches(&self, other: &[u8]) -> bool {
        Sha256::digest(self.expose())
            .as_slice()
            .ct_eq(Sha256::digest(other).as_slice())
            .into()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.matches(other.expose())
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_print_itself() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }

    #[test]
    fn secrets_of_any_length_are_compared_by_value() {
        let secret = Secret::new("token");
        assert!(secret.matches(b"token"));
        assert!(!secret.matches(b"toke"));
        assert!(!secret.matches(b""));
    }
}
