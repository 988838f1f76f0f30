//! The program: reads the command line, runs it, and turns an error into one line and an exit code.

use std::io::Write;
use std::panic;
use std::process::ExitCode;

use attnscope::cli::{Cli, Ended, refusal, unknown_command};
use attnscope_checkpoint::caught::panics_are_caught;
use attnscope_report::one_line;
use clap::Parser;

/// There are findings.
const FOUND: u8 = 1;
/// Could not run.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    keep_caught_panics_quiet();
    attnscope_system::signals::watch();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and the version were asked for: they go to standard output.
        Err(asked) if !asked.use_stderr() => {
            return match asked.print() {
                Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                    failed(&format!("standard output: cannot be written ({e})"))
                }
                Err(_) | Ok(()) => ExitCode::SUCCESS,
            };
        }
        Err(refused) => {
            let unknown = unknown_command(std::env::args_os().nth(1));
            return failed(&unknown.unwrap_or_else(|| refusal(&refused)));
        }
    };
    let ended = cli.run();
    // A screen that a signal ended has given the terminal back by now.
    attnscope_system::signals::die_if_asked();
    match ended {
        Ok(Ended::Clean) => ExitCode::SUCCESS,
        Ok(Ended::WithFindings) => ExitCode::from(FOUND),
        // Each was told of when it failed.
        Ok(Ended::Partly) => ExitCode::from(FAILED),
        Err(error) => failed(&format!("{error:#}")),
    }
}

/// A panic of a library that comes back as an error is told as that error, and not by the system too.
fn keep_caught_panics_quiet() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !panics_are_caught() {
            usual(info);
        }
    }));
}

fn failed(reason: &str) -> ExitCode {
    // Nobody may be reading: the exit code still tells.
    let _ = writeln!(std::io::stderr(), "attnscope: {}", one_line(reason));
    ExitCode::from(FAILED)
}
