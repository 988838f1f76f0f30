//! Models that `attnscope.toml` describes whole: what a description may leave out or turn round, against what PyTorch computes.

use std::path::PathBuf;

use testing::opening::{fails, opened};
use testing::refusal::assert_says;

use super::homegrown_files::agrees;

fn fixtures() -> PathBuf {
    testing::root().join("fixtures/formats/described")
}

#[test]
fn what_a_description_leaves_out_is_left_out_of_the_run() {
    for name in [
        "without_maps",
        "attention_only",
        "turned_table",
        "hidden_states",
        "mean_pooled",
    ] {
        let model = opened(&fixtures().join(name), &[]);
        assert_eq!(model.spec.family, "described", "{name}");
        agrees(
            &model,
            &fixtures().join(format!("{name}.reference.safetensors")),
        );
    }
}

#[test]
fn a_pooled_head_gives_labels_and_a_model_without_a_head_none() {
    let pooled = opened(&fixtures().join("mean_pooled"), &[]);
    let labels = pooled.spec.head.and_then(|head| head.labels);
    assert_eq!(labels.map(|labels| labels.names.len()), Some(3));
    let hidden = opened(&fixtures().join("hidden_states"), &[]);
    assert!(hidden.spec.head.is_none() && !hidden.spec.is_causal_lm);
}

#[test]
fn every_position_may_have_labels() {
    let model = opened(&fixtures().join("mean_pooled"), &["pooled=no"]);
    let labels = model.spec.head.and_then(|head| head.labels);
    assert_eq!(
        labels.map(|labels| labels.pooled.word()),
        Some("every token")
    );
}

#[test]
fn divisors_that_are_no_numbers_are_refused() {
    let said = fails(&fixtures().join("turned_table"), &["rope_divisors=1 x"]);
    assert_says(&said, &["rope_divisors", "a number above 0 for each pair"]);
}
