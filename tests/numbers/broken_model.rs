//! Models that are broken but can be read: the run goes on, and says where the first NaN or infinity appeared.

use serde_json::Value;
use testing::checkpoint_copy::{Copy, Stored, attnscope, text};

/// Runs a report that must succeed: the report, and what was said on standard error.
fn report(copy: &Copy) -> (Value, String) {
    let path = copy.path().to_str().expect("a path");
    let output = attnscope(&["report", path, "--tokens", "5,9,2,5,9,2,7"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    (serde_json::from_slice(&output.stdout).expect("JSON"), said)
}

/// Replaces one element of an F32 tensor.
fn put(copy: &Copy, tensor: &str, element: usize, value: f32) {
    copy.weights(|weights| {
        let stored = weights.get_mut(tensor).expect("a tensor");
        stored.bytes[4 * element..4 * element + 4].copy_from_slice(&value.to_le_bytes());
    });
}

/// Damages one element, and expects the report and standard error to say the same about it.
fn damaged(tensor: &str, element: usize, value: f32, parts: &[&str]) -> Value {
    let copy = Copy::of("gpt2");
    put(&copy, tensor, element, value);
    let (report, said) = report(&copy);
    let found = report["prompts"][0]["first_nonfinite"].as_str();
    let found = found.unwrap_or_else(|| panic!("nothing was found: {said}"));
    for part in [&[tensor, &format!("element {element}")], parts].concat() {
        assert!(found.contains(part), "expected {part:?} in: {found}");
    }
    let n_lines = said.lines().filter(|line| *line == found).count();
    assert_eq!(n_lines, 1, "expected {found:?} once in:\n{said}");
    report
}

fn head_statistic(report: &Value, layer_idx: usize, head_idx: usize, id: &str) -> Value {
    report["prompts"][0]["layers"][layer_idx]["heads"][head_idx]["stats"][id].clone()
}

#[test]
fn a_healthy_model_reports_no_first_nonfinite() {
    let (report, said) = report(&Copy::of("gpt2"));
    assert!(report["prompts"][0]["first_nonfinite"].is_null());
    assert!(!said.contains("NaN"), "{said}");
}

#[test]
fn a_nan_weight_is_found_where_it_first_shows_and_named_with_its_tensor() {
    // Row 10, column 70 of [64, 192]: of the fused q, k and v, column 6 of k, head 0.
    let parts = ["blocks.1.attn.k: first NaN", "position 0, column 6"];
    let tensor = "transformer.h.1.attn.c_attn.weight";
    let report = damaged(tensor, 10 * 192 + 70, f32::NAN, &parts);
    // Other heads of the layer are healthy, and the layers before it.
    assert_eq!(head_statistic(&report, 1, 0, "entropy"), "NaN");
    assert!(head_statistic(&report, 1, 1, "entropy").is_number());
    assert!(head_statistic(&report, 0, 0, "entropy").is_number());
    assert_eq!(head_statistic(&report, 2, 3, "entropy"), "NaN");
    assert_eq!(report["prompts"][0]["layers"][1]["stats"]["entropy"], "NaN");
    assert_eq!(report["prompts"][0]["loss"], "NaN");
}

#[test]
fn a_head_of_nan_does_not_hide_behind_healthy_ones_in_any_statistic() {
    let copy = Copy::of("gpt2");
    let tensor = "transformer.h.1.attn.c_attn.weight";
    put(&copy, tensor, 10 * 192 + 70, f32::NAN);
    let (report, _) = report(&copy);
    let layer = &report["prompts"][0]["layers"][1]["stats"];
    // Of head 0 the queries are healthy, and which keys a query sees is no matter of values.
    for (id, value) in layer.as_object().expect("statistics") {
        let is_broken = value == "NaN";
        assert_eq!(
            is_broken,
            !["q_norm", "empty_rows"].contains(&id.as_str()),
            "{id} is {value}"
        );
    }
}

#[test]
fn an_infinite_weight_is_found_and_named() {
    let parts = ["blocks.2.mlp_out: first"];
    damaged("transformer.h.2.mlp.c_proj.bias", 7, f32::INFINITY, &parts);
    let parts = ["blocks.0.attn_out: first"];
    damaged(
        "transformer.h.0.attn.c_proj.bias",
        3,
        f32::NEG_INFINITY,
        &parts,
    );
}

#[test]
fn a_nan_in_the_embedding_is_found_before_the_first_block() {
    // The row of token 9, which stands at position 1.
    let parts = ["blocks.0.resid_pre: first NaN", "position 1, column 5"];
    damaged("transformer.wte.weight", 9 * 64 + 5, f32::NAN, &parts);
}

#[test]
fn a_nan_in_the_final_norm_is_found() {
    damaged("transformer.ln_f.weight", 5, f32::NAN, &["logits"]);
}

#[test]
fn a_trace_of_a_broken_model_is_written_and_says_where_it_broke() {
    let copy = Copy::of("gpt2");
    put(&copy, "transformer.h.1.attn.c_proj.bias", 0, f32::NAN);
    let target = copy.output("trace.safetensors");
    let output = attnscope(&[
        "trace",
        copy.path().to_str().expect("a path"),
        "--tokens",
        "5,9,2",
        "--output",
        target.to_str().expect("a path"),
    ]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("blocks.1.attn_out: first NaN"), "{said}");
    let tensors = testing::checkpoint_copy::weights(&std::fs::read(target).expect("reads"));
    assert!(
        tensors["blocks.0.resid_post"]
            .values()
            .iter()
            .all(|v| v.is_finite())
    );
    assert!(tensors["blocks.2.attn.pattern"].values()[0].is_nan());
}

#[test]
fn a_tensor_that_nobody_asked_for_changes_nothing() {
    let plain = Copy::of("gpt2");
    let extra = Copy::of("gpt2");
    extra.weights(|weights| {
        weights.insert(
            "extra.weight".to_owned(),
            Stored::f32(&[2, 2], &[f32::NAN; 4]),
        );
        let mask = Stored {
            dtype: "BOOL".to_owned(),
            shape: vec![1, 1, 2, 2],
            bytes: vec![1, 0, 1, 1],
        };
        weights.insert("transformer.h.0.attn.bias".to_owned(), mask);
    });
    assert_eq!(report(&extra).0["prompts"], report(&plain).0["prompts"]);
}

#[test]
fn empty_tensors_and_scalars_are_listed() {
    let copy = Copy::of("gpt2");
    copy.weights(|weights| {
        weights.insert("empty".to_owned(), Stored::f32(&[0, 4], &[]));
        weights.insert("scalar".to_owned(), Stored::f32(&[], &[2.5]));
    });
    let path = copy.path().to_str().expect("a path");
    let output = attnscope(&["tensors", path, "--stats", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let listed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let named = |name: &str| {
        let mut entries = listed.as_array().expect("a list").iter();
        entries
            .find(|entry| entry["name"] == name)
            .expect("an entry")
            .clone()
    };
    assert_eq!(named("empty")["bytes"], 0);
    assert_eq!(named("scalar")["stats"]["mean"], 2.5);
    report(&copy);
}

#[test]
fn scores_that_overflow_are_named_before_what_they_make_of_the_output() {
    // Queries and keys of head 2 are finite, and their products are not.
    let copy = Copy::of("gpt2");
    copy.weights(|weights| {
        let stored = weights
            .get_mut("transformer.h.1.attn.c_attn.weight")
            .expect("a tensor");
        let mut values = stored.values();
        for row in values.chunks_mut(192) {
            for part in [0, 64] {
                row[part + 32..part + 48]
                    .iter_mut()
                    .for_each(|value| *value *= 1e25);
            }
        }
        *stored = Stored::f32(&stored.shape.clone(), &values);
    });
    let (report, said) = report(&copy);
    let found = report["prompts"][0]["first_nonfinite"].as_str();
    let found = found.unwrap_or_else(|| panic!("nothing was found: {said}"));
    assert!(found.starts_with("blocks.1.attn.scores: first "), "{found}");
    assert!(found.ends_with(", head 2"), "{found}");
}
