//! Qwen3-Next: the gated delta rule in most layers, attention whose heads have gates in the others, and experts.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::kernels::recurrent::{DeltaRule, GateOrder};
use attnscope_compute::ops::Activation;
use attnscope_spec::mixers::{DeltaRuleSpec, GatedNormSource, ShortConvolution};
use attnscope_spec::{BlockSpec, LinearSource, ModelSpec, Part, TokenMixer};

use super::Family;
use super::reading::hybrid::{attending, check_divides, note_attending, replace, split};
use super::reading::llama_like::{
    self, BiasRule, ExpertsKeys, NormStyle, QkNorm, RMS, Recipe, SharedKeys, SharedWidth,
    SparseLayers,
};
use super::reading::{activation_named, linear};

pub const FAMILY: Family = Family::own("qwen3_next", "Qwen3Next", read);

const EXPERTS: ExpertsKeys = ExpertsKeys {
    shared: Some(SharedKeys {
        name: "shared_expert",
        width: SharedWidth::Key("shared_expert_intermediate_size"),
        gate: Some("shared_expert_gate"),
    }),
    normalises: BiasRule::Key("norm_topk_prob", true),
    layers: SparseLayers::Stepped,
    ..ExpertsKeys::PLAIN
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let has_experts = reader.count_or("n_experts", "num_experts", 512)? > 0;
    reader.forget(&["n_experts"]);
    let recipe = Recipe {
        d_head: Some(256),
        rotary_share: Some(0.25),
        norm: NormStyle {
            adds_one: true,
            ..RMS
        },
        qk_norm: QkNorm::Head,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        experts: has_experts.then_some(EXPERTS),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    let attends = attending_layers(reader, spec.main_stack().n_layers())?;
    let delta = Delta::read(reader, spec.d_model)?;
    for block in spec.stacks[0].blocks_mut() {
        gate_heads(block);
    }
    replace(&mut spec, &attends, ".input_layernorm.weight", |at| {
        TokenMixer::DeltaRule(delta.at(&format!("{at}.linear_attn")))
    });
    Ok(spec)
}

/// Which layers attend: those in a list, or every n-th.
fn attending_layers(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<bool>> {
    const TYPES: &str = "layer_types";
    const EVERY: &str = "full_attention_interval";
    let (attends, origin) = match reader.words_by_layer(TYPES, n_layers)? {
        Some(words) => {
            let attends = attending(reader, TYPES, &words)?;
            (attends, Origin::Key(TYPES.to_owned()))
        }
        None => {
            let default = Origin::Default(EVERY.to_owned());
            let every = reader.size_or("attends_every", EVERY, 4, default)?;
            let attends = (1..=n_layers).map(|nth| nth.is_multiple_of(every));
            (attends.collect(), Origin::Derived(EVERY.to_owned()))
        }
    };
    note_attending(reader, &attends, "gated delta rule", origin);
    Ok(attends)
}

/// Splits the gate of each head from the fused query weights.
fn gate_heads(block: &mut BlockSpec) {
    let Some(own) = block.own_mut() else { return };
    let (n_heads, d_head) = (own.attention.n_heads, own.attention.d_head);
    let q = &own.projections.q;
    let whole = LinearSource::whole(
        q.weight.clone(),
        q.bias.clone(),
        q.n_in,
        2 * n_heads * d_head,
    );
    let [q, gate] = [0, d_head].map(|offset| {
        whole.clone().part(Part {
            group: 2 * d_head,
            offset,
            len: d_head,
        })
    });
    own.projections.q = q;
    own.projections.gate = Some(gate);
}

/// Settings that all delta-rule layers share.
struct Delta {
    heads: DeltaRule,
    d_model: usize,
    n_tokens: usize,
    activation: Activation,
    eps: f64,
}

impl Delta {
    fn read(reader: &mut Reader<'_>, d_model: usize) -> Result<Self> {
        let mut size = |knob, key: &str, default| {
            let origin = Origin::Default(key.to_owned());
            reader.size_or(knob, key, default, origin)
        };
        let heads = DeltaRule {
            n_key_heads: size("mixer_key_heads", "linear_num_key_heads", 16)?,
            d_key: size("mixer_key_width", "linear_key_head_dim", 128)?,
            n_value_heads: size("mixer_value_heads", "linear_num_value_heads", 32)?,
            d_value: size("mixer_value_width", "linear_value_head_dim", 128)?,
        };
        let n_tokens = size("conv_width", "linear_conv_kernel_dim", 4)?;
        let key = "linear_num_key_heads";
        check_divides(reader, key, heads.n_key_heads, heads.n_value_heads)?;
        let eps = reader.value("rms_norm_eps").and_then(|eps| eps.as_f64());
        Ok(Self {
            heads,
            d_model,
            n_tokens,
            activation: {
                let name = reader.value("hidden_act").and_then(|name| name.as_str());
                activation_named(reader, "hidden_act", name.unwrap_or("silu"))?
            },
            eps: eps.unwrap_or(RMS.eps),
        })
    }

    fn at(&self, at: &str) -> DeltaRuleSpec {
        let heads = self.heads;
        let per_key = heads.n_value_heads / heads.n_key_heads;
        let values = per_key * heads.d_value;
        let fused = |name: &str, n_out| linear(&format!("{at}.{name}"), self.d_model, n_out, false);
        // Per key head: its query, its key, its values, their gates.
        let widths = [heads.d_key, heads.d_key, values, values];
        let n_out = widths.iter().sum::<usize>() * heads.n_key_heads;
        let [q, k, v, gate] = split(&fused("in_proj_qkvz", n_out), widths);
        let in_proj_ba = fused("in_proj_ba", 2 * heads.n_value_heads);
        let [strength, steps] = split(&in_proj_ba, [per_key; 2]);
        let n_values = heads.n_value_heads * heads.d_value;
        DeltaRuleSpec {
            q,
            k,
            v,
            gate,
            strength,
            steps,
            convolution: ShortConvolution {
                kernel: format!("{at}.conv1d.weight"),
                bias: None,
                n_channels: 2 * heads.n_key_heads * heads.d_key + n_values,
                n_tokens: self.n_tokens,
            },
            activation: self.activation,
            heads,
            log_decay: format!("{at}.A_log"),
            step_bias: format!("{at}.dt_bias"),
            norm: GatedNormSource {
                gain: format!("{at}.norm.weight"),
                n_stored: heads.d_value,
                order: GateOrder::NormFirst,
                width: heads.d_value,
                eps: self.eps as f32,
            },
            o: linear(&format!("{at}.out_proj"), n_values, self.d_model, false),
        }
    }
}
