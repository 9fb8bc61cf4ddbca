//! When each secret of a source last vouched for a request, kept so that a restart does not forget it.
//!
//! A secret is known by its source and a [`SecretMark`], not by its label or place: labels move between secrets (`current`,
//! `previous`), and what is said of one must not be believed of another.

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::id::SourceName;
use crate::secret::Secret;
use crate::time::Timestamp;

/// One that no configuration has had for so long is forgotten.
pub(super) const FORGET_SECRETS_AFTER: Duration = Duration::from_secs(400 * 86_400);

/// Stands for a secret in the store: 8 bytes of a digest over its source and itself.
///
/// It tells nothing about a secret that was made to be one. About one that can be guessed it tells no more than the stored
/// events do, which hold what the secret signed. Never shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretMark(i64);

impl SecretMark {
    /// The mark of this secret at this source.
    pub fn of(source: &SourceName, secret: &Secret) -> Self {
        let mut digest = Sha256::new_with_prefix(b"hooksluice secret mark\0");
        digest.update(source.as_str());
        digest.update([0]);
        digest.update(secret.expose());
        let digest: [u8; 32] = digest.finalize().into();
        Self(i64::from_be_bytes(*digest.first_chunk().unwrap_or(&[0; 8])))
    }

    pub(super) const fn new(number: i64) -> Self {
        Self(number)
    }

    pub(super) const fn get(self) -> i64 {
        self.0
    }
}

/// What a process has seen of a secret since it last noted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretNote {
    /// Whose it is.
    pub source: SourceName,
    /// Which it is.
    pub mark: SecretMark,
    /// The last time it vouched for a request, if it has.
    pub used: Option<Timestamp>,
    /// How many requests other secrets of the source have vouched for, since `used` if there is one.
    pub others: u64,
}

/// What is known of a secret, over all replicas and restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRecord {
    /// Whose it is.
    pub source: SourceName,
    /// Which it is.
    pub mark: SecretMark,
    /// When it was first noted.
    pub since: Timestamp,
    /// When it last vouched for a request.
    pub last_used: Option<Timestamp>,
    /// How many requests other secrets of the source have vouched for since then, or since it was first noted.
    pub others: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_secrets_and_sources_apart_and_nothing_else() {
        let mark = |source: &str, secret: &str| SecretMark::of(&SourceName::new(source), &Secret::new(secret));
        assert_eq!(mark("stripe", "whsec_1"), mark("stripe", "whsec_1"));
        assert_ne!(mark("stripe", "whsec_1"), mark("stripe", "whsec_2"));
        assert_ne!(mark("stripe", "whsec_1"), mark("stripe-test", "whsec_1"));
        assert_ne!(mark("a", "bc"), mark("ab", "c"));
    }
}
