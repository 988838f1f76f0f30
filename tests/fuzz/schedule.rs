//! The parent: starts a process for each target, one more at a time than there are cores, and shows what they report.

use std::collections::VecDeque;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::CHILD;
use super::execution::{HEADING, UNKEPT};
use super::targets::{TARGETS, Target, WRONG};

const POLL: Duration = Duration::from_millis(20);

/// Runs every target that is asked for. Whether all of them were well.
pub fn run_all() -> bool {
    let wanted = wanted();
    if wanted.is_empty() {
        return true;
    }
    say(HEADING);
    let begun = Instant::now();
    let must_fail = |target: &Target| WRONG.iter().any(|wrong| wrong.name == target.name);
    // The slowest first, so that none is left to run alone at the end. One of those that go wrong only sleeps, beside the others.
    let mut waiting: VecDeque<&Target> = wanted.into();
    let n_at_once = thread::available_parallelism().map_or(2, usize::from) + 1;
    let mut running: Vec<(&Target, Child)> = Vec::new();
    let mut is_well = true;
    while !waiting.is_empty() || !running.is_empty() {
        while running.len() < n_at_once
            && let Some(target) = waiting.pop_front()
        {
            running.push((target, start(target)));
        }
        thread::sleep(POLL);
        running.retain_mut(|(target, child)| {
            let Some(status) = child.try_wait().expect("a process of ours") else {
                return true;
            };
            if status.success() == must_fail(target) {
                say(&format!("{}: FAILED ({status})", target.name));
                is_well = false;
            }
            false
        });
    }
    say(&format!("{:.1} s", begun.elapsed().as_secs_f64()));
    is_well
}

/// The targets that arguments and environment leave; cargo's own flags choose none.
fn wanted() -> Vec<&'static Target> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        return Vec::new();
    }
    let words: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let named = std::env::var("ATTNSCOPE_FUZZ_TARGET").ok();
    let is_wanted = |target: &&Target| {
        let by_word = words.is_empty() || words.iter().any(|word| target.name.contains(*word));
        by_word && named.as_ref().is_none_or(|name| target.name == name)
    };
    WRONG.iter().chain(TARGETS).filter(is_wanted).collect()
}

fn start(target: &Target) -> Child {
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new(own);
    command.env(CHILD, target.name).stdin(Stdio::null());
    if WRONG.iter().any(|wrong| wrong.name == target.name) {
        // What they say would be taken for findings.
        command.env("ATTNSCOPE_FUZZ_RUNS", "1").env(UNKEPT, "");
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    command.spawn().expect("starts")
}

fn say(line: &str) {
    // Whoever pipes this into `head` has seen enough.
    let _ = writeln!(std::io::stdout(), "{line}");
}
