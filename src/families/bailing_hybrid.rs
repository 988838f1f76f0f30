//! Ling 3: the delta rule with bounded decays in most layers, latent attention with gated heads, DeepSeek V3's experts.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_spec::mixers::DeltaRuleSpec;
use attnscope_spec::{ModelSpec, TokenMixer};
use serde_json::Value;

use super::kimi_linear::Delta;
use super::reading::hybrid::{self, by_rule, replace};
use super::reading::latent::{self, LatentLike};
use super::reading::linear;
use super::reading::llama_like::{ExpertsKeys, SparseLayers};
use super::{Family, deepseek_v3};

pub const FAMILY: Family = Family::own("bailing_hybrid", "BailingHybrid", read);

const EXPERTS: ExpertsKeys = ExpertsKeys {
    layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 2),
    ..deepseek_v3::EXPERTS
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = LatentLike {
        experts: EXPERTS,
        head_gate: Some("g_proj"),
        ignores_head_dim: true,
        ..LatentLike::PLAIN
    };
    let mut spec = latent::read(FAMILY.model_type, checkpoint, reader, like)?;
    let n_layers = spec.main_stack().n_layers();
    const EVERY: &str = "layer_group_size";
    let default = Origin::Default(EVERY.to_owned());
    let every = reader.size_or("attends_every", EVERY, 6, default)?;
    let attends = hybrid::attending_layers(reader, n_layers, "gated delta rule", |_| {
        by_rule((1..=n_layers).map(|nth| nth.is_multiple_of(every)))
    })?;
    let (delta, log_bound) = delta_of(reader, spec.d_model)?;
    let tensors = &checkpoint.tensors;
    replace(&mut spec, &attends, ".input_layernorm.weight", |at| {
        let at = format!("{at}.self_attn");
        TokenMixer::DeltaRule(Box::new(layer_at(&delta, log_bound, tensors, &at)))
    });
    Ok(spec)
}

/// What all layers of the delta rule share, and how small the logarithm of a decay may be.
fn delta_of(reader: &mut Reader<'_>, d_model: usize) -> Result<(Delta, Option<f32>)> {
    let mut size = |knob, keys: [&'static str; 2], default: usize| {
        let key = if reader.value(keys[0]).is_some() {
            keys[0]
        } else {
            keys[1]
        };
        reader.size_or(knob, key, default, Origin::Default(key.to_owned()))
    };
    let heads = ["linear_num_heads", "num_attention_heads"];
    let n_heads = size("mixer_value_heads", heads, 32)?;
    let d_head = size("mixer_value_width", ["linear_head_dim", "head_dim"], 128)?;
    let kernel = ["linear_conv_kernel_dim", "short_conv_kernel_size"];
    let n_tokens = size("conv_width", kernel, 4)?;
    let bound = reader.number_or("log_decay_bound", "kda_lower_bound", -5.0)?;
    let is_bounded = reader.flag_or("bounds_decay", "kda_safe_gate", true)?;
    let eps = reader.value("rms_norm_eps").and_then(Value::as_f64);
    let delta = Delta {
        d_model,
        n_heads,
        d_head,
        n_tokens,
        activation: Activation::Silu,
        eps: eps.unwrap_or(1e-6),
    };
    Ok((delta, is_bounded.then_some(bound as f32)))
}

/// One layer: Kimi Linear's, with whole maps for gates and steps, and decays beside their map.
fn layer_at(delta: &Delta, log_bound: Option<f32>, tensors: &Tensors, at: &str) -> DeltaRuleSpec {
    let n = delta.n_heads * delta.d_head;
    let wide = |name: &str| linear(&format!("{at}.{name}"), delta.d_model, n, false);
    DeltaRuleSpec {
        gate: wide("g_proj"),
        narrow_gate: None,
        steps: wide("forget_gate.f_proj"),
        narrow_steps: None,
        log_decay: format!("{at}.forget_gate.A_log"),
        log_decay_shape: vec![delta.n_heads],
        log_bound,
        step_bias: format!("{at}.forget_gate.dt_bias"),
        ..delta.at(tensors, at)
    }
}
