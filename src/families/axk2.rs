//! A.X K2: DeepSeek V3.2 with gates behind its norms; queries and gates of heads read a latent behind its norm and before it.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::expected::{Expected, check};
use super::reading::experts::{ExpertsKeys, SparseLayers};
use super::reading::indexer::IndexerKeys;
use super::reading::latent::{self, LatentLike};
use super::{Family, deepseek_v3};

pub const FAMILY: Family = Family::own("axk2", "AXK2", read);

const LIKE: LatentLike = LatentLike {
    experts: ExpertsKeys {
        groups: None,
        layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 1),
        ..deepseek_v3::EXPERTS
    },
    indexer: Some(IndexerKeys::PLAIN),
    q_has_gate: true,
    norm_gates: Some(("gated_norm_rank", 16)),
    ..LatentLike::PLAIN
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    // Experts of other groups would count as 0 and not as left out, which no router here does.
    check(
        reader,
        &[
            ("moe_layer_freq", Expected::Number(1)),
            ("n_group", Expected::Number(1)),
            ("topk_group", Expected::Number(1)),
        ],
    )?;
    latent::read(FAMILY.model_type, checkpoint, reader, LIKE)
}
