//! Layers of `torch.nn.TransformerEncoderLayer` in a model that names its other parts freely.

use attnscope_compute::error::Result;

use super::torch_parts::{ENCODER_PARTS, Outside, SELF_ATTENTION, ask, befores, only, stem};
use super::{Facts, Layout};

pub const LAYOUT: Layout = Layout {
    known_by: "torch.nn.TransformerEncoder (…layers.0.self_attn.in_proj_weight)",
    describe,
};

fn describe(facts: &mut Facts<'_>) -> Result<bool> {
    let found = befores(facts, SELF_ATTENTION);
    let before = match found.as_slice() {
        [] => return Ok(false),
        [before] => before,
        [before, other, ..] => {
            let problem = format!(
                "stands beside {before}0.{SELF_ATTENTION}; expected the layers of one stack, or of an encoder and a decoder with multihead_attn"
            );
            return Err(facts.at(&format!("{other}0.{SELF_ATTENTION}"), problem));
        }
    };
    let probe = format!("{before}0.{SELF_ATTENTION}");
    let up = format!("{before}0.linear1.weight");
    let [_, d_model] = facts.matrix(&probe)?;
    let [d_mlp, _] = facts.matrix(&up)?;
    // Layers over patches of pictures are read as home-made code's are.
    if reads_pictures(facts, d_model) {
        return Ok(false);
    }
    facts.layers("num_layers", before, SELF_ATTENTION, ENCODER_PARTS)?;
    facts.by_names("model_type", "torch_encoder");
    facts.by_names("layers", before.clone());
    facts.by_shape("d_model", d_model, &probe, &["d_model"])?;
    facts.by_shape("dim_feedforward", d_mlp, &up, &[])?;

    let outside = Outside::of(facts, &[before], d_model);
    let tokens: Vec<&String> = outside.tokens.iter().collect();
    let Some(tokens) = only(facts, &tokens, "table of tokens", "embedding.weight")? else {
        let problem = outside.without_tokens(facts, "embedding.weight");
        // A map of numbers in its place is read as home-made code's is.
        facts.has_other_parts = outside.input_map(facts).is_some();
        return Err(facts.at(&probe, problem));
    };
    let [d_vocab, _] = facts.matrix(&tokens)?;
    facts.by_names("tokens", tokens.clone());
    facts.by_shape("vocab_size", d_vocab, &tokens, &["vocab_size"])?;
    let positions: Vec<&String> = outside.positions.iter().collect();
    match only(facts, &positions, "table of positions", "positions.weight")? {
        Some(positions) => {
            let [n_ctx, _] = facts.matrix(&positions)?;
            facts.by_names("positions", positions.clone());
            facts.by_shape("max_len", n_ctx, &positions, &[])?;
        }
        None => facts.needed("positions", "positions", &[]),
    }
    let head = outside.head(facts, d_vocab)?;
    facts.by_names("head", stem(head.as_deref()));
    let norm = only(facts, &outside.norms(facts)?, "final norm", "norm.weight")?;
    facts.by_names("final_norm", stem(norm.as_deref()));
    ask(facts);
    facts.needed("mask", "is_causal", &["is_causal"]);
    Ok(true)
}

/// Whether the kernel of a convolution maps patches, grey or of three colours, to rows.
fn reads_pictures(facts: &Facts<'_>, d_model: usize) -> bool {
    let mut shapes = facts.tensors.iter().map(|(_, info)| &info.shape[..]);
    shapes.any(|shape| matches!(shape, [n, 1 | 3, _, _] if *n == d_model))
}
