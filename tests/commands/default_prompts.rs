//! `check` without a prompt: it judges on the prompts beside the checkpoint, and says what it judged on before anything else.

use serde_json::Value;
use testing::checkpoint_copy::{attnscope, text};
use testing::judged::{fixture, healthy_with};

fn checked(arguments: &[&str]) -> (Option<i32>, String) {
    let output = attnscope(&[&["check"], arguments].concat());
    (output.status.code(), text(&output.stdout))
}

#[test]
fn prompts_beside_the_checkpoint_are_used_and_named_first() {
    let path = fixture("degenerate");
    let (code, said) = checked(&[path.to_str().expect("a path")]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(code, Some(1), "{said}");
    assert!(lines[0].contains("1 error"), "{said}");
    assert!(
        lines[1].contains("no prompt given: judged on the 24 of")
            && lines[1].ends_with("prompts.jsonl"),
        "{said}"
    );
    assert!(said.contains("error   trained-otherwise"), "{said}");
    // What is asked for is what is judged on.
    let path = path.to_str().expect("a path");
    let (_, said) = checked(&[path, "--tokens", "1,2,3", "--select", "nan-or-inf"]);
    assert!(!said.contains("prompts.jsonl"), "{said}");
}

#[test]
fn a_text_that_the_tokenizer_does_not_know_is_told_first_and_accuses_no_healthy_model() {
    // Without prompts beside it.
    let copy = healthy_with(|_| {});
    std::fs::remove_file(copy.path().join("prompts.jsonl")).ok();
    let path = copy.path().to_str().expect("a path");
    let (code, said) = checked(&[path, "--fail-on", "warning"]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(code, Some(0), "{said}");
    assert!(lines[0].contains("no errors or warnings"), "{said}");
    assert!(
        lines[1].contains("59 are unknown to the tokenizer: give text"),
        "{said}"
    );
    assert!(said.contains("undecidable knows-nothing"), "{said}");
    let output = attnscope(&["check", path, "--format", "json"]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let first = document["targets"][0]["notes"][0].as_str();
    assert!(
        first.is_some_and(|first| first.contains("unknown to the tokenizer")),
        "{first:?}"
    );
}

#[test]
fn prompts_that_the_model_cannot_run_are_left_aside() {
    let copy = healthy_with(|_| {});
    let file = copy.path().join("prompts.jsonl");
    let path = copy.path().to_str().expect("a path");
    for lines in ["{\"tokens\": [99999]}\n", "not prompts\n", ""] {
        std::fs::write(&file, lines).expect("writes");
        let (code, said) = checked(&[path, "--select", "nan-or-inf"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(!said.contains("prompts.jsonl"), "{lines:?}: {said}");
    }
}

#[test]
fn what_found_nothing_is_one_line_that_verbose_lists() {
    let path = fixture("healthy");
    let path = path.to_str().expect("a path");
    let (_, said) = checked(&[path]);
    let mut last = said.lines().rev();
    assert!(
        last.next()
            .is_some_and(|line| line.starts_with("  first: nothing")),
        "{said}"
    );
    let counts = last.next().expect("a line");
    assert!(
        counts.contains("18 do not apply") && counts.ends_with("(--verbose lists them)"),
        "{said}"
    );
    assert!(said.lines().count() < 14, "{said}");
    let (_, listed) = checked(&[path, "--verbose"]);
    for line in [
        "  not applicable pad-mass: no key is padding",
        "  not tested wrong-axis: attnscope itself makes it so: ",
        "  passed nan-or-inf: ",
    ] {
        assert!(listed.contains(line), "{line}: {listed}");
    }
}
