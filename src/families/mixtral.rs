//! Mixtral: Mistral with experts in every layer, two of which each token uses.

use super::Family;
use super::reading::experts::NUMBERED;
use super::reading::llama_like::{BiasRule, ExpertStore, ExpertsKeys, NormStyle, RMS, Recipe};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("mixtral", "Mixtral", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    theta: 1e6,
    window: WindowRule::Always(None),
    experts: Some(ExpertsKeys {
        at: "block_sparse_moe",
        store: ExpertStore::Each(NUMBERED),
        n_experts: ["num_local_experts", "num_experts"],
        d_expert: "intermediate_size",
        normalises: BiasRule::Always,
        ..ExpertsKeys::PLAIN
    }),
    ..Recipe::llama()
})
.with_once_wider_windows();
