//! The program: reads the command line, runs it, and turns an error into one line and an exit code.

use std::io::Write;
use std::process::ExitCode;

use attnscope::cli::Cli;
use clap::Parser;

/// Could not run.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may be reading: the exit code still tells.
            let _ = writeln!(std::io::stderr(), "attnscope: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}
