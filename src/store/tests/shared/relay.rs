//! A network between the store and its server that a test can stop or cut inside a transaction. It reads the client's side
//! of the protocol as far as it needs to: messages with a type and a length.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What happens once to a transaction that appends, or to another one that a test names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::tests) enum Trap {
    /// Nothing comes through from its COMMIT on; the connection stays open, as that of a stopped process does.
    StopBeforeCommit,
    /// Its COMMIT comes through and the answer does not: the connection ends.
    CutAfterCommit,
    /// The same, and the network is down from then on.
    Fall,
}

/// A port that passes on what it gets.
#[derive(Debug)]
pub(in crate::store::tests) struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// With the name of the function that the transaction calls.
    trap: Mutex<Option<(&'static str, Trap)>>,
    sprung: AtomicUsize,
    /// Connections end and none is accepted.
    down: Mutex<CancellationToken>,
    target: u16,
    tracker: TaskTracker,
}

impl Relay {
    pub(in crate::store::tests) async fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            trap: Mutex::default(),
            sprung: AtomicUsize::new(0),
            down: Mutex::default(),
            target,
            tracker: TaskTracker::new(),
        });
        let accepting = Arc::clone(&shared);
        shared.tracker.spawn(async move {
            while let Ok((client, _address)) = listener.accept().await {
                let down = accepting.down.lock().unwrap().clone();
                if !down.is_cancelled() {
                    let link = pass_on(Arc::clone(&accepting), client);
                    accepting.tracker.spawn(async move {
                        tokio::select! {
                            () = down.cancelled() => {}
                            _ended = link => {}
                        }
                    });
                }
            }
        });
        Self { address, shared }
    }

    pub(in crate::store::tests) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(in crate::store::tests) fn set(&self, trap: Trap) {
        self.set_for("hooksluice.append_", trap);
    }

    /// For a transaction that calls a function whose name begins so.
    pub(in crate::store::tests) fn set_for(&self, function: &'static str, trap: Trap) {
        *self.shared.trap.lock().unwrap() = Some((function, trap));
    }

    /// How many traps have been sprung.
    pub(in crate::store::tests) fn sprung(&self) -> usize {
        self.shared.sprung.load(Ordering::SeqCst)
    }

    /// The network is down.
    pub(in crate::store::tests) fn cut(&self) {
        self.shared.down.lock().unwrap().cancel();
    }

    /// And up again.
    pub(in crate::store::tests) fn mend(&self) {
        *self.shared.down.lock().unwrap() = CancellationToken::new();
    }
}

async fn pass_on(shared: Arc<Shared>, client: TcpStream) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", shared.target)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (muted, end, fallen) = (
        CancellationToken::new(),
        CancellationToken::new(),
        CancellationToken::new(),
    );
    let answers = {
        let (muted, end, fallen) = (muted.clone(), end.clone(), fallen.clone());
        let answering = Arc::clone(&shared);
        async move {
            let mut buffer = vec![0; 64 << 10];
            let mut said = Vec::new();
            loop {
                let count = tokio::select! {
                    () = end.cancelled() => return Ok(()),
                    count = from_server.read(&mut buffer) => count?,
                };
                if count == 0 {
                    return Ok(());
                }
                if muted.is_cancelled() {
                    said.extend_from_slice(&buffer[..count]);
                    // Answers to earlier statements may come first.
                    if contains(&said, b"COMMIT\0") {
                        if fallen.is_cancelled() {
                            answering.down.lock().unwrap().cancel();
                        }
                        end.cancel();
                    }
                    continue;
                }
                to_client.write_all(&buffer[..count]).await?;
            }
        }
    };
    let requests = async move {
        // The first message has no type.
        let length = from_client.read_u32().await?;
        to_server.write_u32(length).await?;
        copy(&mut from_client, &mut to_server, length).await?;
        let mut called = Vec::new();
        loop {
            let kind = from_client.read_u8().await?;
            let length = from_client.read_u32().await?;
            let mut body = vec![0; usize::try_from(length - 4).unwrap()];
            from_client.read_exact(&mut body).await?;
            if kind == b'P' {
                called.extend_from_slice(&body);
            }
            let commits = kind == b'Q' && body.starts_with(b"COMMIT");
            let mut trap = None;
            if commits {
                let mut set = shared.trap.lock().unwrap();
                if set.is_some_and(|(function, _trap)| contains(&called, function.as_bytes())) {
                    trap = set.take().map(|(_function, trap)| trap);
                }
                called.clear();
            }
            if trap == Some(Trap::StopBeforeCommit) {
                shared.sprung.fetch_add(1, Ordering::SeqCst);
                // For as long as the test lasts.
                std::future::pending::<()>().await;
            }
            let cuts = matches!(trap, Some(Trap::CutAfterCommit | Trap::Fall));
            if trap == Some(Trap::Fall) {
                fallen.cancel();
            }
            if cuts {
                muted.cancel();
                shared.sprung.fetch_add(1, Ordering::SeqCst);
            }
            to_server.write_u8(kind).await?;
            to_server.write_u32(length).await?;
            to_server.write_all(&body).await?;
            if cuts {
                end.cancelled().await;
                return Ok(());
            }
        }
    };
    tokio::select! {
        done = requests => done,
        done = answers => done,
    }
}

async fn copy(
    from: &mut tokio::net::tcp::OwnedReadHalf,
    to: &mut tokio::net::tcp::OwnedWriteHalf,
    length: u32,
) -> std::io::Result<()> {
    let mut body = vec![0; usize::try_from(length - 4).unwrap()];
    from.read_exact(&mut body).await?;
    to.write_all(&body).await
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
