//! The load generator: raw sockets on one thread, prepared bytes, so that it costs less than the server it measures.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use hooksluice::time::{Clock, Monotonic};
use memchr::memmem;
use sha2::Sha256;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Digits of an id in the request head.
const ID_DIGITS: usize = 16;
/// Ids are unique over all runs of this process.
static NEXT_RUN: AtomicU64 = AtomicU64::new(1);

/// One closed-loop load.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) address: SocketAddr,
    pub(crate) connections: usize,
    pub(crate) request: Prepared,
    /// Measured time, after a warm-up of a quarter of it.
    pub(crate) seconds: f64,
}

/// The bytes of a request, and where its id stands in them.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    bytes: Vec<u8>,
    id_at: usize,
    /// How many different ids there are; without it none comes twice.
    ids: Option<u64>,
}

impl Prepared {
    /// A signed webhook with so many bytes of body.
    pub(crate) fn webhook(secret: &str, size: usize) -> Self {
        let body = body(size);
        Self::new("/bench", &signature(secret, &body), "X-Delivery-Id", &body, None)
    }

    /// A call of a route with an `Idempotency-Key`. The bare server, which asks for a signature, takes it too.
    pub(crate) fn call(secret: &str, size: usize, keys: Option<u64>) -> Self {
        let body = body(size);
        Self::new("/calls", &signature(secret, &body), "Idempotency-Key", &body, keys)
    }

    /// A request that means nothing to us.
    pub(crate) fn plain(size: usize) -> Self {
        Self::new("/plain", "", "X-Request-Id", &body(size), None)
    }

    fn new(path: &str, lines: &str, id: &str, body: &[u8], ids: Option<u64>) -> Self {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: bench.test\r\nContent-Type: application/json\r\n{lines}Content-Length: {}\r\n{id}: ",
            body.len()
        );
        let id_at = head.len();
        let mut bytes = head.into_bytes();
        bytes.extend([b'0'; ID_DIGITS]);
        bytes.extend(b"\r\n\r\n");
        bytes.extend(body);
        Self { bytes, id_at, ids }
    }
}

fn body(size: usize) -> Vec<u8> {
    let text = br#"{"type":"bench.event","data":{"text":"webhook payload "}}"#;
    text.iter().copied().cycle().take(size).collect()
}

fn signature(secret: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body);
    let signature = data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes());
    format!("X-Signature: sha256={signature}\r\n")
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// 200s over the whole load, warm-up included.
    pub(crate) answered: u64,
    /// Requests over the whole load.
    pub(crate) sent: u64,
    /// Anything but a 200.
    pub(crate) failed: u64,
    /// 200s within the window.
    pub(crate) in_window: u64,
    pub(crate) window: Duration,
    /// Latencies of the requests that began within the window, sorted, in nanoseconds.
    latencies: Arc<Vec<u32>>,
}

impl Measured {
    pub(crate) fn percentile(&self, fraction: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        let at = (last as f64 * fraction).round() as usize;
        Duration::from_nanos(u64::from(self.latencies.get(at).copied().unwrap_or(0)))
    }
}

/// Runs `load`; `mark` is called when the window begins and when it ends.
pub(crate) fn run(load: &Load, mark: impl FnMut()) -> Measured {
    go(load, None, mark)
}

/// As [`run`], but waits while more than `backlog` of the requests that were answered are not `forwarded` yet.
pub(crate) fn run_held_back(load: &Load, forwarded: &Arc<AtomicU64>, backlog: u64, mark: impl FnMut()) -> Measured {
    go(load, Some((Arc::clone(forwarded), backlog)), mark)
}

fn go(load: &Load, hold: Option<(Arc<AtomicU64>, u64)>, mut mark: impl FnMut()) -> Measured {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let clock = Clock::system();
    let warm_up = Duration::from_secs_f64(load.seconds / 4.0);
    let window = Duration::from_secs_f64(load.seconds);
    let shared = Arc::new(Shared {
        begin: clock.monotonic().after(warm_up),
        end: clock.monotonic().after(warm_up).after(window),
        clock,
        answered: AtomicU64::new(0),
        hold,
    });
    let run = NEXT_RUN.fetch_add(1, Ordering::Relaxed);
    // The current time makes ids unique over processes that share a store.
    let first_id = (shared.clock.now().as_millis().unsigned_abs() << 24) ^ (run << 44);
    runtime.block_on(async {
        let mut connections = JoinSet::new();
        for number in 0..load.connections {
            let connection = Connection {
                address: load.address,
                request: load.request.clone(),
                id: first_id.wrapping_add((number as u64) << 32),
                shared: Arc::clone(&shared),
            };
            connections.spawn(connection.run());
        }
        tokio::time::sleep(warm_up).await;
        mark();
        let (count, start) = (shared.answered.load(Ordering::Relaxed), shared.clock.monotonic());
        tokio::time::sleep(window).await;
        mark();
        let mut measured = Measured {
            in_window: shared.answered.load(Ordering::Relaxed) - count,
            window: shared.clock.monotonic().since(start),
            ..Measured::default()
        };
        let mut latencies = Vec::new();
        while let Some(done) = connections.join_next().await {
            let done = done.unwrap();
            measured.sent += done.sent;
            measured.failed += done.failed;
            latencies.extend(done.latencies);
        }
        latencies.sort_unstable();
        measured.latencies = Arc::new(latencies);
        measured.answered = shared.answered.load(Ordering::Relaxed);
        measured
    })
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    begin: Monotonic,
    end: Monotonic,
    answered: AtomicU64,
    hold: Option<(Arc<AtomicU64>, u64)>,
}

struct Connection {
    address: SocketAddr,
    request: Prepared,
    id: u64,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Done {
    sent: u64,
    failed: u64,
    latencies: Vec<u32>,
}

impl Connection {
    async fn run(mut self) -> Done {
        let mut done = Done::default();
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut answer = vec![0; 4096];
        loop {
            self.hold_back().await;
            let start = self.shared.clock.monotonic();
            if start >= self.shared.end {
                return done;
            }
            self.id += 1;
            let Prepared { bytes, id_at, ids } = &mut self.request;
            let id = ids.map_or(self.id, |ids| self.id % ids);
            write_hex(&mut bytes[*id_at..*id_at + ID_DIGITS], id);
            done.sent += 1;
            let ok = exchange(&mut stream, &self.request.bytes, &mut answer).await;
            if ok != Some(200) {
                done.failed += 1;
                if ok.is_none() {
                    stream = TcpStream::connect(self.address).await.unwrap();
                }
                continue;
            }
            self.shared.answered.fetch_add(1, Ordering::Relaxed);
            if start >= self.shared.begin {
                let took = self.shared.clock.monotonic().since(start).as_nanos();
                done.latencies.push(u32::try_from(took).unwrap_or(u32::MAX));
            }
        }
    }

    async fn hold_back(&self) {
        let Some((forwarded, backlog)) = &self.shared.hold else {
            return;
        };
        while self.shared.clock.monotonic() < self.shared.end
            && self.shared.answered.load(Ordering::Relaxed) > forwarded.load(Ordering::Relaxed) + backlog
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// The status of the answer, or `None` when the connection is of no more use.
async fn exchange(stream: &mut TcpStream, request: &[u8], answer: &mut [u8]) -> Option<u16> {
    stream.write_all(request).await.ok()?;
    let mut length = 0;
    loop {
        let read = stream.read(answer.get_mut(length..)?).await.ok()?;
        if read == 0 {
            return None;
        }
        length += read;
        if let Some(status) = complete(&answer[..length]) {
            return Some(status);
        }
    }
}

/// The status, once head and body are there.
fn complete(answer: &[u8]) -> Option<u16> {
    let head = memmem::find(answer, b"\r\n\r\n")?;
    let text = std::str::from_utf8(&answer[..head]).ok()?;
    let status = text.get(9..12)?.parse().ok()?;
    let length = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, value)| value.trim().parse().unwrap_or(0));
    (answer.len() >= head + 4 + length).then_some(status)
}

fn write_hex(place: &mut [u8], mut value: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(value & 0xf) as usize];
        value >>= 4;
    }
}
