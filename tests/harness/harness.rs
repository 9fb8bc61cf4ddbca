//! Real processes for real promises: starts the built `hooksluice` with a configuration and a store of its own on free
//! ports, sends it bytes, receives what it forwards, and reads its log when it is done.
//!
//! Blocking sockets and threads on purpose: what a test does happens in the order in which it is written.

pub(crate) mod bouncer;
pub(crate) mod client;
pub(crate) mod dice;
pub(crate) mod disk;
pub(crate) mod engine;
pub(crate) mod fleet;
pub(crate) mod ledger;
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod relay;
pub(crate) mod server;
pub(crate) mod sign;
pub(crate) mod stage;
pub(crate) mod upstream;
pub(crate) mod wire;

pub(crate) use client::{Connection, Request, Response};
pub(crate) use server::{Server, Setup};
pub(crate) use stage::Stage;
pub(crate) use upstream::{Answer, Received, Upstream};

use std::time::Duration;

use hooksluice::time::Clock;

/// How long a test waits for a level that should be reached at once. Generous, since the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `probe` finds something, and fails the test when it does not in time.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let clock = Clock::system();
    let start = clock.monotonic();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(
            clock.monotonic().since(start) < PATIENCE,
            "waited {PATIENCE:?} for {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Seconds since the Unix epoch, as senders put them into signatures.
pub(crate) fn unix_now() -> i64 {
    Clock::system().now().as_secs()
}
