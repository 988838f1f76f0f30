//! Granite with experts in every layer, all of a layer's in two tensors.

use attnscope_spec::RouterScores;

use super::reading::llama_like::{BiasRule, ExpertStore, ExpertsKeys, Recipe};
use super::{Family, granite};

pub const FAMILY: Family = Family::decoder("granitemoe", "GraniteMoe", || Recipe {
    mlp_bias: BiasRule::Never,
    experts: Some(EXPERTS),
    ..granite::recipe()
});

/// Granite's experts.
pub(super) const EXPERTS: ExpertsKeys = ExpertsKeys {
    at: "block_sparse_moe",
    store: ExpertStore::Slabs {
        gate_up: "input_linear.weight",
        down: "output_linear.weight",
    },
    router: "router.layer",
    n_experts: ["num_local_experts", "num_experts"],
    d_expert: "intermediate_size",
    scores: RouterScores::SoftmaxOfChosen,
    normalises: BiasRule::Never,
    ..ExpertsKeys::PLAIN
};
