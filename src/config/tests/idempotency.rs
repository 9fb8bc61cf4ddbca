//! `idempotency = { … }` of a route.

use std::time::Duration;

use http::{HeaderName, Method, header};

use super::{APP, load, refused, warned};
use crate::routes::idempotency::fingerprint::BodyAs;
use crate::routes::idempotency::scope::Scope;
use crate::routes::idempotency::{IdempotencySettings, OnAmbiguous};

fn route(keys: &str, tables: &str) -> String {
    format!(
        "{APP}[routes.orders]\npath = \"/orders/{{*rest}}\"\nupstream = \"app\"\nidempotency = {{ {keys} }}\n{tables}\n"
    )
}

#[track_caller]
fn settings(keys: &str) -> IdempotencySettings {
    let (config, shown) = load(&route(keys, ""));
    let config = config.unwrap_or_else(|| panic!("{shown}"));
    assert!(!shown.contains("warning"), "{shown}");
    config.live.routes[0].idempotency.clone().unwrap()
}

#[test]
fn the_example_of_the_contract_means_what_it_says() {
    let said =
        settings("methods = [\"POST\", \"PATCH\"], required = true, scope = \"header:authorization\", ttl = \"24h\"");
    assert_eq!(said.methods, [Method::POST, Method::PATCH]);
    assert!(said.required);
    assert_eq!(said.scope, Scope::Header(header::AUTHORIZATION));
    assert_eq!(said.ttl, Duration::from_secs(86_400));
}

#[test]
fn only_the_scope_has_no_default() {
    let said = settings("scope = \"cookie:session\"");
    assert_eq!(said.scope, Scope::Cookie("session".to_owned()));
    assert_eq!(said.methods, [Method::POST, Method::PATCH]);
    assert!(!said.required);
    assert_eq!((said.ttl, said.wait), (Duration::from_secs(86_400), Duration::ZERO));
    assert_eq!(said.fingerprint, BodyAs::Bytes);
    assert_eq!((said.max_body, said.max_stored), (5 << 20, 1 << 20));
    assert!(said.replay_headers.is_empty());
    assert_eq!(said.on_ambiguous, OnAmbiguous::Hold);

    let said = settings(
        "scope = \"public\", methods = [\"PUT\"], wait = \"5s\", fingerprint = \"canonical-json\", max_body = \"1KiB\", \
         max_stored = \"0B\", replay_headers = [\"X-Order-Id\"], on_ambiguous = \"retry\"",
    );
    assert_eq!((said.scope, said.methods), (Scope::Public, vec![Method::PUT]));
    assert_eq!(
        (said.wait, said.fingerprint),
        (Duration::from_secs(5), BodyAs::CanonicalJson)
    );
    assert_eq!((said.max_body, said.max_stored), (1024, 0));
    assert_eq!(said.replay_headers, [HeaderName::from_static("x-order-id")]);
    assert_eq!(said.on_ambiguous, OnAmbiguous::Retry);
}

#[test]
fn each_mistake_is_told_with_its_place_and_a_way_out() {
    for (keys, parts) in [
        (
            "required = true",
            &[
                "`routes.orders.idempotency` has no `scope`",
                "header:NAME",
                "cookie:NAME",
                "public",
            ][..],
        ),
        ("scop = \"public\"", &["unknown key `scop`", "did you mean `scope`?"]),
        (
            "scope = \"authorization\"",
            &[
                "expected \"header:NAME\", \"cookie:NAME\", \"mtls\" or \"public\"",
                "did you mean \"header:authorization\"?",
            ],
        ),
        ("scope = \"X-User-Id\"", &["did you mean \"header:x-user-id\"?"]),
        ("scope = \"query:key\"", &["expected \"header:NAME\""]),
        ("scope = \"mtls-subject\"", &["did you mean \"mtls\"?"]),
        (
            "scope = \"mtls\"",
            &["idempotency.scope` needs `client_ca` in [tls]", "a proxy that ends TLS"],
        ),
        ("scope = \"header:a b\"", &["not the name of a header"]),
        ("scope = \"header:cookie\"", &["cookie:NAME"]),
        ("scope = \"header:Idempotency-Key\"", &["the key is no caller"]),
        ("scope = \"header:connection\"", &["speaks of one connection"]),
        ("scope = \"header:Hooksluice-User\"", &["are removed from requests"]),
        ("scope = \"cookie:\"", &["not the name of a cookie"]),
        (
            "scope = \"public\", methods = []",
            &["`routes.orders.idempotency.methods` is empty"],
        ),
        (
            "scope = \"public\", methods = [\"GET\"]",
            &["a key on it is passed on and otherwise ignored"],
        ),
        ("scope = \"public\", methods = [\"post\"]", &["did you mean `POST`?"]),
        ("scope = \"public\", methods = [\"POST\", \"POST\"]", &["given twice"]),
        (
            "scope = \"public\", ttl = \"0s\"",
            &["routes.orders.idempotency.ttl", "must be from 1s to 365d"],
        ),
        ("scope = \"public\", ttl = \"3000d\"", &["must be from 1s to 365d"]),
        (
            "scope = \"public\", wait = \"10m\"",
            &["routes.orders.idempotency.wait", "must be from 0s to 5m"],
        ),
        (
            "scope = \"public\", wait = \"5s\", ttl = \"5s\"",
            &["is not shorter than `ttl`"],
        ),
        (
            "scope = \"public\", fingerprint = \"json\"",
            &["expected \"bytes\" or \"canonical-json\""],
        ),
        (
            "scope = \"public\", max_body = \"100MiB\"",
            &["is larger than `limits.in_flight`"],
        ),
        (
            "scope = \"public\", max_stored = \"1GiB\"",
            &["must be from 0B to 16MiB"],
        ),
        (
            "scope = \"public\", replay_headers = [\"Set-Cookie\"]",
            &["never part of a replay", "cookie"],
        ),
        (
            "scope = \"public\", replay_headers = [\"X-RateLimit-Reset\"]",
            &["never part of a replay"],
        ),
        (
            "scope = \"public\", replay_headers = [\"Connection\"]",
            &["never part of a replay"],
        ),
        (
            "scope = \"public\", replay_headers = [\"a b\"]",
            &["not the name of a header"],
        ),
        (
            "scope = \"public\", replay_headers = [\"X-A\", \"x-a\"]",
            &["given twice"],
        ),
        (
            "scope = \"public\", on_ambiguous = \"release\"",
            &["expected \"hold\" or \"retry\""],
        ),
        ("scope = \"public\", replicas = \"any\"", &["expected \"sticky\""]),
    ] {
        refused(&route(keys, ""), parts);
    }
    let body = "idempotency = { scope = \"public\", max_body = \"2KiB\" }\nmax_body = \"1KiB\"";
    refused(
        &format!("{APP}[routes.a]\npath = \"/a\"\nupstream = \"app\"\n{body}"),
        &["is larger than the route's `max_body`"],
    );
    refused(
        &route("scope = \"public\"", "[limits]\nreplay_cache = \"2TiB\""),
        &["limits.replay_cache", "must be from 0B to 1TiB"],
    );
}

const REDIS: &str = "[dedupe.redis]\nurl = \"redis://127.0.0.1\"\n";

#[test]
fn separate_stores_are_refused_unless_a_repetition_finds_its_own() {
    let separate = format!("{REDIS}namespace = \"shop\"\n");
    refused(
        &route("scope = \"public\"", &separate),
        &[
            "not safe over several replicas with a store each",
            "replicas = \"sticky\"",
            "[store.postgres]",
        ],
    );
    let (config, shown) = load(&route("scope = \"public\", replicas = \"sticky\"", &separate));
    assert!(config.is_some(), "{shown}");
    // Without Redis nothing says that there is more than one.
    settings("scope = \"public\"");
    warned(
        &route("scope = \"public\", replicas = \"sticky\"", ""),
        &["has no effect"],
    );
    let shared = format!("{REDIS}[store.postgres]\nurl = \"postgres://u@127.0.0.1/x\"\n");
    let (config, shown) = load(&route("scope = \"public\"", &shared));
    assert!(config.is_some(), "{shown}");
}
