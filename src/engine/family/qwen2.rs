//! Qwen2: Llama with biases of queries, keys and values; windows from some layer on, where they are switched on.

use super::Family;
use super::reading::llama_like::{self, BiasRule, Recipe};
use super::reading::windows::WindowRule;
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "qwen2",
    architecture: "Qwen2",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        qkv_bias: BiasRule::Always,
        window: WindowRule::From("max_window_layers", 28),
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
