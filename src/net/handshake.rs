//! TLS handshakes, each in its connection's own task, under one deadline, counted by how they end.
//!
//! What is not TLS is told apart before the library sees it: a client that speaks plain HTTP to this port is answered so
//! that a person understands it, since it sees nothing but a broken connection otherwise.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::HandshakeKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use crate::net::tls::{Certificates, Shown};
use crate::telemetry::metrics::HandshakeOutcome;

/// The first byte of every TLS connection: a record of the handshake (RFC 8446 section 5.1).
const HANDSHAKE_RECORD: u8 = 0x16;

/// For whoever speaks HTTP without TLS. Nobody else can read it.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 49\r\n\
    Connection: close\r\n\
    \r\n\
    This port speaks TLS: the URL begins with https:\n";

/// Bytes of a plain request that are read so that its client reads the answer before the connection ends.
const PLAIN_HTTP_READ: u64 = 256 << 10;

/// A connection behind its handshake.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) stream: TlsStream<TcpStream>,
    /// The client's certificate, where it has shown one.
    pub(super) shown: Option<Shown>,
}

/// Makes the handshake within `limit`; `None` when there is no connection behind it.
pub(super) async fn open(stream: TcpStream, certificates: &Arc<Certificates>, limit: Duration) -> Option<Opened> {
    let made = tokio::time::timeout(limit, make(stream, certificates)).await;
    let (outcome, opened) = match made {
        Ok(Ok(opened)) => (kind(&opened.stream), Some(opened)),
        Ok(Err(ended)) => {
            if let Ended::Broken(error) = &ended {
                debug!(%error, "no TLS handshake");
            }
            (ended.outcome(), None)
        }
        Err(_elapsed) => (HandshakeOutcome::TooSlow, None),
    };
    certificates.count(outcome);
    opened
}

/// Why there is no connection.
#[derive(Debug)]
enum Ended {
    Plain,
    Expired,
    Broken(io::Error),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

async fn make(mut stream: TcpStream, certificates: &Arc<Certificates>) -> Result<Opened, Ended> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    if first[0] != HANDSHAKE_RECORD && first[0].is_ascii_alphabetic() {
        refuse_plain(&mut stream).await?;
        return Err(Ended::Plain);
    }
    let (server, number) = certificates.server();
    let stream = TlsAcceptor::from(server).accept(stream).await?;
    let chain = stream.get_ref().1.peer_certificates();
    let shown = chain.and_then(|chain| Shown::new(certificates, number, chain));
    // A session is resumed without another look at the certificate that it was made with.
    if shown.as_ref().is_some_and(|shown| shown.certificate().is_none()) {
        return Err(Ended::Expired);
    }
    Ok(Opened { stream, shown })
}

/// Reads on for a while behind the answer: closing with bytes unread would take the answer away again.
async fn refuse_plain(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(PLAIN_HTTP).await?;
    stream.shutdown().await?;
    let mut rest = stream.take(PLAIN_HTTP_READ);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
    Ok(())
}

fn kind(stream: &TlsStream<TcpStream>) -> HandshakeOutcome {
    match stream.get_ref().1.handshake_kind() {
        Some(HandshakeKind::Resumed) => HandshakeOutcome::Resumed,
        _ => HandshakeOutcome::Complete,
    }
}

impl Ended {
    fn outcome(&self) -> HandshakeOutcome {
        let error = match self {
            Self::Plain => return HandshakeOutcome::PlainHttp,
            Self::Expired => return HandshakeOutcome::CertificateRefused,
            Self::Broken(error) => error,
        };
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidCertificate(_)) => HandshakeOutcome::CertificateRefused,
            Some(rustls::Error::AlertReceived(_)) => HandshakeOutcome::RefusedByClient,
            Some(_) => HandshakeOutcome::Failed,
            // Of the socket.
            None => HandshakeOutcome::Left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_plain_http_says_its_own_length() {
        let text = std::str::from_utf8(PLAIN_HTTP).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("Content-Length: {}\r\n", body.len())),
            "{}",
            body.len()
        );
    }
}
