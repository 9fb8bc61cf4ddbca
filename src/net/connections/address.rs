//! Where an upstream is: one address, or a name that is resolved for each new connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Uri;
use tokio::net::TcpStream;

use super::CannotConnect;

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
}

impl Address {
    pub(super) fn of(origin: &Uri) -> Self {
        let host = origin.host().unwrap_or_default();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        let port = origin.port_u16().unwrap_or(80);
        match host.parse::<IpAddr>() {
            Ok(ip) => Self::Known(SocketAddr::new(ip, port)),
            Err(_name) => Self::Named {
                host: host.to_owned(),
                port,
            },
        }
    }

    pub(super) async fn connect(&self) -> Result<TcpStream, CannotConnect> {
        match self {
            Self::Known(address) => TcpStream::connect(address).await,
            Self::Named { host, port } => {
                let addresses = tokio::net::lookup_host((host.as_str(), *port))
                    .await
                    .map_err(CannotConnect::Resolve)?;
                connect_any(addresses).await
            }
        }
        .map_err(CannotConnect::Connect)
    }
}

/// The first of the addresses that takes the connection. The last one has all the time that is left.
async fn connect_any(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut addresses = addresses.peekable();
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
