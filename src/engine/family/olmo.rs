//! OLMo: Llama with layer norms that have no parameters, and queries, keys and values clipped where a limit is stated.

use super::Family;
use super::reading::llama_like::{self, BiasRule, NormStyle, RMS, Recipe};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;
use crate::ops::NormKind;

pub const FAMILY: Family = Family {
    model_type: "olmo",
    architecture: "Olmo",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle {
            kind: NormKind::LayerNorm,
            eps_key: None,
            eps: 1e-5,
            has_gain: false,
            ..RMS
        },
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        clips_qkv: true,
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
