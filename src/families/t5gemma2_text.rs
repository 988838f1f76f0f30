//! The text part of T5Gemma 2's encoder: Gemma 3 as an encoder, under T5Gemma's names.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::llama_like::{self, NormPlaces, Recipe, TwoSided};
use super::{Family, gemma3_text};

/// The token that ends a picture has a row of its own.
pub const FAMILY: Family =
    Family::own("t5gemma2_text", "T5Gemma2TextEncoder", read).leaving_unread(&["eoi_embedding"]);

/// What is said of a token that no text has.
pub(super) const OF_PICTURES: &str =
    "the token that ends a picture is read as a word, whose row it does not have";

/// How the encoder differs from Llama.
pub(super) fn recipe() -> Recipe {
    Recipe {
        norm_places: NormPlaces::Around([
            "pre_self_attn_layernorm",
            "post_self_attn_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ]),
        is_causal: false,
        both_sides: None,
        two_sided: TwoSided::SameNumber,
        ..gemma3_text::recipe()
    }
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe())?;
    spec.head = None;
    reader.forget(&["unembedding", "tied_unembedding", "logit_softcap"]);
    reader.value("dropout_rate");
    reader.remark(OF_PICTURES.to_owned());
    Ok(spec)
}
