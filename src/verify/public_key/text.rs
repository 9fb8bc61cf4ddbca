//! A public key as providers show it: PEM, DER in base64 or hexadecimal, or the bare 32 bytes of an Ed25519 key.
//!
//! How it is written shows: no text is a key in two of these forms, since a key in DER begins with `30` (`M` in base64) and
//! says its own length, and 32 bytes are 64 hexadecimal digits but 43 of base64. A PEM block counts whatever stands around
//! it, also on one line (eBay shows it so) and with `\n` for its line ends (as `.env` files have it).

use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD, HEXLOWER_PERMISSIVE};
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::{Shown, jwk};

/// Longest text of a key, in bytes: an RSA key of 8192 bits in PEM has 1,500, a certificate a few thousand.
const MAX_TEXT: usize = 16 << 10;

type Problem = (String, Option<String>);

/// Longest key set, in bytes.
const MAX_SET: usize = 256 << 10;

/// Whether a text is a public key beyond doubt: PEM, a key set, or DER in base64 or hexadecimal.
pub(super) fn is_public(text: &[u8]) -> bool {
    let text = std::str::from_utf8(text).unwrap_or_default().trim();
    let is_der = |der: &Vec<u8>| der.len() > 32 && Shown::read(der.clone()).is_some();
    text.contains("-----BEGIN ") || jwk::read(text).is_some() || candidates(text).iter().any(is_der)
}

pub(super) fn read(text: &[u8]) -> Result<Vec<Shown>, Problem> {
    let problem = |message: &str, help: &str| (message.to_owned(), Some(help.to_owned()));
    let text = std::str::from_utf8(text).unwrap_or_default().trim();
    if text.starts_with('{') {
        let keys = (text.len() <= MAX_SET).then(|| jwk::read(text)).flatten();
        return keys.filter(|keys| !keys.is_empty()).ok_or_else(|| {
            problem(
                "the key set has no key that can be used",
                "give the document whole: {\"keys\":[…]}",
            )
        });
    }
    if text.is_empty() || text.len() > MAX_TEXT {
        return Err(problem(
            "this is no public key",
            "give it as the provider shows it: PEM, base64 or hexadecimal",
        ));
    }
    let der = match text.contains("-----BEGIN ") {
        true => pem(text)?,
        false => candidates(text),
    };
    der.into_iter()
        .find_map(Shown::read)
        .map(|shown| vec![shown])
        .ok_or_else(|| {
            problem(
                "this is no public key that can be read",
                "give an Ed25519, P-256, P-384, P-521 or RSA key as the provider shows it: PEM, base64 or hexadecimal",
            )
        })
}

/// The bytes of the one PEM block.
fn pem(text: &str) -> Result<Vec<Vec<u8>>, Problem> {
    let problem = |message: String, help: &str| Err((message, Some(help.to_owned())));
    let mut blocks = text.split("-----BEGIN ").skip(1);
    let (Some(block), None) = (blocks.next(), blocks.next()) else {
        return problem(
            "there are several PEM blocks".to_owned(),
            "give each as a secret of its own",
        );
    };
    let broken = || problem("the PEM block is broken".to_owned(), "copy it whole, from BEGIN to END");
    let Some((label, rest)) = block.split_once("-----") else {
        return broken();
    };
    let Some((inside, _)) = rest.split_once("-----END ") else {
        return broken();
    };
    let inside: String = inside.replace("\\n", "").split_ascii_whitespace().collect();
    let Ok(der) = BASE64.decode(inside.as_bytes()) else {
        return broken();
    };
    match label {
        "PUBLIC KEY" | "RSA PUBLIC KEY" => Ok(vec![der]),
        "CERTIFICATE" => {
            let certificate = CertificateDer::from(der);
            match EndEntityCert::try_from(&certificate) {
                Ok(certificate) => Ok(vec![certificate.subject_public_key_info().to_vec()]),
                Err(_) => problem(
                    "the certificate cannot be read".to_owned(),
                    "copy it again from the provider",
                ),
            }
        }
        _ if label.contains("PRIVATE KEY") => problem(
            "this is a private key, which nobody but its owner should have".to_owned(),
            "give the public key that belongs to it, and consider this one as lost",
        ),
        // The label is of the text: it is not repeated.
        _ => problem(
            "the PEM block is neither a public key nor a certificate".to_owned(),
            "expected PUBLIC KEY, RSA PUBLIC KEY or CERTIFICATE",
        ),
    }
}

/// What the characters can mean.
fn candidates(text: &str) -> Vec<Vec<u8>> {
    let text: String = text.split_ascii_whitespace().collect();
    let text = text.as_bytes();
    let codecs = [HEXLOWER_PERMISSIVE, BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD];
    codecs.iter().filter_map(|codec| codec.decode(text).ok()).collect()
}
