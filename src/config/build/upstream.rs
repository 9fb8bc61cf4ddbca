//! `[upstreams.NAME]`.

pub(super) mod signing;
mod tls;

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use http::Uri;
use http::uri::{Authority, Scheme};

pub(super) use self::tls::SystemRoots;
use super::{count, or, span, within};
use crate::config::defaults;
use crate::config::file;
use crate::config::secrets::Secrets;
use crate::diagnostic::Diagnostics;
use crate::forward::settings::{Retry, UpstreamSettings};
use crate::id::UpstreamName;
use crate::net::connections::{Protocol, Remote, bare_host, literal, port_of};
use crate::net::egress::{Egress, Refused};
use crate::reader::At;

/// What all upstreams share.
#[derive(Debug)]
pub(super) struct Ground<'e> {
    /// Our own listeners.
    pub(super) own: [SocketAddr; 2],
    pub(super) egress: Arc<Egress>,
    pub(super) roots: SystemRoots<'e>,
    pub(super) secrets: Secrets<'e>,
}

pub(super) fn build(
    name: &At<String>,
    written: &file::Upstream,
    ground: &Ground<'_>,
    problems: &mut Diagnostics,
) -> Option<UpstreamSettings> {
    let path = format!("upstreams.{}", name.value);
    if written.burst.is_some() && written.rate.is_none() {
        problems.error(
            span(&written.burst),
            format!("`{path}.burst` has no `rate` beside it"),
            "without a rate any number may start at once, up to `concurrency`",
            Some("add `rate = \"50/s\"`, or remove it".to_owned()),
        );
    }
    let timeout = within(
        &written.timeout,
        &defaults::TIMEOUT,
        &format!("{path}.timeout"),
        problems,
    );
    let retry = retry(&written.retry, &path, problems);
    let signature = signing::build(written, &path, ground.secrets, problems);
    let url = written.url.as_ref()?;
    let origin = origin(url, &path, ground, problems)?;
    let tls = tls::build(written, &origin, url.span.clone(), &path, &ground.roots, problems)?;
    Some(UpstreamSettings {
        name: UpstreamName::new(name.value.as_str()),
        remote: Remote {
            origin,
            protocol: or(&written.protocol, Protocol::default()),
            tls,
            egress: Arc::clone(&ground.egress),
        },
        concurrency: count(&written.concurrency, defaults::CONCURRENCY),
        rate: written.rate.as_ref().map(|rate| rate.value),
        burst: written.burst.as_ref().and_then(|burst| u32::try_from(burst.value).ok()),
        timeout,
        retry,
        signature: signature?,
        preserve_host: or(&written.preserve_host, false),
    })
}

fn retry(written: &file::Retry, path: &str, problems: &mut Diagnostics) -> Retry {
    let key = |name: &str| format!("{path}.retry.{name}");
    let retry = Retry {
        first: within(&written.first, &defaults::RETRY_FIRST, &key("first"), problems),
        max: within(&written.max, &defaults::RETRY_MAX, &key("max"), problems),
        give_up_after: within(
            &written.give_up_after,
            &defaults::GIVE_UP_AFTER,
            &key("give_up_after"),
            problems,
        ),
        give_up_refused: within(
            &written.give_up_refused,
            &defaults::GIVE_UP_REFUSED,
            &key("give_up_refused"),
            problems,
        ),
        max_attempts: written
            .max_attempts
            .as_ref()
            .and_then(|attempts| u32::try_from(attempts.value).ok()),
    };
    if retry.first > retry.max {
        problems.error(
            span(&written.first).or(span(&written.max)),
            format!("`{}` is longer than `{}`", key("first"), key("max")),
            "waits grow from `first` to `max`",
            None,
        );
    }
    retry
}

/// Scheme and authority of `url`, which may hold nothing else.
fn origin(url: &At<String>, path: &str, ground: &Ground<'_>, problems: &mut Diagnostics) -> Option<Uri> {
    match parse_origin(&url.value) {
        Ok(origin) => {
            refuse_ourselves(&origin, url.span.clone(), path, &ground.own, problems);
            refuse_by_egress(&origin, url.span.clone(), path, &ground.egress, problems);
            Some(origin)
        }
        Err(Wrong { label, help }) => {
            // The text itself is not repeated: it may hold a password.
            problems.error(
                url.span.clone(),
                format!("bad value for `{path}.url`"),
                label,
                Some(help.to_owned()),
            );
            None
        }
    }
}

struct Wrong {
    label: &'static str,
    help: &'static str,
}

fn parse_origin(text: &str) -> Result<Uri, Wrong> {
    const EXAMPLE: &str =
        "write scheme, host and port, such as \"http://127.0.0.1:3000\" or \"https://app.example.com\"";
    let wrong = |label, help| Err(Wrong { label, help });
    let Ok(uri) = text.parse::<Uri>() else {
        return wrong("not a URL", EXAMPLE);
    };
    let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
        return wrong("not a whole URL", EXAMPLE);
    };
    if *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS {
        return wrong("expected an http or https URL", EXAMPLE);
    }
    if authority.as_str().contains('@') {
        return wrong(
            "user and password do not belong in a URL",
            "remove them; hooksluice sends no credentials of its own",
        );
    }
    if authority.host().is_empty() || authority.port_u16() == Some(0) || bad_port(authority) {
        return wrong("host or port is missing", EXAMPLE);
    }
    if uri.query().is_some() || !matches!(uri.path(), "" | "/") || text.contains('#') {
        return wrong(
            "an origin has no path and no query",
            "requests keep the path they came with; to change it set `forward_path` on the source",
        );
    }
    let origin = Uri::builder().scheme(scheme.clone()).authority(authority.clone());
    origin.path_and_query("/").build().map_err(|_not_built| Wrong {
        label: "not a URL",
        help: EXAMPLE,
    })
}

/// A port that is written and is none: `http::uri` keeps the text.
fn bad_port(authority: &Authority) -> bool {
    let after_host = authority.as_str().strip_prefix(authority.host()).unwrap_or("");
    !after_host.is_empty() && authority.port_u16().is_none()
}

/// Forwarding to one of our own listeners would go round for ever.
fn refuse_ourselves(origin: &Uri, span: Range<usize>, path: &str, own: &[SocketAddr], problems: &mut Diagnostics) {
    if own.iter().any(|listener| reaches(origin, *listener)) {
        problems.error(
            span,
            format!("`{path}.url` is hooksluice itself"),
            "one of our own listeners",
            Some("name the app's address".to_owned()),
        );
    }
}

/// An address in the configuration itself is judged here; what a name leads to, each time it is connected to.
fn refuse_by_egress(origin: &Uri, span: Range<usize>, path: &str, egress: &Egress, problems: &mut Diagnostics) {
    let Some(refused) = literal(origin).and_then(|address| egress.judge(address).err()) else {
        return;
    };
    let help = match refused {
        Refused::Special | Refused::NotAllowed => "if it is right, add this very address to `egress.allow`",
        Refused::Denied => "name another address, or take it out of `egress.deny`",
    };
    problems.error(
        span,
        format!("the address in `{path}.url` is not allowed"),
        refused.to_string(),
        Some(help.to_owned()),
    );
}

fn reaches(origin: &Uri, listener: SocketAddr) -> bool {
    let port = port_of(origin);
    let host = bare_host(origin);
    let address: Option<IpAddr> = literal(origin);
    let loopback = host.eq_ignore_ascii_case("localhost")
        || address.is_some_and(|ip| ip.to_canonical().is_loopback() || ip.is_unspecified());
    let listens_on = listener.ip().to_canonical();
    let same_host = address.is_some_and(|ip| ip.to_canonical() == listens_on)
        || (loopback && listens_on.is_unspecified())
        || (loopback && address.is_none() && listens_on.is_loopback());
    port == listener.port() && same_host
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_http_origin_is_an_upstream() {
        for good in [
            "http://127.0.0.1:3000",
            "http://app",
            "http://app/",
            "http://[::1]:3000",
            "HTTP://app:80",
            "https://app",
            "HTTPS://app:8443/",
            "https://[::1]",
        ] {
            assert!(parse_origin(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "app",
            "app:3000",
            "/x",
            "127.0.0.1:3000",
            "ftp://app",
            "https://",
            "https://u:p@app",
            "https://app/x",
            "http://",
            "http://:3000",
            "http://u:p@app",
            "http://app/x",
            "http://app?x",
            "http://app#x",
            "http://app:0",
            "http://app:99999",
            "http://app:",
            "http://a b",
            "unix:/run/app.sock",
        ] {
            assert!(parse_origin(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn our_own_listeners_are_recognised() {
        let ours = |url: &str, listener: &str| {
            let Ok(origin) = parse_origin(url) else {
                panic!("{url}");
            };
            reaches(&origin, listener.parse().unwrap())
        };
        assert!(ours("http://localhost:8080", "0.0.0.0:8080"));
        assert!(ours("http://127.0.0.1:8080", "[::]:8080"));
        assert!(ours("http://[::1]:8080", "0.0.0.0:8080"));
        assert!(ours("http://10.0.0.5:8080", "10.0.0.5:8080"));
        assert!(ours("http://127.0.0.1", "127.0.0.1:80"));
        assert!(ours("http://LOCALHOST:9180", "127.0.0.1:9180"));
        assert!(ours("https://127.0.0.1", "127.0.0.1:443"));
        assert!(!ours("https://127.0.0.1", "127.0.0.1:80"));
        assert!(!ours("http://localhost:3000", "0.0.0.0:8080"));
        assert!(!ours("http://10.0.0.6:8080", "10.0.0.5:8080"));
        assert!(!ours("http://127.0.0.2:9180", "127.0.0.1:9180"));
        assert!(!ours("http://app:8080", "0.0.0.0:8080"));
    }
}
