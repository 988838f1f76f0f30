//! Ports that were recorded in PyTorch (`fixtures/ports/make_ports.py`), beside the checkpoint that they are ports of.

use std::path::PathBuf;

use serde_json::json;
use testing::checkpoint_copy::original;
use testing::pairs::{Found, diff};

fn port(name: &str) -> PathBuf {
    let file = format!("fixtures/ports/mistral_{name}.safetensors");
    testing::root().join(file)
}

fn found(name: &str) -> Found {
    diff(&original("mistral_full"), &port(name), &[])
}

#[test]
fn a_port_that_is_right_is_the_same_at_every_hook() {
    let found = found("correct");
    assert_eq!((found.code, found.said.as_str()), (Some(0), ""));
    let hooks = found.json["hooks"].as_array().expect("hooks");
    assert_eq!(hooks.len(), 2 * 12 + 1);
    for hook in hooks {
        assert!(hook["relative"].as_f64() < Some(1e-5), "{hook}");
    }
    assert!(found.json["prompts"][0]["kl"].as_f64() < Some(1e-6));
}

#[test]
fn a_port_that_rotates_other_pairs_is_placed_where_it_rotates() {
    let found = found("alternating");
    assert_eq!(found.code, Some(1), "{}", found.said);
    assert!(found.first().starts_with("rot_q L0"), "{}", found.first());
    // What it rotates by instead is told from the values.
    assert_eq!(found.knobs(), "rope_interleaved false true");
    // Every layer differs from its own recorded input.
    assert_eq!(found.isolated(), "L0 L1");
    let turned = diff(&port("alternating"), &original("mistral_full"), &[]);
    assert!(turned.first().starts_with("rot_q L0"), "{}", turned.first());
    let recordings = diff(&port("correct"), &port("alternating"), &[]);
    assert!(
        recordings.first().starts_with("rot_q L0"),
        "{}",
        recordings.first()
    );
    assert_eq!(recordings.json["isolated"], json!([]));
}

#[test]
fn a_port_that_repeats_kv_heads_as_a_whole_is_told_by_the_order_of_its_heads() {
    let order = "kv_head_order 0 0 1 1 (repeat_interleave) 0 1 0 1 (repeat)";
    // All copies of rotated keys, one copy of each head, and the pattern alone.
    for (name, hook) in [
        ("repeated", "rot_k L0"),
        ("repeated_once", "rot_k L0"),
        ("repeated_pattern", "pattern L0"),
    ] {
        let found = found(name);
        assert!(found.first().starts_with(hook), "{name}: {}", found.first());
        assert_eq!(found.knobs(), order, "{name}");
    }
    // Without agreement there is no cause.
    assert_eq!(found("by_names").knobs(), "");
}

#[test]
fn what_was_recorded_under_names_of_its_own_is_compared_where_it_is() {
    let found = found("by_names");
    // Rotated queries have no module: the first thing that shows is what heads give.
    assert!(found.first().starts_with("z L0"), "{}", found.first());
    let hooks = found.json["hooks"].as_array().expect("hooks").iter();
    let names: Vec<&str> = hooks
        .filter(|h| h["layer"] == 0)
        .filter_map(|h| h["hook"].as_str())
        .collect();
    assert_eq!(
        names,
        ["resid_pre", "q", "k", "z", "attn_out", "resid_post"]
    );
}
