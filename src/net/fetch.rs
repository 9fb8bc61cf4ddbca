//! [`Fetching`]: gets a small document from a provider, over TLS and the same connections as upstreams: by the system's roots,
//! within `[egress]`, without following redirects, bounded in size and time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use rustls::pki_types::ServerName;
use tokio_util::task::TaskTracker;

use crate::net::connections::{Connections, Protocol, Remote, Roots, UpstreamTls, bare_host};
use crate::net::egress::Egress;
use crate::time::Clock;

/// How long it may take, from the name's resolution to the last byte.
pub const TIME_MAX: Duration = Duration::from_secs(5);
/// Largest document, in bytes.
pub const SIZE_MAX: usize = 256 << 10;

/// Whom we believe, and where we may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetching {
    /// Whose certificates are believed.
    pub roots: Roots,
    /// Which addresses are connected to.
    pub egress: Arc<Egress>,
}

/// Why there is no document, in words for people; never a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CannotFetch(String);

impl CannotFetch {
    /// For this reason.
    pub fn because(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl Fetching {
    /// The document at an `https://` address.
    ///
    /// # Errors
    /// It could not be had in time.
    pub async fn get(&self, url: &Uri, clock: &Clock, tracker: &TaskTracker) -> Result<Bytes, CannotFetch> {
        let got = tokio::time::timeout(TIME_MAX, self.get_at_all(url, clock, tracker)).await;
        got.unwrap_or_else(|_elapsed| Err(CannotFetch::because("it took too long")))
    }

    #[expect(clippy::disallowed_methods, reason = "Limited is the cap that the ban is there for")]
    async fn get_at_all(&self, url: &Uri, clock: &Clock, tracker: &TaskTracker) -> Result<Bytes, CannotFetch> {
        let authority = url
            .authority()
            .ok_or_else(|| CannotFetch::because("there is no host"))?;
        let name = ServerName::try_from(bare_host(url).to_owned())
            .map_err(|_invalid| CannotFetch::because("the host has no name that a certificate could have"))?;
        let tls = UpstreamTls::new(&self.roots, None, name, Protocol::Http1)
            .map_err(|why| CannotFetch::because(why.to_string()))?;
        let origin = Uri::builder()
            .scheme("https")
            .authority(authority.clone())
            .path_and_query("/")
            .build();
        let remote = Remote {
            origin: origin.map_err(|why| CannotFetch::because(why.to_string()))?,
            protocol: Protocol::Http1,
            tls: Some(tls),
            egress: Arc::clone(&self.egress),
        };
        let connections: Connections<Full<Bytes>> = Connections::new(&remote, clock.clone(), tracker.clone());
        let mut connection = connections
            .open()
            .await
            .map_err(|why| CannotFetch::because(why.describe()))?;
        let target = url.path_and_query().map_or("/", |target| target.as_str());
        let request = Request::get(target)
            .header(header::HOST, authority.as_str())
            .header(header::ACCEPT, HeaderValue::from_static("*/*"))
            .header(header::USER_AGENT, concat!("hooksluice/", env!("CARGO_PKG_VERSION")))
            .header(header::CONNECTION, "close")
            .body(Full::default())
            .map_err(|why| CannotFetch::because(why.to_string()))?;
        let sent = connection.send(request).await;
        let response = sent.map_err(|_why| CannotFetch::because("the connection broke before the answer"))?;
        if response.status() != StatusCode::OK {
            return Err(CannotFetch::because(format!("it was answered {}", response.status())));
        }
        let body = Limited::new(response.into_body(), SIZE_MAX).collect().await;
        let body = body.map_err(|_why| CannotFetch::because("the answer broke off, or is too large"))?;
        Ok(body.to_bytes())
    }
}
