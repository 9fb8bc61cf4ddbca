//! Sockets: the accept loop, the timers of a connection, what HTTP/1 heads must not do, the connections to an upstream, and
//! what the service manager is told.

pub mod certificate;
pub mod connections;
pub mod egress;
pub mod fetch;
mod guarded;
mod handshake;
pub mod head_guard;
pub mod listen;
pub mod probe;
pub mod systemd;
pub mod tls;
mod wire;
