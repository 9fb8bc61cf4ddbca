#![doc = include_str!("ARCHITECTURE.md")]

pub mod admin;
pub mod dedupe;
pub mod diagnostic;
pub mod forward;
pub mod headers;
pub mod id;
pub mod ingest;
pub mod key;
pub mod net;
pub mod reader;
pub mod request;
pub mod secret;
pub mod store;
pub mod telemetry;
pub mod time;
pub mod verify;
