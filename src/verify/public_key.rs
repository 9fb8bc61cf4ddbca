//! Public keys: read as a provider shows them, checked once, asked for each signature.
//!
//! Nothing in here is secret, so nothing is compared in constant time. What a key may be used with is pinned: the record
//! names the algorithm, and a key of another family, curve or strength is refused when the source is built, never found
//! out by a request.

use std::borrow::Cow;
use std::fmt;

use aws_lc_rs::digest::{self, Context, Digest};
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{self as algorithms, ParsedPublicKey, RsaParameters, VerificationAlgorithm};

use super::mac::Hash;

mod jwk;
mod text;
mod weak;

/// Smallest RSA modulus that is believed, in bits (RFC 8017's own advice, and that of every provider's document).
const MIN_RSA_BITS: u32 = 2048;

/// How an RSA signature is padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Padding {
    /// RSASSA-PKCS1-v1_5.
    Pkcs1,
    /// RSASSA-PSS, the salt as long as the digest.
    Pss,
}

impl Padding {
    pub(super) const NAMED: [(&'static str, Self); 2] = [("pkcs1", Self::Pkcs1), ("pss", Self::Pss)];
}

/// How an ECDSA signature is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignatureFormat {
    /// An ASN.1 sequence of two numbers.
    Der,
    /// The two numbers, each as long as the curve's order (IEEE P1363, JWS).
    P1363,
}

impl SignatureFormat {
    pub(super) const NAMED: [(&'static str, Self); 2] = [("der", Self::Der), ("p1363", Self::P1363)];
}

/// What a signature was made with; pinned by the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Ed25519,
    Ecdsa(Hash, SignatureFormat),
    Rsa(Hash, Padding),
}

impl Algorithm {
    /// Whether there is such an algorithm for any key at all.
    pub(super) fn exists(self) -> bool {
        match self {
            Self::Ed25519 => true,
            Self::Ecdsa(hash, format) => Curve::ALL.iter().any(|curve| curve.algorithm(hash, format).is_some()),
            Self::Rsa(hash, padding) => of_rsa(hash, padding).is_some(),
        }
    }

    /// Whether RFC 7518 or RFC 8037 calls it so; what they do not name is called anything.
    fn is_called(self, name: &str) -> bool {
        let rsa = |padding| match padding {
            Padding::Pkcs1 => "RS",
            Padding::Pss => "PS",
        };
        let (letters, hash) = match self {
            Self::Ed25519 => return name == "EdDSA" || name == "Ed25519",
            Self::Ecdsa(hash, SignatureFormat::P1363) => ("ES", hash),
            Self::Ecdsa(_, SignatureFormat::Der) => return true,
            Self::Rsa(hash, padding) => (rsa(padding), hash),
        };
        name.strip_prefix(letters) == hash.as_str().strip_prefix("sha")
    }

    /// What the signature is over, made once for all keys and candidates.
    pub(super) fn message(self, pieces: &[Cow<'_, [u8]>]) -> Message {
        let hash = match self {
            Self::Ed25519 => return Message::Whole(pieces.concat()),
            Self::Ecdsa(hash, _) | Self::Rsa(hash, _) => hash,
        };
        match of_hash(hash) {
            Some(hash) => {
                let mut context = Context::new(hash);
                pieces.iter().for_each(|piece| context.update(piece));
                Message::Digest(context.finish())
            }
            None => Message::Whole(Vec::new()),
        }
    }
}

/// For people: `Ed25519`, `ECDSA-SHA256`, `RSA-PSS-SHA512`.
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ed25519 => f.write_str("Ed25519"),
            Self::Ecdsa(hash, _) => write!(f, "ECDSA-{}", hash.as_str().to_uppercase()),
            Self::Rsa(hash, Padding::Pkcs1) => write!(f, "RSA-{}", hash.as_str().to_uppercase()),
            Self::Rsa(hash, Padding::Pss) => write!(f, "RSA-PSS-{}", hash.as_str().to_uppercase()),
        }
    }
}

/// What a signature is over.
pub(super) enum Message {
    /// Ed25519 signs the bytes themselves.
    Whole(Vec<u8>),
    /// The others sign a digest.
    Digest(Digest),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Curve {
    P256,
    P384,
    P521,
}

impl Curve {
    const ALL: [Self; 3] = [Self::P256, Self::P384, Self::P521];

    const fn as_str(self) -> &'static str {
        match self {
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::P521 => "P-521",
        }
    }

    fn algorithm(self, hash: Hash, format: SignatureFormat) -> Option<&'static dyn VerificationAlgorithm> {
        use SignatureFormat::{Der, P1363};
        let algorithm: &'static dyn VerificationAlgorithm = match (self, hash, format) {
            (Self::P256, Hash::Sha1, Der) => &algorithms::ECDSA_P256_SHA1_ASN1,
            (Self::P256, Hash::Sha256, Der) => &algorithms::ECDSA_P256_SHA256_ASN1,
            (Self::P256, Hash::Sha384, Der) => &algorithms::ECDSA_P256_SHA384_ASN1,
            (Self::P256, Hash::Sha512, Der) => &algorithms::ECDSA_P256_SHA512_ASN1,
            (Self::P384, Hash::Sha256, Der) => &algorithms::ECDSA_P384_SHA256_ASN1,
            (Self::P384, Hash::Sha384, Der) => &algorithms::ECDSA_P384_SHA384_ASN1,
            (Self::P384, Hash::Sha512, Der) => &algorithms::ECDSA_P384_SHA512_ASN1,
            (Self::P521, Hash::Sha1, Der) => &algorithms::ECDSA_P521_SHA1_ASN1,
            (Self::P521, Hash::Sha256, Der) => &algorithms::ECDSA_P521_SHA256_ASN1,
            (Self::P521, Hash::Sha384, Der) => &algorithms::ECDSA_P521_SHA384_ASN1,
            (Self::P521, Hash::Sha512, Der) => &algorithms::ECDSA_P521_SHA512_ASN1,
            (Self::P256, Hash::Sha256, P1363) => &algorithms::ECDSA_P256_SHA256_FIXED,
            (Self::P384, Hash::Sha384, P1363) => &algorithms::ECDSA_P384_SHA384_FIXED,
            (Self::P521, Hash::Sha512, P1363) => &algorithms::ECDSA_P521_SHA512_FIXED,
            _ => return None,
        };
        Some(algorithm)
    }

    /// The curve of a key in DER, if it is a key of one of ours.
    fn of(spki: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|curve| {
            let any = match curve {
                Self::P256 => &algorithms::ECDSA_P256_SHA256_ASN1,
                Self::P384 => &algorithms::ECDSA_P384_SHA384_ASN1,
                Self::P521 => &algorithms::ECDSA_P521_SHA512_ASN1,
            };
            ParsedPublicKey::new(any, spki).is_ok()
        })
    }
}

fn of_rsa(hash: Hash, padding: Padding) -> Option<&'static RsaParameters> {
    match (hash, padding) {
        (Hash::Sha1, Padding::Pkcs1) => Some(&algorithms::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY),
        (Hash::Sha256, Padding::Pkcs1) => Some(&algorithms::RSA_PKCS1_2048_8192_SHA256),
        (Hash::Sha384, Padding::Pkcs1) => Some(&algorithms::RSA_PKCS1_2048_8192_SHA384),
        (Hash::Sha512, Padding::Pkcs1) => Some(&algorithms::RSA_PKCS1_2048_8192_SHA512),
        (Hash::Sha256, Padding::Pss) => Some(&algorithms::RSA_PSS_2048_8192_SHA256),
        (Hash::Sha384, Padding::Pss) => Some(&algorithms::RSA_PSS_2048_8192_SHA384),
        (Hash::Sha512, Padding::Pss) => Some(&algorithms::RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

fn of_hash(hash: Hash) -> Option<&'static digest::Algorithm> {
    match hash {
        Hash::Sha1 => Some(&digest::SHA1_FOR_LEGACY_USE_ONLY),
        Hash::Sha256 => Some(&digest::SHA256),
        Hash::Sha384 => Some(&digest::SHA384),
        Hash::Sha512 => Some(&digest::SHA512),
        _ => None,
    }
}

/// A key as it was shown, whatever it is used with.
#[derive(Clone, PartialEq, Eq)]
struct Shown {
    /// Its name among several, and the algorithm of RFC 7518 that it is for, where it says so.
    id: Option<String>,
    algorithm: Option<String>,
    family: Family,
    /// SubjectPublicKeyInfo in DER; an Ed25519 key may also be its 32 bytes.
    der: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Ed25519,
    Ec(Curve),
    Rsa(u32),
}

impl Shown {
    /// What the bytes are: a SubjectPublicKeyInfo, a PKCS #1 RSA key, or the 32 bytes of an Ed25519 key.
    fn read(der: Vec<u8>) -> Option<Self> {
        let family = if ParsedPublicKey::new(&algorithms::ED25519, &der).is_ok() {
            Family::Ed25519
        } else if let Some(curve) = Curve::of(&der) {
            Family::Ec(curve)
        } else {
            let key = rsa::PublicKey::from_der(&der).ok()?;
            Family::Rsa(RsaParameters::public_modulus_len(key.as_ref()).ok()?)
        };
        Some(Self {
            id: None,
            algorithm: None,
            family,
            der,
        })
    }
}

/// Whether a text is a public key beyond doubt, so that it cannot be meant as a secret: PEM, a key set, or DER.
pub(super) fn is_public(text: &[u8]) -> bool {
    text::is_public(text)
}

/// Keys that one configured secret stands for, ready for the record's algorithms.
#[derive(Clone)]
pub(super) struct PublicKeys {
    keys: Vec<PublicKey>,
}

#[derive(Clone)]
struct PublicKey {
    id: Option<String>,
    ready: Vec<(Algorithm, ParsedPublicKey)>,
}

impl PublicKeys {
    /// Reads a secret's text for use with `algorithms`.
    ///
    /// # Errors
    /// What is wrong with it, and what to do. Neither holds the text: what is here by mistake may be a secret.
    pub(super) fn read(text: &[u8], algorithms: &[Algorithm]) -> Result<Self, (String, Option<String>)> {
        let shown = text::read(text)?;
        let mut keys = Vec::new();
        let mut refused = None;
        for shown in &shown {
            match PublicKey::new(shown, algorithms) {
                Ok(key) => keys.push(key),
                Err(why) => refused = Some(why),
            }
        }
        // A key set also holds keys for other ends.
        match refused {
            Some(why) if keys.is_empty() => Err(why),
            _ => Ok(Self { keys }),
        }
    }

    /// Whether one of the keys made the signature. A key that has a name is asked only if no other one is named.
    pub(super) fn made(&self, signature: &[u8], algorithm: Algorithm, message: &Message, named: Option<&str>) -> bool {
        let fits = |key: &&PublicKey| match (&key.id, named) {
            (Some(id), Some(named)) => id == named,
            _ => true,
        };
        let mut asked = self.keys.iter().filter(fits);
        asked.any(|key| key.made(signature, algorithm, message))
    }
}

impl PublicKey {
    fn new(shown: &Shown, wanted: &[Algorithm]) -> Result<Self, (String, Option<String>)> {
        if shown.family == Family::Ed25519 && weak::is_weak(&shown.der) {
            let why = "under this Ed25519 key signatures can be made by anybody (its order is small)".to_owned();
            return Err((
                why,
                Some("copy the provider's public key again: this is no real one".to_owned()),
            ));
        }
        let mut ready = Vec::new();
        let is_for = |algorithm: &&Algorithm| shown.algorithm.as_deref().is_none_or(|name| algorithm.is_called(name));
        for algorithm in wanted.iter().filter(is_for) {
            let with: Option<&'static dyn VerificationAlgorithm> = match (shown.family, *algorithm) {
                (Family::Ed25519, Algorithm::Ed25519) => Some(&algorithms::ED25519),
                (Family::Ec(curve), Algorithm::Ecdsa(hash, format)) => curve.algorithm(hash, format),
                (Family::Rsa(bits), Algorithm::Rsa(..)) if bits < MIN_RSA_BITS => {
                    let why = format!("the RSA key has {bits} bits; fewer than {MIN_RSA_BITS} are not believed");
                    return Err((why, Some("ask the provider for a longer key".to_owned())));
                }
                (Family::Rsa(_), Algorithm::Rsa(hash, padding)) => {
                    of_rsa(hash, padding).map(|with| -> &'static dyn VerificationAlgorithm { with })
                }
                _ => None,
            };
            let parsed = with.and_then(|with| ParsedPublicKey::new(with, &shown.der).ok());
            ready.extend(parsed.map(|parsed| (*algorithm, parsed)));
        }
        if ready.is_empty() {
            let wanted: Vec<_> = wanted.iter().map(ToString::to_string).collect();
            let why = format!("this is {}, and signatures are {}", shown.family, wanted.join(" or "));
            return Err((why, Some("copy the provider's public key again".to_owned())));
        }
        Ok(Self {
            id: shown.id.clone(),
            ready,
        })
    }

    fn made(&self, signature: &[u8], algorithm: Algorithm, message: &Message) -> bool {
        let mut ready = self.ready.iter();
        let Some((_, key)) = ready.find(|(known, _)| *known == algorithm) else {
            return false;
        };
        match message {
            Message::Whole(message) => key.verify_sig(message, signature).is_ok(),
            Message::Digest(digest) => key.verify_digest_sig(digest, signature).is_ok(),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ed25519 => f.write_str("an Ed25519 key"),
            Self::Ec(curve) => write!(f, "a key on the curve {}", curve.as_str()),
            Self::Rsa(bits) => write!(f, "an RSA key of {bits} bits"),
        }
    }
}

impl fmt::Debug for PublicKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKeys({})", self.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
    use aws_lc_rs::signature::{EcdsaKeyPair, Ed25519KeyPair, KeyPair};
    use data_encoding::{BASE64, HEXLOWER};

    use super::*;

    const ED25519: [Algorithm; 1] = [Algorithm::Ed25519];
    const ES256: [Algorithm; 1] = [Algorithm::Ecdsa(Hash::Sha256, SignatureFormat::P1363)];
    const RS256: [Algorithm; 1] = [Algorithm::Rsa(Hash::Sha256, Padding::Pkcs1)];

    fn ed25519() -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
    }

    fn spki(key: &impl AsDer<aws_lc_rs::encoding::PublicKeyX509Der<'static>>) -> Vec<u8> {
        key.as_der().unwrap().as_ref().to_vec()
    }

    fn pem(label: &str, der: &[u8]) -> String {
        format!(
            "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
            BASE64.encode(der)
        )
    }

    fn problem(text: &str, algorithms: &[Algorithm]) -> String {
        PublicKeys::read(text.as_bytes(), algorithms).unwrap_err().0
    }

    #[test]
    fn a_key_is_read_in_every_form_that_providers_show() {
        let key = ed25519();
        let raw = key.public_key().as_ref();
        let der = spki(key.public_key());
        let message = Algorithm::Ed25519.message(&[Cow::Borrowed(b"ab"), Cow::Borrowed(b"c")]);
        let signature = key.sign(b"abc");
        for text in [
            HEXLOWER.encode(raw),
            HEXLOWER.encode(raw).to_uppercase(),
            BASE64.encode(raw),
            data_encoding::BASE64URL_NOPAD.encode(raw),
            BASE64.encode(&der),
            HEXLOWER.encode(&der),
            pem("PUBLIC KEY", &der),
            pem("PUBLIC KEY", &der).replace('\n', ""),
            pem("PUBLIC KEY", &der).replace('\n', "\\n"),
            format!("  key:\r\n{}", pem("PUBLIC KEY", &der).replace('\n', "\r\n")),
        ] {
            let keys = PublicKeys::read(text.as_bytes(), &ED25519).unwrap();
            assert!(
                keys.made(signature.as_ref(), Algorithm::Ed25519, &message, None),
                "{text}"
            );
            assert!(!keys.made(&[0; 64], Algorithm::Ed25519, &message, None), "{text}");
        }
    }

    #[test]
    fn a_certificate_stands_for_its_key() {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let certificate = rcgen::CertificateParams::new(vec![])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        assert!(PublicKeys::read(certificate.pem().as_bytes(), &ES256).is_ok());
    }

    #[test]
    fn a_key_of_another_family_curve_or_strength_is_refused_by_name() {
        let ed25519 = BASE64.encode(ed25519().public_key().as_ref());
        let pair = EcdsaKeyPair::generate(&algorithms::ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
        let p384 = BASE64.encode(&spki(pair.public_key()));
        assert!(problem(&ed25519, &RS256).contains("an Ed25519 key"));
        assert!(problem(&p384, &ES256).contains("on the curve P-384"));
        assert!(problem(&p384, &ED25519).contains("on the curve P-384"));
        let small = concat!(
            "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCtrqop+z+H5F96IAvh3C2JjSY/W/86iQY43ChhLfgvCc9Ra7pWLrwh+NjqCtVF",
            "hAzwLo2Zvtjun/FtORrG6UzZm6+bDTaCvVapOKeAcoeHIN9UAWM9zXGDtnUrr8rjozObG7fOO6V+PSBzy6NoOYTSnyxFgdpSJuDL",
            "G8njqmazSQIDAQAB"
        );
        assert!(problem(small, &RS256).contains("has 1024 bits"));
    }

    #[test]
    fn what_is_no_public_key_is_refused_without_repeating_it() {
        for text in [
            "",
            "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcY",
            "hunter2",
            "-----BEGIN PUBLIC KEY-----\nAAAA",
            "-----BEGIN PUBLIC KEY-----\nnot base64\n-----END PUBLIC KEY-----",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
            "-----BEGIN hunter2-----\nAAAA\n-----END hunter2-----",
        ] {
            let said = problem(text, &ED25519);
            assert!(!said.contains("hunter2") && !said.contains("whsec"), "{said}");
        }
        let key = pem("PUBLIC KEY", &spki(ed25519().public_key()));
        assert!(problem(&format!("{key}{key}"), &ED25519).contains("several PEM blocks"));
        assert!(problem(&pem("PRIVATE KEY", &[0; 48]), &ED25519).contains("a private key"));
    }

    #[test]
    fn an_ed25519_key_that_anybody_can_sign_under_is_refused() {
        let mut one = [0; 32];
        one[0] = 1;
        for point in [[0; 32], one] {
            assert!(problem(&HEXLOWER.encode(&point), &ED25519).contains("made by anybody"));
            assert!(problem(&BASE64.encode(&point), &ED25519).contains("made by anybody"));
        }
        let jwk = r#"{"kty":"OKP","crv":"Ed25519","x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}"#;
        assert!(problem(jwk, &ED25519).contains("made by anybody"));
    }

    #[test]
    fn a_signature_holds_under_its_own_algorithm_alone() {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let text = pem("PUBLIC KEY", &spki(pair.public_key()));
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(
            &algorithms::RSA_PSS_SHA512,
            &SystemRandom::new(),
            b"abc",
            &mut signature,
        )
        .unwrap();
        let all = [
            Algorithm::Rsa(Hash::Sha512, Padding::Pss),
            Algorithm::Rsa(Hash::Sha512, Padding::Pkcs1),
            Algorithm::Rsa(Hash::Sha256, Padding::Pss),
        ];
        let keys = PublicKeys::read(text.as_bytes(), &all).unwrap();
        let holds = all.map(|algorithm| {
            keys.made(
                &signature,
                algorithm,
                &algorithm.message(&[Cow::Borrowed(b"abc")]),
                None,
            )
        });
        assert_eq!(holds, [true, false, false]);
        // A key is asked for nothing that its record does not name.
        let other = PublicKeys::read(text.as_bytes(), &all[1..]).unwrap();
        assert!(!other.made(&signature, all[0], &all[0].message(&[Cow::Borrowed(b"abc")]), None));
    }
}
