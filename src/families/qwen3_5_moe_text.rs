//! The text part of Qwen3.5 with experts in every layer, whose weights always sum to 1.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::delta::DeltaStore;
use super::reading::llama_like::{BiasRule, ExpertsKeys, SparseLayers};
use super::{Family, qwen3_next};

pub const FAMILY: Family = Family::own("qwen3_5_moe_text", "Qwen3_5Moe", read);

const EXPERTS: ExpertsKeys = ExpertsKeys {
    normalises: BiasRule::Always,
    layers: SparseLayers::All,
    ..qwen3_next::EXPERTS
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let family = FAMILY.model_type;
    let like = (Some(EXPERTS), DeltaStore::ByKind);
    qwen3_next::read_as(family, checkpoint, reader, like)
}
