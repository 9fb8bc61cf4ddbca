//! Keyed hashes: the key schedule is done once per secret, each request clones the state (P5: compared in constant time).
//! Plain digests of a text that holds the secret are the older way to the same end (`kind = "digest"`).

use std::borrow::Cow;
use std::fmt;

use hmac::digest::block_api::BlockSizeUser;
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};
use sha3::Keccak256;
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

/// The hash of a scheme. Always pinned by the record, never taken from the request (SH-05).
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
    /// Keccak-256 as Ethereum has it, 32 bytes; not SHA3-256. Plain digests only.
    Keccak256,
}

impl Hash {
    /// All of them with their names in records.
    pub(super) const NAMED: [(&'static str, Self); 6] = [
        ("md5", Self::Md5),
        ("sha1", Self::Sha1),
        ("sha256", Self::Sha256),
        ("sha384", Self::Sha384),
        ("sha512", Self::Sha512),
        ("keccak256", Self::Keccak256),
    ];

    /// The name used in records and shown to people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
            Self::Keccak256 => "keccak256",
        }
    }

    /// Length of its digests in bytes.
    pub const fn digest_len(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 | Self::Keccak256 => 32,
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
        // Eight bytes at a time: every comparison of `subtle`'s is a call that the compiler must not see through.
        let (words, rest) = self.as_slice().as_chunks::<8>();
        let (other_words, other_rest) = other.as_slice().as_chunks::<8>();
        let same_len = self.len.ct_eq(&other.len);
        let pairs = words.iter().zip(other_words);
        let pairs = pairs.map(|(one, other)| u64::from_le_bytes(*one).ct_eq(&u64::from_le_bytes(*other)));
        pairs.fold(same_len & rest.ct_eq(other_rest), |equal, pair| equal & pair)
    }
}

/// Opaque: a computed tag is what a forger would like to read (SC-01).
impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({} bytes)", self.len)
    }
}

/// An HMAC key after its key schedule.
#[derive(Clone)]
pub(super) enum MacKey {
    Md5(Hmac<Md5>),
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
    Sha384(Hmac<Sha384>),
    Sha512(Hmac<Sha512>),
    /// No MAC: the text itself holds the secret.
    Plain(Hash, Zeroizing<Vec<u8>>),
}

impl MacKey {
    /// Prepares the key. `None` for a hash that HMAC is not used with, or if the hash refuses the key's length, which HMAC
    /// never does.
    pub(super) fn new(hash: Hash, key: &[u8]) -> Option<Self> {
        let state = match hash {
            Hash::Md5 => Self::Md5(Hmac::new_from_slice(key).ok()?),
            Hash::Sha1 => Self::Sha1(Hmac::new_from_slice(key).ok()?),
            Hash::Sha256 => Self::Sha256(Hmac::new_from_slice(key).ok()?),
            Hash::Sha384 => Self::Sha384(Hmac::new_from_slice(key).ok()?),
            Hash::Sha512 => Self::Sha512(Hmac::new_from_slice(key).ok()?),
            Hash::Keccak256 => return None,
        };
        Some(state)
    }

    /// A secret that stands in the text which is hashed.
    pub(super) fn plain(hash: Hash, secret: Zeroizing<Vec<u8>>) -> Self {
        Self::Plain(hash, secret)
    }

    /// What `{secret}` stands for: nothing in a MAC, whose key is no part of the text.
    pub(super) fn secret(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(_, secret) => Some(secret),
            _ => None,
        }
    }

    /// The HMAC, or plain digest, over the pieces, one after the other.
    pub(super) fn compute(&self, pieces: &[Cow<'_, [u8]>]) -> Tag {
        match self {
            Self::Md5(state) => run(state, pieces),
            Self::Sha1(state) => run(state, pieces),
            Self::Sha256(state) => run(state, pieces),
            Self::Sha384(state) => run(state, pieces),
            Self::Sha512(state) => run(state, pieces),
            Self::Plain(hash, _) => hash.digest(pieces),
        }
    }
}

/// Tells `judge` the MAC of one text under each key, with the key's index.
pub(super) fn under_each<'k>(
    mut keys: impl Iterator<Item = (usize, &'k MacKey)>,
    pieces: &[Cow<'_, [u8]>],
    mut judge: impl FnMut(usize, &Tag),
) {
    let Some(first) = keys.next() else { return };
    let Some(second) = keys.next() else {
        return judge(first.0, &first.1.compute(pieces));
    };
    let keys = [first, second].into_iter().chain(keys);
    macro_rules! abreast {
        ($hash:ident) => {{
            let state = |key: &'k MacKey| match key {
                MacKey::$hash(state) => Some(state),
                _ => None,
            };
            run_abreast(keys, state, pieces, judge);
        }};
    }
    match first.1 {
        MacKey::Md5(_) => abreast!(Md5),
        MacKey::Sha1(_) => abreast!(Sha1),
        MacKey::Sha256(_) => abreast!(Sha256),
        MacKey::Sha384(_) => abreast!(Sha384),
        MacKey::Sha512(_) => abreast!(Sha512),
        MacKey::Plain(..) => keys.for_each(|(index, key)| judge(index, &key.compute(pieces))),
    }
}

impl Hash {
    /// The plain digest over the pieces, one after the other.
    pub(super) fn digest(self, pieces: &[Cow<'_, [u8]>]) -> Tag {
        match self {
            Self::Md5 => plain::<Md5>(pieces),
            Self::Sha1 => plain::<Sha1>(pieces),
            Self::Sha256 => plain::<Sha256>(pieces),
            Self::Sha384 => plain::<Sha384>(pieces),
            Self::Sha512 => plain::<Sha512>(pieces),
            Self::Keccak256 => plain::<Keccak256>(pieces),
        }
    }
}

fn plain<D: Digest>(pieces: &[Cow<'_, [u8]>]) -> Tag {
    let mut state = D::new();
    for piece in pieces {
        state.update(piece);
    }
    tag(&state.finalize())
}

fn run<M: Mac + Clone>(state: &M, pieces: &[Cow<'_, [u8]>]) -> Tag {
    let mut mac = state.clone();
    for piece in pieces {
        mac.update(piece);
    }
    tag(&mac.finalize().into_bytes())
}

/// MACs of one text under several keys, block by block in turn. Each step of a hash waits for the one before it; with
/// others at hand that wait for nothing of each other the processor has something to do meanwhile.
fn run_abreast<'k, M: Mac + Clone + BlockSizeUser + 'k>(
    keys: impl Iterator<Item = (usize, &'k MacKey)>,
    state: impl Fn(&'k MacKey) -> Option<&'k M>,
    pieces: &[Cow<'_, [u8]>],
    mut judge: impl FnMut(usize, &Tag),
) {
    let mut macs = Vec::new();
    for (index, key) in keys {
        match state(key) {
            Some(state) => macs.push((index, state.clone())),
            // Of another hash than the first one.
            None => judge(index, &key.compute(pieces)),
        }
    }
    let mut update = |bytes: &[u8]| macs.iter_mut().for_each(|(_, mac)| mac.update(bytes));
    let block = M::block_size();
    let mut filled = 0;
    for piece in pieces {
        // The rest of a begun block first, so that whole ones are hashed where they lie.
        let (begun, rest) = piece.split_at_checked((block - filled) % block).unwrap_or((piece, &[]));
        update(begun);
        rest.chunks(block).for_each(&mut update);
        filled = (filled + piece.len()) % block;
    }
    for (index, mac) in macs {
        judge(index, &tag(&mac.finalize().into_bytes()));
    }
}

fn tag(digest: &[u8]) -> Tag {
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
    fn plain_digests_agree_with_published_figures() {
        let plain = |hash: Hash, text: &'static [u8]| {
            let key = MacKey::plain(hash, Zeroizing::new(Vec::new()));
            data_encoding::HEXLOWER.encode(key.compute(&[Cow::Borrowed(text)]).as_slice())
        };
        // RFC 1321, FIPS 180-4's examples, and the empty text's Keccak-256 as the Ethereum yellow paper has it.
        assert_eq!(plain(Hash::Md5, b"abc"), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(plain(Hash::Sha1, b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert!(plain(Hash::Sha384, b"abc").starts_with("cb00753f45a35e8bb5a03d699ac65007"));
        assert_eq!(
            plain(Hash::Keccak256, b""),
            "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
        );
    }

    #[test]
    fn pieces_are_hashed_as_one_text() {
        let key = MacKey::new(Hash::Sha256, b"k").unwrap();
        let whole = key.compute(&[Cow::Borrowed(b"abc")]);
        let parts = key.compute(&[Cow::Borrowed(b"a"), Cow::Borrowed(b""), Cow::Borrowed(b"bc")]);
        assert!(bool::from(whole.ct_eq(&parts)));
    }

    #[test]
    fn keys_that_are_tried_together_give_what_each_gives_alone() {
        let text: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let cut = |ends: &[usize]| {
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let ends = ends.iter().copied().chain([text.len()]);
            let pieces = starts.zip(ends).map(|(start, end)| Cow::Borrowed(&text[start..end]));
            pieces.collect::<Vec<_>>()
        };
        for (_, hash) in Hash::NAMED {
            for count in 0..4_u8 {
                let keys: Option<Vec<_>> = (0..count).map(|n| MacKey::new(hash, &[n; 9])).collect();
                let Some(mut keys) = keys else { continue };
                // A plain digest among them is not passed over.
                keys.push(MacKey::plain(hash, Zeroizing::new(vec![1])));
                for ends in [&[][..], &[0, 64], &[10, 11], &[63, 64, 65], &[128, 130, 900], &[1000]] {
                    let pieces = cut(ends);
                    let mut alone: Vec<_> = keys.iter().map(|key| Some(key.compute(&pieces))).collect();
                    under_each(keys.iter().enumerate(), &pieces, |index, tag| {
                        let expected = alone[index].take().unwrap();
                        assert!(bool::from(expected.ct_eq(tag)), "{hash:?} {count} {ends:?} {index}");
                    });
                    assert!(alone.iter().all(Option::is_none), "{hash:?} {count} {ends:?}");
                }
            }
        }
    }

    #[test]
    fn tags_are_equal_when_every_byte_is() {
        for len in [16, 20, 32, 48, 64] {
            let bytes: Vec<u8> = (1..=len).collect();
            let tag = Tag::new(&bytes).unwrap();
            assert!(bool::from(tag.ct_eq(&tag)));
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 0x10;
                assert!(!bool::from(tag.ct_eq(&Tag::new(&other).unwrap())), "{len} {at}");
            }
            for other in [&bytes[1..], &bytes[..bytes.len() - 1], &[]] {
                assert!(!bool::from(tag.ct_eq(&Tag::new(other).unwrap())), "{len}");
            }
        }
    }

    #[test]
    fn a_tag_longer_than_any_digest_does_not_exist() {
        assert!(Tag::new(&[0; 64]).is_some());
        assert!(Tag::new(&[0; 65]).is_none());
    }
}
