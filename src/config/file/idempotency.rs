//! `idempotency = { … }` of a route, as it is written.

use std::time::Duration;

use http::{HeaderName, Method};

use super::values::{Methods, methods};
use crate::diagnostic::Diagnostics;
use crate::reader::{At, Kind, Section};
use crate::routes::idempotency::OnAmbiguous;
use crate::routes::idempotency::fingerprint::BodyAs;
use crate::routes::idempotency::scope::Scope;

/// `idempotency = { … }`.
#[derive(Debug, Default)]
pub(in crate::config) struct Idempotency {
    /// Methods whose keys mean something.
    pub methods: Option<At<Vec<At<Method>>>>,
    /// Whether a request needs a key.
    pub required: Option<At<bool>>,
    /// Whose keys they are.
    pub scope: Option<At<Scope>>,
    /// How long a key is known.
    pub ttl: Option<At<Duration>>,
    /// How long a repetition waits for the answer.
    pub wait: Option<At<Duration>>,
    /// What stands for the body.
    pub fingerprint: Option<At<BodyAs>>,
    /// Body limit.
    pub max_body: Option<At<u64>>,
    /// Largest answer that is kept.
    pub max_stored: Option<At<u64>>,
    /// More headers of a replay.
    pub replay_headers: Option<At<Vec<At<String>>>>,
    /// What becomes of a call of which nobody knows the outcome.
    pub on_ambiguous: Option<At<OnAmbiguous>>,
    /// `replicas = "sticky"`.
    pub sticky: Option<At<bool>>,
}

impl Idempotency {
    pub(in crate::config) fn read(mut section: Section<'_>, problems: &mut Diagnostics) -> Self {
        section.describe(
            "scope",
            Kind::Form("\"header:NAME\", \"cookie:NAME\", \"mtls\" or \"public\""),
        );
        if !section.has_required("scope") {
            problems.error(
                section.span(),
                format!("`{}` has no `scope`", section.path()),
                "keys belong to a caller: without one, a stored answer could be given to somebody else",
                Some(
                    "say where the caller stands: \"header:authorization\", \"header:NAME\", \"cookie:NAME\", \"mtls\" for \
                     the client's certificate, or \"public\" if all callers may share their keys"
                        .to_owned(),
                ),
            );
        }
        let idempotency = Self {
            methods: methods(&mut section, &KEYED, problems),
            required: section.boolean("required", problems),
            scope: section.parsed("scope", problems, scope),
            ttl: section.duration("ttl", problems),
            wait: section.duration("wait", problems),
            fingerprint: section.choice(
                "fingerprint",
                &[("bytes", BodyAs::Bytes), ("canonical-json", BodyAs::CanonicalJson)],
                problems,
            ),
            max_body: section.size("max_body", problems),
            max_stored: section.size("max_stored", problems),
            replay_headers: section.strings("replay_headers", problems),
            on_ambiguous: section.choice(
                "on_ambiguous",
                &[("hold", OnAmbiguous::Hold), ("retry", OnAmbiguous::Retry)],
                problems,
            ),
            sticky: section.choice("replicas", &[("sticky", true)], problems),
        };
        section.finish(problems);
        idempotency
    }
}

/// Methods that change something: a key on any other means nothing (draft section 2.1), so that asking for it is a mistake.
const KEYED: Methods = Methods {
    known: &["POST", "PATCH", "PUT", "DELETE"],
    empty: (
        "no key would mean anything",
        "remove `idempotency`, or this key to use POST and PATCH",
    ),
    other: |_| {
        (
            "a key on it is passed on and otherwise ignored",
            "known: POST, PATCH, PUT, DELETE",
        )
    },
};

/// What a scope may be.
const CHOICES: &str = "expected \"header:NAME\", \"cookie:NAME\", \"mtls\" or \"public\"";

fn scope(text: &str) -> Result<Scope, String> {
    if text == "public" {
        return Ok(Scope::Public);
    }
    if text == "mtls" {
        return Ok(Scope::Certificate);
    }
    if matches!(text, "mtls-subject" | "tls-subject" | "client-certificate") {
        return Err(format!("{CHOICES}; did you mean \"mtls\"?"));
    }
    let (kind, name) = text.split_once(':').ok_or_else(|| choices(text))?;
    match kind {
        "header" => {
            let header: HeaderName = name
                .parse()
                .map_err(|_not_a_name| "not the name of a header".to_owned())?;
            match header.as_str() {
                "cookie" => Err(
                    "a whole cookie line changes from request to request: name one cookie, as \"cookie:NAME\""
                        .to_owned(),
                ),
                "idempotency-key" => Err("the key is no caller".to_owned()),
                "connection"
                | "keep-alive"
                | "te"
                | "trailer"
                | "transfer-encoding"
                | "upgrade"
                | "expect"
                | "proxy-authorization"
                | "proxy-connection"
                | "http2-settings" => Err("it speaks of one connection and does not reach the upstream".to_owned()),
                name if name.starts_with("hooksluice-") || name.starts_with("hooksluice_") => {
                    Err("headers of ours are removed from requests".to_owned())
                }
                _ => Ok(Scope::Header(header)),
            }
        }
        "cookie" if name.parse::<HeaderName>().is_ok() => Ok(Scope::Cookie(name.to_owned())),
        "cookie" => Err("not the name of a cookie".to_owned()),
        _ => Err(CHOICES.to_owned()),
    }
}

/// What a scope may be, with the one that was meant where the text is the name of a usual header.
fn choices(text: &str) -> String {
    let is_usual = text.contains('-') || text.eq_ignore_ascii_case("authorization");
    match scope(&format!("header:{text}")) {
        Ok(Scope::Header(header)) if is_usual => format!("{CHOICES}; did you mean \"header:{header}\"?"),
        _ => CHOICES.to_owned(),
    }
}
