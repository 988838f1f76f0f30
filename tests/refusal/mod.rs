//! What a refusal looks like: nothing on standard output, one line on standard error, exit code 2, nothing left behind.

#![allow(dead_code, reason = "each test uses a part of this")]

use std::path::Path;

use crate::checkpoint_copy::{Copy, attnscope, text};

/// A prompt that every small checkpoint can run.
pub const PROMPT: &[&str] = &["--tokens", "5,9,2,5,9,2"];

/// Runs a command that must be refused, and gives the one line it says.
pub fn refused(command: &str, checkpoint: &Path, arguments: &[&str]) -> String {
    let mut all = vec![command, checkpoint.to_str().expect("a path")];
    all.extend(arguments);
    let output = attnscope(&all);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{all:?}: {said}");
    assert!(
        output.stdout.is_empty(),
        "{all:?} wrote {}",
        text(&output.stdout)
    );
    assert_eq!(
        said.lines().count(),
        1,
        "{all:?}: expected one line, found:\n{said}"
    );
    assert!(said.starts_with("attnscope: "), "{all:?}: {said}");
    said
}

/// Runs a report into a file that must be refused without leaving anything where it would have been written.
pub fn refused_report(copy: &Copy, arguments: &[&str]) -> String {
    let output = copy.output("report.json");
    let mut all = arguments.to_vec();
    all.extend(["--output", output.to_str().expect("a path")]);
    let said = refused("report", copy.path(), &all);
    assert_eq!(copy.n_outputs(), 0, "something was left behind: {said}");
    said
}

/// The same for a checkpoint that is broken, with every command that would open it.
pub fn refused_by_all(copy: &Copy) -> String {
    let said = refused_report(copy, PROMPT);
    let output = copy.output("trace.safetensors");
    let trace = [PROMPT, &["--output", output.to_str().expect("a path")]].concat();
    assert_eq!(refused("trace", copy.path(), &trace), said);
    assert_eq!(copy.n_outputs(), 0, "something was left behind: {said}");
    said
}

/// A usage error: the argument parser speaks, its first line holds everything that is wrong.
pub fn misused(command: &str, checkpoint: &Path, arguments: &[&str]) -> String {
    let mut all = vec![command, checkpoint.to_str().expect("a path")];
    all.extend(arguments);
    let output = attnscope(&all);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{all:?}: {said}");
    assert!(output.stdout.is_empty(), "{all:?}");
    said.lines().next().expect("a line").to_owned()
}

pub fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "expected {part:?} in: {said}");
    }
}
