//! Several servers on real Redis and PostgreSQL, under real faults.
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

mod copies;
mod engines;
mod grounds;
mod leases;
mod pace;
mod revival;
mod separate;
mod without_redis;
