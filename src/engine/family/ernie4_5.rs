//! ERNIE 4.5: Llama whose pairs of rotating dimensions are neighbours, with one switch for all biases.

use super::Family;
use super::reading::llama_like::{self, BiasRule, NormStyle, RMS, Recipe};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "ernie4_5",
    architecture: "Ernie4_5",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        theta: 500_000.0,
        interleaved: true,
        qkv_bias: BiasRule::Key("use_bias", false),
        o_bias: BiasRule::Key("use_bias", false),
        mlp_bias: BiasRule::Key("use_bias", false),
        is_tied: true,
        d_head: Some(128),
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
