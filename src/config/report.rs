//! What is said about a configuration: problems for people and for programs, and what was loaded.

use std::fmt::Write as _;

use http::Method;
use ipnet::IpNet;
use serde::Serialize;

use crate::config::Config;
use crate::config::mask::mask;
use crate::dedupe::protocol::OnDown;
use crate::dedupe::settings::{Namespace, RedisSettings};
use crate::diagnostic::{Diagnostics, Severity, line_and_column};
use crate::forward::settings::{Late, SignaturePolicy, UpstreamSettings};
use crate::id::UpstreamName;
use crate::ingest::clients::{ClientName, Clients};
use crate::ingest::source::Source;
use crate::net::connections::{Protocol, Remote, bare_host};
use crate::net::egress::Egress;
use crate::net::tls::Identity;
use crate::reader::{show_duration, show_size};
use crate::routes::idempotency::{IdempotencySettings, OnAmbiguous};
use crate::routes::settings::RouteSettings;
use crate::store::settings::Place;
use crate::verify::Hindrance;

/// The problems of one configuration, with a copy of its text in which every possible secret is masked.
#[derive(Clone, Debug)]
pub struct Report {
    name: String,
    masked: String,
    problems: Diagnostics,
}

/// One problem as `check --json` prints it.
#[derive(Debug, Serialize)]
pub struct Line<'r> {
    /// `error` or `warning`.
    pub severity: &'static str,
    /// Name of the configuration.
    pub file: &'r str,
    /// From 1; null where a problem has no place.
    pub line: Option<usize>,
    /// In characters, from 1; null where a problem has no place.
    pub column: Option<usize>,
    /// The short fact.
    pub message: &'r str,
    /// What to say at the place itself.
    pub label: &'r str,
    /// What the operator can do.
    pub help: Option<&'r str>,
}

impl Report {
    pub(super) fn new(name: &str, text: &str, problems: Diagnostics) -> Self {
        Self {
            name: name.to_owned(),
            masked: mask(text),
            problems,
        }
    }

    /// For a configuration that has no text.
    pub(super) fn without_places(name: &str, problems: Diagnostics) -> Self {
        Self {
            name: name.to_owned(),
            masked: String::new(),
            problems: problems.without_places(),
        }
    }

    /// One error that has no place.
    pub fn of_error(name: &str, message: impl Into<String>, help: &str) -> Self {
        let mut problems = Diagnostics::new();
        problems.error(None, message, "", Some(help.to_owned()));
        Self::without_places(name, problems)
    }

    /// The problems themselves.
    pub fn problems(&self) -> &Diagnostics {
        &self.problems
    }

    /// For a terminal: each problem with its line of the file; empty when there is none.
    pub fn render(&self, color: bool) -> String {
        self.problems.render(&self.name, &self.masked, color)
    }

    /// For programs: each problem with its place.
    pub fn lines(&self) -> Vec<Line<'_>> {
        self.problems
            .iter()
            .map(|problem| {
                let start = problem.span.as_ref().map(|span| span.start);
                let place = start.map(|offset| line_and_column(&self.masked, offset));
                Line {
                    severity: problem.severity.as_str(),
                    file: &self.name,
                    line: place.map(|(line, _)| line),
                    column: place.map(|(_, column)| column),
                    message: &problem.message,
                    label: &problem.label,
                    help: problem.help.as_deref(),
                }
            })
            .collect()
    }

    /// How many problems have this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.problems
            .iter()
            .filter(|problem| problem.severity == severity)
            .count()
    }
}

/// What would run, for a person who asked `check`.
pub(super) fn summary(name: &str, config: &Config, report: &Report) -> String {
    let mut out = String::new();
    let judgement = match report.count(Severity::Warning) {
        0 => "is good".to_owned(),
        1 => "loads, with 1 warning".to_owned(),
        n => format!("loads, with {n} warnings"),
    };
    let mut line = |text: std::fmt::Arguments<'_>| {
        // Writing to a string does not fail.
        if out.write_fmt(text).is_ok() {
            out.push('\n');
        }
    };
    let Config { fixed, live } = config;
    let store = &fixed.store;
    line(format_args!("{name} {judgement}"));
    line(format_args!("listen    {}", fixed.listen));
    if let Some(tls) = &live.tls {
        for (index, identity) in tls.identities.iter().enumerate() {
            line(format_args!("tls       {}", describe_identity(identity, index == 0)));
        }
        if tls.client_authorities > 0 {
            line(format_args!(
                "clients   are asked for certificates; CAs that may have signed one: {}",
                tls.client_authorities
            ));
        }
    }
    line(format_args!(
        "admin     {}{}",
        fixed.admin.listen,
        if fixed.admin.token.is_some() {
            ", with a token"
        } else {
            ""
        }
    ));
    line(format_args!(
        "store     {}, at most {}; delivered events for {}, dead ones for {}; keys for {}",
        store.place,
        show_size(store.max_bytes),
        show_duration(store.retention),
        show_duration(store.dead_retention),
        show_duration(live.window),
    ));
    if let Some(redis) = &fixed.redis {
        line(format_args!("redis     {}", describe_redis(redis, &store.place)));
    }
    for upstream in &live.upstreams {
        let rate = upstream.rate.map(|rate| format!(", {rate}")).unwrap_or_default();
        line(format_args!(
            "upstream  {}: {}, {} at once{rate}{}",
            upstream.name,
            describe_remote(&upstream.remote),
            upstream.concurrency,
            describe_signature(&upstream.signature),
        ));
    }
    if let Some(egress) = live
        .upstreams
        .first()
        .and_then(|first| describe_egress(&first.remote.egress))
    {
        line(format_args!("egress    {egress}"));
    }
    for source in &live.sources {
        line(format_args!("source    {}", describe(source)));
    }
    for route in &live.routes {
        line(format_args!("route     {}", describe_route(route)));
        if let Some(keys) = &route.idempotency {
            line(format_args!("keys      {}: {}", route.name, describe_keys(keys)));
        }
    }
    for source in &live.sources {
        if let Some(hindrance) = stays_as_signed(source, &live.upstreams) {
            line(format_args!(
                "note      source {}: {hindrance}, so late forwards carry what the provider signed, and an app that judges the \
                 signed time refuses them; signature = \"standard-webhooks\" on the upstream signs what every provider sends",
                source.name
            ));
        }
    }
    if live.sources.iter().any(|source| source.rate.is_some()) {
        line(format_args!("note      a source's rate holds per process"));
    }
    if let Place::Postgres(_) = store.place {
        let alone = |upstream: &&UpstreamSettings| upstream.rate.is_some() && upstream.burst.unwrap_or(1) < 2;
        for upstream in live.upstreams.iter().filter(alone) {
            line(format_args!(
                "note      upstream {}: a rate with a burst of one can only be one replica's; set burst to at least the number \
                 of replicas",
                upstream.name
            ));
        }
    }
    if let Place::Sqlite(_) = store.place
        && (fixed.redis.is_some() || live.upstreams.iter().any(|upstream| upstream.rate.is_some()))
    {
        line(format_args!(
            "note      an upstream's concurrency and rate hold per process: several with a store each have the whole of it \
             each; a shared [store.postgres] divides it"
        ));
    }
    out
}

fn describe_identity(identity: &Identity, is_default: bool) -> String {
    let certificate = &identity.certificate;
    let addresses = certificate.addresses.iter().map(ToString::to_string);
    let names: Vec<String> = certificate.dns_names.iter().cloned().chain(addresses).collect();
    let names = if names.is_empty() {
        "a certificate for no name".to_owned()
    } else {
        names.join(", ")
    };
    let default = if is_default {
        "; shown for any other name too"
    } else {
        ""
    };
    format!("{names}: until {}{default}", certificate.not_after)
}

fn describe_remote(remote: &Remote) -> String {
    let protocol = match remote.protocol {
        Protocol::Http1 => "",
        Protocol::H2c => " over h2c",
        Protocol::H2 => " over h2",
    };
    let mut tls = String::new();
    if let Some(settings) = &remote.tls {
        if !settings.trusts_the_system() {
            tls.push_str(", its certificate from the given ca only");
        }
        if settings.name() != bare_host(&remote.origin) {
            tls.push_str(&format!(", its certificate for {}", settings.name()));
        }
        if settings.has_certificate() {
            tls.push_str(", with a client certificate");
        }
    }
    format!("{}{protocol}{tls}", remote.origin.to_string().trim_end_matches('/'))
}

fn describe_signature(policy: &SignaturePolicy) -> String {
    match policy {
        SignaturePolicy::Auto => String::new(),
        SignaturePolicy::Original => "; signatures as they came".to_owned(),
        SignaturePolicy::Fresh => "; signed anew in each provider's scheme".to_owned(),
        SignaturePolicy::StandardWebhooks(secrets) => match secrets.count() {
            1 => "; signed in the scheme of Standard Webhooks".to_owned(),
            count => format!("; signed in the scheme of Standard Webhooks with each of {count} secrets"),
        },
    }
}

/// Why forwards of the source under `auto` can come too late for an app that judges the signed time.
fn stays_as_signed(source: &Source, upstreams: &[UpstreamSettings]) -> Option<Hindrance> {
    let record = source.verifier.record();
    let by_auto = |to: &UpstreamName| {
        let found = upstreams.iter().find(|upstream| upstream.name == *to);
        found.is_some_and(|upstream| upstream.signature == SignaturePolicy::Auto)
    };
    let matters = record.signs_time() && source.upstreams.iter().any(by_auto);
    record.hindrance().filter(|_hindrance| matters)
}

fn describe_egress(egress: &Egress) -> Option<String> {
    let list = |networks: &[IpNet]| {
        let shown: Vec<String> = networks.iter().map(IpNet::to_string).collect();
        shown.join(", ")
    };
    let allow = egress.allow.as_deref().map(|allow| format!("only to {}", list(allow)));
    let deny = (!egress.deny.is_empty()).then(|| format!("never to {}", list(&egress.deny)));
    let parts: Vec<String> = allow.into_iter().chain(deny).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn describe_redis(redis: &RedisSettings, place: &Place) -> String {
    let timeout = show_duration(redis.timeout);
    let namespace = redis.namespace.as_ref().map(Namespace::as_str);
    match place {
        Place::Sqlite(_) => format!(
            "{}, namespace {}; a look takes {timeout} at most; admission waits {}, then {}",
            redis.address,
            namespace.unwrap_or_default(),
            show_duration(redis.admit_timeout),
            match redis.on_down {
                OnDown::Store => "the store decides alone",
                OnDown::Refuse => "goes on waiting",
            }
        ),
        Place::Postgres(_) => format!(
            "{}, namespace {}the store's own identity; a look takes {timeout} at most",
            redis.address,
            namespace.map(|name| format!("{name} with ")).unwrap_or_default(),
        ),
    }
}

fn describe_route(route: &RouteSettings) -> String {
    let limit = match route.max_body {
        Some(bytes) => format!("bodies up to {}", show_size(bytes)),
        None => "bodies of any size".to_owned(),
    };
    format!(
        "{}: {} to {}; an answer within {}, silent for {} at most; {limit}",
        route.name,
        route.pattern,
        route.upstream.name,
        show_duration(route.timeout),
        show_duration(route.idle_timeout),
    )
}

fn describe_keys(keys: &IdempotencySettings) -> String {
    let methods: Vec<&str> = keys.methods.iter().map(Method::as_str).collect();
    let required = if keys.required { "required" } else { "not required" };
    format!(
        "Idempotency-Key on {}, {required}; of {}; known for {}; bodies up to {}; answers kept up to {}; a call of which \
         nobody knows {}",
        methods.join(" and "),
        keys.scope,
        show_duration(keys.ttl),
        show_size(keys.max_body),
        show_size(keys.max_stored),
        match keys.on_ambiguous {
            OnAmbiguous::Hold => "waits for a person",
            OnAmbiguous::Retry => "is made again",
        }
    )
}

fn describe(source: &Source) -> String {
    let record = source.verifier.record();
    let upstreams: Vec<&str> = source.upstreams.iter().map(UpstreamName::as_str).collect();
    let parts = &source.dedupe.parts;
    let again = match record.is_never_same(parts) {
        true => "no delivery is taken for a duplicate".to_owned(),
        false => {
            let parts: Vec<&str> = parts.iter().map(|part| part.as_str()).collect();
            format!("the same again by {}", parts.join(" + "))
        }
    };
    let tolerance = match source.verifier.tolerance() {
        Some(tolerance) => format!(", {} old at most", show_duration(tolerance)),
        None if record.signs_time() => {
            ", a signed time whose age is not judged (only the dedupe rule knows what is sent again)".to_owned()
        }
        None => String::new(),
    };
    let mut notes = String::new();
    match &source.clients {
        Some(Clients::Any) => notes.push_str("; only with a client certificate"),
        Some(Clients::Named(names)) => {
            let names: Vec<&str> = names.iter().map(ClientName::as_str).collect();
            notes.push_str(&format!("; only with a client certificate for {}", names.join(" or ")));
        }
        None => {}
    }
    if !record.body_authenticated() {
        notes.push_str("; its signature does NOT cover the body");
    }
    if let Some(synchronous) = &source.synchronous {
        notes.push_str(&format!(
            "; its sender waits {} for the upstream's own answer, and what is late {}",
            show_duration(synchronous.patience),
            match synchronous.late {
                Late::Dead => "is dead",
                Late::Queue => "is queued",
            }
        ));
    }
    format!(
        "{}: {} from {} ({}) to {}; up to {}{tolerance}; {again}{notes}",
        source.name,
        source.path,
        record.name(),
        record.confidence().as_str(),
        upstreams.join(", "),
        show_size(source.max_body),
    )
}
