//! Ordinary routes as clients and apps meet them: the built program between raw sockets. One file per kind of case; the
//! code in the comment above a test names the failure, seen in the field, that it keeps away.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::string_slice,
    reason = "a test stops at the first surprise"
)]

#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test binary uses its part of it"
)]
#[path = "../harness/harness.rs"]
mod harness;

mod failing;
mod passing;
mod paths;
mod raw;
mod smuggling;
mod streams;
mod two;
mod websocket;

use harness::{Setup, Stage, Upstream};

/// `[routes.NAME]` to the upstream `app`.
fn route(name: &str, path: &str, lines: &str) -> String {
    format!("[routes.{name}]\npath = \"{path}\"\nupstream = \"app\"\n{lines}\n")
}

/// A server whose only route takes everything.
fn everything(upstream: Upstream, configure: impl FnOnce(Setup) -> Setup) -> Stage {
    Stage::with(upstream, |setup| {
        configure(setup.plain().table_after(&route("rest", "/{*rest}", "")))
    })
}
