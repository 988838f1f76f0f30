//! The text part of Muse Spark: Muse Glimmer with sums that weigh each dimension, norms of heads, and experts on narrower vectors.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    BlockSpec, ExpertNorms, FeedForward, LinearSource, ModelSpec, NormSource, RouterScores,
    SumRule, SumWeights,
};
use serde_json::Value;

use super::Family;
use super::reading::llama_like::{
    self, BiasRule, ExpertsKeys, FactorRule, NormPlaces, NormStyle, QkNorm, RMS, Recipe,
    ScorePower, Sizes, SparseLayers,
};
use super::reading::windows::WindowRule;
use super::reading::{activation, experts, linear, rms_norm};

pub const FAMILY: Family = Family::own("muse_spark_text", "MuseSparkText", read);

const MULTIPLIER: f64 = 0.176_776_695_296_636_9;

const EXPERTS: ExpertsKeys = ExpertsKeys {
    n_experts: ["num_local_experts", "num_experts"],
    scores: RouterScores::Sigmoid,
    choice_bias: Some(("gate.e_score_correction_bias", false)),
    normalises: BiasRule::Always,
    scale: Some(("routed_scaling_factor", 1.0)),
    layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 0),
    ..ExpertsKeys::PLAIN
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let recipe = Recipe {
        norm: NormStyle {
            eps: 1e-5,
            adds_one: true,
            ..RMS
        },
        norm_places: NormPlaces::AROUND,
        qk_norm: QkNorm::Bare,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        logit_scale: FactorRule::Key("output_multiplier", MULTIPLIER),
        logit_cap: Some(("final_logit_softcapping", 20.0)),
        score_factor: Some(("qk_scale_factor", ScorePower::OverRoot)),
        head_gate: Some("gate_proj"),
        window: WindowRule::MustList {
            width: 2048,
            has_mixers: false,
        },
        d_head: Some(64),
        ..Recipe::llama()
    };
    let sizes = Sizes::read(reader, recipe.d_head)?;
    let (n_layers, d_model, d_head) = (sizes.n_layers, sizes.d_model, sizes.d_head);
    let act = activation(reader, recipe.activation.0, recipe.activation.1)?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let routed = EXPERTS.read(reader, tensors, n_layers)?;
    const WIDTH: &str = "moe_hidden_size";
    let default = Origin::Default(WIDTH.to_owned());
    let d_latent = reader.size_or("d_latent_experts", WIDTH, 4096, default)?;
    let multiplier = reader.number_or("router_scale", "output_multiplier", MULTIPLIER)?;
    let eps = reader.number_or("norm_eps", "rms_norm_eps", recipe.norm.eps)?;
    let post_eps = reader.number_or("output_norm_eps", "post_norm_eps", 1e-8)?;
    let mlp = |layer_idx: usize, at: &str| {
        let of_mlp = format!("{at}.mlp");
        if !routed.are_in(layer_idx) {
            let mlp = experts::gated(&of_mlp, experts::USUAL, d_model, d_mlp, act, false);
            return FeedForward::Dense(Box::new(mlp));
        }
        let mut layer = routed.of_layer(tensors, at, d_latent, (act, false));
        if let FeedForward::Experts(spec) = &mut layer {
            let n_experts = spec.router.n_out();
            let router = spec.router.weight.clone();
            spec.router = LinearSource::whole(router, None, d_model, n_experts)
                .scaled(1.0, multiplier as f32);
            let map =
                |name: &str, n_in, n_out| linear(&format!("{of_mlp}.{name}"), n_in, n_out, false);
            spec.latent = Some([
                map("pre_expert_proj", d_model, d_latent),
                map("post_expert_proj", d_latent, d_model),
            ]);
            let into = rms_norm(format!("{of_mlp}.pre_expert_norm.weight"), d_latent, eps);
            let mut out = NormSource {
                adds_one: true,
                ..rms_norm(
                    format!("{of_mlp}.experts.post_expert_norm.weight"),
                    d_latent,
                    post_eps,
                )
            };
            let factors = scales_first(&mut out);
            for expert in &mut spec.experts {
                let down = expert.down.clone();
                expert.down = factors
                    .iter()
                    .cloned()
                    .fold(down, LinearSource::times_one_plus);
            }
            spec.norms = Some(Box::new(ExpertNorms {
                into: NormSource {
                    adds_one: true,
                    ..into
                },
                out,
            }));
        }
        layer
    };
    let family = FAMILY.model_type;
    let mut spec = llama_like::read_with(family, checkpoint, reader, &recipe, sizes, &mlp)?;
    set_rotating(reader, &mut spec)?;
    let temperature = reader.number_or("sum_temperature", "residual_gate_temperature", 0.3)?;
    let rule = SumRule::Circle {
        temperature: temperature as f32,
        least: 1e-3,
    };
    let stack = &mut spec.stacks[0];
    for block in stack.blocks_mut() {
        settle(block, (d_model, d_head), (eps, post_eps), rule);
    }
    if let Some(last) = &mut stack.final_norm {
        last.adds_one = false;
    }
    stack.embed.norm = stack.final_norm.as_ref().map(|last| NormSource {
        gain: Vec::new(),
        ..last.clone()
    });
    Ok(spec)
}

/// Leaves the rotation to the layers whose entry in a list is not 0. Their base is that of the rotary parameters, whatever the list
/// says.
///
/// # Errors
/// When the list does not fit the layers.
pub(super) fn set_rotating(reader: &mut Reader<'_>, spec: &mut ModelSpec) -> Result<()> {
    const LIST: &str = "layer_rope_theta";
    let Some(value) = reader.value(LIST) else {
        return Ok(());
    };
    let blocks = spec.stacks[0].blocks_mut();
    let list = value.as_array();
    let bases: Option<Vec<f64>> = list.map(|list| list.iter().map_while(Value::as_f64).collect());
    let bases = bases.filter(|bases| bases.len() == blocks.len());
    let Some(bases) = bases else {
        let n = blocks.len();
        let problem = format!("expected {n} numbers, one per layer, found {value}");
        return Err(Error::config(reader.path(), LIST, problem));
    };
    let n = bases.iter().filter(|base| **base != 0.0).count();
    let said = format!("{n} of {}", bases.len());
    reader.note("rotating_layers", said, Origin::Key(LIST.to_owned()));
    for (block, base) in blocks.iter_mut().zip(bases) {
        if let Some(own) = block.own_mut().filter(|_| base == 0.0) {
            own.attention.rope = None;
        }
    }
    Ok(())
}

/// Takes the gain from a norm that multiplies its input by it, and gives its name: the map before the norm multiplies.
fn scales_first(norm: &mut NormSource) -> Option<String> {
    norm.adds_one = false;
    norm.gain.pop()
}

/// Gives a block its norms of outputs, the norm of its heads and the weights of its sums.
fn settle(
    block: &mut BlockSpec,
    (d_model, d_head): (usize, usize),
    (eps, post_eps): (f64, f64),
    rule: SumRule,
) {
    let layer = block.attn_out.as_mut().and_then(scales_first);
    let layer = layer.unwrap_or_default();
    let at = layer.trim_end_matches("post_attention_layernorm.weight");
    block.sums = ["attention", "feedforward"].map(|branch| {
        let tensor = format!("{at}post_{branch}_residual_gate.gate");
        Some(Box::new(SumWeights::plain(tensor, d_model, rule)))
    });
    let factors = block.mlp_out.as_mut().and_then(scales_first);
    if let Some(factors) = factors {
        let last = match &mut block.feed_forward {
            FeedForward::Dense(mlp) => Some(&mut mlp.down),
            FeedForward::Experts(experts) => experts.latent.as_mut().map(|[_, out]| out),
            FeedForward::None => None,
        };
        if let Some(map) = last {
            *map = map.clone().times_one_plus(factors);
        }
    }
    let behind = [&mut block.attn_out, &mut block.mlp_out];
    let behind = behind.into_iter().flatten();
    behind.for_each(|norm| norm.eps = post_eps as f32);
    if let Some(own) = block.own_mut() {
        own.projections.z_norm = Some(NormSource {
            gain: Vec::new(),
            ..rms_norm(String::new(), d_head, eps)
        });
        own.projections.norms_each_z = true;
    }
}
