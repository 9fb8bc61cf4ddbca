//! Tests of every backend: the contract that all keep ([`contract`]), and what is a backend's own.
//!
//! Each backend has a module here with its [`Bench`](bench::Bench), which says how one joins.

mod bench;
mod compare;
mod contract;
mod embedded;
mod memory;
mod separate;
mod shared;
