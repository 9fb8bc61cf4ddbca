//! Every default and every bound of the configuration. What a value means is said at the settings types.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::config::file::Signature;
use crate::dedupe::settings::RedisSettings;
use crate::reader::{show_duration, show_size};

/// What a key is when it is not written, and what it may be.
#[derive(Debug)]
pub(super) struct Setting<T> {
    pub(super) default: T,
    pub(super) min: T,
    pub(super) max: T,
}

const fn setting<T>(default: T, min: T, max: T) -> Setting<T> {
    Setting { default, min, max }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
const TEN_YEARS: Duration = Duration::from_secs(3650 * 86_400);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Files are cheap to look at, and a certificate that rotates must not wait for a person.
pub(super) const WATCH: bool = true;

pub(super) const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080);
pub(super) const SHUTDOWN_DELAY: Setting<Duration> = setting(Duration::ZERO, Duration::ZERO, HOUR);
pub(super) const SHUTDOWN_GRACE: Setting<Duration> = setting(secs(25), Duration::ZERO, HOUR);

pub(super) const CONNECTIONS: i64 = 4096;
/// The lower bound is the HTTP library's.
pub(super) const HEAD: Setting<u64> = setting(32 * KIB, 8 * KIB, MIB);
pub(super) const HEAD_TIMEOUT: Setting<Duration> = setting(secs(10), ms(10), HOUR);
pub(super) const BODY: Setting<u64> = setting(5 * MIB, 1, GIB);
pub(super) const BODY_TIMEOUT: Setting<Duration> = setting(secs(30), ms(10), HOUR);
pub(super) const IDLE_TIMEOUT: Setting<Duration> = setting(secs(90), ms(10), DAY);
pub(super) const IN_FLIGHT: Setting<u64> = setting(64 * MIB, 64 * KIB, TIB);
pub(super) const UNADMITTED: i64 = 100_000;

pub(super) const ADMIN_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9180);
/// Shorter tokens can be guessed; longer ones are no problem.
pub(super) const ADMIN_TOKEN_MIN: usize = 16;

pub(super) const STORE_PATH: &str = "hooksluice-data";
pub(super) const RETENTION: Setting<Duration> = setting(secs(3 * 86_400), ms(1), TEN_YEARS);
pub(super) const DEAD_RETENTION: Setting<Duration> = setting(secs(30 * 86_400), ms(1), TEN_YEARS);
pub(super) const MAX_BYTES: Setting<u64> = setting(20 * GIB, MIB, 1 << 60);
pub(super) const MIN_FREE: Setting<u64> = setting(512 * MIB, 0, 1 << 60);

pub(super) const WINDOW: Setting<Duration> = setting(secs(7 * 86_400), ms(1), TEN_YEARS);
pub(super) const DIGEST_WINDOW: Setting<Duration> = setting(secs(300), ms(1), DAY);

pub(super) const REDIS_TIMEOUT: Setting<Duration> = setting(RedisSettings::TIMEOUT, ms(1), secs(10));
pub(super) const REDIS_ADMIT_TIMEOUT: Setting<Duration> = setting(RedisSettings::ADMIT_TIMEOUT, ms(10), HOUR);

pub(super) const CONCURRENCY: i64 = 16;
pub(super) const TIMEOUT: Setting<Duration> = setting(secs(30), ms(1), HOUR);
pub(super) const RETRY_FIRST: Setting<Duration> = setting(secs(5), ms(1), DAY);
pub(super) const RETRY_MAX: Setting<Duration> = setting(HOUR, ms(1), secs(7 * 86_400));
pub(super) const GIVE_UP_AFTER: Setting<Duration> = setting(secs(7 * 86_400), ms(1), TEN_YEARS);
pub(super) const GIVE_UP_REFUSED: Setting<Duration> = setting(DAY, ms(1), TEN_YEARS);
pub(super) const SIGNATURE: Signature = Signature::Auto;

/// Streams of events and WebSockets may be silent for long; what is silent for longer has nobody at its other end.
pub(super) const ROUTE_IDLE_TIMEOUT: Setting<Duration> = setting(HOUR, ms(10), DAY);
/// Longer than providers repeat a delivery; shorter than people wait before they tidy up.
pub(super) const SECRET_UNUSED_AFTER: Setting<Duration> = setting(secs(14 * 86_400), HOUR, TEN_YEARS);

/// Time enough to look who still signs with it, and to change that.
pub(super) const SECRET_ENDS_SOON: Duration = secs(7 * 86_400);
/// Nothing takes its place by itself.
pub(super) const LAST_SECRET_ENDS_SOON: Duration = secs(30 * 86_400);

/// Off by default: a route's body is never held in memory.
pub(super) const ROUTE_MAX_BODY: Setting<u64> = setting(1 << 60, 1, 1 << 60);

pub(super) const MAX_BODY: Setting<u64> = BODY;
pub(super) const REPLAY_CACHE: Setting<u64> = setting(32 * MIB, 0, TIB);
/// Its clients must be able to repeat a request for longer than an outage lasts.
pub(super) const KEY_TTL: Setting<Duration> = setting(DAY, secs(1), secs(365 * 86_400));
/// Off: a repetition is told at once that its call still runs.
pub(super) const KEY_WAIT: Setting<Duration> = setting(Duration::ZERO, Duration::ZERO, secs(300));
pub(super) const MAX_STORED: Setting<u64> = setting(MIB, 0, 16 * MIB);
/// An acknowledgement is read by a machine that looks at its status.
pub(super) const ACK_BODY_MAX: usize = 4096;
/// Far above any real path, far below the head limit.
pub(super) const PATH_MAX: usize = 1024;

/// Names of the upstream and the path of a start without a file.
pub(super) const NO_FILE_UPSTREAM: &str = "app";
pub(super) const NO_FILE_PATH: &str = "/webhooks/";

/// A quantity that is compared with its bounds and shown in messages.
pub(super) trait Quantity: Copy + PartialOrd {
    fn show(self) -> String;
}

impl Quantity for Duration {
    fn show(self) -> String {
        show_duration(self)
    }
}

impl Quantity for u64 {
    fn show(self) -> String {
        show_size(self)
    }
}

/// How long a sender of unknown patience waits for an answer.
pub(super) const SENDER_PATIENCE: Duration = Duration::from_secs(10);
