//! The admin listener: health, readiness, metrics and the JSON API.

pub mod dto;

use std::net::SocketAddr;

use crate::secret::Secret;

/// `[admin]`.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// Where it listens; anything but loopback needs a token.
    pub listen: SocketAddr,
    /// Bearer token, when one is required.
    pub token: Option<Secret>,
    /// Names besides its own addresses that `Host` may carry.
    pub hosts: Vec<String>,
}
