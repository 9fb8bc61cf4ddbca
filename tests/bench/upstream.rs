//! The trivial upstream: answers 200 to everything, or never answers at all. Runs on a thread of its own.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

#[derive(Debug)]
pub(crate) struct Upstream {
    address: SocketAddr,
    count: Arc<AtomicU64>,
    /// Dropping it ends the thread.
    _stop: Option<oneshot::Sender<()>>,
    /// A listener that nobody accepts from: connecting works, answers never come.
    _stalled: Option<StdListener>,
}

impl Upstream {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests answered so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.count)
    }
}

pub(crate) fn stalled() -> Upstream {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    Upstream {
        address: listener.local_addr().unwrap(),
        count: Arc::default(),
        _stop: None,
        _stalled: Some(listener),
    }
}

pub(crate) fn answering() -> Upstream {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let (stop, stopped) = oneshot::channel();
    let counter = Arc::clone(&count);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            let mut connections = JoinSet::new();
            tokio::select! {
                () = accept(&listener, &mut connections, &counter) => {}
                _ = stopped => {}
            }
        });
    });
    Upstream {
        address,
        count,
        _stop: Some(stop),
        _stalled: None,
    }
}

async fn accept(listener: &TcpListener, connections: &mut JoinSet<()>, count: &Arc<AtomicU64>) {
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, Arc::clone(count)));
    }
}

async fn serve(mut stream: TcpStream, count: Arc<AtomicU64>) {
    stream.set_nodelay(true).unwrap();
    let mut buffer = vec![0; 64 << 10];
    let mut length = 0;
    loop {
        while let Some(end) = request_end(&buffer[..length]) {
            buffer.copy_within(end..length, 0);
            length -= end;
            count.fetch_add(1, Ordering::Relaxed);
            if stream
                .write_all(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{\"ok\":true}",
                )
                .await
                .is_err()
            {
                return;
            }
        }
        match stream.read(&mut buffer[length..]).await {
            Ok(0) | Err(_) => return,
            Ok(read) => length += read,
        }
    }
}

/// Where the first whole request of `bytes` ends; hooksluice always sends `Content-Length`.
fn request_end(bytes: &[u8]) -> Option<usize> {
    let head = memmem::find(bytes, b"\r\n\r\n")?;
    let text = String::from_utf8_lossy(&bytes[..head]);
    let length: usize = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, value)| value.trim().parse().unwrap());
    (bytes.len() >= head + 4 + length).then_some(head + 4 + length)
}
