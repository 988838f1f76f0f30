//! The text part of PP-FormulaNet: mBART's decoder, where it is run on text alone, without attention to an encoder.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::bart_like::{self, BartLike, Positions};

pub const FAMILY: Family = Family::own("pp_formulanet_text", "PPFormulaNetText", read)
    .leaving_unread(&["encoder_attn.*", "encoder_attn_layer_norm.*"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut names = checkpoint.tensors.iter().map(|(name, _)| name);
    if let Some(found) = names
        .find(|name| name.contains("encoder.vision_tower.") || name.starts_with("model.encoder."))
    {
        let problem = format!(
            "expected the decoder alone: what reads pictures, and what it gives to the decoder, is not read, found {found}"
        );
        return Err(Error::config(reader.path(), "model_type", problem));
    }
    let like = BartLike {
        positions: Positions::Learned { n_rows_before: 2 },
        norms_before: true,
        norms_embedding: true,
        scales: Some(true),
        encodes: false,
        ..BartLike::PLAIN
    };
    bart_like::read(FAMILY.model_type, checkpoint, reader, like)
}
