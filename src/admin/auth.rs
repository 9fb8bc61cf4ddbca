//! Who may ask the admin listener for what.
//!
//! # Motivation
//!
//! It listens on loopback by default, without a token. That keeps other machines out, not the operator's own browser:
//! a page from anywhere can make it send requests to `127.0.0.1`, and, with a name that first points to the page's
//! server and then to `127.0.0.1` (DNS rebinding), read the answers. So:
//!
//! - **Host**: only names that cannot have been rebound: `localhost`, loopback and own addresses, and what the operator
//!   listed. The port is not compared, since containers map it.
//! - **Changes**: `Content-Type: application/json`, which a page cannot send to another origin without a preflight that
//!   we never grant, and no foreign `Origin`.
//! - **Token**: where one is configured, for everything but `/healthz` and `/readyz`, compared in constant time (P5).

use std::net::IpAddr;

use http::request::Parts;
use http::uri::Authority;
use http::{Method, header};

use super::AdminSettings;
use super::error::ApiError;

/// Paths that need no token: they tell nothing but whether to send traffic.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// The local address of the connection that a request came by.
#[derive(Clone, Copy, Debug)]
pub struct LocalAddress(pub IpAddr);

/// Lets the request in, or says why not.
pub fn allow(settings: &AdminSettings, local: LocalAddress, request: &Parts) -> Result<(), ApiError> {
    let host = host(request).ok_or(ApiError::WrongHost)?;
    // Without userinfo, which no client sends here: `localhost@evil.test` must not need thought.
    let authority = host.parse::<Authority>().ok().filter(|_| !host.contains('@'));
    if !authority.is_some_and(|authority| is_ours(settings, local, authority.host())) {
        return Err(ApiError::WrongHost);
    }
    if let Some(token) = &settings.token
        && !OPEN_PATHS.contains(&request.uri.path())
        && !bearer(request).is_some_and(|given| token.matches(given))
    {
        return Err(ApiError::Unauthorized);
    }
    if matches!(request.method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    for origin in request.headers.get_all(header::ORIGIN) {
        let same = origin.to_str().ok().and_then(|o| o.strip_prefix("http://")) == Some(host);
        if !same {
            return Err(ApiError::ForeignOrigin);
        }
    }
    if is_json(request) {
        Ok(())
    } else {
        Err(ApiError::NotJson)
    }
}

/// The one host that the request names, with its port: the target's authority, else the only `Host` line.
fn host(request: &Parts) -> Option<&str> {
    let mut lines = request.headers.get_all(header::HOST).iter();
    let line = lines.next();
    if lines.next().is_some() {
        return None;
    }
    match request.uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => line?.to_str().ok(),
    }
}

fn is_ours(settings: &AdminSettings, local: LocalAddress, name: &str) -> bool {
    let literal = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    if let Ok(address) = literal.parse::<IpAddr>() {
        let address = address.to_canonical();
        return address == IpAddr::from([127, 0, 0, 1])
            || address == IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])
            || address == settings.listen.ip().to_canonical()
            || address == local.0.to_canonical()
            || settings.hosts.iter().any(|host| host == name || host == literal);
    }
    name.eq_ignore_ascii_case("localhost") || settings.hosts.iter().any(|host| host.eq_ignore_ascii_case(name))
}

fn bearer(request: &Parts) -> Option<&[u8]> {
    let mut lines = request.headers.get_all(header::AUTHORIZATION).iter();
    let line = lines.next()?.as_bytes();
    if lines.next().is_some() {
        return None;
    }
    let (scheme, token) = line.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn is_json(request: &Parts) -> bool {
    let mut lines = request.headers.get_all(header::CONTENT_TYPE).iter();
    let line = lines.next().and_then(|line| line.to_str().ok());
    let kind = line.and_then(|line| line.split(';').next()).map(str::trim);
    lines.next().is_none() && kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::secret::Secret;

    const LOCAL: LocalAddress = LocalAddress(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7)));

    fn settings() -> AdminSettings {
        AdminSettings {
            listen: "0.0.0.0:9180".parse().unwrap(),
            token: None,
            hosts: vec!["Hooks.internal".into()],
        }
    }

    fn request(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/api/v1/events");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn judge(settings: &AdminSettings, method: &str, headers: &[(&str, &str)]) -> Result<(), String> {
        allow(settings, LOCAL, &request(method, headers)).map_err(|e| format!("{e:?}"))
    }

    #[test]
    fn only_hosts_that_cannot_be_rebound_are_answered() {
        for good in [
            "localhost",
            "LOCALHOST:9180",
            "127.0.0.1:1",
            "[::1]:9180",
            "[::1]",
            "10.0.0.7:9180",
            "0.0.0.0:9180",
            "hooks.internal",
        ] {
            assert_eq!(judge(&settings(), "GET", &[("host", good)]), Ok(()), "{good}");
        }
        for bad in [
            "evil.test",
            "localhost.evil.test",
            "127.0.0.1.nip.io:9180",
            "10.0.0.8",
            "localhost@evil.test",
            "evil.test@localhost",
            "",
            "[::1",
            "::1",
        ] {
            let judged = judge(&settings(), "GET", &[("host", bad)]);
            assert_eq!(judged, Err("WrongHost".into()), "{bad}");
        }
        assert_eq!(judge(&settings(), "GET", &[]), Err("WrongHost".into()));
        let two = [("host", "localhost"), ("host", "evil.test")];
        assert_eq!(judge(&settings(), "GET", &two), Err("WrongHost".into()));
    }

    #[test]
    fn the_target_s_authority_counts_before_host() {
        let mut parts = request("GET", &[("host", "localhost")]);
        parts.uri = "http://evil.test/healthz".parse().unwrap();
        assert!(matches!(allow(&settings(), LOCAL, &parts), Err(ApiError::WrongHost)));
    }

    #[test]
    fn a_change_needs_json_and_no_foreign_origin() {
        let host = ("host", "localhost:9180");
        let json = ("content-type", "application/json; charset=utf-8");
        assert_eq!(judge(&settings(), "POST", &[host, json]), Ok(()));
        let same = ("origin", "http://localhost:9180");
        assert_eq!(judge(&settings(), "POST", &[host, json, same]), Ok(()));
        for origin in [
            "null",
            "http://evil.test",
            "https://localhost:9180",
            "http://localhost:3000",
        ] {
            let judged = judge(&settings(), "POST", &[host, json, ("origin", origin)]);
            assert_eq!(judged, Err("ForeignOrigin".into()), "{origin}");
        }
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/jsonx",
            "",
        ] {
            let judged = judge(&settings(), "POST", &[host, ("content-type", kind)]);
            assert_eq!(judged, Err("NotJson".into()), "{kind}");
        }
        assert_eq!(judge(&settings(), "POST", &[host]), Err("NotJson".into()));
    }

    #[test]
    fn a_token_is_asked_of_everything_but_the_probes() {
        let mut settings = settings();
        settings.token = Some(Secret::new("s3cret"));
        let host = ("host", "localhost");
        assert_eq!(judge(&settings, "GET", &[host]), Err("Unauthorized".into()));
        for (given, allowed) in [
            ("Bearer s3cret", true),
            ("bearer s3cret", true),
            ("Bearer s3cre", false),
            ("Bearer ", false),
            ("Basic s3cret", false),
            ("Bea", false),
        ] {
            let judged = judge(&settings, "GET", &[host, ("authorization", given)]);
            assert_eq!(judged.is_ok(), allowed, "{given}");
        }
        let mut probe = request("GET", &[host]);
        probe.uri = "/readyz".parse().unwrap();
        assert!(allow(&settings, LOCAL, &probe).is_ok());
    }
}
