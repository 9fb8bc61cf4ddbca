//! The `hooksluice` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    hooksluice::cli::main()
}
