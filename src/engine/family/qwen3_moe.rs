//! Qwen3 with experts in most layers.

use super::Family;
use super::reading::experts::{ExpertsRule, USUAL};
use super::reading::llama_like::{self, BiasRule, QkNorm, Recipe};
use super::reading::sparse_layers;
use super::reading::windows::WindowRule;
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::{ModelSpec, RouterRule, RouterScores};

pub const FAMILY: Family = Family {
    model_type: "qwen3_moe",
    architecture: "Qwen3Moe",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        qk_norm: QkNorm::Head,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        window: WindowRule::IfUsed,
        ..Recipe::llama(FAMILY.model_type)
    };
    let rule = ExpertsRule {
        at: "mlp",
        names: USUAL,
        n_experts: reader.either_size("n_experts", ["num_experts", "num_local_experts"])?,
        d_expert: reader.size("d_expert", "moe_intermediate_size")?,
        router: RouterRule {
            n_used: reader.size("n_experts_used", "num_experts_per_tok")?,
            scores: RouterScores::Softmax,
            choice_bias: None,
            groups: None,
            normalises: reader.flag_or("normalises_experts", "norm_topk_prob", false)?,
            scale: 1.0,
        },
        shared: None,
    };
    let is_sparse = sparse_layers(reader)?;
    llama_like::read_with_experts(checkpoint, reader, &recipe, &rule, &*is_sparse)
}
