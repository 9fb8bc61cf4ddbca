//! TLS on the public listener as clients meet it: the built program, certificates made for each test, and clients of
//! three libraries (rustls, OpenSSL, curl). One file per kind of case.
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

mod clients;
mod connections;
mod files;
mod ground;
mod names;
mod swap;
