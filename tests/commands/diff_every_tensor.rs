//! `diff` compares every tensor that a model reads, those outside of its blocks included.

use std::collections::BTreeSet;

use testing::pairs::{Pair, change_tensor, diff};

/// Families with parts that few others have.
const FAMILIES: [&str; 6] = [
    // Patches of a picture, and a classifier.
    "vit",
    // Maps of their own for tokens that see everything.
    "longformer",
    // Several streams, and a table of rows per token and layer.
    "gemma3n_text",
    // A position table, and a head with a dense layer and a norm.
    "distilbert_b",
    // Routed experts.
    "qwen3_moe",
    // Two stacks, cross-attention and shared tables of position biases.
    "t5_v11",
];

#[test]
fn a_change_of_any_tensor_is_named() {
    for family in FAMILIES {
        let mut stored = BTreeSet::new();
        let pair = Pair::of(family).weights(|weights| {
            stored = weights.keys().cloned().collect();
            for name in &stored {
                change_tensor(weights, name, |tensor| tensor.disturb(0..tensor.n_rows));
            }
        });
        let found = if family == "vit" {
            let picture = testing::root().join("fixtures/oracle/vit/picture.png");
            let picture = picture.to_str().expect("a path");
            diff(pair.a.path(), pair.b.path(), &["--image", picture])
        } else {
            pair.diff(&[])
        };
        let named = found.json["weights"]["differ"].as_array();
        let named = named.unwrap_or_else(|| panic!("{family}: {}", found.said));
        let named: BTreeSet<String> = named
            .iter()
            .map(|row| row["name"].as_str().expect("a name").to_owned())
            .collect();
        assert_eq!(named, stored, "{family}");
    }
}
