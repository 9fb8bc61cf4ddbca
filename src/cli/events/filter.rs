//! The options that choose events, and the path they make.

use crate::admin::dto::Filter;
use crate::cli::client::escaped;
use crate::reader;
use crate::store::model::DispatchState;
use crate::time::Clock;

/// Which events; everything that is given must match.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct FilterArgs {
    /// Only events of this source
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// Only events of this type, as the provider names it
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) event_type: Option<String>,
    /// Only events with this delivery id
    #[arg(long)]
    pub(crate) delivery_id: Option<String>,
    /// Only events with a dispatch in this state
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(DispatchState::ALL.map(DispatchState::as_str)))]
    pub(crate) state: Option<String>,
    /// Only events with a dispatch for this upstream
    #[arg(long)]
    pub(crate) upstream: Option<String>,
    /// Only events received at or after this time: RFC 3339, or an age such as 2h
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) from: Option<String>,
    /// Only events received before this time: RFC 3339, or an age such as 10m
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) until: Option<String>,
}

impl FilterArgs {
    pub(crate) fn into_filter(self) -> Filter {
        Filter {
            source: self.source,
            event_type: self.event_type,
            delivery_id: self.delivery_id,
            state: self.state,
            upstream: self.upstream,
            from: self.from,
            to: self.until,
            limit: None,
            cursor: None,
        }
    }
}

/// A time as the API wants it, from RFC 3339 or from an age.
pub(crate) fn time(text: &str) -> Result<String, String> {
    if let Ok(age) = reader::parse_duration(text) {
        return Ok(Clock::system().now().before(age).to_string());
    }
    match text.parse::<jiff::Timestamp>() {
        Ok(time) => Ok(time.to_string()),
        Err(_) => Err("neither a time such as 2026-11-29T20:15:00Z nor an age such as 2h".to_owned()),
    }
}

/// The path and query that list these events.
pub(crate) fn path(filter: &Filter) -> String {
    let limit = filter.limit.map(|limit| limit.to_string());
    let pairs = [
        ("source", &filter.source),
        ("type", &filter.event_type),
        ("delivery_id", &filter.delivery_id),
        ("state", &filter.state),
        ("upstream", &filter.upstream),
        ("from", &filter.from),
        ("to", &filter.to),
        ("limit", &limit),
        ("cursor", &filter.cursor),
    ];
    let query: Vec<String> = pairs
        .into_iter()
        .filter_map(|(key, value)| value.as_ref().map(|value| format!("{key}={}", escaped(value))))
        .collect();
    format!("/api/v1/events?{}", query.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_or_ages() {
        assert_eq!(time("2026-11-29T21:15:00+01:00").unwrap(), "2026-11-29T20:15:00Z");
        assert!(time("2h").unwrap().ends_with('Z'));
        assert!(time("yesterday").is_err());
    }

    #[test]
    fn values_are_escaped_in_the_query() {
        let filter = Filter {
            event_type: Some("a&b=c".into()),
            limit: Some(5),
            ..Filter::default()
        };
        assert_eq!(path(&filter), "/api/v1/events?type=a%26b%3Dc&limit=5");
    }
}
