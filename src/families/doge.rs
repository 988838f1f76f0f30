//! Doge: Llama with norms of queries and keys, stored weights of the residual in each sum, and a bias of each key that its values make.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::attention::Bias;
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, SumRule, SumWeights, ValueBiasSource};

use super::Family;
use super::reading::llama_like::{self, BiasRule, QkNorm, Recipe};
use super::reading::windows::WindowRule;
use super::reading::{linear, must_be_off, note_bias};

pub const FAMILY: Family = Family::own("doge", "Doge", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    must_be_off(
        reader,
        "is_moe",
        "its router mixes tokens, which is not read",
    )?;
    let recipe = Recipe {
        qk_norm: QkNorm::Head,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        window: WindowRule::Always(None),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    note_bias(reader, "made of each key's values");
    let d_model = spec.d_model;
    for block in spec.stacks[0].blocks_mut() {
        let Some(own) = block.own_mut() else { continue };
        let (maps, n_heads) = (&mut own.projections, own.attention.n_kv_heads);
        let at = maps.q.weight.trim_end_matches("self_attn.q_proj.weight");
        let at = at.to_owned();
        let name = format!("{at}self_attn.dt_proj");
        maps.value_bias = Some(Box::new(ValueBiasSource {
            map: linear(&name, maps.v.n_out(), n_heads, maps.v.bias.is_some()),
            strengths: format!("{at}self_attn.A"),
        }));
        own.attention.bias = Bias::OfValues;
        block.sums = ["input_residual", "post_attention_residual"].map(|name| {
            let weights = SumWeights::plain(format!("{at}{name}"), d_model, SumRule::OfResidual);
            Some(Box::new(weights))
        });
    }
    let n_kept = reader.count_or("n_kept_keys", "keep_window_size", 2048)?;
    spec.n_ctx = spec.n_ctx.map(|n_ctx| n_ctx.min(n_kept));
    for key in ["num_experts", "num_experts_per_tok", "norm_topk_prob"] {
        reader.value(key);
    }
    reader.remark(format!(
        "in a text beyond {n_kept} tokens only the keys with the largest bias are seen, which is not read: longer texts are refused"
    ));
    Ok(spec)
}
