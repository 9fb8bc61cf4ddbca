//! [`Wire`]: what bytes go over, TCP or TLS over it; and [`Refusal`], what the upstream said in its alert.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::tls;

/// A TLS stream that ends without `close_notify` is an error to who reads it, never an end: an answer without a length
/// that was cut off is not taken for whole (RFC 9112 section 9.8).
#[derive(Debug)]
pub(super) enum Wire {
    Plain(TcpStream),
    Tls(Box<Secured>),
}

#[derive(Debug)]
pub(super) struct Secured {
    pub(super) stream: TlsStream<TcpStream>,
    pub(super) has_certificate: bool,
    pub(super) refusal: Refusal,
}

/// Why an upstream broke the handshake off when our side of it was over. It is noted where the alert is read, before
/// anybody hears that the connection has ended: which of those who hear of it is told why is chance.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusal(Arc<OnceLock<String>>);

impl Refusal {
    pub(super) fn cause(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

impl Secured {
    fn note(&self, error: &rustls::Error) {
        if let Some(cause) = tls::refusal(error, self.has_certificate) {
            // The first is the reason.
            let _later = self.refusal.0.set(cause);
        }
    }

    fn read<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &result
            && let Some(error) = tls::tls_error(error)
        {
            self.note(error);
        }
        result
    }

    /// A write may fail before what the upstream said last has been read, and nobody reads behind it. The alert lies in
    /// the socket, since it came before the connection was closed; the socket itself is asked, as the runtime may not have
    /// heard of it yet.
    fn written<T>(&mut self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_closed)) = &result {
            let (stream, session) = self.stream.get_mut();
            let socket = SockRef::from(&*stream);
            // Ends when nothing is left, or when the session holds as much as it may.
            while let Ok(1..) = session.read_tls(&mut &*socket) {
                if let Err(error) = session.process_new_packets() {
                    self.note(&error);
                    break;
                }
            }
        }
        result
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(secured) => {
                let read = Pin::new(&mut secured.stream).poll_read(cx, buf);
                secured.read(read)
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(secured) => {
                let written = Pin::new(&mut secured.stream).poll_write(cx, buf);
                secured.written(written)
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(secured) => {
                let written = Pin::new(&mut secured.stream).poll_write_vectored(cx, bufs);
                secured.written(written)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(secured) => secured.stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(secured) => {
                let written = Pin::new(&mut secured.stream).poll_flush(cx);
                secured.written(written)
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(secured) => {
                let written = Pin::new(&mut secured.stream).poll_shutdown(cx);
                secured.written(written)
            }
        }
    }
}
