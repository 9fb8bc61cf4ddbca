//! [`Record`]: one provider's signing scheme and habits, as data.
//!
//! The same language serves the presets under `config/providers/` and a user's `[providers.NAME]`. A record is read
//! once, compiled, and then works in both directions: [`super::Verifier::verify`] and [`super::Verifier::sign`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};

use super::challenge::{Challenge, Values};
use super::elsewhere::{KeysAt, VisitRule};
use super::json::Pointer;
use super::jwt::TokenRules;
use super::place::{Fields, Place};
use super::secrets::{SecretEncoding, SecretNormalise};
use super::template::Template;

mod explain;
mod mask;
mod read;
mod scheme;
mod sender;
mod words;

pub use self::explain::{Explanation, Fact};
pub use self::sender::{DisableRule, FactsConfidence};
pub use self::words::{Confidence, Decide, IdMissing, Kind, Part};

pub(super) use self::scheme::{Scheme, TimeRule};

/// One provider, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) docs: Option<String>,
    pub(super) aliases: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) source: Option<String>,
    pub(super) confidence: Confidence,
    pub(super) secret_title: Option<String>,
    pub(super) secret_env: Option<String>,
    pub(super) dashboard: Option<String>,
    pub(super) kind: Kind,
    pub(super) secret_encoding: SecretEncoding,
    /// Removed one after the other, each if it is there; see [`super::secrets`].
    pub(super) secret_strip_prefix: Vec<String>,
    pub(super) secret_normalise: Option<SecretNormalise>,
    pub(super) secret_suffix: String,
    /// A secret with this in front is an Ed25519 public key, in a scheme of secrets (Standard Webhooks: `whpk_`).
    pub(super) public_key_prefix: Option<String>,
    pub(super) params: Vec<String>,
    /// Second inputs that a source may leave out.
    pub(super) optional_params: Vec<String>,
    /// What a second input is when the source leaves it out.
    pub(super) usual_params: Vec<(String, String)>,
    /// The signature is over the bytes before the sender compressed them.
    pub(super) signed_over_decoded: bool,
    /// Where a body holds its text encrypted under the secret, in which hand-shakes and names are then looked for.
    pub(super) encrypted: Option<Pointer>,
    /// Header families, in the order in which they are tried; never empty. A request is judged by one of them alone.
    pub(super) schemes: Vec<Scheme>,
    /// Where its keys lie, if a source need not give them.
    pub(super) keys_at: Option<KeysAt>,
    /// What a verified hand-shake wants visited.
    pub(super) visit: Option<VisitRule>,
    /// What the families' conditions ask the body for, where they may.
    pub(super) when_pointers: Vec<Pointer>,
    pub(super) scope: Option<Place>,
    pub(super) challenges: Vec<Challenge>,
    /// What the answers MAC for anybody, and what is therefore signed by nobody.
    pub(super) answerable: Vec<Values>,
    pub(super) dedupe: Vec<Part>,
    pub(super) dedupe_source: Option<String>,
    pub(super) id_missing: IdMissing,
    pub(super) body_varies: bool,
    pub(super) ping: bool,
    pub(super) body_authenticated: bool,
    pub(super) sync_only: bool,
    pub(super) methods: Vec<Method>,
    pub(super) get_probe: bool,
    pub(super) max_body: Option<u64>,
    pub(super) ack_status: StatusCode,
    pub(super) ack_body: Bytes,
    pub(super) sender_deadline: Option<Duration>,
    pub(super) retry_horizon: Option<Duration>,
    pub(super) disable_after: Option<DisableRule>,
    pub(super) facts_source: Option<String>,
    pub(super) facts_confidence: FactsConfidence,
}

impl Record {
    /// Its name in `provider = "NAME"`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name for people.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The provider's own page about it.
    pub fn docs(&self) -> Option<&str> {
        self.docs.as_deref()
    }

    /// Other names that find it.
    pub fn aliases(&self) -> &[String] {
        &self.aliases
    }

    /// What surprises people about this provider.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Where the scheme was read.
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// How sure the record is of its scheme.
    pub fn confidence(&self) -> Confidence {
        self.confidence
    }

    /// What the provider calls the secret.
    pub fn secret_title(&self) -> Option<&str> {
        self.secret_title.as_deref()
    }

    /// The usual name of an environment variable that holds the secret.
    pub fn secret_env(&self) -> String {
        self.secret_env.clone().unwrap_or_else(|| {
            let name = self.name.to_uppercase().replace(['-', '.'], "_");
            // The name of a variable does not start with a digit.
            let before = if name.starts_with(|c: char| c.is_ascii_digit()) {
                "_"
            } else {
                ""
            };
            format!("{before}{name}_WEBHOOK_SECRET")
        })
    }

    /// Where the provider is given the URL.
    pub fn dashboard(&self) -> Option<&str> {
        self.dashboard.as_deref()
    }

    /// How a request proves where it comes from.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The names of second inputs that a source must give (`params`).
    pub fn params(&self) -> &[String] {
        &self.params
    }

    /// The names of second inputs that a source may give besides.
    pub fn optional_params(&self) -> &[String] {
        &self.optional_params
    }

    /// Whether a source may give a second input with this name.
    pub fn has_param(&self, name: &str) -> bool {
        self.params
            .iter()
            .chain(&self.optional_params)
            .any(|known| known == name)
    }

    /// The record with the names that a source gives as parameters put where they stand for something. What is wrong with
    /// one is told with its name.
    pub(super) fn with_params(&self, params: &BTreeMap<String, String>) -> Result<Option<Self>, (String, String)> {
        let mut named = None;
        for (index, scheme) in self.schemes.iter().enumerate() {
            let form = scheme.signature.with_params(params)?;
            if let Some(form) = form
                && let Some(scheme) = named.get_or_insert_with(|| self.clone()).schemes.get_mut(index)
            {
                scheme.signature = form;
            }
        }
        Ok(named)
    }

    /// The default `dedupe` rule.
    pub fn dedupe(&self) -> &[Part] {
        &self.dedupe
    }

    /// Where the provider documents that its id is one per delivery; always there when the rule is `["id"]` alone.
    pub fn dedupe_source(&self) -> Option<&str> {
        self.dedupe_source.as_deref()
    }

    /// The default for requests without an id.
    pub fn id_missing(&self) -> IdMissing {
        self.id_missing
    }

    /// Retries of one delivery may differ in their bytes.
    pub fn body_varies(&self) -> bool {
        self.body_varies
    }

    /// Its notifications carry no content of their own, so equal ones are not "the same again".
    pub fn ping(&self) -> bool {
        self.ping
    }

    /// Whether a rule of these parts takes no request for another's duplicate: what only rings sends the same id and the
    /// same body for the next change too.
    pub fn is_never_same(&self, parts: &[Part]) -> bool {
        self.ping && parts.contains(&Part::Body)
    }

    /// Whether the signature covers the whole body.
    pub fn body_authenticated(&self) -> bool {
        self.body_authenticated
    }

    /// Whether the delivery id is covered by the signature, in every header family.
    pub fn id_authenticated(&self) -> bool {
        (self.kind.signs_payload() || self.kind == Kind::Jwt)
            && self.schemes.iter().all(|scheme| {
                let ids = if scheme.dedupe_id.is_empty() {
                    &scheme.delivery_id
                } else {
                    &scheme.dedupe_id
                };
                !ids.is_empty() && ids.iter().all(|place| scheme.covers(place))
            })
    }

    /// The HTTP answer carries meaning, so that a store-and-forward source cannot serve this provider.
    pub fn sync_only(&self) -> bool {
        self.sync_only
    }

    /// Methods the provider delivers with.
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// The provider probes with an unsigned `GET`.
    pub fn get_probe(&self) -> bool {
        self.get_probe
    }

    /// Largest body the provider sends, in bytes, where it is above the default limit.
    pub fn max_body(&self) -> Option<u64> {
        self.max_body
    }

    /// Status of the acknowledgement.
    pub fn ack_status(&self) -> StatusCode {
        self.ack_status
    }

    /// Body of the acknowledgement.
    pub fn ack_body(&self) -> &Bytes {
        &self.ack_body
    }

    /// How long the sender waits for an answer.
    pub fn sender_deadline(&self) -> Option<Duration> {
        self.sender_deadline
    }

    /// For how long the sender repeats a delivery that failed.
    pub fn retry_horizon(&self) -> Option<Duration> {
        self.retry_horizon
    }

    /// When the sender stops sending for good.
    pub fn disable_after(&self) -> Option<DisableRule> {
        self.disable_after
    }

    /// Where deadline, horizon and the rule were read.
    pub fn facts_source(&self) -> Option<&str> {
        self.facts_source.as_deref()
    }

    /// How sure they are. A hint must not be told as a fact.
    pub fn facts_confidence(&self) -> FactsConfidence {
        self.facts_confidence
    }

    /// Whether the public URL is signed, so that a source needs `public_url`.
    pub fn needs_public_url(&self) -> bool {
        self.schemes.iter().any(|scheme| scheme.uses_url)
    }

    /// The record's own tolerance for old signatures, where it judges age: the longest of its families.
    pub fn tolerance(&self) -> Option<Duration> {
        let windows = self.schemes.iter().filter_map(|scheme| scheme.time.as_ref()?.window);
        let ages = self.schemes.iter().filter_map(|scheme| scheme.token.as_ref()?.max_age);
        windows.map(|window| window.past).chain(ages).max()
    }

    /// Whether a time is signed at all.
    pub fn signs_time(&self) -> bool {
        let has_age = |rules: &TokenRules| rules.max_age.is_some();
        let signs = |scheme: &Scheme| scheme.time.is_some() || scheme.token.as_ref().is_some_and(has_age);
        self.schemes.iter().any(signs)
    }

    /// Names of the hand-shakes that are answered here.
    pub fn challenges(&self) -> impl Iterator<Item = &str> {
        self.challenges.iter().map(|challenge| challenge.name.as_str())
    }

    /// All headers that it looks at, for checks of their names.
    pub fn headers(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        for scheme in &self.schemes {
            let ids = scheme
                .delivery_id
                .iter()
                .chain(&scheme.dedupe_id)
                .chain(&scheme.event_type);
            let time = scheme.time.iter().map(|rule| &rule.place);
            let of_claims = scheme.token.iter().flat_map(TokenRules::places);
            let places = ids
                .chain(of_claims)
                .chain(&scheme.signature.places)
                .chain(scheme.texts().flat_map(Template::places))
                .chain(time);
            names.extend(places.chain(&self.scope).filter_map(|place| match place {
                Place::Header(name) => Some(name.as_str()),
                _ => None,
            }));
        }
        names
    }

    /// Whether a signature or a token stands in the header with this name (in lower case).
    pub fn signs_in_header(&self, name: &str) -> bool {
        self.signature_places().any(|place| match place {
            Place::Header(known) => known.as_str() == name,
            _ => false,
        })
    }

    /// Whether a signature or a token stands in the query parameter with this name.
    pub fn signs_in_query(&self, name: &str) -> bool {
        self.signature_places().any(|place| match place {
            Place::Query(known) => known == name,
            _ => false,
        })
    }

    fn signature_places(&self) -> impl Iterator<Item = &Place> {
        self.schemes.iter().flat_map(|scheme| &scheme.signature.places)
    }

    /// The index of the header family that this head belongs to; the first one when it belongs to none. Where all
    /// signatures stand in the body (SNS), the body decides.
    pub(super) fn scheme_of(&self, fields: &Fields<'_>) -> usize {
        let fits = |scheme: &Scheme| scheme.when.iter().all(|condition| condition.holds(fields));
        self.schemes.iter().position(fits).unwrap_or_default()
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.title, self.name)
    }
}
