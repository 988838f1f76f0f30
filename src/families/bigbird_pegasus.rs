//! BigBird-Pegasus: Pegasus with learned positions, whose encoder's attention is sparse in long texts alone.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::big_bird::full_up_to;
use super::reading::bart_like::{self, BartLike, Positions};

pub const FAMILY: Family = Family::own("bigbird_pegasus", "BigBirdPegasus", read);

const LIKE: BartLike = BartLike {
    positions: Positions::Learned { n_rows_before: 0 },
    norms_before: true,
    activation: "gelu_new",
    scales: Some(true),
    of_encoder: Some(["self.query", "self.key", "self.value", "output"]),
    attention_bias: Some("use_bias"),
    last_norm: "layernorm_embedding",
    ..BartLike::PLAIN
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut spec = bart_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    spec.n_ctx = full_up_to(reader, spec.n_ctx)?;
    Ok(spec)
}
