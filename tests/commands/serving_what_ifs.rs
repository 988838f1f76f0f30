//! What-ifs of serving on the command line: every command takes them, places are ranked by them, and what has none is refused.

use serde_json::Value;
use testing::checkpoint_copy::{attnscope, text};

const TEXT: &str =
    "one cold morning the old king gave a red apple . one cold morning the old king gave";
const CHANGES: [&str; 6] = [
    "kv=fp8",
    "kv=int4@L0H1",
    "kv_window=4+sinks:1",
    "top_k_keys=2",
    "weights=bf16@L1",
    "weights=fp8",
];

fn fixture(name: &str) -> String {
    let path = testing::root().join("fixtures").join(name);
    path.to_string_lossy().into()
}

fn json(words: &[&str]) -> Value {
    let output = attnscope(words);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn loss(what_ifs: &[&str]) -> f64 {
    let checkpoint = fixture("induction");
    let mut words = vec!["report", &checkpoint, "--text", TEXT, "--format", "json"];
    words.extend(what_ifs.iter().flat_map(|what_if| ["--what-if", what_if]));
    json(&words)["prompts"][0]["loss"].as_f64().expect("a loss")
}

#[test]
fn every_command_takes_them_and_names_them() {
    let checkpoint = fixture("induction");
    for what_if in CHANGES {
        assert_ne!(loss(&[]), loss(&[what_if]), "{what_if}");
        for words in [
            &["check", "--budget", "0", "--fail-on", "never"][..],
            &["heads"],
            &["verify"],
            &["effect", "--by", "ablation", "--at", "L1H0"],
            &["sweep", "--at", "L1H0"],
            &["report", "--generate", "3", "--format", "json"],
        ] {
            let mut all = words.to_vec();
            all.insert(1, &checkpoint);
            all.extend(["--text", TEXT, "--what-if", what_if]);
            let output = attnscope(&all);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{all:?}: {said}");
            assert!(said.contains(what_if), "{all:?}: {said}");
        }
    }
}

/// A change in one place by sensitivity is the same change by its place.
#[test]
fn sensitivity_is_what_a_run_with_the_place_loses() {
    let checkpoint = fixture("induction");
    let base = loss(&[]);
    let of = |more: &[&str]| {
        let mut words = vec!["effect", &checkpoint, "--text", TEXT, "--by", "sensitivity"];
        words.extend(["--format", "json"]);
        words.extend(more);
        json(&words)
    };
    for what_if in [
        "kv=int4",
        "kv_window=3+sinks:1",
        "top_k_keys=1",
        "scale=x0.5",
    ] {
        let found = of(&["--what-if", what_if]);
        let rows = found["rows"].as_array().expect("rows");
        // Two layers and their heads.
        assert_eq!(rows.len(), 2 + 8, "{what_if}");
        for row in rows {
            let place = row["place"].as_str().expect("a place");
            let alone = loss(&[&format!("{what_if}@{place}")]) - base;
            let change = row["loss_change"].as_f64().expect("a change");
            assert!((change - alone).abs() < 1e-4, "{row}: {alone}");
            assert!(row["entropy_change"].as_f64().is_some(), "{row}");
        }
        let whole = &found["totals"][0]["value"];
        let alone = loss(&[what_if]) - base;
        let change = whole.as_f64().unwrap_or_else(|| panic!("{found}"));
        assert!((change - alone).abs() < 1e-4, "{what_if}: {change} {alone}");
    }
    // Weights are those of layers; a change with a place of its own is looked at there alone.
    let found = of(&["--what-if", "weights=fp8"]);
    assert_eq!(found["rows"].as_array().expect("rows").len(), 2);
    let found = of(&["--what-if", "kv=int8@L1H2"]);
    let places: Vec<&str> = found["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row["place"].as_str())
        .collect();
    assert_eq!(places.len(), 2, "{places:?}");
}

#[test]
fn what_has_nothing_to_change_is_refused_in_one_line() {
    let tokens = ["--tokens", "5,9,2,5,9,2"];
    for (checkpoint, what_if, problem) in [
        ("oracle/bert/model", "kv=fp8", "no KV cache is kept here"),
        ("oracle/bert/model", "kv_window=4", "no KV cache grows here"),
        (
            "oracle/gpt2/model",
            "weights=fp8@L1H0",
            "heads share the maps of their layer",
        ),
        (
            "oracle/bart_b/model",
            "weights=fp8@cross.L0",
            "rounded with its decoder layer",
        ),
        (
            "oracle/bart_b/model",
            "kv=int8@encoder",
            "no KV cache is kept here",
        ),
        (
            "oracle/bart_b/model",
            "kv_window=4@cross.L0",
            "cross-attention has no mask",
        ),
        ("oracle/gpt2/model", "kv=int2", "expected fp8|"),
        ("oracle/gpt2/model", "kv_window=4+sink:1", "expected N|"),
    ] {
        let checkpoint = fixture(checkpoint);
        let mut words = vec!["report", &checkpoint, "--what-if", what_if];
        words.extend(tokens);
        let output = attnscope(&words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(problem), "{words:?}: {said}");
    }
    // A recurrent network has no blocks, and an alignment neither cache nor layers.
    let recurrent = fixture("seq2seq/scaled");
    let [queries, keys] = ["en", "de"].map(|name| fixture(&format!("alignment/{name}.npz")));
    let words_of = |table: &str| table.replace(".npz", ".json");
    let (of_queries, of_keys) = (words_of(&queries), words_of(&keys));
    let report = ["report", &recurrent, "--tokens", "5,9,2"];
    let align = [
        "align",
        "--queries",
        &queries,
        "--queries-vocab",
        &of_queries,
        "--keys",
        &keys,
        "--keys-vocab",
        &of_keys,
        "--query-text",
        "she bought",
        "--key-text",
        "sie kauft",
    ];
    for (words, what_if, problem) in [
        (&report[..], "kv=fp8", "no KV cache is kept here"),
        (&report, "weights=bf16", "maps of a recurrent network"),
        (&align, "kv=fp8", "an alignment has no KV cache"),
        (&align, "weights=fp8", "an alignment has no weights"),
        (&align, "kv_window=2", "cross-attention has no mask"),
    ] {
        let output = attnscope(&[words, &["--what-if", what_if]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(problem), "{words:?}: {said}");
    }
    let checkpoint = fixture("oracle/gpt2/model");
    let mut words = vec!["effect", &checkpoint, "--by", "sensitivity"];
    words.extend(tokens);
    let output = attnscope(&words);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("expected a change to look at"), "{said}");
}
