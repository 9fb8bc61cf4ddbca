//! `[routes.NAME]`.

use std::collections::BTreeMap;

use super::{idempotency, span, within};
use crate::config::defaults::{self, Quantity as _};
use crate::config::file::{File, Route};
use crate::diagnostic::{Diagnostics, did_you_mean};
use crate::forward::settings::UpstreamSettings;
use crate::id::RouteName;
use crate::ingest::source::{Limits, Source};
use crate::reader::At;
use crate::routes::settings::{RouteSettings, Target};
use crate::routes::shadow::Shadow;
use crate::routes::table::Pattern;

pub(super) fn build_all(
    file: &File,
    limits: &Limits,
    upstreams: &[UpstreamSettings],
    sources: &[Source],
    problems: &mut Diagnostics,
) -> Vec<RouteSettings> {
    let shadow = Shadow::new(sources.iter().map(|source| {
        let forward_path = source.forward_path.as_ref().map(http::uri::PathAndQuery::path);
        (&source.name, source.path.as_str(), forward_path)
    }));
    let mut taken = BTreeMap::new();
    let mut routes = Vec::new();
    for (name, written) in &file.routes {
        let pattern = pattern(name, written, &mut taken, problems);
        if let (Some(pattern), Some(path)) = (&pattern, &written.path) {
            judge_shadow(name, pattern, path, &shadow, problems);
        }
        let upstream = upstream(file, name, written, upstreams, problems);
        let key = |key: &str| format!("routes.{}.{key}", name.value);
        let timeout = match (&written.timeout, &upstream) {
            (None, Some(upstream)) => upstream.timeout,
            (written, _) => within(written, &defaults::TIMEOUT, &key("timeout"), problems),
        };
        let idle_timeout = within(
            &written.idle_timeout,
            &defaults::ROUTE_IDLE_TIMEOUT,
            &key("idle_timeout"),
            problems,
        );
        let max_body = written.max_body.as_ref().and_then(|limit| {
            let most = &defaults::ROUTE_MAX_BODY;
            if limit.value.is_some_and(|bytes| bytes < most.min || bytes > most.max) {
                problems.error(
                    limit.span.clone(),
                    format!("bad value for `{}`", key("max_body")),
                    format!("must be from {} to {}, or \"off\"", most.min.show(), most.max.show()),
                    None,
                );
            }
            limit.value
        });
        let idempotency = written
            .idempotency
            .as_ref()
            .map(|keys| idempotency::build(&name.value, keys, max_body, file, limits, problems));
        if let (Some(pattern), Some(upstream)) = (pattern, upstream) {
            routes.push(RouteSettings {
                name: RouteName::new(name.value.as_str()),
                pattern,
                upstream: Target {
                    name: upstream.name.clone(),
                    remote: upstream.remote.clone(),
                    preserve_host: upstream.preserve_host,
                },
                timeout,
                idle_timeout,
                max_body,
                idempotency,
            });
        }
    }
    routes
}

fn pattern<'f>(
    name: &'f At<String>,
    written: &'f Route,
    taken: &mut BTreeMap<String, &'f str>,
    problems: &mut Diagnostics,
) -> Option<Pattern> {
    let path = written.path.as_ref()?;
    let key = format!("routes.{}.path", name.value);
    let found = match Pattern::parse(&path.value) {
        Ok(_) if path.value.len() > defaults::PATH_MAX => Err("longer than any real path"),
        found => found,
    };
    let pattern = match found {
        Ok(pattern) => pattern,
        Err(label) => {
            let help = "write an exact path such as \"/health\", or one with everything below it: \"/orders/{*rest}\"";
            problems.error(
                path.span.clone(),
                format!("bad value for `{key}`"),
                label,
                Some(help.to_owned()),
            );
            return None;
        }
    };
    // What the rest is called makes no difference.
    let matches = pattern.to_string();
    if let Some(first) = taken.get(&matches) {
        problems.error(
            path.span.clone(),
            format!("`{key}` is taken"),
            format!("route `{first}` has the same pattern"),
            Some("remove one; of two different patterns that match, the longer wins".to_owned()),
        );
        return None;
    }
    taken.insert(matches, &name.value);
    Some(pattern)
}

/// Sources come first, and what could be taken for one is refused.
fn judge_shadow(name: &At<String>, pattern: &Pattern, path: &At<String>, shadow: &Shadow, problems: &mut Diagnostics) {
    if pattern.is_exact()
        && let Some(source) = shadow.at(pattern.prefix())
    {
        problems.error(
            path.span.clone(),
            format!("route `{}` can never serve a request", name.value),
            format!("this is a path of source `{source}`, which no request reaches through a route, in any spelling"),
            Some(
                "remove the route, or give it or the source another path; the source's requests need no route"
                    .to_owned(),
            ),
        );
    } else if let Some(source) = shadow.above(pattern.prefix()) {
        problems.warning(
            path.span.clone(),
            format!("route `{}` lies at or below a path of source `{source}`", name.value),
            "requests for the source's own path, in any spelling, never go through a route",
            Some("make sure that the app does not treat what this route passes on as that source's events".to_owned()),
        );
    }
}

fn upstream<'u>(
    file: &File,
    name: &At<String>,
    written: &Route,
    upstreams: &'u [UpstreamSettings],
    problems: &mut Diagnostics,
) -> Option<&'u UpstreamSettings> {
    let wanted = written.upstream.as_ref()?;
    let known = || file.upstreams.iter().map(|(name, _)| name.value.as_str());
    if !known().any(|known| known == wanted.value) {
        problems.error(
            span(&written.upstream),
            format!("unknown upstream for route `{}`", name.value),
            "there is no such table [upstreams.NAME]",
            Some(did_you_mean(&wanted.value, known())),
        );
    }
    // One with mistakes was reported where it stands.
    upstreams.iter().find(|upstream| upstream.name.as_str() == wanted.value)
}
