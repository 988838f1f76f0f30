//! Llama 1–3: rotary positions, grouped keys and values, norms by root mean square, a gated feed-forward layer.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::layouts::INTERLEAVED;
use super::reading::llama_like::{self, BiasRule, Recipe};

pub const FAMILY: Family = Family::own("llama", "Llama", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let interleaved = reader.value(INTERLEAVED).is_some();
    if interleaved {
        let origin = Origin::Derived("the tensors' names".to_owned());
        reader.note("rope_interleaved", true, origin);
    }
    let recipe = Recipe {
        interleaved,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        ..Recipe::llama()
    };
    llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)
}
