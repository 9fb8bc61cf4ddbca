//! Freshness: reading a signed time in the provider's unit, and judging its age once, at arrival (TS-03).

use std::time::Duration;

use crate::time::Timestamp;

use super::Reason;

/// From here on a number that is either counts milliseconds: in seconds it is the year 5138.
const FIRST_MILLIS: i64 = 100_000_000_000;

/// How a provider writes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeUnit {
    /// Whole seconds since the Unix epoch.
    Seconds,
    /// Milliseconds since the Unix epoch.
    Millis,
    /// RFC 3339, with any fraction and offset.
    Rfc3339,
    /// An HTTP date (RFC 9110 section 5.6.7).
    HttpDate,
    /// RFC 3339; without an offset it is UTC (Orb).
    Datetime,
    /// Whole seconds, or milliseconds from 100,000,000,000 on: for a provider whose own libraries disagree (Mercado Pago).
    /// The number is signed, so that nobody can choose between the two.
    SecondsOrMillis,
    /// An HTTP date, a date and time, or whole seconds: for a provider that does not say which (Klaviyo).
    DateOrSeconds,
}

impl TimeUnit {
    pub(super) const NAMED: [(&'static str, Self); 7] = [
        ("s", Self::Seconds),
        ("ms", Self::Millis),
        ("rfc3339", Self::Rfc3339),
        ("http_date", Self::HttpDate),
        ("datetime", Self::Datetime),
        ("s_or_ms", Self::SecondsOrMillis),
        ("date_or_s", Self::DateOrSeconds),
    ];

    /// Its name in records.
    pub(super) fn as_str(self) -> &'static str {
        Self::NAMED
            .iter()
            .find(|(_, u)| *u == self)
            .map_or("", |(name, _)| name)
    }

    /// The time that `text` tells. The unit is never guessed from the number's size (TS-05), unless the record says that
    /// the provider sends either.
    pub(super) fn parse(self, text: &[u8]) -> Option<Timestamp> {
        let in_words = || std::str::from_utf8(text).ok();
        match self {
            Self::Seconds => Some(Timestamp::from_secs(number(text)?)),
            Self::Millis => Some(Timestamp::from_millis(number(text)?)),
            Self::Rfc3339 => {
                let time: jiff::Timestamp = in_words()?.parse().ok()?;
                Some(Timestamp::from_millis(time.as_millisecond()))
            }
            Self::HttpDate => {
                let parser = jiff::fmt::rfc2822::DateTimeParser::new();
                let time = parser.parse_timestamp(in_words()?).ok()?;
                Some(Timestamp::from_millis(time.as_millisecond()))
            }
            Self::Datetime => Self::Rfc3339.parse(text).or_else(|| {
                let time: jiff::civil::DateTime = in_words()?.parse().ok()?;
                let time = jiff::tz::TimeZone::UTC.to_timestamp(time).ok()?;
                Some(Timestamp::from_millis(time.as_millisecond()))
            }),
            Self::SecondsOrMillis => match number(text)? {
                seconds @ ..FIRST_MILLIS => Some(Timestamp::from_secs(seconds)),
                millis => Some(Timestamp::from_millis(millis)),
            },
            Self::DateOrSeconds => {
                let mut forms = [Self::HttpDate, Self::Datetime, Self::Seconds].into_iter();
                forms.find_map(|form| form.parse(text))
            }
        }
    }

    /// How the provider would write `time`.
    pub(super) fn write(self, time: Timestamp) -> Option<String> {
        match self {
            Self::Seconds => Some(time.as_secs().to_string()),
            Self::Millis | Self::SecondsOrMillis => Some(time.as_millis().to_string()),
            Self::Rfc3339 | Self::Datetime => Some(time.to_string()),
            Self::HttpDate | Self::DateOrSeconds => {
                let time = jiff::Timestamp::from_millisecond(time.as_millis()).ok()?;
                jiff::fmt::rfc2822::DateTimePrinter::new()
                    .timestamp_to_rfc9110_string(&time)
                    .ok()
            }
        }
    }

    /// `now` in the unit's own grain, so that 300.4 seconds are not more than 300.
    fn grain(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Seconds | Self::HttpDate | Self::SecondsOrMillis | Self::DateOrSeconds => {
                Timestamp::from_secs(now.as_secs())
            }
            Self::Millis | Self::Rfc3339 | Self::Datetime => now,
        }
    }
}

/// Digits only: no sign, no fraction, no exponent.
fn number(text: &[u8]) -> Option<i64> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| i64::from(byte - b'0'));
    let (first, rest) = text.split_first()?;
    rest.iter().try_fold(digit(first)?, |number, byte| {
        number.checked_mul(10)?.checked_add(digit(byte)?)
    })
}

/// How far from now a signed time may lie. Both ends belong to the window (TS-04).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) past: Duration,
    pub(super) future: Duration,
}

impl Window {
    /// Whether `signed` lies in the window around `now`.
    pub(super) fn judge(self, unit: TimeUnit, signed: Timestamp, now: Timestamp) -> Result<(), Reason> {
        let now = unit.grain(now);
        if now.since(signed) > self.past {
            Err(Reason::Stale)
        } else if signed.since(now) > self.future {
            Err(Reason::FromTheFuture)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_reads_its_own_form_and_no_other() {
        let at = Timestamp::from_secs(1_700_000_000);
        assert_eq!(TimeUnit::Seconds.parse(b"1700000000"), Some(at));
        assert_eq!(TimeUnit::Millis.parse(b"1700000000000"), Some(at));
        assert_eq!(TimeUnit::Rfc3339.parse(b"2023-11-14T22:13:20.000000001Z"), Some(at));
        assert_eq!(TimeUnit::Rfc3339.parse(b"2023-11-14T23:13:20+01:00"), Some(at));
        assert_eq!(TimeUnit::HttpDate.parse(b"Tue, 14 Nov 2023 22:13:20 GMT"), Some(at));
        for bad in [
            "",
            "abc",
            "-1",
            "+1",
            "1700000000.0",
            "1e9",
            " 1",
            "99999999999999999999",
        ] {
            assert_eq!(TimeUnit::Seconds.parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(TimeUnit::Rfc3339.parse(b"1700000000"), None);
        assert_eq!(TimeUnit::Rfc3339.parse(b"2023-11-14T22:13:20"), None);
    }

    #[test]
    fn units_of_providers_that_write_either_read_each_of_their_forms() {
        let at = Timestamp::from_secs(1_700_000_000);
        for text in [
            "2023-11-14T22:13:20",
            "2023-11-14T22:13:20.000001",
            "2023-11-14T23:13:20+01:00",
        ] {
            assert_eq!(TimeUnit::Datetime.parse(text.as_bytes()), Some(at), "{text}");
        }
        assert_eq!(TimeUnit::Datetime.parse(b"1700000000"), None);
        for text in ["1700000000", "1700000000000"] {
            assert_eq!(TimeUnit::SecondsOrMillis.parse(text.as_bytes()), Some(at), "{text}");
        }
        for text in ["1700000000", "Tue, 14 Nov 2023 22:13:20 GMT", "2023-11-14T22:13:20"] {
            assert_eq!(TimeUnit::DateOrSeconds.parse(text.as_bytes()), Some(at), "{text}");
        }
        assert_eq!(TimeUnit::DateOrSeconds.parse(b"yesterday"), None);
    }

    #[test]
    fn what_a_unit_writes_it_reads() {
        let at = Timestamp::from_secs(1_700_000_000);
        for (name, unit) in TimeUnit::NAMED {
            let text = unit.write(at).unwrap();
            assert_eq!(unit.parse(text.as_bytes()), Some(at), "{name}: {text}");
        }
    }

    #[test]
    fn both_ends_of_the_window_are_inside() {
        let window = Window {
            past: Duration::from_secs(300),
            future: Duration::from_secs(300),
        };
        let now = Timestamp::from_secs(1_700_000_000);
        let judge = |offset: i64| window.judge(TimeUnit::Seconds, Timestamp::from_secs(1_700_000_000 + offset), now);
        for inside in [-300, -299, 0, 1, 299, 300] {
            assert_eq!(judge(inside), Ok(()), "{inside}");
        }
        assert_eq!(judge(-301), Err(Reason::Stale));
        assert_eq!(judge(301), Err(Reason::FromTheFuture));
        assert_eq!(judge(1_000_000_000), Err(Reason::FromTheFuture));
    }

    #[test]
    fn a_fraction_of_our_second_does_not_age_a_time_in_seconds() {
        let window = Window {
            past: Duration::from_secs(5),
            future: Duration::ZERO,
        };
        let now = Timestamp::from_millis(1_005_900);
        assert_eq!(window.judge(TimeUnit::Seconds, Timestamp::from_secs(1000), now), Ok(()));
        assert_eq!(
            window.judge(TimeUnit::Millis, Timestamp::from_secs(1000), now),
            Err(Reason::Stale)
        );
    }

    #[test]
    fn absurd_times_are_judged_not_overflown() {
        let window = Window {
            past: Duration::MAX,
            future: Duration::ZERO,
        };
        let far = TimeUnit::Seconds.parse(b"9223372036854775807").unwrap();
        assert_eq!(
            window.judge(TimeUnit::Seconds, far, Timestamp::from_secs(0)),
            Err(Reason::FromTheFuture)
        );
    }
}
