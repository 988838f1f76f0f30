//! T5Gemma 2's decoder alone: Gemma 3 under T5Gemma's names, whose tokens see no encoder's.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::llama_like::{self, Recipe};
use super::{Family, t5gemma2_text};

/// The token that ends a picture has a row of its own.
pub const FAMILY: Family =
    Family::own("t5gemma2_decoder", "T5Gemma2Decoder", read).leaving_unread(&["eoi_embedding"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        is_causal: true,
        ..t5gemma2_text::recipe()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    spec.head = None;
    spec.is_causal_lm = false;
    reader.forget(&["unembedding", "tied_unembedding", "logit_softcap"]);
    reader.value("dropout_rate");
    reader.remark("run alone: there are no tokens of an encoder to see".to_owned());
    reader.remark(t5gemma2_text::OF_PICTURES.to_owned());
    Ok(spec)
}
