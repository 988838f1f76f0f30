//! OLMo 3: OLMo 2 with windows on three layers of four, which rotate without rescaling.

use super::Family;
use super::reading::llama_like::{
    self, BiasRule, LocalRope, NormPlaces, NormStyle, QkNorm, RMS, Recipe,
};
use super::reading::windows::WindowRule;
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "olmo3",
    architecture: "Olmo3",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        norm_places: NormPlaces::Output,
        qk_norm: QkNorm::Whole,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        theta: 500_000.0,
        local_rope: Some(LocalRope {
            theta_key: None,
            theta: 500_000.0,
        }),
        window: WindowRule::AllBut {
            every: 4,
            every_key: None,
            width: 4096,
        },
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
