//! What is counted of TLS on the public listener, where it is configured.

use std::sync::{PoisonError, RwLock};

use crate::measure::Counter;
use crate::time::Timestamp;

/// How a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeOutcome {
    /// Made in full.
    Complete,
    /// An earlier session was resumed.
    Resumed,
    /// It was plain HTTP, which was answered 400.
    PlainHttp,
    /// Not ended within `limits.head_timeout`.
    TooSlow,
    /// The client left, or the process stopped accepting.
    Left,
    /// The client did not accept what it was shown.
    RefusedByClient,
    /// The client's own certificate does not hold.
    CertificateRefused,
    /// Anything else: no TLS at all, no version, suite or protocol in common.
    Failed,
}

impl HandshakeOutcome {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Complete,
        Self::Resumed,
        Self::PlainHttp,
        Self::TooSlow,
        Self::Left,
        Self::RefusedByClient,
        Self::CertificateRefused,
        Self::Failed,
    ];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Resumed => "resumed",
            Self::PlainHttp => "plain_http",
            Self::TooSlow => "too_slow",
            Self::Left => "left",
            Self::RefusedByClient => "refused_by_client",
            Self::CertificateRefused => "certificate_refused",
            Self::Failed => "failed",
        }
    }
}

/// TLS on the public listener.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct TlsMetrics {
    handshakes: [Counter; HandshakeOutcome::ALL.len()],
    expiries: RwLock<Vec<(String, Timestamp)>>,
}

impl TlsMetrics {
    /// Counts a handshake.
    pub fn handshake(&self, outcome: HandshakeOutcome) {
        if let Some(counter) = self.handshakes.get(outcome as usize) {
            counter.add(1);
        }
    }

    /// Handshakes that ended so.
    pub fn handshakes(&self, outcome: HandshakeOutcome) -> u64 {
        self.handshakes.get(outcome as usize).map_or(0, Counter::get)
    }

    /// When each certificate that is shown now ends, by its name.
    pub fn set_expiries(&self, expiries: Vec<(String, Timestamp)>) {
        *self.expiries.write().unwrap_or_else(PoisonError::into_inner) = expiries;
    }

    /// As last set.
    pub fn expiries(&self) -> Vec<(String, Timestamp)> {
        self.expiries.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
