//! A configured source and the limits it is held to: settings that cannot be wrong any more.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Method, StatusCode};
use ipnet::IpNet;

use crate::forward::settings::Synchronous;
use crate::id::{SourceName, UpstreamName};
use crate::ingest::clients::Clients;
use crate::key::DedupeRule;
use crate::net::fetch::Fetching;
use crate::reader::Rate;
use crate::telemetry::metrics::SenderRule;
use crate::verify::Verifier;

/// One `[sources.NAME]`, ready to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name.
    pub name: SourceName,
    /// Its exact path, starting with `/`, without a trailing slash (but for `/` itself).
    pub path: String,
    /// Checks signatures with every live secret; shared with the forwarder, which signs with them.
    pub verifier: Arc<Verifier>,
    /// How its provider's keys are fetched, where none are given, and what hand-shakes name is visited.
    pub fetching: Option<Fetching>,
    /// Makes the dedupe key.
    pub dedupe: DedupeRule,
    /// Methods the provider delivers with; not `HEAD` and `OPTIONS`, which are answered for every source.
    pub methods: Vec<Method>,
    /// The provider probes with an unsigned `GET`, which is answered 200.
    pub get_probe: bool,
    /// Body limit in bytes.
    pub max_body: u64,
    /// Client addresses that may send; empty allows all.
    pub allow: Vec<IpNet>,
    /// Clients that may send, by their certificates; `None` takes those without one too.
    pub clients: Option<Clients>,
    /// Inbound rate of verified requests; over it 429.
    pub rate: Option<Rate>,
    /// Status of the acknowledgement (2xx).
    pub ack_status: StatusCode,
    /// Body of the acknowledgement.
    pub ack_body: Bytes,
    /// Path and query sent upstream instead of the received ones.
    pub forward_path: Option<PathAndQuery>,
    /// Where its events go; never empty.
    pub upstreams: Arc<[UpstreamName]>,
    /// How long the sender waits for an answer, where the record knows it.
    pub sender_deadline: Option<Duration>,
    /// When the sender gives up for good, where the record knows it.
    pub sender_rule: Option<SenderRule>,
    /// A secret that vouched for nothing for so long, while others did, can be removed.
    pub secret_unused_after: Duration,
    /// `learn = "once"`: its secret arrives in band, and is kept in this directory.
    pub learns_into: Option<PathBuf>,
    /// `reply = "upstream"`: the sender waits for the upstream's own answer.
    pub synchronous: Option<Synchronous>,
}

/// `[limits]`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open inbound connections.
    pub connections: usize,
    /// Bytes of request line and headers; over it 431.
    pub head: usize,
    /// From the first byte of a request to the end of its head; over it the connection is closed.
    pub head_timeout: Duration,
    /// Default body limit in bytes; over it 413.
    pub body: u64,
    /// From the end of the head to the end of the body; over it 408.
    /// Also how long a client may leave an answer unread before its connection is closed.
    pub body_timeout: Duration,
    /// How long a connection may wait for its next request.
    pub idle_timeout: Duration,
    /// Body bytes held in memory over all inbound requests; over it 503.
    pub in_flight: u64,
    /// Appended events that wait for admission; at it, accepting slows to admission's speed.
    pub unadmitted: usize,
    /// Bytes of kept answers of idempotent calls in memory.
    pub replay_cache: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            head: 32 << 10,
            head_timeout: Duration::from_secs(10),
            body: 5 << 20,
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(90),
            in_flight: 64 << 20,
            unadmitted: 100_000,
            replay_cache: 32 << 20,
        }
    }
}
