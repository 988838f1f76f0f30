//! Phi 3: Llama with fused projections, a window where one is stated, and long-context factors per pair.

use super::Family;
use super::reading::llama_like::{self, MlpStore, NormStyle, RMS, Recipe};
use super::reading::windows::WindowRule;
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "phi3",
    architecture: "Phi3",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        rotary_share: Some(1.0),
        yarn_is_long: true,
        fused_qkv: true,
        mlp: MlpStore::FusedGated,
        window: WindowRule::Always(None),
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
