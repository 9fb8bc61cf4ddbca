//! `[sources.NAME]`: the record of its provider, with what the source says on top.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::uri::PathAndQuery;

use super::{or, span, upstream, upstream_names, within};
use crate::config::defaults::{self, Quantity, Setting};
use crate::config::file::{self, File, SecretFrom};
use crate::config::secrets::{Secrets, is_label};
use crate::diagnostic::{Diagnostics, did_you_mean};
use crate::forward::settings::{Late, Synchronous};
use crate::id::{SourceName, UpstreamName};
use crate::ingest::clients::{ClientName, Clients};
use crate::ingest::source::{Limits, Source};
use crate::key::{Decide, DedupeRule, Part};
use crate::net::fetch::Fetching;
use crate::reader::At;
use crate::telemetry::metrics::SenderRule;
use crate::time::Timestamp;
use crate::verify::record::{Kind, Record};
use crate::verify::url::PublicUrl;
use crate::verify::{SourceSecret, Verifier, VerifierOptions, presets};

mod admission;
mod dedupe;
mod path;
mod secrets;

pub(super) use self::path::plain_path;
use self::path::refuse_shared_paths;
use self::secrets::refuse_shared_directories;

/// `own_hosts` are those for which the listener has certificates.
pub(super) fn build_all(
    file: &File,
    limits: &Limits,
    secrets: Secrets<'_>,
    own_hosts: &[String],
    ground: &upstream::Ground<'_>,
    problems: &mut Diagnostics,
) -> Vec<Source> {
    let records = own_records(file, problems);
    let sources = file
        .sources
        .iter()
        .filter_map(|(name, written)| {
            let builder = Builder {
                file,
                limits,
                records: &records,
                secrets,
                own_hosts,
                ground,
                name: &name.value,
                written,
            };
            builder.build(problems)
        })
        .collect();
    refuse_shared_paths(file, problems);
    refuse_shared_directories(file, problems);
    sources
}

/// `[providers.NAME]`; `None` where the record has mistakes of its own.
fn own_records(file: &File, problems: &mut Diagnostics) -> BTreeMap<String, Option<Arc<Record>>> {
    let mut records = BTreeMap::new();
    for (name, record) in &file.providers {
        if presets::find(&name.value).is_some() {
            problems.error(
                name.span.clone(),
                format!("`providers.{}` has the name of a preset", name.value),
                "a source could mean either",
                Some(format!("choose another name, such as `my-{}`", name.value)),
            );
        }
        records.insert(name.value.clone(), record.clone());
    }
    records
}

struct Builder<'a> {
    file: &'a File,
    limits: &'a Limits,
    records: &'a BTreeMap<String, Option<Arc<Record>>>,
    secrets: Secrets<'a>,
    own_hosts: &'a [String],
    ground: &'a upstream::Ground<'a>,
    name: &'a str,
    written: &'a file::Source,
}

impl Builder<'_> {
    /// Every part is built before any of them may end it, so that all problems are found.
    fn build(&self, problems: &mut Diagnostics) -> Option<Source> {
        let path = self
            .written
            .path
            .as_ref()
            .and_then(|path| plain_path(path, &self.key("path"), problems));
        let upstreams = self.upstreams(problems);
        let forward_path = self.forward_path(problems);
        let allow = self.allow(problems);
        let clients = self.clients(problems);
        let record = self.record(problems);
        let secrets = self.secrets(record.as_deref(), problems);
        let record = record?;
        let dedupe = self.dedupe(&record, problems);
        let max_body = self.max_body(&record, problems);
        let (ack_status, ack_body) = self.acknowledgement(&record, problems);
        let synchronous = self.synchronous(&record, problems);
        let learns_into = self.learn(&record, secrets.as_deref(), problems);
        let verifier = self.verifier(&record, secrets?, max_body, problems);
        Some(Source {
            name: SourceName::new(self.name),
            path: path?,
            fetching: fetching(&record, verifier.as_ref(), self.ground),
            verifier: Arc::new(verifier?),
            dedupe,
            methods: self.written.methods.as_ref().map_or_else(
                || record.methods().to_vec(),
                |methods| methods.value.iter().map(|method| method.value.clone()).collect(),
            ),
            get_probe: record.get_probe(),
            max_body,
            allow,
            clients,
            rate: self.written.rate.as_ref().map(|rate| rate.value),
            ack_status,
            ack_body,
            forward_path,
            upstreams: upstreams?,
            sender_deadline: record.sender_deadline(),
            sender_rule: record.disable_after().map(|rule| SenderRule {
                rule,
                confidence: record.facts_confidence(),
            }),
            secret_unused_after: self.secret_unused_after(&record, problems),
            learns_into,
            synchronous,
        })
    }

    /// Never shorter than the sender may still repeat what it signed.
    fn secret_unused_after(&self, record: &Record, problems: &mut Diagnostics) -> Duration {
        let written = &self.written.secret_unused_after;
        if !signs(record) {
            let unused = [("secret_unused_after", span(written))];
            self.of_no_use(&unused, "this provider does not sign", problems);
        }
        let key = self.key("secret_unused_after");
        let after = within(written, &defaults::SECRET_UNUSED_AFTER, &key, problems);
        after.max(record.retry_horizon().unwrap_or_default())
    }

    /// `reply = "upstream"`, and what belongs to it.
    fn synchronous(&self, record: &Record, problems: &mut Diagnostics) -> Option<Synchronous> {
        let written = self.written;
        let Some(reply) = &written.reply else {
            let unused = [("late", span(&written.late)), ("replicas", span(&written.replicas))];
            self.of_no_use(&unused, "it belongs to `reply = \"upstream\"`", problems);
            return None;
        };
        if let Some(upstreams) = &written.upstreams
            && upstreams.value.len() > 1
        {
            problems.error(
                upstreams.span.clone(),
                format!("source `{}` has several upstreams and waits for an answer", self.name),
                "a sender can be given one answer",
                Some("name one upstream, and let it tell the others".to_owned()),
            );
        }
        let answered = [
            ("ack_status", span(&written.ack_status)),
            ("ack_body", span(&written.ack_body)),
        ];
        self.of_no_use(&answered, "the upstream answers", problems);
        if let Some(hold) = written.hold_same_content.as_ref().filter(|hold| hold.value) {
            problems.error(
                hold.span.clone(),
                format!("source `{}` would hold what its sender waits for", self.name),
                "a held event waits for a person",
                Some("remove `same_content`, or `reply`".to_owned()),
            );
        }
        let separate = self.file.dedupe.redis.is_some() && self.file.store.postgres.is_none();
        if separate && written.replicas.is_none() {
            problems.error(
                reply.span.clone(),
                format!("source `{}` waits for an answer that only one replica would have", self.name),
                "with a store for each replica a duplicate may reach one that does not know the answer",
                Some(
                    "use [store.postgres]; or say `replicas = \"sticky\"` if whatever is in front sends a sender's tries \
                     again to the same replica"
                        .to_owned(),
                ),
            );
        }
        if !separate {
            let unused = [("replicas", span(&written.replicas))];
            self.of_no_use(&unused, "it is for replicas that have a store each", problems);
        }
        Some(Synchronous {
            patience: record.sender_deadline().unwrap_or(defaults::SENDER_PATIENCE),
            late: or(&written.late, Late::default()),
        })
    }

    fn of_no_use(&self, keys: &[(&str, Option<Range<usize>>)], why: &str, problems: &mut Diagnostics) {
        for (key, place) in keys.iter().filter(|(_key, place)| place.is_some()) {
            problems.error(
                place.clone(),
                format!("`{}` is of no use here", self.key(key)),
                why,
                Some("remove it".to_owned()),
            );
        }
    }

    fn key(&self, key: &str) -> String {
        format!("sources.{}.{key}", self.name)
    }

    fn record(&self, problems: &mut Diagnostics) -> Option<Arc<Record>> {
        let provider = self.written.provider.as_ref()?;
        let record = match self.records.get(&provider.value) {
            // One with mistakes was reported where it stands.
            Some(own) => own.clone()?,
            None => self.preset(provider, problems)?,
        };
        if record.sync_only() && self.written.reply.is_none() {
            problems.error(
                provider.span.clone(),
                format!("provider `{}` waits for the app's own answer", provider.value),
                "its HTTP answer carries meaning, and a source answers before the app has seen the event",
                Some("add `reply = \"upstream\"`".to_owned()),
            );
        }
        Some(record)
    }

    fn preset(&self, provider: &At<String>, problems: &mut Diagnostics) -> Option<Arc<Record>> {
        let found = presets::find(&provider.value);
        if found.is_none() {
            let own = presets::near(&provider.value, self.records.keys().map(String::as_str));
            let help = match own.or_else(|| presets::nearest(&provider.value)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "`hooksluice providers` lists all; another is written as [providers.NAME]".to_owned(),
            };
            problems.error(
                provider.span.clone(),
                format!("unknown provider for source `{}`", self.name),
                "neither a preset nor a table [providers.NAME]",
                Some(help),
            );
        }
        found
    }

    fn verifier(
        &self,
        record: &Arc<Record>,
        secrets: Vec<At<SourceSecret>>,
        max_body: u64,
        problems: &mut Diagnostics,
    ) -> Option<Verifier> {
        let accept_unsigned = or(&self.written.accept_unsigned, false);
        if accept_unsigned && signs(record) {
            problems.error(
                span(&self.written.accept_unsigned),
                format!("`{}` is of no use here", self.key("accept_unsigned")),
                "this provider signs, and unsigned requests stay refused",
                Some("remove it".to_owned()),
            );
        }
        if accept_unsigned && !signs(record) {
            problems.warning(
                span(&self.written.accept_unsigned),
                format!("source `{}` takes unsigned requests", self.name),
                "ANYBODY who knows the path can send events",
                Some("guard it with `allow`, and let the app check what it receives".to_owned()),
            );
        }
        if self.written.tolerance.is_some() && !record.signs_time() {
            problems.error(
                span(&self.written.tolerance),
                format!("`{}` is of no use here", self.key("tolerance")),
                "this provider signs no time",
                Some("remove it".to_owned()),
            );
        }
        let params = self.params(record, problems);
        let public_url = self.public_url(record, problems);
        let (params, public_url) = (params?, public_url?);
        let options = VerifierOptions {
            public_url,
            own_hosts: self.own_hosts.to_vec(),
            tolerance: self.written.tolerance.as_ref().map(|tolerance| tolerance.value),
            params,
            accept_unsigned,
            max_decoded: Some(max_body),
            takes_secrets: false,
            learns: self.written.learn.is_some(),
        };
        let (places, secrets): (Vec<_>, Vec<_>) = secrets
            .into_iter()
            .map(|secret| ((secret.span, secret.value.label.clone()), secret.value))
            .unzip();
        match Verifier::new(Arc::clone(record), secrets, options) {
            Ok(verifier) => Some(verifier),
            Err(found) => {
                for problem in found {
                    let of_secret = problem.secret_index.and_then(|index| places.get(index));
                    let (place, label) = match of_secret {
                        // What stands for a secret that was not looked up says nothing about it.
                        Some(_) if self.secrets.are_skipped() => continue,
                        Some((place, Some(label))) => (Some(place.clone()), format!("the secret `{label}`")),
                        Some((place, None)) => (Some(place.clone()), String::new()),
                        None => (span(&self.written.provider), String::new()),
                    };
                    problems.error(
                        place,
                        format!("source `{}`: {}", self.name, problem.message),
                        label,
                        problem.help,
                    );
                }
                None
            }
        }
    }

    /// The source's own, else the one of the whole file; `None` when the source's own is wrong.
    fn public_url(&self, record: &Record, problems: &mut Diagnostics) -> Option<Option<String>> {
        let Some(own) = &self.written.public_url else {
            return Some(self.file.public_url.as_ref().map(|url| url.value.clone()));
        };
        if !record.needs_public_url() {
            problems.error(
                own.span.clone(),
                format!("`{}` is of no use here", self.key("public_url")),
                "this provider does not sign its URL",
                Some("remove it".to_owned()),
            );
        }
        if let Err(label) = PublicUrl::parse(&own.value) {
            problems.error(
                own.span.clone(),
                format!("bad value for `{}`", self.key("public_url")),
                label,
                None,
            );
            return None;
        }
        Some(Some(own.value.clone()))
    }

    fn params(&self, record: &Record, problems: &mut Diagnostics) -> Option<BTreeMap<String, String>> {
        let mut params = BTreeMap::new();
        let mut complete = true;
        for (name, entry) in &self.written.params {
            if !record.has_param(name) {
                complete = false;
                problems.error(
                    entry.span.clone(),
                    format!("unknown input in `{}`", self.key("params")),
                    format!("provider `{}` has no second input of this name", record.name()),
                    Some(did_you_mean(
                        name,
                        record
                            .params()
                            .iter()
                            .chain(record.optional_params())
                            .map(String::as_str),
                    )),
                );
                continue;
            }
            let what = format!("`{}`", self.key(&format!("params.{name}")));
            let Some(value) = self.secrets.resolve(&entry.value, &what, problems) else {
                complete = false;
                continue;
            };
            match std::str::from_utf8(value.expose()) {
                Ok(text) => {
                    params.insert(name.clone(), text.to_owned());
                }
                Err(_) => {
                    complete = false;
                    problems.error(
                        entry.value.span.clone(),
                        format!("{what} is not text"),
                        "not valid UTF-8",
                        None,
                    );
                }
            }
        }
        complete.then_some(params)
    }

    fn upstreams(&self, problems: &mut Diagnostics) -> Option<Arc<[UpstreamName]>> {
        let written = self.written.upstreams.as_ref()?;
        let known = upstream_names(self.file);
        let mut names: Vec<UpstreamName> = Vec::new();
        for name in &written.value {
            let upstream = UpstreamName::new(name.value.as_str());
            if !known.contains(&upstream) {
                problems.error(
                    name.span.clone(),
                    format!("unknown upstream `{}` for source `{}`", name.value, self.name),
                    "no table [upstreams.NAME] has this name",
                    Some(did_you_mean(&name.value, known.iter().map(UpstreamName::as_str))),
                );
            } else if names.contains(&upstream) {
                problems.error(
                    name.span.clone(),
                    format!("bad value in `{}`", self.key("upstreams")),
                    "given twice",
                    Some("remove one".to_owned()),
                );
            } else {
                names.push(upstream);
            }
        }
        if written.value.is_empty() {
            problems.error(
                written.span.clone(),
                format!("`{}` is empty", self.key("upstreams")),
                "its events would go nowhere",
                Some("name at least one of the tables [upstreams.NAME]".to_owned()),
            );
        }
        (!names.is_empty()).then(|| names.into())
    }
}

/// Whom to believe when keys are fetched or hand-shakes visited; `None` where neither is done.
fn fetching(record: &Record, verifier: Option<&Verifier>, ground: &upstream::Ground<'_>) -> Option<Fetching> {
    let has_keys = verifier.is_none_or(|verifier| !verifier.secrets().is_empty());
    ((record.fetches_keys() && !has_keys) || record.visits()).then(|| Fetching {
        roots: ground.roots.get(),
        egress: Arc::clone(&ground.egress),
    })
}

/// Whether there is anything for a secret to prove.
fn signs(record: &Record) -> bool {
    record.kind() != Kind::None
}
