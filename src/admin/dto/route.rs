//! Routes in a status.

use serde::{Deserialize, Serialize};

/// One route in a status. Counts are of requests, since the start of the process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct RouteStatus {
    /// Its name.
    pub name: String,
    /// Its pattern.
    pub path: String,
    /// Where its requests go.
    pub upstream: String,
    /// The upstream answered 2xx, 3xx or 4xx, or opened a WebSocket.
    pub answered: u64,
    /// The upstream answered 5xx.
    pub upstream_errors: u64,
    /// We answered 502 or 504: unreachable, no valid answer, or not in time.
    pub failed: u64,
    /// We refused it with a 4xx, its body not in time included.
    pub refused: u64,
    /// The client left before there was an answer.
    pub client_left: u64,
    /// Wait for an answer now.
    pub waiting: u64,
    /// WebSockets that are open now.
    pub tunnels: u64,
}
