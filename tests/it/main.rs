//! The product as its users meet it: the built program, real sockets, a real store. One file per kind of case; the
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

mod catalogue;
mod delivery_id;
mod demo;
mod diagnosis;
mod disk_full;
mod forwarding;
mod hang_up;
mod learn;
mod pause;
mod raw_body;
mod responses;
mod rotation;
mod secrets;
mod sender_loop;
mod sender_patience;
mod service_manager;
mod signature_header;
mod size;
mod storage;
mod sync;
mod timestamps;
