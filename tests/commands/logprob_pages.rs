//! `attnscope diff --format html` of log-probabilities, and their distribution by kind of token.

use std::path::Path;

use serde_json::{Value, json};
use testing::checkpoint_copy::{Copy, attnscope, text};

use crate::third_side::{fixture, path};

/// The page of a comparison.
fn page(arguments: &[&str]) -> String {
    let all = [&["diff", "--quiet", "--format", "html"][..], arguments].concat();
    let output = attnscope(&all);
    let said = text(&output.stderr);
    assert!(output.status.code() < Some(2), "{said}");
    text(&output.stdout)
}

fn n_of(page: &str, part: &str) -> usize {
    page.matches(part).count()
}

#[test]
fn a_page_says_who_departs_and_shades_every_token() {
    let files = ["llama.same_bf16.jsonl", "llama.window.jsonl", "llama"].map(fixture);
    let [a, b, reference] = [&files[0], &files[1], &files[2]].map(|file| path(file));
    let arguments = [a, b, "--reference", reference];
    let found = page(&arguments);
    assert_eq!(found, page(&arguments), "one input has one page");
    for part in [
        "A agrees with the reference",
        "B = this model with a window of 32 keys",
        "--set window=32",
        "B by position",
        "B by prompt",
        "Content-Security-Policy",
    ] {
        assert!(found.contains(part), "{part}");
    }
    assert!(!found.contains("style=\""));
    let values = |letter: &str| n_of(&found, &format!(", {letter} -"));
    assert_eq!((values("A"), values("B")), (333, 333));
    // What is beyond rounding is underlined.
    let output =
        attnscope(&[&["diff", "--quiet", "--format", "json"][..], &arguments[..]].concat());
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let beyond = said["sides"]["b"]["beyond"].as_u64().expect("a count");
    assert!(beyond > 50);
    assert_eq!(n_of(&found, "<u>") as u64, beyond);
}

#[test]
fn two_tables_have_a_page_without_a_reference_and_names_are_text() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, last: f64| {
        let row = json!({"id": "<script>alert(1)</script>", "ids": [1, 2, 3], "logprobs": [null, -1.0, last]});
        let file = directory.path().join(name);
        std::fs::write(&file, row.to_string()).expect("writes");
        file
    };
    let (a, b) = (write("a.json", -0.5), write("b.json", -0.9));
    let found = page(&[path(&a), path(&b)]);
    assert!(
        found.contains("Tokens of A and B") && found.contains("Δ -0.4000"),
        "{found}"
    );
    assert_eq!(n_of(&found, "<script>"), 1, "the page's own");
    assert!(found.contains("&lt;script&gt;alert(1)"));
}

/// A tokenizer in which an id says of what kind its token is.
fn tokenizer() -> Value {
    let piece = |id: u32| match id % 3 {
        _ if id == 1 => "<s>".to_owned(),
        0 => format!("▁w{id}"),
        1 => format!("ing{id}"),
        _ => ".".repeat(id as usize),
    };
    let vocabulary: serde_json::Map<String, Value> =
        (0..52).map(|id| (piece(id), json!(id))).collect();
    json!({
        "version": "1.0",
        "added_tokens": [{"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
        "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<s>"},
    })
}

/// Number of scored tokens of each kind, by that vocabulary.
fn kinds_of(side: &Path) -> Vec<(&'static str, usize)> {
    let lines = std::fs::read_to_string(side).expect("reads");
    let names = ["special", "word-start", "word-inside", "punctuation"];
    let mut counts = names.map(|name| (name, 0));
    for line in lines.lines() {
        let row: Value = serde_json::from_str(line).expect("JSON");
        let ids = row["ids"].as_array().expect("ids").iter();
        let ids: Vec<u64> = ids.map(|id| id.as_u64().expect("an id")).collect();
        for pair in ids.windows(2) {
            let ends_word = pair[0] != 1 && pair[0] % 3 != 2;
            let kind = match pair[1] % 3 {
                _ if pair[1] == 1 => 0,
                1 if ends_word => 2,
                2 => 3,
                _ => 1,
            };
            counts[kind].1 += 1;
        }
    }
    counts.into_iter().filter(|(_, n)| *n > 0).collect()
}

#[test]
fn differences_are_told_by_kind_of_token_where_the_tokens_have_text() {
    let side = fixture("llama.window.jsonl");
    let copy = Copy::of_directory(&fixture("llama"));
    let json_of = |reference: &Path| -> Value {
        let output = attnscope(&[
            "diff",
            "--quiet",
            "--format",
            "json",
            path(&side),
            path(reference),
        ]);
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    assert_eq!(json_of(copy.path())["sides"]["a"]["by_kind"], Value::Null);
    copy.write("tokenizer.json", tokenizer().to_string());
    let found = json_of(copy.path());
    let kinds = found["sides"]["a"]["by_kind"].as_array().expect("kinds");
    let counted: Vec<(&str, usize)> = kinds
        .iter()
        .map(|kind| {
            (
                kind["kind"].as_str().expect("a name"),
                kind["tokens"].as_u64().expect("a count") as usize,
            )
        })
        .collect();
    assert_eq!(counted, kinds_of(&side));
    // The mean of all kinds is the mean of the side.
    let sum = |kind: &Value| {
        kind["mean_abs"].as_f64().expect("nats") * kind["tokens"].as_f64().expect("a count")
    };
    let whole: f64 = kinds.iter().map(sum).sum::<f64>() / 333.0;
    let mean = found["sides"]["a"]["mean_abs"].as_f64().expect("nats");
    assert!((whole - mean).abs() < 1e-9, "{whole} {mean}");
    let said = text(&attnscope(&["diff", "--quiet", path(&side), path(copy.path())]).stdout);
    assert!(
        said.contains("A by kind of token") && said.contains("inside a word"),
        "{said}"
    );
    let said = text(&attnscope(&["diff", "--quiet", path(&side), path(&fixture("llama"))]).stdout);
    assert!(
        said.contains("not available: the reference has no tokenizer"),
        "{said}"
    );
    let found = page(&[path(&side), path(copy.path())]);
    assert!(
        found.contains("beginning of a word") && found.contains("> w3<"),
        "pieces of text"
    );
}
