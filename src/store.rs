//! The durable store: append, admit, lease, settle.

pub mod model;
pub mod settings;
