//! A look at what we connect to and listen on. Nothing is said over the connections: a request could have an effect.

use std::io;
use std::net::SocketAddr;

/// Whether an address is free to listen on.
#[derive(Debug)]
pub enum Listening {
    /// Nobody has it.
    Free,
    /// Somebody listens there.
    Taken,
    /// It cannot be had.
    Refused(io::Error),
}

/// Binds the address without listening on it, so that nobody can connect meanwhile.
pub fn listening(address: SocketAddr) -> Listening {
    let bound = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )
    .and_then(|socket| {
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())
    });
    match bound {
        Ok(()) => Listening::Free,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Listening::Taken,
        Err(error) => Listening::Refused(error),
    }
}
