//! Code World Model: Llama with windows on three layers of four, the first of each four without.

use super::Family;
use super::reading::llama_like::{self, NormStyle, RMS, Recipe};
use super::reading::windows::WindowRule;
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::{Error, Result};
use crate::model::ModelSpec;

pub const FAMILY: Family = Family {
    model_type: "cwm",
    architecture: "Cwm",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    // Without either key transformers rescales by factors of its own, which no file states.
    if reader.value("rope_scaling").is_none() && reader.value("rope_parameters").is_none() {
        let problem = "missing, expected the rescaling of rotary frequencies or its absence stated";
        return Err(Error::config(reader.path(), "rope_parameters", problem));
    }
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        theta: 1e6,
        d_head: Some(128),
        window: WindowRule::AllButFirst {
            every: 4,
            width: 8192,
        },
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
