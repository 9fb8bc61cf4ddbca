//! First contact: what a server says of itself, and whether it will do. Pure; the asking is in `connect`.

/// The oldest Redis that has every command we use (`SET … NX GET` is new in 7.0).
pub const OLDEST: (u32, u32) = (7, 0);

/// What a server says of itself; `None` where it does not say, or we may not ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `redis_version`: major, minor and as it was written.
    pub version: Option<Version>,
    /// `redis_mode`: `standalone`, `cluster` or `sentinel`.
    pub mode: Option<String>,
    /// `role`: `master` or `slave`.
    pub role: Option<String>,
    /// `maxmemory` in bytes; 0 is no limit.
    pub maxmemory: Option<u64>,
    /// `maxmemory_policy`.
    pub policy: Option<String>,
}

/// A version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    major: u32,
    minor: u32,
    text: String,
}

/// Why a server will not do. It is treated as if it were away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Older than [`OLDEST`].
    #[error("Redis {version} is too old: 7.0 or newer is needed")]
    TooOld {
        /// Its version.
        version: String,
    },
    /// A replica: what it knows is old, and it takes nothing.
    #[error("the server is a replica")]
    Replica,
    /// A Sentinel where a data node is expected.
    #[error("the server is a Sentinel: write redis+sentinel://host/NAME")]
    Sentinel,
    /// One node of a Cluster where a single server is expected: it has only some of the keys.
    #[error("the server is a node of a Cluster: write redis+cluster://host")]
    ClusterNode,
}

/// What Redis may do with our keys when its memory is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Refuse new ones: nothing is forgotten.
    Never,
    /// Throw old ones away.
    Evicts {
        /// `maxmemory_policy`.
        policy: String,
    },
    /// We could not find out.
    Unknown,
}

impl Facts {
    /// Reads more facts from the text that `INFO` answers with, or from `HELLO`'s or `CONFIG GET`'s names and values.
    pub fn learn<'t>(&mut self, pairs: impl IntoIterator<Item = (&'t str, &'t str)>) {
        for (name, value) in pairs {
            match name {
                "redis_version" | "version" => self.version = Version::read(value),
                "redis_mode" | "mode" => self.mode = Some(value.to_owned()),
                "role" => self.role = Some(value.to_owned()),
                "maxmemory" => self.maxmemory = value.parse().ok(),
                "maxmemory_policy" | "maxmemory-policy" => self.policy = Some(value.to_owned()),
                _ => {}
            }
        }
    }

    /// Whether the server will do, as a node of a Cluster or alone. One that does not tell its version is taken: with an older one the commands that it
    /// does not know fail, and a failure is never an answer.
    ///
    /// # Errors
    /// When it will not do.
    pub fn judge(&self, in_cluster: bool) -> Result<(), Unfit> {
        match self.mode.as_deref() {
            Some("sentinel") => return Err(Unfit::Sentinel),
            Some("cluster") if !in_cluster => return Err(Unfit::ClusterNode),
            Some(_) | None => {}
        }
        if let Some(version) = &self.version
            && (version.major, version.minor) < OLDEST
        {
            return Err(Unfit::TooOld {
                version: version.text.clone(),
            });
        }
        match self.role.as_deref() {
            Some("slave" | "replica") => Err(Unfit::Replica),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether keys may be thrown away. All of ours have a time to live, so that the `volatile-…` policies mean them too.
    pub fn eviction(&self) -> Eviction {
        match (self.maxmemory, self.policy.as_deref()) {
            (Some(0), _) | (_, Some("noeviction")) => Eviction::Never,
            (_, Some(policy)) => Eviction::Evicts {
                policy: policy.to_owned(),
            },
            (_, None) => Eviction::Unknown,
        }
    }
}

/// The names and values of `INFO`'s text.
pub fn info_pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.trim_end().split_once(':'))
}

impl Version {
    fn read(text: &str) -> Option<Self> {
        let mut numbers = text.split('.');
        let mut number = || numbers.next()?.parse().ok();
        Some(Self {
            major: number()?,
            minor: number()?,
            text: text.chars().take(32).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(text: &str) -> Facts {
        let mut facts = Facts::default();
        facts.learn(info_pairs(text));
        facts
    }

    #[test]
    fn a_master_of_7_0_will_do() {
        let good =
            facts("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n\r\n# Replication\r\nrole:master\r\n");
        assert_eq!(good.judge(false), Ok(()));
        assert_eq!(facts("redis_version:255.255.255").judge(false), Ok(()));
        assert_eq!(facts("").judge(false), Ok(()), "one that says nothing is tried");
        assert_eq!(facts("redis_version:unstable").judge(false), Ok(()));
    }

    #[test]
    fn an_older_one_a_replica_a_sentinel_and_a_part_of_a_cluster_will_not() {
        assert_eq!(
            facts("redis_version:6.2.14\r\nrole:master").judge(false),
            Err(Unfit::TooOld {
                version: "6.2.14".to_owned()
            })
        );
        assert_eq!(
            facts("redis_version:7.2.0\r\nrole:slave").judge(false),
            Err(Unfit::Replica)
        );
        assert_eq!(
            facts("redis_version:7.2.0\r\nredis_mode:sentinel").judge(false),
            Err(Unfit::Sentinel)
        );
        let node = facts("redis_version:7.2.0\r\nredis_mode:cluster\r\nrole:master");
        assert_eq!(node.judge(false), Err(Unfit::ClusterNode));
        assert_eq!(node.judge(true), Ok(()));
    }

    #[test]
    fn keys_are_thrown_away_only_under_a_limit_and_another_policy_than_noeviction() {
        let limited = |policy: &str| facts(&format!("maxmemory:1000\r\nmaxmemory_policy:{policy}")).eviction();
        assert_eq!(limited("noeviction"), Eviction::Never);
        for policy in ["allkeys-lru", "volatile-ttl"] {
            assert_eq!(
                limited(policy),
                Eviction::Evicts {
                    policy: policy.to_owned()
                }
            );
        }
        assert_eq!(
            facts("maxmemory:0\r\nmaxmemory_policy:allkeys-lru").eviction(),
            Eviction::Never
        );
        assert_eq!(facts("").eviction(), Eviction::Unknown);
    }
}
