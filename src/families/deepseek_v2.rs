//! DeepSeek V2: queries, keys and values through latent vectors, experts weighed by a softmax over all.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;

use super::reading::bias_rule::BiasRule;
use super::reading::experts::{ExpertsKeys, GroupKeys, SharedKeys, SharedWidth, SparseLayers};
use super::reading::latent::{self, LatentLike};
use super::{Family, deepseek_v3};

pub const FAMILY: Family = Family::own("deepseek_v2", "DeepseekV2", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = LatentLike {
        experts: experts(reader)?,
        ..LatentLike::PLAIN
    };
    latent::read(FAMILY.model_type, checkpoint, reader, like)
}

/// The experts of DeepSeek V2, chosen as its configuration says.
///
/// # Errors
/// When the way of choosing is not known.
pub(super) fn experts(reader: &mut Reader<'_>) -> Result<ExpertsKeys> {
    const METHOD: &str = "topk_method";
    // transformers never normalises the weights, whatever this key says.
    reader.value("norm_topk_prob");
    let method = reader.word_or("expert_choice", METHOD, "greedy")?;
    let groups = match method.as_str() {
        "greedy" => None,
        "group_limited_greedy" => Some(GroupKeys::if_stated(1)),
        other => {
            let problem = format!("expected greedy or group_limited_greedy, found {other:?}");
            return Err(Error::config(reader.path(), METHOD, problem));
        }
    };
    Ok(ExpertsKeys {
        n_experts: ["n_routed_experts", "num_local_experts"],
        groups,
        normalises: BiasRule::Never,
        scale: Some(("routed_scaling_factor", 1.0)),
        shared: Some(SharedKeys {
            width: SharedWidth::Times("n_shared_experts", 2),
            ..deepseek_v3::SHARED
        }),
        layers: SparseLayers::From("first_k_dense_replace", 0),
        ..ExpertsKeys::PLAIN
    })
}
