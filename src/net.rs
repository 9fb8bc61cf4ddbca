//! Sockets: the accept loop, the timers of a connection, what HTTP/1 heads must not do, and the connections to an upstream.

pub mod connections;
pub mod head_guard;
pub mod listen;
