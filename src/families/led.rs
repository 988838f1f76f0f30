//! LED: BART whose encoder sees a window to both sides; a person may let the first tokens see all others.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{DecoderInput, ModelSpec, Stack};

use super::Family;
use super::reading::bart_like::{self, BartLike, Positions};
use super::reading::global_tokens;

pub const FAMILY: Family = Family::own("led", "LED", read);

const LIKE: BartLike = BartLike {
    positions: Positions::Learned { n_rows_before: 0 },
    norms_embedding: true,
    base: "led.",
    n_ctx: [
        "max_encoder_position_embeddings",
        "max_decoder_position_embeddings",
    ],
    scales: None,
    window: Some("attention_window"),
    of_encoder: Some([
        "longformer_self_attn.query",
        "longformer_self_attn.key",
        "longformer_self_attn.value",
        "output",
    ]),
    reads_again: DecoderInput::Shifted,
    ..BartLike::PLAIN
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut spec = bart_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    let encoder = spec.stacks.iter_mut().find(|of| of.stack == Stack::Encoder);
    if let Some(encoder) = encoder {
        global_tokens::settle(reader, encoder, false)?;
    }
    Ok(spec)
}
