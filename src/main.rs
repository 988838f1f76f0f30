//! The program: reads the command line, runs it, and turns an error into one line and an exit code.

use std::io::Write;
use std::panic;
use std::process::ExitCode;

use attnscope::cli::{Cli, Ended, refusal, unknown_command};
use attnscope_checkpoint::caught::panics_are_caught;
use attnscope_report::one_line;

/// Exit code: there are findings.
const FOUND: u8 = 1;
/// Exit code: could not run.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    keep_caught_panics_quiet();
    attnscope_system::signals::watch();
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        // Help and version go to standard output.
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
    // If a signal ended the screen, the terminal is already restored.
    attnscope_system::signals::die_if_asked();
    match ended {
        Ok(Ended::Clean) => ExitCode::SUCCESS,
        Ok(Ended::WithFindings) => ExitCode::from(FOUND),
        // Each target's error was printed when it failed.
        Ok(Ended::Partly) => ExitCode::from(FAILED),
        Err(error) => failed(&format!("{error:#}")),
    }
}

/// Silences the panic message for library panics that are caught and returned as errors.
fn keep_caught_panics_quiet() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !panics_are_caught() {
            usual(info);
        }
    }));
}

fn failed(reason: &str) -> ExitCode {
    // If standard error cannot be written, the exit code still reports the failure.
    let _ = writeln!(std::io::stderr(), "attnscope: {}", one_line(reason));
    ExitCode::from(FAILED)
}
