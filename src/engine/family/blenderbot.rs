//! Blenderbot: mBART without a norm on the embeddings, and positions from the first row on.

use super::Family;
use super::reading::bart_like::{self, BartLike, Positions};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::{ModelSpec, ReadsAgain};

pub const FAMILY: Family = Family {
    model_type: "blenderbot",
    architecture: "Blenderbot",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = BartLike {
        family: FAMILY.model_type,
        positions: Positions::Learned { n_rows_before: 0 },
        norms_before: true,
        norms_embedding: false,
        reads_again: ReadsAgain::ForLabels,
        start_token: None,
    };
    bart_like::read(checkpoint, reader, like)
}
