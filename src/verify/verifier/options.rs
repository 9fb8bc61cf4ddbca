//! What a source says: its secrets and the rest, and whether it may start with it (P3).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::secret::Secret;
use crate::time::Timestamp;
use crate::verify::record::{Kind, Record};
use crate::verify::url::PublicUrl;

/// One configured secret of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSecret {
    /// As the provider shows it.
    pub secret: Secret,
    /// For people; never part of a key.
    pub label: Option<Arc<str>>,
    /// Separates endpoints that share a path; part of the dedupe key.
    pub scope: Option<Arc<str>>,
    /// From this time on it vouches for nothing.
    pub not_after: Option<Timestamp>,
}

impl SourceSecret {
    /// A secret without label, scope or end.
    pub fn new(secret: Secret) -> Self {
        Self {
            secret,
            label: None,
            scope: None,
            not_after: None,
        }
    }
}

/// `tolerance` of a source, which stands in for the record's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// `"off"`: age is not judged.
    Off,
    /// As far from now as this, on either side.
    Within(Duration),
}

/// What a source says besides its secrets.
#[derive(Clone, Debug, Default)]
pub struct VerifierOptions {
    /// The URL as the provider was given it, for schemes that sign it; see [`PublicUrl::parse`].
    pub public_url: Option<String>,
    /// Where nothing is written: hosts of ours, any of which the provider may have been given as `https://HOST`. One may be
    /// a wildcard, `*.example.com`. Which one it was, the request says.
    pub own_hosts: Vec<String>,
    /// Instead of the record's tolerance.
    pub tolerance: Option<Tolerance>,
    /// Second inputs by the names that the record declares.
    pub params: BTreeMap<String, String>,
    /// `kind = "none"` is meant.
    pub accept_unsigned: bool,
    /// Most bytes that a compressed body is inflated to, where the provider signs what comes out (`max_body`).
    pub max_decoded: Option<u64>,
    /// Also answer hand-shakes in which a stranger hands over the secret (Asana), for who judges captured requests. A
    /// source must not: whoever comes first would choose its secret.
    pub takes_secrets: bool,
    /// The source takes its secret in band ([`Verifier::handed_over`](super::Verifier::handed_over)), and without one refuses every event.
    pub learns: bool,
}

/// Why a source cannot be verified: it must not start (P3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierProblem {
    /// Which secret, by its place in the list; `None` for the source as a whole.
    pub secret_index: Option<usize>,
    /// What is wrong. Never holds key material.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

pub(super) fn check_public_url(
    record: &Record,
    options: &VerifierOptions,
    problems: &mut Vec<VerifierProblem>,
) -> Option<PublicUrl> {
    let mut problem = |message: String, help: &str| {
        problems.push(VerifierProblem {
            secret_index: None,
            message,
            help: Some(help.to_owned()),
        });
        None
    };
    match options.public_url.as_deref().map(PublicUrl::parse) {
        Some(Ok(url)) => Some(url),
        Some(Err(why)) => problem(
            format!("bad `public_url`: {why}"),
            "write it as the provider was given it",
        ),
        None if record.needs_public_url() && options.own_hosts.is_empty() => problem(
            format!("{} signs its URL, and `public_url` is not set", record.title),
            "set `public_url` to the URL that the provider was given, such as \"https://hooks.example.com\"",
        ),
        None => None,
    }
}

pub(super) fn check_options(
    record: &Record,
    secrets: &[SourceSecret],
    options: &VerifierOptions,
    problems: &mut Vec<VerifierProblem>,
) {
    let mut problem = |message: String, help: &str| {
        problems.push(VerifierProblem {
            secret_index: None,
            message,
            help: Some(help.to_owned()),
        });
    };
    if record.kind == Kind::None {
        if !options.accept_unsigned {
            problem(
                format!("{} signs nothing: anybody could send events", record.title),
                "say `accept_unsigned = true` if that is meant",
            );
        }
        if !secrets.is_empty() {
            problem(format!("{} has no use for secrets", record.title), "remove them");
        }
    } else if secrets.is_empty() && !record.fetches_keys() && !options.learns {
        problem(
            "no secret is given".to_owned(),
            "give the secret that the provider shows",
        );
    }
    for name in record.params.iter().filter(|name| !options.params.contains_key(*name)) {
        problem(
            format!("{} needs the parameter `{name}`", record.title),
            "give it under `params`",
        );
    }
    for name in options.params.keys().filter(|name| !record.has_param(name)) {
        problem(format!("{} has no parameter `{name}`", record.title), "remove it");
    }
    let is_off = matches!(options.tolerance, Some(Tolerance::Within(tolerance)) if tolerance.is_zero());
    if is_off {
        problem(
            "a tolerance of zero refuses everything".to_owned(),
            "say `\"off\"` to judge no age",
        );
    }
}
