//! `attnscope sweep CHECKPOINT`: its figures against scores that a trace of the same run holds, and what it refuses.

use serde_json::Value;
use testing::checkpoint_copy::{Copy, attnscope, text};
use testing::running::{TOKENS, ids, ran, trace};

fn swept(copy: &Copy, arguments: &[&str]) -> Value {
    let path = copy.path().to_str().expect("a path");
    let command = ["sweep", path, "--tokens", TOKENS, "--format", "json"];
    serde_json::from_slice(&ran(&[&command, arguments].concat())).expect("JSON")
}

/// Largest probability and entropy of a row of scores, −∞ where masked, computed as textbooks write them.
fn softmax(scores: &[f32], scale: f64) -> (f64, f64) {
    let e: Vec<f64> = scores
        .iter()
        .map(|s| (f64::from(*s) * scale).exp())
        .collect();
    let total: f64 = e.iter().sum();
    let p = e.iter().map(|e| e / total).filter(|p| *p > 0.0);
    p.fold((0.0, 0.0), |(largest, entropy), p| {
        (f64::max(largest, p), entropy - p * p.ln())
    })
}

#[test]
fn the_figures_are_those_of_the_scores_that_a_trace_holds() {
    for family in ["gpt2", "llama", "bert"] {
        let copy = Copy::of(family);
        let (_, tensors) = trace(&copy, &["--hooks", "scores"]);
        let scores = &tensors["blocks.1.attn.scores"];
        let (n_heads, n) = (scores.shape[0], ids().len());
        assert_eq!(scores.shape, [n_heads, n, n]);
        let values = scores.values();
        for (arguments, head, query) in [
            (&[][..], None, None),
            (&["--head", "2"], Some(2), None),
            (&["--head", "3", "--query", "7"], Some(3), Some(7)),
            (&["--query", "5"], None, Some(5)),
        ] {
            let document = swept(&copy, &[&["--layer", "1"], arguments].concat());
            let rows: Vec<&[f32]> = values
                .chunks(n)
                .enumerate()
                .filter(|(nth, _)| head.is_none_or(|head| head == nth / n))
                .filter(|(nth, _)| query.is_none_or(|query| query == nth % n))
                .map(|(_, row)| row)
                .filter(|row| row.iter().filter(|s| s.is_finite()).count() > 1)
                .collect();
            assert_eq!(document["rows"], rows.len(), "{family} {arguments:?}");
            for point in document["points"].as_array().expect("points") {
                let scale = point["scale"].as_f64().expect("a scale");
                let (largest, entropy) = rows.iter().fold((0.0, 0.0), |(a, b), row| {
                    let (largest, entropy) = softmax(row, scale);
                    (a + largest, b + entropy)
                });
                for (figure, sum) in [("max_probability", largest), ("entropy", entropy)] {
                    let found = point[figure]["mean"].as_f64().expect("a number");
                    let expected = sum / rows.len() as f64;
                    // Products may be summed in another order beside a trace.
                    assert!(
                        (found - expected).abs() < 1e-4 * scale.max(1.0),
                        "{family} {arguments:?} {figure} at {scale}: {found} for {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn scale_one_is_the_checkpoint_as_it_is() {
    let copy = Copy::of("gpt2");
    let report = testing::running::report(&copy, &[]);
    let document = swept(&copy, &["--layer", "2"]);
    let points = document["points"].as_array().expect("points");
    let now = points
        .iter()
        .find(|point| point["scale"] == 1.0)
        .expect("now");
    // Its scale is 1/√d already, and says so.
    assert_eq!(now["mark"], "now, 1/√d");
    let heads = report["prompts"][0]["layers"][2]["heads"]
        .as_array()
        .expect("heads");
    let entropy = heads.iter().map(|head| {
        head["stats"]["entropy_relative"]
            .as_f64()
            .expect("a number")
    });
    let mean = entropy.sum::<f64>() / heads.len() as f64;
    let found = now["relative_entropy"]["mean"].as_f64().expect("a number");
    assert!((found - mean).abs() < 1e-5, "{found} for {mean}");
    // 16 wide: unscaled scores are four times as large.
    assert!(
        points
            .iter()
            .any(|point| point["scale"] == 4.0 && point["mark"] == "unscaled")
    );
}

#[test]
fn the_same_bytes_on_any_number_of_threads() {
    let copy = Copy::of("llama");
    let path = copy.path().to_str().expect("a path");
    let with = |threads| {
        ran(&[
            "sweep",
            path,
            "--tokens",
            TOKENS,
            "--layer",
            "0",
            "--format",
            "csv",
            "--threads",
            threads,
        ])
    };
    let once = with("1");
    assert!(once == with("2") && once == with("5"));
}

#[test]
fn both_sides_and_cross_attention_are_swept() {
    let copy = Copy::of("t5_v11");
    let path = copy.path().to_str().expect("a path");
    for (layer, n_rows) in [
        ("encoder.0", 4 * 12),
        ("cross.1", 4 * 3),
        ("decoder.1", 4 * 2),
        ("1", 4 * 2),
    ] {
        let written = ran(&[
            "sweep",
            path,
            "--tokens",
            "5,9,2,5,9,2,31,7,7,31,5,9",
            "--target-tokens",
            "0,5,9",
            "--layer",
            layer,
            "--format",
            "json",
        ]);
        let document: Value = serde_json::from_slice(&written).expect("JSON");
        assert_eq!(document["rows"], n_rows, "{layer}");
        let stack = layer.split_once('.').map_or("decoder", |(stack, _)| stack);
        assert_eq!(document["source"]["stack"], stack);
    }
}

#[test]
fn padded_queries_do_not_count() {
    let copy = Copy::of("bert");
    let mask = "1,1,1,1,1,1,1,1,0,0,0,0";
    let document = swept(
        &copy,
        &["--layer", "0", "--head", "0", "--attention-mask", mask],
    );
    assert_eq!(document["rows"], 8);
}

#[test]
fn places_that_do_not_exist_are_refused_in_one_line() {
    let copy = Copy::of("gpt2");
    let path = copy.path().to_str().expect("a path");
    let cases: [(&[&str], &str); 9] = [
        (&[], "--layer"),
        (&["--layer", "3"], "layer 3 does not exist: expected 0..2"),
        (
            &["--layer", "0", "--head", "4"],
            "head 4 does not exist: expected 0..3",
        ),
        (
            &["--layer", "0", "--query", "12"],
            "query 12 does not exist: expected 0..11",
        ),
        (&["--layer", "encoder.0"], "only stack"),
        (&["--layer", "first"], "expected 3, encoder.3"),
        (&["--layer", "0", "--std", "1"], "cannot be used with"),
        (
            &["--layer", "0", "--set", "softmax_axis=queries"],
            "queries",
        ),
        (&["--layer", "0", "--from", "-1"], "--from -1"),
    ];
    for (arguments, said) in cases {
        let command = ["sweep", path, "--tokens", TOKENS];
        let output = attnscope(&[&command, arguments].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(
            error.lines().last().is_some_and(|line| line.contains(said)),
            "{arguments:?}: {error}"
        );
    }
    let prompt = attnscope(&["sweep", "--tokens", "1,2"]);
    assert!(
        text(&prompt.stderr).contains("CHECKPOINT"),
        "{}",
        text(&prompt.stderr)
    );
    assert_eq!(prompt.status.code(), Some(2));
}

#[test]
fn a_picture_never_replaces_what_is_read() {
    let copy = Copy::of("gpt2");
    let path = copy.path().to_str().expect("a path");
    let target = copy.file("model.svg");
    std::fs::write(&target, "the prompt").expect("a file");
    let to = target.to_str().expect("a path");
    let output = attnscope(&[
        "sweep", path, "--layer", "0", "--tokens", TOKENS, "--output", to, "--force",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let text_file = [
        "sweep",
        path,
        "--layer",
        "0",
        "--text-file",
        to,
        "--output",
        to,
        "--force",
    ];
    let refused = attnscope(&text_file);
    assert_eq!(refused.status.code(), Some(2));
}
