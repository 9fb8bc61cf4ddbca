//! Who the client is: the peer, or what a trusted proxy says of it.
//!
//! Forwarding headers from anyone else are dropped, so that an app never reads a client's own claim. What stays is
//! complete: an `X-Forwarded-For` that is stored ends with the peer, and the forwarder passes it on as it is.

use std::net::IpAddr;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What only a trusted proxy may say.
const FORWARDING: [HeaderName; 5] = [
    FORWARDED_FOR,
    FORWARDED_PROTO,
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("forwarded"),
];

/// The client's address; `headers` is left with forwarding headers that can be believed. A connection that is `secure`
/// says so for its client, unless a trusted proxy has said what its own client spoke.
pub fn identify(peer: IpAddr, secure: bool, headers: &mut HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let peer = peer.to_canonical();
    let is_ours = is_trusted(peer, trusted);
    if !is_ours {
        for name in FORWARDING {
            headers.remove(name);
        }
    }
    if secure && !headers.contains_key(FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static("https"));
    }
    if !is_ours {
        return peer;
    }
    let chain: Vec<String> = headers
        .get_all(FORWARDED_FOR)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|hop| hop.trim().to_owned())
        .filter(|hop| !hop.is_empty())
        .collect();
    // From the right, the first hop that is not ours; whoever wrote further left may have lied.
    let client = chain
        .iter()
        .rev()
        .map_while(|hop| parse_hop(hop))
        .find(|hop| !is_trusted(*hop, trusted))
        .or_else(|| chain.first().and_then(|hop| parse_hop(hop)))
        .unwrap_or(peer);
    let line = chain
        .into_iter()
        .chain([peer.to_string()])
        .collect::<Vec<_>>()
        .join(", ");
    if let Ok(line) = HeaderValue::from_str(&line) {
        headers.insert(FORWARDED_FOR, line);
    }
    client
}

/// Whether this peer is one of the trusted proxies.
pub fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|net| net.contains(&address))
}

/// An address, with or without port and brackets.
fn parse_hop(hop: &str) -> Option<IpAddr> {
    let bare = hop
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
        .map_or(hop, |(address, _)| address);
    bare.parse()
        .or_else(|_| hop.parse().map(|socket: std::net::SocketAddr| socket.ip()))
        .ok()
        .map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn nets() -> Vec<IpNet> {
        vec!["10.0.0.0/8".parse().unwrap()]
    }

    #[test]
    fn a_stranger_cannot_say_who_it_is() {
        let mut given = headers(&[
            ("x-forwarded-for", "10.0.0.1"),
            ("forwarded", "for=1.2.3.4"),
            ("x-forwarded-host", "evil.test"),
            ("x-kept", "1"),
        ]);
        let client = identify("203.0.113.9".parse().unwrap(), false, &mut given, &nets());
        assert_eq!(client.to_string(), "203.0.113.9");
        assert_eq!(given, headers(&[("x-kept", "1")]));
    }

    #[test]
    fn behind_a_trusted_proxy_the_rightmost_stranger_is_the_client() {
        let mut given = headers(&[
            ("x-forwarded-for", "1.1.1.1, 203.0.113.9"),
            ("x-forwarded-for", "10.0.0.7"),
        ]);
        let client = identify("10.0.0.8".parse().unwrap(), false, &mut given, &nets());
        assert_eq!(client.to_string(), "203.0.113.9");
        assert_eq!(
            given,
            headers(&[("x-forwarded-for", "1.1.1.1, 203.0.113.9, 10.0.0.7, 10.0.0.8")])
        );
    }

    #[test]
    fn tls_is_told_unless_a_trusted_proxy_says_what_its_client_spoke() {
        let proto = |peer: &str, secure, said: &[(&'static str, &'static str)]| {
            let mut given = headers(said);
            identify(peer.parse().unwrap(), secure, &mut given, &nets());
            given
                .get("x-forwarded-proto")
                .map(|value| value.to_str().unwrap().to_owned())
        };
        let http = [("x-forwarded-proto", "http")];
        assert_eq!(proto("203.0.113.9", true, &http).as_deref(), Some("https"));
        assert_eq!(proto("203.0.113.9", false, &[("x-forwarded-proto", "https")]), None);
        assert_eq!(proto("10.0.0.8", true, &http).as_deref(), Some("http"));
        assert_eq!(proto("10.0.0.8", true, &[]).as_deref(), Some("https"));
    }

    #[test]
    fn nonsense_in_the_chain_ends_the_search_at_a_hop_of_ours() {
        let mut given = headers(&[("x-forwarded-for", "1.1.1.1, garbage, 10.0.0.7")]);
        let client = identify("10.0.0.8".parse().unwrap(), false, &mut given, &nets());
        assert_eq!(client.to_string(), "1.1.1.1");
        let mut given = headers(&[("x-forwarded-for", "garbage")]);
        assert_eq!(
            identify("10.0.0.8".parse().unwrap(), false, &mut given, &nets()).to_string(),
            "10.0.0.8"
        );
    }

    #[test]
    fn ports_and_brackets_are_understood() {
        for (hop, address) in [
            ("1.2.3.4:5", "1.2.3.4"),
            ("[2001:db8::1]:5", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("::ffff:1.2.3.4", "1.2.3.4"),
        ] {
            assert_eq!(parse_hop(hop).unwrap().to_string(), address);
        }
    }
}
