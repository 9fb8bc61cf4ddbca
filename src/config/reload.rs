//! How two configurations differ: what needs a restart, by the keys that people write, and what a reload changes, in words.
//! Nothing that is said here contains a value, since values may be secret (P5).
//!
//! Every struct is taken apart in full, so that a key which is added later cannot be forgotten here.

use super::{Config, Fixed, Live};
use crate::admin::AdminSettings;
use crate::dedupe::settings::RedisSettings;
use crate::ingest::source::Limits;
use crate::store::settings::{Place, SqliteSettings, StoreSettings};

impl Config {
    /// The keys whose values in `other` a running server cannot take over, in the order of the documentation.
    pub fn needs_restart(&self, other: &Self) -> Vec<&'static str> {
        self.fixed.differences(&other.fixed)
    }
}

impl Fixed {
    fn differences(&self, other: &Self) -> Vec<&'static str> {
        let Self {
            listen,
            speaks_tls,
            limits,
            admin,
            store,
            redis,
        } = self;
        let mut keys = Differing::default();
        keys.note("listen", listen, &other.listen);
        keys.note("tls", speaks_tls, &other.speaks_tls);
        compare_limits(&mut keys, limits, &other.limits);
        let AdminSettings { listen, token, hosts } = admin;
        keys.note("admin.listen", listen, &other.admin.listen);
        keys.note("admin.token", token, &other.admin.token);
        keys.note("admin.hosts", hosts, &other.admin.hosts);
        compare_stores(&mut keys, store, &other.store);
        match (redis, &other.redis) {
            (Some(redis), Some(other)) => compare_redis(&mut keys, redis, other),
            (None, None) => {}
            (Some(_), None) | (None, Some(_)) => keys.0.push("dedupe.redis"),
        }
        keys.0
    }
}

#[derive(Debug, Default)]
struct Differing(Vec<&'static str>);

impl Differing {
    fn note<T: PartialEq + ?Sized>(&mut self, key: &'static str, one: &T, other: &T) {
        if one != other {
            self.0.push(key);
        }
    }
}

fn compare_limits(keys: &mut Differing, one: &Limits, other: &Limits) {
    let Limits {
        connections,
        head,
        head_timeout,
        body,
        body_timeout,
        idle_timeout,
        in_flight,
        unadmitted,
        replay_cache,
    } = one;
    keys.note("limits.connections", connections, &other.connections);
    keys.note("limits.head", head, &other.head);
    keys.note("limits.head_timeout", head_timeout, &other.head_timeout);
    keys.note("limits.body", body, &other.body);
    keys.note("limits.body_timeout", body_timeout, &other.body_timeout);
    keys.note("limits.idle_timeout", idle_timeout, &other.idle_timeout);
    keys.note("limits.in_flight", in_flight, &other.in_flight);
    keys.note("limits.replay_cache", replay_cache, &other.replay_cache);
    keys.note("limits.unadmitted", unadmitted, &other.unadmitted);
}

fn compare_stores(keys: &mut Differing, one: &StoreSettings, other: &StoreSettings) {
    let StoreSettings {
        place,
        retention,
        dead_retention,
        max_bytes,
        window,
        digest_window,
        // Follow from `limits.unadmitted` and from whether there is `dedupe.redis`, which are compared themselves.
        unadmitted: _,
        keep_deaths: _,
        // Made of the sources ([`Live::synchronous`]).
        synchronous: _,
    } = one;
    keys.note("store.retention", retention, &other.retention);
    keys.note("store.dead_retention", dead_retention, &other.dead_retention);
    keys.note("store.max_bytes", max_bytes, &other.max_bytes);
    match (place, &other.place) {
        (Place::Sqlite(one), Place::Sqlite(other)) => {
            let SqliteSettings {
                path,
                min_free,
                // Of `dedupe.redis`, compared there.
                separate: _,
                namespace: _,
            } = one;
            keys.note("store.min_free", min_free, &other.min_free);
            keys.note("store.sqlite.path", path, &other.path);
        }
        (Place::Postgres(one), Place::Postgres(other)) => keys.note("store.postgres.url", one, other),
        (Place::Sqlite(_), Place::Postgres(_)) | (Place::Postgres(_), Place::Sqlite(_)) => {
            keys.0.push("store.postgres");
        }
    }
    keys.note("dedupe.window", window, &other.window);
    keys.note("dedupe.digest_window", digest_window, &other.digest_window);
}

fn compare_redis(keys: &mut Differing, one: &RedisSettings, other: &RedisSettings) {
    let RedisSettings {
        address,
        namespace,
        on_down,
        timeout,
        admit_timeout,
        // Of `[dedupe]`, compared there.
        window: _,
        digest_window: _,
    } = one;
    keys.note("dedupe.redis.url", address, &other.address);
    keys.note("dedupe.redis.namespace", namespace, &other.namespace);
    keys.note("dedupe.redis.on_down", on_down, &other.on_down);
    keys.note("dedupe.redis.timeout", timeout, &other.timeout);
    keys.note("dedupe.redis.admit_timeout", admit_timeout, &other.admit_timeout);
}

impl Live {
    /// What taking over `other` changes, in words for people and logs; empty when it means the same.
    pub fn changes(&self, other: &Self) -> Vec<String> {
        let Self {
            tls,
            shutdown_delay,
            shutdown_grace,
            trusted_proxies,
            health_path,
            upstreams,
            sources,
            routes,
            window,
            watch,
            log,
        } = self;
        let mut keys = Differing::default();
        keys.note("tls", tls, &other.tls);
        keys.note("server.trusted_proxies", trusted_proxies, &other.trusted_proxies);
        keys.note("server.shutdown_delay", shutdown_delay, &other.shutdown_delay);
        keys.note("server.shutdown_grace", shutdown_grace, &other.shutdown_grace);
        keys.note("server.health_path", health_path, &other.health_path);
        keys.note("server.watch", watch, &other.watch);
        keys.note("log.level", log, &other.log);
        let mut changes: Vec<String> = keys.0.iter().map(|key| format!("`{key}` changed")).collect();
        if window != &other.window {
            // The key itself needs a restart; its value follows the sources.
            changes.push("keys are remembered for another time, since a provider retries for longer".to_owned());
        }
        changes.extend(list("upstream", upstreams, &other.upstreams, |upstream| {
            upstream.name.as_str()
        }));
        changes.extend(list("source", sources, &other.sources, |source| source.name.as_str()));
        changes.extend(list("route", routes, &other.routes, |route| route.name.as_str()));
        changes
    }
}

/// What was added, changed and removed; the order of a file means nothing.
fn list<T: PartialEq>(kind: &str, before: &[T], after: &[T], name: impl Fn(&T) -> &str) -> Vec<String> {
    let has = |list: &[T], wanted: &str| list.iter().any(|item| name(item) == wanted);
    let say = |item: &T, what: &str| format!("{kind} `{}` {what}", name(item));
    let mut changes = Vec::new();
    for item in after {
        if !has(before, name(item)) {
            changes.push(say(item, "added"));
        } else if !before.contains(item) {
            changes.push(say(item, "changed"));
        }
    }
    let gone = before.iter().filter(|item| !has(after, name(item)));
    changes.extend(gone.map(|item| say(item, "removed")));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, load_text};
    use crate::time::Timestamp;

    const BASE: &str = r#"
listen = "127.0.0.1:8080"
[server]
health_path = "/up"
[limits]
connections = 9
[admin]
listen = "127.0.0.1:9180"
token = { env = "TOKEN" }
[store]
retention = "3d"
[store.sqlite]
path = "data"
[dedupe]
window = "7d"
[dedupe.redis]
url = { env = "REDIS" }
namespace = "shop"
[upstreams.app]
url = "http://127.0.0.1:3000"
[upstreams.spare]
url = "http://127.0.0.1:3001"
[sources.a]
path = "/a"
provider = "hmac"
secrets = [{ env = "OLD", label = "one" }]
upstreams = ["app"]
[routes.rest]
path = "/{*rest}"
upstream = "spare"
"#;

    fn config(text: &str) -> Config {
        let environment = Environment::fixed(Timestamp::from_secs(1_795_000_000))
            .with_variable("TOKEN", "0123456789abcdef0123456789abcdef")
            .with_variable("OTHER_TOKEN", "fedcba9876543210fedcba9876543210")
            .with_variable("REDIS", "redis://:hunter2@127.0.0.1:6379")
            .with_variable("OTHER_REDIS", "redis://:hunter3@127.0.0.1:6379")
            .with_variable("OLD", "old-secret-0123456789")
            .with_variable("NEW", "new-secret-0123456789");
        let (config, report) = load_text("hooksluice.toml", text, &environment);
        config.unwrap_or_else(|| panic!("{}", report.render(false)))
    }

    /// What `edits` make different: the keys that need a restart, and the changes.
    fn differences(edits: &[(&str, &str)]) -> (Vec<&'static str>, Vec<String>) {
        let text = edits.iter().fold(BASE.to_owned(), |text, (old, new)| {
            assert!(text.contains(old), "{old}");
            text.replace(old, new)
        });
        let (base, other) = (config(BASE), config(&text));
        (base.needs_restart(&other), base.live.changes(&other.live))
    }

    #[test]
    fn the_same_text_read_again_is_no_difference() {
        assert_eq!(differences(&[]), (vec![], vec![]));
        assert_eq!(differences(&[("[limits]", "# a remark\n[limits]")]), (vec![], vec![]));
    }

    #[test]
    fn what_needs_a_restart_is_named_by_its_key() {
        for (old, new, key) in [
            ("listen = \"127.0.0.1:8080\"", "listen = \"127.0.0.1:8081\"", "listen"),
            ("connections = 9", "connections = 10", "limits.connections"),
            ("connections = 9", "connections = 9\nhead = \"64KiB\"", "limits.head"),
            (
                "connections = 9",
                "connections = 9\nin_flight = \"32MiB\"",
                "limits.in_flight",
            ),
            ("127.0.0.1:9180", "127.0.0.1:9181", "admin.listen"),
            ("\"TOKEN\"", "\"OTHER_TOKEN\"", "admin.token"),
            ("\"TOKEN\" }", "\"TOKEN\" }\nhosts = [\"a.b\"]", "admin.hosts"),
            ("retention = \"3d\"", "retention = \"4d\"", "store.retention"),
            ("retention = \"3d\"", "min_free = \"1GiB\"", "store.min_free"),
            ("path = \"data\"", "path = \"other\"", "store.sqlite.path"),
            ("window = \"7d\"", "window = \"8d\"", "dedupe.window"),
            ("window = \"7d\"", "digest_window = \"6m\"", "dedupe.digest_window"),
            ("\"REDIS\"", "\"OTHER_REDIS\"", "dedupe.redis.url"),
            ("\"shop\"", "\"shop2\"", "dedupe.redis.namespace"),
            ("\"shop\"", "\"shop\"\non_down = \"refuse\"", "dedupe.redis.on_down"),
        ] {
            assert_eq!(differences(&[(old, new)]).0, [key], "{new}");
        }
    }

    #[test]
    fn what_a_reload_changes_is_said_in_words_that_hold_no_value() {
        let changes = |edits: &[(&str, &str)]| {
            let (restart, changes) = differences(edits);
            assert!(restart.is_empty(), "{restart:?}");
            changes
        };
        let more =
            "[sources.b]\npath = \"/b\"\nprovider = \"hmac\"\nsecrets = [{ env = \"OLD\" }]\nupstreams = [\"app\"]\n";
        assert_eq!(changes(&[("\"OLD\"", "\"NEW\"")]), ["source `a` changed"]);
        assert_eq!(
            changes(&[("label = \"one\"", "label = \"two\"")]),
            ["source `a` changed"]
        );
        assert_eq!(
            changes(&[("[routes.rest]", &format!("{more}[routes.rest]"))]),
            ["source `b` added"]
        );
        assert_eq!(
            changes(&[("[sources.a]", "[sources.b]")]),
            ["source `b` added", "source `a` removed"]
        );
        assert_eq!(
            changes(&[("3001", "3002")]),
            ["upstream `spare` changed", "route `rest` changed"]
        );
        assert_eq!(
            changes(&[("health_path = \"/up\"", "watch = false\n[log]\nlevel = \"warn\"")]),
            [
                "`server.health_path` changed",
                "`server.watch` changed",
                "`log.level` changed"
            ]
        );
    }
}
