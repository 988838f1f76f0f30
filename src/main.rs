//! The program: reads the command line, runs it, and turns an error into one line and an exit code.

use std::io::Write;
use std::panic;
use std::process::ExitCode;

use attnscope::cli::{Cli, Ended, unknown_command};
use attnscope::report::one_line;
use attnscope::{signals, store};
use attnscope_engine::caught::panics_are_caught;
use clap::Parser;
use clap::error::ErrorKind;

/// There are findings.
const FOUND: u8 = 1;
/// Could not run.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    keep_caught_panics_quiet();
    signals::watch();
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
        // Its own text is the help of the command.
        Err(refused) if refused.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return failed("expected a subcommand, found none (see --help)");
        }
        Err(refused) => {
            let unknown = unknown_command(std::env::args_os().nth(1));
            return failed(&unknown.unwrap_or_else(|| without_usage(&refused.to_string())));
        }
    };
    let ended = cli.run();
    store::remove_scratch();
    // A screen that a signal ended has given the terminal back by now.
    signals::die_if_asked();
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

/// What is wrong with the command line, without the usage that follows it.
fn without_usage(refusal: &str) -> String {
    let reason = refusal.split("\nUsage:").next().unwrap_or(refusal);
    let reason = reason
        .split("\nFor more information")
        .next()
        .unwrap_or(reason);
    let words: Vec<&str> = reason.split_whitespace().collect();
    let reason = words.join(" ");
    let reason = reason.strip_prefix("error: ").unwrap_or(&reason);
    format!("{reason} (see --help)")
}
