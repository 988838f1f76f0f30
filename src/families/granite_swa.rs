//! Granite with windows on three layers of four, sinks, and a rotary base for each layer.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;
use serde_json::Value;

use super::reading::llama_like::{self, NormStyle, RMS, Recipe};
use super::reading::windows::WindowRule;
use super::{Family, granite};

pub const FAMILY: Family = Family::own("granite_swa", "GraniteSWA", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        is_tied: true,
        ..recipe()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    set_bases(reader, &mut spec)?;
    Ok(spec)
}

/// Differences from Llama that the models with and without experts share.
pub(super) fn recipe() -> Recipe {
    Recipe {
        has_sinks: true,
        window: WindowRule::AllButFirst {
            every: 4,
            width: 128,
        },
        ..granite::recipe()
    }
}

/// Gives each layer its rotary base, if the configuration lists them; layers whose base is 0 do not rotate.
///
/// # Errors
/// When the list does not fit the layers.
pub(super) fn set_bases(reader: &mut Reader<'_>, spec: &mut ModelSpec) -> Result<()> {
    const LIST: &str = "layer_rope_theta";
    let Some(value) = reader.value(LIST) else {
        return Ok(());
    };
    let blocks = spec.stacks[0].blocks_mut();
    let base = |value: &Value| {
        value
            .as_f64()
            .filter(|base| base.is_finite() && *base >= 0.0)
    };
    let bases = value.as_array().map(|list| list.iter().map(base).collect());
    let bases: Vec<f64> = bases.flatten().unwrap_or_default();
    if bases.len() != blocks.len() {
        let n = blocks.len();
        let problem = format!("expected {n} numbers from 0, one per layer, found {value}");
        return Err(Error::config(reader.path(), LIST, problem));
    }
    let words: Vec<String> = bases.iter().map(f64::to_string).collect();
    reader.forget(&["rope_theta"]);
    reader.note("rope_theta", words.join(", "), Origin::Key(LIST.to_owned()));
    for (block, base) in blocks.iter_mut().zip(bases) {
        let Some(own) = block.own_mut() else { continue };
        match &mut own.attention.rope {
            Some(rope) if base > 0.0 => rope.theta = base,
            rope => *rope = None,
        }
    }
    Ok(())
}
