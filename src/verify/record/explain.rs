//! What a record says, in words.

use std::time::Duration;

use super::super::place::Place;
use super::super::secrets::SecretEncoding;
use super::super::signature::Parse;
use super::super::template::Template;
use super::{IdMissing, Part};
use super::{Kind, Record, Scheme};

impl Record {
    /// What the record says, a name and a text each, for people.
    pub fn explain(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("kind", self.kind.as_str().to_owned()),
            ("confidence", self.confidence.as_str().to_owned()),
        ];
        let mut add =
            |name, text: Option<String>| facts.extend(text.filter(|text| !text.is_empty()).map(|text| (name, text)));
        add("docs", self.docs.clone());
        add("read in", self.source.clone());
        add("also called", Some(self.aliases.join(", ")));
        add("given at", self.dashboard.clone());
        add("secret", self.explain_secret());
        for scheme in &self.schemes {
            let when: Vec<String> = scheme.when.iter().map(ToString::to_string).collect();
            add("when", Some(when.join(" and ")));
            add("signature", explain_signature(self.kind, scheme));
            add(
                "signed text",
                self.kind.signs_payload().then(|| {
                    let texts: Vec<_> = scheme.texts().map(Template::as_str).collect();
                    texts.join(" or ")
                }),
            );
            add("time", explain_time(scheme));
            add("delivery id", Some(list(&scheme.delivery_id)));
            add("dedupe id", Some(list(&scheme.dedupe_id)));
            add("event type", Some(list(&scheme.event_type)));
        }
        add("signed body", Some(yes(self.body_authenticated)));
        add("signed id", Some(yes(self.id_authenticated())));
        add("dedupe", Some(self.explain_dedupe()));
        add("documented", self.dedupe_source.clone());
        add("scope", self.scope.as_ref().map(ToString::to_string));
        add("hand-shakes", Some(self.challenges().collect::<Vec<_>>().join(", ")));
        add(
            "methods",
            Some(
                self.methods
                    .iter()
                    .map(http::Method::as_str)
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
        );
        add("waits", self.sender_deadline.map(duration));
        add("repeats for", self.retry_horizon.map(duration));
        facts
    }

    fn explain_secret(&self) -> Option<String> {
        let is_public = |scheme: &Scheme| {
            let mut algorithms = scheme.token.iter().flat_map(|rules| &rules.algorithms);
            algorithms.all(|algorithm| algorithm.secret().is_none())
        };
        let text = match (self.kind, self.secret_encoding) {
            (Kind::None, _) => return None,
            (Kind::Basic, _) => "user:password".to_owned(),
            (Kind::Jwt, _) if self.schemes.iter().all(is_public) => "the provider's public key: PEM or JWKS".to_owned(),
            (kind, _) if kind.is_public_key() => "the provider's public key: PEM, base64 or hexadecimal".to_owned(),
            (Kind::Token, _) | (_, SecretEncoding::Utf8) => "used as text".to_owned(),
            (_, SecretEncoding::Base64) => "base64".to_owned(),
            (_, SecretEncoding::Hex) => "hexadecimal".to_owned(),
            (_, SecretEncoding::Sha1) => "its SHA-1 is the key".to_owned(),
        };
        let text = match self.secret_strip_prefix.join("`, `") {
            none if none.is_empty() => text,
            prefixes => format!("{text} behind `{prefixes}`"),
        };
        Some(match &self.secret_title {
            Some(title) => format!("{title}; {text}"),
            None => text,
        })
    }

    fn explain_dedupe(&self) -> String {
        let parts = self.dedupe.iter().map(|part| match part {
            Part::Id => "id",
            Part::Type => "type",
            Part::Body => "body",
        });
        let missing = match self.id_missing {
            IdMissing::Digest => "by content",
            IdMissing::Reject => "refused with 400",
        };
        format!("by {}; without an id {missing}", parts.collect::<Vec<_>>().join(", "))
    }
}

fn explain_signature(kind: Kind, scheme: &Scheme) -> Option<String> {
    let form = &scheme.signature;
    let place = list(&form.places);
    let how = match kind {
        Kind::None => return None,
        Kind::Token | Kind::Basic => return Some(place),
        Kind::Hmac | Kind::Digest => format!(
            "{}{} in {}",
            if kind == Kind::Hmac { "HMAC-" } else { "plain " },
            scheme.hash.as_str().to_uppercase(),
            form.encoding.as_str()
        ),
        Kind::Jwt => return explain_token(scheme),
        Kind::Ed25519 | Kind::Ecdsa | Kind::Rsa => {
            let algorithm = scheme.algorithm?;
            let prehash = scheme
                .prehash
                .map(|hash| format!(" over the {} digest", hash.as_str().to_uppercase()));
            format!(
                "{algorithm}{} in {}",
                prehash.unwrap_or_default(),
                form.encoding.as_str()
            )
        }
    };
    let written = match &form.parse {
        Parse::Plain => String::new(),
        Parse::List { separator } => format!(", several divided by `{separator}`"),
        Parse::KeyValue { separator, keys, .. } => format!(", as `{}=` divided by `{separator}`", keys.join("=` or `")),
        Parse::Tagged {
            tag,
            tag_separator,
            public_key_tag,
            ..
        } => {
            let public = public_key_tag
                .as_ref()
                .map(|tag| format!(", by Ed25519 as `{tag}{tag_separator}…`"));
            format!(", as `{tag}{tag_separator}…`{}", public.unwrap_or_default())
        }
        Parse::Base64Json { key } => format!(", as `{key}` of JSON in base64"),
        Parse::Positional { separator } => format!(", behind the time, divided by `{separator}`"),
    };
    let prefix = match form.prefix.as_str() {
        "" => String::new(),
        prefix => format!(", behind `{prefix}`"),
    };
    Some(format!("{place}: {how}{written}{prefix}"))
}

fn explain_token(scheme: &Scheme) -> Option<String> {
    let rules = scheme.token.as_ref()?;
    let algorithms: Vec<_> = rules.algorithms.iter().map(|algorithm| algorithm.name).collect();
    let mut text = format!(
        "{}: a {} by {}",
        list(&scheme.signature.places),
        if rules.detached { "detached JWS" } else { "JWT" },
        algorithms.join(" or ")
    );
    let said = [("issuer", &rules.issuer), ("audience", &rules.audience)];
    for (name, template) in said {
        if let Some(template) = template {
            text.push_str(&format!(", {name} {}", template.as_str()));
        }
    }
    for claim in &rules.bound {
        let hash = claim.hash.map(|hash| format!("{} of ", hash.as_str().to_uppercase()));
        text.push_str(&format!(
            ", {} = {}{}",
            claim.name,
            hash.unwrap_or_default(),
            claim.value.as_str()
        ));
    }
    if let Some(age) = rules.max_age {
        text.push_str(&format!(", at most {} old", duration(age)));
    }
    Some(text)
}

fn explain_time(scheme: &Scheme) -> Option<String> {
    let rule = scheme.time.as_ref()?;
    let window = match rule.window {
        None => "age not judged".to_owned(),
        Some(window) if window.past == window.future => format!("±{}", duration(window.past)),
        Some(window) => format!("-{} +{}", duration(window.past), duration(window.future)),
    };
    Some(format!("{} ({}), {window}", rule.place, rule.unit.as_str()))
}

fn list(places: &[Place]) -> String {
    places.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

/// In the largest unit that is whole.
fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let whole = units
        .iter()
        .find(|(unit, _)| seconds >= *unit && seconds.is_multiple_of(*unit));
    whole.map_or_else(
        || format!("{seconds}s"),
        |(unit, name)| format!("{}{name}", seconds / unit),
    )
}
