//! From TOML to [`Record`]: what was written, with places, then compiled; every mistake is told.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};

use crate::diagnostic::Diagnostics;
use crate::reader::{self, At, Document, Section};
use crate::verify::challenge::{Challenge, Condition, Values};
use crate::verify::elsewhere::UrlPattern;
use crate::verify::handover;
use crate::verify::json::Pointer;
use crate::verify::jws::JwsAlgorithm;
use crate::verify::jwt::TokenRules;
use crate::verify::mac::Hash;
use crate::verify::picked::Picked;
use crate::verify::place::Place;
use crate::verify::presets;
use crate::verify::public_key::{Padding, SignatureFormat};
use crate::verify::secrets::{SecretEncoding, SecretNormalise};
use crate::verify::signature::{self, Encoding, Parse};
use crate::verify::template::Template;
use crate::verify::url::UrlVariant;
use crate::verify::window::{TimeUnit, Window};

use super::sender::{self, DisableRule, FactsConfidence};
use super::{Confidence, IdMissing, Kind, Part, Record, Scheme, TimeRule};

use self::keys::BoundDraft;

mod keys;

/// Numbered signature headers are looked for up to this number at most (DocuSign: 100).
const MAX_NUMBERED: i64 = 100;

/// Most texts besides `payload` that are tried.
const MAX_PAYLOAD_VARIANTS: usize = 3;

/// Longest tolerance that makes sense, in seconds: 30 days.
const MAX_TOLERANCE_SECONDS: i64 = 30 * 86_400;

macro_rules! draft {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default)]
        struct $name {
            $($field: Option<At<$type>>,)*
        }

        impl $name {
            /// What is not written here is taken from `base`.
            fn or(self, base: &Self) -> Self {
                Self { $($field: self.$field.or_else(|| base.$field.clone()),)* }
            }

            /// As if all of it had been written at `span`.
            fn at(self, span: &Range<usize>) -> Self {
                Self { $($field: self.$field.map(|found| At { value: found.value, span: span.clone() }),)* }
            }
        }
    };
}

draft! {
    /// The keys that a `[[variant]]` may also have.
    SchemeDraft {
        when: Vec<Condition>,
        hash: Hash,
        padding: Padding,
        signature_format: SignatureFormat,
        prehash: Hash,
        algorithms: Vec<JwsAlgorithm>,
        detached: bool,
        issuer: String,
        audience: String,
        body_claim: BoundDraft,
        url_claim: BoundDraft,
        required_claims: Vec<String>,
        max_age_seconds: i64,
        clock_tolerance_seconds: i64,
        key_id: Place,
        signature: Vec<Place>,
        parse: String,
        separator: String,
        group_separator: String,
        signature_key: Vec<String>,
        signature_order: Vec<String>,
        tag: String,
        tag_separator: String,
        public_key_tag: String,
        prefix: String,
        prefix_optional: bool,
        max_n: i64,
        encoding: Encoding,
        payload: String,
        payload_variants: Vec<At<String>>,
        url_variants: Vec<UrlVariant>,
        timestamp: Place,
        timestamp_unit: TimeUnit,
        tolerance_seconds: i64,
        tolerance_future_seconds: i64,
        also_require: Vec<At<String>>,
        require: Vec<Condition>,
        each: Pointer,
        delivery_id: Vec<Place>,
        dedupe_id: Vec<Place>,
        event_type: Vec<Place>,
    }
}

draft! {
    /// The keys of the provider as a whole.
    HabitsDraft {
        title: String,
        docs: String,
        aliases: Vec<String>,
        notes: Vec<String>,
        source: String,
        confidence: Confidence,
        secret_title: String,
        secret_env: String,
        dashboard: String,
        kind: Kind,
        secret_encoding: SecretEncoding,
        secret_strip_prefix: Vec<String>,
        secret_normalise: SecretNormalise,
        secret_suffix: String,
        public_key_prefix: String,
        params: Vec<At<String>>,
        signed_over: bool,
        jwks: String,
        certificate: Place,
        certificate_urls: Vec<UrlPattern>,
        visit: Place,
        visit_urls: Vec<UrlPattern>,
        visit_needs: String,
        scope: Place,
        dedupe: Vec<Part>,
        dedupe_source: String,
        id_missing: IdMissing,
        body_varies: bool,
        ping: bool,
        body_authenticated: bool,
        sync_only: bool,
        methods: Vec<Method>,
        get_probe: bool,
        max_body: u64,
        ack_status: StatusCode,
        ack_body: String,
        sender_deadline: Duration,
        retry_horizon: Duration,
        disable_after: DisableRule,
        sender_facts_source: String,
        sender_facts_confidence: FactsConfidence,
    }
}

/// A record as written.
#[derive(Clone, Debug, Default)]
struct Draft {
    scheme: SchemeDraft,
    habits: HabitsDraft,
    variants: Vec<SchemeDraft>,
    challenges: Vec<At<ChallengeDraft>>,
}

#[derive(Clone, Debug)]
struct ChallengeDraft {
    name: String,
    when: Vec<Condition>,
    verify_first: bool,
    check: Vec<At<String>>,
    hands_over_secret: Option<Place>,
    check_failed_status: Option<StatusCode>,
    values: Option<Values>,
    status: StatusCode,
    content_type: String,
    headers: Vec<At<String>>,
    body: At<String>,
}

impl Record {
    /// Reads `[providers.NAME]` or a preset. All mistakes are added to `problems`; a record with any is not returned.
    pub fn read(name: &str, section: Section<'_>, problems: &mut Diagnostics) -> Option<Self> {
        let span = section.span();
        let mut found = Diagnostics::new();
        let record = read_draft(section, &mut found)
            .and_then(|draft| compile(name, draft, &span, &mut found))
            .filter(|_| !found.has_errors());
        problems.append(found);
        record
    }

    /// Reads a record that is a whole TOML text.
    pub fn read_text(name: &str, text: &str, problems: &mut Diagnostics) -> Option<Self> {
        let document = Document::parse(text, problems);
        Self::read(name, document.root(), problems)
    }
}

fn read_draft(mut section: Section<'_>, problems: &mut Diagnostics) -> Option<Draft> {
    let s = &mut section;
    let base = s
        .string("extends", problems)
        .and_then(|extends| base(&extends, problems));
    let mut draft = Draft {
        scheme: read_scheme(s, problems),
        habits: read_habits(s, problems),
        variants: Vec::new(),
        challenges: Vec::new(),
    };
    for mut variant in s.sections("variant", problems).unwrap_or_default() {
        draft.variants.push(read_scheme(&mut variant, problems));
        variant.finish(problems);
    }
    for challenge in s.sections("challenge", problems).unwrap_or_default() {
        draft.challenges.extend(read_challenge(challenge, problems));
    }
    s.not_in_this_version(&["keys"]);
    section.finish(problems);
    if let Some(base) = base {
        if draft.variants.is_empty() {
            // What is written here stands above what the families of the preset say, not only beside it.
            let own = |variant| draft.scheme.clone().or(&variant);
            draft.variants = base.variants.into_iter().map(own).collect();
        }
        draft.scheme = draft.scheme.or(&base.scheme);
        draft.habits = draft.habits.or(&base.habits);
        if draft.challenges.is_empty() {
            draft.challenges = base.challenges;
        }
    }
    Some(draft)
}

/// The preset that a record builds on, as if all of it had been written where its name stands.
fn base(extends: &At<String>, problems: &mut Diagnostics) -> Option<Draft> {
    let Some(text) = presets::text(&extends.value) else {
        let help = presets::nearest(&extends.value).map(|near| format!("did you mean `{near}`?"));
        let message = format!("unknown provider `{}`", extends.value);
        problems.error(extends.span.clone(), message, "no preset has this name", help);
        return None;
    };
    let mut of_the_preset = Diagnostics::new();
    let document = Document::parse(text, &mut of_the_preset);
    let draft = read_draft(document.root(), &mut of_the_preset)?;
    let span = &extends.span;
    Some(Draft {
        scheme: draft.scheme.at(span),
        habits: HabitsDraft {
            title: None,
            docs: None,
            aliases: None,
            notes: None,
            source: None,
            confidence: None,
            secret_title: None,
            secret_env: None,
            dashboard: None,
            ..draft.habits.at(span)
        },
        variants: draft.variants.into_iter().map(|variant| variant.at(span)).collect(),
        challenges: draft
            .challenges
            .into_iter()
            .map(|challenge| At {
                value: challenge.value,
                span: span.clone(),
            })
            .collect(),
    })
}

fn read_scheme(s: &mut Section<'_>, problems: &mut Diagnostics) -> SchemeDraft {
    s.describe("parse", reader::Kind::Choice(PARSES.to_vec()));
    SchemeDraft {
        when: s.parsed("when", problems, Condition::parse_all),
        hash: s.choice("hash", &Hash::NAMED, problems),
        padding: s.choice("padding", &Padding::NAMED, problems),
        signature_format: s.choice("signature_format", &SignatureFormat::NAMED, problems),
        prehash: s.choice("prehash", &Hash::NAMED, problems),
        algorithms: each(s, "algorithms", problems, keys::jws_algorithm),
        detached: s.boolean("detached", problems),
        issuer: s.string("issuer", problems),
        audience: s.string("audience", problems),
        body_claim: keys::bound(s, "body_claim", problems),
        url_claim: keys::bound(s, "url_claim", problems),
        required_claims: texts(s, "required_claims", problems),
        max_age_seconds: s.integer("max_age_seconds", 1..=MAX_TOLERANCE_SECONDS, problems),
        clock_tolerance_seconds: s.integer("clock_tolerance_seconds", 0..=600, problems),
        key_id: s.parsed("key_id", problems, Place::parse),
        signature: places(s, "signature", problems),
        parse: s.string("parse", problems),
        separator: s.string("separator", problems),
        group_separator: s.string("group_separator", problems),
        signature_key: s
            .string("signature_key", problems)
            .map(|found| found.map(|keys| keys.split('|').map(str::to_owned).collect())),
        signature_order: texts(s, "signature_order", problems),
        tag: s.string("tag", problems),
        tag_separator: s.string("tag_separator", problems),
        public_key_tag: s.string("public_key_tag", problems),
        prefix: s.string("prefix", problems),
        prefix_optional: s.boolean("prefix_optional", problems),
        max_n: s.integer("max_n", 1..=MAX_NUMBERED, problems),
        encoding: s.choice("encoding", &Encoding::NAMED, problems),
        payload: s.string("payload", problems),
        payload_variants: s.strings("payload_variants", problems),
        url_variants: each(s, "url_variants", problems, |text| named(text, &UrlVariant::NAMED)),
        timestamp: s.parsed("timestamp", problems, Place::parse),
        timestamp_unit: s.choice("timestamp_unit", &TimeUnit::NAMED, problems),
        tolerance_seconds: s.integer("tolerance_seconds", 1..=MAX_TOLERANCE_SECONDS, problems),
        tolerance_future_seconds: s.integer("tolerance_future_seconds", 0..=MAX_TOLERANCE_SECONDS, problems),
        also_require: s.strings("also_require", problems),
        require: s.parsed("require", problems, Condition::parse_all),
        each: s.parsed("each", problems, |text| {
            Pointer::parse(text).ok_or_else(|| "expected a JSON pointer, such as `/items`".to_owned())
        }),
        delivery_id: places(s, "delivery_id", problems),
        dedupe_id: places(s, "dedupe_id", problems),
        event_type: places(s, "event_type", problems),
    }
}

fn read_habits(s: &mut Section<'_>, problems: &mut Diagnostics) -> HabitsDraft {
    let kinds = KINDS.iter().map(|(name, _)| *name);
    s.describe("kind", reader::Kind::Choice(kinds.collect()));
    HabitsDraft {
        title: s.string("title", problems),
        docs: s.string("docs", problems),
        aliases: texts(s, "aliases", problems),
        notes: texts(s, "notes", problems),
        source: s.string("source", problems),
        confidence: s.choice("confidence", &CONFIDENCES, problems),
        secret_title: s.string("secret_title", problems),
        secret_env: s.string("secret_env", problems),
        dashboard: s.string("dashboard", problems),
        kind: s.parsed("kind", problems, |text| named(text, &KINDS)),
        secret_encoding: s.choice("secret_encoding", &SecretEncoding::NAMED, problems),
        secret_strip_prefix: one_or_more(s, "secret_strip_prefix", problems)
            .map(|found| found.map(|all| all.into_iter().map(|prefix| prefix.value).collect())),
        secret_normalise: s.choice("secret_normalise", &SecretNormalise::NAMED, problems),
        secret_suffix: s.string("secret_suffix", problems),
        public_key_prefix: s.string("public_key_prefix", problems),
        params: s.strings("params", problems),
        signed_over: s.choice("signed_over", &SIGNED_OVER, problems),
        jwks: s.string("jwks", problems),
        certificate: s.parsed("certificate", problems, Place::parse),
        certificate_urls: each(s, "certificate_urls", problems, UrlPattern::parse),
        visit: s.parsed("visit", problems, Place::parse),
        visit_urls: each(s, "visit_urls", problems, UrlPattern::parse),
        visit_needs: s.string("visit_needs", problems),
        scope: s.parsed("scope", problems, Place::parse),
        dedupe: each(s, "dedupe", problems, |text| named(text, &PARTS)),
        dedupe_source: s.string("dedupe_source", problems),
        id_missing: s.choice("id_missing", &ID_MISSING, problems),
        body_varies: s.boolean("body_varies", problems),
        ping: s.boolean("ping", problems),
        body_authenticated: s.boolean("body_authenticated", problems),
        sync_only: s.boolean("sync_only", problems),
        methods: each(s, "methods", problems, |text| {
            text.parse().map_err(|_invalid| format!("`{text}` is not a method"))
        }),
        get_probe: s.boolean("get_probe", problems),
        max_body: s.size("max_body", problems),
        ack_status: s
            .integer("ack_status", 200..=299, problems)
            .map(|found| found.map(status)),
        ack_body: s.string("ack_body", problems),
        sender_deadline: s.duration("sender_deadline", problems),
        retry_horizon: s.duration("retry_horizon", problems),
        disable_after: sender::disable_after(s, problems),
        sender_facts_source: s.string("sender_facts_source", problems),
        sender_facts_confidence: s.choice("sender_facts_confidence", &FactsConfidence::NAMED, problems),
    }
}

fn read_challenge(mut s: Section<'_>, problems: &mut Diagnostics) -> Option<At<ChallengeDraft>> {
    let span = s.span();
    let name = s.string("name", problems);
    let when = s.parsed("when", problems, Condition::parse_all);
    let verify_first = s.boolean("verify_first", problems);
    let hands_over_secret = s.parsed("hands_over_secret", problems, handover::place);
    let check = one_or_more(&mut s, "check", problems);
    let check_failed_status = s.integer("check_failed_status", 400..=499, problems);
    let values = s.parsed("values", problems, Values::parse);
    let answer_status = s.integer("status", 200..=299, problems);
    let content_type = s.parsed("content_type", problems, |text| {
        match text.parse::<http::HeaderValue>() {
            Ok(_) => Ok(text.to_owned()),
            Err(_) => Err("not a header value".to_owned()),
        }
    });
    let headers = s.strings("headers", problems);
    let body = s.string("body", problems);
    s.finish(problems);
    let (Some(when), Some(body)) = (when, body) else {
        let help = Some("say `when = …` and `body = …`".to_owned());
        problems.error(span, "an incomplete challenge", "`when` or `body` is missing", help);
        return None;
    };
    Some(At {
        value: ChallengeDraft {
            name: name.map_or_else(|| "challenge".to_owned(), |found| found.value),
            when: when.value,
            // There is nothing yet that could sign it.
            verify_first: hands_over_secret.is_none() && verify_first.is_none_or(|found| found.value),
            hands_over_secret: hands_over_secret.map(|found| found.value),
            check: check.map_or_else(Vec::new, |found| found.value),
            check_failed_status: check_failed_status.map(|found| status(found.value)),
            values: values.map(|found| found.value),
            status: answer_status.map_or(StatusCode::OK, |found| status(found.value)),
            content_type: content_type.map_or_else(|| "text/plain".to_owned(), |found| found.value),
            headers: headers.map_or_else(Vec::new, |found| found.value),
            body,
        },
        span,
    })
}

fn compile(name: &str, draft: Draft, span: &Range<usize>, problems: &mut Diagnostics) -> Option<Record> {
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
    if let Some(rule) = &dedupe
        && (rule.value.is_empty() || (rule.value == [Part::Id] && habits.dedupe_source.is_none()))
    {
        let label = "an id alone may decide only where the provider documents it as one per delivery";
        let help = Some("say where with `dedupe_source = \"…\"`, or use `[\"id\", \"type\", \"body\"]`".to_owned());
        problems.error(rule.span.clone(), "bad value for `dedupe`", label, help);
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

fn compile_scheme(
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
    Some(scheme)
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

fn compile_signature(
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

fn compile_time(draft: &SchemeDraft, problems: &mut Diagnostics) -> Option<TimeRule> {
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

fn compile_challenge(
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
fn refuse_secret<'t>(texts: impl IntoIterator<Item = &'t Template>, span: &Range<usize>, problems: &mut Diagnostics) {
    if texts.into_iter().any(Template::uses_secret) {
        problems.error(span.clone(), "`{secret}` outside of `payload`", "", None);
    }
}

fn template(text: &At<String>, params: &Params, problems: &mut Diagnostics) -> Option<Template> {
    match Template::parse(&text.value, &params.all()) {
        Ok(template) => Some(template),
        Err(label) => {
            problems.error(text.span.clone(), "bad template", label, None);
            None
        }
    }
}

/// A plain digest proves something only if the secret is in the text; a MAC has it as its key.
fn check_secret(kind: Kind, text: &Template, span: &Range<usize>, problems: &mut Diagnostics) {
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
fn equality(line: &At<String>, params: &Params, problems: &mut Diagnostics) -> Option<(Template, Template)> {
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

/// The second inputs that a record declares: `NAME`, or `NAME?` where a source may leave it out, or `NAME=USUAL`.
#[derive(Debug, Default)]
struct Params {
    needed: Vec<String>,
    optional: Vec<String>,
    usual: Vec<(String, String)>,
}

impl Params {
    fn of(written: Option<At<Vec<At<String>>>>) -> Self {
        let mut params = Self::default();
        for name in written.map_or_else(Vec::new, |found| found.value) {
            if let Some((name, usual)) = name.value.split_once('=') {
                params.optional.push(name.to_owned());
                params.usual.push((name.to_owned(), usual.to_owned()));
            } else if let Some(name) = name.value.strip_suffix('?') {
                params.optional.push(name.to_owned());
            } else {
                params.needed.push(name.value);
            }
        }
        params
    }

    fn all(&self) -> Vec<String> {
        self.needed.iter().chain(&self.optional).cloned().collect()
    }

    /// Without these nothing can be verified.
    fn check_needed<'n>(&self, names: impl Iterator<Item = &'n str>, span: &Range<usize>, problems: &mut Diagnostics) {
        let usual = self.usual.iter().map(|(name, _)| name);
        let always: Vec<&String> = self.needed.iter().chain(usual).collect();
        for name in names.filter(|name| !always.iter().any(|known| known == name)) {
            let label = format!("`{name}` stands in the signature or the payload");
            let help = Some(format!("declare it with `params = [\"{name}\"]`"));
            problems.error(span.clone(), format!("no parameter `{name}` is required"), label, help);
        }
    }
}

/// Whether the signature is over the bytes before the sender compressed them.
const SIGNED_OVER: [(&str, bool); 2] = [("wire", false), ("decoded", true)];

const PARSES: [&str; 7] = ["plain", "kv", "list", "tagged", "positional", "pairs", "base64_json"];

const CONFIDENCES: [(&str, Confidence); 3] = [
    ("proven", Confidence::Proven),
    ("documented", Confidence::Documented),
    ("unverified", Confidence::Unverified),
];

const PARTS: [(&str, Part); 3] = [("id", Part::Id), ("type", Part::Type), ("body", Part::Body)];

const ID_MISSING: [(&str, IdMissing); 2] = [("digest", IdMissing::Digest), ("reject", IdMissing::Reject)];

const KINDS: [(&str, Kind); 9] = [
    ("hmac", Kind::Hmac),
    ("digest", Kind::Digest),
    ("ed25519", Kind::Ed25519),
    ("ecdsa", Kind::Ecdsa),
    ("rsa", Kind::Rsa),
    ("jwt", Kind::Jwt),
    ("token", Kind::Token),
    ("basic", Kind::Basic),
    ("none", Kind::None),
];

fn named<T: Copy>(text: &str, names: &[(&str, T)]) -> Result<T, String> {
    match names.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(*value),
        None => {
            let all: Vec<_> = names.iter().map(|(name, _)| format!("\"{name}\"")).collect();
            Err(format!("expected one of {}", all.join(", ")))
        }
    }
}

/// A list whose every item is parsed; mistakes are told at the item.
fn each<T>(
    s: &mut Section<'_>,
    key: &'static str,
    problems: &mut Diagnostics,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<At<Vec<T>>> {
    let found = s.strings(key, problems)?;
    let mut out = Vec::new();
    for item in found.value {
        match parse(&item.value) {
            Ok(value) => out.push(value),
            Err(label) => problems.error(item.span, format!("bad value in `{}`", s.full(key)), label, None),
        }
    }
    Some(At {
        value: out,
        span: found.span,
    })
}

fn texts(s: &mut Section<'_>, key: &'static str, problems: &mut Diagnostics) -> Option<At<Vec<String>>> {
    each(s, key, problems, |text| Ok(text.to_owned()))
}

/// One text, or a list of texts, each with its place.
fn one_or_more(s: &mut Section<'_>, key: &'static str, problems: &mut Diagnostics) -> Option<At<Vec<At<String>>>> {
    s.describe(key, reader::Kind::Form("text, or list of texts"));
    if s.value(key)?.value.as_array().is_some() {
        return s.strings(key, problems);
    }
    let found = s.string(key, problems)?;
    let span = found.span.clone();
    Some(At {
        value: vec![found],
        span,
    })
}

/// One place, or a list of places.
fn places(s: &mut Section<'_>, key: &'static str, problems: &mut Diagnostics) -> Option<At<Vec<Place>>> {
    s.describe(key, reader::Kind::Form("place, or list of places"));
    let is_list = s.value(key)?.value.as_array().is_some();
    if is_list {
        return each(s, key, problems, Place::parse);
    }
    s.parsed(key, problems, Place::parse)
        .map(|found| found.map(|place| vec![place]))
}

fn value<T>(found: Option<At<T>>) -> Option<T> {
    found.map(|found| found.value)
}

fn text_of(found: &Option<At<String>>) -> String {
    found.as_ref().map(|found| found.value.clone()).unwrap_or_default()
}

fn non_empty(found: &Option<At<String>>) -> Option<String> {
    found
        .as_ref()
        .map(|found| found.value.clone())
        .filter(|text| !text.is_empty())
}

fn status(code: i64) -> StatusCode {
    u16::try_from(code)
        .ok()
        .and_then(|code| StatusCode::from_u16(code).ok())
        .unwrap_or(StatusCode::OK)
}
