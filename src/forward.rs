//! Forwarding: one lane per upstream leases dispatches, attempts them at the upstream's pace, and settles.

pub mod attempt;
pub mod backoff;
pub mod breaker;
pub mod connections;
pub mod lane;
pub mod message;
pub mod outcome;
pub mod settings;
pub mod signature;
