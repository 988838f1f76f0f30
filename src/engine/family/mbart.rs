//! mBART: BART with norms before the branches and after the last block.

use super::Family;
use super::reading::bart_like::{self, BartLike, Positions};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::{ModelSpec, ReadsAgain};

pub const FAMILY: Family = Family {
    model_type: "mbart",
    architecture: "MBart",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = BartLike {
        family: FAMILY.model_type,
        positions: Positions::Learned { n_rows_before: 2 },
        norms_before: true,
        norms_embedding: true,
        reads_again: ReadsAgain::Rotated,
        start_token: Some("eos_token_id"),
    };
    bart_like::read(checkpoint, reader, like)
}
