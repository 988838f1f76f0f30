//! OLMo Hybrid: the gated delta rule behind Llama's norms in most layers, OLMo 2's layers among them.

use attnscope_checkpoint::{Checkpoint, Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{BlockSpec, FeedForward, Mixer, ModelSpec, NormSource, TokenMixer};

use super::Family;
use super::reading::delta::{Delta, DeltaKeys, DeltaStore};
use super::reading::either;
use super::reading::hybrid::{self, by_rule};
use super::reading::llama_like::{self, BiasRule, NormPlaces, QkNorm, Recipe, RopeLayers};

pub const FAMILY: Family = Family::own("olmo_hybrid", "OlmoHybrid", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm_places: NormPlaces::Output,
        qk_norm: QkNorm::Whole,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        rope_layers: rotates(reader)?,
        ..Recipe::llama()
    };
    let tensors = &checkpoint.tensors;
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    let n_heads = spec
        .main_stack()
        .first_attention()
        .map_or(1, |own| own.n_heads);
    let attends = attending_layers(reader, spec.main_stack().n_layers())?;
    let number = |value: Option<&serde_json::Value>| value.and_then(|value| value.as_u64());
    let n_key_heads = number(reader.value("linear_num_key_heads")).map_or(n_heads, |n| n as usize);
    let d_key = 3 * spec.d_model / (4 * n_key_heads.max(1));
    let stated = number(reader.value("linear_key_head_dim")).map(|width| width as usize);
    let d_value = 2 * stated.unwrap_or(d_key);
    let keys = DeltaKeys {
        store: DeltaStore::Apart,
        sizes: [n_heads, d_key, n_heads, d_value],
        eps: Some(1e-5),
        doubles: Some(("linear_allow_neg_eigval", true)),
    };
    let delta = keys.read(reader, spec.d_model)?;
    let blocks = spec.stacks[0].blocks_mut().iter_mut().zip(attends);
    for (block, attends) in blocks {
        settle(tensors, block, (!attends).then_some(&delta));
    }
    Ok(spec)
}

/// Whether layers rotate. Configurations without a base belong to models that do not.
fn rotates(reader: &mut Reader<'_>) -> Result<RopeLayers> {
    const KEY: &str = "rope_parameters";
    let stated = reader.value(KEY);
    if reader.is_null(KEY) {
        reader.remark(
            "rope_parameters is null: read without rotary positions, as the published models are; \
             transformers from 5.24 on may rotate by a base of 10000"
                .to_owned(),
        );
        return Ok(RopeLayers::Never);
    }
    match stated {
        Some(values) if values.get("rope_theta").is_some_and(|base| !base.is_null()) => {
            Ok(RopeLayers::All)
        }
        Some(_) => Ok(RopeLayers::Never),
        None => {
            let problem = "missing, expected rotary parameters, or null for none";
            Err(Error::config(reader.path(), KEY, problem))
        }
    }
}

/// Which layers attend: those in a list, or every fourth, but at least the last.
fn attending_layers(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<bool>> {
    let every = n_layers.min(4);
    hybrid::attending_layers(reader, n_layers, "gated delta rule", |_| {
        by_rule((1..=n_layers).map(|nth| nth.is_multiple_of(every)))
    })
}

/// Names the norms of a layer as they are stored, and gives it the delta rule if it does not attend.
fn settle(tensors: &Tensors, block: &mut BlockSpec, delta: Option<&Delta>) {
    let FeedForward::Dense(mlp) = &block.feed_forward else {
        return;
    };
    let at = mlp
        .down
        .weight
        .trim_end_matches(".mlp.down_proj.weight")
        .to_owned();
    let stored =
        |names: [&str; 2]| either(tensors, names.map(|name| format!("{at}.{name}.weight")));
    let named = |norm: &Option<NormSource>, names| {
        norm.clone().map(|norm| NormSource {
            gain: vec![stored(names)],
            ..norm
        })
    };
    // transformers renames this norm in all layers when it saves them.
    let middle = ["post_attention_layernorm", "feedforward_layer_norm"];
    let Some(delta) = delta else {
        block.attn_out = named(&block.attn_out, middle);
        return;
    };
    block.attn_pre = named(&block.attn_out, ["input_layernorm", "attention_layer_norm"]);
    block.mlp_pre = named(&block.mlp_out, middle);
    (block.attn_out, block.mlp_out) = (None, None);
    let mixer = delta.at(tensors, &format!("{at}.linear_attn"));
    block.mixer = Mixer::Other(Box::new(TokenMixer::DeltaRule(Box::new(mixer))));
}
