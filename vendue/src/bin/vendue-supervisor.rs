//! The supervisor of one instance as a program of its own. `vendue supervise` does the same; this
//! one is there because there is one for each instance, and a program that holds nothing else takes
//! half the memory. A rep uses it where it stands beside `vendue`.

use std::process::ExitCode;

fn main() -> ExitCode {
    rep::supervisor::main()
}
