//! From TOML to [`Record`]: what was written, with places, then compiled; every mistake is told.

use std::ops::Range;
use std::time::Duration;

use http::{Method, StatusCode};

use crate::diagnostic::Diagnostics;
use crate::reader::{self, At, Document, Section};
use crate::verify::challenge::{Condition, Values};
use crate::verify::elsewhere::UrlPattern;
use crate::verify::handover;
use crate::verify::json::Pointer;
use crate::verify::jws::JwsAlgorithm;
use crate::verify::mac::Hash;
use crate::verify::place::Place;
use crate::verify::presets;
use crate::verify::public_key::{Padding, SignatureFormat};
use crate::verify::secrets::{SecretEncoding, SecretNormalise};
use crate::verify::signature::Encoding;
use crate::verify::url::UrlVariant;
use crate::verify::window::TimeUnit;

use super::sender::{self, DisableRule, FactsConfidence};
use super::{Confidence, IdMissing, Kind, Part, Record, Scheme, TimeRule};

use self::challenge::template;
use self::compile::compile;
use self::keys::BoundDraft;
use self::words::{
    CONFIDENCES, ID_MISSING, KINDS, PARSES, PARTS, Params, SIGNED_OVER, each, named, one_or_more, places, status,
    texts, value,
};

mod challenge;
mod compile;
mod keys;
mod words;

/// Numbered signature headers are looked for up to this number at most (DocuSign: 100).
const MAX_NUMBERED: i64 = 100;

/// Most texts besides `payload` that are tried.
const MAX_PAYLOAD_VARIANTS: usize = 3;

/// What a provider may deliver with.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

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
        encrypted: Pointer,
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
        encrypted: s.parsed("encrypted", problems, |text| {
            let pointer = text.strip_prefix("json:").and_then(Pointer::parse);
            pointer.ok_or_else(|| "expected `json:/POINTER`".to_owned())
        }),
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
        methods: each(s, "methods", problems, |text| match METHODS.contains(&text) {
            true => text.parse().map_err(|_invalid| format!("`{text}` is not a method")),
            false => Err(format!("expected one of {}, in capitals", METHODS.join(", "))),
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
