//! The text part of Molmo 2: Qwen3 or OLMo 2 with fused maps; the tokens of pictures are rows of a table of their own.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::attention::RopeScaling;
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{BlockSpec, FeedForward, ModelSpec};

use super::Family;
use super::reading::llama_like::{self, BiasRule, MlpStore, QkNorm, QkvStore, Recipe};

pub const FAMILY: Family = Family::own("molmo2_text", "Molmo2Text", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const NORM: &str = "qk_norm_type";
    let qk_norm = match reader.word_or("qk_norm_kind", NORM, "qwen3")?.as_str() {
        "qwen3" => QkNorm::Head,
        "olmo" => QkNorm::Whole,
        other => {
            let problem = format!("expected qwen3 or olmo, found {other:?}");
            return Err(Error::config(reader.path(), NORM, problem));
        }
    };
    let recipe = Recipe {
        qk_norm,
        qkv_bias: BiasRule::Key("attention_bias", false),
        qkv: QkvStore::Stacked,
        mlp: MlpStore::FusedGated,
        d_head: Some(128),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    let is_after = reader.flag_or("norms_outputs", "norm_after", false)?;
    let scaled = reader.numbers("rope_scaling_layers")?;
    let is_scaled = |layer_idx: usize| {
        let listed = scaled.as_ref();
        listed.is_none_or(|listed| listed.contains(&(layer_idx as u64)))
    };
    if reader.value("additional_vocab_size").is_some() {
        reader.remark(
            "tokens of pictures have a table of their own, which is not read: a text has none"
                .to_owned(),
        );
    }
    let blocks = spec.stacks[0].blocks_mut().iter_mut();
    for (layer_idx, block) in blocks.enumerate() {
        settle(block, is_after, is_scaled(layer_idx));
    }
    Ok(spec)
}

/// Puts the norms where they are, takes the gate from behind the other map, and rescales rotation only where it is asked for.
fn settle(block: &mut BlockSpec, is_after: bool, is_scaled: bool) {
    if is_after {
        block.attn_out = block.attn_pre.take();
        block.mlp_out = block.mlp_pre.take();
    }
    if let FeedForward::Dense(mlp) = &mut block.feed_forward
        && let Some(gate) = &mut mlp.gate
    {
        std::mem::swap(&mut mlp.up, gate);
    }
    let rope = block.own_mut().and_then(|own| own.attention.rope.as_mut());
    if let Some(rope) = rope.filter(|_| !is_scaled) {
        rope.scaling = RopeScaling::None;
        rope.magnitude = 1.0;
    }
}
