//! Bodies that hold their text encrypted (Lark): opened to be looked at, never to be signed, stored or forwarded.
//!
//! AES-256-CBC under the SHA-256 of the secret, 16 bytes of IV in front, base64. There is no MAC in it: what comes out is
//! believed no more than the rest of the body, whose signature covers the encrypted form.

use aws_lc_rs::cipher::{AES_256, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey};
use aws_lc_rs::digest::{self, SHA256};
use data_encoding::BASE64;

/// The text, if it was encrypted under this secret. Its padding tells; so does whoever looks for JSON in it.
pub(super) fn open(secret: &[u8], encrypted: &[u8]) -> Option<Vec<u8>> {
    let encrypted = BASE64.decode(encrypted).ok()?;
    let (iv, text) = encrypted.split_first_chunk::<16>()?;
    let key = UnboundCipherKey::new(&AES_256, digest::digest(&SHA256, secret).as_ref()).ok()?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).ok()?;
    let mut text = text.to_vec();
    let len = key.decrypt(&mut text, DecryptionContext::Iv128(iv.into())).ok()?.len();
    text.truncate(len);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the provider's page: the key is `test key`, and the text `hello world`.
    const PUBLISHED: &[u8] = b"P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk=";

    #[test]
    fn what_the_provider_published_is_opened_under_its_key_alone() {
        assert_eq!(open(b"test key", PUBLISHED).as_deref(), Some(&b"hello world"[..]));
        assert_ne!(open(b"another key", PUBLISHED).as_deref(), Some(&b"hello world"[..]));
    }

    #[test]
    fn what_is_not_of_the_form_is_not_opened() {
        for bad in [
            "",
            "AAAA",
            "no base64!",
            "P37w+VZImNgPEO1RBhJ6Rg==",
            "P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEz",
        ] {
            assert_eq!(open(b"test key", bad.as_bytes()), None, "{bad}");
        }
    }
}
