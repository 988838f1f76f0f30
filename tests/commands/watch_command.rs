//! `watch` as a command: logs that are written, rotated and cut short while it looks, and its exit codes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use testing::checkpoint_copy::text;
use testing::made_logs::{Head, Made};

use super::history_command::{Running, until};

fn collapse(nth: usize, layer: usize, _: usize, head: &mut Head) {
    if nth >= 30 && layer == 0 {
        (head.entropy, head.scores, head.saturated) = (0.03, 90.0, 0.8);
    }
}

#[test]
fn watch_ends_with_1_at_the_first_error_and_runs_a_command() {
    let made = Made {
        head: &collapse,
        ..Made::default()
    };
    let directory = tempfile::tempdir().expect("a directory");
    let (log, mark) = (
        directory.path().join("run.jsonl"),
        directory.path().join("mark"),
    );
    let exec = format!(
        "echo \"$ATTNSCOPE_CHECK $ATTNSCOPE_PLACE $ATTNSCOPE_STEP\" > '{}'",
        mark.display()
    );
    let child = Command::new(testing::program())
        .args(["watch", log.to_str().expect("a path"), "--exec", &exec])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut running = Running(child.expect("runs"));
    // The log is still to come; then it is written line by line, the last one of each piece not to its end.
    std::thread::sleep(Duration::from_millis(100));
    let whole = made.log();
    let mut file = fs::File::create(&log).expect("creates");
    for piece in whole.as_bytes().chunks(2000) {
        if file.write_all(piece).and_then(|()| file.flush()).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut code = None;
    until("the end", || {
        code = running
            .0
            .try_wait()
            .expect("waits")
            .and_then(|status| status.code());
        code.is_some()
    });
    assert_eq!(code, Some(1));
    let said: Vec<String> = BufReader::new(running.0.stdout.take().expect("a pipe"))
        .lines()
        .map_while(Result::ok)
        .collect();
    let error = said
        .iter()
        .find(|line| line.starts_with("error"))
        .expect("an error");
    assert!(
        error.contains("entropy-collapse L0H0") && error.contains("step 300"),
        "{error}"
    );
    assert_eq!(
        fs::read_to_string(mark).expect("written"),
        "entropy-collapse L0H0 300\n"
    );
}

#[test]
fn watch_of_what_is_healthy_ends_with_0_when_nothing_comes_and_of_what_is_none_with_2() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("run.jsonl");
    let run = |words: &[&str]| {
        let output = Command::new(testing::program())
            .args(["watch", log.to_str().expect("a path")])
            .args(words)
            .output()
            .expect("runs");
        (
            text(&output.stdout),
            text(&output.stderr),
            output.status.code(),
        )
    };
    fs::write(&log, Made::default().log()).expect("writes");
    for idle in ["0", "1"] {
        let (out, said, code) = run(&["--idle", idle]);
        assert_eq!(code, Some(0), "{out}{said}");
    }
    let made = Made {
        head: &collapse,
        ..Made::default()
    };
    fs::write(&log, made.log()).expect("writes");
    assert_eq!(run(&["--idle", "0"]).2, Some(1));
    assert_eq!(run(&["--idle", "0", "--fail-on", "never"]).2, Some(0));
    fs::write(&log, "loss 3\n").expect("writes");
    let (_, said, code) = run(&["--idle", "0"]);
    assert!(
        code == Some(2) && said.contains("expected the first line of a monitor log"),
        "{said}"
    );
}

#[test]
fn watch_follows_a_log_that_is_rotated_and_cut_short() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("run.jsonl");
    let healthy = Made::default();
    fs::write(&log, healthy.log()).expect("writes");
    let child = Command::new(testing::program())
        .args(["watch", log.to_str().expect("a path")])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut running = Running(child.expect("runs"));
    let mut said = BufReader::new(running.0.stderr.take().expect("a pipe")).lines();
    std::thread::sleep(Duration::from_millis(600));
    fs::rename(&log, directory.path().join("run.1.jsonl")).expect("renames");
    std::thread::sleep(Duration::from_millis(300));
    fs::write(&log, healthy.header() + &healthy.lines()[..20].concat()).expect("writes");
    let note = said.next().expect("a note").expect("text");
    assert!(note.contains("it was replaced"), "{note}");
    fs::write(&log, healthy.header() + &healthy.lines()[..5].concat()).expect("writes");
    let note = said.next().expect("a note").expect("text");
    assert!(
        note.contains("cut short") || note.contains("anew"),
        "{note}"
    );
    let made = Made {
        head: &collapse,
        ..Made::default()
    };
    let mut file = fs::File::options().append(true).open(&log).expect("opens");
    file.write_all(made.lines()[5..].concat().as_bytes())
        .expect("writes");
    let mut code = None;
    until("the end", || {
        code = running
            .0
            .try_wait()
            .expect("waits")
            .and_then(|status| status.code());
        code.is_some()
    });
    assert_eq!(code, Some(1));
}

/// The errors that `history` tells of a training in which the heads of two layers collapse at these records.
fn errors(begin: [usize; 2]) -> Vec<String> {
    let made = Made {
        head: &|nth, layer, _, head| {
            if nth >= begin[layer] {
                (head.entropy, head.scores, head.saturated) = (0.03, 90.0, 0.8);
            }
        },
        ..Made::default()
    };
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("run.jsonl");
    fs::write(&log, made.log()).expect("writes");
    let output = Command::new(testing::program())
        .args(["history", log.to_str().expect("a path")])
        .output()
        .expect("runs");
    let said = text(&output.stdout);
    let lines = said.lines().filter(|line| line.starts_with("error"));
    lines.map(str::to_owned).collect()
}

#[test]
fn history_tells_a_collapse_once_and_two_that_lie_apart_as_two() {
    let at_once = errors([30, 30]);
    assert_eq!(at_once.len(), 1, "{at_once:?}");
    assert!(
        at_once[0].contains("collapse of all 8 heads at step 300"),
        "{at_once:?}"
    );
    let apart = errors([20, 45]);
    assert_eq!(apart.len(), 2, "{apart:?}");
    for (line, step) in apart.iter().zip(["step 200", "step 450"]) {
        assert!(
            line.contains("entropy-collapse") && line.contains(step),
            "{line}"
        );
    }
}
