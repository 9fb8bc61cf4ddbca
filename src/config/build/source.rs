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

/// A secret that one source learns must not vouch for what another gets.
fn refuse_shared_directories(file: &File, problems: &mut Diagnostics) {
    let directories = |written: &'_ file::Source| -> Vec<PathBuf> {
        let entries = written.secrets.iter().flat_map(|secrets| &secrets.value);
        let places = entries.filter_map(|entry| match &entry.from.as_ref()?.value {
            SecretFrom::Directory(directory) => Some(directory.clone()),
            _ => None,
        });
        places.collect()
    };
    for (name, written) in &file.sources {
        let Some(learn) = &written.learn else { continue };
        let own = directories(written);
        let mut others = file.sources.iter().filter(|(other, _)| other.value != name.value);
        let shared = others.find(|(_, other)| directories(other).iter().any(|directory| own.contains(directory)));
        if let Some((other, _)) = shared {
            problems.error(
                learn.span.clone(),
                format!(
                    "sources `{}` and `{}` keep their secrets in one directory",
                    name.value, other.value
                ),
                "what this one learns would vouch for requests to the other",
                Some("give each a directory of its own".to_owned()),
            );
        }
    }
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

/// Two sources with one path would be one source too many; a trailing slash does not tell them apart.
fn refuse_shared_paths(file: &File, problems: &mut Diagnostics) {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, written) in &file.sources {
        let Some(path) = &written.path else { continue };
        let key = without_trailing_slash(&path.value);
        if let Some(first) = seen.get(key) {
            problems.error(
                path.span.clone(),
                format!("`sources.{}.path` is taken", name.value),
                format!("source `{first}` has the same path, give or take a trailing slash"),
                Some(
                    "for two endpoints of one provider list both secrets on one source, each with a `scope`".to_owned(),
                ),
            );
        } else {
            seen.insert(key, &name.value);
        }
    }
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

    /// `learn`: the directory in which the secret is kept that arrives in band.
    fn learn(
        &self,
        record: &Record,
        secrets: Option<&[At<SourceSecret>]>,
        problems: &mut Diagnostics,
    ) -> Option<PathBuf> {
        let learn = self.written.learn.as_ref()?;
        if !record.is_handed_secrets() {
            let unused = [("learn", Some(learn.span.clone()))];
            self.of_no_use(&unused, "this provider hands no secret over in a request", problems);
            return None;
        }
        let entries = self.written.secrets.iter().flat_map(|secrets| &secrets.value);
        let mut directories = entries.filter_map(|entry| match &entry.from.as_ref()?.value {
            SecretFrom::Directory(directory) => Some(directory),
            _ => None,
        });
        let (Some(directory), None) = (directories.next(), directories.next()) else {
            problems.error(
                learn.span.clone(),
                format!("source `{}` would not know where to keep its secret", self.name),
                "needs exactly one `directory` among the source's `secrets`",
                Some(format!(
                    "write `secrets = [{{ directory = \"/var/lib/hooksluice/secrets/{}\" }}]`; it may be empty",
                    self.name
                )),
            );
            return None;
        };
        if secrets.is_some_and(<[_]>::is_empty) {
            problems.warning(
                learn.span.clone(),
                format!("source `{}` has no secret yet", self.name),
                "everything is refused until its provider hands one over",
                Some(format!(
                    "`hooksluice sources learn {}` lets it, for 10 minutes",
                    self.name
                )),
            );
        }
        Some(directory.clone())
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

    fn secrets(&self, record: Option<&Record>, problems: &mut Diagnostics) -> Option<Vec<At<SourceSecret>>> {
        let unsigned = record.is_some_and(|record| !signs(record));
        let Some(written) = &self.written.secrets else {
            let may_lack = record.is_some_and(Record::fetches_keys);
            // Where it would be kept is asked for by `learn`.
            let may_lack = may_lack || self.written.learn.is_some();
            if record.is_some() && !unsigned && !may_lack {
                problems.error(
                    span(&self.written.provider),
                    format!("source `{}` has no secret", self.name),
                    "without one anybody could sign",
                    Some(match record.is_some_and(Record::is_handed_secrets) {
                        true => format!(
                            "its provider hands it over: add `learn = \"once\"` and `secrets = [{{ directory = \"/var/lib/hooksluice/\
                             secrets/{}\" }}]`",
                            self.name
                        ),
                        false => "add `secret = { env = \"NAME\" }`".to_owned(),
                    }),
                );
                return None;
            }
            return Some(Vec::new());
        };
        if unsigned {
            problems.error(
                written.span.clone(),
                format!("source `{}` has a secret that nothing would use", self.name),
                "its provider does not sign",
                Some("remove it".to_owned()),
            );
            return None;
        }
        if written.value.is_empty() {
            // Reported where it was read.
            return None;
        }
        let what = format!("source `{}`", self.name);
        let now = self.secrets.environment().now();
        let may_be_empty = self.written.learn.is_some();
        let mut resolved = Vec::new();
        let mut labels: Vec<At<String>> = Vec::new();
        for entry in &written.value {
            labels.extend(entry.label.clone());
            self.label_and_scope(entry, problems);
            let place = entry.from.as_ref().map_or(&entry.span, |from| &from.span);
            let Some(found) = self.secrets.resolve_all(entry, may_be_empty, &what, problems) else {
                resolved.push(None);
                continue;
            };
            resolved.extend(found.into_iter().map(|found| {
                let span = place.clone();
                labels.extend(found.file.clone().map(|value| At { value, span }));
                let label = entry.label.as_ref().map(|label| &label.value).or(found.file.as_ref());
                let value = SourceSecret {
                    secret: found.secret,
                    label: label.map(|label| Arc::from(label.as_str())),
                    scope: entry.scope.as_ref().map(|scope| Arc::from(scope.value.as_str())),
                    not_after: entry.not_after.as_ref().map(|end| end.value),
                };
                let span = place.clone();
                Some(At { value, span })
            }));
        }
        self.warn_of_ends(written, now, problems);
        refuse_equal_labels(&labels, &what, problems);
        resolved.into_iter().collect()
    }

    /// A secret that ends unnoticed refuses everything that its sender goes on signing with it.
    fn warn_of_ends(&self, written: &At<Vec<file::SecretEntry>>, now: Timestamp, problems: &mut Diagnostics) {
        let what = format!("source `{}`", self.name);
        let ends = written.value.iter().map(|entry| entry.not_after.as_ref());
        for end in ends.clone().flatten() {
            let left = end.value.since(now);
            if left.is_zero() {
                problems.warning(
                    end.span.clone(),
                    format!("a secret of {what} has ended"),
                    "requests that it signed are refused",
                    Some("remove it, if nothing uses it any more".to_owned()),
                );
            } else if left <= defaults::SECRET_ENDS_SOON {
                problems.warning(
                    end.span.clone(),
                    format!("a secret of {what} ends within {}", whole_days(left)),
                    "requests that it signs are refused from then on",
                    Some("`hooksluice sources` says whether the provider still signs with it".to_owned()),
                );
            }
        }
        let last = ends.map(|end| end.map(|end| end.value)).collect::<Option<Vec<_>>>();
        let Some(left) = last.and_then(|ends| ends.into_iter().max()).map(|last| last.since(now)) else {
            return;
        };
        if left > defaults::LAST_SECRET_ENDS_SOON {
            return;
        }
        let (message, label) = if left.is_zero() {
            (format!("every secret of {what} has ended"), "everything is refused")
        } else {
            let days = whole_days(left);
            (
                format!("every secret of {what} will have ended within {days}"),
                "everything is refused from then on",
            )
        };
        let help = Some("add the provider's current secret".to_owned());
        problems.warning(written.span.clone(), message, label, help);
    }

    /// Both are shown in headers, metrics and tables.
    fn label_and_scope(&self, entry: &file::SecretEntry, problems: &mut Diagnostics) {
        for (key, text) in [("label", &entry.label), ("scope", &entry.scope)] {
            let Some(text) = text else { continue };
            if !is_label(&text.value) {
                problems.error(
                    text.span.clone(),
                    format!("bad `{key}` of a secret of source `{}`", self.name),
                    "expected 1 to 64 printable ASCII characters without outer blanks",
                    None,
                );
            }
        }
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

    fn dedupe(&self, record: &Record, problems: &mut Diagnostics) -> DedupeRule {
        let written = self.written;
        let parts = written
            .dedupe
            .as_ref()
            .map_or_else(|| record.dedupe().to_vec(), |parts| parts.value.clone());
        self.judge_dedupe(record, problems);
        let asks_for_id = parts.contains(&Part::Id);
        if !asks_for_id {
            let unused = [
                ("id_missing", span(&written.id_missing)),
                ("same_content", span(&written.hold_same_content)),
            ];
            for (key, place) in unused.into_iter().filter(|(_, place)| place.is_some()) {
                problems.error(
                    place,
                    format!("`{}` is of no use here", self.key(key)),
                    "the dedupe rule of this source has no \"id\"",
                    Some("remove it, or put \"id\" into `dedupe`".to_owned()),
                );
            }
        }
        DedupeRule {
            parts,
            id_missing: or(&written.id_missing, record.id_missing()),
            hold_same_content: or(&written.hold_same_content, false),
            body_varies: record.body_varies(),
        }
    }

    /// A rule that stands above the record's: what it takes for the same is acknowledged and goes nowhere.
    fn judge_dedupe(&self, record: &Record, problems: &mut Diagnostics) {
        let Some(rule) = &self.written.dedupe else { return };
        match Part::decide(&rule.value) {
            Decide::ByNothing => problems.error(
                rule.span.clone(),
                format!("bad value for `{}`", self.key("dedupe")),
                "without \"id\" and \"body\", events that have nothing to do with each other would be the same",
                Some("use `[\"id\", \"type\", \"body\"]`".to_owned()),
            ),
            Decide::ById if record.dedupe_source().is_none() => problems.warning(
                rule.span.clone(),
                format!(
                    "`{}` decides by an id that nobody has read to be one per delivery",
                    self.key("dedupe")
                ),
                "where it names an object, its next event is acknowledged and dropped",
                Some("use `[\"id\", \"type\", \"body\"]`, unless the provider documents its ids so".to_owned()),
            ),
            Decide::ById | Decide::ByContent => {}
        }
    }

    fn max_body(&self, record: &Record, problems: &mut Diagnostics) -> u64 {
        let default = record.max_body().unwrap_or(0).max(self.limits.body);
        let setting = Setting {
            default,
            ..defaults::MAX_BODY
        };
        let max_body = within(&self.written.max_body, &setting, &self.key("max_body"), problems);
        if max_body > self.limits.in_flight {
            problems.error(
                span(&self.written.max_body).or(span(&self.written.provider)),
                format!("bodies of source `{}` can be larger than `limits.in_flight`", self.name),
                format!(
                    "{} can never be held within {}",
                    max_body.show(),
                    self.limits.in_flight.show()
                ),
                Some(format!("raise `limits.in_flight`, or set `{}`", self.key("max_body"))),
            );
        }
        max_body
    }

    fn acknowledgement(&self, record: &Record, problems: &mut Diagnostics) -> (StatusCode, Bytes) {
        let status = self
            .written
            .ack_status
            .as_ref()
            .and_then(|status| u16::try_from(status.value).ok())
            .and_then(|status| StatusCode::from_u16(status).ok())
            .unwrap_or(record.ack_status());
        let body = self
            .written
            .ack_body
            .as_ref()
            .map_or_else(|| record.ack_body().clone(), |body| Bytes::from(body.value.clone()));
        let place = span(&self.written.ack_body).or(span(&self.written.ack_status));
        if body.len() > defaults::ACK_BODY_MAX {
            problems.error(
                place.clone(),
                format!("`{}` is too long", self.key("ack_body")),
                format!("more than {} bytes", defaults::ACK_BODY_MAX),
                None,
            );
        }
        if !body.is_empty() && matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT) {
            problems.error(
                place,
                format!("a {} answer of source `{}` has no body", status.as_u16(), self.name),
                "a client would take it for the next answer",
                Some("set `ack_body = \"\"`, or another `ack_status`".to_owned()),
            );
        }
        (status, body)
    }

    fn allow(&self, problems: &mut Diagnostics) -> Vec<ipnet::IpNet> {
        let Some(written) = &self.written.allow else {
            return Vec::new();
        };
        // What was given and could not be read was reported where it stands.
        if written.value.is_empty() && !problems.has_any_within(&written.span) {
            problems.error(
                written.span.clone(),
                format!("`{}` is empty", self.key("allow")),
                "it could mean everybody or nobody",
                Some("to allow every address remove the key".to_owned()),
            );
        }
        written.value.iter().map(|network| network.value).collect()
    }

    fn clients(&self, problems: &mut Diagnostics) -> Option<Clients> {
        let written = self.written.client_certificates.as_ref()?;
        let key = self.key("client_certificates");
        let asks = self.file.tls.as_ref().is_some_and(|tls| tls.value.client_ca.is_some());
        if !asks {
            problems.error(
                written.span.clone(),
                format!("`{key}` needs `client_ca` in [tls]"),
                "no client is asked for a certificate",
                Some(
                    "add `client_ca`; behind a proxy that ends TLS this cannot work, since only the proxy sees the clients' \
                     certificates"
                        .to_owned(),
                ),
            );
        }
        if written.value.is_empty() && !problems.has_any_within(&written.span) {
            problems.error(
                written.span.clone(),
                format!("`{key}` is empty"),
                "it could mean everybody or nobody",
                Some("write [\"*\"] for everybody whose certificate `client_ca` signed".to_owned()),
            );
        }
        let mut names: Vec<ClientName> = Vec::new();
        let mut any = false;
        for text in &written.value {
            let name = ClientName::new(&text.value);
            let plain = !text.value.is_empty() && text.value.bytes().all(|b| b.is_ascii_graphic());
            let label = match text.value.as_str() {
                "*" if written.value.len() > 1 => "stands for everybody, so that it must stand alone",
                "*" => {
                    any = true;
                    continue;
                }
                text if text.contains('*') => "names are compared as a whole: there are no patterns here",
                _ if !plain => "expected a DNS name or a URI, as the certificate has it as subject alternative name",
                _ if names.contains(&name) => "given twice",
                _ => {
                    names.push(name);
                    continue;
                }
            };
            problems.error(text.span.clone(), format!("bad value in `{key}`"), label, None);
        }
        Some(if any { Clients::Any } else { Clients::Named(names) })
    }

    fn forward_path(&self, problems: &mut Diagnostics) -> Option<PathAndQuery> {
        let written = self.written.forward_path.as_ref()?;
        let key = self.key("forward_path");
        let path = written.value.split('?').next().unwrap_or("");
        check_path(path, written, &key, problems)?;
        match written.value.parse() {
            Ok(target) => Some(target),
            Err(_) => {
                not_a_path(written, &key, "has characters that a URL must escape", problems);
                None
            }
        }
    }
}

/// Rounded up: "within 0 days" would be past.
fn whole_days(left: Duration) -> String {
    match left.as_secs().div_ceil(86_400) {
        1 => "a day".to_owned(),
        days => format!("{days} days"),
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

/// Two live secrets with one label cannot be told apart in the metric that says which may be removed.
fn refuse_equal_labels(labels: &[At<String>], what: &str, problems: &mut Diagnostics) {
    let mut seen = Vec::new();
    for label in labels {
        if seen.contains(&label.value.as_str()) {
            problems.error(
                label.span.clone(),
                format!("two secrets of {what} have one label"),
                "they could not be told apart",
                Some("labels are for people: choose another; that of a file in a `directory` is its name".to_owned()),
            );
        }
        seen.push(&label.value);
    }
}

/// An exact path without its trailing slash; the query is none of its business.
pub(super) fn plain_path(written: &At<String>, key: &str, problems: &mut Diagnostics) -> Option<String> {
    check_path(&written.value, written, key, problems)?;
    if written.value.contains('?') {
        not_a_path(written, key, "a path has no query; the sender may add any", problems);
        return None;
    }
    if written.value.parse::<PathAndQuery>().is_err() {
        not_a_path(written, key, "has characters that a URL must escape", problems);
        return None;
    }
    Some(without_trailing_slash(&written.value).to_owned())
}

fn check_path(path: &str, written: &At<String>, key: &str, problems: &mut Diagnostics) -> Option<()> {
    let label = if !path.starts_with('/') {
        "must start with `/`"
    } else if path.len() > defaults::PATH_MAX {
        "longer than any real path"
    } else if path.contains('#') {
        "a fragment is never sent"
    } else if path.contains(['{', '}', '*']) {
        "matched exactly: there are no patterns here"
    } else if !path.bytes().all(|b| b.is_ascii_graphic()) {
        "has characters that a URL must escape"
    } else if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        "clients remove dot segments before they send"
    } else {
        return Some(());
    };
    not_a_path(written, key, label, problems);
    None
}

fn not_a_path(written: &At<String>, key: &str, label: &str, problems: &mut Diagnostics) {
    problems.error(written.span.clone(), format!("bad value for `{key}`"), label, None);
}

fn without_trailing_slash(path: &str) -> &str {
    match path.strip_suffix('/') {
        Some("") | None => path,
        Some(shorter) => shorter,
    }
}
