//! LFM2 with experts, chosen by sigmoids, from some layer on.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, RouterScores};

use super::reading::experts::NUMBERED;
use super::reading::llama_like::{BiasRule, ExpertStore, ExpertsKeys, SparseLayers};
use super::{Family, lfm2};

pub const FAMILY: Family = Family::own("lfm2_moe", "Lfm2Moe", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let has_bias = reader.flag_or("expert_choice_bias", "use_expert_bias", true)?;
    let experts = ExpertsKeys {
        at: "feed_forward",
        store: ExpertStore::Each(NUMBERED),
        scores: RouterScores::Sigmoid,
        choice_bias: has_bias.then_some(("expert_bias", false)),
        normalises: BiasRule::Key("norm_topk_prob", true),
        scale: Some(("routed_scaling_factor", 1.0)),
        layers: SparseLayers::From("num_dense_layers", 2),
        ..ExpertsKeys::PLAIN
    };
    lfm2::read_as(FAMILY.model_type, checkpoint, reader, Some(experts))
}
