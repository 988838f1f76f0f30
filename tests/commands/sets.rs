//! Sets of prompts: each gives what it gives alone, in reports and in traces.

use serde_json::Value;
use testing::checkpoint_copy::{Copy, attnscope, text, weights};

const SET: &str = r#"{"id": "long", "tokens": [5, 9, 2, 5, 9, 2, 200, 7, 7, 31, 5, 9]}
{"tokens": [1, 2, 3]}
{"id": "padded", "tokens": [0, 0, 8, 9], "attention_mask": [0, 0, 1, 1]}
"#;

/// The first prompt of the set, as flags give it.
const TOKENS: &str = "5,9,2,5,9,2,200,7,7,31,5,9";

/// Runs a command that must succeed, and gives what it writes to standard output.
fn ran(arguments: &[&str]) -> Vec<u8> {
    let output = attnscope(arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
    output.stdout
}

fn set(copy: &Copy) -> String {
    let path = copy.output("set.jsonl");
    std::fs::write(&path, SET).expect("written");
    path.to_str().expect("a path").to_owned()
}

#[test]
fn every_prompt_of_a_set_is_reported_as_it_would_be_alone() {
    for family in ["gpt2", "llama", "bert"] {
        let copy = Copy::of(family);
        let path = copy.path().to_str().expect("a path");
        let whole = ran(&["report", path, "--inputs", &set(&copy)]);
        let whole: Value = serde_json::from_slice(&whole).expect("JSON");
        let prompts = whole["prompts"].as_array().expect("prompts");
        let ids: Vec<&str> = prompts.iter().filter_map(|p| p["id"].as_str()).collect();
        assert_eq!(ids, ["long", "1", "padded"]);
        let alone = ran(&["report", path, "--tokens", TOKENS]);
        let alone: Value = serde_json::from_slice(&alone).expect("JSON");
        assert_eq!(prompts[0]["layers"], alone["prompts"][0]["layers"]);
        assert_eq!(prompts[0]["loss"], alone["prompts"][0]["loss"]);
        let padded = [
            "report",
            path,
            "--tokens",
            "0,0,8,9",
            "--attention-mask",
            "0,0,1,1",
        ];
        let padded: Value = serde_json::from_slice(&ran(&padded)).expect("JSON");
        assert_eq!(prompts[2]["layers"], padded["prompts"][0]["layers"]);
    }
}

#[test]
fn a_trace_of_a_set_is_one_file_per_prompt() {
    let copy = Copy::of("gpt2");
    let (path, to) = (copy.path().to_str().expect("a path"), copy.output("traces"));
    let to_text = to.to_str().expect("a path");
    ran(&["trace", path, "--inputs", &set(&copy), "--output", to_text]);
    let alone = copy.output("alone.safetensors");
    let alone_text = alone.to_str().expect("a path");
    ran(&["trace", path, "--tokens", TOKENS, "--output", alone_text]);
    let read = |file: &std::path::Path| std::fs::read(file).expect("reads");
    assert_eq!(read(&to.join("long.safetensors")), read(&alone));
    let small = weights(&read(&to.join("1.safetensors")));
    assert_eq!(small["blocks.0.attn.pattern"].shape, [4, 3, 3]);
    assert!(to.join("padded.safetensors").exists());
}

#[test]
fn a_bad_set_is_refused_before_anything_runs_and_names_the_line() {
    let copy = Copy::of("gpt2");
    let path = copy.path().to_str().expect("a path");
    let file = copy.output("bad.jsonl");
    let bad = file.to_str().expect("a path");
    for (lines, parts) in [
        (
            "{\"tokens\": [1]}\n{\"tokens\": [9999]}\n",
            ["prompt 1", "9999"],
        ),
        ("{\"tokens\": [1], \"colour\": 3}\n", ["line 1", "colour"]),
        ("", ["holds no prompt", "none"]),
        (
            "{\"id\": \"../x\", \"tokens\": [1]}\n",
            ["../x", "name a file"],
        ),
    ] {
        std::fs::write(&file, lines).expect("written");
        let to = copy.output("never");
        let to_text = to.to_str().expect("a path");
        let output = attnscope(&["trace", path, "--inputs", bad, "--output", to_text]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        let n_files = std::fs::read_dir(&to).map_or(0, Iterator::count);
        assert_eq!(n_files, 0, "nothing is left behind");
    }
}
