//! Command R7B: Command R with windows on three layers of four, and no rotation on the fourth.

use super::Family;
use super::reading::llama_like::{
    self, BiasRule, FactorRule, NormPlaces, NormStyle, RMS, Recipe, RopeLayers,
};
use super::reading::windows::WindowRule;
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;
use crate::ops::NormKind;

pub const FAMILY: Family = Family {
    model_type: "cohere2",
    architecture: "Cohere2",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle {
            kind: NormKind::LayerNorm,
            eps_key: Some("layer_norm_eps"),
            eps: 1e-5,
            ..RMS
        },
        norm_places: NormPlaces::Shared,
        interleaved: true,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        is_tied: true,
        logit_scale: FactorRule::Key("logit_scale", 0.0625),
        rope_layers: RopeLayers::Windowed,
        window: WindowRule::AllBut {
            every: 4,
            every_key: Some("sliding_window_pattern"),
            width: 4096,
        },
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
