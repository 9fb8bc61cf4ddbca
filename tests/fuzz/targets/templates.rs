#![no_main]

#[path = "../bodies.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::templates(data));
