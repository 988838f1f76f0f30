//! fairseq's transformers, `transformer_lm` and translators: XGLM's or BART's parts, with places of norms and positions to choose.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, Sines};

use super::Family;
use super::opt::{OptLike, read_as};
use super::reading::bart_like::{self, BartLike, Positions, SharedWords};

pub const FAMILY: Family = Family::own("fairseq", "Fairseq", read);

/// Keys of the configuration that the layout writes.
pub(super) const LEARNED: &str = "learned_positions";

pub(super) const NORMS_BEFORE: &str = "normalize_before";

pub(super) const NORMS_EMBEDDING: &str = "layernorm_embedding";

/// Rows of a learned table before position 0: one more than the id of the padding token.
pub(super) const N_ROWS_BEFORE: usize = 2;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let is_learned = reader.flag_or("learned_positions", LEARNED, false)?;
    if !checkpoint.tensors.contains("encoder.layers.0.fc1.weight") {
        let like = OptLike {
            family: FAMILY.model_type,
            bases: &["decoder."],
            n_layers: "decoder_layers",
            n_heads: "decoder_attention_heads",
            d_model: "d_model",
            d_mlp: "decoder_ffn_dim",
            scales: Some("scale_embedding"),
            has_switches: false,
            sines: (!is_learned).then_some(Sines::HalvesToEnd),
            final_norm: "layer_norm",
            ..OptLike::OPT
        };
        return read_as(checkpoint, reader, like);
    }
    let like = BartLike {
        positions: if is_learned {
            Positions::Learned {
                n_rows_before: N_ROWS_BEFORE,
            }
        } else {
            Positions::SinusoidNotPad
        },
        norms_before: reader.flag_or("norms_before", NORMS_BEFORE, false)?,
        norms_embedding: reader.flag_or("norms_embedding", NORMS_EMBEDDING, false)?,
        shared_words: SharedWords::Unless("share_all_embeddings"),
        ..BartLike::PLAIN
    };
    bart_like::read(FAMILY.model_type, checkpoint, reader, like)
}
