//! JSON Web Keys (RFC 7517, RFC 8037): one, or a set.

use data_encoding::BASE64URL_NOPAD;
use serde_json::Value;

use super::{Family, Shown};

/// Most keys of a set that are looked at.
const MAX_KEYS: usize = 64;

/// The public keys of a document that is a key or a set of keys; those that are for other ends are left out.
pub(super) fn read(text: &str) -> Option<Vec<Shown>> {
    let document: Value = serde_json::from_str(text).ok()?;
    if document.get("kty").is_some() {
        return Some(key(&document).into_iter().collect());
    }
    let keys = document.get("keys")?.as_array()?;
    Some(keys.iter().take(MAX_KEYS).filter_map(key).collect())
}

fn key(jwk: &Value) -> Option<Shown> {
    let text = |name: &str| jwk.get(name).and_then(Value::as_str);
    let bytes = |name: &str| {
        BASE64URL_NOPAD
            .decode(text(name)?.trim_end_matches('=').as_bytes())
            .ok()
    };
    if text("use").is_some_and(|end| end != "sig") {
        return None;
    }
    let der = match (text("kty")?, text("crv")) {
        ("OKP", Some("Ed25519")) => bytes("x").filter(|key| key.len() == 32)?,
        // An uncompressed point (SEC 1 section 2.3.3).
        ("EC", Some("P-256" | "P-384" | "P-521")) => [vec![4], bytes("x")?, bytes("y")?].concat(),
        ("RSA", None) => sequence(&[integer(&bytes("n")?), integer(&bytes("e")?)].concat()),
        _ => return None,
    };
    let shown = Shown::read(der)?;
    let is_said = match shown.family {
        Family::Ec(curve) => text("crv") == Some(curve.as_str()),
        Family::Ed25519 | Family::Rsa(_) => true,
    };
    is_said.then(|| Shown {
        id: text("kid").map(str::to_owned),
        algorithm: text("alg").map(str::to_owned),
        ..shown
    })
}

/// A positive number in DER.
fn integer(number: &[u8]) -> Vec<u8> {
    let start = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
    let mut content = number.get(start..).unwrap_or_default().to_vec();
    if content.first().is_none_or(|byte| *byte >= 0x80) {
        content.insert(0, 0);
    }
    tagged(0x02, &content)
}

fn sequence(content: &[u8]) -> Vec<u8> {
    tagged(0x30, content)
}

fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = content.len().to_be_bytes();
    let start = len.iter().position(|byte| *byte != 0).unwrap_or(len.len());
    let len = len.get(start..).unwrap_or_default();
    let mut out = vec![tag];
    match len {
        [] => out.push(0),
        [short] if *short < 0x80 => out.push(*short),
        // At most eight.
        long => {
            out.push(0x80 | u8::try_from(long.len()).unwrap_or_default());
            out.extend_from_slice(long);
        }
    }
    out.extend_from_slice(content);
    out
}
