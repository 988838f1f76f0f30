//! Kimi Linear: the delta rule with decays by channel in most layers, latent attention without positions, DeepSeek V3's experts.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::recurrent::{DeltaRule, GateOrder, NormGate};
use attnscope_compute::ops::Activation;
use attnscope_spec::mixers::{DeltaRuleSpec, GatedNormSource, ShortConvolution};
use attnscope_spec::{BlockSpec, FeedForward, ModelSpec, TokenMixer};
use serde_json::Value;

use super::reading::delta::kernels;
use super::reading::expected::{Expected, check};
use super::reading::experts::{NUMBERED, USUAL, gated};
use super::reading::hybrid::{self, by_rule, layer_of, replace};
use super::reading::latent::{self, LatentLike};
use super::reading::llama_like::{
    BiasRule, ExpertStore, ExpertsKeys, SharedKeys, SharedWidth, SparseLayers,
};
use super::reading::{activation_named, linear};
use super::{Family, deepseek_v3};

pub const FAMILY: Family = Family::own("kimi_linear", "KimiLinear", read);

const SUFFIX: &str = ".input_layernorm.weight";

const EXPERTS: ExpertsKeys = ExpertsKeys {
    at: "block_sparse_moe",
    store: ExpertStore::Each(NUMBERED),
    n_experts: ["num_experts", "num_local_experts"],
    n_used: "num_experts_per_token",
    groups: None,
    normalises: BiasRule::Key("moe_renormalize", true),
    scale: Some(("routed_scaling_factor", 2.446)),
    shared: Some(SharedKeys {
        width: SharedWidth::Times("num_shared_experts", 1),
        ..deepseek_v3::SHARED
    }),
    layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 1),
    ..deepseek_v3::EXPERTS
};

const EXPECTED: [(&str, Expected); 4] = [
    ("num_expert_group", Expected::Number(1)),
    ("moe_router_activation_func", Expected::Word("sigmoid")),
    ("moe_layer_freq", Expected::Number(1)),
    ("mla_use_nope", Expected::Flag(true)),
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    check(reader, &EXPECTED)?;
    let like = LatentLike {
        experts: EXPERTS,
        is_unrotated: true,
        sharpens: false,
        eps: 1e-5,
        ..LatentLike::PLAIN
    };
    let mut spec = latent::read(FAMILY.model_type, checkpoint, reader, like)?;
    let tensors = &checkpoint.tensors;
    let attends = attending_layers(reader, spec.main_stack().n_layers())?;
    let delta = Delta::read(reader, spec.d_model, 32)?;
    for block in spec.stacks[0].blocks_mut() {
        name_dense(tensors, block);
    }
    replace(&mut spec, &attends, SUFFIX, |at| {
        TokenMixer::DeltaRule(Box::new(delta.at(tensors, &format!("{at}.self_attn"))))
    });
    Ok(spec)
}

/// Names the maps of a layer without experts as transformers saves them, if they are stored so.
fn name_dense(tensors: &Tensors, block: &mut BlockSpec) {
    let at = format!("{}.{}", layer_of(block, SUFFIX), EXPERTS.at);
    let FeedForward::Dense(mlp) = &mut block.feed_forward else {
        return;
    };
    if tensors.contains(&format!("{at}.{}.weight", USUAL.down)) {
        let (n_in, n_out) = (mlp.up.n_in, mlp.up.n_out());
        **mlp = gated(&at, USUAL, n_in, n_out, mlp.activation, false);
    }
}

/// Which layers attend: those in a list of words, or in a list of numbers from 1; otherwise every fourth from the fifth on.
fn attending_layers(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<bool>> {
    const INSIDE: &str = "linear_attn_config";
    const ATTENDING: &str = "full_attn_layers";
    let listed = reader
        .value(INSIDE)
        .and_then(|inside| inside.get(ATTENDING));
    hybrid::attending_layers(reader, n_layers, "gated delta rule", |reader| {
        let Some(listed) = listed else {
            return by_rule((0..n_layers).map(|idx| idx > 0 && idx.is_multiple_of(4)));
        };
        let key = format!("{INSIDE}.{ATTENDING}");
        let numbers = listed.as_array().map(|list| list.iter().map(Value::as_u64));
        let numbers: Option<Vec<u64>> = numbers.and_then(|numbers| numbers.collect());
        let Some(numbers) = numbers else {
            let problem = format!("expected numbers of layers from 1, found {listed}");
            return Err(Error::config(reader.path(), key, problem));
        };
        let attends = (1..=n_layers as u64).map(|nth| numbers.contains(&nth));
        Ok((attends.collect(), Origin::Key(key)))
    })
}

/// What all layers of the delta rule share.
pub(super) struct Delta {
    pub d_model: usize,
    pub n_heads: usize,
    pub d_head: usize,
    pub n_tokens: usize,
    pub activation: Activation,
    pub eps: f64,
}

impl Delta {
    /// Reads the keys; `n_heads` is the number of heads if none is stated.
    pub fn read(reader: &mut Reader<'_>, d_model: usize, n_heads: usize) -> Result<Self> {
        let inside = reader.part("linear_attn_config");
        let mut part = Reader::new(&inside);
        let mut size = |knob, inner: &str, outer: &str, default| {
            if part.is_stated(inner) {
                return part.size(knob, inner);
            }
            let origin = Origin::Default(outer.to_owned());
            reader.size_or(knob, outer, default, origin)
        };
        let n_heads = size(
            "mixer_value_heads",
            "num_heads",
            "linear_num_heads",
            n_heads,
        )?;
        let d_head = size("mixer_value_width", "head_dim", "linear_head_dim", 128)?;
        let n_tokens = size(
            "conv_width",
            "short_conv_kernel_size",
            "linear_conv_kernel_dim",
            4,
        )?;
        for list in ["full_attn_layers", "kda_layers"] {
            part.value(list);
        }
        reader.absorb("linear_attn_config", part);
        let eps = reader.value("rms_norm_eps").and_then(Value::as_f64);
        let name = reader.value("hidden_act").and_then(Value::as_str);
        Ok(Self {
            d_model,
            n_heads,
            d_head,
            n_tokens,
            activation: activation_named(reader, "hidden_act", name.unwrap_or("silu"))?,
            eps: eps.unwrap_or(1e-5),
        })
    }

    /// One layer, under its names here: narrow maps in front of those of gates and steps.
    pub fn at(&self, tensors: &Tensors, at: &str) -> DeltaRuleSpec {
        let (n_heads, d_head) = (self.n_heads, self.d_head);
        let n = n_heads * d_head;
        let map = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, false);
        let wide = |name: &str| map(name, self.d_model, n);
        DeltaRuleSpec {
            q: wide("q_proj"),
            k: wide("k_proj"),
            v: wide("v_proj"),
            gate: map("g_b_proj", d_head, n),
            narrow_gate: Some(Box::new(map("g_a_proj", self.d_model, d_head))),
            strength: map("b_proj", self.d_model, n_heads),
            steps: map("f_b_proj", d_head, n),
            narrow_steps: Some(Box::new(map("f_a_proj", self.d_model, d_head))),
            convolution: ShortConvolution {
                kernels: kernels(tensors, at, [n; 3]),
                bias: None,
                n_channels: 3 * n,
                n_tokens: self.n_tokens,
                over_grid: false,
            },
            activation: self.activation,
            heads: DeltaRule {
                n_key_heads: n_heads,
                d_key: d_head,
                n_value_heads: n_heads,
                d_value: d_head,
                by_channel: true,
                is_tiled: false,
            },
            strength_scale: 1.0,
            log_decay: format!("{at}.A_log"),
            log_decay_shape: vec![1, 1, n_heads, 1],
            log_bound: None,
            step_bias: format!("{at}.dt_bias"),
            norm: GatedNormSource {
                gain: format!("{at}.o_norm.weight"),
                n_stored: d_head,
                order: GateOrder::NormFirst,
                gate: NormGate::Sigmoid,
                width: d_head,
                eps: self.eps as f32,
            },
            o: map("o_proj", n, self.d_model),
        }
    }
}
