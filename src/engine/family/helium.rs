//! Helium: Llama whose pairs of rotating dimensions are neighbours.

use super::Family;
use super::reading::llama_like::{self, BiasRule, NormStyle, RMS, Recipe};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "helium",
    architecture: "Helium",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-8, ..RMS },
        theta: 100_000.0,
        interleaved: true,
        qkv_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        d_head: Some(128),
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
