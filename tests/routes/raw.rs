//! An upstream of which a test writes every byte: a thread for each connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) struct Raw {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Raw {
    /// Runs `serve` on each connection, which is open until it returns.
    pub(crate) fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (serve, count) = (Arc::new(serve), Arc::clone(&connections));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                count.fetch_add(1, Ordering::SeqCst);
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || serve(stream));
            }
        });
        Self { address, connections }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Reads to the end of a head, byte by byte, so that nothing behind it is taken; `None` when there is none.
pub(crate) fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// The value of a header's first line, in lower-case heads as hyper writes them.
pub(crate) fn value<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (given, value) = line.split_once(':')?;
        given.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Writes `length` bytes in pieces.
pub(crate) fn write_many(stream: &mut TcpStream, length: u64) -> std::io::Result<()> {
    let piece = vec![b'x'; 256 << 10];
    let mut left = length;
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
        stream.write_all(&piece[..now])?;
        left -= now as u64;
    }
    Ok(())
}

/// Reads `length` bytes and throws them away.
pub(crate) fn read_many(stream: &mut TcpStream, length: u64) -> std::io::Result<()> {
    let mut piece = vec![0; 256 << 10];
    let mut left = length;
    while left > 0 {
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
        match stream.read(&mut piece[..room])? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => left -= read as u64,
        }
    }
    Ok(())
}

/// Reads until the other side has closed.
pub(crate) fn wait_for_end(stream: &mut TcpStream) {
    while let Ok(1..) = stream.read(&mut [0; 1024]) {}
}
