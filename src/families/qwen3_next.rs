//! Qwen3-Next: the gated delta rule in most layers, attention whose heads have gates in the others, and experts.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{BlockSpec, LinearSource, ModelSpec, Part, TokenMixer};

use super::Family;
use super::reading::delta::{DeltaKeys, DeltaStore};
use super::reading::hybrid::{self, replace};
use super::reading::llama_like::{
    self, BiasRule, ExpertsKeys, NormStyle, QkNorm, RMS, Recipe, SharedKeys, SharedWidth,
    SparseLayers,
};

pub const FAMILY: Family = Family::own("qwen3_next", "Qwen3Next", read);

/// The experts of Qwen3-Next, in layers that the configuration names.
pub(super) const EXPERTS: ExpertsKeys = ExpertsKeys {
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
    let experts = has_experts.then_some(EXPERTS);
    let family = FAMILY.model_type;
    read_as(family, checkpoint, reader, (experts, DeltaStore::ByKeyHead))
}

/// Reads Qwen3-Next or a family that differs from it in its experts and in how the maps of the delta rule are stored.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_as(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    (experts, store): (Option<ExpertsKeys>, DeltaStore),
) -> Result<ModelSpec> {
    let recipe = recipe(experts);
    let tensors = &checkpoint.tensors;
    let mut spec = llama_like::read(family, checkpoint, reader, &recipe)?;
    let attends = attending_layers(reader, spec.main_stack().n_layers())?;
    let keys = DeltaKeys {
        store,
        ..DeltaKeys::QWEN
    };
    let delta = keys.read(reader, spec.d_model)?;
    for block in spec.stacks[0].blocks_mut() {
        gate_heads(block);
    }
    replace(&mut spec, &attends, ".input_layernorm.weight", |at| {
        TokenMixer::DeltaRule(Box::new(delta.at(tensors, &format!("{at}.linear_attn"))))
    });
    Ok(spec)
}

/// What its attention and its norms share with other families.
pub(super) fn recipe(experts: Option<ExpertsKeys>) -> Recipe {
    Recipe {
        d_head: Some(256),
        rotary_share: Some(0.25),
        norm: NormStyle {
            adds_one: true,
            ..RMS
        },
        qk_norm: QkNorm::Head,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        experts,
        ..Recipe::llama()
    }
}

/// Which layers attend: those in a list, or every n-th.
fn attending_layers(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<bool>> {
    const EVERY: &str = "full_attention_interval";
    hybrid::attending_layers(reader, n_layers, "gated delta rule", |reader| {
        let default = Origin::Default(EVERY.to_owned());
        let every = reader.size_or("attends_every", EVERY, 4, default)?;
        let attends = (1..=n_layers).map(|nth| nth.is_multiple_of(every));
        Ok((attends.collect(), Origin::Derived(EVERY.to_owned())))
    })
}

/// Splits the gate of each head from the fused query weights.
pub(super) fn gate_heads(block: &mut BlockSpec) {
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
