//! What a record says, in words.

use super::super::elsewhere::KeysAt;
use super::super::place::Place;
use super::super::secrets::SecretEncoding;
use super::super::signature::Parse;
use super::super::template::Template;
use super::sender::{FactsConfidence, shown};
use super::{Confidence, IdMissing, Kind, Part, Record, Scheme};

/// A name and a text.
pub type Fact = (&'static str, String);

/// A record in words. Names are single words joined by `_`.
#[derive(Clone, Debug, Default)]
pub struct Explanation {
    /// What it is, and its secret.
    pub about: Vec<Fact>,
    /// How it signs: once for each header family, in the order in which they are tried.
    pub families: Vec<Vec<Fact>>,
    /// What is made of a request, and what the sender does.
    pub habits: Vec<Fact>,
}

/// Adds those that say something.
fn add(facts: &mut Vec<Fact>, name: &'static str, text: impl Into<Option<String>>) {
    facts.extend(text.into().filter(|text| !text.is_empty()).map(|text| (name, text)));
}

impl Record {
    /// What the record says, for people.
    pub fn explain(&self) -> Explanation {
        let (mut about, mut habits) = (Vec::new(), Vec::new());
        add(&mut about, "kind", self.kind.as_str().to_owned());
        let proven_by = match self.confidence {
            Confidence::Proven => "vectors that its own SDK made, or that it published, pass",
            Confidence::Documented => "read in its documents, not tried on what it sends",
            Confidence::Unverified => "a lead: nobody has confirmed it",
        };
        add(
            &mut about,
            "status",
            format!("{}: {proven_by}", self.confidence.as_str()),
        );
        add(&mut about, "docs", self.docs.clone());
        add(&mut about, "read_in", self.source.clone());
        add(&mut about, "also_called", self.aliases.join(", "));
        add(&mut about, "given_the_url_at", self.dashboard.clone());
        add(&mut about, "secret", self.explain_secret());
        add(
            &mut about,
            "keys",
            self.keys_at.as_ref().map(|at| match at {
                KeysAt::Set(url) => format!("fetched from {url} where no secret is given"),
                KeysAt::Certificate(place, _) => {
                    format!("the certificate at {place}, fetched from the provider where no secret is given")
                }
            }),
        );
        add(&mut about, "second_inputs", self.params.join(", "));
        let url = "the source needs `public_url`, as the provider was given it: the URL is signed";
        add(
            &mut about,
            "public_url",
            self.needs_public_url().then(|| url.to_owned()),
        );
        let families = self.schemes.iter().map(|scheme| self.explain_scheme(scheme)).collect();
        let whole_body = match (self.kind, self.body_authenticated) {
            (Kind::None, _) => None,
            (_, true) => Some("signed".to_owned()),
            (_, false) => Some("NOT signed as a whole: what is not signed can be changed on the way".to_owned()),
        };
        add(&mut habits, "body", whole_body);
        let encrypted = self.encrypted.as_ref();
        let encrypted = encrypted.map(|at| format!("its text is at json:{}, and is looked at here", at.as_str()));
        add(&mut habits, "encrypted", encrypted);
        let has_id = self.schemes.iter().any(|scheme| !scheme.delivery_id.is_empty());
        let id = if self.id_authenticated() {
            "signed"
        } else {
            "not signed"
        };
        add(&mut habits, "id", has_id.then(|| id.to_owned()));
        add(&mut habits, "same_again", self.explain_dedupe());
        add(&mut habits, "id_is_unique", self.dedupe_source.clone());
        add(
            &mut habits,
            "endpoints_apart_by",
            self.scope.as_ref().map(ToString::to_string),
        );
        add(&mut habits, "hand_shakes", self.explain_challenges());
        let methods: Vec<_> = self.methods.iter().map(http::Method::as_str).collect();
        add(&mut habits, "methods", methods.join(", "));
        let acknowledged = match self.ack_body.is_empty() {
            true => self.ack_status.as_u16().to_string(),
            false => format!(
                "{} and {}",
                self.ack_status.as_u16(),
                String::from_utf8_lossy(&self.ack_body)
            ),
        };
        let synchronous = "the answer carries meaning, so that the app must give it: `reply = \"upstream\"`";
        let answer = if self.sync_only {
            synchronous.to_owned()
        } else {
            acknowledged
        };
        add(&mut habits, "answered", answer);
        add(&mut habits, "re_signed", self.explain_signing());
        self.explain_sender(&mut habits);
        Explanation {
            about,
            families,
            habits,
        }
    }

    fn explain_scheme(&self, scheme: &Scheme) -> Vec<Fact> {
        let mut facts = Vec::new();
        let when: Vec<String> = scheme.when.iter().map(ToString::to_string).collect();
        add(&mut facts, "when", when.join(" and "));
        add(&mut facts, "signature", explain_signature(self.kind, scheme));
        if self.kind.signs_payload() {
            let texts: Vec<_> = scheme.texts().map(Template::as_str).collect();
            add(&mut facts, "signed_text", texts.join(" or "));
        }
        add(&mut facts, "time", explain_time(scheme));
        add(&mut facts, "delivery_id", list(&scheme.delivery_id));
        add(&mut facts, "dedupe_id", list(&scheme.dedupe_id));
        add(&mut facts, "event_type", list(&scheme.event_type));
        facts
    }

    fn explain_challenges(&self) -> String {
        let each = self.challenges.iter().map(|challenge| {
            let when: Vec<String> = challenge.when.iter().map(ToString::to_string).collect();
            let who = match (&challenge.hands_over_secret, challenge.verify_first) {
                (Some(_), _) => "hands over the secret: taken and answered while `hooksluice sources learn` lets it",
                (None, true) => "answered here when signed",
                (None, false) => "answered here also unsigned",
            };
            format!("{} ({}), {who}", challenge.name, when.join(" and "))
        });
        each.collect::<Vec<_>>().join("; ")
    }

    fn explain_signing(&self) -> Option<String> {
        if self.kind == Kind::None {
            return None;
        }
        let text = match (self.signs_fresh(), self.is_signable()) {
            (true, _) => "yes: a late forward passes the app's own check (`signature = \"auto\"`, `\"fresh\"`)",
            (false, true) => {
                "no: the time or signature stands in the body, which is never changed; or `standard-webhooks`"
            }
            (false, false) => "no: only the provider has the key that signs; or `standard-webhooks`",
        };
        Some(text.to_owned())
    }

    /// A hint is told as one.
    fn explain_sender(&self, habits: &mut Vec<Fact>) {
        let facts = [
            ("sender_waits", self.sender_deadline.map(shown)),
            ("sender_repeats_for", self.retry_horizon.map(shown)),
            ("sender_gives_up_after", self.disable_after.map(|rule| rule.to_string())),
        ];
        let knows_any = facts.iter().any(|(_, text)| text.is_some());
        let hint = match self.facts_confidence {
            FactsConfidence::Documented => "",
            FactsConfidence::Hint => " (a hint, not confirmed)",
        };
        for (name, text) in facts {
            add(habits, name, text.map(|text| format!("{text}{hint}")));
        }
        add(
            habits,
            "sender_facts_from",
            self.facts_source.clone().filter(|_| knows_any),
        );
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
        if self.is_never_same(&self.dedupe) {
            return "never: its notifications have no content of their own, so that each counts as a new event"
                .to_owned();
        }
        let parts = self.dedupe.iter().map(|part| match part {
            Part::Id => "id",
            Part::Type => "type",
            Part::Body => "body",
        });
        let missing = match (self.id_missing, self.ping) {
            (IdMissing::Digest, false) => "by content",
            (IdMissing::Digest, true) => "never",
            (IdMissing::Reject, _) => "refused with 400",
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
    if !rules.required.is_empty() {
        text.push_str(&format!(", with {}", rules.required.join(" and ")));
    }
    if let Some(age) = rules.max_age {
        text.push_str(&format!(", at most {} old", shown(age)));
    }
    Some(text)
}

fn explain_time(scheme: &Scheme) -> Option<String> {
    let rule = scheme.time.as_ref()?;
    let window = match rule.window {
        None => "a signed time, age not judged: only the dedupe rule knows what is sent again".to_owned(),
        Some(window) if window.past == window.future => format!("±{}", shown(window.past)),
        Some(window) => format!("-{} +{}", shown(window.past), shown(window.future)),
    };
    Some(format!("{} ({}), {window}", rule.place, rule.unit.as_str()))
}

fn list(places: &[Place]) -> String {
    places.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
