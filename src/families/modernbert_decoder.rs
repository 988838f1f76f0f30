//! ModernBERT as a decoder (Ettin): it looks back alone, and queries, keys and values are stored apart.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::modernbert::{ModernBertLike, read_as};

pub const FAMILY: Family = Family::own("modernbert-decoder", "ModernBertDecoder", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = ModernBertLike {
        family: FAMILY.model_type,
        is_causal: true,
        fused: None,
        head: "lm_head",
        has_width: false,
    };
    read_as(checkpoint, reader, like)
}
