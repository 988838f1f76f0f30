//! Command A+: Command R7B with experts, whose shared expert may count as much as all others together.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{ExpertsSpec, FeedForward, ModelSpec, RouterScores};

use super::Family;
use super::cohere::of_both;
use super::reading::activation;
use super::reading::experts::{USUAL, gated};
use super::reading::llama_like::{
    self, BiasRule, ExpertsKeys, NormStyle, RMS, Recipe, SharedKeys, SharedWidth, Sizes,
    SparseLayers,
};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::own("cohere2_moe", "Cohere2Moe", read);

const DENSE: &str = "first_k_dense_replace";

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let like = of_both();
    let recipe = Recipe {
        d_head: Some(128),
        norm: match reader.value("rms_norm_eps") {
            Some(_) => NormStyle { eps: 1e-5, ..RMS },
            None => like.norm,
        },
        window: WindowRule::AllBut {
            every: 4,
            every_key: Some("sliding_window_pattern"),
            width: 4096,
        },
        ..like
    };
    let sizes = Sizes::read(reader, recipe.d_head)?;
    let d_model = sizes.d_model;
    let experts = keys(reader)?.read(reader, tensors, sizes.n_layers)?;
    let is_sparse = |idx: usize| experts.are_in(idx);
    if !(0..sizes.n_layers).all(is_sparse) && reader.value("layer_types").is_none() {
        let problem = "missing, expected the type of each layer: some layers have no experts";
        return Err(Error::config(reader.path(), "layer_types", problem));
    }
    let d_mlp = if (0..sizes.n_layers).all(is_sparse) {
        experts.d_expert
    } else {
        reader.size("d_mlp", "prefix_dense_intermediate_size")?
    };
    let act = activation(reader, recipe.activation.0, recipe.activation.1)?;
    let is_mean = is_mean(reader)?;
    let mlp = |idx: usize, at: &str| {
        if !experts.are_in(idx) {
            let mlp = gated(&format!("{at}.mlp"), USUAL, d_model, d_mlp, act, false);
            return FeedForward::Dense(Box::new(mlp));
        }
        match experts.of_layer(tensors, at, d_model, (act, false)) {
            FeedForward::Experts(experts) if is_mean => FeedForward::Experts(halved(experts)),
            other => other,
        }
    };
    let family = FAMILY.model_type;
    let mut spec = llama_like::read_with(family, checkpoint, reader, &recipe, sizes, &mlp)?;
    // Layers without a window do not rotate, except those without experts that the configuration names.
    let dense_rotate = reader.count_or(
        "dense_layers_rotate",
        "prefix_dense_sliding_window_pattern",
        1,
    )? == 1;
    for (idx, block) in spec.stacks[0].blocks_mut().iter_mut().enumerate() {
        let Some(own) = block.own_mut() else { continue };
        let is_forced = dense_rotate && !experts.are_in(idx);
        if own.attention.mask.window.is_none() && !is_forced {
            own.attention.rope = None;
        }
    }
    Ok(spec)
}

fn keys(reader: &mut Reader<'_>) -> Result<ExpertsKeys> {
    const KEY: &str = "expert_selection_fn";
    let name = reader.word_or("expert_scores", KEY, "softmax")?;
    let (scores, normalises) = match name.as_str() {
        "softmax" => (RouterScores::SoftmaxOfChosen, BiasRule::Never),
        "sigmoid" => (RouterScores::Sigmoid, BiasRule::Key("norm_topk_prob", true)),
        other => {
            let problem = format!("expected softmax or sigmoid, found {other:?}");
            return Err(Error::config(reader.path(), KEY, problem));
        }
    };
    Ok(ExpertsKeys {
        d_expert: "intermediate_size",
        scores,
        normalises,
        shared: Some(SharedKeys {
            name: "shared_experts",
            width: SharedWidth::Times("num_shared_experts", 0),
            gate: None,
        }),
        layers: SparseLayers::NamedOrFrom(DENSE, 0),
        ..ExpertsKeys::PLAIN
    })
}

/// Whether the outputs of the shared expert and of all others are averaged instead of added.
fn is_mean(reader: &mut Reader<'_>) -> Result<bool> {
    const KEY: &str = "shared_expert_combination_strategy";
    let how = reader.word_or("shared_expert_is", KEY, "average")?;
    match how.as_str() {
        "average" => Ok(true),
        "sum" => Ok(false),
        other => {
            let problem = format!("expected average or sum, found {other:?}");
            Err(Error::config(reader.path(), KEY, problem))
        }
    }
}

/// Halves the outputs of all experts, if one of them is shared.
fn halved(mut experts: Box<ExpertsSpec>) -> Box<ExpertsSpec> {
    if let Some((shared, _)) = &mut experts.shared {
        shared.down = shared.down.clone().scaled(1.0, 0.5);
        experts.rule.scale *= 0.5;
    }
    experts
}
