//! Forwarding: one lane per upstream leases dispatches, attempts them at the upstream's pace, and settles.

pub mod backoff;
pub mod breaker;
pub mod lane;
pub mod outcome;
pub mod settings;
