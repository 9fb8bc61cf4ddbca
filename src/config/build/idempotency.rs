//! `idempotency = { … }` of a route.

use http::{HeaderName, Method};

use super::{or, span, within};
use crate::config::defaults::{self, Quantity};
use crate::config::file::{self, File};
use crate::diagnostic::Diagnostics;
use crate::ingest::source::Limits;
use crate::reader::At;
use crate::routes::idempotency::answer::never_replayed;
use crate::routes::idempotency::fingerprint::BodyAs;
use crate::routes::idempotency::scope::Scope;
use crate::routes::idempotency::{IdempotencySettings, OnAmbiguous};

/// The most headers that a route adds to its replays.
const REPLAY_HEADERS_MAX: usize = 32;

pub(super) fn build(
    route: &str,
    written: &At<file::Idempotency>,
    route_max_body: Option<u64>,
    file: &File,
    limits: &Limits,
    problems: &mut Diagnostics,
) -> IdempotencySettings {
    let At {
        value: written,
        span: at,
    } = written;
    let key = |key: &str| format!("routes.{route}.idempotency.{key}");
    let replicas = key("replicas");
    let embedded = file.store.postgres.is_none();
    match (&written.sticky, embedded && file.dedupe.redis.is_some()) {
        (None, true) => problems.error(
            at.clone(),
            format!("`routes.{route}.idempotency` is not safe over several replicas with a store each"),
            "[dedupe.redis] says that there may be several; each would carry a key out once more",
            Some(
                "share one store ([store.postgres]); or, if a balancer sends every repetition of a request to the same \
                 replica, say `replicas = \"sticky\"`"
                    .to_owned(),
            ),
        ),
        (Some(sticky), false) => problems.warning(
            sticky.span.clone(),
            format!("`{replicas}` has no effect"),
            "it is for several replicas with an embedded store each and [dedupe.redis]",
            None,
        ),
        _ => {}
    }
    let asks = file.tls.as_ref().is_some_and(|tls| tls.value.client_ca.is_some());
    if let Some(scope) = &written.scope
        && scope.value == Scope::Certificate
        && !asks
    {
        problems.error(
            scope.span.clone(),
            format!("`{}` needs `client_ca` in [tls]", key("scope")),
            "no client is asked for a certificate",
            Some("behind a proxy that ends TLS use a header in which the proxy names the caller".to_owned()),
        );
    }
    let mut body = defaults::MAX_BODY;
    body.default = route_max_body.map_or(limits.body, |most| most.min(limits.body));
    let max_body = within(&written.max_body, &body, &key("max_body"), problems);
    if let (Some(most), Some(own)) = (route_max_body, &written.max_body)
        && max_body > most
    {
        problems.error(
            own.span.clone(),
            format!("`{}` is larger than the route's `max_body`", key("max_body")),
            format!("{} against {}", max_body.show(), most.show()),
            Some("raise the route's".to_owned()),
        );
    }
    if max_body > limits.in_flight {
        problems.error(
            span(&written.max_body),
            format!("`{}` is larger than `limits.in_flight`", key("max_body")),
            format!(
                "{} can never be held within {}",
                max_body.show(),
                limits.in_flight.show()
            ),
            Some("lower the one or raise the other".to_owned()),
        );
    }
    let methods = match &written.methods {
        Some(methods) => methods.value.iter().map(|method| method.value.clone()).collect(),
        None => vec![Method::POST, Method::PATCH],
    };
    let settings = IdempotencySettings {
        methods,
        required: or(&written.required, false),
        // What is not there is reported where it is missed.
        scope: written
            .scope
            .as_ref()
            .map_or(Scope::Public, |scope| scope.value.clone()),
        ttl: within(&written.ttl, &defaults::KEY_TTL, &key("ttl"), problems),
        wait: within(&written.wait, &defaults::KEY_WAIT, &key("wait"), problems),
        fingerprint: or(&written.fingerprint, BodyAs::default()),
        max_body,
        max_stored: within(&written.max_stored, &defaults::MAX_STORED, &key("max_stored"), problems),
        replay_headers: replay_headers(written, &key("replay_headers"), problems),
        on_ambiguous: or(&written.on_ambiguous, OnAmbiguous::default()),
    };
    if settings.wait >= settings.ttl {
        problems.error(
            span(&written.wait).or(span(&written.ttl)),
            format!("`{}` is not shorter than `ttl`", key("wait")),
            format!("{} against {}", settings.wait.show(), settings.ttl.show()),
            None,
        );
    }
    settings
}

fn replay_headers(written: &file::Idempotency, key: &str, problems: &mut Diagnostics) -> Vec<HeaderName> {
    let Some(list) = &written.replay_headers else {
        return Vec::new();
    };
    if list.value.len() > REPLAY_HEADERS_MAX {
        problems.error(
            list.span.clone(),
            format!("`{key}` is too long"),
            format!("at most {REPLAY_HEADERS_MAX} headers"),
            None,
        );
    }
    let mut names: Vec<HeaderName> = Vec::new();
    for text in &list.value {
        let label = match text.value.parse::<HeaderName>() {
            Err(_) => "not the name of a header".to_owned(),
            Ok(name) => match never_replayed(&name) {
                Some(why) => format!("never part of a replay: {why}"),
                None if names.contains(&name) => "given twice".to_owned(),
                None => {
                    names.push(name);
                    continue;
                }
            },
        };
        problems.error(text.span.clone(), format!("bad value in `{key}`"), label, None);
    }
    names
}
