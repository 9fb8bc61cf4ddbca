//! A client that sends exactly the bytes it is told to.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use super::wire::{self, Lines, Wire};

/// A request to be put on the wire; nothing is added but `Host` and `Content-Length`.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) lines: Lines,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            lines: Vec::new(),
            body: Vec::new(),
        }
    }

    pub(crate) fn post(target: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            body: body.into(),
            ..Self::new("POST", target)
        }
    }

    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.lines.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// With a `Host`, unless there is one, and the body's length.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head();
        if self.method == "POST" || self.method == "PUT" || !self.body.is_empty() {
            bytes.extend(format!("Content-Length: {}\r\n", self.body.len()).into_bytes());
        }
        bytes.extend(b"\r\n");
        bytes.extend(&self.body);
        bytes
    }

    /// With `Transfer-Encoding: chunked`, one chunk for each of `chunks`, a chunk extension and a trailer.
    pub(crate) fn chunked(&self, chunks: &[&[u8]]) -> Vec<u8> {
        let mut bytes = self.head();
        bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
        for chunk in chunks {
            bytes.extend(format!("{:X};note=\"x\"\r\n", chunk.len()).into_bytes());
            bytes.extend(*chunk);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\nX-Trailer: t\r\n\r\n");
        bytes
    }

    /// Request line and header lines, without the empty line.
    pub(crate) fn head(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        if wire::values(&self.lines, "host").is_empty() {
            bytes.extend(b"Host: hooks.example.test\r\n");
        }
        for (name, value) in &self.lines {
            bytes.extend(name.as_bytes());
            bytes.extend(b": ");
            bytes.extend(value);
            bytes.extend(b"\r\n");
        }
        bytes
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) first_line: String,
    pub(crate) lines: Lines,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        wire::value(&self.lines, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// A connection that stays open.
#[derive(Debug)]
pub(crate) struct Connection(pub(crate) Wire);

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::try_open(address).unwrap()
    }

    pub(crate) fn try_open(address: SocketAddr) -> io::Result<Self> {
        Self::open_within(address, super::PATIENCE)
    }

    /// With this much patience for connecting and for every read and write.
    pub(crate) fn open_within(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self(Wire::new(stream)))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).unwrap();
    }

    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.stream.write_all(bytes)
    }

    /// No more bytes will come; answers can still be read.
    pub(crate) fn finish_sending(&self) {
        self.0.stream.shutdown(Shutdown::Write).unwrap();
    }

    pub(crate) fn read(&mut self) -> Response {
        self.try_read(false)
            .unwrap()
            .expect("an answer, not a closed connection")
    }

    /// `None` when the server closed without an answer.
    pub(crate) fn try_read(&mut self, bodiless: bool) -> io::Result<Option<Response>> {
        let Some(message) = self.0.read_message(bodiless)? else {
            return Ok(None);
        };
        let status = message
            .first_line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Ok(Some(Response {
            status: status.unwrap_or_else(|| panic!("not an answer: {message:?}")),
            first_line: message.first_line,
            lines: message.lines,
            body: message.body,
        }))
    }

    /// Whether the first byte of an answer comes within the time.
    pub(crate) fn answers_within(&mut self, time: Duration) -> bool {
        // A time of zero would mean for ever.
        let time = time.max(Duration::from_micros(1));
        self.0.stream.set_read_timeout(Some(time)).unwrap();
        matches!(self.0.stream.peek(&mut [0]), Ok(1))
    }

    /// Whether the server closes the connection within the time.
    pub(crate) fn closes_within(&mut self, time: Duration) -> bool {
        self.0.stream.set_read_timeout(Some(time)).unwrap();
        matches!(self.0.read_message(false), Ok(None))
    }
}

/// One request on a connection of its own; `None` when there was no answer.
pub(crate) fn try_exchange(address: SocketAddr, request: &Request) -> io::Result<Option<Response>> {
    let mut connection = Connection::try_open(address)?;
    connection.try_send(&request.bytes())?;
    connection.try_read(request.method == "HEAD")
}

/// As [`try_exchange`], with this much patience.
pub(crate) fn exchange_within(
    address: SocketAddr,
    request: &Request,
    patience: Duration,
) -> io::Result<Option<Response>> {
    let mut connection = Connection::open_within(address, patience)?;
    connection.try_send(&request.bytes())?;
    connection.try_read(request.method == "HEAD")
}

/// One HTTP/2 request by prior knowledge, its body in the given DATA frames, without `content-length`.
pub(crate) fn http2(address: SocketAddr, request: &Request, frames: Vec<Vec<u8>>) -> u16 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http2::handshake(
            hyper_util::rt::TokioExecutor::new(),
            hyper_util::rt::TokioIo::new(stream),
        )
        .await
        .unwrap();
        let mut connections = tokio::task::JoinSet::new();
        connections.spawn(connection);
        let mut builder = hyper::Request::builder()
            .method(request.method.as_str())
            .uri(format!("http://hooks.example.test{}", request.target));
        for (name, value) in &request.lines {
            builder = builder.header(name.as_str(), value.as_slice());
        }
        let body = Frames(frames.into_iter().map(Into::into).collect());
        let answer = sender.send_request(builder.body(body).unwrap()).await.unwrap();
        answer.status().as_u16()
    })
}

struct Frames(std::collections::VecDeque<bytes::Bytes>);

impl hyper::body::Body for Frames {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        std::task::Poll::Ready(self.0.pop_front().map(|frame| Ok(hyper::body::Frame::data(frame))))
    }
}
