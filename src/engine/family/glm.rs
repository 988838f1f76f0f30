//! GLM 4: Llama with half of each head rotating in interleaved pairs, and gate and up in one tensor.

use super::Family;
use super::reading::llama_like::{self, BiasRule, MlpStore, NormStyle, RMS, Recipe};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "glm",
    architecture: "Glm",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle {
            eps: 1.5625e-7,
            ..RMS
        },
        rotary_share: Some(0.5),
        interleaved: true,
        qkv_bias: BiasRule::Key("attention_bias", true),
        mlp: MlpStore::FusedGated,
        d_head: Some(128),
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
