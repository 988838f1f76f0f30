//! Command R: side-by-side branches under one layer norm without bias, interleaved rotation, scaled logits.

use super::Family;
use super::reading::llama_like::{
    self, BiasRule, FactorRule, NormPlaces, NormStyle, QkNorm, RMS, Recipe,
};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;
use crate::ops::NormKind;

pub const FAMILY: Family = Family {
    model_type: "cohere",
    architecture: "Cohere",
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
        theta: 500_000.0,
        qk_norm: QkNorm::OwnGainsIf("use_qk_norm"),
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
