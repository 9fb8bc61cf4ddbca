//! [`RedisSettings`]: what `[dedupe.redis]` says, and the [`Namespace`] of its keys.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::protocol::OnDown;
use super::redis::address::Address;
use crate::key::KeyKind;

/// What `[dedupe.redis]` says, with the windows of `[dedupe]`.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// Where Redis is; holds the password, opaque.
    pub address: Address,
    /// Required with a store for each replica; a shared store names its own (see [`Namespace`]).
    pub namespace: Option<Namespace>,
    /// What admission does when Redis does not answer.
    pub on_down: OnDown,
    /// How long a look may take, waiting for everything.
    pub timeout: Duration,
    /// How long admission waits for Redis before `on_down` says what happens.
    pub admit_timeout: Duration,
    /// `dedupe.window`, the longest over all sources.
    pub window: Duration,
    /// `dedupe.digest_window`.
    pub digest_window: Duration,
}

impl RedisSettings {
    /// The default of `timeout`.
    pub const TIMEOUT: Duration = Duration::from_millis(100);
    /// The default of `admit_timeout`.
    pub const ADMIT_TIMEOUT: Duration = Duration::from_secs(10);

    /// How long Redis keeps a key of this kind. A digest key is judged by the distance of the received-at times, and the
    /// later one may be up to a window older than the moment it is written: twice the window covers every pair that the
    /// window would join.
    pub fn ttl(&self, kind: KeyKind) -> Duration {
        match kind {
            KeyKind::Rule => self.window,
            KeyKind::Digest => self.digest_window * 2,
        }
    }
}

/// Names the replicas that share events: keys of another deployment, or of yesterday's store, must never answer for us.
///
/// With a store for each replica the configuration says it. A shared store's own identity is the namespace, so it
/// is unknown while the store is away and changes with a fail-over, a recovery or a clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// The namespace of this name: 1 to 128 letters, digits, `-`, `_` and `.`; `None` for any other text. Never a brace,
    /// which would pin all keys to one slot of a Cluster, and never a colon, which parts the parts of a key.
    pub fn new(name: &str) -> Option<Self> {
        let fine = (1..=128).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        fine.then(|| Self(name.into()))
    }

    /// As it stands in keys.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Namespace({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_neither_braces_nor_colons() {
        for good in ["shop", "a", "0198.7-1_2", &"x".repeat(128)] {
            assert_eq!(Namespace::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "{shop}", "a:b", "a b", "ä", "a*", &"x".repeat(129)] {
            assert_eq!(Namespace::new(bad), None, "{bad}");
        }
    }
}
