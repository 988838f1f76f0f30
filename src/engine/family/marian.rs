//! Marian: BART with sinusoidal positions and no norm on the embeddings; the translators of OPUS.

use super::Family;
use super::reading::bart_like::{self, BartLike, Positions};
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::{Error, Result};
use crate::model::{ModelSpec, ReadsAgain};

pub const FAMILY: Family = Family {
    model_type: "marian",
    architecture: "Marian",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const SHARED: &str = "share_encoder_decoder_embeddings";
    if !reader.flag_or("shared_embedding", SHARED, true)? {
        let problem = "expected true: two vocabularies are not read, found false";
        return Err(Error::config(reader.path(), SHARED, problem));
    }
    let like = BartLike {
        family: FAMILY.model_type,
        positions: Positions::Sinusoid,
        norms_before: false,
        norms_embedding: false,
        reads_again: ReadsAgain::ForLabels,
        start_token: Some("pad_token_id"),
    };
    bart_like::read(checkpoint, reader, like)
}
