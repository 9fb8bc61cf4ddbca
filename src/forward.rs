//! Forwarding: one lane per upstream leases dispatches, attempts them at the upstream's pace, and settles.

pub mod settings;
