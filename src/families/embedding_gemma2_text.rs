//! The text part of EmbeddingGemma 2: Gemma 4 as an encoder, with a map behind the final norm.
//!
//! Its per-layer embeddings come from the embedding alone: there is no second table of tokens.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::gemma4_text::{Gemma4Like, read_as};

pub const FAMILY: Family = Family::own("embedding_gemma2_text", "EmbeddingGemma2", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = Gemma4Like {
        family: FAMILY.model_type,
        sees_both: true,
        by_token: ["ple.", "ple_block."],
        d_by_token: 512,
        has_rows: false,
        last_map: Some(("embedding_projection", "embedding_dim", 768)),
    };
    read_as(checkpoint, reader, like)
}
