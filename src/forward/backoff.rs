//! How long a failed dispatch waits: exponential back-off with full jitter, and `Retry-After`.

use std::time::Duration;

use http::HeaderValue;
use jiff::fmt::rfc2822;

use crate::forward::settings::Retry;
use crate::time::Timestamp;

/// Shortest `Retry-After` that is honoured; a zero or a date that has passed means this.
pub const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

/// 32 random bits: passed in, so that what comes out can be tested.
#[derive(Clone, Copy, Debug)]
pub struct Dice(pub u32);

/// The wait after the `attempts`-th failed attempt (from 1): evenly spread between a tenth of the bound and the bound,
/// which is `first`, doubled with each attempt, up to `max`.
///
/// Full jitter spreads the retries of a burst best. A tenth at least, so that no retry follows at once.
pub fn wait(attempts: u32, retry: &Retry, dice: Dice) -> Duration {
    let doublings = attempts.saturating_sub(1).min(31);
    let bound = retry.first.saturating_mul(1 << doublings).min(retry.max);
    let floor = bound / 10;
    let spread = (bound - floor).as_millis() * u128::from(dice.0) / u128::from(u32::MAX);
    floor + Duration::from_millis(u64::try_from(spread).unwrap_or(u64::MAX))
}

/// What an upstream asked for with `Retry-After` (RFC 9110 section 10.2.3): seconds or an HTTP date, clamped to
/// [`RETRY_AFTER_MIN`]`..=retry.max`. `None` for anything else: the normal back-off holds.
pub fn retry_after(value: &HeaderValue, retry: &Retry, now: Timestamp) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    let asked = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit: clamped like any other long time.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
        Timestamp::from_millis(date.as_millisecond()).since(now)
    };
    // `max` wins when it is configured below the minimum.
    Some(asked.max(RETRY_AFTER_MIN).min(retry.max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry() -> Retry {
        Retry {
            first: Duration::from_secs(5),
            max: Duration::from_secs(3600),
            ..Retry::default()
        }
    }

    #[test]
    fn the_bound_doubles_from_first_to_max() {
        let bounds: Vec<u64> = (1..=12).map(|n| wait(n, &retry(), Dice(u32::MAX)).as_secs()).collect();
        assert_eq!(bounds, [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]);
        assert_eq!(wait(u32::MAX, &retry(), Dice(u32::MAX)).as_secs(), 3600);
    }

    #[test]
    fn the_jitter_is_full_but_never_nothing() {
        assert_eq!(wait(1, &retry(), Dice(0)), Duration::from_millis(500));
        assert_eq!(wait(1, &retry(), Dice(u32::MAX / 2 + 1)), Duration::from_millis(2750));
    }

    #[test]
    fn retry_after_is_clamped_and_nonsense_ignored() {
        let now = Timestamp::from_secs(784_111_777); // Sun, 06 Nov 1994 08:49:37 GMT
        for (value, expected) in [
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("0", Some(1)),
            ("99999999", Some(3600)),
            ("99999999999999999999999999", Some(3600)),
            ("Sun, 06 Nov 1994 08:51:37 GMT", Some(120)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(1)),
            ("Sat, 06 Nov 2094 08:49:37 GMT", Some(3600)),
            ("-5", None),
            ("+5", None),
            ("1.5", None),
            ("abc", None),
            ("", None),
            ("120, 60", None),
        ] {
            let found = retry_after(&HeaderValue::from_static(value), &retry(), now);
            assert_eq!(found, expected.map(Duration::from_secs), "{value:?}");
        }
        let raw = HeaderValue::from_bytes(b"\xff").unwrap();
        assert_eq!(retry_after(&raw, &retry(), now), None);
    }

    #[test]
    fn a_short_max_also_caps_retry_after() {
        let retry = Retry {
            max: Duration::from_millis(100),
            ..retry()
        };
        let found = retry_after(&HeaderValue::from_static("120"), &retry, Timestamp::from_secs(0));
        assert_eq!(found, Some(Duration::from_millis(100)));
    }
}
