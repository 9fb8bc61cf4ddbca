//! What a record says of public keys.

use std::ops::Range;
use std::time::Duration;

use crate::diagnostic::Diagnostics;
use crate::reader::{self, At, Section};
use crate::verify::elsewhere::{KeysAt, VisitRule};
use crate::verify::jws::JwsAlgorithm;
use crate::verify::jwt::{Absent, BoundClaim, TokenRules};
use crate::verify::mac::Hash;
use crate::verify::public_key::{Algorithm, Padding, SignatureFormat};
use crate::verify::signature::Encoding;

use super::{HabitsDraft, Kind, Params, SchemeDraft, template, value};

/// What says how a secret's text becomes a key has nothing to say where the key is public.
pub(super) fn check_secret(kind: Kind, habits: &HabitsDraft, problems: &mut Diagnostics) {
    let mut refuse = |key: &str, span: Option<&Range<usize>>, label: &str| {
        if let Some(span) = span {
            let message = format!("`{key}` has no meaning with `kind = \"{}\"`", kind.as_str());
            problems.error(span.clone(), message, label, None);
        }
    };
    if kind.is_public_key() {
        let label = "a public key is read as it is shown: PEM, base64 or hexadecimal";
        refuse(
            "secret_encoding",
            habits.secret_encoding.as_ref().map(|at| &at.span),
            label,
        );
        refuse(
            "secret_strip_prefix",
            habits.secret_strip_prefix.as_ref().map(|at| &at.span),
            label,
        );
        refuse("secret_suffix", habits.secret_suffix.as_ref().map(|at| &at.span), label);
    }
    if kind != Kind::Hmac && kind != Kind::Digest {
        let label = "only a secret that both sides know can encrypt";
        refuse("encrypted", habits.encrypted.as_ref().map(|at| &at.span), label);
    }
    if kind != Kind::Hmac {
        let label = "it tells public keys from the secrets of an HMAC scheme";
        refuse(
            "public_key_prefix",
            habits.public_key_prefix.as_ref().map(|at| &at.span),
            label,
        );
    }
}

/// What public keys sign with.
pub(super) fn algorithm(
    kind: Kind,
    draft: &SchemeDraft,
    span: &Range<usize>,
    problems: &mut Diagnostics,
) -> Option<Algorithm> {
    let mut refuse = |key: &str, span: Option<&Range<usize>>| {
        if let Some(span) = span {
            let message = format!("`{key}` has no meaning with `kind = \"{}\"`", kind.as_str());
            problems.error(span.clone(), message, "", None);
        }
    };
    if kind != Kind::Rsa {
        refuse("padding", draft.padding.as_ref().map(|at| &at.span));
    }
    if kind != Kind::Ecdsa {
        refuse("signature_format", draft.signature_format.as_ref().map(|at| &at.span));
    }
    if !kind.is_public_key() {
        refuse("key_id", draft.key_id.as_ref().map(|at| &at.span));
    }
    if kind != Kind::Hmac && !kind.is_public_key() {
        refuse("prehash", draft.prehash.as_ref().map(|at| &at.span));
    }
    if kind == Kind::Ed25519 || kind == Kind::Jwt {
        refuse("hash", draft.hash.as_ref().map(|at| &at.span));
    }
    let hash = draft.hash.as_ref().map_or(Hash::Sha256, |found| found.value);
    let algorithm = match kind {
        // The public keys among the secrets of an HMAC scheme.
        Kind::Ed25519 | Kind::Hmac => Algorithm::Ed25519,
        Kind::Ecdsa => {
            let format = draft.signature_format.as_ref();
            Algorithm::Ecdsa(hash, format.map_or(SignatureFormat::Der, |found| found.value))
        }
        Kind::Rsa => {
            let padding = draft.padding.as_ref();
            Algorithm::Rsa(hash, padding.map_or(Padding::Pkcs1, |found| found.value))
        }
        Kind::Digest | Kind::Jwt | Kind::Token | Kind::Basic | Kind::None => return None,
    };
    if !algorithm.exists() {
        let at = draft.hash.as_ref().map_or(span, |found| &found.span);
        let label = format!("there is no {algorithm}");
        problems.error(at.clone(), "bad value for `hash`", label, None);
    }
    Some(algorithm)
}

/// A claim that is bound to the request, as written.
#[derive(Clone, Debug)]
pub(super) struct BoundDraft {
    name: String,
    value: Option<At<String>>,
    hash: Option<Hash>,
    encoding: Encoding,
    absent: Absent,
}

/// Reads `body_claim` or `url_claim`.
pub(super) fn bound(s: &mut Section<'_>, key: &'static str, problems: &mut Diagnostics) -> Option<At<BoundDraft>> {
    s.describe(
        key,
        reader::Kind::Form("table of `name`, `value`, `hash`, `encoding` and `absent`"),
    );
    let mut table = s.section(key, problems)?;
    let span = table.span();
    let is_body = key == "body_claim";
    let name = table.string("name", problems);
    let draft = BoundDraft {
        name: name.as_ref().map(|found| found.value.clone()).unwrap_or_default(),
        value: table.string("value", problems),
        hash: value(table.choice("hash", &Hash::NAMED, problems)).or(is_body.then_some(Hash::Sha256)),
        encoding: value(table.choice("encoding", &Encoding::NAMED, problems)).unwrap_or(Encoding::Hex),
        absent: value(table.choice("absent", &Absent::NAMED, problems)).unwrap_or(Absent::Never),
    };
    table.finish(problems);
    if draft.name.is_empty() {
        let help = Some(format!("say which claim it is: `{key} = {{ name = \"…\" }}`"));
        problems.error(span, format!("`{key}` has no `name`"), "", help);
        return None;
    }
    Some(At { value: draft, span })
}

pub(super) fn jws_algorithm(text: &str) -> Result<JwsAlgorithm, String> {
    let mut all = JwsAlgorithm::ALL.into_iter();
    all.find(|algorithm| algorithm.name == text).ok_or_else(|| {
        let names: Vec<_> = JwsAlgorithm::ALL.iter().map(|algorithm| algorithm.name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// What tokens must be and say.
pub(super) fn token(
    kind: Kind,
    draft: &SchemeDraft,
    params: &Params,
    span: &Range<usize>,
    problems: &mut Diagnostics,
) -> Option<TokenRules> {
    let detached = draft.detached.as_ref().is_some_and(|found| found.value);
    let claims = [
        ("issuer", draft.issuer.as_ref().map(|at| &at.span)),
        ("audience", draft.audience.as_ref().map(|at| &at.span)),
        ("body_claim", draft.body_claim.as_ref().map(|at| &at.span)),
        ("url_claim", draft.url_claim.as_ref().map(|at| &at.span)),
        ("required_claims", draft.required_claims.as_ref().map(|at| &at.span)),
        ("max_age_seconds", draft.max_age_seconds.as_ref().map(|at| &at.span)),
        (
            "clock_tolerance_seconds",
            draft.clock_tolerance_seconds.as_ref().map(|at| &at.span),
        ),
    ];
    let of_tokens = [
        ("algorithms", draft.algorithms.as_ref().map(|at| &at.span)),
        ("detached", draft.detached.as_ref().map(|at| &at.span)),
    ];
    let mut refuse = |keys: &[(&str, Option<&Range<usize>>)], why: &str| {
        for (key, span) in keys {
            if let Some(span) = span {
                problems.error((*span).clone(), format!("`{key}` has no meaning {why}"), "", None);
            }
        }
    };
    if kind != Kind::Jwt {
        refuse(&claims, "without `kind = \"jwt\"`");
        refuse(&of_tokens, "without `kind = \"jwt\"`");
        return None;
    }
    if detached {
        refuse(&claims, "where the payload is detached: there are no claims");
    } else {
        let payload = [
            ("payload", draft.payload.as_ref().map(|at| &at.span)),
            ("timestamp", draft.timestamp.as_ref().map(|at| &at.span)),
        ];
        refuse(
            &payload,
            "where the payload is in the token; it is for `detached = true`",
        );
    }
    let algorithms = draft
        .algorithms
        .as_ref()
        .map(|found| found.value.clone())
        .unwrap_or_default();
    if algorithms.is_empty() {
        let help = Some("say `algorithms = [\"RS256\"]`, or what the provider documents".to_owned());
        let at = draft.algorithms.as_ref().map_or(span, |found| &found.span);
        problems.error(at.clone(), "no `algorithms`", "a token must not choose its own", help);
    }
    let mut compile = |text: &Option<At<String>>| text.as_ref().and_then(|text| template(text, params, problems));
    let (issuer, audience) = (compile(&draft.issuer), compile(&draft.audience));
    let mut bound = Vec::new();
    for (draft, usual) in [(&draft.body_claim, "{body}"), (&draft.url_claim, "{url}")] {
        let Some(At { value: draft, span }) = draft else {
            continue;
        };
        let text = draft.value.clone().unwrap_or_else(|| At {
            value: usual.to_owned(),
            span: span.clone(),
        });
        bound.extend(template(&text, params, problems).map(|value| BoundClaim {
            name: draft.name.clone(),
            value,
            hash: draft.hash,
            encoding: draft.encoding,
            absent: draft.absent,
        }));
    }
    let seconds = |found: &Option<At<i64>>| found.as_ref().map(|at| Duration::from_secs(at.value.unsigned_abs()));
    Some(TokenRules {
        algorithms,
        detached,
        issuer,
        audience,
        bound,
        required: draft
            .required_claims
            .as_ref()
            .map(|found| found.value.clone())
            .unwrap_or_default(),
        max_age: seconds(&draft.max_age_seconds),
        clock_tolerance: seconds(&draft.clock_tolerance_seconds).unwrap_or_default(),
    })
}

/// Where the keys lie.
pub(super) fn elsewhere(kind: Kind, habits: &HabitsDraft, problems: &mut Diagnostics) -> Option<KeysAt> {
    let mut refuse = |span: &Range<usize>, message: &str, label: &str| {
        problems.error(span.clone(), message, label, None);
        None
    };
    let takes_keys = kind.is_public_key() || kind == Kind::Jwt;
    match (&habits.jwks, &habits.certificate, &habits.certificate_urls) {
        (None, None, None) => None,
        (Some(At { span, .. }), _, _) | (None, Some(At { span, .. }), _) | (None, None, Some(At { span, .. }))
            if !takes_keys =>
        {
            refuse(span, "no key to fetch", "this kind of scheme has no public keys")
        }
        (Some(jwks), None, None) if jwks.value.starts_with("https://") => Some(KeysAt::Set(jwks.value.clone())),
        (Some(jwks), None, None) => refuse(&jwks.span, "bad value for `jwks`", "expected an `https://` address"),
        (None, Some(place), Some(urls)) if !urls.value.is_empty() => {
            Some(KeysAt::Certificate(place.value.clone(), urls.value.clone()))
        }
        (None, Some(place), _) => refuse(
            &place.span,
            "`certificate` without `certificate_urls`",
            "anybody could name an address of his own",
        ),
        (Some(jwks), _, _) => refuse(&jwks.span, "`jwks` beside `certificate`", "the key is at one of them"),
        (None, None, Some(urls)) => refuse(&urls.span, "`certificate_urls` without `certificate`", ""),
    }
}

/// What a verified hand-shake wants visited.
pub(super) fn visit(habits: &HabitsDraft, problems: &mut Diagnostics) -> Option<VisitRule> {
    let urls = habits.visit_urls.as_ref().filter(|urls| !urls.value.is_empty());
    match (&habits.visit, urls) {
        (Some(place), Some(urls)) => Some(VisitRule {
            place: place.value.clone(),
            urls: urls.value.clone(),
            needs: habits.visit_needs.as_ref().map(|param| param.value.clone()),
        }),
        (Some(place), None) => {
            let label = "anybody could name an address of his own";
            problems.error(place.span.clone(), "`visit` without `visit_urls`", label, None);
            None
        }
        (None, _) => {
            let spans = [
                habits.visit_urls.as_ref().map(|at| &at.span),
                habits.visit_needs.as_ref().map(|at| &at.span),
            ];
            for span in spans.into_iter().flatten() {
                problems.error(span.clone(), "there is nothing to visit", "it goes with `visit`", None);
            }
            None
        }
    }
}
