//! The public URL that some schemes sign: what the provider was told, never what a request claims (UR-01).
//!
//! Everything here is string surgery on the configured text and the received target. A URL library would normalise,
//! and one changed byte breaks the signature (UR-02, UR-07).

use http::uri::PathAndQuery;

/// `public_url` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    origin: String,
    path: Option<String>,
    query: Option<String>,
}

impl PublicUrl {
    /// Parses `https://host[:port][/path[?query]]`, keeping every byte.
    ///
    /// The signed URL is the origin followed by the received path and query. A path, when written (other than `/`),
    /// stands in for the received path, and a query for the received query: for front proxies that rewrite them.
    ///
    /// # Errors
    /// What is wrong with it, as a label for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        const HELP: &str = "expected a URL as the provider was given it, such as \"https://hooks.example.com\"";
        let lower = text.to_ascii_lowercase();
        let scheme = ["https://", "http://"]
            .into_iter()
            .find(|s| lower.starts_with(s))
            .ok_or(HELP)?;
        let visible = text.bytes().all(|b| b.is_ascii_graphic());
        if !visible || text.contains('#') {
            return Err(format!("{HELP}, without spaces, control characters or a fragment"));
        }
        let rest = text.get(scheme.len()..).unwrap_or_default();
        let authority_len = rest.find(['/', '?']).unwrap_or(rest.len());
        if authority_len == 0 {
            return Err(format!("there is no host; {HELP}"));
        }
        let (origin, target) = text.split_at(scheme.len() + authority_len);
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        let path = match (path, &query) {
            ("" | "/", None) => None,
            (path, _) => Some(path.to_owned()),
        };
        Ok(Self {
            origin: origin.to_owned(),
            path,
            query,
        })
    }

    /// Whether it names no path or query of its own, so that it can serve several sources.
    pub fn is_origin(&self) -> bool {
        self.path.is_none() && self.query.is_none()
    }

    /// The URL that the provider signed for a request with this target.
    pub(super) fn of(&self, target: &PathAndQuery) -> String {
        let path = self.path.as_deref().unwrap_or_else(|| target.path());
        let query = match &self.query {
            Some(query) => Some(query.as_str()),
            None => target.query(),
        };
        match query {
            Some(query) => format!("{}{path}?{query}", self.origin),
            None => format!("{}{path}", self.origin),
        }
    }
}

/// Other URLs that the provider may have been given for this request, each a likely slip: the other scheme, a slash
/// more or less, the host that the request names, the received path instead of a written one.
pub(super) fn slips(public_url: &PublicUrl, target: &PathAndQuery, hosts: &[&str]) -> Vec<String> {
    let url = public_url.of(target);
    let mut out = Vec::new();
    let swapped = match url.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => format!("http://{rest}"),
        Some((_, rest)) => format!("https://{rest}"),
        None => url.clone(),
    };
    for url in [&url, &swapped] {
        let (before, query) = url.split_once('?').map_or((url.as_str(), None), |(b, q)| (b, Some(q)));
        let with = |path: &str| query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        out.push(url.clone());
        out.push(with(before.strip_suffix('/').unwrap_or(before)));
        out.push(with(&format!("{before}/")));
        out.push(before.to_owned());
    }
    for host in hosts {
        out.extend(["https", "http"].map(|scheme| format!("{scheme}://{host}{target}")));
    }
    out.push(format!("{}{target}", public_url.origin));
    out.dedup();
    out.retain(|slip| *slip != url);
    out
}

/// The URL with its query in every other order, if its parameters are few.
pub(super) fn other_orders(url: &str) -> Vec<String> {
    /// 120 orders at most.
    const MAX_PARAMETERS: usize = 5;
    let Some((before, query)) = url.split_once('?') else {
        return Vec::new();
    };
    let parameters: Vec<&str> = query.split('&').collect();
    if !(2..=MAX_PARAMETERS).contains(&parameters.len()) {
        return Vec::new();
    }
    let mut orders: Vec<Vec<&str>> = vec![Vec::new()];
    for parameter in parameters {
        orders = orders
            .into_iter()
            .flat_map(|order| {
                (0..=order.len()).map(move |at| {
                    let mut longer = order.clone();
                    longer.insert(at, parameter);
                    longer
                })
            })
            .collect();
    }
    let urls = orders.into_iter().map(|order| format!("{before}?{}", order.join("&")));
    urls.filter(|other| other != url).collect()
}

/// Whether `authority` (a host, with or without a port) is one of `hosts`, of which one may be a wildcard for one label.
pub(super) fn is_one_of(authority: &str, hosts: &[String]) -> bool {
    let (_, port, _) = split_port(authority);
    let host = authority.get(..authority.len() - port.len()).unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let parent = host.split_once('.').map(|(_, parent)| parent);
    hosts.iter().any(|own| match own.strip_prefix("*.") {
        Some(own) => parent.is_some_and(|parent| parent.eq_ignore_ascii_case(own)),
        None => own.eq_ignore_ascii_case(host),
    })
}

/// A way in which a provider may have spelled the URL that it signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlVariant {
    /// As the configuration says.
    AsConfigured,
    /// Without a port.
    WithoutPort,
    /// With the scheme's default port where none is written.
    WithDefaultPort,
    /// With `%3A` and `%40` in the query unescaped (Twilio's SIP calls, UR-04).
    ColonAndAtUnescaped,
    /// With the escapes of `:/?@!$'()*,;` decoded, wherever they stand (HubSpot's documents; its SDK does not do it).
    ReservedDecoded,
}

impl UrlVariant {
    /// All of them with their names in records.
    pub(super) const NAMED: [(&'static str, Self); 5] = [
        ("as configured", Self::AsConfigured),
        ("without port", Self::WithoutPort),
        ("with default port", Self::WithDefaultPort),
        ("colon and at unescaped", Self::ColonAndAtUnescaped),
        ("reserved decoded", Self::ReservedDecoded),
    ];
}

/// The distinct spellings of `url`: each port variant, each also unescaped where that is among `variants`.
pub(super) fn spellings(url: String, variants: &[UrlVariant]) -> Vec<String> {
    let mut out = Vec::new();
    let mut add = |candidate: String| {
        if !out.contains(&candidate) {
            out.push(candidate);
        }
    };
    for variant in variants {
        match variant {
            UrlVariant::AsConfigured => add(url.clone()),
            UrlVariant::WithoutPort => add(without_port(&url)),
            UrlVariant::WithDefaultPort => add(with_default_port(&url)),
            UrlVariant::ColonAndAtUnescaped | UrlVariant::ReservedDecoded => {}
        }
    }
    if out.is_empty() {
        out.push(url);
    }
    for rewritten_by in [UrlVariant::ColonAndAtUnescaped, UrlVariant::ReservedDecoded] {
        if !variants.contains(&rewritten_by) {
            continue;
        }
        let rewrite = match rewritten_by {
            UrlVariant::ColonAndAtUnescaped => colon_and_at_unescaped,
            _ => reserved_decoded,
        };
        let rewritten: Vec<String> = out.iter().map(|url| rewrite(url)).collect();
        for candidate in rewritten {
            if !out.contains(&candidate) {
                out.push(candidate);
            }
        }
    }
    out
}

/// Splits into what is before the port, the port with its colon (or nothing), and what comes after.
fn split_port(url: &str) -> (&str, &str, &str) {
    let authority_start = url.find("://").map_or(0, |at| at + 3);
    let rest = url.get(authority_start..).unwrap_or_default();
    let authority_end = authority_start + rest.find(['/', '?']).unwrap_or(rest.len());
    let authority = url.get(authority_start..authority_end).unwrap_or_default();
    // A colon starts a port only behind user information and behind the bracket of an IPv6 literal.
    let host_start = authority.rfind(['@', ']']).map_or(0, |at| at + 1);
    let host = authority.get(host_start..).unwrap_or_default();
    let port_start = host
        .find(':')
        .map_or(authority_end, |at| authority_start + host_start + at);
    let (before, rest) = url.split_at(port_start);
    let (port, after) = rest.split_at(authority_end - port_start);
    (before, port, after)
}

fn without_port(url: &str) -> String {
    let (before, _, after) = split_port(url);
    format!("{before}{after}")
}

fn with_default_port(url: &str) -> String {
    let (before, port, after) = split_port(url);
    if !port.is_empty() {
        return url.to_owned();
    }
    let https = url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    let port = if https { 443 } else { 80 };
    format!("{before}:{port}{after}")
}

fn colon_and_at_unescaped(url: &str) -> String {
    match url.split_once('?') {
        None => url.to_owned(),
        Some((before, query)) => {
            let query = query.replace("%3A", ":").replace("%3a", ":").replace("%40", "@");
            format!("{before}?{query}")
        }
    }
}

fn reserved_decoded(url: &str) -> String {
    const ESCAPES: [(&str, char); 12] = [
        ("3a", ':'),
        ("2f", '/'),
        ("3f", '?'),
        ("40", '@'),
        ("21", '!'),
        ("24", '$'),
        ("27", '\''),
        ("28", '('),
        ("29", ')'),
        ("2a", '*'),
        ("2c", ','),
        ("3b", ';'),
    ];
    let mut parts = url.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let meant = part.get(..2).and_then(|code| {
            let known = ESCAPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(code));
            known.map(|(_, meant)| *meant)
        });
        match (meant, part.get(2..)) {
            (Some(meant), Some(rest)) => {
                out.push(meant);
                out.push_str(rest);
            }
            _ => {
                out.push('%');
                out.push_str(part);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(public: &str, target: &str) -> String {
        PublicUrl::parse(public).unwrap().of(&target.parse().unwrap())
    }

    #[test]
    fn an_origin_is_followed_by_the_received_bytes() {
        for origin in ["https://h.test", "https://h.test/"] {
            assert_eq!(signed(origin, "/in?b=%27+x&a=1"), "https://h.test/in?b=%27+x&a=1");
        }
        assert_eq!(signed("HTTPS://H.test:8443", "/"), "HTTPS://H.test:8443/");
    }

    #[test]
    fn a_written_path_or_query_stands_in_for_the_received_one() {
        assert_eq!(
            signed("https://h.test/public/", "/in?x=1"),
            "https://h.test/public/?x=1"
        );
        assert_eq!(
            signed("https://h.test/in?b=2&a=1", "/in?a=1&b=2"),
            "https://h.test/in?b=2&a=1"
        );
        assert_eq!(signed("https://h.test?b=2", "/in"), "https://h.test?b=2");
        assert!(!PublicUrl::parse("https://h.test/x").unwrap().is_origin());
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for bad in [
            "",
            "h.test",
            "ftp://h.test",
            "https://",
            "https:///x",
            "https://h.test/a b",
            "https://h.test/#x",
        ] {
            assert!(PublicUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ports_are_edited_in_the_authority_only() {
        for (url, without, with) in [
            (
                "https://h.test/a:1?b=c:2",
                "https://h.test/a:1?b=c:2",
                "https://h.test:443/a:1?b=c:2",
            ),
            ("http://h.test:8080?x", "http://h.test?x", "http://h.test:8080?x"),
            ("http://u:p@h.test/", "http://u:p@h.test/", "http://u:p@h.test:80/"),
            ("https://[::1]/x", "https://[::1]/x", "https://[::1]:443/x"),
            ("https://[::1]:9/x", "https://[::1]/x", "https://[::1]:9/x"),
            ("https://h.test", "https://h.test", "https://h.test:443"),
        ] {
            assert_eq!(without_port(url), without);
            assert_eq!(with_default_port(url), with);
        }
    }

    #[test]
    fn a_host_is_compared_whole_or_by_its_parent() {
        let hosts = ["a.test", "*.b.test", "2001:db8::1"].map(str::to_owned);
        for own in [
            "a.test",
            "A.test:443",
            "x.b.test",
            "X.B.TEST:1",
            "[2001:db8::1]",
            "[2001:db8::1]:443",
        ] {
            assert!(is_one_of(own, &hosts), "{own}");
        }
        for other in [
            "",
            "b.test",
            "x.a.test",
            "y.x.b.test",
            "a.test.evil",
            "evil/a.test",
            "a.test@evil",
            "x@a.test",
            "*",
        ] {
            assert!(!is_one_of(other, &hosts), "{other}");
        }
    }

    #[test]
    fn a_query_has_all_its_other_orders() {
        let orders = other_orders("https://h/?a=1&b=2&c=3");
        assert_eq!(orders.len(), 5);
        assert!(orders.contains(&"https://h/?c=3&a=1&b=2".to_owned()));
        assert!(other_orders("https://h/?a&b&c&d&e&f").is_empty());
        assert!(other_orders("https://h/").is_empty());
    }

    #[test]
    fn reserved_characters_are_decoded_and_no_others() {
        let url = "https://h.test/a%2Fb%2f%20?q=%3A%40%2C%2b%26%25&x=%3\u{e9}%";
        let decoded = "https://h.test/a/b/%20?q=:@,%2b%26%25&x=%3\u{e9}%";
        assert_eq!(
            spellings(url.to_owned(), &[UrlVariant::AsConfigured, UrlVariant::ReservedDecoded]),
            [url, decoded]
        );
    }

    #[test]
    fn spellings_are_distinct_and_few() {
        let all = UrlVariant::NAMED.map(|(_, variant)| variant);
        let all = &all[..4];
        let url = "https://h.test/in%40?c=sip%3A1%40h".to_owned();
        assert_eq!(
            spellings(url, all),
            [
                "https://h.test/in%40?c=sip%3A1%40h",
                "https://h.test:443/in%40?c=sip%3A1%40h",
                "https://h.test/in%40?c=sip:1@h",
                "https://h.test:443/in%40?c=sip:1@h"
            ]
        );
    }
}
