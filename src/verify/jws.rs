//! A JWS in its compact form (RFC 7515 section 7.1), taken apart; nothing here believes it.
//!
//! A token names its algorithm and may carry keys or say where they are. None of that decides: the record's `algorithms` pin
//! what is tried, and the keys are the source's. `none` is no algorithm here, and `jwk`, `jku`, `x5c` and `x5u` are not looked
//! at.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;

use super::Reason;
use super::mac::Hash;
use super::public_key::{Algorithm, Padding, SignatureFormat};

/// Longest header of a token, in bytes of base64.
const MAX_HEADER: usize = 8 << 10;

/// Longest signature of a token, in bytes of base64: that of an RSA key of 8192 bits.
const MAX_SIGNATURE: usize = 1366;

/// What makes a signature of the algorithm that a token names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signer {
    /// A secret that both sides have.
    Secret(Hash),
    /// The provider's private key.
    PrivateKey(Algorithm),
}

/// An algorithm of RFC 7518 section 3.1, or EdDSA of RFC 8037.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JwsAlgorithm {
    pub(super) name: &'static str,
    pub(super) signer: Signer,
}

impl JwsAlgorithm {
    const fn new(name: &'static str, signer: Signer) -> Self {
        Self { name, signer }
    }

    /// All of them. Neither `none` nor a keyless digest is one.
    pub(super) const ALL: [Self; 13] = [
        Self::new("HS256", Signer::Secret(Hash::Sha256)),
        Self::new("HS384", Signer::Secret(Hash::Sha384)),
        Self::new("HS512", Signer::Secret(Hash::Sha512)),
        Self::new(
            "RS256",
            Signer::PrivateKey(Algorithm::Rsa(Hash::Sha256, Padding::Pkcs1)),
        ),
        Self::new(
            "RS384",
            Signer::PrivateKey(Algorithm::Rsa(Hash::Sha384, Padding::Pkcs1)),
        ),
        Self::new(
            "RS512",
            Signer::PrivateKey(Algorithm::Rsa(Hash::Sha512, Padding::Pkcs1)),
        ),
        Self::new("PS256", Signer::PrivateKey(Algorithm::Rsa(Hash::Sha256, Padding::Pss))),
        Self::new("PS384", Signer::PrivateKey(Algorithm::Rsa(Hash::Sha384, Padding::Pss))),
        Self::new("PS512", Signer::PrivateKey(Algorithm::Rsa(Hash::Sha512, Padding::Pss))),
        Self::new(
            "ES256",
            Signer::PrivateKey(Algorithm::Ecdsa(Hash::Sha256, SignatureFormat::P1363)),
        ),
        Self::new(
            "ES384",
            Signer::PrivateKey(Algorithm::Ecdsa(Hash::Sha384, SignatureFormat::P1363)),
        ),
        Self::new(
            "ES512",
            Signer::PrivateKey(Algorithm::Ecdsa(Hash::Sha512, SignatureFormat::P1363)),
        ),
        Self::new("EdDSA", Signer::PrivateKey(Algorithm::Ed25519)),
    ];

    /// The algorithm that public keys judge, where this is one.
    pub(super) fn public(self) -> Option<Algorithm> {
        match self.signer {
            Signer::PrivateKey(algorithm) => Some(algorithm),
            Signer::Secret(_) => None,
        }
    }

    /// The hash that a shared secret is used with, where this is such an algorithm.
    pub(super) fn secret(self) -> Option<Hash> {
        match self.signer {
            Signer::Secret(hash) => Some(hash),
            Signer::PrivateKey(_) => None,
        }
    }

    /// Whether a token that says `name` means this one. RFC 9864 calls EdDSA with Ed25519 by the curve's name.
    fn is_called(self, name: &str) -> bool {
        self.name == name || (self.name == "EdDSA" && name == "Ed25519")
    }
}

/// A JSON object whose names are all different; a token with a name twice means two things, and so nothing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Members(BTreeMap<String, Value>);

impl Members {
    /// Parses an object.
    pub(super) fn read(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// The member called `name`.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The text of the member called `name`.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// Those that are texts.
    fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if members.insert(name, value).is_some() {
                        return Err(A::Error::custom("a name stands there twice"));
                    }
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A token, taken apart.
#[derive(Debug)]
pub(super) struct Jws<'t> {
    /// Its header and payload as they stand there.
    encoded_header: &'t [u8],
    encoded_payload: &'t [u8],
    header: Members,
    /// What the request claims.
    pub(super) signature: Vec<u8>,
    /// The record's algorithm that the header names.
    pub(super) algorithm: JwsAlgorithm,
    /// Whether a detached payload is signed as it is (RFC 7797).
    is_unencoded: bool,
}

impl<'t> Jws<'t> {
    /// Takes a token apart that is signed with one of `allowed`.
    pub(super) fn read(token: &'t [u8], allowed: &[JwsAlgorithm], detached: bool) -> Result<Self, Reason> {
        Self::parse(token, allowed, detached).ok_or(Reason::MalformedSignature)
    }

    fn parse(token: &'t [u8], allowed: &[JwsAlgorithm], detached: bool) -> Option<Self> {
        let mut parts = token.split(|byte| *byte == b'.');
        let (encoded_header, encoded_payload, signature) = (parts.next()?, parts.next()?, parts.next()?);
        let is_whole = parts.next().is_none() && encoded_payload.is_empty() == detached;
        if !is_whole || encoded_header.len() > MAX_HEADER || signature.len() > MAX_SIGNATURE {
            return None;
        }
        let header = Members::read(&BASE64URL_NOPAD.decode(encoded_header).ok()?)?;
        let name = header.text("alg")?;
        let is_unencoded = match header.get("b64") {
            None => false,
            Some(Value::Bool(encoded)) => detached && !*encoded,
            Some(_) => return None,
        };
        // What must be understood: nothing but `b64`, and only where it changes something.
        let understood = match header.get("crit") {
            None => !is_unencoded,
            Some(Value::Array(names)) => {
                !names.is_empty() && names.iter().all(|name| name == "b64") && header.get("b64").is_some()
            }
            Some(_) => false,
        };
        let signature = BASE64URL_NOPAD.decode(signature).ok()?;
        if !understood || signature.is_empty() || (header.get("b64") == Some(&Value::Bool(false)) && !detached) {
            return None;
        }
        Some(Self {
            algorithm: allowed.iter().copied().find(|algorithm| algorithm.is_called(name))?,
            encoded_header,
            encoded_payload,
            header,
            signature,
            is_unencoded,
        })
    }

    /// Which key is said to have signed.
    pub(super) fn key_id(&self) -> Option<&str> {
        self.header.text("kid")
    }

    /// The texts in the header, by name.
    pub(super) fn header_texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.header.texts()
    }

    /// The payload's bytes; none of a detached one.
    pub(super) fn payload(&self) -> Result<Vec<u8>, Reason> {
        BASE64URL_NOPAD
            .decode(self.encoded_payload)
            .ok()
            .ok_or(Reason::MalformedSignature)
    }

    /// What is signed: header and payload, as they stand there or as the detached `payload` is put between them.
    pub(super) fn signing_input<'p>(&self, payload: Option<Vec<Cow<'p, [u8]>>>) -> Vec<Cow<'p, [u8]>>
    where
        't: 'p,
    {
        let mut pieces: Vec<Cow<'p, [u8]>> = vec![Cow::Borrowed(self.encoded_header), Cow::Borrowed(b".")];
        match payload {
            None => pieces.push(Cow::Borrowed(self.encoded_payload)),
            Some(payload) if self.is_unencoded => pieces.extend(payload),
            Some(payload) => pieces.push(Cow::Owned(BASE64URL_NOPAD.encode(&payload.concat()).into_bytes())),
        }
        pieces
    }
}

/// Header and payload of a token that we sign, to which `.` and the signature are added.
pub(super) fn unsigned(algorithm: JwsAlgorithm, claims: &serde_json::Map<String, Value>) -> String {
    let header = serde_json::json!({ "alg": algorithm.name, "typ": "JWT" });
    let encode = |json: String| BASE64URL_NOPAD.encode(json.as_bytes());
    format!(
        "{}.{}",
        encode(header.to_string()),
        encode(Value::Object(claims.clone()).to_string())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(names: &[&str]) -> Vec<JwsAlgorithm> {
        let mut all = JwsAlgorithm::ALL.to_vec();
        all.retain(|algorithm| names.contains(&algorithm.name));
        all
    }

    fn token(header: &str, payload: &str) -> Vec<u8> {
        let encode = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
        format!("{}.{}.AAAA", encode(header), encode(payload)).into_bytes()
    }

    fn is_read(header: &str, payload: &str, detached: bool) -> bool {
        Jws::read(&token(header, payload), &allowed(&["HS256", "EdDSA"]), detached).is_ok()
    }

    #[test]
    fn the_record_s_algorithms_are_the_only_ones() {
        assert!(is_read("{\"alg\":\"HS256\"}", "{}", false));
        assert!(is_read("{\"alg\":\"Ed25519\"}", "{}", false));
        for alg in ["none", "None", "", "HS384", "RS256", "hs256"] {
            assert!(!is_read(&format!("{{\"alg\":\"{alg}\"}}"), "{}", false), "{alg}");
        }
        assert!(!is_read("{}", "{}", false));
        assert!(!is_read("{\"alg\":[\"HS256\"]}", "{}", false));
    }

    #[test]
    fn a_header_with_a_name_twice_is_none() {
        assert!(!is_read("{\"alg\":\"HS256\",\"alg\":\"HS256\"}", "{}", false));
        assert!(!is_read("{\"alg\":\"HS256\",\"kid\":\"a\",\"kid\":\"b\"}", "{}", false));
    }

    #[test]
    fn what_must_be_understood_and_is_not_is_refused() {
        assert!(!is_read(
            "{\"alg\":\"HS256\",\"crit\":[\"exp\"],\"exp\":1}",
            "{}",
            false
        ));
        assert!(!is_read("{\"alg\":\"HS256\",\"crit\":[]}", "{}", false));
        assert!(!is_read(
            "{\"alg\":\"HS256\",\"b64\":false,\"crit\":[\"b64\"]}",
            "{}",
            false
        ));
        assert!(is_read(
            "{\"alg\":\"HS256\",\"b64\":false,\"crit\":[\"b64\"]}",
            "",
            true
        ));
        assert!(!is_read("{\"alg\":\"HS256\",\"b64\":false}", "", true));
    }

    #[test]
    fn a_token_has_three_parts_and_a_payload_where_the_record_says_so() {
        for bad in ["", ".", "..", "a.b", "e30.e30.AAAA.AAAA", "!.!.!"] {
            assert!(Jws::read(bad.as_bytes(), &JwsAlgorithm::ALL, false).is_err(), "{bad}");
        }
        assert!(!is_read("{\"alg\":\"HS256\"}", "", false));
        assert!(!is_read("{\"alg\":\"HS256\"}", "{}", true));
        let mut padded = token("{\"alg\":\"HS256\"}", "{}");
        padded.extend_from_slice(b"==");
        assert!(Jws::read(&padded, &JwsAlgorithm::ALL, false).is_err());
    }

    #[test]
    fn a_detached_payload_is_signed_as_the_header_says() {
        let plain = token("{\"alg\":\"HS256\",\"b64\":false,\"crit\":[\"b64\"]}", "");
        let jws = Jws::read(&plain, &JwsAlgorithm::ALL, true).unwrap();
        let input = jws
            .signing_input(Some(vec![Cow::Borrowed(b"{}"), Cow::Borrowed(b"\xff")]))
            .concat();
        assert!(input.ends_with(b".{}\xff"));
        let encoded = token("{\"alg\":\"HS256\"}", "");
        let jws = Jws::read(&encoded, &JwsAlgorithm::ALL, true).unwrap();
        assert!(
            jws.signing_input(Some(vec![Cow::Borrowed(b"{}")]))
                .concat()
                .ends_with(b".e30")
        );
    }
}
