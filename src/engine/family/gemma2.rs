//! Gemma 2: Gemma with norms around both branches, caps on scores and logits, windows on every second layer.

use super::Family;
use super::reading::llama_like::{
    self, BiasRule, FactorRule, NormPlaces, NormStyle, RMS, Recipe, ScorePower,
};
use super::reading::windows::WindowRule;
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "gemma2",
    architecture: "Gemma2",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle {
            adds_one: true,
            ..RMS
        },
        norm_places: NormPlaces::Around,
        embed_scale: FactorRule::RootWidth,
        activation: ("hidden_activation", "gelu_pytorch_tanh"),
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        is_tied: true,
        d_head: Some(256),
        score_factor: Some(("query_pre_attn_scalar", ScorePower::InverseRoot)),
        caps: Some([
            ("attn_logit_softcapping", 50.0),
            ("final_logit_softcapping", 30.0),
        ]),
        window: WindowRule::AllBut {
            every: 2,
            every_key: None,
            width: 4096,
        },
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
