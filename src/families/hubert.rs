//! HuBERT: wav2vec 2.0, whose rows may go unnormed to the blocks.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::wave_like::{self, BESIDE_CODEC, WaveLike};
use super::{Family, wav2vec2};

pub const FAMILY: Family =
    Family::own("hubert", "Hubert", read).leaving_unread(wav2vec2::UNREAD_BESIDE_CODEC);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = WaveLike {
        norm_if: Some("feat_proj_layer_norm"),
        ..WaveLike::usual(&["hubert.", "", BESIDE_CODEC])
    };
    wave_like::read(FAMILY.model_type, checkpoint, reader, like)
}
