//! Arcee: Llama whose feed-forward layers have no gate, and the square of relu.

use super::Family;
use super::reading::llama_like::{self, BiasRule, MlpStore, NormStyle, RMS, Recipe};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "arcee",
    architecture: "Arcee",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        activation: ("hidden_act", "relu2"),
        mlp: MlpStore::Plain {
            up: "up_proj",
            down: "down_proj",
        },
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
