//! TrOCR: BART's decoder. What reads pictures is another model, so that it is run on text, without attention to an encoder.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::bart_like::{self, BartLike, Positions};

pub const FAMILY: Family = Family::own("trocr", "TrOCR", read).leaving_unread(&[
    "encoder_attn.q_proj.weight",
    "encoder_attn.q_proj.bias",
    "encoder_attn.k_proj.weight",
    "encoder_attn.k_proj.bias",
    "encoder_attn.v_proj.weight",
    "encoder_attn.v_proj.bias",
    "encoder_attn.out_proj.weight",
    "encoder_attn.out_proj.bias",
    "encoder_attn_layer_norm.weight",
    "encoder_attn_layer_norm.bias",
]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const LEARNED: &str = "use_learned_position_embeddings";
    if !reader.flag_or("positions_are_learned", LEARNED, true)? {
        let problem = "expected true: sines, which count tokens other than padding, are not read, found false";
        return Err(Error::config(reader.path(), LEARNED, problem));
    }
    let like = BartLike {
        positions: Positions::Learned { n_rows_before: 2 },
        norms_embedding: reader.flag_or("embed_norm", "layernorm_embedding", true)?,
        head: "output_projection.weight",
        encodes: false,
        ..BartLike::PLAIN
    };
    bart_like::read(FAMILY.model_type, checkpoint, reader, like)
}
