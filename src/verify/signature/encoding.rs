//! How digests and signatures are spelled.

use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD, Encoding as Codec};

use crate::verify::mac::Tag;

/// Longest signature by a public key, in bytes: that of an RSA key of 8192 bits, with room for base64's padding.
const MAX_SIGNATURE: usize = 1026;

/// Longest percent-encoded signature, in bytes: three characters for each of the longest one's.
const MAX_ESCAPED: usize = 3 * 1368;

/// How digests are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::verify) enum Encoding {
    /// Hexadecimal in either case (SH-01); signed in lower case.
    Hex,
    /// Hexadecimal in either case; signed in upper case.
    HexUpper,
    /// `0x` and hexadecimal.
    Hex0x,
    /// Canonical base64 with padding.
    Base64,
    /// Canonical base64 without padding.
    Base64NoPad,
    /// URL-safe base64 with padding.
    Base64Url,
    /// URL-safe base64 without padding.
    Base64UrlNoPad,
    /// Base64 of the hexadecimal text.
    Base64OfHex,
    /// Canonical base64 with padding, percent-encoded as in a URL (Alipay).
    Base64Percent,
}

impl Encoding {
    pub(in crate::verify) const NAMED: [(&'static str, Self); 9] = [
        ("hex", Self::Hex),
        ("hex_upper", Self::HexUpper),
        ("hex_0x", Self::Hex0x),
        ("base64", Self::Base64),
        ("base64_nopad", Self::Base64NoPad),
        ("base64url", Self::Base64Url),
        ("base64url_nopad", Self::Base64UrlNoPad),
        ("base64_of_hex", Self::Base64OfHex),
        ("base64_percent", Self::Base64Percent),
    ];

    /// Its name in records.
    pub(in crate::verify) fn as_str(self) -> &'static str {
        Self::NAMED
            .iter()
            .find(|(_, e)| *e == self)
            .map_or("", |(name, _)| name)
    }

    /// The digest that `text` spells. Anything but the one right spelling is none.
    pub(in crate::verify) fn decode(self, text: &[u8]) -> Option<Tag> {
        // On the stack; texts longer than any digest are refused before they are looked at.
        let mut room = [0; 96];
        let len = self.decode_into(text, &mut room)?;
        Tag::new(room.get(..len)?)
    }

    /// The signature that `text` spells, which may be as long as an RSA key.
    pub(in crate::verify) fn decode_long(self, text: &[u8]) -> Option<Vec<u8>> {
        let mut room = vec![0; MAX_SIGNATURE];
        let len = self.decode_into(text, &mut room)?;
        room.truncate(len);
        Some(room)
    }

    /// As [`Encoding::decode_long`], and base64 with or without its padding: for values that a signature covers.
    pub(in crate::verify) fn decode_unpadded(self, text: &[u8]) -> Option<Vec<u8>> {
        let bare = text.trim_ascii_end();
        let bare = bare.strip_suffix(b"==").or(bare.strip_suffix(b"=")).unwrap_or(bare);
        match self {
            Self::Base64 | Self::Base64NoPad => Self::Base64NoPad.decode_long(bare),
            Self::Base64Url | Self::Base64UrlNoPad => Self::Base64UrlNoPad.decode_long(bare),
            other => other.decode_long(text),
        }
    }

    fn decode_into(self, text: &[u8], room: &mut [u8]) -> Option<usize> {
        match self {
            Self::Hex | Self::HexUpper => decode_hex(text, room),
            Self::Hex0x => decode_hex(text.strip_prefix(b"0x")?, room),
            Self::Base64 => decode(&BASE64, text, room),
            Self::Base64NoPad => decode(&BASE64_NOPAD, text, room),
            Self::Base64Url => decode(&BASE64URL, text, room),
            Self::Base64UrlNoPad => decode(&BASE64URL_NOPAD, text, room),
            Self::Base64OfHex => {
                if text.len() > 256 {
                    return None;
                }
                decode_hex(&BASE64.decode(text).ok()?, room)
            }
            Self::Base64Percent => {
                if text.len() > MAX_ESCAPED {
                    return None;
                }
                let text: Vec<u8> = percent_encoding::percent_decode(text).collect();
                decode(&BASE64, &text, room)
            }
        }
    }

    /// How the digest is written.
    pub(in crate::verify) fn encode(self, digest: &[u8]) -> String {
        let lower = || data_encoding::HEXLOWER.encode(digest);
        match self {
            Self::Hex => lower(),
            Self::HexUpper => data_encoding::HEXUPPER.encode(digest),
            Self::Hex0x => format!("0x{}", lower()),
            Self::Base64 => BASE64.encode(digest),
            Self::Base64NoPad => BASE64_NOPAD.encode(digest),
            Self::Base64Url => BASE64URL.encode(digest),
            Self::Base64UrlNoPad => BASE64URL_NOPAD.encode(digest),
            Self::Base64OfHex => BASE64.encode(lower().as_bytes()),
            Self::Base64Percent => {
                let text = BASE64.encode(digest);
                percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC).to_string()
            }
        }
    }
}

fn decode(codec: &Codec, text: &[u8], room: &mut [u8]) -> Option<usize> {
    let room = room.get_mut(..codec.decode_len(text.len()).ok()?)?;
    codec.decode_mut(text, room).ok()
}

/// Hexadecimal in either case. Nearly every signature is written in it, so it is read without a branch for each digit.
fn decode_hex(text: &[u8], room: &mut [u8]) -> Option<usize> {
    let (pairs, odd) = text.as_chunks::<2>();
    let room = room.get_mut(..pairs.len()).filter(|_| odd.is_empty())?;
    let mut seen = 0;
    for (byte, [high, low]) in room.iter_mut().zip(pairs) {
        let (high, low) = (hex_digit(*high), hex_digit(*low));
        seen |= high | low;
        *byte = (high << 4) | (low & 0xf);
    }
    (seen & NO_DIGIT == 0).then_some(pairs.len())
}

/// A bit that no digit's value has.
const NO_DIGIT: u8 = 0x80;

const fn hex_digit(byte: u8) -> u8 {
    let (number, letter) = (byte.wrapping_sub(b'0'), (byte | 0x20).wrapping_sub(b'a'));
    let number = if number < 10 { number } else { NO_DIGIT };
    if letter < 6 { letter + 10 } else { number }
}
