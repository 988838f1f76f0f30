//! The text part of Cohere Compass: Command R7B whose layers rotate by halves, unless their type has no parameters of rotation.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::attention::RopeSpec;
use attnscope_compute::error::Result;
use attnscope_spec::{BlockSpec, ModelSpec};

use super::reading::llama_like::{self, FactorRule, Recipe, RopeLayers};
use super::reading::rope::{RopeRule, rope};
use super::reading::windows::WindowRule;
use super::{Family, cohere};

pub const FAMILY: Family = Family::own("cohere_compass_text", "CohereCompassText", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        interleaved: false,
        rope_layers: RopeLayers::Never,
        logit_scale: FactorRule::KeyIfStated("logit_scale"),
        window: WindowRule::Listed(4096),
        ..cohere::of_both()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    reader.forget(&["positions"]);
    let n_ctx = spec.n_ctx.unwrap_or_default();
    let mut found: [Option<Option<RopeSpec>>; 2] = [None, None];
    let blocks = spec.stacks[0].blocks_mut().iter_mut();
    for own in blocks.filter_map(BlockSpec::own_mut) {
        let is_windowed = own.attention.mask.window.is_some();
        let known = &mut found[usize::from(is_windowed)];
        if known.is_none() {
            *known = Some(rotation(reader, is_windowed, own.attention.d_head, n_ctx)?);
        }
        own.attention.rope = known.clone().flatten();
    }
    Ok(spec)
}

/// The rotation of layers of one type; `None` if its parameters are null.
fn rotation(
    reader: &mut Reader<'_>,
    is_windowed: bool,
    d_head: usize,
    n_ctx: usize,
) -> Result<Option<RopeSpec>> {
    let kind = if is_windowed {
        "sliding_attention"
    } else {
        "full_attention"
    };
    let stated = reader.value("rope_parameters");
    if stated.and_then(|all| all.get(kind)) == Some(&serde_json::Value::Null) {
        return Ok(None);
    }
    let rule = RopeRule {
        layer_type: Some(kind),
        ..RopeRule::plain(d_head, n_ctx)
    };
    rope(reader, rule).map(Some)
}
