//! Ministral: Mistral whose windows hold for the layers that a list names.

use super::Family;
use super::reading::llama_like::{self, Recipe};
use super::reading::windows::WindowRule;
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "ministral",
    architecture: "Ministral",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        window: WindowRule::ListedOrAlways(Some(4096)),
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
