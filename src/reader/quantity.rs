//! Durations, sizes and rates as they are written, such as `5m`, `20GiB`, `600/m`.

use std::fmt;
use std::time::Duration;

/// How many times in which period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many times, at least 1.
    pub count: u32,
    /// In which period: a second, a minute or an hour.
    pub per: Duration,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per.as_secs() {
            1 => "s",
            60 => "m",
            _ => "h",
        };
        write!(f, "{}/{unit}", self.count)
    }
}

/// Parses a duration: a whole number and one of `ms`, `s`, `m`, `h`, `d`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const HELP: &str = "expected a number with a unit, such as \"100ms\", \"30s\", \"5m\", \"24h\" or \"7d\"";
    let (number, unit) = split_unit(text).ok_or(HELP)?;
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(HELP.to_owned()),
    };
    // Longer than any window makes sense for, and far from overflow in every later sum.
    const MAX_DAYS: u64 = 36_500;
    match number.checked_mul(millis) {
        Some(total) if total <= MAX_DAYS * 86_400_000 => Ok(Duration::from_millis(total)),
        _ => Err(format!("longer than {MAX_DAYS}d")),
    }
}

/// Parses a size in bytes: a whole number and one of `B`, `KiB`, `MiB`, `GiB`, `TiB`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    const HELP: &str = "expected a number with a unit, such as \"512B\", \"32KiB\", \"5MiB\" or \"20GiB\"";
    let (number, unit) = split_unit(text).ok_or(HELP)?;
    let shift = match unit {
        "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return Err(HELP.to_owned()),
    };
    match number.checked_mul(1 << shift) {
        // Sizes are compared with signed file sizes in places.
        Some(total) if i64::try_from(total).is_ok() => Ok(total),
        _ => Err("larger than any disk".to_owned()),
    }
}

/// Parses a rate: a whole number from 1, `/`, and one of `s`, `m`, `h`.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    const HELP: &str = "expected a number from 1 per unit, such as \"50/s\", \"600/m\" or \"1000/h\"";
    let (count, unit) = text.split_once('/').ok_or(HELP)?;
    let count: u32 = count.trim().parse().map_err(|_not_a_number| HELP)?;
    let per = match unit.trim() {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(HELP.to_owned()),
    };
    if count == 0 {
        return Err(HELP.to_owned());
    }
    Ok(Rate {
        count,
        per: Duration::from_secs(per),
    })
}

/// Writes a duration the way [`parse_duration`] reads it, in the largest unit that is exact.
pub fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")]
        .into_iter()
        .find(|(unit, _)| millis > 0 && millis.is_multiple_of(*unit))
        .map_or_else(
            || {
                if millis == 0 {
                    "0s".to_owned()
                } else {
                    format!("{millis}ms")
                }
            },
            |(unit, name)| format!("{}{name}", millis / unit),
        )
}

/// Writes a size the way [`parse_size`] reads it, in the largest unit that is exact.
pub fn show_size(bytes: u64) -> String {
    [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")]
        .into_iter()
        .find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift))
        .map_or_else(
            || format!("{bytes}B"),
            |(shift, name)| format!("{}{name}", bytes >> shift),
        )
}

fn split_unit(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_shown_as_they_are_written() {
        for text in ["0s", "1ms", "1500ms", "30s", "90s", "5m", "24m", "3h", "7d"] {
            assert_eq!(show_duration(parse_duration(text).unwrap()), text);
        }
        for text in ["0B", "1B", "1025B", "32KiB", "5MiB", "20GiB", "1TiB"] {
            assert_eq!(show_size(parse_size(text).unwrap()), text);
        }
    }

    #[test]
    fn units_are_mandatory_and_absurd_values_are_refused() {
        assert_eq!(parse_duration("300ms"), Ok(Duration::from_millis(300)));
        assert_eq!(parse_duration("7d"), Ok(Duration::from_secs(604_800)));
        for bad in ["", "30", "-1s", "1.5s", "s", "99999999999999999999s", "999999d", "5 x"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_size("5MiB"), Ok(5 << 20));
        for bad in ["5", "5MB", "-1B", "9999999999TiB"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert_eq!(
            parse_rate("600/m"),
            Ok(Rate {
                count: 600,
                per: Duration::from_secs(60)
            })
        );
        for bad in ["0/s", "5", "/s", "5/d", "-1/s"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }
}
