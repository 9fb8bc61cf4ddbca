//! Sockets: the accept loop, the timers of a connection, and what HTTP/1 heads must not do.

pub mod head_guard;
pub mod listen;
