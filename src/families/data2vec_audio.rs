//! data2vec for sound: wav2vec 2.0 with several convolutions over the rows around each.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::wave_like::{self, WaveLike, WaveShape};
use super::{Family, wav2vec2};

pub const FAMILY: Family =
    Family::own("data2vec-audio", "Data2VecAudio", read).leaving_unread(wav2vec2::UNREAD);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = WaveLike {
        shape: WaveShape::ManyPositions,
        ..WaveLike::usual(&["data2vec_audio.", ""])
    };
    wave_like::read(FAMILY.model_type, checkpoint, reader, like)
}
