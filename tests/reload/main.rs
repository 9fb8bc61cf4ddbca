//! Reloads end to end: real servers whose configuration, secrets and upstreams change while requests go on.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::string_slice,
    reason = "a test stops at the first surprise and says what it does"
)]

#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test binary uses its part of it"
)]
#[path = "../harness/harness.rs"]
mod harness;

mod asking;
mod calls;
mod configuration;
mod load;
mod refusals;
mod rotation;
mod site;
