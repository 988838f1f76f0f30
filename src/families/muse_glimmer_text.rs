//! The text part of Muse Glimmer: Gemma 2's norms, gates of heads, queries scaled behind their norm, and rotation in some layers.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, NormSource};

use super::reading::llama_like::{
    self, BiasRule, FactorRule, NormPlaces, NormStyle, QkNorm, RMS, Recipe, ScorePower,
};
use super::reading::windows::WindowRule;
use super::{Family, muse_spark_text};

pub const FAMILY: Family = Family::own("muse_glimmer_text", "MuseGlimmerText", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
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
        activation: ("hidden_activation", "silu"),
        logit_scale: FactorRule::Key("output_multiplier", 0.196_116_135_138_184_04),
        logit_cap: Some(("final_logit_softcapping", 20.0)),
        score_factor: Some(("qk_scale_factor", ScorePower::OverRoot)),
        head_gate: Some("gate_proj"),
        window: WindowRule::MustList {
            width: 2048,
            has_mixers: false,
        },
        d_head: Some(128),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    let post_eps = reader.number_or("output_norm_eps", "post_norm_eps", 1e-8)?;
    muse_spark_text::set_rotating(reader, &mut spec)?;
    let stack = &mut spec.stacks[0];
    for block in stack.blocks_mut() {
        let behind = [&mut block.attn_out, &mut block.mlp_out];
        behind
            .into_iter()
            .flatten()
            .for_each(|norm| norm.eps = post_eps as f32);
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
