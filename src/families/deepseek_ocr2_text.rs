//! The text part of DeepSeek-OCR 2: Llama's attention with the experts of DeepSeek V2.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::experts::{ExpertsKeys, SparseLayers};
use super::reading::llama_like::{self, BiasRule, Recipe};
use super::{Family, deepseek_v2};

pub const FAMILY: Family = Family::own("deepseek_ocr2_text", "DeepseekOcr2Text", |c, r| {
    read_as(FAMILY.model_type, c, r)
});

/// Reads DeepSeek-OCR 2 or a family that differs from it in its masks.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_as(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
) -> Result<ModelSpec> {
    let recipe = Recipe {
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        experts: Some(ExpertsKeys {
            layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 0),
            ..deepseek_v2::experts(reader)?
        }),
        ..Recipe::llama()
    };
    llama_like::read(family, checkpoint, reader, &recipe)
}
