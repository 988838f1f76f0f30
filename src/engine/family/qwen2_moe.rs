//! Qwen2 with experts: many small ones, one that every token uses, and dense layers where the configuration says.

use super::Family;
use super::reading::experts::{ExpertsRule, SharedRule, USUAL};
use super::reading::llama_like::{self, BiasRule, Recipe};
use super::reading::sparse_layers;
use super::reading::windows::WindowRule;
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::{ModelSpec, RouterRule, RouterScores};

pub const FAMILY: Family = Family {
    model_type: "qwen2_moe",
    architecture: "Qwen2Moe",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        qkv_bias: BiasRule::Key("qkv_bias", true),
        window: WindowRule::EvenBefore("max_window_layers"),
        ..Recipe::llama(FAMILY.model_type)
    };
    let rule = ExpertsRule {
        at: "mlp",
        names: USUAL,
        n_experts: reader.size("n_experts", "num_experts")?,
        d_expert: reader.size("d_expert", "moe_intermediate_size")?,
        router: RouterRule {
            n_used: reader.size("n_experts_used", "num_experts_per_tok")?,
            scores: RouterScores::Softmax,
            choice_bias: None,
            groups: None,
            normalises: reader.flag_or("normalises_experts", "norm_topk_prob", false)?,
            scale: 1.0,
        },
        shared: Some(SharedRule {
            name: "shared_expert",
            d_mlp: reader.size("d_shared_expert", "shared_expert_intermediate_size")?,
            gate: Some("shared_expert_gate"),
        }),
    };
    let is_sparse = sparse_layers(reader)?;
    llama_like::read_with_experts(checkpoint, reader, &recipe, &rule, &*is_sparse)
}
