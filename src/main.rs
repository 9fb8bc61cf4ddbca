//! The `hooksluice` program.

fn main() {}
