//! UniSpeech-SAT: wav2vec 2.0.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::wave_like::{self, WaveLike};
use super::{Family, wav2vec2};

pub const FAMILY: Family =
    Family::own("unispeech-sat", "UniSpeechSat", read).leaving_unread(wav2vec2::UNREAD);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = WaveLike::usual(&["unispeech_sat.", ""]);
    wave_like::read(FAMILY.model_type, checkpoint, reader, like)
}
