//! Ed25519 keys that are none: points of an order so small that a signature can be made without a private key.
//!
//! With such a key a signature of zeros holds for one message in a few, or for all. RFC 8032 has nobody look for them, and
//! verifiers that follow it (aws-lc too) do not. Nobody has one by accident but as a placeholder: 32 zeros are one.

/// Every encoding of the eight points whose order divides 8, but for the sign of x: those of order 4, 1, 8, 8 and 2, and the
/// three that lie beyond the field's modulus (the list of libsodium's `ge25519_has_small_order`).
const SMALL_ORDER: [[u8; 32]; 7] = [
    [0; 32],
    first(1),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf,
        0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20,
        0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
    below_two_to_255(0xec),
    below_two_to_255(0xed),
    below_two_to_255(0xee),
];

/// Whether the key, 32 bytes or with its header in DER, is one.
pub(super) fn is_weak(key: &[u8]) -> bool {
    let Some(mut point) = key.last_chunk::<32>().copied() else {
        return false;
    };
    if let Some(last) = point.last_mut() {
        *last &= 0x7f;
    }
    SMALL_ORDER.contains(&point)
}

const fn first(byte: u8) -> [u8; 32] {
    let mut point = [0; 32];
    point[0] = byte;
    point
}

const fn below_two_to_255(lowest: u8) -> [u8; 32] {
    let mut point = [0xff; 32];
    point[0] = lowest;
    point[31] = 0x7f;
    point
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, ParsedPublicKey};

    use super::*;

    #[test]
    fn a_real_key_is_not_weak() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        assert!(!is_weak(pair.public_key().as_ref()));
        assert!(!is_weak(&[1, 2, 3]));
    }

    /// Why the list is needed: under the neutral element a signature of nothing holds for every message.
    #[test]
    fn the_library_believes_signatures_of_nobody_under_a_weak_key() {
        let neutral = first(1);
        let key = ParsedPublicKey::new(&ED25519, neutral).unwrap();
        let signature = [neutral, [0; 32]].concat();
        assert!(key.verify_sig(b"any message", &signature).is_ok());
        assert!(is_weak(&neutral));
    }

    #[test]
    fn a_weak_point_is_known_with_either_sign_and_behind_a_header() {
        for point in SMALL_ORDER {
            let mut other = point;
            other[31] |= 0x80;
            assert!(is_weak(&point) && is_weak(&other));
            assert!(is_weak(&[&[0x30, 0x2a][..], &point].concat()));
        }
    }
}
