//! What commands write never costs a person a file: not one that is read, and not one that was not given up.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testing::checkpoint_copy::{Copy, attnscope, text};
use testing::running;

/// What is run where the prompt does not matter.
const TOKENS: &[&str] = &["--tokens", running::TOKENS];

/// All files under a directory, links followed.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory).expect("lists");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(&path).expect("reads")))
        .collect()
}

/// Runs a command that has to be refused with one line that says why, and looks for what it changed.
fn refused(directory: &Path, arguments: &[&str], why: &str) {
    let before = contents(directory);
    let ran = attnscope(arguments);
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(said.contains(why), "{arguments:?}: {said}");
    let after = contents(directory);
    assert!(after == before, "{arguments:?} changed a file");
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("a path")
}

const READ: &str = "found one that this run reads";

/// A checkpoint with settings, prompts, thresholds and a baseline in it, and links to its weights.
fn checkpoint() -> Copy {
    let copy = Copy::of("gpt2");
    copy.write("attnscope.toml", "[set]\nscale = \"inv_sqrt_d\"\n");
    copy.write(
        "prompts.jsonl",
        "{\"id\": \"a\", \"tokens\": [1, 2, 3, 4]}\n",
    );
    copy.write("text.txt", "some text");
    copy.write("thresholds.toml", text(&attnscope(&["thresholds"]).stdout));
    let report = attnscope(&[&["report", utf8(copy.path())], TOKENS].concat());
    assert_eq!(report.status.code(), Some(0), "{}", text(&report.stderr));
    copy.write("then.json", report.stdout);
    let weights = copy.file("model.safetensors");
    std::os::unix::fs::symlink(&weights, copy.file("soft")).expect("links");
    fs::hard_link(&weights, copy.file("hard")).expect("links");
    copy
}

#[test]
fn a_file_that_a_command_reads_is_never_its_target() {
    let copy = checkpoint();
    let path = utf8(copy.path());
    let file = |name: &str| utf8(&copy.file(name)).to_owned();
    let of_checkpoint = [
        "model.safetensors",
        "config.json",
        "attnscope.toml",
        "soft",
        "hard",
    ];
    for name in of_checkpoint {
        for command in ["report", "check", "trace"] {
            let asked = [command, path, "--output", &file(name)];
            refused(copy.path(), &[&asked, TOKENS, &["--force"]].concat(), READ);
        }
    }
    let prompts = file("prompts.jsonl");
    for command in ["report", "check"] {
        let asked = [command, path, "--inputs", &prompts, "--output", &prompts];
        refused(copy.path(), &[&asked[..], &["--force"]].concat(), READ);
    }
    for (flag, name) in [
        ("--baseline", "then.json"),
        ("--thresholds", "thresholds.toml"),
    ] {
        let asked = [
            "check",
            path,
            flag,
            &file(name),
            "--output",
            &file(name),
            "--force",
        ];
        refused(copy.path(), &[&asked, TOKENS].concat(), READ);
    }
}

#[test]
fn a_file_in_the_way_is_replaced_only_when_forced() {
    let copy = checkpoint();
    let path = utf8(copy.path());
    for (command, name) in [("report", "mine.json"), ("trace", "mine.safetensors")] {
        let target = copy.file(name);
        let asked = [&[command, path, "--output", utf8(&target)], TOKENS].concat();
        copy.write(name, "an afternoon's work");
        refused(copy.path(), &asked, "--force to replace it");
        let forced = attnscope(&[&asked[..], &["--force"]].concat());
        assert_eq!(forced.status.code(), Some(0), "{}", text(&forced.stderr));
        assert!(fs::metadata(&target).expect("is there").len() > 100);
        // An empty file, as a script makes to have a name, holds nothing to lose.
        copy.write(name, "");
        let ran = attnscope(&asked);
        assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
        assert!(fs::metadata(&target).expect("is there").len() > 100);
    }
}

#[test]
fn a_log_goes_to_a_log_and_never_to_another_file() {
    let copy = checkpoint();
    let path = utf8(copy.path());
    let report = |log: &Path| {
        let log = utf8(log).to_owned();
        ["report", path, "--log", &log]
            .iter()
            .chain(TOKENS)
            .map(|&argument| argument.to_owned())
            .collect::<Vec<_>>()
    };
    for name in [
        "model.safetensors",
        "attnscope.toml",
        "soft",
        "hard",
        "text.txt",
    ] {
        let asked = report(&copy.file(name));
        let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
        refused(copy.path(), &asked, "found another file");
    }
    let log = copy.file("run.log");
    let lines = |log: &Path| fs::read_to_string(log).expect("reads").lines().count();
    assert_eq!(attnscope(&report(&log)).status.code(), Some(0));
    let first = lines(&log);
    assert_eq!(attnscope(&report(&log)).status.code(), Some(0));
    assert!(first > 1 && lines(&log) > first, "the log was begun anew");
    let both = [
        &[
            "report",
            path,
            "--log",
            utf8(&log),
            "--output",
            utf8(&log),
            "--force",
        ],
        TOKENS,
    ];
    let ran = attnscope(&both.concat());
    assert_eq!(ran.status.code(), Some(2), "{}", text(&ran.stderr));
    assert!(lines(&log) > first, "the report replaced the log");
}

#[test]
fn more_threads_than_any_machine_has_are_refused_wherever_they_are_asked_for() {
    let copy = Copy::of("gpt2");
    let mut command = Command::new(testing::program());
    let asked = [&["report", utf8(copy.path())], TOKENS].concat();
    let ran = command
        .env("RAYON_NUM_THREADS", "200000")
        .args(asked)
        .output()
        .expect("runs");
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(said.contains("RAYON_NUM_THREADS=200000"), "{said}");
}
