//! Healthy models whose rows or experts were stored in another order, as converters and shards leave them.

use attnscope_checks::{Severity, Thresholds};
use testing::checkpoint_copy::{Copy, Stored, Weights};
use testing::judged::{fixture, judged_by, prompts_in};
use testing::opening::opened;

/// Where the rows of a tensor go: row `row` of the new tensor is row `from(row)` of the old one.
fn reorder(stored: &mut Stored, from: impl Fn(usize) -> usize) {
    let n_bytes = stored.bytes.len() / stored.shape[0];
    let rows = (0..stored.shape[0]).flat_map(|row| {
        let at = from(row) * n_bytes;
        stored.bytes[at..at + n_bytes].to_vec()
    });
    stored.bytes = rows.collect();
}

/// Reorders the rows of a tensor in all layers.
fn in_all_layers(weights: &mut Weights, name: &str, from: fn(usize) -> usize) {
    let layers: Vec<&mut Stored> = weights
        .iter_mut()
        .filter(|(known, _)| known.ends_with(&format!("self_attn.{name}.weight")))
        .map(|(_, stored)| stored)
        .collect();
    assert_eq!(layers.len(), 2, "{name}");
    layers.into_iter().for_each(|stored| reorder(stored, from));
}

/// Stores the experts of one layer in another order.
fn store_experts(weights: &mut Weights, layer_idx: usize, order: [usize; 4]) {
    let old = weights.clone();
    for (place, idx) in order.into_iter().enumerate() {
        for part in ["gate_proj", "up_proj", "down_proj"] {
            let name = |idx| format!("model.layers.{layer_idx}.mlp.experts.{idx}.{part}.weight");
            weights.insert(name(place), old[&name(idx)].clone());
        }
    }
}

/// A tensor, the reading that its new order of rows is, and where each row comes from.
type Case = (&'static str, &'static str, fn(usize) -> usize);

/// Expects one finding that names this reading, in this layer.
fn is_named(copy: &Copy, reading: &str, layer: Option<usize>) {
    const CHECK: &str = "trained-otherwise";
    let model = opened(copy.path(), &[]);
    let prompts = prompts_in(&model, &fixture("readings/texts.jsonl"));
    let said = judged_by(&model, &prompts, &Thresholds::default(), &[CHECK]);
    let finding = said.one(CHECK);
    assert_eq!(finding.severity, Severity::Error);
    assert!(
        finding.advice.contains(reading) && !finding.advice.contains("not decided"),
        "{reading}: {} {}",
        finding.evidence,
        finding.advice
    );
    assert_eq!(finding.place.layer_idx, layer, "{}", finding.evidence);
}

/// Four heads of 8 rows that rotate, 8 that do not, and values of 8 rows, from latents of 16.
#[test]
fn parts_of_latent_attention_in_another_order_are_named() {
    let cases: [Case; 4] = [
        (
            "kv_b_proj",
            "the keys of all heads before the values of all heads",
            |row| match row {
                0..32 => row / 8 * 16 + row % 8,
                _ => (row - 32) / 8 * 16 + 8 + row % 8,
            },
        ),
        (
            "kv_b_proj",
            "the values of each head before its keys",
            |row| row / 16 * 16 + (row + 8) % 16,
        ),
        (
            "kv_a_proj_with_mqa",
            "the rotary part of keys before the latents",
            |row| (row + 16) % 24,
        ),
        (
            "q_proj",
            "the rotary part of queries before their other part",
            |row| row / 16 * 16 + (row + 8) % 16,
        ),
    ];
    for (tensor, reading, from) in cases {
        let copy = Copy::of_directory(&fixture("readings/short_mla"));
        copy.weights(|weights| in_all_layers(weights, tensor, from));
        is_named(&copy, reading, None);
    }
}

#[test]
fn experts_in_another_order_than_the_router_are_named() {
    let copy = Copy::of_directory(&fixture("readings/experts"));
    copy.weights(|weights| {
        (0..2).for_each(|layer_idx| store_experts(weights, layer_idx, [0, 2, 1, 3]));
    });
    is_named(&copy, "experts stored by 2 ranks", None);

    let copy = Copy::of_directory(&fixture("readings/experts"));
    copy.weights(|weights| store_experts(weights, 1, [3, 2, 1, 0]));
    is_named(&copy, "experts in reverse order", Some(1));
}

/// A base that a converter left at a default, and one that nobody uses.
#[test]
fn usual_rotary_bases_are_named_whatever_is_declared() {
    let copy = Copy::of_directory(&fixture("readings/hybrid"));
    copy.config(|config| {
        config.insert(
            "rope_parameters".to_owned(),
            serde_json::json!({"rope_type": "default", "rope_theta": 30.0}),
        );
    });
    is_named(&copy, "a rotary base of", None);
}
