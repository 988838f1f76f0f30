//! Falcon-H1: attention and the state space of Mamba-2 side by side in every layer, each map with a stated factor.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::recurrent::GateOrder;
use attnscope_spec::{FeedForward, LinearSource, ModelSpec, TokenMixer};

use super::Family;
use super::reading::activation_named;
use super::reading::hybrid::layer_of;
use super::reading::llama_like::{
    self, BiasRule, BlockNames, FactorRule, NormPlaces, NormStyle, RMS, Recipe,
};
use super::reading::state_space::{NormRule, StateSpaceSizes};

pub const FAMILY: Family = Family::own("falcon_h1", "FalconH1", read);

const EPS: f64 = 1e-5;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle { eps: EPS, ..RMS },
        norm_places: NormPlaces::BeforeNamed(["input_layernorm", "pre_ff_layernorm"]),
        names: BlockNames {
            final_norm: "final_layernorm",
            mlp: "feed_forward",
            ..BlockNames::USUAL
        },
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        embed_scale: FactorRule::Key("embedding_multiplier", 1.0),
        logit_scale: FactorRule::Key("lm_head_multiplier", 1.0),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    let mixer = state_space(reader, spec.d_model)?;
    let mut factor = |knob, key: &str| reader.number_or(knob, key, 1.0).map(|v| v as f32);
    let attn_in = factor("attention_in_scale", "attention_in_multiplier")?;
    let key = factor("key_scale", "key_multiplier")?;
    let attn_out = factor("attention_out_scale", "attention_out_multiplier")?;
    let [of_gate, of_down] = factors(reader, "mlp_multipliers")?;
    let scale = |linear: &mut LinearSource, input, output| {
        *linear = linear.clone().scaled(input, output);
    };
    for block in spec.stacks[0].blocks_mut() {
        let at = layer_of(block, ".input_layernorm.weight");
        block.parallel_mixer = Some(Box::new(TokenMixer::StateSpace(Box::new(
            mixer.at(&format!("{at}.mamba")),
        ))));
        if let FeedForward::Dense(mlp) = &mut block.feed_forward {
            mlp.gate
                .iter_mut()
                .for_each(|gate| scale(gate, 1.0, of_gate));
            scale(&mut mlp.down, 1.0, of_down);
        }
        if let Some(own) = block.own_mut() {
            let maps = &mut own.projections;
            scale(&mut maps.q, attn_in, 1.0);
            scale(&mut maps.k, attn_in, key);
            scale(&mut maps.v, attn_in, 1.0);
            scale(&mut maps.o, 1.0, attn_out);
        }
    }
    let said = "all, with a state space (Mamba-2) beside attention in every layer";
    reader.note("attending_layers", said, Origin::Family);
    Ok(spec)
}

/// Sizes of the Mamba mixer, the same in every layer.
fn state_space(reader: &mut Reader<'_>, d_model: usize) -> Result<StateSpaceSizes> {
    let name = reader.value("hidden_act").and_then(|name| name.as_str());
    let activation = activation_named(reader, "hidden_act", name.unwrap_or("silu"))?;
    const WIDTH: &str = "mamba_d_ssm";
    let d_inner = if reader.is_null(WIDTH) {
        None
    } else {
        let default = Origin::Default(WIDTH.to_owned());
        Some(reader.size_or("mixer_width", WIDTH, 1024, default)?)
    };
    let sizes = StateSpaceSizes::read(reader, d_model, d_inner, activation)?;
    let eps = reader.value("rms_norm_eps").and_then(|eps| eps.as_f64());
    let norm = if reader.flag_or("mixer_norm", "mamba_rms_norm", false)? {
        let is_first = reader.flag_or("norm_before_gate", "mamba_norm_before_gate", true)?;
        Some(NormRule {
            order: if is_first {
                GateOrder::NormFirst
            } else {
                GateOrder::GateFirst
            },
            n_groups: sizes.n_groups,
            eps: eps.unwrap_or(EPS),
        })
    } else {
        None
    };
    let out_bias = reader.flag_or("mixer_out_bias", "projectors_bias", false)?;
    let input = reader.number_or("mixer_in_scale", "ssm_in_multiplier", 1.0)? as f32;
    let output = reader.number_or("mixer_out_scale", "ssm_out_multiplier", 1.0)? as f32;
    Ok(StateSpaceSizes {
        has_bias: [sizes.has_bias[0], out_bias],
        norm,
        factors: (factors(reader, "ssm_multipliers")?, [input, output]),
        ..sizes
    })
}

/// Reads a list of factors; all 1 if absent.
fn factors<const N: usize>(reader: &mut Reader<'_>, key: &str) -> Result<[f32; N]> {
    let Some(value) = reader.value(key) else {
        return Ok([1.0; N]);
    };
    let list = value.as_array();
    let numbers: Option<Vec<f32>> = list.and_then(|list| {
        let numbers = list.iter().map(|v| v.as_f64().map(|v| v as f32));
        numbers.collect()
    });
    numbers
        .and_then(|numbers| <[f32; N]>::try_from(numbers).ok())
        .ok_or_else(|| {
            let problem = format!("expected a list of {N} numbers, found {value}");
            Error::config(reader.path(), key, problem)
        })
}
