//! What may answer a duplicate before the store is asked: look-ups that know only what is durable.

pub mod arbiter;
pub mod front;
pub mod memory;
pub mod observer;
pub mod protocol;
pub mod redis;
pub mod renew;
pub mod settings;
pub mod teller;
#[cfg(test)]
mod tests;
