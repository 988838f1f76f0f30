//! WavLM: wav2vec 2.0 with a bias by distance, shared by all layers, which each layer multiplies by what a query's position holds.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::wave_like::{self, BESIDE_CODEC, WaveLike, WaveShape};
use super::{Family, wav2vec2};

pub const FAMILY: Family =
    Family::own("wavlm", "WavLM", read).leaving_unread(wav2vec2::UNREAD_BESIDE_CODEC);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = WaveLike {
        shape: WaveShape::GatedBias,
        ..WaveLike::usual(&["wavlm.", "", BESIDE_CODEC])
    };
    wave_like::read(FAMILY.model_type, checkpoint, reader, like)
}
