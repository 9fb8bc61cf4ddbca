#![doc = include_str!("ARCHITECTURE.md")]

pub mod diagnostic;
pub mod headers;
pub mod id;
pub mod reader;
pub mod request;
pub mod secret;
pub mod time;
