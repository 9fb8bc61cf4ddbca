//! The demo's sample upstream: checks the signature again, remembers what it saw, and can be away.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::sender;

/// Where it begins a job for each request.
pub(super) const JOBS: &str = "/jobs";
/// Longest body that is read.
const BODY_LIMIT: usize = 64 << 10;

/// One received attempt.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) delivery: String,
    pub(super) event: String,
    pub(super) attempt: u32,
    pub(super) replay: bool,
    pub(super) body: Bytes,
    pub(super) signature_holds: bool,
    pub(super) answered: bool,
}

/// How it treats requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// 200 at once.
    Answers,
    /// Takes the request and never answers.
    Hangs,
}

struct Memory {
    secret: &'static str,
    mood: Mutex<Mood>,
    seen: Mutex<Vec<Seen>>,
    jobs: AtomicU32,
}

/// An HTTP server on one fixed port.
pub(super) struct Upstream {
    address: SocketAddr,
    memory: Arc<Memory>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Upstream {
    pub(super) async fn start(secret: &'static str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut upstream = Self {
            address: listener.local_addr()?,
            memory: Arc::new(Memory {
                secret,
                mood: Mutex::new(Mood::Answers),
                seen: Mutex::default(),
                jobs: AtomicU32::new(0),
            }),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        upstream.listen(listener);
        Ok(upstream)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn set_mood(&self, mood: Mood) {
        *self.memory.mood.lock().unwrap_or_else(PoisonError::into_inner) = mood;
    }

    /// All attempts of one delivery, oldest first.
    pub(super) fn seen(&self, delivery: &str) -> Vec<Seen> {
        let seen = self.memory.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|seen| seen.delivery == delivery).cloned().collect()
    }

    /// How many jobs it was asked to begin.
    pub(super) fn jobs(&self) -> u32 {
        self.memory.jobs.load(Ordering::Relaxed)
    }

    /// From now on connections are refused.
    pub(super) async fn stop(&mut self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Back on the same port.
    pub(super) async fn start_again(&mut self) -> anyhow::Result<()> {
        self.tasks = TaskTracker::new();
        self.stop = CancellationToken::new();
        let listener = TcpListener::bind(self.address).await?;
        self.listen(listener);
        Ok(())
    }

    fn listen(&mut self, listener: TcpListener) {
        let (memory, tasks, stop) = (Arc::clone(&self.memory), self.tasks.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
                let (memory, stop) = (Arc::clone(&memory), stop.clone());
                tasks.spawn(async move {
                    let service = service_fn(|request| answer(request, &memory));
                    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    // How the connection ends is the server's business, not the sample's.
                    drop(stop.run_until_cancelled(connection).await);
                });
            }
        });
    }
}

async fn answer(request: Request<Incoming>, memory: &Memory) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    #[expect(clippy::disallowed_methods, reason = "limited")]
    let body = Limited::new(body, BODY_LIMIT).collect().await;
    let Ok(body) = body.map(http_body_util::Collected::to_bytes) else {
        return Ok(status(StatusCode::BAD_REQUEST));
    };
    if head.uri.path() == JOBS {
        return Ok(begin_job(memory));
    }
    let mood = *memory.mood.lock().unwrap_or_else(PoisonError::into_inner);
    let text = |name| text(&head.headers, name);
    let seen = Seen {
        delivery: text("x-delivery-id"),
        event: text("hooksluice-event-id"),
        attempt: text("hooksluice-attempt").parse().unwrap_or(0),
        replay: text("hooksluice-replay") == "true",
        signature_holds: text("x-signature") == sender::signature(memory.secret, &body),
        body,
        answered: mood == Mood::Answers,
    };
    memory.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    match mood {
        Mood::Answers => Ok(status(StatusCode::OK)),
        Mood::Hangs => std::future::pending().await,
    }
}

/// An app that knows nothing of keys: each request begins a job.
fn begin_job(memory: &Memory) -> Response<Full<Bytes>> {
    let number = memory.jobs.fetch_add(1, Ordering::Relaxed) + 1;
    let mut response = Response::new(Full::from(format!(r#"{{"id":"job_{number}"}}"#)));
    *response.status_mut() = StatusCode::ACCEPTED;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

fn text(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}
