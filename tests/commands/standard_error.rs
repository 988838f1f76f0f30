//! What commands say on standard error: what a person must know, once each; progress on a terminal alone.

use std::path::Path;

use testing::checkpoint_copy::{Copy, attnscope, text};

/// A set of prompts that takes a while.
fn prompts(directory: &Path, n: usize) -> String {
    let line = |idx| {
        format!(
            "{{\"id\": \"p{idx}\", \"text\": \"the king took a quiet story in the night . a big cat sang in the green city .\"}}\n"
        )
    };
    let path = directory.join("prompts.jsonl");
    std::fs::write(&path, (0..n).map(line).collect::<String>()).expect("written");
    path.to_str().expect("a path").to_owned()
}

fn fixture(name: &str) -> String {
    let path = testing::root().join("fixtures").join(name);
    path.to_str().expect("a path").to_owned()
}

#[test]
fn nothing_is_said_where_no_terminal_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let set = prompts(directory.path(), 6);
    let at = |name: &str| {
        let path = directory.path().join(name);
        path.to_str().expect("a path").to_owned()
    };
    let (healthy, other) = (fixture("healthy"), fixture("unscaled"));
    let story = "the king took a quiet story";
    let (induction, log) = (fixture("induction"), fixture("histories/jump.jsonl"));
    let (translator, pairs) = (fixture("seq2seq/scaled"), fixture("quality/pairs.jsonl"));
    let (batch, merged) = (at("batch"), at("merged.parquet"));
    let (trace, picture) = (at("trace.safetensors"), at("head.svg"));
    let commands: [&[&str]; 16] = [
        &["report", &healthy, &other, "--inputs", &set],
        &["check", &healthy, &healthy, story],
        &[
            "batch", &healthy, &other, "--inputs", &set, "--output", &batch, "--chunk", "2",
        ],
        &["merge", &batch, "--output", &merged],
        &["history", &log],
        &[
            "history",
            &fixture("history"),
            "--text",
            story,
            "--no-cache",
        ],
        &["watch", &log, "--idle", "0", "--fail-on", "never"],
        &["verify", &healthy, story],
        &[
            "effect",
            &induction,
            "--by",
            "ablation",
            "--text",
            "the old king gave a red apple",
        ],
        &["heads", &induction, "the old king gave a red apple"],
        &["quality", &translator, "--inputs", &pairs],
        &["diff", &healthy, &other, "--text", story],
        &["sweep", &healthy, "--layer", "0", "--text", story],
        &["trace", &healthy, story, "--output", &trace],
        &[
            "plot", &healthy, story, "--panel", "head", "--output", &picture,
        ],
        &["tensors", &healthy, "--stats"],
    ];
    for words in commands {
        let output = attnscope(words);
        let said = text(&output.stderr);
        assert_ne!(output.status.code(), Some(2), "{words:?}: {said}");
        assert_eq!(said, "", "{words:?}");
    }
    // What a batch came to is its result.
    let again = attnscope(commands[2]);
    let said = text(&again.stdout);
    assert_eq!(said, "0 units done, 6 already there, 0 failed\n");
}

#[test]
fn what_a_person_must_know_is_said_once() {
    let copy = Copy::of("gpt2");
    let path = copy.path().to_str().expect("a path");
    // A prompt of the program, a changed model, and the same of three targets.
    let output = attnscope(&["report", path, path, path, "--what-if", "scale=none"]);
    let said = text(&output.stderr);
    for part in ["no prompt given", "what if scale=none"] {
        assert_eq!(said.matches(part).count(), 1, "{said}");
    }
    assert_eq!(said.lines().count(), 2, "{said}");
    // The same of several prompts is one line that names the first.
    let inputs = copy.output("long.jsonl");
    let ids = vec!["7"; 70].join(",");
    let line = |id: &str| format!("{{\"id\": \"{id}\", \"tokens\": [{ids}]}}\n");
    std::fs::write(&inputs, ["a", "b", "c"].map(line).concat()).expect("written");
    let rotary = Copy::of("llama");
    let output = attnscope(&[
        "report",
        rotary.path().to_str().expect("a path"),
        "--inputs",
        inputs.to_str().expect("a path"),
        "--set",
        "n_ctx=64",
    ]);
    let said = text(&output.stderr);
    assert!(said.starts_with("a and 2 other prompts: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[cfg(unix)]
#[test]
fn long_work_shows_one_line_on_a_terminal_that_is_gone_at_its_end() {
    use std::time::{Duration, Instant};
    use testing::pty::Terminal;
    let directory = tempfile::tempdir().expect("a directory");
    let set = prompts(directory.path(), 40);
    let (program, healthy) = (testing::program(), fixture("healthy"));
    let other = fixture("unscaled");
    let start = |script: &str| {
        let arguments = ["/bin/sh", "-c", script];
        Terminal::start(&arguments, &[], directory.path(), (70, 24))
    };
    // Prompts come late: the work has taken more than a second as it begins.
    let script = format!(
        "(sleep 1.1; cat {set}) | {} check {healthy} {other} --fail-on never --inputs - --output verdict.txt",
        program.display()
    );
    let mut terminal = start(&script);
    let n_lines = |screen: &vt100::Screen| screen.contents().trim_end().lines().count();
    let shows = |screen: &vt100::Screen| screen.contents().contains("% ");
    let took = terminal.until(Duration::from_secs(60), |screen| {
        shows(screen) && screen.contents().contains("healthy (1 of 2)")
    });
    assert!(took.is_some(), "{}", terminal.text());
    let grew = terminal.until(Duration::from_millis(500), |screen| n_lines(screen) > 1);
    assert!(grew.is_none(), "{}", terminal.text());
    let is_gone = |screen: &vt100::Screen| screen.contents().trim().is_empty();
    let gone = terminal.until(Duration::from_secs(120), is_gone);
    assert!(gone.is_some(), "{}", terminal.text());
    let code = terminal.ends().code();
    assert_eq!((code, terminal.text().trim()), (Some(0), ""));
    // What is over at once shows nothing.
    let script = format!(
        "{} report {healthy} the --output report.json",
        program.display()
    );
    let begun = Instant::now();
    let mut terminal = start(&script);
    let shown = terminal.until(Duration::from_millis(900), shows);
    assert!(shown.is_none(), "{}", terminal.text());
    assert_eq!(terminal.ends().code(), Some(0));
    if begun.elapsed() < Duration::from_secs(2) {
        let said = terminal.text();
        assert_eq!(
            said.trim(),
            "no file is called \"the\": it is run as a text"
        );
    }
    // Nothing at all where only errors are wanted.
    let set = prompts(directory.path(), 8);
    let script = format!(
        "(sleep 1.1; cat {set}) | {} check {healthy} --fail-on never --inputs - --quiet --output quiet.txt",
        program.display()
    );
    let mut terminal = start(&script);
    let shown = terminal.until(Duration::from_millis(2500), |screen| {
        !screen.contents().trim().is_empty()
    });
    assert!(shown.is_none(), "{}", terminal.text());
    assert_eq!(terminal.ends().code(), Some(0));
}
