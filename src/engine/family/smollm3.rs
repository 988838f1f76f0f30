//! SmolLM 3: Llama in which every fourth layer does not rotate.

use super::Family;
use super::reading::llama_like::{self, BiasRule, Recipe, RopeLayers};
use super::reading::windows::WindowRule;
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "smollm3",
    architecture: "SmolLM3",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        theta: 2e6,
        is_tied: true,
        rope_layers: RopeLayers::Listed("no_rope_layers", 4),
        window: WindowRule::WhereZero("no_rope_layers", 4),
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
