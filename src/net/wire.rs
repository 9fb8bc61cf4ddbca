//! [`Wire`]: the bytes of an inbound connection, with or without TLS.
//!
//! Both kinds can tell that the client has closed its side while nobody reads. A TCP socket is looked at without taking
//! anything from it. What a TLS connection has received must be decrypted to be understood: up to one byte is read ahead
//! and kept for whoever reads next.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// An inbound connection.
#[derive(Debug)]
pub(super) enum Wire {
    /// TCP.
    Plain(TcpStream),
    /// TLS over TCP.
    Tls(Box<Encrypted>),
}

/// A TLS connection behind its handshake.
#[derive(Debug)]
pub(super) struct Encrypted {
    stream: TlsStream<TcpStream>,
    /// Read before anybody asked for it.
    ahead: Option<u8>,
    /// What the next read meets.
    failed: Option<io::Error>,
}

impl Wire {
    /// TLS behind its handshake.
    pub(super) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self::Tls(Box::new(Encrypted {
            stream,
            ahead: None,
            failed: None,
        }))
    }

    /// Whether the client has closed its side, or reset the connection, and everything that it sent before has been read.
    /// The task is woken when that may have changed.
    pub(super) fn is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Plain(stream) => {
                let mut byte = [std::mem::MaybeUninit::uninit()];
                match stream.poll_peek(cx, &mut ReadBuf::uninit(&mut byte)) {
                    // What it has sent stands before its end.
                    Poll::Pending | Poll::Ready(Ok(1..)) => false,
                    Poll::Ready(Ok(0) | Err(_)) => true,
                }
            }
            Self::Tls(encrypted) => encrypted.is_gone(cx),
        }
    }

    /// Whether what was written may still wait in this process, so that a flush can take its time.
    pub(super) fn holds_writes(&self) -> bool {
        matches!(self, Self::Tls(_))
    }
}

impl Encrypted {
    fn is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        if self.ahead.is_some() {
            return false;
        }
        if self.failed.is_some() {
            return true;
        }
        let mut byte = [0];
        let mut buf = ReadBuf::new(&mut byte);
        match self.poll_stream(cx, &mut buf) {
            Poll::Pending => false,
            Poll::Ready(Err(error)) => {
                self.failed = Some(error);
                true
            }
            Poll::Ready(Ok(())) => {
                self.ahead = buf.filled().first().copied();
                if self.ahead.is_some() {
                    // Whoever waits for bytes would not hear of this one.
                    cx.waker().wake_by_ref();
                }
                self.ahead.is_none()
            }
        }
    }

    /// A client that closes TCP without a word (`close_notify`) has closed its side all the same: HTTP says by itself where
    /// a message ends, and an answer may still be waited for.
    fn poll_stream(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => read,
        }
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() > 0
            && let Some(byte) = self.ahead.take()
        {
            buf.put_slice(&[byte]);
            if buf.remaining() > 0
                && let Poll::Ready(Err(error)) = self.poll_stream(cx, buf)
            {
                self.failed = Some(error);
            }
            return Poll::Ready(Ok(()));
        }
        self.poll_stream(cx, buf)
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(encrypted) => Pin::new(&mut **encrypted).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(encrypted) => encrypted.stream.is_write_vectored(),
        }
    }
}
