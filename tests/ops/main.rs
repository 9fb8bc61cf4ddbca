//! What an operator does to a server over the years: hand it secrets, look at it, back it up, upgrade it, stop it. The
//! built program in real processes; the code in the comment above a test names the failure, seen in the field, that it
//! keeps away.
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

mod backup;
mod probe;
mod secrets;
mod terminated;
mod upgrade;
