//! Seed-OSS: Llama with biases of queries, keys and values, and a switch of its own for that of the output.

use super::Family;
use super::reading::llama_like::{self, BiasRule, Recipe};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "seed_oss",
    architecture: "SeedOss",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        qkv_bias: BiasRule::Key("attention_bias", true),
        o_bias: BiasRule::Key("attention_out_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        d_head: Some(128),
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
