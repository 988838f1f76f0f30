//! GLM 4 of 2025: GLM with norms around both branches.

use super::Family;
use super::reading::llama_like::{self, BiasRule, MlpStore, NormPlaces, NormStyle, RMS, Recipe};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "glm4",
    architecture: "Glm4",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle {
            eps: 1.5625e-7,
            ..RMS
        },
        norm_places: NormPlaces::AroundByBranch,
        rotary_share: Some(0.5),
        interleaved: true,
        qkv_bias: BiasRule::Key("attention_bias", false),
        mlp: MlpStore::FusedGated,
        d_head: Some(128),
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
