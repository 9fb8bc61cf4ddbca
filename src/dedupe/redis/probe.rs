//! A look at Redis, which leaves nothing there.

use tokio_util::task::TaskTracker;

use super::commands::{self, Silence};
use super::connect::{self, QUESTION};
use super::contact::Eviction;
use crate::dedupe::settings::RedisSettings;
use crate::finding::Finding;

const KEY: &str = "dedupe.redis.url";

/// Connects, asks what it is, and whether we may write: with a command that writes only where there is a key already, of
/// a name that nobody uses.
pub async fn probe(settings: &RedisSettings) -> Vec<Finding> {
    let tracker = TaskTracker::new();
    let (link, eviction) = match connect::open(&settings.address, &tracker).await {
        Ok(open) => open,
        Err(away) => {
            let mut said = format!("Redis cannot be used: {away}");
            let mut cause = std::error::Error::source(&away);
            while let Some(error) = cause {
                said.push_str(&format!(": {error}"));
                cause = error.source();
            }
            let help = "see that it runs (7.0 or newer), that this machine may connect, and that the URL names the right user and \
                        password";
            return vec![Finding::fail(KEY, said, help)];
        }
    };
    let mut found = vec![Finding::ok(KEY, "connected: Redis 7.0 or newer, a primary")];
    found.push(match eviction {
        Eviction::Never => Finding::ok(KEY, "it evicts no keys"),
        Eviction::Evicts { policy } => Finding::warn(
            KEY,
            format!("maxmemory-policy is {policy}: keys may be thrown away, and deliveries forwarded twice"),
            "set `maxmemory-policy noeviction`",
        ),
        Eviction::Unknown => Finding::warn(
            KEY,
            "whether it evicts keys cannot be found out",
            "let our user run INFO, or see yourself that `maxmemory-policy` is noeviction",
        ),
    });
    let namespace = settings
        .namespace
        .as_ref()
        .map_or("probe", |namespace| namespace.as_str());
    let key = format!("hooksluice:{namespace}:probe");
    let asked = link.ask(commands::write_nothing(&key), QUESTION).await;
    link.lost.cancel();
    found.push(match asked {
        Ok(_nothing) => Finding::ok(KEY, "our user may write under `hooksluice:`"),
        Err(silence) => Finding::fail(
            KEY,
            format!("a write under `hooksluice:` is refused: {silence}"),
            help(&silence),
        ),
    });
    found
}

fn help(silence: &Silence) -> &'static str {
    match silence {
        Silence::Forbidden => {
            "give our user the keys and commands: ACL SETUSER NAME ~hooksluice:* +@read +@write +@scripting"
        }
        _ => "see what Redis says of itself: its memory may be full, its disk too, or it may be a replica",
    }
}
