//! What may answer a duplicate before the store is asked: look-ups that know only what is durable.

pub mod memory;
pub mod protocol;
