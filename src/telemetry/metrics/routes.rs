//! What is counted of routes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::StatusCode;

use super::{Counter, Gauge, Histogram};

/// How a request to a route ended, as far as the head of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteOutcome {
    /// The upstream answered 2xx.
    Success,
    /// The upstream answered 3xx.
    Redirect,
    /// The upstream answered 4xx.
    ClientError,
    /// The upstream answered 5xx.
    ServerError,
    /// A WebSocket was opened.
    Upgraded,
    /// We refused it: with a 4xx; a repetition of a call whose outcome is unknown (504); one whose key could not be taken
    /// (503).
    Refused,
    /// Its body did not arrive in time (408).
    TooSlow,
    /// The upstream could not be reached; nothing was sent (502).
    Unreachable,
    /// The upstream gave no valid answer (502), or none that says what became of a call with a key (504).
    Broken,
    /// The upstream did not answer in time (504).
    TimedOut,
    /// The client left before there was an answer.
    ClientLeft,
}

impl RouteOutcome {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Success,
        Self::Redirect,
        Self::ClientError,
        Self::ServerError,
        Self::Upgraded,
        Self::Refused,
        Self::TooSlow,
        Self::Unreachable,
        Self::Broken,
        Self::TimedOut,
        Self::ClientLeft,
    ];

    /// Of an answer of the upstream's, or of one of its answers that is given again.
    pub fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            ..300 => Self::Success,
            300..400 => Self::Redirect,
            400..500 => Self::ClientError,
            500.. => Self::ServerError,
        }
    }

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "2xx",
            Self::Redirect => "3xx",
            Self::ClientError => "4xx",
            Self::ServerError => "5xx",
            Self::Upgraded => "upgraded",
            Self::Refused => "refused",
            Self::TooSlow => "too_slow",
            Self::Unreachable => "unreachable",
            Self::Broken => "broken",
            Self::TimedOut => "timeout",
            Self::ClientLeft => "client_left",
        }
    }
}

/// The counters of one route.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RouteMetrics {
    requests: [Counter; RouteOutcome::ALL.len()],
    answer: Histogram,
    /// Requests whose answer has not begun.
    pub waiting: Gauge,
    /// Open WebSockets.
    pub tunnels: Gauge,
    /// Answers that the upstream ended early, or that stood still for too long.
    pub cut_by_upstream: Counter,
    /// Answers whose client left before their end.
    pub cut_by_client: Counter,
    place: RwLock<(String, String)>,
    removed: AtomicBool,
}

impl RouteMetrics {
    /// The configuration has this route, from these paths to this upstream.
    pub fn configured(&self, path: String, upstream: String) {
        *self.place.write().unwrap_or_else(PoisonError::into_inner) = (path, upstream);
        self.removed.store(false, Ordering::Relaxed);
    }

    /// The configuration has it no more. Its counters stay, as scrapers expect of counters.
    pub fn removed(&self) {
        self.removed.store(true, Ordering::Relaxed);
    }

    /// Whether it has left the configuration.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    /// Pattern and upstream.
    pub fn place(&self) -> (String, String) {
        self.place.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A request has come; it counts as one whose client left unless it is said how it ended.
    pub fn began(self: &Arc<Self>) -> Running {
        self.waiting.add(1);
        Running {
            metrics: Arc::clone(self),
            ended: false,
        }
    }

    /// A tunnel is open, for as long as the value lives.
    pub fn tunnel(self: &Arc<Self>) -> OpenTunnel {
        self.tunnels.add(1);
        OpenTunnel(Arc::clone(self))
    }

    /// Refused before anything was done with it.
    pub fn refused(&self) {
        self.count(RouteOutcome::Refused);
    }

    /// An answer did not reach its end.
    pub fn answer_cut(&self, by_upstream: bool) {
        if by_upstream {
            self.cut_by_upstream.add(1);
        } else {
            self.cut_by_client.add(1);
        }
    }

    /// Requests that ended so.
    pub fn requests(&self, outcome: RouteOutcome) -> u64 {
        self.requests.get(outcome as usize).map_or(0, Counter::get)
    }

    /// From the complete head to the head of the answer.
    pub fn answer_times(&self) -> &Histogram {
        &self.answer
    }

    fn count(&self, outcome: RouteOutcome) {
        if let Some(counter) = self.requests.get(outcome as usize) {
            counter.add(1);
        }
    }
}

/// A request that waits for its answer.
#[derive(Debug)]
pub struct Running {
    metrics: Arc<RouteMetrics>,
    ended: bool,
}

impl Running {
    /// It ended so, `took` after its head was complete.
    pub fn end(mut self, outcome: RouteOutcome, took: Duration) {
        self.ended = true;
        self.metrics.count(outcome);
        self.metrics.answer.observe(took);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.metrics.waiting.add(-1);
        if !self.ended {
            self.metrics.count(RouteOutcome::ClientLeft);
        }
    }
}

/// Counts an open tunnel.
#[derive(Debug)]
pub struct OpenTunnel(Arc<RouteMetrics>);

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        self.0.tunnels.add(-1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_s_number_is_its_place_in_the_list() {
        for (index, outcome) in RouteOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
    }

    #[test]
    fn a_request_is_counted_once_also_when_its_client_left() {
        let metrics = Arc::new(RouteMetrics::default());
        metrics.began().end(RouteOutcome::Success, Duration::ZERO);
        drop(metrics.began());
        assert_eq!(metrics.requests(RouteOutcome::Success), 1);
        assert_eq!(metrics.requests(RouteOutcome::ClientLeft), 1);
        assert_eq!(metrics.waiting.get(), 0);
    }
}
