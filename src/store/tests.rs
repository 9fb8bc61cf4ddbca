//! Tests of every backend: the contract that all keep ([`contract`]), and what is a backend's own.

mod bench;
mod contract;
mod embedded;
