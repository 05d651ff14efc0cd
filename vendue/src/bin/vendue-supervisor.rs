//! The supervisor of one instance as a separate program. `vendue supervise` does the same, but as there is one
//! supervisor for each instance, a program that contains nothing else halves the memory. A rep uses it if it is in the
//! same directory as `vendue`.

use std::process::ExitCode;

fn main() -> ExitCode {
    rep::supervisor::main()
}
