//! Weights of a family that the user names, without a configuration: sizes every family needs, from shapes and names.

use std::collections::BTreeSet;
use std::path::Path;

use attnscope_checkpoint::{Config, Origin, Tensors};
use serde_json::Value;

/// Suffixes of the names of token tables.
const TABLES: [&str; 9] = [
    "embed_tokens.weight",
    "wte.weight",
    "word_embeddings.weight",
    "embed_in.weight",
    "tok_embeddings.weight",
    "tok_emb.weight",
    "token_embedding.weight",
    "shared.weight",
    "embeddings.weight",
];

/// Suffixes of the names of up-projections; and whether the second axis is their width.
const MAPS_UP: [&str; 9] = [
    "up_proj.weight",
    "c_fc.weight",
    "dense_h_to_4h.weight",
    "fc1.weight",
    "fc_in.weight",
    "intermediate.dense.weight",
    "ffn.lin1.weight",
    "ffn.up_proj.weight",
    "feed_forward.w1.weight",
];

/// Builds a configuration with only the sizes that shapes and names reveal; the family asks for the rest.
pub(super) fn describe(tensors: &Tensors, path: &Path) -> Config {
    let mut config = Config::absent(path);
    let mut fix = |knob: &str, size: usize, of: &str| {
        let origin = Origin::Derived(format!("shape of {of}"));
        config.fix(knob, size, origin);
    };
    let table = TABLES.iter().find_map(|end| {
        let mut all = tensors.iter();
        let (name, info) = all.find(|(name, _)| {
            name.strip_suffix(end)
                .is_some_and(|base| base.is_empty() || base.ends_with('.'))
        })?;
        match info.shape.as_slice() {
            [n_rows, width] => Some((name, *n_rows, *width)),
            _ => None,
        }
    });
    if let Some((name, d_vocab, d_model)) = table {
        fix("d_vocab", d_vocab, name);
        fix("d_model", d_model, name);
        let up = tensors
            .iter()
            .find(|(name, _)| MAPS_UP.iter().any(|end| name.ends_with(end)));
        if let Some((name, info)) = up
            && let [a, b] = info.shape.as_slice()
        {
            fix("d_mlp", if *b == d_model { *a } else { *b }, name);
        }
    }
    let layers: BTreeSet<usize> = tensors
        .iter()
        .filter_map(|(name, _)| name.split('.').find_map(|part| part.parse().ok()))
        .collect();
    if let Some(last) = layers.last() {
        let origin = Origin::Derived("the numbers in the tensors' names".to_owned());
        config.fix("n_layers", last + 1, origin);
    }
    config.put(
        "tie_word_embeddings",
        Value::Bool(!has_head(tensors)),
        Origin::Derived("the tensors' names".to_owned()),
    );
    config
}

fn has_head(tensors: &Tensors) -> bool {
    let heads = ["lm_head.weight", "embed_out.weight", "output.weight"];
    tensors
        .iter()
        .any(|(name, _)| heads.iter().any(|head| name.ends_with(head)))
}
