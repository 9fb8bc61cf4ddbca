//! What the file says, with places: types are right, nothing is looked up, defaulted or compared with anything else.
//!
//! A missing key and one that is wrong (and reported) both end as `None`, so that the next layer never reports a
//! mistake twice; required keys are therefore checked here.

mod egress;
mod idempotency;
mod route;
mod tls;
mod upstream;
mod values;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::egress::Egress;
pub(super) use self::idempotency::Idempotency;
pub(super) use self::route::Route;
pub(super) use self::tls::{Tls, TlsCertificate};
pub(super) use self::upstream::{Retry, Signature, Upstream, UpstreamTls};
use self::values::{
    DELIVERING, TOKEN_KEYS, address, dedupe_rule, methods, networks, params, secret, secrets, text_or_secret, tolerance,
};
use crate::dedupe::protocol::OnDown;
use crate::diagnostic::Diagnostics;
use crate::forward::settings::Late;
use crate::key::{IdMissing, Part};
use crate::reader::{At, Document, Kind, Rate, Section};
use crate::secret::Secret;
use crate::telemetry::logging::Level;
use crate::time::Timestamp;
use crate::verify::Tolerance;
use crate::verify::record::Record;
use http::Method;
use ipnet::IpNet;

/// A whole `hooksluice.toml`.
#[derive(Debug, Default)]
pub(super) struct File {
    /// Where requests come in.
    pub listen: Option<At<SocketAddr>>,
    /// Scheme and host under which providers know us.
    pub public_url: Option<At<String>>,
    /// `[tls]`.
    pub tls: Option<At<Tls>>,
    /// `[server]`.
    pub server: Server,
    /// `[log]`.
    pub log: Log,
    /// `[limits]`.
    pub limits: Limits,
    /// `[admin]`.
    pub admin: Admin,
    /// `[store]`.
    pub store: Store,
    /// `[dedupe]`.
    pub dedupe: Dedupe,
    /// `[egress]`.
    pub egress: Egress,
    /// `[upstreams.NAME]`, in the order of the file.
    pub upstreams: Vec<(At<String>, Upstream)>,
    /// `[sources.NAME]`, in the order of the file.
    pub sources: Vec<(At<String>, Source)>,
    /// `[routes.NAME]`, in the order of the file.
    pub routes: Vec<(At<String>, Route)>,
    /// `[providers.NAME]`; `None` where the record has mistakes, so that its name is still known.
    pub providers: Vec<(At<String>, Option<Arc<Record>>)>,
}

/// `[server]`.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// Whose `X-Forwarded-*` is believed.
    pub trusted_proxies: Option<At<Vec<At<IpNet>>>>,
    /// Between the signal and the end of accepting.
    pub shutdown_delay: Option<At<Duration>>,
    /// For attempts that run when accepting ended.
    pub shutdown_grace: Option<At<Duration>>,
    /// A health answer on the public port.
    pub health_path: Option<At<String>>,
    /// Look at files, and load what has changed.
    pub watch: Option<At<bool>>,
}

/// `[log]`.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// What is logged.
    pub level: Option<At<Level>>,
}

/// `[limits]`.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// Open connections.
    pub connections: Option<At<i64>>,
    /// Bytes of a head.
    pub head: Option<At<u64>>,
    /// Time for a head.
    pub head_timeout: Option<At<Duration>>,
    /// Bytes of a body.
    pub body: Option<At<u64>>,
    /// Time for a body.
    pub body_timeout: Option<At<Duration>>,
    /// Time between requests of a connection.
    pub idle_timeout: Option<At<Duration>>,
    /// Body bytes in memory.
    pub in_flight: Option<At<u64>>,
    /// Bytes of kept answers in memory.
    pub replay_cache: Option<At<u64>>,
    /// Events that wait for admission.
    pub unadmitted: Option<At<i64>>,
}

/// `[admin]`.
#[derive(Debug, Default)]
pub(super) struct Admin {
    /// Where it listens.
    pub listen: Option<At<SocketAddr>>,
    /// Bearer token.
    pub token: Option<SecretEntry>,
    /// More names for `Host`.
    pub hosts: Option<At<Vec<At<String>>>>,
}

/// `[store]`.
#[derive(Debug, Default)]
pub(super) struct Store {
    /// Keep delivered events.
    pub retention: Option<At<Duration>>,
    /// Keep dead dispatches.
    pub dead_retention: Option<At<Duration>>,
    /// Bytes of the store's files.
    pub max_bytes: Option<At<u64>>,
    /// Bytes that stay free.
    pub min_free: Option<At<u64>>,
    /// `[store.sqlite]`.
    pub sqlite: Option<At<Sqlite>>,
    /// `[store.postgres]`.
    pub postgres: Option<At<Postgres>>,
}

/// `[store.sqlite]`.
#[derive(Debug, Default)]
pub(super) struct Sqlite {
    /// Directory of the embedded store.
    pub path: Option<At<String>>,
}

/// `[store.postgres]`.
#[derive(Debug, Default)]
pub(super) struct Postgres {
    /// Where the database is.
    pub url: Option<SecretEntry>,
}

/// `[dedupe]`.
#[derive(Debug, Default)]
pub(super) struct Dedupe {
    /// Keys made by a rule.
    pub window: Option<At<Duration>>,
    /// Keys made from a digest.
    pub digest_window: Option<At<Duration>>,
    /// `[dedupe.redis]`.
    pub redis: Option<At<Redis>>,
}

/// `[dedupe.redis]`.
#[derive(Debug, Default)]
pub(super) struct Redis {
    /// Where it is.
    pub url: Option<SecretEntry>,
    /// Names the replicas that share events.
    pub namespace: Option<At<String>>,
    /// What admission does without it.
    pub on_down: Option<At<OnDown>>,
    /// For a look.
    pub timeout: Option<At<Duration>>,
    /// For admission, before `on_down` says what happens.
    pub admit_timeout: Option<At<Duration>>,
}

/// `[sources.NAME]`.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Its path.
    pub path: Option<At<String>>,
    /// Its provider.
    pub provider: Option<At<String>>,
    /// `secret` or `secrets`; `None` when neither is written.
    pub secrets: Option<At<Vec<SecretEntry>>>,
    /// Where its events go.
    pub upstreams: Option<At<Vec<At<String>>>>,
    /// Freshness.
    pub secret_unused_after: Option<At<Duration>>,
    pub tolerance: Option<At<Tolerance>>,
    /// The dedupe rule.
    pub dedupe: Option<At<Vec<Part>>>,
    /// When the id is absent.
    pub id_missing: Option<At<IdMissing>>,
    /// `same_content = "hold"`.
    pub hold_same_content: Option<At<bool>>,
    /// Methods.
    pub methods: Option<At<Vec<At<Method>>>>,
    /// Body limit.
    pub max_body: Option<At<u64>>,
    /// Client addresses.
    pub allow: Option<At<Vec<At<IpNet>>>>,
    /// Names in clients' certificates.
    pub client_certificates: Option<At<Vec<At<String>>>>,
    /// Inbound rate.
    pub rate: Option<At<Rate>>,
    /// Status of the acknowledgement.
    pub ack_status: Option<At<i64>>,
    /// Body of the acknowledgement.
    pub ack_body: Option<At<String>>,
    /// Path and query sent upstream.
    pub forward_path: Option<At<String>>,
    /// As the provider was given it.
    pub public_url: Option<At<String>>,
    /// Take unsigned requests.
    pub accept_unsigned: Option<At<bool>>,
    /// Second inputs of the scheme, by name.
    pub params: BTreeMap<String, At<SecretEntry>>,
    /// Who answers the sender, if not the source itself.
    pub reply: Option<At<Reply>>,
    /// What becomes of a dispatch that was not answered in the sender's time.
    pub late: Option<At<Late>>,
    /// How replicas with a store each are sent requests.
    pub replicas: Option<At<Replicas>>,
    /// Its secret arrives in band.
    pub learn: Option<At<Learn>>,
}

/// Who answers a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The upstream.
    Upstream,
}

/// How often a source takes a secret in band, each time that a person lets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Learn {
    /// One secret, then it is sealed.
    Once,
}

/// How what is in front of several replicas sends them requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replicas {
    /// A sender's try again to the one that had the first.
    Sticky,
}

/// One secret reference with what is said about it.
#[derive(Debug)]
pub(super) struct SecretEntry {
    /// The whole `{ … }`.
    pub span: Range<usize>,
    /// Where the bytes come from; `None` when that was wrong and reported.
    pub from: Option<At<SecretFrom>>,
    /// For people.
    pub label: Option<At<String>>,
    /// Part of the dedupe key.
    pub scope: Option<At<String>>,
    /// When it ends.
    pub not_after: Option<At<Timestamp>>,
}

/// Where a secret's bytes come from.
#[derive(Debug)]
pub(super) enum SecretFrom {
    /// An environment variable.
    Env(String),
    /// A file.
    File(PathBuf),
    /// A file that systemd hands over (`LoadCredential=`), by its name.
    Credential(String),
    /// Each file of a directory is a secret, labelled with its name; only in a list.
    Directory(PathBuf),
    /// The configuration itself.
    Value(Secret),
    /// The configuration itself, for a second input that is no secret (a URL, an id): no warning.
    Plain(Secret),
}

impl File {
    /// Reads every table of `document`; what is wrong goes to `problems`.
    pub(super) fn read(document: &Document<'_>, problems: &mut Diagnostics) -> Self {
        let mut root = document.root();
        let file = Self {
            listen: address(&mut root, "listen", problems),
            public_url: root.string("public_url", problems),
            tls: maybe(&mut root, "tls", problems, Tls::read),
            server: one(&mut root, "server", problems, Server::read),
            log: one(&mut root, "log", problems, Log::read),
            limits: one(&mut root, "limits", problems, Limits::read),
            admin: one(&mut root, "admin", problems, Admin::read),
            store: one(&mut root, "store", problems, Store::read),
            dedupe: one(&mut root, "dedupe", problems, Dedupe::read),
            egress: one(&mut root, "egress", problems, Egress::read),
            upstreams: many(&mut root, "upstreams", problems, |_, s, p| Upstream::read(s, p)),
            sources: many(&mut root, "sources", problems, |_, s, p| Source::read(s, p)),
            routes: many(&mut root, "routes", problems, |_, s, p| Route::read(s, p)),
            providers: many(&mut root, "providers", problems, |name, section, problems| {
                warn_about_underscores(&section, problems);
                Record::read(name, section, problems).map(Arc::new)
            }),
        };
        root.not_in_this_version(&["alerts"]);
        root.finish(problems);
        file
    }
}

impl Server {
    fn read(mut section: Section<'_>, problems: &mut Diagnostics) -> Self {
        let server = Self {
            trusted_proxies: networks(&mut section, "trusted_proxies", problems),
            shutdown_delay: section.duration("shutdown_delay", problems),
            shutdown_grace: section.duration("shutdown_grace", problems),
            health_path: section.string("health_path", problems),
            watch: section.boolean("watch", problems),
        };
        section.finish(problems);
        server
    }
}

impl Log {
    fn read(mut section: Section<'_>, problems: &mut Diagnostics) -> Self {
        let log = Self {
            level: section.parsed("level", problems, Level::parse),
        };
        section.finish(problems);
        log
    }
}

impl Limits {
    fn read(mut section: Section<'_>, problems: &mut Diagnostics) -> Self {
        let limits = Self {
            connections: section.integer("connections", 1..=1_000_000, problems),
            head: section.size("head", problems),
            head_timeout: section.duration("head_timeout", problems),
            body: section.size("body", problems),
            body_timeout: section.duration("body_timeout", problems),
            idle_timeout: section.duration("idle_timeout", problems),
            in_flight: section.size("in_flight", problems),
            replay_cache: section.size("replay_cache", problems),
            unadmitted: section.integer("unadmitted", 1..=10_000_000, problems),
        };
        section.finish(problems);
        limits
    }
}

impl Admin {
    fn read(mut section: Section<'_>, problems: &mut Diagnostics) -> Self {
        let admin = Self {
            listen: address(&mut section, "listen", problems),
            token: secret(&mut section, "token", TOKEN_KEYS, problems),
            hosts: section.strings("hosts", problems),
        };
        section.finish(problems);
        admin
    }
}

impl Store {
    fn read(mut section: Section<'_>, problems: &mut Diagnostics) -> Self {
        let store = Self {
            retention: section.duration("retention", problems),
            dead_retention: section.duration("dead_retention", problems),
            max_bytes: section.size("max_bytes", problems),
            min_free: section.size("min_free", problems),
            sqlite: maybe(&mut section, "sqlite", problems, |mut sqlite, problems| {
                let path = sqlite.string("path", problems);
                sqlite.finish(problems);
                Sqlite { path }
            }),
            postgres: maybe(&mut section, "postgres", problems, |mut postgres, problems| {
                require(&mut postgres, "url", "{ env = \"DATABASE_URL\" }", problems);
                let url = text_or_secret(&mut postgres, "url", problems);
                postgres.finish(problems);
                Postgres { url }
            }),
        };
        section.finish(problems);
        store
    }
}

impl Dedupe {
    fn read(mut section: Section<'_>, problems: &mut Diagnostics) -> Self {
        let dedupe = Self {
            window: section.duration("window", problems),
            digest_window: section.duration("digest_window", problems),
            redis: maybe(&mut section, "redis", problems, Redis::read),
        };
        section.finish(problems);
        dedupe
    }
}

impl Redis {
    fn read(mut section: Section<'_>, problems: &mut Diagnostics) -> Self {
        require(&mut section, "url", "{ env = \"REDIS_URL\" }", problems);
        let redis = Self {
            url: text_or_secret(&mut section, "url", problems),
            namespace: section.string("namespace", problems),
            on_down: section.choice(
                "on_down",
                &[("store", OnDown::Store), ("refuse", OnDown::Refuse)],
                problems,
            ),
            timeout: section.duration("timeout", problems),
            admit_timeout: section.duration("admit_timeout", problems),
        };
        section.finish(problems);
        redis
    }
}

impl Source {
    fn read(mut section: Section<'_>, problems: &mut Diagnostics) -> Self {
        require(&mut section, "path", "\"/webhooks/stripe\"", problems);
        require(&mut section, "provider", "\"stripe\"", problems);
        require(&mut section, "upstreams", "[\"app\"]", problems);
        let source = Self {
            path: section.string("path", problems),
            provider: section.string("provider", problems),
            secrets: secrets(&mut section, problems),
            secret_unused_after: section.duration("secret_unused_after", problems),
            upstreams: section.strings("upstreams", problems),
            tolerance: tolerance(&mut section, problems),
            dedupe: dedupe_rule(&mut section, problems),
            id_missing: section.choice(
                "id_missing",
                &[("digest", IdMissing::Digest), ("reject", IdMissing::Reject)],
                problems,
            ),
            hold_same_content: section.choice("same_content", &[("hold", true), ("off", false)], problems),
            methods: methods(&mut section, &DELIVERING, problems),
            max_body: section.size("max_body", problems),
            allow: networks(&mut section, "allow", problems),
            client_certificates: section.strings("client_certificates", problems),
            rate: section.rate("rate", problems),
            ack_status: section.integer("ack_status", 200..=299, problems),
            ack_body: section.string("ack_body", problems),
            forward_path: section.string("forward_path", problems),
            public_url: section.string("public_url", problems),
            accept_unsigned: section.boolean("accept_unsigned", problems),
            params: params(&mut section, problems),
            reply: reply(&mut section, problems),
            late: section.choice("late", &[("dead", Late::Dead), ("queue", Late::Queue)], problems),
            replicas: section.choice("replicas", &[("sticky", Replicas::Sticky)], problems),
            learn: section.choice("learn", &[("once", Learn::Once)], problems),
        };
        section.finish(problems);
        source
    }
}

fn reply(section: &mut Section<'_>, problems: &mut Diagnostics) -> Option<At<Reply>> {
    section.describe("reply", Kind::Choice(vec!["upstream"]));
    section.parsed("reply", problems, |text| match text {
        "upstream" => Ok(Reply::Upstream),
        _ => Err("expected \"upstream\"; without the key a source acknowledges by itself".to_owned()),
    })
}

/// nginx and others drop such headers without a word, and the sender then looks unsigned.
fn warn_about_underscores(section: &Section<'_>, problems: &mut Diagnostics) {
    for text in section.all_strings() {
        let names = text.value.split("header:").skip(1);
        let mut names = names.map(|rest| rest.split(|c: char| !is_token(c)).next().unwrap_or(""));
        if names.any(|name| name.contains('_')) {
            problems.warning(
                text.span,
                format!("`{}` reads a header with an underscore in its name", section.path()),
                "some proxies in front drop such headers without a word",
                Some("with nginx set `underscores_in_headers on`".to_owned()),
            );
        }
    }
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

fn require(section: &mut Section<'_>, key: &'static str, example: &str, problems: &mut Diagnostics) {
    if !section.has_required(key) {
        problems.error(
            section.span(),
            format!("`{}` has no `{key}`", section.path()),
            "required here",
            Some(format!("add `{key} = {example}`")),
        );
    }
}

fn one<'t, T: Default>(
    section: &mut Section<'t>,
    key: &'static str,
    problems: &mut Diagnostics,
    read: impl FnOnce(Section<'t>, &mut Diagnostics) -> T,
) -> T {
    match section.section(key, problems) {
        Some(inner) => read(inner, problems),
        None => T::default(),
    }
}

/// A table that says something by being there.
fn maybe<'t, T>(
    section: &mut Section<'t>,
    key: &'static str,
    problems: &mut Diagnostics,
    read: impl FnOnce(Section<'t>, &mut Diagnostics) -> T,
) -> Option<At<T>> {
    let inner = section.section(key, problems)?;
    let span = section.key_span(key)?;
    Some(At {
        value: read(inner, problems),
        span,
    })
}

fn many<'t, T>(
    section: &mut Section<'t>,
    key: &'static str,
    problems: &mut Diagnostics,
    read: impl Fn(&str, Section<'t>, &mut Diagnostics) -> T,
) -> Vec<(At<String>, T)> {
    let mut out = Vec::new();
    for (name, inner) in section.named(key, problems) {
        if !is_name(&name.value) {
            problems.error(
                name.span.clone(),
                format!("bad name in `{}`", section.full(key)),
                "names are 1 to 64 of a-z, A-Z, 0-9, `-`, `_` and `.`, and start with a letter or digit",
                None,
            );
        }
        let value = read(&name.value, inner, problems);
        out.push((name, value));
    }
    out
}

/// Names go into header values, metric labels, URLs and keys of other systems: one plain alphabet for all of them.
fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}
