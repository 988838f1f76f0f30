//! OLMo 2: Llama with norms on the output of each branch, and of whole queries and keys.

use super::Family;
use super::reading::llama_like::{self, BiasRule, NormPlaces, NormStyle, QkNorm, RMS, Recipe};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "olmo2",
    architecture: "Olmo2",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        norm_places: NormPlaces::Output,
        qk_norm: QkNorm::Whole,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
