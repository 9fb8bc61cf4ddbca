//! Keyed hashes: the key schedule is done once per secret, each request clones the state (P5: compared in constant time).

use std::borrow::Cow;
use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};
use subtle::{Choice, ConstantTimeEq};

/// The hash inside an HMAC scheme. Always pinned by the record, never taken from the request (SH-05).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// MD5, 16 bytes. Only for senders that offer nothing else.
    Md5,
    /// SHA-1, 20 bytes.
    Sha1,
    /// SHA-256, 32 bytes.
    Sha256,
    /// SHA-384, 48 bytes.
    Sha384,
    /// SHA-512, 64 bytes.
    Sha512,
}

impl Hash {
    /// All of them with their names in records.
    pub(super) const NAMED: [(&'static str, Self); 5] = [
        ("md5", Self::Md5),
        ("sha1", Self::Sha1),
        ("sha256", Self::Sha256),
        ("sha384", Self::Sha384),
        ("sha512", Self::Sha512),
    ];

    /// The name used in records and shown to people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// Length of its digests in bytes.
    pub const fn digest_len(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

/// The longest digest of any hash here, in bytes.
const MAX_TAG: usize = 64;

/// A digest, or what a request claims to be one.
#[derive(Clone, Copy)]
pub(super) struct Tag {
    bytes: [u8; MAX_TAG],
    len: usize,
}

impl Tag {
    /// The bytes as a tag, if they fit.
    pub(super) fn new(bytes: &[u8]) -> Option<Self> {
        let mut tag = Self {
            bytes: [0; MAX_TAG],
            len: bytes.len(),
        };
        tag.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(tag)
    }

    /// The bytes.
    pub(super) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Length in bytes; public knowledge.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Equality in a time that depends on the (public) lengths only.
    pub(super) fn ct_eq(&self, other: &Self) -> Choice {
        self.as_slice().ct_eq(other.as_slice())
    }
}

/// Opaque: a computed tag is what a forger would like to read (SC-01).
impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({} bytes)", self.len)
    }
}

/// An HMAC key after its key schedule. Zeroed on drop.
#[derive(Clone)]
pub(super) enum MacKey {
    Md5(Hmac<Md5>),
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
    Sha384(Hmac<Sha384>),
    Sha512(Hmac<Sha512>),
}

impl MacKey {
    /// Prepares the key. `None` only if the hash refuses the key's length, which HMAC never does.
    pub(super) fn new(hash: Hash, key: &[u8]) -> Option<Self> {
        let state = match hash {
            Hash::Md5 => Self::Md5(Hmac::new_from_slice(key).ok()?),
            Hash::Sha1 => Self::Sha1(Hmac::new_from_slice(key).ok()?),
            Hash::Sha256 => Self::Sha256(Hmac::new_from_slice(key).ok()?),
            Hash::Sha384 => Self::Sha384(Hmac::new_from_slice(key).ok()?),
            Hash::Sha512 => Self::Sha512(Hmac::new_from_slice(key).ok()?),
        };
        Some(state)
    }

    /// The HMAC over the pieces, one after the other.
    pub(super) fn compute(&self, pieces: &[Cow<'_, [u8]>]) -> Tag {
        match self {
            Self::Md5(state) => run(state, pieces),
            Self::Sha1(state) => run(state, pieces),
            Self::Sha256(state) => run(state, pieces),
            Self::Sha384(state) => run(state, pieces),
            Self::Sha512(state) => run(state, pieces),
        }
    }
}

fn run<M: Mac + Clone>(state: &M, pieces: &[Cow<'_, [u8]>]) -> Tag {
    let mut mac = state.clone();
    for piece in pieces {
        mac.update(piece);
    }
    let digest = mac.finalize().into_bytes();
    let mut tag = Tag {
        bytes: [0; MAX_TAG],
        len: digest.len().min(MAX_TAG),
    };
    for (to, from) in tag.bytes.iter_mut().zip(digest.iter()) {
        *to = *from;
    }
    tag
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(hash: Hash, key: &[u8], text: &[u8]) -> String {
        let key = MacKey::new(hash, key).unwrap();
        data_encoding::HEXLOWER.encode(key.compute(&[Cow::Borrowed(text)]).as_slice())
    }

    #[test]
    fn digests_agree_with_rfc_2202_and_rfc_4231() {
        let (key, text) = (b"Jefe".as_slice(), b"what do ya want for nothing?".as_slice());
        assert_eq!(hex(Hash::Md5, key, text), "750c783e6ab0b503eaa86e310a5db738");
        assert_eq!(hex(Hash::Sha1, key, text), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
        assert_eq!(
            hex(Hash::Sha256, key, text),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert!(hex(Hash::Sha384, key, text).starts_with("af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47"));
        assert!(hex(Hash::Sha512, key, text).starts_with("164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd6"));
    }

    #[test]
    fn pieces_are_hashed_as_one_text() {
        let key = MacKey::new(Hash::Sha256, b"k").unwrap();
        let whole = key.compute(&[Cow::Borrowed(b"abc")]);
        let parts = key.compute(&[Cow::Borrowed(b"a"), Cow::Borrowed(b""), Cow::Borrowed(b"bc")]);
        assert!(bool::from(whole.ct_eq(&parts)));
    }

    #[test]
    fn a_tag_longer_than_any_digest_does_not_exist() {
        assert!(Tag::new(&[0; 64]).is_some());
        assert!(Tag::new(&[0; 65]).is_none());
    }
}
