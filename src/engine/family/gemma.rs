//! Gemma: gains stored as what is added to 1, embeddings scaled by the root of their width, one gated layer with gelu.

use super::Family;
use super::reading::llama_like::{self, BiasRule, FactorRule, NormStyle, RMS, Recipe};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "gemma",
    architecture: "Gemma",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle {
            adds_one: true,
            ..RMS
        },
        embed_scale: FactorRule::RootWidth,
        activation: ("hidden_act", "gelu_pytorch_tanh"),
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        is_tied: true,
        d_head: Some(256),
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
