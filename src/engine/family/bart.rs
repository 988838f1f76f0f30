//! BART: an encoder and a decoder with learned positions, norms after each branch and on the embeddings.

use super::Family;
use super::reading::bart_like::{self, BartLike, Positions};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::{ModelSpec, ReadsAgain};

pub const FAMILY: Family = Family {
    model_type: "bart",
    architecture: "Bart",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = BartLike {
        family: FAMILY.model_type,
        positions: Positions::Learned { n_rows_before: 2 },
        norms_before: false,
        norms_embedding: true,
        reads_again: ReadsAgain::Shifted,
        start_token: None,
    };
    bart_like::read(checkpoint, reader, like)
}
