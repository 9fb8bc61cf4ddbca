//! Where an upstream is: one address, or a name that is resolved for each new connection. What is connected to is what
//! [`Egress`] allows of it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use tokio::net::TcpStream;
use tracing::debug;

use super::CannotConnect;
use crate::net::egress::Egress;

/// How long one of several addresses may take to answer, before the next is tried.
const ADDRESS_MAX: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) enum Address {
    Known(SocketAddr),
    /// Resolved for each new connection.
    Named {
        host: String,
        port: u16,
    },
    /// A name that tests resolve.
    #[cfg(test)]
    Told(std::sync::Arc<std::sync::Mutex<Vec<SocketAddr>>>),
}

/// The port of an origin, written or its scheme's own.
pub fn port_of(origin: &Uri) -> u16 {
    let default = if origin.scheme() == Some(&Scheme::HTTPS) {
        443
    } else {
        80
    };
    origin.port_u16().unwrap_or(default)
}

/// The host of an origin as an address, if it is one.
pub fn literal(origin: &Uri) -> Option<IpAddr> {
    bare_host(origin).parse().ok()
}

/// The host of an origin, an IPv6 address without its brackets.
pub fn bare_host(origin: &Uri) -> &str {
    let host = origin.host().unwrap_or_default();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host)
}

impl Address {
    pub(super) fn of(origin: &Uri) -> Self {
        let port = port_of(origin);
        match literal(origin) {
            Some(ip) => Self::Known(SocketAddr::new(ip, port)),
            None => Self::Named {
                host: bare_host(origin).to_owned(),
                port,
            },
        }
    }

    pub(super) async fn connect(&self, egress: &Egress) -> Result<TcpStream, CannotConnect> {
        let addresses = self.resolve().await.map_err(CannotConnect::Resolve)?;
        let allowed = allowed(addresses, egress)?;
        connect_any(allowed).await.map_err(CannotConnect::Connect)
    }

    async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Known(address) => Ok(vec![*address]),
            Self::Named { host, port } => Ok(tokio::net::lookup_host((host.as_str(), *port)).await?.collect()),
            #[cfg(test)]
            Self::Told(addresses) => Ok(addresses.lock().unwrap().clone()),
        }
    }
}

/// Those that may be connected to. A name that leads to others too is used for these only.
fn allowed(addresses: Vec<SocketAddr>, egress: &Egress) -> Result<Vec<SocketAddr>, CannotConnect> {
    let mut allowed = Vec::new();
    let mut last = None;
    for address in addresses {
        match egress.judge(address.ip()) {
            Ok(()) => allowed.push(address),
            Err(refused) => {
                debug!(%address, reason = %refused, "address not allowed by [egress]");
                last = Some(refused);
            }
        }
    }
    match last {
        Some(refused) if allowed.is_empty() => Err(CannotConnect::NotAllowed(refused)),
        Some(_) | None => Ok(allowed),
    }
}

/// The first of the addresses that takes the connection. The last one has all the time that is left.
async fn connect_any(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut addresses = addresses.into_iter().peekable();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    while let Some(address) = addresses.next() {
        let connecting = TcpStream::connect(address);
        let found = if addresses.peek().is_some() {
            let timed_out = |_elapsed| Err(io::ErrorKind::TimedOut.into());
            tokio::time::timeout(ADDRESS_MAX, connecting)
                .await
                .unwrap_or_else(timed_out)
        } else {
            connecting.await
        };
        match found {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
