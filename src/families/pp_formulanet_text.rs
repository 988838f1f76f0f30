//! The text part of PP-FormulaNet: mBART's decoder, where it is run on text alone, without attention to an encoder.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::bart_like::{self, BartLike, Positions};

pub const FAMILY: Family = Family::own("pp_formulanet_text", "PPFormulaNetText", read)
    .leaving_unread(&["encoder_attn.*", "encoder_attn_layer_norm.*"]);

pub(super) const LIKE: BartLike = BartLike {
    positions: Positions::Learned { n_rows_before: 2 },
    norms_before: true,
    norms_embedding: true,
    scales: Some(true),
    encodes: false,
    ..BartLike::PLAIN
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    bart_like::read(FAMILY.model_type, checkpoint, reader, LIKE)
}
