//! What decides whether two connections are alike: where an upstream is, and how it is spoken to.

use std::sync::Arc;

use http::Uri;

use super::UpstreamTls;
use crate::net::egress::Egress;

/// One upstream as connections see it. Two that are equal may share connections; when one of a running upstream changes,
/// its new requests need new ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Scheme and authority only (`https://host:port`).
    pub origin: Uri,
    /// What it speaks.
    pub protocol: Protocol,
    /// TLS; `None` for `http://`.
    pub tls: Option<UpstreamTls>,
    /// Which of its addresses are connected to.
    pub egress: Arc<Egress>,
}

impl Remote {
    /// HTTP/1.1 over TCP, wherever that is by default.
    pub fn plain(origin: Uri) -> Self {
        Self {
            origin,
            protocol: Protocol::Http1,
            tls: None,
            egress: Arc::default(),
        }
    }
}

/// What an upstream speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 (RFC 9112).
    #[default]
    Http1,
    /// HTTP/2 without TLS, by prior knowledge (RFC 9113 section 3.3).
    H2c,
    /// HTTP/2 over TLS, agreed on by ALPN (RFC 9113 section 3.2).
    H2,
}

impl Protocol {
    /// As the configuration says it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http1 => "http/1.1",
            Self::H2c => "h2c",
            Self::H2 => "h2",
        }
    }
}
