//! What signals, limits and full devices leave behind: no temporary file, no half file, and one line that names its target.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use testing::pty::is_ignored;

/// A run of more than a minute, which opens its target first.
const LONG: [&str; 6] = [
    "lab",
    "variance",
    "--samples",
    "9000000",
    "--output",
    "x.svg",
];

fn n_files(directory: &Path) -> usize {
    fs::read_dir(directory).expect("lists").count()
}

fn started(command: &mut Command, directory: &Path) -> Child {
    let child = command
        .current_dir(directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let begun = Instant::now();
    while n_files(directory) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "opens no target");
        thread::sleep(Duration::from_millis(5));
    }
    child
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("runs");
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, "sh"]).arg(testing::program());
    command
}

#[test]
fn a_signal_ends_a_command_as_usual_and_no_temporary_file_stays() {
    let signals = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
    for signal in signals.into_iter().filter(|signal| !is_ignored(*signal)) {
        let directory = tempfile::tempdir().expect("a directory");
        // Without a file of what was in memory, which SIGQUIT may leave.
        let script = "ulimit -c 0; program=$1; shift; exec \"$program\" \"$@\"";
        let mut child = started(shell(script).args(LONG), directory.path());
        send(&child, signal);
        let status = child.wait().expect("ends");
        assert_eq!(status.signal(), Some(signal.as_raw()), "{signal:?}");
        assert_eq!(n_files(directory.path()), 0, "{signal:?} leaves a file");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_hangup_that_is_ignored_from_the_start_stays_ignored() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = "trap '' HUP; program=$1; shift; exec \"$program\" \"$@\"";
    let mut child = started(shell(script).args(LONG), directory.path());
    send(&child, Signal::HUP);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(child.try_wait().expect("a status"), None);
    send(&child, Signal::TERM);
    let status = child.wait().expect("ends");
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn a_limit_of_file_sizes_is_an_error_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let script =
        "ulimit -f 1; exec \"$1\" report --tokens 1,2,3 --format json --output out.json \"$2\"";
    let output = shell(script)
        .arg(testing::checkpoint_copy::original("gpt2"))
        .current_dir(directory.path())
        .output()
        .expect("starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("attnscope: out.json: cannot be written"),
        "{said}"
    );
    assert_eq!(n_files(directory.path()), 0);
}

#[test]
fn a_report_is_as_readable_as_the_umask_allows() {
    let directory = tempfile::tempdir().expect("a directory");
    for (umask, mode) in [("077", 0o600), ("027", 0o640), ("002", 0o664)] {
        let script =
            format!("umask {umask}; exec \"$1\" report --tokens 1,2 --output r{umask} \"$2\"");
        let status = shell(&script)
            .arg(testing::checkpoint_copy::original("gpt2"))
            .current_dir(directory.path())
            .stderr(Stdio::null())
            .status()
            .expect("starts");
        assert!(status.success());
        let about = directory
            .path()
            .join(format!("r{umask}"))
            .metadata()
            .expect("a file");
        assert_eq!(about.permissions().mode() & 0o777, mode, "{umask}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_is_named_as_the_person_named_it() {
    let gpt2 = testing::checkpoint_copy::original("gpt2");
    let gpt2 = gpt2.to_str().expect("a path");
    let run = |arguments: &[&str], is_stdout_full: bool| {
        let target = if is_stdout_full {
            "/dev/full"
        } else {
            "/dev/null"
        };
        let stdout = fs::File::options()
            .write(true)
            .open(target)
            .expect("a device");
        let output = Command::new(testing::program())
            .args(arguments)
            .stdout(stdout)
            .stderr(Stdio::piped())
            .output()
            .expect("starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        said.lines().last().unwrap_or_default().to_owned()
    };
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["thresholds"],
        &["explain", "future-leak"],
        &["completions", "bash"],
        &["tensors", gpt2],
        &["heads", gpt2, "--tokens", "1,2,3"],
        &["report", gpt2, "--tokens", "1,2,3"],
        &["check", gpt2, "--tokens", "1,2,3"],
    ] {
        let said = run(arguments, true);
        assert!(
            said.starts_with("attnscope: standard output: cannot be written (No space"),
            "{arguments:?}: {said}"
        );
    }
    let output = ["--tokens", "1,2,3", "--output", "/dev/full"];
    for command in ["report", "check"] {
        let said = run(&[&[command, gpt2], &output[..]].concat(), false);
        assert!(
            said.starts_with("attnscope: /dev/full: cannot be written (No space"),
            "{command}: {said}"
        );
    }
    let said = run(&[&["trace", gpt2], &output[..]].concat(), false);
    assert!(
        said.starts_with("attnscope: --output /dev/full: expected a file"),
        "{said}"
    );
    let log = ["--tokens", "1,2,3", "--log", "/dev/full"];
    let said = run(&[&["heads", gpt2], &log[..]].concat(), false);
    assert!(
        said.starts_with("attnscope: --log /dev/full: cannot be written"),
        "{said}"
    );
}
