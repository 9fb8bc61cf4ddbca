//! The inbound path of a source: look, append, answer.

pub mod source;
