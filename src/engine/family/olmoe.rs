//! OLMoE: OLMo 2's norms of queries and keys, norms before the branches, and experts in every layer.

use super::Family;
use super::reading::experts::{ExpertsRule, USUAL};
use super::reading::llama_like::{self, BiasRule, NormStyle, QkNorm, RMS, Recipe};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::{Error, Result};
use crate::model::{ModelSpec, RouterRule, RouterScores};

pub const FAMILY: Family = Family {
    model_type: "olmoe",
    architecture: "Olmoe",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const CLIP: &str = "clip_qkv";
    if let Some(clip) = reader.value(CLIP) {
        let problem = format!("expected null: clipping after a norm is not read, found {clip}");
        return Err(Error::config(reader.path(), CLIP, problem));
    }
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        qk_norm: QkNorm::Whole,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        ..Recipe::llama(FAMILY.model_type)
    };
    let rule = ExpertsRule {
        at: "mlp",
        names: USUAL,
        n_experts: reader.size("n_experts", "num_experts")?,
        d_expert: reader.size("d_expert", "intermediate_size")?,
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
    llama_like::read_with_experts(checkpoint, reader, &recipe, &rule, &|_| true)
}
