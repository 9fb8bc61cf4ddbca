//! From what is written to a record that works, with everything wrong with it said.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};

use crate::diagnostic::Diagnostics;
use crate::reader::At;
use crate::verify::challenge::{Challenge, Condition};
use crate::verify::json::Pointer;
use crate::verify::jwt::TokenRules;
use crate::verify::mac::Hash;
use crate::verify::picked::Picked;
use crate::verify::place::Place;
use crate::verify::record::Decide;
use crate::verify::secrets::SecretEncoding;
use crate::verify::signature::{self, Encoding, Parse};
use crate::verify::template::Template;
use crate::verify::url::UrlVariant;
use crate::verify::window::{TimeUnit, Window};

use super::challenge::{check_secret, compile_challenge, equality, template};
use super::keys;
use super::words::{PARSES, Params, non_empty, text_of, value};
use super::{
    Confidence, Draft, FactsConfidence, IdMissing, Kind, MAX_PAYLOAD_VARIANTS, Part, Record, Scheme, SchemeDraft,
    TimeRule,
};

pub(super) fn compile(name: &str, draft: Draft, span: &Range<usize>, problems: &mut Diagnostics) -> Option<Record> {
    let habits = draft.habits;
    let Some(kind) = habits.kind.as_ref().map(|found| found.value) else {
        let help = Some("say `kind = \"hmac\"`, or `extends = \"…\"` with the name of a preset".to_owned());
        problems.error(span.clone(), format!("provider `{name}` has no `kind`"), "", help);
        return None;
    };
    keys::check_secret(kind, &habits, problems);
    let keys_at = keys::elsewhere(kind, &habits, problems);
    let visit = keys::visit(&habits, problems);
    let params = Params::of(habits.params);
    let mut challenges = Vec::new();
    for challenge in draft.challenges {
        challenges.extend(compile_challenge(kind, challenge, &params, problems));
    }
    let mut schemes = Vec::new();
    let scope = value(habits.scope);
    let variants = match draft.variants.is_empty() {
        true => vec![draft.scheme],
        false => draft.variants.into_iter().map(|v| v.or(&draft.scheme)).collect(),
    };
    let whens: Vec<_> = variants.iter().filter_map(|variant| variant.when.clone()).collect();
    for variant in variants {
        let mut scheme = compile_scheme(kind, variant, &params, span, problems)?;
        scheme.collect_pointers(scope.as_ref(), &challenges);
        schemes.push(scheme);
    }
    let when_pointers = check_conditions(&schemes, &whens, problems);
    let covers = (kind.signs_payload() || kind == Kind::Jwt) && schemes.iter().all(Scheme::covers_body);
    let body_authenticated = value(habits.body_authenticated).unwrap_or(covers);
    if body_authenticated && !covers {
        let label = "`payload` does not hold the whole body";
        problems.error(span.clone(), "`body_authenticated = true` is not so", label, None);
    }
    if let Some(confidence) = &habits.sender_facts_confidence
        && confidence.value == FactsConfidence::Documented
        && habits.sender_facts_source.is_none()
    {
        let label = "documented where?";
        let help = Some("say it with `sender_facts_source = \"https://…\"`, or say \"hint\"".to_owned());
        problems.error(
            confidence.span.clone(),
            "bad value for `sender_facts_confidence`",
            label,
            help,
        );
    }
    let dedupe = habits.dedupe;
    if let Some(rule) = &dedupe {
        let wrong = match Part::decide(&rule.value) {
            Decide::ByContent => None,
            Decide::ById if habits.dedupe_source.is_some() => None,
            Decide::ById => Some((
                "an id alone may decide only where the provider documents it as one per delivery",
                "say where with `dedupe_source = \"…\"`, or use `[\"id\", \"type\", \"body\"]`",
            )),
            Decide::ByNothing => Some((
                "without \"id\" and \"body\", events that have nothing to do with each other would be the same",
                "use `[\"id\", \"type\", \"body\"]`",
            )),
        };
        if let Some((label, help)) = wrong {
            problems.error(
                rule.span.clone(),
                "bad value for `dedupe`",
                label,
                Some(help.to_owned()),
            );
        }
    }
    Some(Record {
        name: name.to_owned(),
        title: value(habits.title).unwrap_or_else(|| name.to_owned()),
        docs: value(habits.docs),
        aliases: value(habits.aliases).unwrap_or_default(),
        notes: value(habits.notes).unwrap_or_default(),
        source: value(habits.source),
        confidence: value(habits.confidence).unwrap_or(Confidence::Unverified),
        secret_title: value(habits.secret_title),
        secret_env: value(habits.secret_env),
        dashboard: value(habits.dashboard),
        kind,
        secret_encoding: value(habits.secret_encoding).unwrap_or(SecretEncoding::Utf8),
        secret_strip_prefix: value(habits.secret_strip_prefix).unwrap_or_default(),
        secret_normalise: value(habits.secret_normalise),
        secret_suffix: value(habits.secret_suffix).unwrap_or_default(),
        public_key_prefix: value(habits.public_key_prefix).filter(|prefix| !prefix.is_empty()),
        params: params.needed,
        optional_params: params.optional,
        usual_params: params.usual,
        signed_over_decoded: value(habits.signed_over).unwrap_or(false),
        encrypted: value(habits.encrypted),
        schemes,
        keys_at,
        visit,
        when_pointers,
        scope,
        answerable: challenges.iter().filter_map(Challenge::macs).collect(),
        challenges,
        dedupe: value(dedupe).unwrap_or_else(|| vec![Part::Id, Part::Type, Part::Body]),
        dedupe_source: value(habits.dedupe_source),
        id_missing: value(habits.id_missing).unwrap_or(IdMissing::Digest),
        body_varies: value(habits.body_varies).unwrap_or(false),
        ping: value(habits.ping).unwrap_or(false),
        body_authenticated,
        sync_only: value(habits.sync_only).unwrap_or(false),
        methods: value(habits.methods).unwrap_or_else(|| vec![Method::POST]),
        get_probe: value(habits.get_probe).unwrap_or(false),
        max_body: value(habits.max_body),
        ack_status: value(habits.ack_status).unwrap_or(StatusCode::OK),
        ack_body: value(habits.ack_body).map(Bytes::from).unwrap_or_default(),
        sender_deadline: value(habits.sender_deadline),
        retry_horizon: value(habits.retry_horizon),
        disable_after: value(habits.disable_after),
        facts_source: value(habits.sender_facts_source),
        facts_confidence: value(habits.sender_facts_confidence).unwrap_or_default(),
    })
}

pub(super) fn compile_scheme(
    kind: Kind,
    draft: SchemeDraft,
    params: &Params,
    span: &Range<usize>,
    problems: &mut Diagnostics,
) -> Option<Scheme> {
    let signature = compile_signature(kind, &draft, span, problems)?;
    let algorithm = keys::algorithm(kind, &draft, span, problems);
    let token = keys::token(kind, &draft, params, span, problems);
    params.check_needed(signature.params().into_iter(), span, problems);
    let time = compile_time(&draft, problems);
    let tolerance = draft.tolerance_seconds.as_ref().map(|found| found.span.clone());
    let text = draft.payload.unwrap_or(At {
        value: "{body}".to_owned(),
        span: span.clone(),
    });
    let payload = template(&text, params, problems)?;
    let mut payload_variants = Vec::new();
    let others = draft.payload_variants.map_or_else(Vec::new, |found| found.value);
    if let Some(surplus) = others.get(MAX_PAYLOAD_VARIANTS) {
        let label = format!("at most {MAX_PAYLOAD_VARIANTS}: each costs a hash over the body");
        problems.error(surplus.span.clone(), "too many `payload_variants`", label, None);
    }
    for other in &others {
        let compiled = template(other, params, problems)?;
        check_secret(kind, &compiled, &other.span, problems);
        payload_variants.push(compiled);
    }
    check_secret(kind, &payload, &text.span, problems);
    for text in std::iter::once(&payload).chain(&payload_variants) {
        params.check_needed(text.params(), span, problems);
        if text.uses_function() {
            let label = "only answers to hand-shakes hold functions";
            problems.error(span.clone(), "a function in the payload", label, None);
        }
    }
    if let Some(hash) = &draft.hash
        && hash.value == Hash::Keccak256
        && kind != Kind::Digest
    {
        let label = "only `kind = \"digest\"` hashes with it";
        problems.error(hash.span.clone(), "bad value for `hash`", label, None);
    }
    if payload.uses_timestamp() && time.is_none() {
        let help = Some("say where it stands with `timestamp = \"header:…\"`".to_owned());
        problems.error(
            text.span,
            "`{timestamp}` has no place",
            "the payload signs a time",
            help,
        );
    }
    let mut also_require = Vec::new();
    for line in draft.also_require.map_or_else(Vec::new, |found| found.value) {
        also_require.extend(equality(&line, params, problems));
    }
    let requires_url = |(left, right): &(Template, Template)| left.uses_url() || right.uses_url();
    let claims_url = token.as_ref().is_some_and(TokenRules::uses_url);
    let uses_url = claims_url
        || payload.uses_url()
        || payload_variants.iter().any(Template::uses_url)
        || also_require.iter().any(requires_url);
    let mut scheme = Scheme {
        uses_url,
        when: value(draft.when).unwrap_or_default(),
        hash: value(draft.hash).unwrap_or(Hash::Sha256),
        signature,
        algorithm,
        key_id: value(draft.key_id),
        prehash: value(draft.prehash),
        token,
        payload,
        payload_variants,
        url_variants: value(draft.url_variants).unwrap_or_else(|| vec![UrlVariant::AsConfigured]),
        time,
        also_require,
        require: value(draft.require).unwrap_or_default(),
        each: value(draft.each),
        delivery_id: value(draft.delivery_id).unwrap_or_default(),
        dedupe_id: value(draft.dedupe_id).unwrap_or_default(),
        event_type: value(draft.event_type).unwrap_or_default(),
        picked: Picked::default(),
        pointers: Vec::new(),
    };
    if kind.signs_payload() || kind == Kind::Jwt {
        scheme.picked = Picked::of(&scheme);
    }
    check_each(&scheme, span, problems);
    if let (Some(tolerance), Some(rule)) = (tolerance, &scheme.time)
        && kind.signs_payload()
        && !scheme.signs(rule)
    {
        problems.warning(
            tolerance,
            "the time is not signed",
            format!("whoever has a request can send it again with another {}", rule.place),
            Some("remove it, unless the provider signs it: then `{timestamp}` belongs into `payload`".to_owned()),
        );
    }
    // The entries of a token are the members of its header.
    if kind != Kind::Jwt {
        check_entries(&scheme, span, problems);
    }
    Some(scheme)
}

/// `sig:` names an entry of the signature's value, so the value has entries with names.
fn check_entries(scheme: &Scheme, span: &Range<usize>, problems: &mut Diagnostics) {
    let has_names = matches!(
        scheme.signature.parse,
        Parse::KeyValue { .. } | Parse::Positional { .. } | Parse::Base64Json { .. }
    );
    let time = scheme.time.iter().map(|rule| &rule.place);
    let named = scheme
        .delivery_id
        .iter()
        .chain(&scheme.dedupe_id)
        .chain(&scheme.event_type);
    let signed = scheme.texts().flat_map(Template::places);
    let mut places = time.chain(named).chain(signed);
    if !has_names && let Some(place) = places.find(|place| matches!(place, Place::Signature(_))) {
        let label = "the signature is read as one that has no entries with names";
        let help = Some("say how it is written with `parse = \"kv\"`".to_owned());
        problems.error(span.clone(), format!("`{place}` is never there"), label, help);
    }
}

/// The elements of an array are judged one by one: what is looked at lies in the head or in the element at hand, or each
/// element would cost a look at the whole body.
fn check_each(scheme: &Scheme, span: &Range<usize>, problems: &mut Diagnostics) {
    let is_item = |place: &&Place| matches!(place, Place::Item(_));
    let signed = scheme.texts().flat_map(Template::places);
    let judged: Vec<&Place> = scheme.signature.places.iter().chain(signed).collect();
    let named = scheme
        .delivery_id
        .iter()
        .chain(&scheme.dedupe_id)
        .chain(&scheme.event_type);
    let of_time = scheme.time.iter().map(|rule| &rule.place);
    let outside: Vec<&Place> = named.chain(of_time).filter(is_item).collect();
    let problem = match &scheme.each {
        None => judged.into_iter().find(is_item).map(|_place| "`item:` without `each`"),
        Some(_) if !scheme.signature.places.iter().any(|place| is_item(&place)) => {
            Some("`each` without an `item:` in `signature`")
        }
        Some(_) => {
            let in_body = judged.into_iter().find(|place| !place.is_in_head() && !is_item(place));
            in_body.map(|_place| "`each` together with a place in the body that is no `item:`")
        }
    };
    let problem = problem.or_else(|| (!outside.is_empty()).then_some("`item:` outside of `signature` and `payload`"));
    if let Some(problem) = problem {
        problems.error(span.clone(), problem, "", None);
    }
}

/// A header family is told by the head alone, which is refused before the body is read; only where all signatures stand in
/// the body may the body tell.
fn check_conditions(schemes: &[Scheme], whens: &[At<Vec<Condition>>], problems: &mut Diagnostics) -> Vec<Pointer> {
    let in_body = schemes.iter().all(|scheme| !scheme.signature.is_in_head());
    for when in whens.iter().filter(|_| !in_body) {
        if !when.value.iter().all(Condition::is_in_head) {
            let label = "a header family is told by the head alone; the body is not trusted yet";
            problems.error(when.span.clone(), "bad value for `when`", label, None);
        }
    }
    let conditions = schemes.iter().flat_map(|scheme| &scheme.when);
    conditions.filter_map(Condition::pointer).cloned().collect()
}

pub(super) fn compile_signature(
    kind: Kind,
    draft: &SchemeDraft,
    span: &Range<usize>,
    problems: &mut Diagnostics,
) -> Option<signature::Form> {
    let places = match (&draft.signature, kind) {
        (Some(places), _) if !places.value.is_empty() => places.value.clone(),
        (_, Kind::Basic) => vec![Place::Header(http::header::AUTHORIZATION)],
        (_, Kind::None) => Vec::new(),
        (_, Kind::Hmac | Kind::Digest | Kind::Ed25519 | Kind::Ecdsa | Kind::Rsa | Kind::Jwt | Kind::Token) => {
            let help = Some("say where it stands, such as `signature = [\"header:X-Signature\"]`".to_owned());
            problems.error(
                span.clone(),
                "no `signature`",
                "the scheme has no place for its signature",
                help,
            );
            return None;
        }
    };
    if let Some(order) = &draft.signature_order
        && !order.value.is_empty()
        && draft.parse.as_ref().is_none_or(|parse| parse.value != "kv")
    {
        let label = "only `parse = \"kv\"` has entries with names";
        problems.error(order.span.clone(), "`signature_order` has no meaning here", label, None);
    }
    Some(signature::Form {
        places,
        parse: compile_parse(draft, span, problems)?,
        order: value(draft.signature_order.clone()).unwrap_or_default(),
        prefix: text_of(&draft.prefix),
        prefix_optional: draft.prefix_optional.as_ref().is_some_and(|found| found.value)
            || draft.prefix.as_ref().is_none_or(|found| found.value.is_empty()),
        encoding: draft.encoding.as_ref().map_or(Encoding::Hex, |found| found.value),
        max_n: draft
            .max_n
            .as_ref()
            .map_or(0, |found| u32::try_from(found.value).unwrap_or_default()),
    })
}

fn compile_parse(draft: &SchemeDraft, span: &Range<usize>, problems: &mut Diagnostics) -> Option<Parse> {
    let separator = |default: &str| non_empty(&draft.separator).unwrap_or_else(|| default.to_owned());
    let (word, at) = match &draft.parse {
        Some(found) => (found.value.as_str(), found.span.clone()),
        None => ("plain", span.clone()),
    };
    let mut need = |key: &str, found: Option<String>| {
        if found.is_none() {
            let message = format!("`parse = \"{word}\"` needs `{key}`");
            problems.error(at.clone(), message, "which entries are signatures?", None);
        }
        found
    };
    match word {
        "plain" => Some(Parse::Plain),
        "list" => Some(Parse::List {
            separator: separator(","),
        }),
        "kv" => {
            let keys = draft.signature_key.as_ref().map(|found| found.value.clone());
            need("signature_key", keys.as_ref().map(|keys| keys.join("|")))?;
            Some(Parse::KeyValue {
                separator: separator(","),
                keys: keys.unwrap_or_default(),
                group_separator: non_empty(&draft.group_separator),
            })
        }
        "tagged" | "pairs" => {
            let tag = need("tag", non_empty(&draft.tag))?;
            let (outer, inner) = if word == "pairs" { ("&", "|") } else { (" ", ",") };
            Some(Parse::Tagged {
                separator: separator(outer),
                tag_separator: non_empty(&draft.tag_separator).unwrap_or_else(|| inner.to_owned()),
                tag,
                public_key_tag: non_empty(&draft.public_key_tag),
            })
        }
        "positional" => Some(Parse::Positional {
            separator: separator(","),
        }),
        "base64_json" => {
            let key = draft
                .signature_key
                .as_ref()
                .and_then(|found| found.value.first().cloned());
            Some(Parse::Base64Json {
                key: need("signature_key", key)?,
            })
        }
        _ => {
            let label = format!("expected one of {}", PARSES.join(", "));
            problems.error(at, "bad value for `parse`", label, None);
            None
        }
    }
}

pub(super) fn compile_time(draft: &SchemeDraft, problems: &mut Diagnostics) -> Option<TimeRule> {
    let past = &draft.tolerance_seconds;
    let Some(place) = &draft.timestamp else {
        if let Some(past) = past {
            let help = Some("say where the time stands with `timestamp = \"header:…\"`".to_owned());
            problems.error(past.span.clone(), "`tolerance_seconds` without `timestamp`", "", help);
        }
        return None;
    };
    let seconds = |found: &At<i64>| Duration::from_secs(found.value.unsigned_abs());
    Some(TimeRule {
        place: place.value.clone(),
        unit: draft
            .timestamp_unit
            .as_ref()
            .map_or(TimeUnit::Seconds, |found| found.value),
        window: past.as_ref().map(|past| Window {
            past: seconds(past),
            future: draft.tolerance_future_seconds.as_ref().map_or(seconds(past), seconds),
        }),
    })
}
