//! RFC 8785 of a JSON body, where nothing is lost on the way.
//!
//! Canonical JSON is made from what a parser understood, and parsers drop things: the first of two members of one name,
//! digits beyond 53 bits. Then two bodies with different meanings would look the same, and the second would be answered
//! with the first one's answer. So a body of which anything would be lost has no canonical form here, and its bytes are
//! used instead.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The canonical form; `None` when `body` is no JSON, or has
/// - two members of one name in an object, or one whose name the parser keeps for itself,
/// - a number that is not exactly the one that its canonical form names (beyond IEEE 754 doubles), or a negative zero,
/// - a string with half a surrogate pair, or bytes that are not UTF-8,
/// - nesting deeper than 127 (the parser's own bound, which keeps the stack small).
pub(super) fn json(body: &[u8]) -> Option<Vec<u8>> {
    let _unique: Unique = serde_json::from_slice(body).ok()?;
    if !numbers(body).all(survives) {
        return None;
    }
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    serde_json_canonicalizer::to_vec(&value).ok()
}

/// What the names begin with that serde_json takes for values of its own kind, whoever wrote them.
const PARSER_S_OWN: &str = "$serde_json::private::";

/// Any JSON value whose objects name each member once.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Unique)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if name.starts_with(PARSER_S_OWN) {
                return Err(A::Error::custom("the parser gives this name a meaning of its own"));
            }
            map.next_value::<Self>()?;
            if !names.insert(name) {
                return Err(A::Error::custom("a member is named twice"));
            }
        }
        Ok(self)
    }
}

/// The number literals of a text that is known to be JSON.
fn numbers(json: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = json;
    std::iter::from_fn(move || {
        loop {
            let first = *rest.first()?;
            let length = match first {
                b'"' => string(rest),
                b'-' | b'0'..=b'9' => {
                    let is_digit = |b: &u8| matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                    let length = rest.iter().take_while(|byte| is_digit(byte)).count();
                    let (number, behind) = rest.split_at_checked(length)?;
                    rest = behind;
                    return Some(number);
                }
                _ => 1,
            };
            rest = rest.get(length..)?;
        }
    })
}

/// The length of the string literal at the start.
fn string(json: &[u8]) -> usize {
    let mut length = 1;
    while let Some(byte) = json.get(length) {
        match byte {
            b'\\' => length += 2,
            b'"' => return length + 1,
            _ => length += 1,
        }
    }
    length
}

/// Whether a double names exactly this number: its shortest form and the literal are the same decimal.
fn survives(literal: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(literal) else {
        return false;
    };
    let Ok(double) = text.parse::<f64>() else { return false };
    if !double.is_finite() || (double == 0.0 && double.is_sign_negative()) {
        return false;
    }
    let shortest = format!("{double:e}");
    match (Decimal::of(text), Decimal::of(&shortest)) {
        (Some(literal), Some(double)) => literal == double,
        _ => false,
    }
}

/// A decimal number without leading and trailing zeros: `digits × 10^exponent`.
#[derive(PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn of(text: &str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0').trim_end_matches('0');
        if digits.is_empty() {
            return Some(Self {
                negative,
                digits: String::new(),
                exponent: 0,
            });
        }
        let trailing = all.len() - all.trim_end_matches('0').len();
        let shift = i64::try_from(trailing).ok()? - i64::try_from(fraction.len()).ok()?;
        Some(Self {
            negative,
            digits: digits.to_owned(),
            exponent: exponent.checked_add(shift)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(body: &str) -> Option<String> {
        json(body.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn order_blanks_escapes_and_spellings_of_numbers_do_not_count() {
        for (body, form) in [
            (" { \"b\" : [ 1.0, 1e2 ], \"a\" : null } ", r#"{"a":null,"b":[1,100]}"#),
            (r#"{"\u0061":"\u20ac"}"#, "{\"a\":\"€\"}"),
            // By UTF-16 code units (RFC 8785 section 3.2.3): the surrogates of the emoji sort before U+FB33.
            ("{\"\u{fb33}\":1,\"😀\":2}", "{\"😀\":2,\"\u{fb33}\":1}"),
            ("9007199254740992", "9007199254740992"),
            ("-0.5e-3", "-0.0005"),
            ("0.0", "0"),
            (
                "\"1e999 -0 \\\" 9007199254740993\"",
                "\"1e999 -0 \\\" 9007199254740993\"",
            ),
            ("[]", "[]"),
        ] {
            assert_eq!(canonical(body).as_deref(), Some(form), "{body}");
        }
    }

    #[test]
    fn what_would_lose_something_has_no_canonical_form() {
        for body in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":1}"#,
            r#"[{"x":{"a":1,"a":1}}]"#,
            r#"{"$serde_json::private::RawValue":"{\"amount\":100}"}"#,
            r#"{"x":{"\u0024serde_json::private::RawValue":"[1]"}}"#,
            r#"{"$serde_json::private::Number":"1"}"#,
            "9007199254740993",
            "[1,9007199254740993.0]",
            "0.1000000000000000055511151231257827",
            "18446744073709551615",
            "-9223372036854775809",
            "1e400",
            "1e-400",
            "-0",
            "-0.0",
            "-0e5",
            r#""\ud800""#,
            r#"{"\udc00":1}"#,
            "NaN",
            "Infinity",
            "",
            "{",
            "{} {}",
            "\u{feff}{}",
            "01",
            "{'a':1}",
            "[1,]",
        ] {
            assert_eq!(canonical(body), None, "{body}");
        }
        assert_eq!(json(b"\"\xff\""), None);
    }

    #[test]
    fn a_bomb_of_depth_costs_nothing() {
        assert!(canonical(&format!("{}{}", "[".repeat(100), "]".repeat(100))).is_some());
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let bomb = format!("{}1{}", open.repeat(1_000_000), close.repeat(1_000_000));
            assert_eq!(canonical(&bomb), None);
        }
        let numbers = format!("[{}]", "9".repeat(1_000_000));
        assert_eq!(canonical(&numbers), None);
    }

    proptest::proptest! {
        #[test]
        fn two_numbers_with_one_form_are_one_number(a in number(), b in number()) {
            if let (Some(form), true) = (canonical(&a), canonical(&a) == canonical(&b)) {
                let same = Decimal::of(&a).unwrap() == Decimal::of(&b).unwrap();
                assert!(same, "{a} and {b} are {form}");
            }
        }
    }

    fn number() -> impl proptest::strategy::Strategy<Value = String> {
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,20})?(e-?[0-9]{1,2})?"
    }
}
