//! Hand-shakes and the texts of a record.

use std::ops::Range;

use crate::diagnostic::Diagnostics;
use crate::reader::At;
use crate::verify::challenge::Challenge;
use crate::verify::place::Place;
use crate::verify::template::Template;

use super::{ChallengeDraft, Kind, Params};

pub(super) fn compile_challenge(
    kind: Kind,
    draft: At<ChallengeDraft>,
    params: &Params,
    problems: &mut Diagnostics,
) -> Option<Challenge> {
    let ChallengeDraft {
        name,
        when,
        verify_first,
        hands_over_secret,
        check,
        check_failed_status,
        values,
        status,
        content_type,
        headers,
        body,
    } = draft.value;
    let mut compiled = Vec::new();
    for line in headers {
        let header = line.value.split_once(':').and_then(|(name, text)| {
            let text = At {
                value: text.trim().to_owned(),
                span: line.span.clone(),
            };
            let name = name.trim();
            Some((name.parse().ok()?, name.to_owned(), template(&text, params, problems)?))
        });
        if header.is_none() {
            problems.error(line.span, "bad value in `headers`", "expected \"Name: value\"", None);
        }
        compiled.extend(header);
    }
    let span = body.span.clone();
    let body = template(&body, params, problems)?;
    refuse_secret(compiled.iter().map(|(_, _, text)| text).chain([&body]), &span, problems);
    let mut checks = Vec::new();
    for line in &check {
        checks.extend(equality(line, params, problems));
    }
    let challenge = Challenge {
        name,
        when,
        verify_first,
        hands_over_secret,
        check: checks,
        check_failed_status,
        values,
        status,
        content_type,
        headers: compiled,
        body,
    };
    let macs = challenge.texts().any(Template::uses_mac);
    if macs && kind != Kind::Hmac {
        let label = "only `kind = \"hmac\"` has a key to make it with";
        problems.error(span.clone(), "a MAC in an answer", label, None);
    }
    if macs && challenge.values.is_none() {
        let help = Some("say what the provider sends, such as `values = \"token 1..64\"`".to_owned());
        let label = "without `values` anybody could have any text signed";
        problems.error(span, "a MAC in an answer", label, help);
    }
    Some(challenge)
}

/// What is compared or answered to the sender holds no secret.
pub(super) fn refuse_secret<'t>(
    texts: impl IntoIterator<Item = &'t Template>,
    span: &Range<usize>,
    problems: &mut Diagnostics,
) {
    if texts.into_iter().any(Template::uses_secret) {
        problems.error(span.clone(), "`{secret}` outside of `payload`", "", None);
    }
}

pub(super) fn template(text: &At<String>, params: &Params, problems: &mut Diagnostics) -> Option<Template> {
    match Template::parse(&text.value, &params.all()) {
        Ok(template) => Some(template),
        Err(label) => {
            problems.error(text.span.clone(), "bad template", label, None);
            None
        }
    }
}

/// A plain digest proves something only if the secret is in the text; a MAC has it as its key.
pub(super) fn check_secret(kind: Kind, text: &Template, span: &Range<usize>, problems: &mut Diagnostics) {
    match kind {
        Kind::Digest if !text.uses_secret() => {
            let label = "anybody can hash a text that holds no `{secret}`";
            problems.error(span.clone(), "no `{secret}` in the payload", label, None);
        }
        Kind::Digest => {}
        _ if text.uses_secret() => {
            let help = Some("a plain hash over a text with the secret is `kind = \"digest\"`".to_owned());
            problems.error(
                span.clone(),
                "`{secret}` in the payload",
                "a MAC's key is not part of its text",
                help,
            );
        }
        _ => {}
    }
}

/// `LEFT == RIGHT`, each a template or the bare name of a place.
pub(super) fn equality(line: &At<String>, params: &Params, problems: &mut Diagnostics) -> Option<(Template, Template)> {
    let Some((left, right)) = line.value.split_once(" == ") else {
        problems.error(
            line.span.clone(),
            "bad value in `also_require`",
            "expected \"A == B\"",
            None,
        );
        return None;
    };
    let mut side = |text: &str| {
        let text = text.trim();
        let text = match Place::parse(text) {
            Ok(_) => format!("{{{text}}}"),
            Err(_) => text.to_owned(),
        };
        let span = line.span.clone();
        template(&At { value: text, span }, params, problems)
    };
    let sides = (side(left)?, side(right)?);
    refuse_secret([&sides.0, &sides.1], &line.span, problems);
    Some(sides)
}
