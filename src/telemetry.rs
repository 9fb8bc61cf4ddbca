//! What the operator sees of a running server: metrics and the log.

pub mod exposition;
pub mod logging;
pub mod metrics;
