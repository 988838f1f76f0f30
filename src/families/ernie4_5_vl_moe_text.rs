//! The text part of ERNIE 4.5 VL: ERNIE 4.5 with experts of its own beside those of pictures, which no text reaches.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{ChoiceBias, FeedForward, ModelSpec};
use serde_json::Value;

use super::reading::activation;
use super::reading::experts::{USUAL, gated};
use super::reading::llama_like::{self, ExpertsKeys, Recipe, Sizes, SparseLayers};
use super::{Family, ernie4_5_moe};

/// The router and the experts of pictures are left aside.
pub const FAMILY: Family = Family::own("ernie4_5_vl_moe_text", "Ernie4_5_VLMoe", read)
    .leaving_unread(&[
        "mlp.gate.weight_1",
        ".experts.*",
        ".vision_moe.*",
        "resampler_model.*",
    ]);

const OWN_ROUTER: &str = ".mlp.router.weight";

const EXPERTS: ExpertsKeys = ExpertsKeys {
    layers: SparseLayers::NamedOrFrom("moe_layer_start_index", 1),
    ..ernie4_5_moe::EXPERTS
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let recipe = Recipe {
        experts: None,
        ..ernie4_5_moe::recipe()
    };
    let sizes = Sizes::read(reader, None)?;
    let d_model = sizes.d_model;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let width = width_of_experts(reader)?;
    // The text part saved alone keeps the router as maps are kept, under a name of its own.
    let is_alone = tensors.iter().any(|(name, _)| name.ends_with(OWN_ROUTER));
    let keys = ExpertsKeys {
        router: if is_alone { "router" } else { "gate" },
        ..EXPERTS
    };
    let experts = keys.read_as_wide(reader, tensors, (sizes.n_layers, width))?;
    let act = activation(reader, recipe.activation.0, recipe.activation.1)?;
    let has_bias = reader.flag_or("mlp_bias", "use_bias", false)?;
    let mlp = |idx: usize, at: &str| {
        if experts.are_in(idx) {
            let layer = experts.of_layer(tensors, at, d_model, (act, has_bias));
            return of_text(layer, is_alone);
        }
        let mlp = gated(&format!("{at}.mlp"), USUAL, d_model, d_mlp, act, has_bias);
        FeedForward::Dense(Box::new(mlp))
    };
    llama_like::read_with(FAMILY.model_type, checkpoint, reader, &recipe, sizes, &mlp)
}

/// The width of the experts of text: the first of two, or the only one.
fn width_of_experts(reader: &mut Reader<'_>) -> Result<usize> {
    const KEY: &str = "moe_intermediate_size";
    let found = reader.value(KEY);
    let first = found.map(|found| found.get(0).unwrap_or(found));
    let width = first
        .and_then(Value::as_u64)
        .filter(|width| (1..=1 << 26).contains(width));
    match width {
        Some(width) => {
            reader.note("d_expert", width, Origin::Key(KEY.to_owned()));
            Ok(width as usize)
        }
        None => {
            let problem = "expected widths of the experts of text and of pictures";
            Err(Error::config(reader.path(), KEY, problem))
        }
    }
}

/// Experts whose bias is the first of two rows, and whose router is stored transposed; saved alone, neither is so.
fn of_text(layer: FeedForward, is_alone: bool) -> FeedForward {
    match layer {
        FeedForward::Experts(mut spec) if !is_alone => {
            spec.router = spec.router.input_major();
            let n = spec.experts.len();
            spec.rule.choice_bias = spec.rule.choice_bias.map(|bias| ChoiceBias {
                shape: vec![2, n],
                ..bias
            });
            FeedForward::Experts(spec)
        }
        other => other,
    }
}
