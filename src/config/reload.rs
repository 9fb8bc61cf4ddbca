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
        let mut keys = self.fixed.differences(&other.fixed);
        // Redis keeps keys for the window that it was connected with.
        let raised = self.fixed.redis.is_some() && self.live.window != other.live.window;
        if raised && !keys.contains(&"dedupe.window") {
            keys.push("dedupe.window");
        }
        keys
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
