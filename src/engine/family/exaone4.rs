//! EXAONE 4: OLMo 2 with norms of heads, windows on three layers of four, and rotation only there.

use super::Family;
use super::reading::llama_like::{self, NormPlaces, NormStyle, QkNorm, RMS, Recipe, RopeLayers};
use super::reading::windows::WindowRule;
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "exaone4",
    architecture: "Exaone4",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        norm_places: NormPlaces::Output,
        qk_norm: QkNorm::Head,
        rope_layers: RopeLayers::WindowedUnlessNull("sliding_window"),
        window: WindowRule::AllButIfAny {
            every: 4,
            every_key: "sliding_window_pattern",
            width: 4096,
        },
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
