//! Granite with experts in every layer, beside a layer that every token uses.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_spec::{FeedForward, GateRule, MlpSpec, ModelSpec};

use super::reading::llama_like::{self, ExpertsKeys, Recipe, Sizes};
use super::reading::{activation, linear, stacked};
use super::{Family, granite, granitemoe};

pub const FAMILY: Family = Family::own("granitemoeshared", "GraniteMoeShared", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = (&granite::recipe(), granitemoe::EXPERTS);
    read_as(FAMILY.model_type, checkpoint, reader, like)
}

/// Reads a family with Granite's experts, and a layer beside them if the configuration states its width.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_as(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    (recipe, keys): (&Recipe, ExpertsKeys),
) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let sizes = Sizes::read(reader, None)?;
    let d_model = sizes.d_model;
    let experts = keys.read(reader, tensors, sizes.n_layers)?;
    let d_shared = reader.count_or("d_shared_expert", "shared_intermediate_size", 0)?;
    let act = activation(reader, recipe.activation.0, recipe.activation.1)?;
    let mlp = |_: usize, at: &str| {
        let routed = experts.of_layer(tensors, at, d_model, (act, false));
        if d_shared == 0 {
            return routed;
        }
        let shared = shared_layer(&format!("{at}.shared_mlp"), d_model, d_shared, act);
        beside(routed, shared)
    };
    llama_like::read_with(family, checkpoint, reader, recipe, sizes, &mlp)
}

/// Experts beside a layer that every token uses.
pub(super) fn beside(routed: FeedForward, shared: MlpSpec) -> FeedForward {
    match routed {
        FeedForward::Experts(mut experts) => {
            experts.shared = Some((shared, None));
            FeedForward::Experts(experts)
        }
        other => other,
    }
}

/// The shared feed-forward block; one matrix holds gate and up.
pub(super) fn shared_layer(
    at: &str,
    d_model: usize,
    d_mlp: usize,
    activation: Activation,
) -> MlpSpec {
    let fused = linear(&format!("{at}.input_linear"), d_model, 2 * d_mlp, false);
    let [gate, up, _] = stacked(&fused, [d_mlp, d_mlp, 0]);
    MlpSpec {
        up,
        gate: Some(gate),
        down: linear(&format!("{at}.output_linear"), d_mlp, d_model, false),
        activation,
        gate_rule: GateRule::Product,
        learned: None,
        convolution: None,
        hidden_norm: None,
        sparsity: None,
        out_activation: None,
    }
}
