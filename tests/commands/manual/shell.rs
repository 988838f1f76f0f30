//! Every command of the manual that stands in no console block is run, with stand-ins for what the pages take for granted.
//!
//! A command that opens the screen runs on a terminal and is left with `q`. What cannot be run is listed in `not_run`, with a reason.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use testing::checkpoint_copy::text;
use testing::pty::Terminal;

use super::not_run::NOT_RUN;
use super::snippets::{Kind, blocks, commands, without_consoles};
use super::{Page, pages, stand_ins};

/// What a program without a terminal says where it would open the screen.
const WANTS_A_TERMINAL: &str = "the screen needs a terminal";
/// The first tab of every screen.
const SHOWN: &str = "1 Overview";

/// Variables of a page's commands, whose home is inside of its directory.
fn variables(directory: &Path) -> Vec<(&'static str, PathBuf)> {
    let home = directory.join(".home");
    let program = testing::program();
    let mut path = program.parent().expect("its place").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut variables = vec![("PATH", path.into()), ("HF_HUB_OFFLINE", "1".into())];
    for name in [
        "HOME",
        "XDG_CACHE_HOME",
        "XDG_STATE_HOME",
        "XDG_CONFIG_HOME",
    ] {
        variables.push((name, home.clone()));
    }
    variables
}

/// Why a command fails; `None` where it does what it is shown for: 1 is the exit code of a finding.
fn failure(command: &str, directory: &Path) -> Option<String> {
    let variables = variables(directory);
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(directory);
    shell.envs(variables.iter().cloned()).stdin(Stdio::null());
    let ran = shell.output().expect("a shell");
    let said = text(&ran.stderr);
    if matches!(ran.status.code(), Some(0 | 1)) {
        return None;
    }
    if !said.contains(WANTS_A_TERMINAL) {
        return Some(said);
    }
    let variables: Vec<(&str, &str)> = variables
        .iter()
        .filter_map(|(name, value)| Some((*name, value.to_str()?)))
        .collect();
    let mut terminal = Terminal::start(&["sh", "-c", command], &variables, directory, (110, 34));
    let opens = |screen: &vt100::Screen| screen.contents().contains(SHOWN);
    let took = terminal.until(Duration::from_secs(20), opens);
    if took.is_none() {
        return Some(format!("the screen does not open:\n{}", terminal.text()));
    }
    terminal.send(b"q");
    let ended = terminal.ends();
    (!ended.success()).then(|| format!("{ended}:\n{}", terminal.text()))
}

/// Which line of `NOT_RUN` speaks of a command.
fn left_out(page: &str, command: &str) -> Option<usize> {
    let speaks = |(of, begins, _): &(&str, &str, &str)| {
        (*of == "*" || *of == page) && command.starts_with(begins)
    };
    NOT_RUN.iter().position(speaks)
}

/// What running a page's commands came to.
#[derive(Default)]
struct Told {
    n_run: usize,
    wrong: Vec<String>,
    left_out: BTreeSet<usize>,
}

/// Runs the commands of one page in order.
fn run(page: &Page, told: &mut Told) {
    let name = page.name();
    let directory = tempfile::tempdir().expect("a directory");
    let mut is_filled = false;
    for block in blocks(&without_consoles(&page.text)) {
        if block.kind != Kind::Shell {
            continue;
        }
        let found = commands(&block);
        let place = format!("{name}:{}", block.line);
        for command in found.as_ref().unwrap_or(&Vec::new()) {
            if let Some(idx) = left_out(&name, command) {
                told.left_out.insert(idx);
                continue;
            }
            if !is_filled {
                is_filled = true;
                let fixtures = directory.path().join("fixtures");
                let root = testing::root().canonicalize().expect("the repository");
                std::os::unix::fs::symlink(root.join("fixtures"), fixtures).expect("a link");
                stand_ins::fill(directory.path());
            }
            told.n_run += 1;
            if let Some(why) = failure(command, directory.path()) {
                told.wrong.push(format!("{place}: {command}\n{why}"));
            }
        }
        told.wrong
            .extend(found.err().map(|why| format!("{place}: {why}")));
    }
}

#[test]
fn every_command_runs_or_is_listed_with_a_reason() {
    let pages = pages();
    let left = Mutex::new(pages.iter());
    let all = Mutex::new(Told::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let next = left.lock().expect("no panic").next();
                    let Some(page) = next else { break };
                    let mut told = Told::default();
                    run(page, &mut told);
                    let mut all = all.lock().expect("no panic");
                    all.n_run += told.n_run;
                    all.wrong.extend(told.wrong);
                    all.left_out.extend(told.left_out);
                }
            });
        }
    });
    let told = all.into_inner().expect("no panic");
    assert!(told.wrong.is_empty(), "{}", told.wrong.join("\n\n"));
    assert!(told.n_run > 40, "{} commands only", told.n_run);
    // No reason outlives its command.
    let stale: Vec<_> = (0..NOT_RUN.len())
        .filter(|idx| !told.left_out.contains(idx))
        .collect();
    let stale: Vec<_> = stale.into_iter().map(|idx| NOT_RUN[idx]).collect();
    assert!(stale.is_empty(), "no page has {stale:?}");
}
