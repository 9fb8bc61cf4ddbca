//! From a secret as the provider shows it to the key that its MACs are made with (P3: never the empty key).

use sha1::{Digest, Sha1};
use unicode_normalization::UnicodeNormalization;
use zeroize::Zeroizing;

use crate::secret::Secret;

use super::jws::JwsAlgorithm;
use super::mac::{Hash, MacKey};
use super::public_key::{self, PublicKeys};
use super::record::{Kind, Record, Scheme};

/// Shortest key that a scheme which decodes its secrets may come out with, in bytes: less is a misread secret (SE-04).
const MIN_DECODED_KEY: usize = 16;

/// What is wrong with a secret, and what to do about it. Never holds key material.
type Unusable = (String, Option<String>);

/// How a secret's text becomes the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecretEncoding {
    /// The characters are the key.
    Utf8,
    /// Canonical, padded base64.
    Base64,
    /// Hexadecimal in either case.
    Hex,
    /// The 20 bytes of the text's SHA-1 are the key (Braintree).
    Sha1,
}

impl SecretEncoding {
    pub(super) const NAMED: [(&'static str, Self); 4] = [
        ("utf8", Self::Utf8),
        ("base64", Self::Base64),
        ("hex", Self::Hex),
        ("sha1", Self::Sha1),
    ];

    /// Whether the shown text is decoded, so that another text can be one that was not meant.
    const fn decodes(self) -> bool {
        matches!(self, Self::Base64 | Self::Hex)
    }
}

/// What the provider does to a secret's characters before it uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecretNormalise {
    /// Unicode's compatibility decomposition (EasyPost).
    Nfkd,
    /// `&amp;`, `&lt;`, `&gt;`, `&quot;` and the apostrophe's spellings stand for what they name
    /// (`wp_specialchars_decode(…, ENT_QUOTES)`, WooCommerce).
    Html,
}

impl SecretNormalise {
    pub(super) const NAMED: [(&'static str, Self); 2] = [("NFKD", Self::Nfkd), ("html", Self::Html)];

    fn apply(self, text: &[u8]) -> Option<Vec<u8>> {
        let text = std::str::from_utf8(text).ok()?;
        Some(match self {
            Self::Nfkd => text.nfkd().collect::<String>().into_bytes(),
            Self::Html => html_decoded(text).into_bytes(),
        })
    }
}

/// The named entities that WordPress decodes, once each, from left to right.
fn html_decoded(text: &str) -> String {
    const ENTITIES: [(&str, char); 9] = [
        ("&amp;", '&'),
        ("&#038;", '&'),
        ("&lt;", '<'),
        ("&gt;", '>'),
        ("&quot;", '"'),
        ("&#039;", '\''),
        ("&#39;", '\''),
        ("&#x27;", '\''),
        ("&apos;", '\''),
    ];
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, tail)) = rest.split_once('&') {
        out.push_str(before);
        let whole = rest.get(before.len()..).unwrap_or_default();
        let known = ENTITIES
            .iter()
            .find_map(|(name, meant)| Some((whole.strip_prefix(name)?, *meant)));
        let (after, meant) = known.unwrap_or((tail, '&'));
        out.push(meant);
        rest = after;
    }
    out.push_str(rest);
    out
}

/// What a secret's text came out as.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are MACs, and a box would cost each request a look elsewhere"
)]
pub(super) enum Key {
    Mac(MacKey),
    Public(PublicKeys),
    Token(TokenKeys),
}

/// What a secret can judge of a token: either is empty where the record's algorithms have no use for it.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenKeys {
    pub(super) macs: Vec<(Hash, MacKey)>,
    pub(super) public: Option<PublicKeys>,
}

/// The keys that a secret gives, one per header family; empty for schemes without a key.
pub(super) fn prepare(record: &Record, secret: &Secret) -> Result<Vec<Key>, Unusable> {
    let text = secret.expose();
    if text.trim_ascii().is_empty() {
        return Err((
            "the secret is empty".to_owned(),
            Some("an empty key is known to everybody".to_owned()),
        ));
    }
    match record.kind {
        Kind::Hmac | Kind::Digest => {}
        Kind::Ed25519 | Kind::Ecdsa | Kind::Rsa => return public(record, text),
        Kind::Jwt => {
            return record
                .schemes
                .iter()
                .map(|scheme| token(record, scheme, secret))
                .collect();
        }
        Kind::Basic if !text.contains(&b':') => {
            let help = "write it as `user:password`".to_owned();
            return Err(("the secret has no `:`".to_owned(), Some(help)));
        }
        Kind::Basic | Kind::Token | Kind::None => return Ok(Vec::new()),
    }
    let prefix = record.public_key_prefix.as_ref();
    if let Some(text) = prefix.and_then(|prefix| text.strip_prefix(prefix.as_bytes())) {
        return public(record, text);
    }
    let key = decode(record, secret)?;
    let keys: Option<Vec<Key>> = record
        .schemes
        .iter()
        .map(|scheme| match record.kind {
            Kind::Digest => Some(Key::Mac(MacKey::plain(scheme.hash, key.clone()))),
            _ => MacKey::new(scheme.hash, &key).map(Key::Mac),
        })
        .collect();
    keys.ok_or_else(|| ("the secret cannot be used as a key".to_owned(), None))
}

/// The provider's public key, for all header families.
fn public(record: &Record, text: &[u8]) -> Result<Vec<Key>, Unusable> {
    let algorithms: Vec<_> = record.schemes.iter().filter_map(|scheme| scheme.algorithm).collect();
    let keys = PublicKeys::read(text, &algorithms)?;
    Ok(record.schemes.iter().map(|_| Key::Public(keys.clone())).collect())
}

/// What judges tokens. A public key never becomes a shared secret: everybody has it.
fn token(record: &Record, scheme: &Scheme, secret: &Secret) -> Result<Key, Unusable> {
    let algorithms = scheme.token.iter().flat_map(|rules| rules.algorithms.iter().copied());
    let private: Vec<_> = algorithms.clone().filter_map(JwsAlgorithm::public).collect();
    let shared: Vec<_> = algorithms.filter_map(JwsAlgorithm::secret).collect();
    let text = secret.expose();
    let is_public = public_key::is_public(text);
    if shared.is_empty() || (is_public && !private.is_empty()) {
        let public = Some(PublicKeys::read(text, &private)?);
        return Ok(Key::Token(TokenKeys {
            public,
            ..TokenKeys::default()
        }));
    }
    if is_public {
        let help = format!(
            "{} signs with a secret that only the two of you know: give that",
            record.title
        );
        return Err(("this is a public key, which everybody may know".to_owned(), Some(help)));
    }
    let key = decode(record, secret)?;
    let macs = shared
        .iter()
        .filter_map(|hash| Some((*hash, MacKey::new(*hash, &key)?)));
    Ok(Key::Token(TokenKeys {
        macs: macs.collect(),
        public: None,
    }))
}

fn decode(record: &Record, secret: &Secret) -> Result<Zeroizing<Vec<u8>>, Unusable> {
    let help = || Some("copy it again from the provider, whole and without spaces or line ends".to_owned());
    let mut text = secret.expose();
    for prefix in &record.secret_strip_prefix {
        text = strip(text, prefix);
    }
    let normalised = match record.secret_normalise {
        None => Some(Zeroizing::new(text.to_vec())),
        Some(rule) => rule.apply(text).map(Zeroizing::new),
    };
    let Some(text) = normalised else {
        return Err(("the secret is not UTF-8".to_owned(), help()));
    };
    let (decoded, form) = match record.secret_encoding {
        SecretEncoding::Utf8 => (Some(text), ""),
        SecretEncoding::Base64 => (data_encoding::BASE64.decode(&text).ok().map(Zeroizing::new), "base64"),
        SecretEncoding::Hex => (
            data_encoding::HEXLOWER_PERMISSIVE
                .decode(&text)
                .ok()
                .map(Zeroizing::new),
            "hexadecimal",
        ),
        SecretEncoding::Sha1 if text.is_empty() => (Some(text), ""),
        SecretEncoding::Sha1 => (Some(Zeroizing::new(Sha1::digest(&text).to_vec())), ""),
    };
    let Some(mut key) = decoded else {
        return Err((
            format!("the secret is not {form}, as {} secrets are", record.title),
            help(),
        ));
    };
    if record.secret_encoding.decodes() && key.len() < MIN_DECODED_KEY {
        return Err((
            format!("the decoded secret is shorter than {MIN_DECODED_KEY} bytes"),
            help(),
        ));
    }
    if key.is_empty() {
        return Err(("the secret is empty behind its prefix".to_owned(), help()));
    }
    key.extend_from_slice(record.secret_suffix.as_bytes());
    Ok(key)
}

/// The secret behind `prefix`, or as it is. A `*` in the prefix stands for one or more letters, digits and `_`
/// (`signkey-*-`, whose middle is the environment's name).
fn strip<'s>(secret: &'s [u8], prefix: &str) -> &'s [u8] {
    let Some((before, after)) = prefix.split_once('*') else {
        return secret.strip_prefix(prefix.as_bytes()).unwrap_or(secret);
    };
    let rest = || {
        let rest = secret.strip_prefix(before.as_bytes())?;
        let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
        let word = rest.iter().take_while(|b| is_word(b)).count();
        rest.get(word..).filter(|_| word > 0)?.strip_prefix(after.as_bytes())
    };
    rest().unwrap_or(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_taken_off_once_and_only_from_the_front() {
        assert_eq!(strip(b"whsec_x", "whsec_"), b"x");
        assert_eq!(strip(b"xwhsec_", "whsec_"), b"xwhsec_");
        assert_eq!(strip(b"signkey-test-8ee2", "signkey-*-"), b"8ee2");
        assert_eq!(strip(b"signkey-my_branch1-8ee2", "signkey-*-"), b"8ee2");
        for other in ["signkey-8ee2", "signkey--8ee2", "signkey-a.b-8ee2", "8ee2"] {
            assert_eq!(strip(other.as_bytes(), "signkey-*-"), other.as_bytes());
        }
    }

    #[test]
    fn html_entities_are_decoded_once() {
        assert_eq!(html_decoded("a &amp;&lt;b&gt; &quot;&#039;"), "a &<b> \"'");
        assert_eq!(html_decoded("&amp;lt; & &unknown;"), "&lt; & &unknown;");
    }

    #[test]
    fn a_normalised_secret_is_one_whichever_way_it_was_typed() {
        let composed = SecretNormalise::Nfkd.apply("s\u{e9}cret".as_bytes()).unwrap();
        assert_eq!(composed, "se\u{301}cret".as_bytes());
        assert_eq!(
            SecretNormalise::Nfkd.apply("se\u{301}cret".as_bytes()).unwrap(),
            composed
        );
        assert_eq!(SecretNormalise::Nfkd.apply(&[0xff]), None);
    }
}
