//! What a sender does when its deliveries fail: when it gives up for good, and how sure that is.

use std::fmt;
use std::time::Duration;

use crate::diagnostic::Diagnostics;
use crate::reader::{At, Section};

/// When the sender stops sending to an endpoint, counted as the sender counts. Where several parts are there, all must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisableRule {
    /// Failures without a success between them.
    InARow {
        /// So many at least.
        failures: u32,
        /// For so long at least.
        failing_for: Duration,
    },
    /// The share of failures among all deliveries.
    Share {
        /// Above it the sender stops.
        percent: u32,
        /// Over so long.
        within: Duration,
        /// Of so many deliveries at least.
        at_least: u32,
    },
}

/// In words that follow "after".
impl fmt::Display for DisableRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::InARow { failures, failing_for } => match (failures, failing_for.is_zero()) {
                (0, _) => write!(f, "{} without a success", shown(failing_for)),
                (failures, true) => write!(f, "{failures} failures in a row"),
                (failures, false) => write!(f, "{failures} failures in a row over {}", shown(failing_for)),
            },
            Self::Share {
                percent,
                within,
                at_least,
            } => write!(
                f,
                "more than {percent} % failures of at least {at_least} deliveries within {}",
                shown(within)
            ),
        }
    }
}

/// How sure a record is of what it says about its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FactsConfidence {
    /// Read in the provider's documents, which the record names.
    Documented,
    /// Nobody has confirmed it.
    #[default]
    Hint,
}

impl FactsConfidence {
    pub(super) const NAMED: [(&'static str, Self); 2] = [("documented", Self::Documented), ("hint", Self::Hint)];

    /// The word in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Documented => "documented",
            Self::Hint => "hint",
        }
    }
}

/// Deliveries that a share is judged by, where the record does not say.
const AT_LEAST: u32 = 10;
const MAX_FAILURES: i64 = 1_000_000;

/// Takes `disable_after`.
pub(super) fn disable_after(s: &mut Section<'_>, problems: &mut Diagnostics) -> Option<At<DisableRule>> {
    let mut rule = s.section("disable_after", problems)?;
    let span = rule.span();
    let number = |found: Option<At<i64>>| found.and_then(|found| u32::try_from(found.value).ok());
    let failures = number(rule.integer("failures", 1..=MAX_FAILURES, problems));
    let failing_for = rule.duration("failing_for", problems).map(|found| found.value);
    let percent = number(rule.integer("percent", 1..=99, problems));
    let within = rule.duration("within", problems).map(|found| found.value);
    let at_least = number(rule.integer("at_least", 1..=MAX_FAILURES, problems));
    rule.finish(problems);
    let in_a_row = failures.is_some() || failing_for.is_some();
    let value = match (in_a_row, percent, within) {
        (true, None, None) if at_least.is_none() => DisableRule::InARow {
            failures: failures.unwrap_or(0),
            failing_for: failing_for.unwrap_or_default(),
        },
        (false, Some(percent), Some(within)) if !within.is_zero() => DisableRule::Share {
            percent,
            within,
            at_least: at_least.unwrap_or(AT_LEAST),
        },
        // What could not be read was told at its place.
        _ if problems.has_any_within(&span) => return None,
        _ => {
            let help =
                "say `{ failures = 8 }`, `{ failing_for = \"24h\" }`, both, or `{ percent = 95, within = \"1h\" }`";
            let label = "neither failures in a row nor a share of failures";
            problems.error(span, "bad value for `disable_after`", label, Some(help.to_owned()));
            return None;
        }
    };
    Some(At { value, span })
}

/// In the largest unit that is whole.
pub(super) fn shown(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let whole = units
        .iter()
        .find(|(unit, _)| seconds >= *unit && seconds.is_multiple_of(*unit));
    whole.map_or_else(
        || format!("{seconds}s"),
        |(unit, name)| format!("{}{name}", seconds / unit),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::record::Record;

    fn read(lines: &str) -> (Option<Record>, String) {
        let mut problems = Diagnostics::new();
        let text = format!("kind = \"hmac\"\nsignature = \"header:X-Signature\"\n{lines}\n");
        let record = Record::read_text("acme", &text, &mut problems);
        (record, problems.render("acme.toml", &text, false))
    }

    #[test]
    fn each_shape_of_the_rule_is_read_and_said() {
        for (rule, words) in [
            ("{ failures = 5 }", "5 failures in a row"),
            ("{ failing_for = \"24h\" }", "1d without a success"),
            (
                "{ failures = 25, failing_for = \"36h\" }",
                "25 failures in a row over 36h",
            ),
            (
                "{ percent = 95, within = \"1h\", at_least = 1000 }",
                "more than 95 % failures of at least 1000 deliveries within 1h",
            ),
            (
                "{ percent = 95, within = \"90s\" }",
                "more than 95 % failures of at least 10 deliveries within 90s",
            ),
        ] {
            let (record, shown) = read(&format!("disable_after = {rule}"));
            let record = record.unwrap_or_else(|| panic!("{rule}: {shown}"));
            assert_eq!(record.disable_after().unwrap().to_string(), words);
            assert_eq!(record.facts_confidence(), FactsConfidence::Hint);
        }
    }

    #[test]
    fn a_rule_that_says_nothing_or_two_things_is_refused_at_its_place() {
        for (line, part) in [
            ("disable_after = {}", "bad value for `disable_after`"),
            ("disable_after = { percent = 95 }", "within"),
            ("disable_after = { percent = 95, within = \"0s\" }", "bad value"),
            (
                "disable_after = { failures = 5, percent = 95, within = \"1h\" }",
                "bad value",
            ),
            ("disable_after = { failures = 5, at_least = 3 }", "bad value"),
            ("disable_after = { failures = 0 }", "failures"),
            ("disable_after = { failure = 5 }", "did you mean `failures`?"),
            ("disable_after = 5", "expected a table"),
            ("sender_facts_confidence = \"documented\"", "sender_facts_source"),
        ] {
            let (record, shown) = read(line);
            assert!(record.is_none(), "{line}");
            assert!(shown.contains(part), "{part:?} for {line}:\n{shown}");
        }
    }
}
