//! Mixtral: Mistral with experts in every layer, two of which each token uses.

use super::Family;
use super::reading::experts::{ExpertsRule, GatedNames};
use super::reading::llama_like::{self, NormStyle, RMS, Recipe};
use super::reading::windows::WindowRule;
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::{ModelSpec, RouterRule, RouterScores};

pub const FAMILY: Family = Family {
    model_type: "mixtral",
    architecture: "Mixtral",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        theta: 1e6,
        window: WindowRule::Always(None),
        ..Recipe::llama(FAMILY.model_type)
    };
    let rule = ExpertsRule {
        at: "block_sparse_moe",
        names: GatedNames {
            gate: "w1",
            up: "w3",
            down: "w2",
        },
        n_experts: reader.size("n_experts", "num_local_experts")?,
        d_expert: reader.size("d_expert", "intermediate_size")?,
        router: RouterRule {
            n_used: reader.size("n_experts_used", "num_experts_per_tok")?,
            scores: RouterScores::Softmax,
            choice_bias: None,
            groups: None,
            normalises: true,
            scale: 1.0,
        },
        shared: None,
    };
    llama_like::read_with_experts(checkpoint, reader, &recipe, &rule, &|_| true)
}
