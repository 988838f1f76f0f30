//! Lara Mini: the gated delta rule in some layers, Qwen3's attention in the others, which rotates where it has a window; experts.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, TokenMixer};

use super::reading::delta::{DeltaKeys, DeltaStore};
use super::reading::hybrid::{attending_layers, by_rule, replace};
use super::reading::llama_like::{self, BiasRule, ExpertsKeys, QkNorm, Recipe, RopeLayers};
use super::reading::windows::WindowRule;
use super::{Family, flint};

pub const FAMILY: Family = Family::own("lara_mini", "LaraMini", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        qk_norm: QkNorm::Head,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        rope_layers: RopeLayers::Windowed,
        window: WindowRule::MustList {
            width: 512,
            has_mixers: true,
        },
        is_tied: true,
        d_head: Some(128),
        experts: Some(ExpertsKeys {
            normalises: BiasRule::Key("norm_topk_prob", true),
            shared: Some(flint::SHARED),
            ..ExpertsKeys::PLAIN
        }),
        ..Recipe::llama()
    };
    let tensors = &checkpoint.tensors;
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    let n_layers = spec.main_stack().n_layers();
    let attends = attending_layers(reader, n_layers, "gated delta rule", |_| {
        by_rule(std::iter::repeat_n(true, n_layers))
    })?;
    let keys = DeltaKeys {
        store: DeltaStore::Whole,
        sizes: [8, 128, 16, 128],
        ..DeltaKeys::QWEN
    };
    let delta = keys.read(reader, spec.d_model)?;
    replace(&mut spec, &attends, ".input_layernorm.weight", |at| {
        TokenMixer::DeltaRule(Box::new(delta.at(tensors, &format!("{at}.linear_attn"))))
    });
    Ok(spec)
}
