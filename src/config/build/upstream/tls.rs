//! TLS to an upstream: `url = "https://…"`, `protocol`, `tls = { … }`.

use std::cell::OnceCell;
use std::ops::Range;

use http::Uri;
use http::uri::Scheme;
use rustls::pki_types::ServerName;

use crate::config::build::span;
use crate::config::certificates::{certificates, named, private_key};
use crate::config::file;
use crate::config::secrets::Secrets;
use crate::diagnostic::Diagnostics;
use crate::net::connections::{Identity, Protocol, Roots, UpstreamTls, bare_host};
use crate::reader::At;

/// What the system trusts, read when the first upstream needs it.
#[derive(Debug)]
pub(in crate::config::build) struct SystemRoots<'e> {
    secrets: Secrets<'e>,
    read: OnceCell<Roots>,
}

impl<'e> SystemRoots<'e> {
    pub(in crate::config::build) fn new(secrets: Secrets<'e>) -> Self {
        Self {
            secrets,
            read: OnceCell::new(),
        }
    }

    pub(in crate::config::build) fn get(&self) -> Roots {
        let read = || Roots::system(self.secrets.environment().system_roots());
        self.read.get_or_init(read).clone()
    }
}

/// `None` inside: plain TCP. `None`: there is a mistake, which is reported.
pub(super) fn build(
    written: &file::Upstream,
    origin: &Uri,
    url: Range<usize>,
    path: &str,
    system: &SystemRoots<'_>,
    problems: &mut Diagnostics,
) -> Option<Option<UpstreamTls>> {
    let protocol = written.protocol.as_ref();
    if origin.scheme() != Some(&Scheme::HTTPS) {
        if let Some(protocol) = protocol.filter(|protocol| protocol.value == Protocol::H2) {
            problems.error(
                protocol.span.clone(),
                format!("`{path}.protocol` needs TLS"),
                "h2 is HTTP/2 over TLS, and the url is http",
                Some("write \"h2c\", which is HTTP/2 without TLS, or https in `url`".to_owned()),
            );
        }
        if let Some(tls) = &written.tls {
            problems.error(
                tls.span.clone(),
                format!("`{path}.tls` is for https"),
                "the url is http",
                Some("write https in `url`, or remove `tls`".to_owned()),
            );
        }
        return Some(None);
    }
    if let Some(protocol) = protocol.filter(|protocol| protocol.value == Protocol::H2c) {
        problems.error(
            protocol.span.clone(),
            format!("`{path}.protocol` is without TLS"),
            "h2c is HTTP/2 without TLS, and the url is https",
            Some("write \"h2\"".to_owned()),
        );
        return None;
    }
    let protocol = protocol.map_or(Protocol::default(), |protocol| protocol.value);
    let none = file::UpstreamTls::default();
    let tls = written.tls.as_ref().map_or(&none, |tls| &tls.value);
    let name = server_name(tls, origin, url.clone(), path, problems);
    if system.secrets.are_skipped() {
        check_pair(tls, path, problems);
        // Never served with: nothing is looked up, so nobody is believed.
        return name.and_then(|name| {
            UpstreamTls::new(&Roots::system(Vec::new()), None, name, protocol)
                .ok()
                .map(Some)
        });
    }
    let roots = roots(tls, url.clone(), path, system, problems);
    let identity = identity(tls, path, system, problems);
    let (roots, identity, name) = (roots?, identity?, name?);
    match UpstreamTls::new(&roots, identity, name, protocol) {
        Ok(built) => Some(Some(built)),
        Err(rustls::Error::InconsistentKeys(_)) => {
            problems.error(
                span(&tls.key),
                format!("`{path}.tls.key` does not fit `cert`"),
                "the key of another certificate",
                Some("the first certificate in `cert` is ours; those behind it lead to its root".to_owned()),
            );
            None
        }
        Err(error) => {
            problems.error(
                span(&tls.cert).or(Some(url)),
                format!("`{path}.tls` cannot be used"),
                error.to_string(),
                None,
            );
            None
        }
    }
}

/// The name that the upstream's certificate must have: the URL's host, or another.
fn server_name(
    tls: &file::UpstreamTls,
    origin: &Uri,
    url: Range<usize>,
    path: &str,
    problems: &mut Diagnostics,
) -> Option<ServerName<'static>> {
    let host = bare_host(origin);
    let (text, span) = match &tls.server_name {
        Some(name) => (name.value.as_str(), name.span.clone()),
        None => (host, url),
    };
    // Names are sent and compared without the dot that ends them (RFC 6066 section 3).
    match ServerName::try_from(text.strip_suffix('.').unwrap_or(text)) {
        Ok(name) => Some(name.to_owned()),
        Err(_not_a_name) => {
            let (message, help) = if tls.server_name.is_some() {
                (
                    format!("bad value for `{path}.tls.server_name`"),
                    "expected a host name or an address, without scheme and port",
                )
            } else {
                (
                    format!("the host of `{path}.url` cannot be in a certificate"),
                    "say which name its certificate has: tls = { server_name = \"app.example.com\" }",
                )
            };
            problems.error(span, message, "not a host name", Some(help.to_owned()));
            None
        }
    }
}

fn roots(
    tls: &file::UpstreamTls,
    url: Range<usize>,
    path: &str,
    system: &SystemRoots<'_>,
    problems: &mut Diagnostics,
) -> Option<Roots> {
    let Some(ca) = &tls.ca else {
        let roots = system.get();
        if roots.is_empty() {
            problems.error(
                url,
                format!("no certificate of `{path}` could be trusted"),
                "this machine has no root certificates",
                Some(format!(
                    "install ca-certificates, point SSL_CERT_FILE to a list of them, or write `ca` in {path}.tls"
                )),
            );
            return None;
        }
        return Some(roots);
    };
    let what = format!("{path}.tls.ca");
    let given = certificates(ca, &what, system.secrets.environment(), problems)?;
    match Roots::given(given) {
        Ok(roots) => Some(roots),
        Err(_broken) => {
            problems.error(
                ca.span.clone(),
                format!("`{what}` cannot be used"),
                format!("{} has a certificate that cannot be read", named(&ca.value)),
                Some("make the file anew; it takes certificates of authorities (X.509)".to_owned()),
            );
            None
        }
    }
}

/// `None` inside: we have none to show.
fn identity(
    tls: &file::UpstreamTls,
    path: &str,
    system: &SystemRoots<'_>,
    problems: &mut Diagnostics,
) -> Option<Option<Identity>> {
    check_pair(tls, path, problems);
    let environment = system.secrets.environment();
    match (&tls.cert, &tls.key) {
        (None, None) => Some(None),
        (Some(cert), Some(key)) => {
            let chain = certificates(cert, &format!("{path}.tls.cert"), environment, problems);
            let key = private_key(key, &format!("{path}.tls.key"), environment, problems);
            Some(Some(Identity {
                chain: chain?,
                key: key?,
            }))
        }
        (Some(_), None) | (None, Some(_)) => None,
    }
}

fn check_pair(tls: &file::UpstreamTls, path: &str, problems: &mut Diagnostics) {
    let mut alone = |has: &At<String>, name: &str, lacks: &str| {
        problems.error(
            has.span.clone(),
            format!("`{path}.tls.{name}` has no `{lacks}` beside it"),
            "a client certificate is proven with its key",
            Some(format!("add `{lacks} = \"FILE\"`; both may be in one file")),
        );
    };
    match (&tls.cert, &tls.key) {
        (Some(cert), None) => alone(cert, "cert", "key"),
        (None, Some(key)) => alone(key, "key", "cert"),
        (None, None) | (Some(_), Some(_)) => {}
    }
}
