//! `torch.nn.Transformer`, or its encoder and decoder, in a model that names its other parts freely.

use attnscope_compute::error::Result;

use super::torch_parts::{ENCODER_PARTS, Outside, SELF_ATTENTION, ask, befores, holds, only, stem};
use super::{Facts, Layout};

pub const LAYOUT: Layout = Layout {
    known_by: "torch.nn.Transformer (…decoder.layers.0.multihead_attn.in_proj_weight)",
    describe,
};

const CROSS_ATTENTION: &str = "multihead_attn.in_proj_weight";

/// Tensors that a decoder layer has in addition to an encoder layer's.
const CROSS_PARTS: &[&str] = &[
    CROSS_ATTENTION,
    "multihead_attn.in_proj_bias",
    "multihead_attn.out_proj.weight",
    "multihead_attn.out_proj.bias",
    "norm3.weight",
    "norm3.bias",
];

/// Names of one side (encoder or decoder): in users' tensors, in ours, and in the configuration.
struct Side {
    /// Words for the input of the side, then for the side itself.
    words: [&'static [&'static str]; 2],
    tokens: &'static str,
    our_tokens: &'static str,
    d_vocab: &'static str,
    positions: &'static str,
    our_positions: &'static str,
    max_len: &'static str,
    layers: &'static str,
    n_layers: &'static str,
    final_norm: &'static str,
}

const SOURCE: Side = Side {
    words: [&["src", "source"], &["enc"]],
    tokens: "source_tokens",
    our_tokens: "src_embedding.weight",
    d_vocab: "src_vocab_size",
    positions: "positions",
    our_positions: "src_positions.weight",
    max_len: "max_len",
    layers: "encoder_layers",
    n_layers: "num_encoder_layers",
    final_norm: "encoder_norm",
};

const TARGET: Side = Side {
    words: [&["tgt", "trg", "target"], &["dec"]],
    tokens: "target_tokens",
    our_tokens: "tgt_embedding.weight",
    d_vocab: "tgt_vocab_size",
    positions: "target_positions",
    our_positions: "tgt_positions.weight",
    max_len: "target_max_len",
    layers: "decoder_layers",
    n_layers: "num_decoder_layers",
    final_norm: "decoder_norm",
};

fn describe(facts: &mut Facts<'_>) -> Result<bool> {
    let decoders = befores(facts, CROSS_ATTENTION);
    let Some(decoder) = decoders.first() else {
        return Ok(false);
    };
    let probe = format!("{decoder}0.{CROSS_ATTENTION}");
    let mut encoders = befores(facts, SELF_ATTENTION);
    encoders.retain(|before| !decoders.contains(before));
    if let Some(other) = decoders.get(1) {
        let problem = format!("stands beside {probe}; expected the layers of one decoder");
        return Err(facts.at(&format!("{other}0.{CROSS_ATTENTION}"), problem));
    }
    let encoder = match encoders.as_slice() {
        [encoder] => encoder,
        [] => {
            let problem = "a decoder attends to an encoder, and no layers of torch.nn.TransformerEncoder are stored beside it";
            return Err(facts.at(&probe, problem.to_owned()));
        }
        [encoder, other, ..] => {
            let problem = format!(
                "stands beside {encoder}0.{SELF_ATTENTION}; expected the layers of one encoder"
            );
            return Err(facts.at(&format!("{other}0.{SELF_ATTENTION}"), problem));
        }
    };
    let [_, d_model] = facts.matrix(&probe)?;
    let up = format!("{encoder}0.linear1.weight");
    let [d_mlp, _] = facts.matrix(&up)?;
    facts.by_names("model_type", "torch_transformer");
    facts.by_shape("d_model", d_model, &probe, &["d_model"])?;
    facts.by_shape("dim_feedforward", d_mlp, &up, &[])?;

    let outside = Outside::of(facts, &[encoder, decoder], d_model);
    let norms: Vec<String> = outside.norms(facts)?.into_iter().cloned().collect();
    let decoder_parts = [ENCODER_PARTS, CROSS_PARTS].concat();
    let mut known_norms = Vec::new();
    for (side, before, parts) in [
        (&SOURCE, encoder, ENCODER_PARTS),
        (&TARGET, decoder, &decoder_parts),
    ] {
        facts.layers(side.n_layers, before, SELF_ATTENTION, parts)?;
        facts.by_names(side.layers, before.clone());
        // torch.nn's encoders and decoders store their final norm beside their layers.
        let norm = format!(
            "{}norm.weight",
            before.strip_suffix("layers.").unwrap_or(before)
        );
        let norm = Some(norm).filter(|norm| norms.contains(norm));
        facts.by_names(side.final_norm, stem(norm.as_deref()));
        known_norms.extend(norm);
    }
    if let Some(other) = norms.iter().find(|norm| !known_norms.contains(norm)) {
        let problem =
            "a norm outside the layers that is not torch.nn's own is not known in this layout";
        return Err(facts.at(other, problem.to_owned()));
    }
    for side in [&SOURCE, &TARGET] {
        let tokens = of_side(
            facts,
            &outside.tokens,
            side,
            "table of tokens",
            side.our_tokens,
        )?;
        let Some(tokens) = tokens else {
            let problem = outside.without_tokens(facts, side.our_tokens);
            return Err(facts.at(&probe, problem));
        };
        let [d_vocab, _] = facts.matrix(&tokens)?;
        facts.by_names(side.tokens, tokens.clone());
        facts.by_shape(side.d_vocab, d_vocab, &tokens, &[])?;
    }
    for side in [&SOURCE, &TARGET] {
        let part = "table of positions";
        match of_side(facts, &outside.positions, side, part, side.our_positions)? {
            Some(positions) => {
                let [n_ctx, _] = facts.matrix(&positions)?;
                facts.by_names(side.positions, positions.clone());
                facts.by_shape(side.max_len, n_ctx, &positions, &[])?;
            }
            None if side.positions == "positions" => {
                facts.needed("positions", "positions", &[]);
            }
            None => {}
        }
    }
    if let Some(d_vocab) = facts.size("d_vocab", TARGET.d_vocab) {
        let head = outside.head(facts, d_vocab)?;
        facts.by_names("head", stem(head.as_deref()));
    }
    ask(facts);
    facts.needed("start_token", "decoder_start_token_id", &[]);
    Ok(true)
}

/// The part of one side: a single candidate serves both sides; of several, the one whose name contains the side's words.
///
/// # Errors
/// When the words match several candidates, or none of several.
fn of_side(
    facts: &Facts<'_>,
    found: &[String],
    side: &Side,
    part: &str,
    ours: &str,
) -> Result<Option<String>> {
    if found.len() <= 1 {
        return Ok(found.first().cloned());
    }
    let called = |words: &[&str]| -> Vec<&String> {
        found.iter().filter(|name| holds(name, words)).collect()
    };
    let [reads, is] = side.words.map(called);
    let chosen = if reads.is_empty() { is } else { reads };
    match only(facts, &chosen, part, ours)? {
        Some(name) => Ok(Some(name)),
        None => only(facts, &found.iter().collect::<Vec<_>>(), part, ours),
    }
}
