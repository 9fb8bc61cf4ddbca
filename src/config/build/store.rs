//! `[store]` and `[dedupe]`: where events are kept, and what remembers their keys.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::{defaults, file, or, span, within};
use crate::config::defaults::Quantity;
use crate::config::file::File;
use crate::config::secrets::Secrets;
use crate::dedupe::protocol::OnDown;
use crate::dedupe::redis::address::Address;
use crate::dedupe::settings::{Namespace, RedisSettings};
use crate::diagnostic::Diagnostics;
use crate::ingest::source::{Limits, Source};
use crate::reader::At;
use crate::secret::Secret;
use crate::store::settings::{Place, PostgresSettings, SqliteSettings, StoreSettings};
use crate::verify::record::FactsConfidence;

pub(super) fn build(file: &File, limits: &Limits, secrets: Secrets<'_>, problems: &mut Diagnostics) -> StoreSettings {
    let written = &file.store;
    let settings = StoreSettings {
        place: place(file, secrets, problems),
        retention: within(&written.retention, &defaults::RETENTION, "store.retention", problems),
        dead_retention: within(
            &written.dead_retention,
            &defaults::DEAD_RETENTION,
            "store.dead_retention",
            problems,
        ),
        max_bytes: within(&written.max_bytes, &defaults::MAX_BYTES, "store.max_bytes", problems),
        window: within(&file.dedupe.window, &defaults::WINDOW, "dedupe.window", problems),
        digest_window: within(
            &file.dedupe.digest_window,
            &defaults::DIGEST_WINDOW,
            "dedupe.digest_window",
            problems,
        ),
        unadmitted: limits.unadmitted,
        keep_deaths: file.dedupe.redis.is_some(),
        synchronous: BTreeMap::new(),
    };
    if settings.digest_window > settings.window {
        problems.error(
            span(&file.dedupe.digest_window).or(span(&file.dedupe.window)),
            "`dedupe.digest_window` is longer than `dedupe.window`",
            format!("{} against {}", settings.digest_window.show(), settings.window.show()),
            Some("a digest says less than an id and is remembered for a shorter time".to_owned()),
        );
    }
    if settings.max_bytes < limits.body {
        problems.error(
            span(&written.max_bytes).or(span(&file.limits.body)),
            "`store.max_bytes` is smaller than one body",
            format!("`limits.body` is {}", limits.body.show()),
            None,
        );
    }
    settings
}

fn place(file: &File, secrets: Secrets<'_>, problems: &mut Diagnostics) -> Place {
    if let (Some(postgres), true) = (&file.store.postgres, file.store.sqlite.is_some()) {
        problems.error(
            postgres.span.clone(),
            "both `store.sqlite` and `store.postgres` are given",
            "events are kept in one store",
            Some("remove the other table".to_owned()),
        );
    }
    match &file.store.postgres {
        Some(written) => match postgres(file, written, secrets, problems) {
            Some(settings) => Place::Postgres(settings),
            None => Place::Sqlite(SqliteSettings::default()),
        },
        None => Place::Sqlite(sqlite(file, problems)),
    }
}

fn sqlite(file: &File, problems: &mut Diagnostics) -> SqliteSettings {
    let written = file.store.sqlite.as_ref().and_then(|sqlite| sqlite.value.path.as_ref());
    if let Some(path) = written
        && (path.value.trim().is_empty() || path.value.contains('\0'))
    {
        problems.error(
            path.span.clone(),
            "bad value for `store.sqlite.path`",
            "expected a directory",
            Some(format!("the default is \"{}\"", defaults::STORE_PATH)),
        );
    }
    let redis = file.dedupe.redis.as_ref();
    let settings = SqliteSettings {
        path: written.map_or(defaults::STORE_PATH, |path| &path.value).into(),
        min_free: within(&file.store.min_free, &defaults::MIN_FREE, "store.min_free", problems),
        separate: file.dedupe.redis.is_some(),
        namespace: redis.and_then(|redis| Some(redis.value.namespace.as_ref()?.value.clone())),
    };
    if settings.min_free == 0 {
        problems.warning(
            span(&file.store.min_free),
            "`store.min_free` is off",
            "a full disk is then noticed only when a write fails",
            None,
        );
    }
    settings
}

fn postgres(
    file: &File,
    written: &At<file::Postgres>,
    secrets: Secrets<'_>,
    problems: &mut Diagnostics,
) -> Option<PostgresSettings> {
    const EMBEDDED_ONLY: &str = "it belongs to the embedded store";
    no_meaning(span(&file.store.min_free), "store.min_free", EMBEDDED_ONLY, problems);
    no_meaning(
        span(&file.limits.unadmitted),
        "limits.unadmitted",
        "with Postgres an event is admitted as it is appended",
        problems,
    );
    // Stands for what is reported, or not looked up: it never runs.
    let placeholder = || PostgresSettings::read(Secret::new("postgres://unknown@unknown")).ok();
    let Some(url) = url(&written.value.url, "`store.postgres`", secrets, problems) else {
        return placeholder();
    };
    match PostgresSettings::read(url) {
        Ok(settings) => Some(settings),
        Err(error) => {
            bad_url(&written.value.url, "`store.postgres`", &error, problems);
            placeholder()
        }
    }
}

/// `[dedupe.redis]`, after the windows are known.
pub(super) fn redis(
    file: &File,
    store: &StoreSettings,
    secrets: Secrets<'_>,
    problems: &mut Diagnostics,
) -> Option<RedisSettings> {
    let At {
        value: written,
        span: at,
    } = file.dedupe.redis.as_ref()?;
    let namespace = written.namespace.as_ref().and_then(|name| {
        let namespace = Namespace::new(&name.value);
        if namespace.is_none() {
            problems.error(
                name.span.clone(),
                "bad value for `dedupe.redis.namespace`",
                "expected 1 to 128 of a-z, A-Z, 0-9, `-`, `_` and `.`",
                None,
            );
        }
        namespace
    });
    match &store.place {
        Place::Sqlite(_) if written.namespace.is_none() => problems.error(
            at.clone(),
            "`dedupe.redis` has no `namespace`",
            "required with the embedded store: it names the replicas that share events",
            Some(
                "add `namespace = \"shop\"`, the same at each replica, another for each deployment; change it when a store \
                 is restored"
                    .to_owned(),
            ),
        ),
        Place::Sqlite(_) => {}
        Place::Postgres(_) => {
            const SHARED: &str = "the shared store decides alone; Redis only saves it work";
            no_meaning(span(&written.on_down), "dedupe.redis.on_down", SHARED, problems);
            no_meaning(span(&written.admit_timeout), "dedupe.redis.admit_timeout", SHARED, problems);
        }
    }
    let timeout = within(
        &written.timeout,
        &defaults::REDIS_TIMEOUT,
        "dedupe.redis.timeout",
        problems,
    );
    let admit_timeout = within(
        &written.admit_timeout,
        &defaults::REDIS_ADMIT_TIMEOUT,
        "dedupe.redis.admit_timeout",
        problems,
    );
    let on_down = or(&written.on_down, OnDown::default());
    let url = url(&written.url, "`dedupe.redis`", secrets, problems)?;
    let address = match Address::parse(&String::from_utf8_lossy(url.expose())) {
        Ok(address) => address,
        Err(error) => {
            bad_url(&written.url, "`dedupe.redis`", &error, problems);
            return None;
        }
    };
    Some(RedisSettings {
        address,
        namespace,
        on_down,
        timeout,
        admit_timeout,
        window: store.window,
        digest_window: store.digest_window,
    })
}

/// The URL, if it can be judged: references may be left alone.
fn url(
    written: &Option<file::SecretEntry>,
    what: &str,
    secrets: Secrets<'_>,
    problems: &mut Diagnostics,
) -> Option<Secret> {
    let url = secrets.resolve(written.as_ref()?, what, problems)?;
    let is_written = |entry: &file::SecretEntry| {
        let from = entry.from.as_ref().map(|from| &from.value);
        matches!(from, Some(file::SecretFrom::Plain(_) | file::SecretFrom::Value(_)))
    };
    (!secrets.are_skipped() || written.as_ref().is_some_and(is_written)).then_some(url)
}

/// Says what is wrong without repeating the URL, which may hold a password.
fn bad_url(written: &Option<file::SecretEntry>, what: &str, error: &dyn std::fmt::Display, problems: &mut Diagnostics) {
    problems.error(
        written.as_ref().map(|entry| entry.span.clone()),
        format!("the URL of {what} cannot be used"),
        error.to_string(),
        None,
    );
}

/// A key that says something which the rest of the file makes meaningless is a mistake, never ignored.
fn no_meaning(at: Option<Range<usize>>, key: &str, why: &str, problems: &mut Diagnostics) {
    if let Some(at) = at {
        problems.error(
            at,
            format!("`{key}` has no meaning with `store.postgres`"),
            why.to_owned(),
            Some("remove it".to_owned()),
        );
    }
}

/// A key must outlive the provider's last retry, or that retry would be new.
pub(super) fn raised_window(
    file: &File,
    sources: &[Source],
    written: Duration,
    problems: &mut Diagnostics,
) -> Duration {
    let mut raised = written;
    for source in sources {
        let Some(horizon) = source.verifier.record().retry_horizon() else {
            continue;
        };
        if horizon <= raised {
            continue;
        }
        if let Some(window) = &file.dedupe.window {
            problems.warning(
                window.span.clone(),
                format!("`dedupe.window` is raised to {}", horizon.show()),
                match source.verifier.record().facts_confidence() {
                    FactsConfidence::Documented => {
                        format!("the provider of source `{}` retries for that long", source.name)
                    }
                    FactsConfidence::Hint => {
                        format!(
                            "the provider of source `{}` is said to retry for that long",
                            source.name
                        )
                    }
                },
                None,
            );
        }
        raised = horizon;
    }
    raised
}
