//! Every command that has `--output` leaves a file that is in the way as it is, unless it is told to replace it.

use std::collections::BTreeSet;
use std::fs;

use attnscope::cli::Cli;
use clap::CommandFactory;
use testing::checkpoint_copy::{attnscope, text};

/// A call of each command with `--output`, which stands last; `@` stands for the fixtures.
const COMMANDS: &[(&str, &str, &str)] = &[
    (
        "lab align",
        "lab align --queries @alignment/en.npz --keys @alignment/de.npz --queries-vocab @alignment/en.json --keys-vocab @alignment/de.pkl --query-text letters --key-text Briefe",
        "a.npz",
    ),
    ("check", "check @oracle/gpt2/model --tokens 5,9,2", "a.txt"),
    (
        "diff",
        "diff @oracle/gpt2/model @oracle/gpt2/model --tokens 5,9,2",
        "a.txt",
    ),
    (
        "effect",
        "effect @oracle/gpt2/model --tokens 5,9,2,5 --by lens",
        "a.csv",
    ),
    (
        "guess",
        "guess @guess/mini.pt --tokenizer @guess/chars.json --inputs @guess/text.jsonl",
        "a.toml",
    ),
    ("heads", "heads @oracle/gpt2/model --tokens 5,9,2", "a.csv"),
    ("history", "history @history/run.jsonl", "a.csv"),
    ("lab rescale", "lab rescale", "a.svg"),
    ("lab variance", "lab variance", "a.svg"),
    (
        "lab variance",
        "lab variance --match hard,soft --similarity rbf --d 8 --keys 5 --rows 3",
        "a.svg",
    ),
    (
        "logprobs",
        "logprobs @oracle/gpt2/model --tokens 5,9,2",
        "a.jsonl",
    ),
    (
        "serve-check",
        "serve-check http://127.0.0.1:9 --checkpoint @oracle/gpt2/model --tokens 5,9,2",
        "a.txt",
    ),
    ("merge", "merge @none", "a.csv"),
    ("plot", "plot @oracle/gpt2/model --tokens 5,9,2", "a.svg"),
    (
        "lab quality",
        "lab quality @seq2seq/scaled --inputs @quality/pairs.jsonl",
        "a.csv",
    ),
    (
        "report",
        "report @oracle/gpt2/model --tokens 5,9,2",
        "a.json",
    ),
    ("lab sweep", "lab sweep", "a.svg"),
    (
        "tokens",
        "tokens @formats/tokenizers/t5 --text hello",
        "a.txt",
    ),
    (
        "trace",
        "trace @oracle/gpt2/model --tokens 5,9,2",
        "a.safetensors",
    ),
    (
        "verify",
        "verify @oracle/gpt2/model --tokens 5,9,2",
        "a.txt",
    ),
];
/// Commands whose `--output` is a directory: they have tests of their own.
const OF_DIRECTORIES: [&str; 2] = ["batch", "man"];

/// The names of all commands that have `--output`, as the program defines them.
fn with_output(command: &clap::Command, before: &str, found: &mut BTreeSet<String>) {
    // Hidden ones are names that commands of `lab` had before.
    for command in command.get_subcommands().filter(|own| !own.is_hide_set()) {
        let name = format!("{before}{}", command.get_name());
        let has = |argument: &clap::Arg| argument.get_long() == Some("output");
        if command.get_arguments().any(has) {
            found.insert(name.clone());
        }
        with_output(command, &format!("{name} "), found);
    }
}

#[test]
fn no_command_replaces_a_file_without_being_told_to() {
    let mut expected = BTreeSet::new();
    with_output(&Cli::command(), "", &mut expected);
    let tried = COMMANDS.iter().map(|(name, _, _)| *name);
    let tried: BTreeSet<String> = tried.chain(OF_DIRECTORIES).map(str::to_owned).collect();
    assert_eq!(tried, expected, "every command with --output has a call");
    let fixtures = testing::root().join("fixtures");
    for (name, call, file) in COMMANDS {
        let directory = tempfile::tempdir().expect("a directory");
        let target = directory.path().join(file);
        fs::write(&target, "an afternoon's work").expect("writes");
        let word = |word: &str| match word.strip_prefix('@') {
            Some(path) => fixtures.join(path).display().to_string(),
            None => word.to_owned(),
        };
        let mut words: Vec<String> = call.split_whitespace().map(word).collect();
        if *name == "merge" {
            words[1] = directory.path().display().to_string();
        }
        words.extend(["--output".to_owned(), target.display().to_string()]);
        let ran = attnscope(&words);
        let said = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{words:?}: {said}");
        // A merge looks for its batch first.
        let is_said = said.contains("--force to replace it") || *name == "merge";
        assert!(is_said, "{words:?}: {said}");
        let kept = fs::read_to_string(&target).expect("reads");
        assert_eq!(kept, "an afternoon's work", "{words:?}");
        let entries = fs::read_dir(directory.path()).expect("lists").count();
        assert_eq!(entries, 1, "{words:?} left another file");
    }
}

#[test]
fn a_command_that_is_told_to_replaces_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let fixtures = testing::root().join("fixtures");
    let at = |path: &str| fixtures.join(path).display().to_string();
    for (name, words) in [
        (
            "check.txt",
            ["check", &at("oracle/gpt2/model"), "--tokens", "5,9,2"],
        ),
        (
            "tokens.txt",
            ["tokens", &at("formats/tokenizers/t5"), "--text", "hello"],
        ),
        ("lab.svg", ["lab", "variance", "--format", "text"]),
    ] {
        let target = directory.path().join(name);
        fs::write(&target, "old").expect("writes");
        let output = ["--output", target.to_str().expect("a path"), "--force"];
        let ran = attnscope(&[&words[..], &output].concat());
        assert!(
            matches!(ran.status.code(), Some(0 | 1)),
            "{}",
            text(&ran.stderr)
        );
        assert_ne!(fs::read_to_string(&target).expect("reads"), "old", "{name}");
    }
}
