//! `Idempotency-Key` end to end: real servers on the embedded store and on PostgreSQL, in front of a plain app, under
//! repetition, concurrency, crashes and faults.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::string_slice,
    reason = "a test stops at the first surprise and says what it does"
)]

#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test binary uses its part of it"
)]
#[path = "../harness/harness.rs"]
mod harness;

/// Runs each of these functions once on the embedded store and once on PostgreSQL.
macro_rules! on_both_stores {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(
                #[test]
                fn $test() {
                    super::$test(&crate::ground::Ground::sqlite());
                }
            )*
        }
        mod postgres {
            $(
                #[test]
                fn $test() {
                    super::$test(&crate::ground::Ground::postgres());
                }
            )*
        }
    };
}

mod admin;
mod answers;
mod callers;
mod concurrent;
mod crashes;
mod ground;
mod outcomes;
mod redis_cache;
mod repeats;
mod replicas;
mod requests;
mod seeds;
mod stores;
